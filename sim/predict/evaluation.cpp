#include "sim/predict/evaluation.h"

#include <algorithm>
#include <utility>

#include "sim/predict/planned_setting.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

std::vector<Bytes> launched_bytes(const Program& program, const BucketPlan& plan) {
    std::vector<Bytes> sizes;
    for (const Collective& collective : program.collectives) {
        if (const auto bucket = collective.bucket()) {
            sizes.push_back(plan.buckets[static_cast<std::size_t>(*bucket)].size);
        }
    }
    return sizes;
}

}  // namespace

OpenStep::OpenStep(StepBeforeClosing before)
    : before_(std::move(before)),
      before_if_free_(before_.changed(with_free_communication)),
      step_(before_),
      step_if_free_(before_if_free_) {}

void OpenStep::evaluate(Program& closing, Evaluation& evaluation) const {
    evaluation.times = step_.closed_by(closing);
    evaluation.communication = before_.communication() + time_on_wire(closing);
    closing = with_free_communication(std::move(closing));
    evaluation.exposed = evaluation.times.step() - step_if_free_.step_closed_by(closing);
}

Binding OpenStep::binding(Program closing) const {
    const Duration step = step_.step_closed_by(closing);
    closing = with_free_communication(std::move(closing));
    const Duration no_communication = step_if_free_.step_closed_by(closing);
    const StepBeforeClosing unlaunched = before_if_free_.changed(with_free_launches);
    const Duration nothing_but_compute =
        StepToClose(unlaunched).step_closed_by(with_free_launches(std::move(closing)));
    return {step - no_communication, no_communication - nothing_but_compute, nothing_but_compute};
}

Evaluator::Evaluator(const StepInput& input, SyncRequest request)
    : input_(input),
      request_(std::move(request)),
      before_depends_(depends_on_plan(input, settings_for(request_, input))) {
    const SyncSettings sync = settings_for(request_, input);
    if (depends_on_moments(sync)) {
        moments_ = backward_moments(input, sync);
    }
    if (!before_depends_) {
        open_ = std::make_unique<const OpenStep>(StepBeforeClosing(input, sync));
    }
}

BucketPlan Evaluator::plan(Cap cap) const {
    const SyncSettings sync = settings(cap);
    return moments_ ? fused_plan(input_, sync, *moments_).plan : plan_of(input_, sync);
}

Program Evaluator::program(Cap cap) const {
    return on_slowest_rank(build_program(input_, settings(cap), plan(cap)), input_.classes);
}

Simulation Evaluator::simulation(const Program& program) const {
    const StepLoop loop = loop_of(input_, settings_for(request_, input_));
    return settled_simulation(program, loop);
}

Evaluation Evaluator::evaluate(Cap cap, const BucketPlan& plan) {
    const SyncSettings sync = settings(cap);
    build_closing(input_, sync, plan, program_);
    Evaluation evaluation;
    evaluation.cap = cap_of(with_cap(request_, cap));
    if (evaluation.cap.is_default() && framework_of(request_.strategy)) {
        evaluation.cap = sync.policy.cap_bytes_of_limit * sync.policy.limits.cap;
    }
    evaluation.same_plan = plan.same_plan;
    evaluation.bucket_bytes = launched_bytes(program_, plan);
    opened(sync, plan, [&](const OpenStep& open) { return open.evaluate(program_, evaluation); });
    return evaluation;
}

Duration Evaluator::step(Cap cap) const {
    return closed(cap, [](const OpenStep& open, const Program& closing) {
        return open.step_closed_by(closing);
    });
}

Binding Evaluator::binding(Cap cap) const {
    return closed(
        cap, [](const OpenStep& open, const Program& closing) { return open.binding(closing); });
}

// --- sharded steps ---

Evaluation evaluate_sharded(const Scenario& scenario, const ShardedInput& input) {
    const PlannedSetting setting(input.step, input.request);
    StepParts parts = setting.parts(input.step);
    Evaluation row;
    row.memory = memory_need(scenario, parts.memory);
    row.sharded = {input.request, setting.shard_plan().groups.size(), {}, parts.memory};
    for (const ShardGroup& group : setting.shard_plan().groups) {
        row.sharded->largest_gather = std::max(row.sharded->largest_gather, group.gathered());
    }
    OpenStep(std::move(parts.before)).evaluate(parts.closing, row);
    return row;
}

Binding sharded_binding(const ShardedInput& input) {
    StepParts parts = PlannedSetting(input.step, input.request).parts(input.step);
    return OpenStep(std::move(parts.before)).binding(std::move(parts.closing));
}

Program sharded_program(const ShardedInput& input) {
    return on_slowest_rank(build_sharded_program(input, make_shard_plan(input)).program,
                           input.step.classes);
}

Simulation sharded_simulation(const ShardedInput& input, const Program& program) {
    return settled_simulation(program, PlannedSetting(input.step, input.request).loop(input.step));
}

}  // namespace bucketwise
