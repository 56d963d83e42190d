#include "sim/predict/planned_setting.h"

#include <utility>

#include "sim/base/transformed.h"
#include "sim/engine/bucket_planner.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

MicroStepPlace last_place(const StepInput& input) {
    return input.step.accumulation == 1 ? MicroStepPlace::only : MicroStepPlace::last;
}

}  // namespace

PlannedSetting::PlannedSetting(const StepInput& input, const Setting& setting) {
    if (const auto* sync = std::get_if<SyncSettings>(&setting)) {
        planned_ = Buckets{*sync, plan_of(input, *sync), depends_on_plan(input, *sync)};
    } else {
        const auto& request = std::get<ShardingRequest>(setting);
        planned_ = Shards{request, make_shard_plan(input.workload, request, input.group.ranks)};
    }
}

StepLoop PlannedSetting::loop(const StepInput& input) const {
    if (const auto* buckets = std::get_if<Buckets>(&planned_)) {
        return loop_of(input, buckets->sync);
    }
    SyncSettings sync;
    sync.framework.host_waits =
        std::get<Shards>(planned_).request.strategy == ShardedStrategy::zero3;
    return loop_of(input, sync);
}

StepParts PlannedSetting::parts(const StepInput& input) const {
    if (const auto* buckets = std::get_if<Buckets>(&planned_)) {
        StepParts parts{StepBeforeClosing(input, buckets->sync, buckets->plan), {}};
        close(input, parts.closing);
        return parts;
    }
    const auto& shards = std::get<Shards>(planned_);
    ShardedMemory memory;
    const auto built = [&](MicroStepPlace place) {
        ShardedProgram part =
            build_sharded_micro_step(input, shards.request, shards.plan, place, memory);
        memory.go_on_with(part.memory);
        return std::move(part.program);
    };
    const std::int64_t before = input.step.accumulation - 1;
    Program first = before > 0 ? built(MicroStepPlace::first) : Program{};
    Program following = before > 1 ? built(MicroStepPlace::middle) : Program{};
    StepParts parts{{loop(input), input.classes, std::move(first), std::move(following), before},
                    built(last_place(input))};
    parts.memory = memory;
    return parts;
}

void PlannedSetting::close(const StepInput& input, Program& closing) const {
    if (const auto* buckets = std::get_if<Buckets>(&planned_)) {
        build_closing(input, buckets->sync, buckets->plan, closing);
        return;
    }
    const auto& [request, plan] = std::get<Shards>(planned_);
    closing = build_sharded_micro_step(input, request, plan, last_place(input)).program;
}

std::vector<PlannedSetting> planned(const StepInput& input, const std::vector<Setting>& settings) {
    return transformed(settings,
                       [&](const Setting& setting) { return PlannedSetting(input, setting); });
}

void open_steps(const std::vector<PlannedSetting>& settings, const StepInput& input,
                std::vector<OpenedStep>& steps) {
    steps.resize(settings.size());
    for (std::size_t i = 0; i < settings.size(); ++i) {
        OpenedStep& opened = steps[i];
        if (i > 0 && settings[i].shares_before()) {
            opened.before = steps.front().before;
            opened.step = steps.front().step;
            settings[i].close(input, opened.closing);
            continue;
        }
        StepParts parts = settings[i].parts(input);
        opened.before = std::make_shared<const StepBeforeClosing>(std::move(parts.before));
        opened.step = std::make_shared<const StepToClose>(*opened.before);
        opened.closing = std::move(parts.closing);
        opened.owns_before = !settings[i].shares_before() && opened.before->instructions() > 0;
    }
}

}  // namespace bucketwise
