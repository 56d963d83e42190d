// FSDP2's collectives of a traced step: which ranks take part, and the gradients they gather.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"
#include "sim/workload/workload.h"

namespace bucketwise {

class ShardCollectives {
  public:
    // Reads the run's first step, which is fully sharded. Keeps `run` and `result` by reference;
    // sets the numbers of ranks and the strategy of `result`. Throws InputError for settings that
    // the simulator does not know, and where nothing tells the sizes.
    ShardCollectives(const TracedRun& run, std::optional<std::int64_t> requested_ranks,
                     Findings& findings, TracedSharding& result);

    // As issued.
    [[nodiscard]] const std::vector<const TracedCollective*>& all() const { return all_; }
    // The collectives of the last micro-step, by their marks.
    [[nodiscard]] std::vector<const TracedCollective*> of_pass(
        const std::vector<StepMark>& pass) const;
    // Elements of all ranks, and the number of these ranks.
    [[nodiscard]] std::int64_t whole(const TracedCollective& collective) const;
    [[nodiscard]] std::int64_t ranks_of(const TracedCollective& collective) const;

    [[nodiscard]] std::string name_of_group(std::int32_t module) const;
    // Throws InputError.
    [[noreturn]] void refuse(const std::string& expected, const std::string& got) const;

  private:
    void keep_own();
    void refuse_damage() const;
    void refuse_unknown_sizes() const;
    void find_ranks();
    void find_replicas(std::optional<std::int64_t> requested_ranks, Findings& findings);

    const TracedRun& run_;
    const TracedStep& step_;
    TracedSharding& result_;
    std::vector<const TracedCollective*> all_;
    bool gathers_say_shards_ = false;
};

// Adds the gradients to `result`, whose groups and types are known, and to these groups. `model`:
// as traced_sharding(). Throws InputError where they are not the elements that groups gather.
void find_shard_gradients(const TracedStep& step, const ShardCollectives& collectives,
                          const Workload& model, Findings& findings, TracedSharding& result);

}  // namespace bucketwise
