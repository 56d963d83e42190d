// predict() and predict_sharded(): the step at every cap that matters, or at every grouping,
// prefetch and reshard setting, the best of them, and what binds its step.
// Framework settings (sim/frameworks/framework_advice.h), percentiles (sim/predict/percentiles.h)
// and both ends of presets (sim/predict/preset_ends.h) are separate calls.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/strategy.h"
#include "sim/predict/evaluation.h"
#include "sim/predict/lever.h"
#include "sim/predict/named_cap.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"
#include "sim/sharding/sharded_input.h"

namespace bucketwise {

struct Prediction {
    std::vector<Evaluation> sweep;  // by rising cap; sharded settings all with different results
    // Index into sweep: the row with the least expected regret, or an equally good one that is
    // shorter to type (sim/predict/confidence.h), that may be named (sim/predict/named_cap.h); the
    // only row of a strategy without caps. A choice of sharding must fit into memory, and an
    // equally good one needs less memory or turns fewer knobs.
    std::size_t best = 0;
    // The framework's default; of a sharded step the scenario's own setting.
    Evaluation default_cap;
    // PyTorch's default differs from naming its 25 MiB: it keeps a first bucket of 1 MiB. If that
    // beats every cap, the default is chosen.
    bool default_is_fastest = false;
    // The advice: the default's expected regret is at most plateau_tolerance above the choice's.
    bool keep_default = false;
    std::optional<Evaluation> configured;  // the scenario's own caps, if it names any, or sharding
    // The step with DDP and its default caps, for other strategies.
    std::optional<Evaluation> with_ddp = {};
    std::size_t plateau_low = 0;   // indices into sweep: the run of caps around the best with steps
    std::size_t plateau_high = 0;  // within plateau_tolerance of it
    Binding binding;               // of the advised step
    // On what nobody measured hangs whether a cap is faster.
    std::optional<OverlapDoubt> doubt = {};
    // Sentences: it does not fit the device. Set by who knows the scenario.
    std::string misfit = {};
    // Other knobs that save most; set as well by who knows the scenario (sim/optimum/levers.h).
    Levers levers = {};
    bool every_plan = false;  // whether the sweep holds every plan of any cap
    bool best_fits = true;    // false: no setting fits, and `best` has the least memory
    // Sharded, by rising memory: no row is faster with less.
    std::vector<std::size_t> frontier = {};
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

// Rising rows of the sweep that matter: rows near the fastest, thinned out evenly if they are many,
// the ends and the best; of a sharded step those with a confidence.
std::vector<std::size_t> rows_that_matter(const Prediction& prediction);

using Progress = std::function<void(double done)>;  // from 0 to 1

// Evaluates `caps`, or without any one cap for every plan of the strategy. More than 2,000
// gradients could take minutes; caps then rise by at least 1 % from plan to plan, and a note says
// so. `request.bucket_cap` is the scenario's own cap.
Prediction predict(const StepInput& input, const SyncRequest& request,
                   const std::vector<Bytes>& caps, const Progress& progress);

// Throws InputError if a step could last longer than longest_duration.
Prediction predict_sharded(const Scenario& scenario, const ShardedInput& input,
                           const Progress& progress);

}  // namespace bucketwise
