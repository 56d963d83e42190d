#include "sim/frameworks/framework_step.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/undisturbed.h"
#include "sim/program/program_builder.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// The exact search takes some tens of milliseconds for as many.
constexpr std::size_t most_gradients_for_optimum = 500;

SyncRequest as_ddp(SyncRequest request) {
    request.strategy = Strategy::ddp;
    request.bucket_cap.reset();
    request.bucket_cap_list.clear();
    request.closing.reset();
    request.order.reset();
    request.launch.reset();
    return request;
}

SyncSettings settings_of(const FrameworkRule& rule, const SyncRequest& request) {
    SyncSettings sync = settings_for(request);
    if (rule.unit == SettingUnit::mib) {
        return sync;
    }
    PlanPolicy policy;
    policy.closing = rule.closing;
    policy.order = rule.order;
    policy.launch =
        rule.departure == Departure::as_filled ? LaunchRule::as_filled : LaunchRule::in_order;
    policy.limits_count_elements = rule.unit == SettingUnit::elements;
    sync.policy = policy;
    // Horovod's copies are not the compute stream's: build_in_cycles().
    sync.copies_in = rule.departure != Departure::cycle;
    sync.copies_back = false;
    sync.copies_at_launch = false;
    sync.fused_copies = false;
    sync.broadcasts_buffers = false;
    sync.reduces_unused_map = false;
    return sync;
}

PlanPolicy line_policy() {
    PlanPolicy policy;
    policy.order = Order::readiness;
    policy.launch = LaunchRule::in_order;
    return policy;
}

// Into or out of Horovod's fusion buffer; a gradient that goes alone is not copied.
Duration fusion_copy(const StepInput& input, const Bucket& bucket) {
    return bucket.gradients.size() > 1 && input.copy_bandwidth
               ? transfer_time(bucket.size, *input.copy_bandwidth)
               : Duration{0};
}

}  // namespace

FrameworkStep::FrameworkStep(const StepInput& input, const SyncRequest& request,
                             Framework framework)
    : input_(input),
      framework_(framework),
      rule_(rule_of(framework)),
      request_(as_ddp(request)),
      sync_(settings_of(rule_, request_)),
      line_(input.workload.gradients, input.workload.readiness, line_policy()) {
    const StepBeforeClosing before(input, sync_);
    seconds_before_closing_ = before.longest_possible_seconds();
    before_closing_ = before.simulate();
    start_ = before.simulate({}, {}).front();
    find_moments();
}

// From a run of backward without any bucket.
void FrameworkStep::find_moments() {
    const Workload& workload = input_.workload;
    const BucketPlan no_buckets;
    Program program;
    ProgramBuilder builder(input_, sync_, no_buckets, program);
    if (first_part(input_, sync_) == StepPart::closing) {
        builder.begin_step();
    }
    std::vector<std::size_t> instruction_of;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        instruction_of.push_back(program.instructions.size());
        builder.backward_operation(i);
    }
    const Timeline timeline = simulate({&program, 1}, Record::timeline, start_).timeline;
    std::vector<Duration> starts(program.instructions.size());
    std::vector<Duration> ends(program.instructions.size());
    for (const Span& span : timeline.spans) {
        if (span.track == Track::compute) {
            starts[static_cast<std::size_t>(span.subject)] = span.start;
            ends[static_cast<std::size_t>(span.subject)] = span.end;
        }
    }
    // Where the workload does not say what launching costs, the host keeps pace with the device.
    const bool runs_ahead =
        !workload.host_is_device &&
        std::any_of(workload.backward.begin(), workload.backward.end(),
                    [](const TimedOperation& o) { return o.host > Duration{0}; });
    moments_.resize(workload.gradients.size());
    Duration host = start_.host;
    std::size_t ready = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        const std::size_t at = instruction_of[i];
        const std::size_t next =
            i + 1 < instruction_of.size() ? instruction_of[i + 1] : program.instructions.size();
        for (std::size_t k = at; k < next; ++k) {
            host += program.instructions[k].host;
        }
        starts_.push_back(starts[at]);
        ends_.push_back(ends[at]);
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready++]);
            moments_[gradient] = {runs_ahead ? host : ends_.back(), ends_.back()};
        }
    }
}

FusedPlan FrameworkStep::plan(std::optional<Bytes> limit, Duration cycle) const {
    const Workload& workload = input_.workload;
    const Bytes set = limit.value_or(default_limit(framework_, input_.group.ranks));
    if (rule_.departure == Departure::cycle) {
        return fuse_in_cycles(workload.gradients, workload.readiness, moments_, set, cycle);
    }
    PlanPolicy policy = sync_.policy;
    if (rule_.unit == SettingUnit::mib) {
        SyncRequest request = request_;
        request.bucket_cap = limit;
        if (!limit) {
            request.first_bucket.reset();
        }
        policy = settings_for(request).policy;
    } else {
        policy.limits.cap = set;
    }
    return {make_plan(workload.gradients, workload.readiness, policy), {}};
}

FusedPlan FrameworkStep::plan_of_list(const std::vector<Bytes>& list) const {
    invariant(rule_.unit == SettingUnit::mib, "only PyTorch takes a list of caps");
    SyncRequest request = request_;
    request.first_bucket.reset();
    request.bucket_cap_list = list;
    return {make_plan(input_.workload.gradients, input_.workload.readiness,
                      settings_for(request).policy),
            {}};
}

// --- programs ---

void FrameworkStep::build(const FusedPlan& fused, Program& program) const {
    switch (rule_.departure) {
        case Departure::in_order:
        case Departure::as_filled:
            return build_closing(input_, sync_, fused.plan, program);
        case Departure::next_gradient:
            return build_late(fused.plan, program);
        case Departure::cycle:
            return build_in_cycles(fused, program);
    }
}

// A bucket goes out with the first gradient of its dtype's next one, before that is copied. A
// sparse gradient, alone in its bucket, goes at once.
void FrameworkStep::build_late(const BucketPlan& plan, Program& program) const {
    const Workload& workload = input_.workload;
    program.instructions.clear();
    program.collectives.clear();
    ProgramBuilder builder(input_, sync_, plan, program);
    if (first_part(input_, sync_) == StepPart::closing) {
        builder.begin_step();
    }
    std::vector<std::size_t> bucket_of(workload.gradients.size());
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
        for (const std::int32_t gradient : plan.buckets[bucket].gradients) {
            bucket_of[static_cast<std::size_t>(gradient)] = bucket;
        }
    }
    std::vector<bool> gone(plan.buckets.size(), false);
    const auto send = [&](std::size_t bucket) {
        builder.send(plan.buckets[bucket], bucket);
        gone[bucket] = true;
    };
    std::array<std::optional<std::size_t>, all_dtypes.size()> open;
    std::size_t ready = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        builder.backward_operation(i);
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            const std::int32_t index = workload.readiness[ready++];
            const Gradient& gradient = workload.gradients[static_cast<std::size_t>(index)];
            const std::size_t bucket = bucket_of[static_cast<std::size_t>(index)];
            auto& last = open[static_cast<std::size_t>(gradient.dtype)];
            if (!gradient.sparse) {
                if (last && *last != bucket) {
                    send(*last);
                }
                last = bucket;
            }
            builder.collect(index);
            if (gradient.sparse) {
                send(bucket);
            }
        }
    }
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
        if (!gone[bucket]) {
            send(bucket);
        }
    }
    const std::size_t collectives = program.collectives.size();
    for (std::size_t i = 0; i < collectives; ++i) {
        if (!program.collectives[i].bucket) {
            continue;  // statistics, waited for already
        }
        const auto bucket = static_cast<std::size_t>(*program.collectives[i].bucket);
        builder.wait_for(static_cast<std::int32_t>(i));
        builder.receive(plan.buckets[bucket], bucket);
    }
    builder.optimizer();
}

// Each all-reduce goes out at its moment, on the way through an operation where need be, which is
// then two instructions; after backward the device waits, which counts as computing. The moments
// are of a step in which nothing slows anything and of a rank that no class slows down; what slows
// computing moves them along. Horovod's thread issues them, so the host has nothing to do with it.
void FrameworkStep::build_in_cycles(const FusedPlan& fused, Program& program) const {
    const Workload& workload = input_.workload;
    program.instructions.clear();
    program.collectives.clear();
    ProgramBuilder builder(input_, sync_, fused.plan, program);
    if (first_part(input_, sync_) == StepPart::closing) {
        builder.begin_step();
    }
    std::size_t next = 0;  // bucket
    const auto send = [&] {
        builder.send(fused.plan.buckets[next], next);
        program.instructions.back().host = Duration{0};
        program.collectives.back().time += 2 * fusion_copy(input_, fused.plan.buckets[next]);
        ++next;
    };
    const auto compute = [&](std::size_t operation, Duration device, Duration host) {
        program.instructions.push_back({InstructionKind::backward, Phase::backward,
                                        static_cast<std::int32_t>(operation), host, device});
    };
    Duration reached = start_.device;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        std::optional<Duration> issuing;  // of the operation, with its first instruction
        if (!input_.step.graph_launch) {
            issuing = workload.backward[i].host;
        }
        Duration done{0};
        for (; next < fused.times.size() && fused.times[next] < ends_[i]; send()) {
            const Duration part = fused.times[next] - starts_[i] - done;
            if (part > Duration{0}) {
                compute(i, part, std::exchange(issuing, std::nullopt).value_or(Duration{0}));
                done += part;
            }
        }
        const std::size_t at = program.instructions.size();
        builder.backward_operation(i);
        program.instructions[at].device -= done;
        if (done > Duration{0} && !input_.step.graph_launch) {
            program.instructions[at].host = Duration{0};  // issued with its first part
        }
        reached = ends_[i];
    }
    for (; next < fused.times.size(); send()) {
        if (fused.times[next] > reached) {
            compute(std::max<std::size_t>(workload.backward.size(), 1) - 1,
                    fused.times[next] - reached, Duration{0});
            reached = fused.times[next];
        }
    }
    const std::size_t collectives = program.collectives.size();
    for (std::size_t i = 0; i < collectives; ++i) {
        if (program.collectives[i].bucket) {
            const auto bucket = static_cast<std::size_t>(*program.collectives[i].bucket);
            builder.wait_for(static_cast<std::int32_t>(i));
            builder.receive(fused.plan.buckets[bucket], bucket);
        }
    }
    builder.optimizer();
}

// --- steps ---

Duration FrameworkStep::step(const FusedPlan& fused) {
    build(fused, program_);
    return closed();
}

// The step that ends with program_.
Duration FrameworkStep::closed() {
    check_length(seconds_before_closing_ +
                 largest_slowdown(input_.classes) * longest_possible_seconds(program_));
    return close_step(program_, input_.classes, before_closing_).step();
}

Duration FrameworkStep::at_least(const FusedPlan& fused) const {
    const std::vector<Bucket>& buckets = fused.plan.buckets;
    std::vector<std::pair<Duration, Duration>> sent;  // ready, taking
    for (std::size_t i = 0; i < buckets.size(); ++i) {
        Duration ready = fused.times.empty() ? Duration{0} : fused.times[i];
        for (const std::int32_t gradient : buckets[i].gradients) {
            ready = std::max(ready, moments_[static_cast<std::size_t>(gradient)].ready);
        }
        const Bytes bytes = bytes_on_wire(sync_, buckets[i]);
        sent.emplace_back(
            ready, collective_time(CollectiveKind::all_reduce, bytes, input_.group, input_.link));
    }
    if (rule_.departure != Departure::in_order) {
        std::stable_sort(sent.begin(), sent.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    Duration end = ends_.empty() ? start_.device : ends_.back();
    Duration network{0};
    for (const auto& [ready, taking] : sent) {
        network = std::min(std::max(network, ready) + taking, longest_duration);
    }
    end = std::max(end, network);
    return end + input_.step.optimizer;
}

SyncSettings FrameworkStep::in_order_settings() const {
    SyncSettings sync = sync_;
    sync.policy = line_policy();
    return sync;
}

Duration FrameworkStep::step_with(const SyncSettings& sync, const BucketPlan& plan) {
    build_closing(input_, sync, plan, program_);
    return closed();
}

Duration FrameworkStep::step_in_order(const BucketPlan& plan) {
    return step_with(in_order_settings(), plan);
}

Duration FrameworkStep::step_after_backward() {
    SyncSettings sync = sync_;
    sync.policy.closing = Closing::single;
    sync.policy.launch = LaunchRule::after_backward;
    return step_with(sync,
                     make_plan(input_.workload.gradients, input_.workload.readiness, sync.policy));
}

bool FrameworkStep::can_be_optimised() const {
    // No sum of what a search adds up comes near the end of durations.
    constexpr double longest_s = 86400;
    double seconds = std::chrono::duration<double>(start_.device).count();
    for (const Gradient& gradient : input_.workload.gradients) {
        const Duration alone =
            collective_time(CollectiveKind::all_reduce, gradient.size(), input_.group, input_.link);
        seconds += std::chrono::duration<double>(alone).count();
    }
    return seconds < longest_s && line_.uniform() && line_.size() > 0 &&
           line_.size() <= most_gradients_for_optimum && input_.classes.empty() &&
           input_.link.interference.empty();
}

FrameworkStep::Optimum FrameworkStep::optimum_below(Duration limit) const {
    invariant(can_be_optimised(), "an exact search in little time");
    const SyncSettings sync = in_order_settings();
    MaxPlusPlanner planner(input_, sync, line_, start_);
    Optimum optimum;
    optimum.found = planner.best_below(limit, [](double) {});
    optimum.exact = planner.slack() == Duration{0};
    return optimum;
}

}  // namespace bucketwise
