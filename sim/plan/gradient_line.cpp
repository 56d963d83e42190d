#include "sim/plan/gradient_line.h"

#include <algorithm>

#include "sim/base/error.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// By end: the number of ready gradients once the one before it is ready.
std::vector<std::size_t> counts_when_ready(const std::vector<std::int32_t>& line,
                                           const std::vector<std::int32_t>& readiness) {
    std::vector<std::size_t> count(line.size(), 0);
    for (std::size_t i = 0; i < readiness.size(); ++i) {
        count[static_cast<std::size_t>(readiness[i])] = i + 1;
    }
    std::vector<std::size_t> counts{0};
    for (const std::int32_t gradient : line) {
        counts.push_back(count[static_cast<std::size_t>(gradient)]);
    }
    return counts;
}

std::vector<std::size_t> longest_ends(const std::vector<std::int32_t>& line,
                                      const std::vector<Gradient>& gradients) {
    const auto at = [&](std::size_t i) -> const Gradient& {
        return gradients[static_cast<std::size_t>(line[i])];
    };
    std::vector<std::size_t> ends(line.size(), line.size());
    for (std::size_t i = line.size(); i-- > 0;) {
        const bool joins = i + 1 < line.size() && !at(i).sparse && !at(i + 1).sparse &&
                           at(i).dtype == at(i + 1).dtype;
        ends[i] = joins ? ends[i + 1] : i + 1;
    }
    return ends;
}

}  // namespace

GradientLine::GradientLine(const std::vector<Gradient>& gradients,
                           const std::vector<std::int32_t>& readiness, const PlanPolicy& policy)
    : line_(joining_order(readiness, policy.order)),
      as_filled_(policy.launch == LaunchRule::as_filled) {
    invariant(readiness.size() == gradients.size(), "readiness lists every gradient once");
    if (policy.reversed_after_sort) {
        const auto descending = joining_order(readiness, Order::reverse);
        if (policy.order == Order::readiness && line_ != descending) {
            throw InputError("scenario", "/sync/order",
                             "forward or reverse where PyTorch keeps the buckets of construction, "
                             "so that a plan is a list of cuts",
                             "readiness");
        }
        joins_backwards_ = policy.order == Order::forward;
        line_ = descending;
    }
    measure(gradients, readiness);
    for (std::size_t end = 2; end <= size(); ++end) {
        always_keeps_order_ = always_keeps_order_ && keeps_order(end - 1, end);
    }
}

GradientLine GradientLine::of_accumulators(const std::vector<Gradient>& gradients,
                                           const std::vector<std::int32_t>& readiness,
                                           const PlanPolicy& policy, std::uint32_t left_open) {
    GradientLine line;
    line.accumulators_ = {gradients, readiness, policy, {}};
    std::vector<std::int32_t> dense = joining_order(readiness, policy.order);
    const auto gradient = [&](std::int32_t index) -> const Gradient& {
        return gradients[static_cast<std::size_t>(index)];
    };
    const auto sparse = std::stable_partition(
        dense.begin(), dense.end(), [&](std::int32_t index) { return !gradient(index).sparse; });
    const std::vector<std::int32_t> alone(sparse, dense.end());
    dense.erase(sparse, dense.end());
    std::uint32_t dtypes = 0;
    for (; !dense.empty(); ++dtypes) {
        const DType dtype = gradient(dense.front()).dtype;
        const auto others = std::stable_partition(
            dense.begin(), dense.end(),
            [&](std::int32_t index) { return gradient(index).dtype == dtype; });
        line.line_.insert(line.line_.end(), dense.begin(), others);
        dense.erase(dense.begin(), others);
        if (((left_open >> dtypes) & 1U) != 0) {
            line.accumulators_->left_open.push_back(line.line_.size());
        }
    }
    line.line_.insert(line.line_.end(), alone.begin(), alone.end());
    line.measure(gradients, readiness);
    line.always_keeps_order_ = line.uniform();
    const bool ends_alike =
        policy.closing == Closing::strict || policy.reversed_after_sort || line.uniform();
    line.ways_to_end_ = ends_alike ? 1 : 1U << dtypes;
    return line;
}

// Fills the tables by position.
void GradientLine::measure(const std::vector<Gradient>& gradients,
                           const std::vector<std::int32_t>& readiness) {
    bytes_before_.push_back(Bytes{0});
    for (const std::int32_t gradient : line_) {
        const Gradient& g = gradients[static_cast<std::size_t>(gradient)];
        dtypes_.push_back(g.dtype);
        bytes_before_.push_back(bytes_before_.back() + g.size());
    }
    const std::vector<std::size_t> counts = counts_when_ready(line_, readiness);
    ready_count_ = least_ready_count_ = counts;
    fills_in_order_ = std::is_sorted(counts.begin(), counts.end());
    for (std::size_t end = 1; end <= size(); ++end) {
        ready_count_[end] = std::max(ready_count_[end], ready_count_[end - 1]);
    }
    longest_end_ = longest_ends(line_, gradients);
    for (std::size_t end = size(); end-- > 1;) {
        const bool another = accumulators_ && longest_end_[end - 1] == end;
        least_ready_count_[end] =
            another ? counts[end] : std::min(counts[end], least_ready_count_[end + 1]);
    }
}

BucketPlan GradientLine::plan_of_accumulators(const Cuts& cuts) const {
    std::vector<bool> last_of_bucket(size(), false);
    std::size_t begin = 0;
    for (const std::size_t end : cuts) {
        invariant(begin < end && end <= longest_end_[begin], "a bucket holds what it may");
        begin = end;
        const std::vector<std::size_t>& open = accumulators_->left_open;
        if (std::find(open.begin(), open.end(), end) == open.end()) {
            last_of_bucket[static_cast<std::size_t>(line_[end - 1])] = true;
        }
    }
    invariant(begin == size(), "all gradients are in buckets");
    return make_plan_closing_after(accumulators_->gradients, accumulators_->readiness,
                                   accumulators_->policy, last_of_bucket);
}

BucketPlan GradientLine::plan(const Cuts& cuts) const {
    if (accumulators_) {
        return plan_of_accumulators(cuts);
    }
    BucketPlan plan;
    std::size_t begin = 0;
    for (const std::size_t end : cuts) {
        invariant(begin < end && end <= longest_end_[begin], "a bucket holds what it may");
        Bucket bucket{{}, dtypes_[begin], bytes(begin, end)};
        bucket.gradients.assign(line_.begin() + static_cast<std::ptrdiff_t>(begin),
                                line_.begin() + static_cast<std::ptrdiff_t>(end));
        if (joins_backwards_) {
            std::reverse(bucket.gradients.begin(), bucket.gradients.end());
        }
        plan.buckets.push_back(std::move(bucket));
        begin = end;
    }
    return plan;
}

std::optional<Cuts> GradientLine::cuts_of(const BucketPlan& plan) const {
    if (accumulators_) {
        Cuts cuts;
        for (const Bucket& bucket : plan.buckets) {
            const auto begin = std::search(line_.begin(), line_.end(), bucket.gradients.begin(),
                                           bucket.gradients.end());
            if (begin == line_.end()) {
                return std::nullopt;
            }
            cuts.push_back(static_cast<std::size_t>(begin - line_.begin()) +
                           bucket.gradients.size());
        }
        std::sort(cuts.begin(), cuts.end());
        return cuts;
    }
    Cuts cuts;
    std::size_t begin = 0;
    for (const Bucket& bucket : plan.buckets) {
        cuts.push_back(begin += bucket.gradients.size());
    }
    for (std::size_t i = 0; i < cuts.size(); ++i) {
        const std::size_t from = i == 0 ? 0 : cuts[i - 1];
        if (from == cuts[i] || cuts[i] > size() || cuts[i] > longest_end_[from]) {
            return std::nullopt;
        }
    }
    if (begin != size() || this->plan(cuts).buckets != plan.buckets) {
        return std::nullopt;
    }
    return cuts;
}

}  // namespace bucketwise
