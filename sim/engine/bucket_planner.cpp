#include "sim/engine/bucket_planner.h"

#include <algorithm>
#include <numeric>

#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// The moments belong to a step without interference, on a rank that no class slows down. Slower
// computing moves the places along.
std::vector<BackwardPlace> places_of(const std::vector<Duration>& times,
                                     const BackwardMoments& moments) {
    std::vector<BackwardPlace> places;
    std::size_t operation = 0;
    for (const Duration time : times) {
        while (operation < moments.ends.size() && moments.ends[operation] <= time) {
            ++operation;
        }
        const Duration begin =
            operation < moments.ends.size() ? moments.starts[operation] : moments.end();
        places.push_back({operation, std::max(time - begin, Duration{0})});
    }
    return places;
}

// The operation of forward whose share of time before it equals backward's share after the moment.
std::size_t mirrored_operation(const StepInput& input, Duration moment,
                               const BackwardMoments& moments) {
    const Duration begin = moments.starts.empty() ? Duration{0} : moments.starts.front();
    const Duration backward = moments.ends.empty() ? Duration{0} : moments.end() - begin;
    const double share = backward > Duration{0}
                             ? 1 - static_cast<double>((moment - begin).count()) /
                                       static_cast<double>(backward.count())
                             : 0;
    Duration forward{0};
    for (const TimedOperation& operation : input.workload.forward) {
        forward += operation.order.is_beside() ? Duration{0} : operation.device;
    }
    const Duration before = scaled(forward, std::clamp(share, 0.0, 1.0));
    Duration done{0};
    std::size_t index = 0;
    for (const TimedOperation& operation : input.workload.forward) {
        done += operation.order.is_beside() ? Duration{0} : operation.device;
        if (done > before) {
            break;
        }
        ++index;
    }
    const std::size_t operations = input.workload.forward.size();
    return operations == 0 ? 0 : std::min(index, operations - 1);
}

}  // namespace

// Taken from a run of backward without any bucket.
BackwardMoments backward_moments(const StepInput& input, const SyncSettings& sync) {
    const Workload& workload = input.workload;
    StepInput alike = input;
    alike.classes.clear();
    const StepBeforeClosing before(alike, without_buckets_before(sync));
    BackwardMoments moments;
    moments.start = StepToClose(before).progress().front();
    SyncSettings none = sync;
    none.communicates = false;
    Program program;
    build_closing(input, none, {}, program);
    const Timeline timeline = simulate({&program, 1}, Record::timeline, moments.start).timeline;
    std::vector<Span> computed(program.instructions.size());
    for (const Span& span : timeline.spans) {
        if (span.track == Track::compute || span.track == Track::side) {
            computed[static_cast<std::size_t>(span.subject)] = span;
        }
    }
    std::vector<Duration> issued;  // when the host is done with each operation
    Duration host = moments.start.host;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        if (instruction.kind == InstructionKind::backward && instruction.order.is_beside()) {
            // It does not hold up computing, so its place is where computing is.
            moments.ends.push_back(moments.ends.empty() ? moments.start.device
                                                        : moments.ends.back());
            moments.starts.push_back(moments.ends.back());
            issued.emplace_back();
        } else if (instruction.kind == InstructionKind::backward) {
            moments.starts.push_back(computed[i].start);
            moments.ends.push_back(computed[i].end);
            issued.emplace_back();
        }
        host += instruction.host;
        host = instruction.host_waits ? std::max(host, computed[i].end) : host;
        if (instruction.phase == Phase::backward) {
            issued.back() = host;
        }
    }
    // A workload without launch costs has a host that keeps pace with the device.
    const bool runs_ahead = !workload.host_is_device &&
                            std::ranges::any_of(workload.backward, [](const TimedOperation& o) {
                                return o.host > Duration{0};
                            });
    moments.gradients.resize(workload.gradients.size());
    std::size_t ready = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready++]);
            moments.gradients[gradient] = {runs_ahead ? issued[i] : moments.ends[i],
                                           moments.ends[i]};
        }
    }
    return moments;
}

bool depends_on_moments(const SyncSettings& sync) {
    return sync.policy.launch == LaunchRule::cycle || sync.framework.gathers_in_forward;
}

// After the optimizer, gathers go in the order of buckets. In forward, each is waited for where an
// operation begins: the mirror of the operation of backward that finishes the bucket. It then sets
// off the gather of the bucket before.
void add_gathers(const StepInput& input, const SyncSettings& sync, const BackwardMoments& moments,
                 BucketPlan& plan) {
    if (!sync.framework.gathers_buckets) {
        return;
    }
    if (!sync.framework.gathers_in_forward) {
        for (const Bucket& bucket : plan.buckets) {
            plan.gathers.push_back({bucket.size});
        }
        return;
    }
    std::vector<Duration> finished;  // by bucket
    for (const Bucket& bucket : plan.buckets) {
        Duration last{0};
        for (const std::int32_t gradient : bucket.gradients) {
            last = std::max(last, moments.gradients[static_cast<std::size_t>(gradient)].ready);
        }
        finished.push_back(last);
    }
    std::vector<std::size_t> order(plan.buckets.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater{},
                             [&](std::size_t bucket) { return finished[bucket]; });
    for (const std::size_t bucket : order) {
        ParameterGather gather{plan.buckets[bucket].size,
                               mirrored_operation(input, finished[bucket], moments)};
        if (bucket > 0) {
            gather.next =
                static_cast<std::size_t>(std::ranges::find(order, bucket - 1) - order.begin());
        }
        plan.gathers.push_back(gather);
    }
}

FusedPlan fused_plan(const StepInput& input, const SyncSettings& sync,
                     const BackwardMoments& moments) {
    const Workload& workload = input.workload;
    if (sync.policy.launch != LaunchRule::cycle) {
        FusedPlan fused{make_plan(workload, sync.policy), {}};
        add_gathers(input, sync, moments, fused.plan);
        return fused;
    }
    const std::int64_t local = input.group.ranks_per_node;
    FusedPlan fused = fuse_in_cycles(workload.gradients, workload.readiness, moments.gradients,
                                     horovod_threshold(sync.policy.limits.cap, local),
                                     {sync.framework.cycle, workload.host_is_device});
    fused.plan.same_plan = typed_thresholds(fused.plan.same_plan, local);
    fused.plan.departures = places_of(fused.times, moments);
    return fused;
}

BucketPlan plan_of(const StepInput& input, const SyncSettings& sync) {
    return fused_plan(input, sync,
                      depends_on_moments(sync) ? backward_moments(input, sync) : BackwardMoments{})
        .plan;
}

}  // namespace bucketwise
