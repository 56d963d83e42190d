// Bucket plans: gradients grouped into buckets, and the caps with the same grouping.
//
// A policy is a few independent fields; the named strategies (sim/plan/strategy.h) are presets of
// them. The overshoot rule, one accumulator per dtype and the list of limits follow PyTorch's
// compute_bucket_assignment_by_size (torch/csrc/distributed/c10d/reducer.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/plan/cap.h"
#include "sim/plan/graph_pieces.h"
#include "sim/workload/workload.h"

namespace bucketwise {

enum class Closing : std::uint8_t {
    overshoot,     // closes once its size reaches the limit, so it may exceed it by one gradient
    strict,        // closes before a gradient that would exceed the limit; one larger is alone
    per_gradient,  // every gradient is its own bucket
    single         // one bucket per dtype
};

enum class Order : std::uint8_t { forward, reverse, readiness };

// When a bucket's all-reduce is issued. A scenario asks for one of the first three; the others are
// DeepSpeed's and Horovod's (sim/program/framework.h).
enum class LaunchRule : std::uint8_t {
    in_order,        // once it is full and every earlier bucket has launched
    as_filled,       // once it is full
    after_backward,  // in bucket order, once backward has finished
    next_gradient,   // with the gradient of its dtype that no longer fits; the last ones at the end
    cycle            // when a thread that looks at fixed intervals finds it
};

template <>
inline constexpr auto names_of<Closing> = names("overshoot", "strict", "per_gradient", "single");
template <>
inline constexpr auto names_of<Order> = names("forward", "reverse", "readiness");
template <>
inline constexpr auto names_of<LaunchRule> = names("in_order", "as_filled", "after_backward",
                                                   "next_gradient", "cycle");

// The limit of the k-th bucket of a dtype: list[k], its last entry repeating; without a list,
// `first` for the first bucket where given, and `cap` for all others.
struct BucketLimits {
    std::optional<Bytes> first;
    Bytes cap;
    std::vector<Bytes> list;
    bool operator==(const BucketLimits&) const = default;
};

struct PlanPolicy {
    Closing closing = Closing::overshoot;
    Order order = Order::readiness;
    LaunchRule launch = LaunchRule::in_order;
    BucketLimits limits;
    // PyTorch's construction of the reducer, before it knows the readiness order: buckets sorted by
    // their smallest gradient index, then the list reversed, since backward runs in reverse.
    bool reversed_after_sort = false;
    // Limits are numbers of elements for every dtype: Bytes{n} means n elements (Megatron-LM,
    // DeepSpeed). So many bytes of a cap are one of them: BucketPlan::same_plan counts bytes again.
    bool limits_count_elements = false;
    std::int64_t cap_bytes_of_limit = 1;
    // Multiples, in elements: of a gradient's place in its bucket (limits count the padding), and
    // of a bucket's size (Megatron-LM's distributed optimizer).
    std::int64_t gradient_alignment = 1;
    std::int64_t bucket_alignment = 1;
    // Buckets of one dtype after those of another, by their first parameters (Megatron-LM).
    bool dtype_after_dtype = false;
    // DeepSpeed: a gradient larger than the limit stays where it is, and goes in pieces that end
    // where the flat parameters are cut every so many elements; 0: in one.
    bool large_in_place = false;
    std::int64_t large_cut_every = 0;
    // Gradients become ready, and join buckets, in pieces of the graph.
    std::optional<PieceLimits> pieces = {};
    bool operator==(const PlanPolicy&) const = default;
};

struct Bucket {
    std::vector<std::int32_t> gradients;  // indices into Workload::gradients, in joining order
    DType dtype = DType::float32;
    Bytes size;
    bool in_place = false;           // its gradients are not copied into it
    std::vector<Bytes> pieces = {};  // reduced one after another; empty: all in one
    bool operator==(const Bucket&) const = default;
};

// A place in the last backward: device time into one of its operations, or after the last one
// (`operation` is then their number).
struct BackwardPlace {
    std::size_t operation = 0;
    Duration done{0};
    bool operator==(const BackwardPlace&) const = default;
};

// An all-gather of updated parameters.
struct ParameterGather {
    Bytes size;  // gathered
    // In forward: the first operation that reads any of them, and the gather (an index into
    // BucketPlan::gathers) to issue after the wait for this one, unless it was issued before.
    std::size_t needed_by = 0;
    std::optional<std::size_t> next = {};
    bool operator==(const ParameterGather&) const = default;
};

struct BucketPlan {
    std::vector<Bucket> buckets;  // bucket order: the launch order of LaunchRule::in_order
    CapRange same_plan;           // of BucketLimits::cap; meaningless where no bucket depends on it
    // With LaunchRule::cycle, the place where each bucket goes out; never falling.
    std::vector<BackwardPlace> departures = {};
    std::vector<ParameterGather> gathers = {};     // in the order of waiting for them
    std::optional<PieceReadiness> readiness = {};  // with PlanPolicy::pieces
    bool operator==(const BucketPlan&) const = default;

    // This plan's readiness, or else the workload's.
    [[nodiscard]] std::int32_t ready_count(const Workload& workload, std::size_t operation) const {
        return readiness ? readiness->counts[operation] : workload.backward[operation].ready_count;
    }
    [[nodiscard]] const std::vector<std::int32_t>& order_of(const Workload& workload) const {
        return readiness ? readiness->order : workload.readiness;
    }
    // Whether both plans have the same step.
    [[nodiscard]] bool is_same_step(const BucketPlan& other) const {
        return buckets == other.buckets && readiness == other.readiness;
    }
};

// The gradients' order of joining buckets. `readiness` lists all of them once.
std::vector<std::int32_t> joining_order(std::vector<std::int32_t> readiness, Order order);

// Groups all gradients. Each gradient is in exactly one bucket, a bucket has one dtype, and a
// sparse gradient is alone. `readiness` lists all gradient indices once. Pieces of the graph need
// the whole workload (asserted).
BucketPlan make_plan(const std::vector<Gradient>& gradients,
                     const std::vector<std::int32_t>& readiness, const PlanPolicy& policy);
BucketPlan make_plan(const Workload& workload, const PlanPolicy& policy);

// Closes buckets at given places instead of limits: `last_of_bucket` is true, by index, for each
// gradient that ends its bucket. Closing::strict closes such a bucket when the next gradient of its
// dtype comes, any other rule at once. Buckets left open go last, as with limits. Preconditions
// (asserted): no pieces, limits count bytes.
BucketPlan make_plan_closing_after(const std::vector<Gradient>& gradients,
                                   const std::vector<std::int32_t>& readiness,
                                   const PlanPolicy& policy,
                                   const std::vector<bool>& last_of_bucket);

}  // namespace bucketwise
