// FSDP2's collectives of a traced step, and what they say of the ranks that they are among.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/run/traced_run.h"
#include "import/run/traced_sharding.h"
#include "import/source/findings.h"

namespace bucketwise {

class ShardCollectives {
  public:
    // Of the run's first step, which is fully sharded. Both are kept by reference; the numbers of
    // ranks and the strategy become `result`'s. Throws InputError for what the simulator has
    // nothing for, and where nothing tells the sizes.
    ShardCollectives(const TracedRun& run, std::optional<std::int64_t> requested_ranks,
                     Findings& findings, TracedSharding& result);

    // As issued.
    [[nodiscard]] const std::vector<const TracedCollective*>& all() const { return all_; }
    // Those of the last micro-step, by their marks.
    [[nodiscard]] std::vector<const TracedCollective*> of_pass(
        const std::vector<StepMark>& pass) const;
    // Elements of all ranks, and how many these are.
    [[nodiscard]] std::int64_t whole(const TracedCollective& collective) const;
    [[nodiscard]] std::int64_t ranks_of(const TracedCollective& collective) const;

    [[nodiscard]] std::string name_of_group(std::int32_t module) const;
    // Throws InputError.
    [[noreturn]] void refuse(const std::string& expected, const std::string& got) const;

  private:
    void keep_own();
    void refuse_parts_of_groups() const;
    void refuse_more_than_any_model() const;
    void refuse_unknown_sizes() const;
    void find_ranks();
    void find_replicas(std::optional<std::int64_t> requested_ranks, Findings& findings);

    const TracedRun& run_;
    const TracedStep& step_;
    TracedSharding& result_;
    std::vector<const TracedCollective*> all_;
    bool gathers_say_shards_ = false;
};

}  // namespace bucketwise
