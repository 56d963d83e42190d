#include "sim/optimum/accumulator_search.h"

#include <limits>
#include <optional>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/plan/gradient_line.h"

namespace bucketwise {

AccumulatorSearch search_accumulators(const StepInput& input, const SyncSettings& sync,
                                      const PlanStep& from, Duration bound,
                                      std::size_t most_to_exhaust, std::int64_t most_instructions,
                                      const std::function<void(double)>& progress) {
    const Workload& workload = input.workload;
    const bool few = workload.gradients.size() <= most_to_exhaust;
    AccumulatorSearch result{from, few};
    std::uint32_t ways = 1;
    for (std::uint32_t way = 0; way < ways; ++way) {
        const GradientLine line =
            GradientLine::of_accumulators(workload.gradients, workload.readiness, sync.policy, way);
        ways = line.ways_to_end();
        SimulatedCuts steps(input, sync, line);
        const std::optional<Cuts> cuts = line.cuts_of(result.best.plan);
        invariant(cuts.has_value(), "buckets hold what follows one another in an accumulator");
        CutStep start{*cuts, steps.step(*cuts)};
        if (!few && result.best.step == bound && start.step > bound) {
            continue;  // else there may be a plan of fewer buckets that is as fast
        }
        CutStep found;
        const auto share = [&](double done) { progress((way + done) / ways); };
        if (few) {
            ExhaustiveSearch search =
                exhaustive_search(line, steps, nullptr, std::move(start),
                                  std::numeric_limits<std::int64_t>::max() / 2, share);
            result.complete = result.complete && search.complete;
            found = std::move(search.best);
        } else {
            found = locally_improved(line, steps, std::move(start), most_instructions, share);
        }
        PlanStep better{line.plan(found.cuts), found.step};
        if (rank_of(better) < rank_of(result.best)) {
            result.best = std::move(better);
        }
    }
    return result;
}

}  // namespace bucketwise
