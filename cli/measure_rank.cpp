#include "cli/measure_rank.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/ranks/measurement_file.h"
#include "cli/ranks/rank_job.h"
#include "cli/resumption.h"
#include "cli/shell/progress.h"
#include "cli/shell/size.h"
#include "cli/shell/version.h"
#include "hw/backend/backend.h"
#include "hw/launch/launcher_report.h"
#include "hw/measure/measurer.h"
#include "sim/base/hash.h"

namespace bucketwise {
namespace {

EnvironmentRecord environment_record(const MeasureOptions& options, const RankIdentity& identity,
                                     const std::string& gpu) {
    EnvironmentRecord record = machine_record(identity, options.network);
    record.command = options.command;
    record.libraries = options.backend->libraries();
    record.gpu = gpu;
    record.transport = transport_of(options);
    record.seed = options.schedule.seed;
    record.rounds = options.schedule.rounds;
    const Workload& workload = options.input.workload;
    for (const Gradient& gradient : workload.gradients) {
        record.gradients.push_back(gradient.name);
    }
    for (const TimedOperation& operation : workload.forward) {
        record.forward_operations.push_back(operation.name);
    }
    for (const TimedOperation& operation : workload.backward) {
        record.backward_operations.push_back(operation.name);
    }
    record.scenario = options.scenario_text;
    return record;
}

std::string label_of(const Item& item) {
    switch (item.protocol) {
        case Protocol::all_reduce:
            return fmt::format("all-reduce of {}", text_of(item.message));
        case Protocol::compute:
            return "compute alone";
        case Protocol::contention:
            return fmt::format("contention with {}{}", text_of(item.message),
                               item.ctas ? fmt::format(" of {} CTAs", *item.ctas) : "");
        case Protocol::step:
            return item.cap ? fmt::format("step at {}", text_of(*item.cap)) : "step";
    }
    return {};
}

// 64 bits that differ when texts do.
std::int64_t fingerprint(std::string_view text) {
    return static_cast<std::int64_t>(fnv_hash(text));
}

// What all ranks of a run must agree in.
struct Agreement {
    const char* what;
    std::int64_t value;
};

std::vector<Agreement> agreements_of(const MeasureOptions& options) {
    std::string items;
    for (const Item& item : options.schedule.items) {
        items += fmt::format("{} {} {} {},", name_of(item.protocol), item.message.count,
                             item.cap.value_or(Bytes{-1}).count, item.ctas.value_or(0));
    }
    return {{"version of bucketwise", fingerprint(program_version())},
            {"scenario", fingerprint(options.scenario_text)},
            {"--protocols, --bytes, --contention-ctas or --bucket-cap", fingerprint(items)},
            {"--backend", fingerprint(options.backend->name())},
            {"--all-reduce", static_cast<std::int64_t>(options.request.implementation)},
            {"--share-gpu", options.request.share_gpu ? 1 : 0},
            {"--ctas", options.request.ctas.value_or(0)},
            {"--rounds", options.schedule.rounds},
            {"--seed", static_cast<std::int64_t>(options.schedule.seed)}};
}

class RankRun {
  public:
    RankRun(const MeasureOptions& options, const RankIdentity& identity,
            const LauncherReport& report)
        : options_(options),
          identity_(identity),
          report_(report),
          connection_(options.backend->connect(meeting_point(options.network, identity), identity,
                                               options.request)),
          device_(connection_->device(options.scenario, options.input.workload,
                                      settings_for(options.scenario.sync))),
          measurer_(options.scenario, options.input, transport_of(options), *device_,
                    connection_->control()) {}

    void run() {
        report_.progress("calibrating");
        check_agreement();
        connection_->control().barrier();
        device_->calibrate();
        find_open_positions();
        open_file();
        const Schedule& schedule = options_.schedule;
        warm_up();
        for (std::int64_t round = 0; round < schedule.rounds; ++round) {
            for (const std::int32_t item : order_of_round(schedule, round)) {
                if (is_open(round, item)) {
                    measure(round, item);
                }
            }
        }
        // Nobody leaves while others may still need what it sent last.
        connection_->control().barrier();
    }

  private:
    // Somebody else may have started the ranks, each on a machine with files of its own.
    void check_agreement() {
        const std::vector<Agreement> own = agreements_of(options_);
        std::vector<std::int64_t> firsts;
        for (const Agreement& agreement : own) {
            firsts.push_back(agreement.value);
        }
        connection_->control().broadcast_from_first(firsts);
        for (std::size_t i = 0; i < own.size(); ++i) {
            if (own[i].value != firsts[i]) {
                throw std::runtime_error(
                    fmt::format("was started with another {} than rank 0", own[i].what));
            }
        }
    }

    // Rank 0 has the file and so knows what earlier runs have left to do.
    void find_open_positions() {
        std::vector<Measurement> records;
        if (identity_.rank == 0 && options_.resume) {
            records = read_measurements(options_.output).records;
        }
        open_ = open_positions(options_.schedule, records);
        connection_->control().broadcast_from_first(open_);
        for (const std::int64_t position : open_) {
            total_ += position;
        }
    }

    void open_file() {
        if (identity_.rank == 0) {
            file_.emplace(options_.output);
            file_->append({environment_record(options_, identity_, connection_->gpu())});
        }
    }

    [[nodiscard]] bool is_open(std::int64_t round, std::int32_t item) const {
        return open_[static_cast<std::size_t>(round) * options_.schedule.items.size() +
                     static_cast<std::size_t>(item)] != 0;
    }

    // Everything that will be measured, once, and dropped: caches, connections and pages.
    void warm_up() {
        for (std::size_t i = 0; i < options_.schedule.items.size(); ++i) {
            bool needed = false;
            for (std::int64_t round = 0; round < options_.schedule.rounds; ++round) {
                needed = needed || is_open(round, static_cast<std::int32_t>(i));
            }
            if (needed) {
                report_.progress(fmt::format("0 {} warming up: {}", total_,
                                             label_of(options_.schedule.items[i])));
                measurer_.measure(options_.schedule.items[i], -1, 0);
            }
        }
    }

    void measure(std::int64_t round, std::int32_t index) {
        const Item& item = options_.schedule.items[static_cast<std::size_t>(index)];
        const std::string progress =
            fmt::format("{} {} {}, round {} of {}", done_, total_, label_of(item), round + 1,
                        options_.schedule.rounds);
        report_.progress(progress);
        if (identity_.rank == 0 && !report_.has_launcher()) {
            line_.show(progress);
        }
        const std::vector<Measurement> records =
            measurer_.measure(item, round, seeded_bits(options_.schedule.seed, round, index));
        if (file_) {
            file_->append(records);
        }
        ++done_;
    }

    const MeasureOptions& options_;
    const RankIdentity& identity_;
    const LauncherReport& report_;
    std::unique_ptr<RankConnection> connection_;
    std::unique_ptr<RankDevice> device_;
    Measurer measurer_;
    std::optional<MeasurementFile> file_;
    std::vector<std::int64_t> open_;
    std::int64_t done_ = 0;
    std::int64_t total_ = 0;
    MeasureProgress line_;
};

}  // namespace

int run_measure_rank(const MeasureOptions& options, const RankIdentity& identity) {
    return run_rank(
        identity, [&](const LauncherReport& report) { RankRun(options, identity, report).run(); });
}

}  // namespace bucketwise
