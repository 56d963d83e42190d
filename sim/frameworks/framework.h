// Frameworks: by which rule each groups gradients into buckets, when a bucket goes out, and what
// else it does with it.
//
// A framework is a few values (FrameworkRule), each a rule of sim/plan/plan.h or a field of
// FrameworkSync. Only Horovod, whose background thread decides both what is in a bucket and when it
// goes out, has a planner of its own (fuse_in_cycles). Rules change with versions, so that a
// framework has one for each range of them; docs/frameworks.md says how each was checked.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"
#include "sim/workload/workload.h"

namespace bucketwise {

// What the setting counts.
enum class SettingUnit : std::uint8_t { mib, elements, bytes };

struct FrameworkRule {
    FrameworkVersion since;   // the first version that it holds for
    FrameworkVersion newest;  // the newest that it was read in
    std::string_view key;     // the framework's own name of the setting
    SettingUnit unit = SettingUnit::mib;
    Closing closing = Closing::overshoot;
    Order order = Order::readiness;
    LaunchRule launch = LaunchRule::in_order;
    // Where nobody sets it: elements or bytes, as the rule counts, and at least so many per rank.
    Bytes default_limit;
    Bytes default_limit_per_rank{0};
    FrameworkSync sync = {};  // on a device that its host runs ahead of
    bool reduces_bfloat16_as_float32 = false;
    bool shards_optimizer = false;  // each rank has its share of the updates
    // Horovod's thread, before it can decide again: waits for a bucket's gradients to be there.
    bool thread_waits_for_data = false;
    // On a command line or in a configuration, {} being the setting, then Horovod's cycle in ms;
    // empty: in a script, by sim/frameworks/framework_advice.h.
    std::string_view typed = {};
    std::string_view assumes;  // what is simulated, for the user to know
};

// By rising versions.
std::span<const FrameworkRule> rules_of(Framework framework);

// How a framework is used.
struct FrameworkUse {
    Framework framework = Framework::pytorch_ddp;
    std::optional<FrameworkVersion> version = {};  // none: the newest
    // DeepSpeed's overlap_comm, Megatron-LM's --overlap-grad-reduce.
    bool overlaps = true;
    // Megatron-LM's --overlap-param-gather, --ddp-average-in-collective, --grad-reduce-in-bf16,
    // --check-for-nan-in-loss-and-grad and --ddp-pad-buckets-for-high-nccl-busbw.
    bool gathers_in_forward = true;
    bool averages_in_collective = false;
    bool reduces_in_bfloat16 = false;
    bool checks_gradients = true;
    bool pads_for_bandwidth = false;
    // DeepSpeed's communication_data_type, reduce_scatter and contiguous_gradients.
    std::optional<DType> reduced_as = {};
    bool reduce_scatter = true;
    bool contiguous_gradients = true;
    bool operator==(const FrameworkUse&) const = default;
};

// The rule of its version; of one that is older than all that are known, the oldest.
const FrameworkRule& rule_of(const FrameworkUse& use);

// Each framework as it is advised, in its newest version.
std::vector<FrameworkUse> every_framework();

// What a limit is where nobody sets one.
Bytes default_limit(const FrameworkUse& use, std::int64_t ranks);

// HOROVOD_CYCLE_TIME.
constexpr Duration default_cycle = std::chrono::milliseconds{1};

// When a gradient is handed to Horovod, and when it is there.
struct GradientMoments {
    Duration enqueued{0};  // by the host's hook, which runs ahead of a GPU
    Duration ready{0};     // on the device
    bool operator==(const GradientMoments&) const = default;
};

// Buckets and when each goes out, by rising time.
struct FusedPlan {
    BucketPlan plan;  // same_plan: of the threshold
    std::vector<Duration> times;
    bool operator==(const FusedPlan&) const = default;
};

// Horovod's background thread.
struct CycleThread {
    Duration cycle = default_cycle;
    bool waits_for_data = false;  // before 0.23, and where hosts are devices
};

// Horovod 0.28 (horovod/common/operations.cc, RunLoopOnce and PerformOperation; controller.cc,
// FuseResponses; ops/nccl_operations.cc, WaitForData). A background thread wakes every cycle, takes
// the gradients that hooks have handed over since, in order of readiness, and fuses: a response
// starts with the first one left and takes every later one of its dtype that fits into `threshold`;
// one that does not is looked past as long as response and all that is looked past fit into the
// threshold together. Each response's all-reduce is issued at once, and begins when its gradients
// are there; then the thread sleeps until its cycle is over. `moments` is by gradient; times count
// from the step's beginning, and so do cycles.
//
// Left out: what the ranks' agreeing on what is ready costs (a small collective on the host each
// cycle), padding of fused tensors to 16 bytes, autotuning, process sets, and that on a CPU the
// thread itself runs the all-reduce.
// Precondition (asserted): the cycle takes time, and moments are not negative.
FusedPlan fuse_in_cycles(const std::vector<Gradient>& gradients,
                         const std::vector<std::int32_t>& readiness,
                         const std::vector<GradientMoments>& moments, Bytes threshold,
                         const CycleThread& thread);

// What a threshold is taken for where all nodes have as many ranks: the next multiple of 64
// elements of eight bytes for each rank of a node (controller.cc, TensorFusionThresholdBytes).
Bytes horovod_threshold(Bytes typed, std::int64_t ranks_per_node);

// All that may be typed for a range of what they are taken for. Precondition: a multiple is in it.
CapRange typed_thresholds(const CapRange& taken, std::int64_t ranks_per_node);

// One way to set a framework, simulated.
struct FrameworkChoice {
    std::optional<double> value = {};      // in the framework's own unit; none: left at its default
    std::vector<Bytes> bucket_bytes = {};  // in bucket order
    Duration step{0};
    Bytes buffers = {};  // that a rank holds for buckets: FrameworkStep::buffers()
    bool operator==(const FrameworkChoice&) const = default;
};

// What to type into a framework, and what it will do. All by that framework's own rules.
struct FrameworkSetting {
    FrameworkUse use;
    FrameworkChoice best;
    FrameworkChoice framework_default;
    std::string typed;                        // the best, as typed in a script or on a command line
    std::string typed_elsewhere;              // in versions that take it otherwise; empty: none do
    std::optional<Duration> cycle;            // Horovod's
    std::optional<Duration> without_overlap;  // Megatron-LM's step without --overlap-grad-reduce
    // PyTorch's list of caps for the ideal plan, where it gains; empty: it does not.
    FrameworkChoice list;
    std::string typed_list;
    // The shortest step that these gradients, cut anywhere, give with the framework's copies, each
    // bucket going out as it is full; or the fastest that was simulated, where that takes too long
    // to find.
    Duration ideal{0};
    bool ideal_is_optimum = false;
    CapRange same_plan = {};  // what else gives the best one's buckets, in what the rule counts
    bool operator==(const FrameworkSetting&) const = default;

    // By how much a step is longer than the ideal, as a share of that.
    [[nodiscard]] double loss_of(Duration step) const {
        return ideal == Duration{0}
                   ? 0.0
                   : static_cast<double>(step.count()) / static_cast<double>(ideal.count()) - 1;
    }
};

}  // namespace bucketwise
