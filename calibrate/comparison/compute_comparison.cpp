#include "calibrate/comparison/compute_comparison.h"

#include <variant>

#include "sim/base/invariant.h"
#include "sim/base/statistics.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/program/program.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

using ComputeRecords = std::vector<ComputeRecord>;

std::vector<const ComputeRecord*> pointers_to(const ComputeRecords& records) {
    return transformed(records, [](const ComputeRecord& record) { return &record; });
}

// The scenario with the operations as they were measured one by one, and with what launching took.
Scenario with_operations(Scenario scenario, const ComputeRecords& records,
                         const ComputeComparison& comparison) {
    auto& workload = std::get<ModelWorkload>(scenario.workload);
    workload.forward.reset();
    workload.backward.reset();
    workload.forward_operations =
        transformed(medians_of(records, &ComputeRecord::forward_operations_us), duration_from_us);
    workload.backward_operations =
        transformed(medians_of(records, &ComputeRecord::backward_operations_us), duration_from_us);
    if (!workload.device) {
        workload.device = Device{};
    }
    const bool launches = comparison.launch || comparison.graph_launch;
    workload.device->host_is_device = !launches;
    workload.device->launch = comparison.launch ? comparison.launch->time : Duration{0};
    workload.device->graph_launch =
        comparison.graph_launch ? comparison.graph_launch->time : Duration{0};
    scenario.step.cuda_graph = comparison.graph_launch.has_value();
    scenario.step.optimizer = duration_from_us(median_of(records, &ComputeRecord::optimizer_us));
    scenario.sync = {};
    scenario.sync.strategy = Strategy::none;
    scenario.variation.reset();
    return scenario;
}

}  // namespace

ComputeComparison compare_compute(const std::vector<ComputeRecord>& records,
                                  const Scenario& scenario) {
    invariant(!records.empty(), "something was measured");
    invariant(std::holds_alternative<ModelWorkload>(scenario.workload),
              "the operations are a model's");
    ComputeComparison comparison;
    comparison.launch = launch_cost(pointers_to(records));
    comparison.graph_launch = graph_launch_cost(pointers_to(records));
    const Scenario measured = with_operations(scenario, records, comparison);
    const StepInput input = step_input(measured);
    const SyncSettings sync = settings_of_replay(measured.sync);
    const Program program = build_program(input, sync, {});
    const StepTimes times = settled_times(program, loop_of(input, sync));
    comparison.forward = {to_us(times.forward), median_of(records, &ComputeRecord::forward_us)};
    comparison.backward = {to_us(times.backward), median_of(records, &ComputeRecord::backward_us)};
    const std::vector<double> steps_us =
        transformed(records, [](const ComputeRecord& record) { return record.samples_us.front(); });
    comparison.step = {to_us(times.step()), median(steps_us)};
    comparison.noise = spread(steps_us);
    for (const Instruction& instruction : program.instructions) {
        comparison.host_us += to_us(instruction.host);
        comparison.device_us += to_us(instruction.device);
    }

    ComputeFit fit;
    const auto& workload = std::get<ModelWorkload>(measured.workload);
    fit.forward_operations = workload.forward_operations;
    fit.backward_operations = workload.backward_operations;
    fit.launch = comparison.launch;
    fit.rounds = records.size();
    comparison.device = fit_device(measured, fit);
    std::optional<Workload> fitted;
    if (comparison.device) {
        fitted = workload_from_model(model_of(workload), workload.dtype,
                                     {.device = comparison.device->device,
                                      .arithmetic = workload.arithmetic,
                                      .batch_norm = measured.sync.batch_norm});
    }
    const auto add = [&](std::vector<TimedOperation> Workload::*pass, const auto& launches_of) {
        const std::vector<double> launches = medians_of(records, launches_of);
        for (std::size_t i = 0; const TimedOperation& operation : input.workload.*pass) {
            comparison.operations.push_back(
                {.name = operation.name,
                 .in_backward = pass == &Workload::backward,
                 .measured_us = to_us(operation.device),
                 .fitted_us = fitted ? to_us(((*fitted).*pass)[i].device) : 0,
                 .launch_us = launches.empty() ? 0 : launches[i]});
            ++i;
        }
    };
    add(&Workload::forward, &ComputeRecord::forward_launches_us);
    add(&Workload::backward, &ComputeRecord::backward_launches_us);
    return comparison;
}

}  // namespace bucketwise
