// Gradients in a line, ordered as their buckets go out: a bucket plan is then a list of cuts, and
// choosing a plan is choosing the cuts.
//
// Gradients of several dtypes, or sparse ones, need more: every dtype has its own open bucket, so a
// bucket may skip gradients of another dtype. Then the line holds accumulator after accumulator
// (one for each dtype, and one for each sparse gradient), and buckets go out as the cuts close
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The ends of the buckets: rising positions in the line, the last one its length.
using Cuts = std::vector<std::size_t>;

class GradientLine {
  public:
    // Precondition (asserted): `readiness` lists every gradient once. Throws InputError where the
    // policy's buckets go out in an order that no line of gradients has (Order::readiness sorted by
    // parameter).
    GradientLine(const std::vector<Gradient>& gradients, const std::vector<std::int32_t>& readiness,
                 const PlanPolicy& policy);

    // Accumulators follow one another, each in joining order. The last bucket of the k-th dtype's
    // accumulator closes with its last gradient, or with bit k of `left_open` when all gradients
    // have joined (make_plan_closing_after). keeps_order() means nothing here.
    static GradientLine of_accumulators(const std::vector<Gradient>& gradients,
                                        const std::vector<std::int32_t>& readiness,
                                        const PlanPolicy& policy, std::uint32_t left_open = 0);

    // The number of values of `left_open` with different orders: one where buckets are sorted, wait
    // for the next gradient of their dtype, or belong to one accumulator.
    [[nodiscard]] std::uint32_t ways_to_end() const { return ways_to_end_; }

    [[nodiscard]] std::size_t size() const { return line_.size(); }
    [[nodiscard]] std::int32_t gradient(std::size_t position) const { return line_[position]; }
    [[nodiscard]] Bytes bytes(std::size_t begin, std::size_t end) const {
        return bytes_before_[end] - bytes_before_[begin];
    }

    // The number of ready gradients once the first `end` of the line all are: at least `end`.
    // Precondition: end > 0.
    [[nodiscard]] std::size_t ready_count(std::size_t end) const { return ready_count_[end]; }

    // A lower bound of the number of ready gradients when a bucket that ends there fills, for every
    // order of filling; it rises with `end`. Precondition: end > 0.
    [[nodiscard]] std::size_t least_ready_count(std::size_t end) const {
        return least_ready_count_[end];
    }

    // The end of the longest bucket that may begin here: one dtype, a sparse gradient alone.
    [[nodiscard]] std::size_t longest_end(std::size_t begin) const { return longest_end_[begin]; }

    // Whether the bucket from `begin` to `end` goes out after all before it. False only with
    // LaunchRule::as_filled, where a later bucket may fill first.
    [[nodiscard]] bool keeps_order(std::size_t begin, std::size_t end) const {
        return !as_filled_ || begin == 0 || ready_count_[end] > ready_count_[begin];
    }

    // Whether gradients stand in the order of their readiness, so that buckets fill in line order.
    [[nodiscard]] bool fills_in_order() const { return fills_in_order_; }

    // Whether all cuts keep order.
    [[nodiscard]] bool always_keeps_order() const { return always_keeps_order_; }

    // Whether all gradients have one dtype and none is sparse: then every plan of a policy is a
    // list of cuts.
    [[nodiscard]] bool uniform() const { return size() == 0 || longest_end_[0] == size(); }

    // Whether gradients join their buckets from the end of the line to its beginning.
    [[nodiscard]] bool joins_backwards() const { return joins_backwards_; }

    // Gives the plan's first buckets if the last cut does not end the line; for accumulators it
    // must. Precondition (asserted): no bucket is longer than longest_end() allows.
    [[nodiscard]] BucketPlan plan(const Cuts& cuts) const;

    // The cuts of the plan's buckets (for accumulators in any order); empty where there are none.
    [[nodiscard]] std::optional<Cuts> cuts_of(const BucketPlan& plan) const;

  private:
    // The inputs that close buckets of accumulators.
    struct Accumulators {
        std::vector<Gradient> gradients;
        std::vector<std::int32_t> readiness;
        PlanPolicy policy;
        std::vector<std::size_t> left_open;  // ends
    };

    GradientLine() = default;
    void measure(const std::vector<Gradient>& gradients,
                 const std::vector<std::int32_t>& readiness);
    [[nodiscard]] BucketPlan plan_of_accumulators(const Cuts& cuts) const;

    std::optional<Accumulators> accumulators_;
    std::vector<std::int32_t> line_;
    std::vector<DType> dtypes_;                   // by position
    std::vector<Bytes> bytes_before_;             // by position
    std::vector<std::size_t> ready_count_;        // by end
    std::vector<std::size_t> least_ready_count_;  // by end
    std::vector<std::size_t> longest_end_;        // by begin
    bool as_filled_ = false;
    bool fills_in_order_ = false;
    bool always_keeps_order_ = true;
    bool joins_backwards_ = false;
    std::uint32_t ways_to_end_ = 1;
};

}  // namespace bucketwise
