#include "sim/plan/plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

constexpr std::size_t dtype_count = every<DType>.size();

// The smallest multiple of `unit` from `count` on.
std::int64_t multiple_from(std::int64_t count, std::int64_t unit) {
    return (count + unit - 1) / unit * unit;
}

// The open bucket of one dtype.
struct Accumulator {
    Bucket open;
    Bytes counted;           // of the open bucket, in the unit of limits
    std::size_t closed = 0;  // closed buckets of this dtype: the index of the current limit
};

class Planner {
  public:
    // With `last_of_bucket`, limits close nothing.
    Planner(const std::vector<Gradient>& gradients, const PlanPolicy& policy,
            const std::vector<bool>* last_of_bucket)
        : gradients_(gradients), policy_(policy), last_of_bucket_(last_of_bucket) {}

    void add(std::int32_t index) {
        const Gradient& gradient = gradients_[static_cast<std::size_t>(index)];
        if (gradient.sparse) {
            plan_.buckets.push_back({{index}, gradient.dtype, gradient.size()});
            return;
        }
        Accumulator& accumulator = accumulator_for(gradient.dtype);
        const Bytes counted = counted_of(accumulator, gradient);
        close_before(accumulator, counted);
        accumulator.open.gradients.push_back(index);
        accumulator.open.size += gradient.size();
        accumulator.counted += counted;
        close_after(accumulator, counted);
    }

    // Open buckets go last, those of the last new dtype first: PyTorch walks its hash map of
    // accumulators, where libstdc++ puts a new key at the front.
    BucketPlan finish() {
        for (auto it = appearance_.rbegin(); it != appearance_.rend(); ++it) {
            Accumulator& accumulator = accumulators_[static_cast<std::size_t>(*it)];
            if (!accumulator.open.gradients.empty()) {
                close(accumulator);
            }
        }
        return std::move(plan_);
    }

  private:
    // The growth of the open bucket by this gradient, in the unit of limits.
    [[nodiscard]] Bytes counted_of(const Accumulator& a, const Gradient& gradient) const {
        if (!policy_.limits_count_elements) {
            return gradient.size();
        }
        const std::int64_t begin = multiple_from(a.counted.count, policy_.gradient_alignment);
        return Bytes{begin + gradient.numel} - a.counted;
    }

    Accumulator& accumulator_for(DType dtype) {
        Accumulator& accumulator = accumulators_[static_cast<std::size_t>(dtype)];
        if (std::find(appearance_.begin(), appearance_.end(), dtype) == appearance_.end()) {
            appearance_.push_back(dtype);
            accumulator.open.dtype = dtype;
        }
        return accumulator;
    }

    [[nodiscard]] bool limited_by_cap(const Accumulator& a) const {
        return policy_.limits.list.empty() && (a.closed > 0 || !policy_.limits.first);
    }

    [[nodiscard]] Bytes limit_of(const Accumulator& a) const {
        const BucketLimits& limits = policy_.limits;
        if (!limits.list.empty()) {
            return limits.list[std::min(a.closed, limits.list.size() - 1)];
        }
        return limited_by_cap(a) ? limits.cap : *limits.first;
    }

    // Records the caps with the same decision.
    void narrow(const Accumulator& a, const CapRange& same) {
        if (limited_by_cap(a)) {
            plan_.same_plan = common(plan_.same_plan, same);
        }
    }

    void close(Accumulator& a) {
        const DType dtype = a.open.dtype;
        if (policy_.limits_count_elements) {
            a.open.size =
                multiple_from(a.counted.count, policy_.bucket_alignment) * element_size(dtype);
        }
        plan_.buckets.push_back(std::exchange(a.open, Bucket{{}, dtype, {}}));
        a.counted = {};
        ++a.closed;
    }

    void close_before(Accumulator& a, Bytes next) {
        if (policy_.closing != Closing::strict || a.open.gradients.empty()) {
            return;
        }
        if (last_of_bucket_ != nullptr) {
            if (is_last(a)) {
                close(a);
            }
            return;
        }
        const Bytes joined = a.counted + next;
        if (joined > limit_of(a)) {
            narrow(a, {Bytes{1}, joined - Bytes{1}});
            close(a);
        } else {
            narrow(a, {joined, std::nullopt});
        }
    }

    // Whether the open bucket ends with the gradient that joined it last.
    [[nodiscard]] bool is_last(const Accumulator& a) const {
        return (*last_of_bucket_)[static_cast<std::size_t>(a.open.gradients.back())];
    }

    void close_after(Accumulator& a, Bytes joined) {
        if (last_of_bucket_ != nullptr) {
            if (policy_.closing != Closing::strict && is_last(a)) {
                close(a);
            }
        } else if (policy_.closing == Closing::per_gradient) {
            close(a);
        } else if (policy_.closing == Closing::overshoot) {
            if (a.counted >= limit_of(a)) {
                narrow(a, {a.counted - joined + Bytes{1}, a.counted});
                close(a);
            } else {
                narrow(a, {a.counted + Bytes{1}, std::nullopt});
            }
        }
    }

    const std::vector<Gradient>& gradients_;
    const PlanPolicy& policy_;
    const std::vector<bool>* last_of_bucket_;
    std::array<Accumulator, dtype_count> accumulators_;
    std::vector<DType> appearance_;
    BucketPlan plan_;
};

void sort_and_reverse(std::vector<Bucket>& buckets) {
    const auto smallest = [](const Bucket& b) {
        return *std::min_element(b.gradients.begin(), b.gradients.end());
    };
    std::sort(buckets.begin(), buckets.end(),
              [&](const Bucket& a, const Bucket& b) { return smallest(a) > smallest(b); });
}

// One buffer for each dtype, in the order of their first parameters.
void sort_by_dtype(const std::vector<Gradient>& gradients, std::vector<Bucket>& buckets) {
    std::array<std::size_t, dtype_count> first{};
    for (std::size_t i = gradients.size(); i-- > 0;) {
        first[static_cast<std::size_t>(gradients[i].dtype)] = i;
    }
    std::ranges::stable_sort(buckets, {}, [&](const Bucket& bucket) {
        return first[static_cast<std::size_t>(bucket.dtype)];
    });
}

// DeepSpeed's allreduce_and_scatter: each piece but the last has more elements than the limit.
void cut_large(const std::vector<Gradient>& gradients, const PlanPolicy& policy,
               std::vector<Bucket>& buckets) {
    const std::int64_t limit = policy.limits.cap.count;
    std::vector<std::int64_t> begins;  // of each gradient in the flat parameters
    std::int64_t end = 0;
    for (const Gradient& gradient : gradients) {
        begins.push_back(end);
        end += gradient.numel;
    }
    for (Bucket& bucket : buckets) {
        const std::int64_t elements = bucket.size.count / element_size(bucket.dtype).count;
        bucket.in_place = elements > limit;
        if (!bucket.in_place || policy.large_cut_every == 0) {
            continue;
        }
        std::int64_t at = begins[static_cast<std::size_t>(bucket.gradients.front())];
        const std::int64_t last = at + elements;
        std::int64_t piece = 0;
        while (at < last) {
            const std::int64_t next =
                std::min(last, (at / policy.large_cut_every + 1) * policy.large_cut_every);
            piece += next - at;
            at = next;
            if (piece > limit || at == last) {
                bucket.pieces.push_back(std::exchange(piece, 0) * element_size(bucket.dtype));
            }
        }
    }
}

// From limits to caps.
CapRange in_bytes(const CapRange& limits, std::int64_t cap_bytes_of_limit) {
    const bool all_below = limits.lowest <= Bytes{1};
    CapRange caps{all_below ? limits.lowest : cap_bytes_of_limit * limits.lowest, std::nullopt};
    if (limits.highest) {
        caps.highest = cap_bytes_of_limit * *limits.highest + Bytes{cap_bytes_of_limit - 1};
    }
    return caps;
}

BucketPlan planned(const std::vector<Gradient>& gradients,
                   const std::vector<std::int32_t>& readiness, const PlanPolicy& policy,
                   const std::vector<bool>* last_of_bucket) {
    invariant(!policy.pieces, "pieces of the graph are made of operations");
    invariant(readiness.size() == gradients.size(), "readiness lists every gradient once");
    Planner planner(gradients, policy, last_of_bucket);
    for (const std::int32_t gradient : joining_order(readiness, policy.order)) {
        planner.add(gradient);
    }
    BucketPlan plan = planner.finish();
    if (policy.reversed_after_sort) {
        sort_and_reverse(plan.buckets);
    }
    if (policy.dtype_after_dtype) {
        sort_by_dtype(gradients, plan.buckets);
    }
    if (policy.large_in_place) {
        cut_large(gradients, policy, plan.buckets);
    }
    plan.same_plan = in_bytes(plan.same_plan, policy.cap_bytes_of_limit);
    return plan;
}

}  // namespace

std::vector<std::int32_t> joining_order(std::vector<std::int32_t> readiness, Order order) {
    if (order == Order::forward) {
        std::iota(readiness.begin(), readiness.end(), 0);
    } else if (order == Order::reverse) {
        std::iota(readiness.rbegin(), readiness.rend(), 0);
    }
    return readiness;
}

BucketPlan make_plan(const std::vector<Gradient>& gradients,
                     const std::vector<std::int32_t>& readiness, const PlanPolicy& policy) {
    return planned(gradients, readiness, policy, nullptr);
}

BucketPlan make_plan_closing_after(const std::vector<Gradient>& gradients,
                                   const std::vector<std::int32_t>& readiness,
                                   const PlanPolicy& policy,
                                   const std::vector<bool>& last_of_bucket) {
    invariant(!policy.limits_count_elements, "no limit is counted");
    invariant(last_of_bucket.size() == gradients.size(), "of each gradient it is said");
    return planned(gradients, readiness, policy, &last_of_bucket);
}

BucketPlan make_plan(const Workload& workload, const PlanPolicy& policy) {
    if (!policy.pieces) {
        return make_plan(workload.gradients, workload.readiness, policy);
    }
    GraphPieces pieces = ready_in_pieces(workload, *policy.pieces);
    PlanPolicy buckets = policy;
    buckets.pieces.reset();
    BucketPlan plan = make_plan(workload.gradients, pieces.readiness.order, buckets);
    plan.same_plan = common(plan.same_plan, pieces.same_pieces);
    plan.readiness = std::move(pieces.readiness);
    return plan;
}

}  // namespace bucketwise
