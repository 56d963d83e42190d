#include "sim/optimum/accumulator_search.h"

#include <array>
#include <limits>
#include <optional>
#include <utility>

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
    for (std::uint32_t way = 0; way < ways; ++way) {
        const GradientLine line =
            GradientLine::of_accumulators(workload.gradients, workload.readiness, sync.policy, way);
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
        BucketPlan plan = line.plan(found.cuts);
        const bool fewer =
            found.step == result.best.step && plan.buckets.size() < result.best.plan.buckets.size();
        if (found.step < result.best.step || fewer) {
            result.best = {std::move(plan), found.step};
        }
    }
    return result;
}

}  // namespace bucketwise
