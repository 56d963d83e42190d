// Flight recorder dumps as PyTorch writes them, in JSON; each test changes its own part.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/collectives/collective_log.h"
#include "import/flight_recorder/flight_recorder.h"
#include "sim/base/json.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {

// One after another, each at its own time.
class WrittenDump {
  public:
    explicit WrittenDump(std::int64_t ranks = 4) {
        dump_ = {{"version", "2.10"},
                 {"nccl_version", "2.27.5"},
                 {"pg_config",
                  {{"0", {{"name", "0"}, {"desc", "default_pg"}, {"ranks", ranks_text(ranks)}}}}},
                 {"entries", Json::array()}};
    }

    Json& entry(const std::string& name, std::int64_t elements, double at_ms,
                const std::string& dtype = "Float", const std::string& group = "0",
                const std::string& description = "default_pg") {
        // Nanoseconds since 1970, as of now.
        const std::int64_t created =
            1'795'558'233'000'000'000 + static_cast<std::int64_t>(at_ms * 1e6);
        dump_["entries"].push_back({{"record_id", dump_["entries"].size()},
                                    {"pg_id", 0},
                                    {"process_group", {group, description}},
                                    {"collective_seq_id", ++sequence_},
                                    {"p2p_seq_id", 0},
                                    {"op_id", sequence_},
                                    {"profiling_name", "nccl:" + name},
                                    {"time_created_ns", created},
                                    {"input_sizes", {{elements}}},
                                    {"input_dtypes", {dtype}},
                                    {"output_sizes", {{elements}}},
                                    {"output_dtypes", {dtype}},
                                    {"state", "completed"},
                                    {"retired", true},
                                    {"timeout_ms", 600000},
                                    {"is_p2p", false}});
        return dump_["entries"].back();
    }

    // Steps of all-reduces, each `issues_ms` after the step's begin, which is every `period_ms`.
    void steps(int count, const std::vector<std::int64_t>& elements,
               const std::vector<double>& issues_ms, double period_ms,
               const std::vector<double>& durations_ms = {}, double begin_ms = 0) {
        for (int step = 0; step < count; ++step) {
            for (std::size_t i = 0; i < elements.size(); ++i) {
                Json& one =
                    entry("all_reduce", elements[i], begin_ms + step * period_ms + issues_ms[i]);
                if (!durations_ms.empty()) {
                    one["duration_ms"] = durations_ms[i];
                }
            }
        }
    }

    Json& json() { return dump_; }
    [[nodiscard]] std::string text() const { return dump_.dump(); }
    [[nodiscard]] CollectiveLog log(const std::string& file = "dump") const {
        return read_flight_recorder(text_source(text(), 1 << 12), file);
    }

  private:
    static std::string ranks_text(std::int64_t ranks) {
        std::string text = "[0";
        for (std::int64_t rank = 1; rank < ranks; ++rank) {
            text += ", " + std::to_string(rank);
        }
        return text + "]";
    }

    Json dump_;
    std::int64_t sequence_ = 0;
};

}  // namespace bucketwise
