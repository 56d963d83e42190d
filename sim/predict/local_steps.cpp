#include "sim/predict/local_steps.h"

#include <algorithm>
#include <cmath>

#include "sim/base/invariant.h"
#include "sim/predict/prediction.h"

namespace bucketwise {
namespace {

constexpr std::int64_t longest_period = 1'000'000;

class LocalClock {
  public:
    LocalClock(Duration alone, Duration all_reduce, std::int64_t fragments,
               const Interference& interference)
        : alone_(alone),
          all_reduce_(all_reduce),
          fragments_(fragments),
          interference_(interference) {}

    [[nodiscard]] LocalStepsRow row(std::int64_t period) const {
        LocalStepsRow row{period};
        const double steps = static_cast<double>(period);
        const double computing = static_cast<double>(alone_.count()) * steps;
        const double all = computing + static_cast<double>(fragments_) * lost(period);
        row.step = Duration{std::llround(all / steps)};
        row.share = all > 0 ? (all - computing) / all : 0.0;
        return row;
    }

  private:
    // To one fragment, in picoseconds.
    [[nodiscard]] double lost(std::int64_t period) const {
        const auto all_reduce = static_cast<double>(all_reduce_.count());
        if (fragments_ == 1) {
            return all_reduce;
        }
        // As much computing as there is until the next fragment, if all of it were disturbed.
        const double computing = static_cast<double>(alone_.count()) * static_cast<double>(period) /
                                 static_cast<double>(fragments_);
        const double slower = factor(interference_.compute_slowdown_ppm);
        const double longer = factor(interference_.communication_slowdown_ppm);
        const double beside = std::min(all_reduce * longer, computing * slower);
        const double left = all_reduce - beside / longer;
        return beside - beside / slower + left;
    }

    static double factor(std::int64_t ppm) {
        return static_cast<double>(ppm) / static_cast<double>(undisturbed_ppm);
    }

    Duration alone_;
    Duration all_reduce_;
    std::int64_t fragments_;
    Interference interference_;
};

Bytes bytes_that_travel(const Workload& workload, const LocalStepsRequest& request) {
    Bytes bytes;
    for (const Gradient& parameter : workload.gradients) {
        bytes += parameter.numel * element_size(request.dtype.value_or(parameter.dtype));
    }
    return divided(bytes, request.fragments);
}

// The share falls as the period grows.
std::optional<LocalStepsRow> smallest_period(const LocalClock& clock,
                                             const LocalStepsRequest& request) {
    std::int64_t low = 1;
    std::int64_t high = longest_period / request.fragments;
    if (high < 1 || clock.row(high * request.fragments).share > request.share) {
        return std::nullopt;
    }
    while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        if (clock.row(middle * request.fragments).share <= request.share) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return clock.row(low * request.fragments);
}

}  // namespace

LocalSteps local_steps(const StepInput& input, const LocalStepsRequest& request) {
    invariant(request.share > 0 && request.fragments >= 1, "a share, and fragments");
    SyncRequest none;
    none.strategy = Strategy::none;
    Evaluator evaluator(input, none);
    LocalSteps found;
    found.alone = evaluator.step(Cap::none());
    found.fragment = bytes_that_travel(input.workload, request);
    constexpr CollectiveKind kind = CollectiveKind::all_reduce;
    found.all_reduce = collective_time(kind, found.fragment, input.group, input.link);
    const LocalClock clock(found.alone, found.all_reduce, request.fragments,
                           interference_for(kind, input.link, found.fragment));
    found.smallest = smallest_period(clock, request);
    const std::int64_t last = found.smallest ? found.smallest->period : longest_period;
    for (std::int64_t period = request.fragments; period < last; period *= 4) {
        found.rows.push_back(clock.row(period));
    }
    if (found.smallest) {
        found.rows.push_back(*found.smallest);
    }
    return found;
}

}  // namespace bucketwise
