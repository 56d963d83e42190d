// One setting of a step's strategy, simulated: a row of a prediction.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/bucket_planner.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/predict/confidence.h"
#include "sim/predict/overlap.h"
#include "sim/program/framework.h"
#include "sim/program/program.h"
#include "sim/program/step_programs.h"
#include "sim/scenario/memory_need.h"
#include "sim/sharding/sharded_step.h"

namespace bucketwise {

// Steps closer than this are indistinguishable: the model's own error, not a measured noise floor.
constexpr double plateau_tolerance = 0.005;

// A setting of a step that shards, and its plan.
struct ShardedRow {
    ShardingRequest request;
    std::size_t groups = 0;  // including the root's
    Bytes largest_gather;    // of one all-gather
    ShardedMemory memory;    // of parameters and gradients
    bool operator==(const ShardedRow&) const = default;
};

struct Evaluation {
    Cap cap = Cap::none();
    CapRange same_plan;               // all caps that give this plan; meaningless without a cap
    std::vector<Bytes> bucket_bytes;  // in launch order
    StepTimes times;
    Duration communication{0};                      // all collectives, each alone on the link
    Duration exposed{0};                            // the saving if communication were free
    std::optional<StepConfidence> confidence = {};  // of rows that were drawn
    // The saving over the default where overlap's costs are assumed, from end to end.
    std::optional<DrawnShare> saved_at_ends = {};
    std::optional<ShardedRow> sharded = {};  // in place of a cap
    std::optional<MemoryNeed> memory = {};   // where settings differ in it
    bool operator==(const Evaluation&) const = default;

    [[nodiscard]] Duration step() const { return times.step(); }
    [[nodiscard]] bool fits() const { return !memory || memory->fits(); }
    [[nodiscard]] Bytes peak() const { return memory ? memory->most() : Bytes{}; }
};

// The step split into the savings of free communication, then of free launches, and the rest. Sums
// to the step.
struct Binding {
    Duration communication{0};
    Duration launch{0};
    Duration compute{0};
    bool operator==(const Binding&) const = default;
};

// A step without its closing part, as it is and with free communication.
class OpenStep {
  public:
    explicit OpenStep(StepBeforeClosing before);
    OpenStep(const OpenStep&) = delete;
    OpenStep& operator=(const OpenStep&) = delete;

    // All of these throw InputError if the step could last longer than longest_duration.
    [[nodiscard]] Duration step_closed_by(const Program& closing) const {
        return step_.step_closed_by(closing);
    }
    [[nodiscard]] Binding binding(Program closing) const;
    // Sets times and communication. Leaves the closing part with free communication.
    void evaluate(Program& closing, Evaluation& evaluation) const;

  private:
    StepBeforeClosing before_;
    StepBeforeClosing before_if_free_;
    StepToClose step_;
    StepToClose step_if_free_;
};

// Simulates plans of one step. The parts before the last backward are simulated once, unless the
// plan changes them.
class Evaluator {
  public:
    // Throws InputError if the step with any plan could last longer than longest_duration.
    Evaluator(const StepInput& input, SyncRequest request);

    [[nodiscard]] Bytes least_cap() const { return bucketwise::least_cap(request_); }

    // The plan with this cap, if the strategy has caps.
    [[nodiscard]] BucketPlan plan(Cap cap) const;

    // The step with this cap. Throws InputError if it could last longer than longest_duration.
    Evaluation evaluate(Cap cap) { return evaluate(cap, plan(cap)); }
    Evaluation evaluate(Cap cap, const BucketPlan& plan);

    [[nodiscard]] Duration step(Cap cap) const;
    [[nodiscard]] Binding binding(Cap cap) const;

    // The program of the whole step on the slowest rank.
    [[nodiscard]] Program program(Cap cap) const;

    // Runs the program from the start of a settled step.
    [[nodiscard]] Simulation simulation(const Program& program) const;

  private:
    [[nodiscard]] SyncSettings settings(Cap cap) const {
        return settings_for(with_cap(request_, cap), input_);
    }
    // With the parts before the closing one, which `program` is.
    template <typename Use>
    auto opened(const SyncSettings& sync, const BucketPlan& plan, const Use& use) const {
        return before_depends_ ? use(OpenStep(StepBeforeClosing(input_, sync, plan))) : use(*open_);
    }
    template <typename Use>
    auto closed(Cap cap, const Use& use) const {
        const SyncSettings sync = settings(cap);
        const BucketPlan planned = plan(cap);
        Program closing;
        build_closing(input_, sync, planned, closing);
        return opened(sync, planned, [&](const OpenStep& open) { return use(open, closing); });
    }

    const StepInput& input_;
    SyncRequest request_;
    bool before_depends_;
    std::optional<BackwardMoments> moments_;
    std::unique_ptr<const OpenStep> open_;  // without a plan
    Program program_;
};

// The step of a scenario that shards, and its memory. Throws InputError if it could last longer
// than longest_duration.
Evaluation evaluate_sharded(const Scenario& scenario, const ShardedInput& input);
Binding sharded_binding(const ShardedInput& input);

// The whole step's program on the slowest rank, and its run from the start of a settled step.
Program sharded_program(const ShardedInput& input);
Simulation sharded_simulation(const ShardedInput& input, const Program& program);

}  // namespace bucketwise
