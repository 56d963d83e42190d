// Gradients in a line, in the order in which their buckets go out: a bucket plan is then a list of
// places where the line is cut, and choosing a plan is choosing the cuts.
//
// With gradients of several dtypes, or sparse ones, that is not so: every dtype has an open bucket
// of its own, and a bucket may hold gradients with those of another dtype between them. Then the
// gradients of each accumulator (a dtype's; each sparse gradient is one of its own) lie one after
// another in the line, and the order of buckets is that in which the cuts close them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// The ends of the buckets: positions in the line by rising number, the last one its length.
using Cuts = std::vector<std::size_t>;

class GradientLine {
  public:
    // Precondition (asserted): `readiness` lists every gradient once. Throws InputError where the
    // policy's buckets go out in an order that no line of gradients has (Order::readiness sorted by
    // parameter).
    GradientLine(const std::vector<Gradient>& gradients, const std::vector<std::int32_t>& readiness,
                 const PlanPolicy& policy);

    // Accumulator after accumulator, in the order in which gradients join them. The last bucket of
    // the k-th accumulator that is of a dtype closes with its last gradient, or with bit k of
    // `left_open` when all have joined (make_plan_closing_after). Gradients keep no order here.
    static GradientLine of_accumulators(const std::vector<Gradient>& gradients,
                                        const std::vector<std::int32_t>& readiness,
                                        const PlanPolicy& policy, std::uint32_t left_open = 0);

    // How many values of `left_open` give plans of other orders: one where buckets are sorted, wait
    // for the next gradient of their dtype, or are of one accumulator.
    [[nodiscard]] std::uint32_t ways_to_end() const { return ways_to_end_; }

    [[nodiscard]] std::size_t size() const { return line_.size(); }
    [[nodiscard]] std::int32_t gradient(std::size_t position) const { return line_[position]; }
    [[nodiscard]] Bytes bytes(std::size_t begin, std::size_t end) const {
        return bytes_before_[end] - bytes_before_[begin];
    }

    // How many gradients have become ready when the first `end` of the line all have: at least
    // `end`. Precondition: end > 0.
    [[nodiscard]] std::size_t ready_count(std::size_t end) const { return ready_count_[end]; }

    // How many have at least become ready when a bucket that ends there fills, in whatever order
    // buckets fill: never more for an earlier end. Precondition: end > 0.
    [[nodiscard]] std::size_t least_ready_count(std::size_t end) const {
        return least_ready_count_[end];
    }

    // The longest bucket that may begin here ends there: of one dtype, a sparse gradient alone.
    [[nodiscard]] std::size_t longest_end(std::size_t begin) const { return longest_end_[begin]; }

    // Whether cuts at `begin` and `end` make a bucket that goes out after all before it. Always but
    // for LaunchRule::as_filled, where a later bucket may fill first.
    [[nodiscard]] bool keeps_order(std::size_t begin, std::size_t end) const {
        return !as_filled_ || begin == 0 || ready_count_[end] > ready_count_[begin];
    }

    // Whether gradients stand in the order of their readiness, so that buckets fill in theirs.
    [[nodiscard]] bool fills_in_order() const { return fills_in_order_; }

    // Whether all cuts keep order.
    [[nodiscard]] bool always_keeps_order() const { return always_keeps_order_; }

    // Whether all gradients are of one dtype and none is sparse: then every plan that a policy can
    // give is one of cuts.
    [[nodiscard]] bool uniform() const { return size() == 0 || longest_end_[0] == size(); }

    // Whether gradients join their buckets from the end of the line to its beginning.
    [[nodiscard]] bool joins_backwards() const { return joins_backwards_; }

    // Where the last cut does not end the line, the plan's first buckets; of accumulators it must
    // end it. Precondition (asserted): no bucket is longer than it may be.
    [[nodiscard]] BucketPlan plan(const Cuts& cuts) const;

    // The cuts that give the plan's buckets, of accumulators in whatever order; none where no cuts
    // do.
    [[nodiscard]] std::optional<Cuts> cuts_of(const BucketPlan& plan) const;

  private:
    // What closes buckets of accumulators.
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
