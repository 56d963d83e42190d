// predict(): the step at every cap that matters, the best of them, and what binds it. What to type
// into a framework (sim/frameworks/framework_advice.h), both ends of presets and percentiles
// (sim/predict/percentiles.h) are asked for on their own.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/link/link_presets.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/predict/confidence.h"
#include "sim/program/program.h"

namespace bucketwise {

// One plan, simulated.
struct Evaluation {
    Cap cap = Cap::none();
    CapRange same_plan;  // every cap in this range gives the same plan; meaningless without a cap
    std::vector<Bytes> bucket_bytes;  // in launch order
    StepTimes times;
    Duration communication{0};  // all collectives, each as long as it takes alone on the link
    Duration exposed{0};        // what the step would lose if communication were free
    std::optional<StepConfidence> confidence = {};  // of the rows that were drawn
    bool operator==(const Evaluation&) const = default;

    [[nodiscard]] Duration step() const { return times.step(); }
};

// The step split by what would have to be free to save it: communication, then launching, then the
// rest. Sums to the step.
struct Binding {
    Duration communication{0};
    Duration launch{0};
    Duration compute{0};
    bool operator==(const Binding&) const = default;
};

struct Prediction {
    std::vector<Evaluation> sweep;  // by rising cap
    // Index into sweep: the one with the least expected regret, among what cannot be told from it
    // the shortest to type (sim/predict/confidence.h); of a strategy without caps the only one.
    std::size_t best = 0;
    Evaluation default_cap;  // the framework's default
    // PyTorch's default differs from naming its 25 MiB: it keeps a first bucket of 1 MiB. Where
    // that beats every cap that can be named, the default is chosen.
    bool default_is_fastest = false;
    // The advice: the default is expected to cost no more than plateau_tolerance over the choice.
    bool keep_default = false;
    std::optional<Evaluation> configured;  // the scenario's own caps, where it names any
    // Of a strategy that is not DDP's: the same step with DDP and its default caps.
    std::optional<Evaluation> with_ddp = {};
    std::size_t plateau_low = 0;   // indices into sweep: the run of caps around the best whose step
    std::size_t plateau_high = 0;  // is within plateau_tolerance of it
    Binding binding;               // of the advised step
    bool every_plan = false;       // whether the sweep holds every plan that any cap can give
    std::vector<std::string> notes;

    [[nodiscard]] const Evaluation& chosen() const {
        return default_is_fastest ? default_cap : sweep[best];
    }
    // The least step of all, which is not always the one that is chosen.
    [[nodiscard]] const Evaluation& fastest() const;
    [[nodiscard]] const Evaluation& advised() const {
        return keep_default ? default_cap : chosen();
    }
};

// Steps closer than this are not told apart: it is the model's own error that a measurement would
// have to beat, not a measured noise floor.
constexpr double plateau_tolerance = 0.005;

// Simulates plans of one step. What no plan changes, all before the last backward, it simulates
// once.
class Evaluator {
  public:
    // Throws InputError when the step could last longer than longest_duration whatever the plan.
    Evaluator(const StepInput& input, SyncRequest request);
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;

    // The smallest cap that it takes.
    [[nodiscard]] Bytes least_cap() const { return bucketwise::least_cap(request_); }

    // The plan with this cap, where the request has one; else as it is.
    [[nodiscard]] BucketPlan plan(Cap cap) const;

    // The step with this cap. Throws InputError when it could last longer than longest_duration.
    Evaluation evaluate(Cap cap) { return evaluate(cap, plan(cap)); }
    Evaluation evaluate(Cap cap, const BucketPlan& plan);

    // Only how long it takes.
    Duration step(Cap cap);

    // What the step with this cap is bound by.
    [[nodiscard]] Binding binding(Cap cap) const;

    // The program of the whole step on the slowest rank, for a closer look.
    [[nodiscard]] Program program(Cap cap) const;

    // That program, run from where a settled step begins.
    [[nodiscard]] Simulation simulation(const Program& program) const;

  private:
    [[nodiscard]] SyncSettings settings(Cap cap) const {
        return settings_for(with_cap(request_, cap));
    }

    const StepInput& input_;
    SyncRequest request_;
    StepBeforeClosing before_;
    StepBeforeClosing before_if_free_;     // were its communication free
    StepBeforeClosing before_unlaunched_;  // and launching too
    StepToClose step_;
    StepToClose step_if_free_;
    StepToClose step_unlaunched_;
    Program program_;
};

// Rows of the sweep that are worth a closer look, rising: those near the fastest, thinned out
// evenly if they are many, the ends and the best.
std::vector<std::size_t> rows_that_matter(const Prediction& prediction);

using Progress = std::function<void(double done)>;  // from 0 to 1

// Evaluates `caps`, or, if empty, one cap for every plan that the strategy can give. With more than
// 2,000 gradients that could take minutes, so caps then rise by at least 1 % from plan to plan, and
// a note says so. `request.bucket_cap` is the scenario's own cap.
Prediction predict(const StepInput& input, const SyncRequest& request,
                   const std::vector<Bytes>& caps, const Progress& progress);

// The same step at one end of what a preset, a link or a device, leaves open.
struct PriorEnd {
    PresetEnd end = PresetEnd::slow;
    Evaluation best;          // the fastest there
    Duration with_choice{0};  // the step with what is advised for the typical one
    bool operator==(const PriorEnd&) const = default;

    // What that costs over the fastest, as a share.
    [[nodiscard]] double regret() const {
        const double least = std::max(static_cast<double>(best.times.step().count()), 1.0);
        return static_cast<double>((with_choice - best.times.step()).count()) / least;
    }
};

// Both ends, the slow one first, of each preset of a scenario that is one.
struct PriorEnds {
    std::vector<PriorEnd> link = {};
    std::vector<PriorEnd> device = {};
};

// The slow end, then the fast one, each with the fastest of the plans that are in `prediction`,
// which is of the typical link.
// Throws InputError when a step could last longer than longest_duration.
std::vector<PriorEnd> link_ends(const StepInput& input, const SyncRequest& request,
                                const LinkPreset& preset, const Prediction& prediction);

// The same of a device whose computing nobody has measured, as the scenario at those ends has it.
std::vector<PriorEnd> device_ends(const std::array<StepInput, 2>& slow_and_fast,
                                  const SyncRequest& request, const Prediction& prediction);

}  // namespace bucketwise
