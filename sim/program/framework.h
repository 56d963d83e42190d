// Frameworks: the rule by which each groups gradients into buckets, the moment at which a bucket
// goes out, and the rest of the framework's work on it.
//
// A framework is a few values: a preset of sim/plan/strategy.h, and here a FrameworkRule with
// fields of FrameworkSync. Only Horovod has a planner of its own (fuse_in_cycles): its background
// thread decides both the contents of a bucket and its moment. docs/frameworks.md says how each
// rule was checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/setting_place.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

enum class SettingUnit : std::uint8_t { mib, elements, bytes };

struct FrameworkRule {
    FrameworkVersion newest;  // the newest version whose source was read
    std::string_view key;     // the framework's own name of the setting
    SettingUnit unit = SettingUnit::mib;
    // The default, in elements or bytes as the rule counts, and its least value per rank.
    Bytes default_limit;
    Bytes default_limit_per_rank{0};
    FrameworkSync sync = {};  // on a device that its host runs ahead of
    bool reduces_bfloat16_as_float32 = false;
    bool shards_optimizer = false;  // each rank makes its share of the updates
    // On a command line or in a configuration: {} is the setting, a second {} Horovod's cycle in
    // ms. Empty: in a script, by sim/frameworks/framework_advice.h.
    std::string_view typed = {};
    std::string_view assumes;  // the simulated behaviour, for the user
};

const FrameworkRule& rule_of(const FrameworkUse& use);

// Each framework with the advised options, in its newest version.
std::vector<FrameworkUse> every_framework();

Bytes default_limit(const FrameworkUse& use, std::int64_t ranks);

// The workload as the strategy's framework holds it: DeepSpeed has all gradients in one dtype.
Workload held_by(Workload workload, const SyncRequest& request);

// How a step of any strategy synchronises. `parameters`: their dtype; none: the narrowest.
SyncSettings settings_for(const SyncRequest& request, const StepInput& input,
                          std::optional<DType> parameters = {});

// For ranks that replay the step: they cast back where they compute.
SyncSettings settings_of_replay(const SyncRequest& request, const StepInput& input);

// Bytes of a cap for each unit of the framework's own setting. An element counts as the narrowest
// dtype of the workload, whatever it is reduced as.
std::int64_t cap_bytes_of_limit(const FrameworkUse& use, const Workload& workload);

DType narrowest_of(const std::vector<Gradient>& gradients);

// The length of DeepSpeed's flat parameters: a multiple of two elements for each rank.
std::int64_t flat_elements(const std::vector<Gradient>& gradients, std::int64_t ranks);

// --- Horovod ---

struct GradientMoments {
    Duration enqueued{0};  // handed over by the host's hook, which runs ahead of a GPU
    Duration ready{0};     // on the device
    bool operator==(const GradientMoments&) const = default;
};

// Buckets and the moments at which they go out, by rising time.
struct FusedPlan {
    BucketPlan plan;  // same_plan: of the threshold
    std::vector<Duration> times;
    bool operator==(const FusedPlan&) const = default;
};

// Horovod's background thread.
struct CycleThread {
    Duration cycle = default_cycle;
    bool waits_for_data = false;  // where hosts are devices
};

// Horovod 0.28 (horovod/common/operations.cc, RunLoopOnce and PerformOperation; controller.cc,
// FuseResponses; ops/nccl_operations.cc, WaitForData). A background thread wakes every cycle, takes
// the gradients handed over since, in order of readiness, and fuses them. A response starts with
// the first gradient left and takes every later one of its dtype that fits into `threshold`. The
// thread looks past a gradient that does not fit as long as the response and all gradients looked
// past fit into the threshold together. Each response's all-reduce is issued at once and begins
// when its gradients are there; then the thread sleeps until its cycle is over. `moments` is by
// gradient. Times and cycles count from the step's beginning.
//
// Left out: the cost of the ranks' agreement on readiness (a small collective on the host each
// cycle), padding of fused tensors to 16 bytes, autotuning, process sets, and that on a CPU the
// thread itself runs the all-reduce.
// Precondition (asserted): the cycle takes time, and moments are not negative.
FusedPlan fuse_in_cycles(const std::vector<Gradient>& gradients,
                         const std::vector<std::int32_t>& readiness,
                         const std::vector<GradientMoments>& moments, Bytes threshold,
                         const CycleThread& thread);

// The threshold in effect where all nodes have equally many ranks: the next multiple of 64 elements
// of eight bytes for each rank of a node (controller.cc, TensorFusionThresholdBytes).
Bytes horovod_threshold(Bytes typed, std::int64_t ranks_per_node);

// All thresholds to type for a range in effect. Precondition: a multiple is in it.
CapRange typed_thresholds(const CapRange& taken, std::int64_t ranks_per_node);

}  // namespace bucketwise
