#include "sim/frameworks/framework_step.h"

#include <algorithm>
#include <utility>

#include "sim/base/invariant.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// The exact search takes some tens of milliseconds for as many.
constexpr std::size_t most_gradients_for_optimum = 500;

SyncRequest as_ddp(SyncRequest request) {
    request = without_list(std::move(request));
    request.strategy = Strategy::ddp;
    request.bucket_cap = {};
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
    sync.policy = {.closing = rule.closing,
                   .order = rule.order,
                   .launch = rule.launch,
                   .limits = {},
                   .limits_count_elements = rule.unit == SettingUnit::elements};
    // Horovod's copies are the communication stream's: ProgramBuilder::send().
    sync.copies_in = rule.launch != LaunchRule::cycle;
    sync.copies_back = false;
    sync.copies_at_launch = false;
    sync.fused_copies = false;
    sync.broadcasts_buffers = false;
    sync.reduces_unused_map = false;
    return sync;
}

PlanPolicy line_policy() {
    return {.order = Order::readiness, .launch = LaunchRule::in_order, .limits = {}};
}

}  // namespace

FrameworkStep::FrameworkStep(const StepInput& input, const SyncRequest& request,
                             Framework framework)
    : input_(input),
      framework_(framework),
      rule_(rule_of(framework)),
      request_(as_ddp(request)),
      sync_(settings_of(rule_, request_)),
      line_(input.workload.gradients, input.workload.readiness, line_policy()),
      before_(input, sync_),
      step_(before_) {
    StepInput alike = input;
    alike.classes.clear();
    const StepBeforeClosing before(alike, sync_);
    start_ = StepToClose(before).progress().front();
    find_moments();
}

// From a run of backward without any bucket.
void FrameworkStep::find_moments() {
    const Workload& workload = input_.workload;
    SyncSettings none = sync_;
    none.communicates = false;
    Program program;
    build_closing(input_, none, {}, program);
    const Timeline timeline = simulate({&program, 1}, Record::timeline, start_).timeline;
    std::vector<Span> computed(program.instructions.size());
    for (const Span& span : timeline.spans) {
        if (span.track == Track::compute || span.track == Track::side) {
            computed[static_cast<std::size_t>(span.subject)] = span;
        }
    }
    std::vector<Duration> issued;  // when the host is done with each operation
    Duration host = start_.host;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        if (instruction.kind == InstructionKind::backward && instruction.order.is_beside()) {
            // Where computing is, which it does not hold up.
            ends_.push_back(ends_.empty() ? start_.device : ends_.back());
            starts_.push_back(ends_.back());
            issued.emplace_back();
        } else if (instruction.kind == InstructionKind::backward) {
            starts_.push_back(computed[i].start);
            ends_.push_back(computed[i].end);
            issued.emplace_back();
        }
        host += instruction.host;
        host = instruction.host_waits ? std::max(host, computed[i].end) : host;
        if (instruction.phase == Phase::backward) {
            issued.back() = host;
        }
    }
    // Where the workload does not say what launching costs, the host keeps pace with the device.
    const bool runs_ahead =
        !workload.host_is_device &&
        std::any_of(workload.backward.begin(), workload.backward.end(),
                    [](const TimedOperation& o) { return o.host > Duration{0}; });
    moments_.resize(workload.gradients.size());
    std::size_t ready = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            const auto gradient = static_cast<std::size_t>(workload.readiness[ready++]);
            moments_[gradient] = {runs_ahead ? issued[i] : ends_[i], ends_[i]};
        }
    }
}

// The moments are of a step in which nothing slows anything and of a rank that no class slows down;
// what slows computing moves the places along.
std::vector<BackwardPlace> FrameworkStep::places_of(const std::vector<Duration>& times) const {
    std::vector<BackwardPlace> places;
    std::size_t operation = 0;
    for (const Duration time : times) {
        while (operation < ends_.size() && ends_[operation] <= time) {
            ++operation;
        }
        const Duration begin = operation < ends_.size() ? starts_[operation]
                               : ends_.empty()          ? start_.device
                                                        : ends_.back();
        places.push_back({operation, std::max(time - begin, Duration{0})});
    }
    return places;
}

FusedPlan FrameworkStep::plan(std::optional<Bytes> limit, Duration cycle) const {
    const Workload& workload = input_.workload;
    const Bytes set = limit.value_or(default_limit(framework_, input_.group.ranks));
    if (rule_.launch == LaunchRule::cycle) {
        FusedPlan fused =
            fuse_in_cycles(workload.gradients, workload.readiness, moments_, set, cycle);
        fused.plan.departures = places_of(fused.times);
        return fused;
    }
    PlanPolicy policy = sync_.policy;
    if (rule_.unit == SettingUnit::mib) {
        policy = settings_for(limit ? with_cap(request_, *limit) : without_caps(request_)).policy;
    } else {
        policy.limits.cap = set;
    }
    return {make_plan(workload, policy), {}};
}

FusedPlan FrameworkStep::plan_of_list(const std::vector<Bytes>& list) const {
    invariant(rule_.unit == SettingUnit::mib, "only PyTorch takes a list of caps");
    SyncRequest request = without_caps(request_);
    request.bucket_cap_list = list;
    return {make_plan(input_.workload, settings_for(request).policy), {}};
}

// --- steps ---

Duration FrameworkStep::step(const FusedPlan& fused) {
    return step_with(sync_, fused.plan);
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
    if (rule_.launch != LaunchRule::in_order) {
        std::stable_sort(sent.begin(), sent.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    Duration end = ends_.empty() ? start_.device : ends_.back();
    Duration network{0};
    for (const auto& [ready, taking] : sent) {
        network = std::min(std::max(network, ready) + taking, longest_duration);
    }
    end = std::max(end, network) + input_.step.optimizer;
    for (const TimedOperation& operation : input_.step.optimizer_operations) {
        end += operation.order.is_beside() ? Duration{0} : operation.device;
    }
    return end;
}

SyncSettings FrameworkStep::in_order_settings() const {
    SyncSettings sync = sync_;
    sync.policy = line_policy();
    return sync;
}

Duration FrameworkStep::step_with(const SyncSettings& sync, const BucketPlan& plan) {
    build_closing(input_, sync, plan, program_);
    return step_.step_closed_by(program_);
}

Duration FrameworkStep::step_in_order(const BucketPlan& plan) {
    return step_with(in_order_settings(), plan);
}

Duration FrameworkStep::step_after_backward() {
    SyncSettings sync = sync_;
    sync.policy.closing = Closing::single;
    sync.policy.launch = LaunchRule::after_backward;
    return step_with(sync, make_plan(input_.workload, sync.policy));
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
           !interferes(input_.link);
}

FrameworkStep::Optimum FrameworkStep::optimum_below(Duration limit) {
    invariant(can_be_optimised(), "an exact search in little time");
    const SyncSettings sync = in_order_settings();
    MaxPlusPlanner planner(input_, sync, line_, before_.loop(), start_);
    Optimum optimum;
    optimum.found = planner.best_below(limit, [](double) {});
    optimum.exact = planner.slack() == Duration{0};
    if (optimum.found) {
        // A launch queue that fills may make it longer.
        const Duration step = step_in_order(line_.plan(optimum.found->cuts));
        optimum.exact = optimum.exact && step == optimum.found->step;
        optimum.found->step = step;
        if (step >= limit) {
            optimum.found.reset();
        }
    }
    return optimum;
}

}  // namespace bucketwise
