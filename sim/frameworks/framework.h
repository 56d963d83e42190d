// Frameworks: by which rule each groups gradients into buckets, and when a bucket goes out.
//
// A framework is a few values (FrameworkRule), each a rule of sim/plan/plan.h. Only Horovod, whose
// background thread decides both what is in a bucket and when it goes out, has a planner of its own
// (fuse_in_cycles).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/workload/workload.h"

namespace bucketwise {

enum class Framework : std::uint8_t { pytorch_ddp, megatron_lm, deepspeed, horovod };

template <>
inline constexpr auto names_of<Framework> = names("pytorch_ddp", "megatron_lm", "deepspeed",
                                                  "horovod");

// What the setting counts.
enum class SettingUnit : std::uint8_t { mib, elements, bytes };

struct FrameworkRule {
    std::string_view key;  // the framework's own name of the setting
    SettingUnit unit = SettingUnit::mib;
    Closing closing = Closing::overshoot;
    Order order = Order::readiness;
    LaunchRule launch = LaunchRule::in_order;
    // Where nobody sets it: elements or bytes, as the rule counts, and at least so many per rank.
    Bytes default_limit;
    Bytes default_limit_per_rank{0};
    // On a command line or in a configuration, {} being the setting, then Horovod's cycle in ms;
    // empty: in a script, by sim/frameworks/framework_advice.h.
    std::string_view typed = {};
    std::string_view assumes;  // what is simulated, for the user to know
};

const FrameworkRule& rule_of(Framework framework);

// What a limit is where nobody sets one.
Bytes default_limit(Framework framework, std::int64_t ranks);

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

// Horovod 0.28 (horovod/common/operations.cc, RunLoopOnce and PerformOperation; controller.cc,
// FuseResponses). A background thread wakes every `cycle`, takes the gradients that hooks have
// handed over since, in order of readiness, and fuses: a response starts with the first one left
// and takes every later one of its dtype that fits into `threshold`; one that does not is looked
// past as long as response and all that is looked past fit into the threshold together. Then for
// each response it waits until all its gradients are there and issues its all-reduce, and sleeps
// until its cycle is over. `moments` is by gradient; times count from the step's beginning, and so
// do cycles.
//
// Left out: what the ranks' agreeing on what is ready costs (a small collective on the host each
// cycle), padding of fused tensors to 16 bytes, autotuning, process sets.
// Precondition (asserted): cycle > 0, and moments are not negative.
FusedPlan fuse_in_cycles(const std::vector<Gradient>& gradients,
                         const std::vector<std::int32_t>& readiness,
                         const std::vector<GradientMoments>& moments, Bytes threshold,
                         Duration cycle);

// One way to set a framework, simulated.
struct FrameworkChoice {
    std::optional<double> value = {};      // in the framework's own unit; none: left at its default
    std::vector<Bytes> bucket_bytes = {};  // in bucket order
    Duration step{0};
    bool operator==(const FrameworkChoice&) const = default;
};

// What to type into a framework, and what it will do. All by that framework's own rules.
struct FrameworkSetting {
    Framework framework = Framework::pytorch_ddp;
    FrameworkChoice best;
    FrameworkChoice framework_default;
    std::string typed;                        // the best, as typed in a script or on a command line
    std::string typed_elsewhere;              // in versions that take it otherwise; empty: none do
    std::optional<Duration> cycle;            // Horovod's
    std::optional<Duration> without_overlap;  // Megatron-LM's step without --overlap-grad-reduce
    // PyTorch's list of caps for the ideal plan, where it gains; empty: it does not.
    FrameworkChoice list;
    std::string typed_list;
    // The shortest step that these gradients, cut anywhere, give with the framework's copies; or
    // the fastest that was simulated, where that takes too long to find.
    Duration ideal{0};
    bool ideal_is_optimum = false;
    bool operator==(const FrameworkSetting&) const = default;

    // By how much a step is longer than the ideal, as a share of that.
    [[nodiscard]] double loss_of(Duration step) const {
        return ideal == Duration{0}
                   ? 0.0
                   : static_cast<double>(step.count()) / static_cast<double>(ideal.count()) - 1;
    }
};

}  // namespace bucketwise
