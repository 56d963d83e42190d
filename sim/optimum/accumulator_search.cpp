#include "sim/optimum/accumulator_search.h"

#include <array>
#include <limits>
#include <optional>

#include "sim/base/invariant.h"
#include "sim/plan/gradient_line.h"

namespace bucketwise {
namespace {

// In how many ways the last bucket of each dtype may close: with its last gradient, or when all
// have joined. Where buckets are sorted, or wait for the next gradient, that changes nothing.
std::uint32_t ways_to_end(const Workload& workload, const PlanPolicy& policy) {
    if (policy.closing == Closing::strict || policy.reversed_after_sort) {
        return 1;
    }
    std::array<bool, every<DType>.size()> seen{};
    std::uint32_t ways = 1;
    for (const Gradient& gradient : workload.gradients) {
        bool& dtype = seen[static_cast<std::size_t>(gradient.dtype)];
        ways *= gradient.sparse || dtype ? 1 : 2;
        dtype = dtype || !gradient.sparse;
    }
    return ways;
}

}  // namespace

AccumulatorSearch search_accumulators(const StepInput& input, const SyncSettings& sync,
                                      const PlanStep& from, Duration bound,
                                      std::size_t most_to_exhaust, std::int64_t most_instructions,
                                      const std::function<void(double)>& progress) {
    const Workload& workload = input.workload;
    const bool few = workload.gradients.size() <= most_to_exhaust;
    const std::uint32_t ways = ways_to_end(workload, sync.policy);
    AccumulatorSearch result{from, few};
    for (std::uint32_t way = 0; way < ways && result.best.step > bound; ++way) {
        const GradientLine line =
            GradientLine::of_accumulators(workload.gradients, workload.readiness, sync.policy, way);
        SimulatedCuts steps(input, sync, line);
        const std::optional<Cuts> cuts = line.cuts_of(result.best.plan);
        invariant(cuts.has_value(), "buckets hold what follows one another in an accumulator");
        CutStep start{*cuts, steps.step(*cuts)};
        CutStep found;
        if (few) {
            ExhaustiveSearch search =
                exhaustive_search(line, steps, nullptr, std::move(start),
                                  std::numeric_limits<std::int64_t>::max() / 2);
            result.complete = result.complete && search.complete;
            found = std::move(search.best);
        } else {
            found = locally_improved(line, steps, std::move(start), most_instructions);
        }
        if (found.step < result.best.step) {
            result.best = {line.plan(found.cuts), found.step};
        }
        progress(static_cast<double>(way + 1) / ways);
    }
    return result;
}

}  // namespace bucketwise
