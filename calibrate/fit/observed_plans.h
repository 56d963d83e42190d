// The plans behind observed steps, each simulated once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sim/base/transformed.h"
#include "sim/engine/bucket_planner.h"
#include "sim/plan/cap.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

// The distinct plans of one strategy's observations, as many caps give the same.
class ObservedPlans {
  public:
    ObservedPlans(const std::vector<Cap>& caps, const SyncRequest& request,
                  const StepInput& input) {
        for (const Cap cap : caps) {
            index_.push_back(index_of(cap, request, input));
        }
    }

    // One time for each plan becomes one for each observation.
    template <typename Time>
    [[nodiscard]] std::vector<double> for_each_step(const Time& time_ms) const {
        const std::vector<double> times = transformed(plans_, time_ms);
        return transformed(index_, [&](std::size_t plan) { return times[plan]; });
    }

  private:
    struct CapPlan {
        Cap cap;
        BucketPlan plan;
    };

    std::size_t index_of(Cap cap, const SyncRequest& request, const StepInput& input) {
        const auto gives_it = [&](const CapPlan& known) {
            const CapRange& range = known.plan.same_plan;
            return known.cap == cap ||
                   (known.cap.named() && cap.named() && *cap.named() >= range.lowest &&
                    (!range.highest || *cap.named() <= *range.highest));
        };
        const auto known = std::ranges::find_if(plans_, gives_it);
        const auto index = static_cast<std::size_t>(known - plans_.begin());
        if (known == plans_.end()) {
            plans_.push_back({cap, plan_of(input, settings_for(with_cap(request, cap), input))});
        }
        return index;
    }

    std::vector<CapPlan> plans_;
    std::vector<std::size_t> index_;  // by observation
};

}  // namespace bucketwise
