// predict(): the step at every cap that matters, the best cap, and what binds its step. Framework
// settings (sim/frameworks/framework_advice.h), percentiles (sim/predict/percentiles.h) and both
// ends of presets are separate calls.
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
#include "sim/predict/evaluation.h"
#include "sim/predict/named_cap.h"
#include "sim/program/program.h"

namespace bucketwise {

// The step split into the savings of free communication, then of free launches, and the rest. Sums
// to the step.
struct Binding {
    Duration communication{0};
    Duration launch{0};
    Duration compute{0};
    bool operator==(const Binding&) const = default;
};

struct Prediction {
    std::vector<Evaluation> sweep;  // by rising cap
    // Index into sweep: the row with the least expected regret, or an equally good one that is
    // shorter to type (sim/predict/confidence.h), that may be named (sim/predict/named_cap.h); the
    // only row of a strategy without caps.
    std::size_t best = 0;
    Evaluation default_cap;  // the framework's default
    // PyTorch's default differs from naming its 25 MiB: it keeps a first bucket of 1 MiB. If that
    // beats every cap, the default is chosen.
    bool default_is_fastest = false;
    // The advice: the default's expected regret is at most plateau_tolerance above the choice's.
    bool keep_default = false;
    std::optional<Evaluation> configured;  // the scenario's own caps, if it names any
    // The step with DDP and its default caps, for other strategies.
    std::optional<Evaluation> with_ddp = {};
    std::size_t plateau_low = 0;   // indices into sweep: the run of caps around the best with steps
    std::size_t plateau_high = 0;  // within plateau_tolerance of it
    Binding binding;               // of the advised step
    std::optional<OverlapDoubt> doubt =
        {};  // on what nobody measured hangs whether a cap is faster
    std::string misfit =
        {};  // sentences: it does not fit the device; set by who knows the scenario
    bool every_plan = false;  // whether the sweep holds every plan of any cap
    std::vector<std::string> notes;

    [[nodiscard]] const Evaluation& chosen() const {
        return default_is_fastest ? default_cap : sweep[best];
    }
    // The least step, which is not always the chosen one.
    [[nodiscard]] const Evaluation& fastest() const;
    [[nodiscard]] const Evaluation& advised() const {
        return keep_default ? default_cap : chosen();
    }
};

// Simulates plans of one step. The parts before the last backward, which no plan changes, are
// simulated once.
class Evaluator {
  public:
    // Throws InputError if the step with any plan could last longer than longest_duration.
    Evaluator(const StepInput& input, SyncRequest request);
    Evaluator(const Evaluator&) = delete;
    Evaluator& operator=(const Evaluator&) = delete;

    [[nodiscard]] Bytes least_cap() const { return bucketwise::least_cap(request_); }

    // The plan with this cap, if the strategy has caps.
    [[nodiscard]] BucketPlan plan(Cap cap) const;

    // The step with this cap. Throws InputError if it could last longer than longest_duration.
    Evaluation evaluate(Cap cap) { return evaluate(cap, plan(cap)); }
    Evaluation evaluate(Cap cap, const BucketPlan& plan);

    Duration step(Cap cap);
    [[nodiscard]] Binding binding(Cap cap) const;

    // The program of the whole step on the slowest rank.
    [[nodiscard]] Program program(Cap cap) const;

    // Runs the program from the start of a settled step.
    [[nodiscard]] Simulation simulation(const Program& program) const;

  private:
    [[nodiscard]] SyncSettings settings(Cap cap) const {
        return settings_for(with_cap(request_, cap));
    }

    const StepInput& input_;
    SyncRequest request_;
    StepBeforeClosing before_;
    StepBeforeClosing before_if_free_;     // with free communication
    StepBeforeClosing before_unlaunched_;  // and free launches
    StepToClose step_;
    StepToClose step_if_free_;
    StepToClose step_unlaunched_;
    Program program_;
};

// Rising rows of the sweep that matter: rows near the fastest, thinned out evenly if they are many,
// the ends and the best.
std::vector<std::size_t> rows_that_matter(const Prediction& prediction);

using Progress = std::function<void(double done)>;  // from 0 to 1

// Evaluates `caps`, or without any one cap for every plan of the strategy. More than 2,000
// gradients could take minutes; caps then rise by at least 1 % from plan to plan, and a note says
// so. `request.bucket_cap` is the scenario's own cap.
Prediction predict(const StepInput& input, const SyncRequest& request,
                   const std::vector<Bytes>& caps, const Progress& progress);

// The step at one end of a preset of a link or a device.
struct PriorEnd {
    PresetEnd end = PresetEnd::slow;
    Evaluation best;          // the fastest there
    Duration with_choice{0};  // the step with the advice for the typical preset
    bool operator==(const PriorEnd&) const = default;

    // The excess of the advice over the fastest, as a share.
    [[nodiscard]] double regret() const {
        const double least = std::max(static_cast<double>(best.times.step().count()), 1.0);
        return static_cast<double>((with_choice - best.times.step()).count()) / least;
    }
};

// Both ends, the slow one first, of each preset that the scenario uses.
struct PriorEnds {
    std::vector<PriorEnd> link = {};
    std::vector<PriorEnd> device = {};
};

// The slow end, then the fast one, each with the fastest plan of `prediction`, which has the
// typical link. Throws InputError if a step could last longer than longest_duration.
std::vector<PriorEnd> link_ends(const StepInput& input, const SyncRequest& request,
                                const LinkPreset& preset, const Prediction& prediction);

// The same for a device preset, with the scenario's input at both ends.
std::vector<PriorEnd> device_ends(const std::array<StepInput, 2>& slow_and_fast,
                                  const SyncRequest& request, const Prediction& prediction);

}  // namespace bucketwise
