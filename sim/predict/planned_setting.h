// A setting of a strategy's knobs with its plan: the parts of a step with it. Predictions of every
// strategy work on them.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/sharding/sharded_step.h"

namespace bucketwise {

// How gradients travel in buckets, or how parameters are sharded.
using Setting = std::variant<SyncSettings, ShardingRequest>;

struct StepParts {
    StepBeforeClosing before;
    Program closing;
    ShardedMemory memory = {};  // of a sharded step
};

class PlannedSetting {
  public:
    PlannedSetting(const StepInput& input, const Setting& setting);

    // `input` has the same tensors and ranks as the constructor's. Throws InputError if the parts
    // before the closing one could last longer than longest_duration.
    [[nodiscard]] StepParts parts(const StepInput& input) const;

    // The closing part alone. Overwrites `closing` and reuses its storage.
    void close(const StepInput& input, Program& closing) const;

    // Whether the parts before the closing one are those of every setting of its strategy.
    [[nodiscard]] bool shares_before() const {
        const auto* buckets = std::get_if<Buckets>(&planned_);
        return buckets != nullptr && !buckets->before_depends;
    }

    [[nodiscard]] StepLoop loop(const StepInput& input) const;
    [[nodiscard]] const ShardPlan& shard_plan() const { return std::get<Shards>(planned_).plan; }

  private:
    struct Buckets {
        SyncSettings sync;
        BucketPlan plan;
        bool before_depends;  // the parts before the closing one depend on the plan
    };
    struct Shards {
        ShardingRequest request;
        ShardPlan plan;
    };
    std::variant<Buckets, Shards> planned_;
};

std::vector<PlannedSetting> planned(const StepInput& input, const std::vector<Setting>& settings);

// A step with one setting, ready to run. Settings that share the parts before the closing one share
// their simulation.
struct OpenedStep {
    std::shared_ptr<const StepBeforeClosing> before;
    std::shared_ptr<const StepToClose> step;
    Program closing;
    bool owns_before = false;  // there is something before, of this setting alone

    [[nodiscard]] std::int64_t instructions() const {
        return std::ssize(closing.instructions) + (owns_before ? before->instructions() : 0);
    }
};

// Overwrites `steps`.
void open_steps(const std::vector<PlannedSetting>& settings, const StepInput& input,
                std::vector<OpenedStep>& steps);

}  // namespace bucketwise
