#include <algorithm>
#include <cmath>
#include <set>

#include "bench/training/training.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

void set_times(const std::vector<OperationTime>& times, std::vector<TimedOperation>& operations) {
    invariant(times.size() == operations.size(), "a time for each operation");
    for (std::size_t i = 0; i < times.size(); ++i) {
        operations[i].device = times[i].device;
        operations[i].host = times[i].host;
    }
}

// Each size has a segment of its own, whose latency is the whole measured time.
LinkParameters link_of(const TrainingMeasurement& measured, std::int64_t ranks) {
    constexpr double so_fast_that_it_does_not_count = 1e6;
    LinkParameters link;
    link.name = "measured, size by size";
    const std::int64_t steps = wire_cost(CollectiveKind::all_reduce, link.algorithm, ranks).steps;
    for (const auto& [bytes, time] : measured.all_reduces) {
        link.segments.push_back(
            {.up_to = Bytes{bytes},
             .latency = steps > 0 ? time / steps : Duration{0},
             .bandwidth = bandwidth_from_gb_per_s(so_fast_that_it_does_not_count)});
    }
    invariant(!link.segments.empty(), "a plan has a bucket");
    link.segments.back().up_to.reset();
    link.host_issue = measured.issue;
    const auto ppm = [](double factor) {
        return std::max<std::int64_t>(undisturbed_ppm,
                                      std::llround(factor * double{undisturbed_ppm}));
    };
    link.interference = constant_interference(
        {ppm(measured.compute_slowdown), ppm(measured.communication_slowdown)});
    return link;
}

StepInput measured_input(const TrainingTask& task, const Workload& workload,
                         const TrainingMeasurement& measured, const TrainingTimes& times) {
    StepInput input;
    input.workload = workload;
    input.workload.host_is_device = measured.host_is_device;
    set_times(times.forward, input.workload.forward);
    set_times(times.backward, input.workload.backward);
    input.group = {.ranks = task.schedule.ranks, .ranks_per_node = task.schedule.ranks};
    input.link = link_of(measured, task.schedule.ranks);
    input.workload.copy_launch = Duration{0};
    if (times.copy_count > 0) {
        input.workload.copy_launch = times.copy_launches / times.copy_count;
        const double seconds = std::max(to_us(times.copies), 1e-3) * 1e-6;
        input.copy_bandwidth = BytesPerSecond{std::max<std::int64_t>(
            std::llround(static_cast<double>(times.copied.count) / seconds), 1)};
    }
    // Where the host is slower than the device, the launch is the longer part.
    input.step.optimizer = std::max(times.optimizer.device, times.optimizer.host);
    return input;
}

Scenario with_samples(Scenario scenario, std::int64_t samples) {
    auto& workload = std::get<ModelWorkload>(scenario.workload);
    const double share = static_cast<double>(samples) / static_cast<double>(workload.input.batch);
    workload.input.batch = samples;
    for (std::optional<Duration>* time : {&workload.forward, &workload.backward}) {
        if (*time) {
            *time = scaled(**time, share);
        }
    }
    for (auto* times : {&workload.forward_operations, &workload.backward_operations}) {
        for (Duration& time : *times) {
            time = scaled(time, share);
        }
    }
    return scenario;
}

StepInput scenario_input(const TrainingTask& task, const Scenario& scenario, std::int64_t samples) {
    StepInput input = step_input(with_samples(scenario, samples));
    if (input.copy_bandwidth) {
        const Bytes batch = samples * task.shape.layers.front() * element_size(DType::float32);
        input.workload.forward.insert(input.workload.forward.begin(),
                                      {.name = "gather the batch",
                                       .device = transfer_time(batch, *input.copy_bandwidth),
                                       .host = input.workload.copy_launch});
    }
    return input;
}

TrainingTime predicted_time(const TrainingTask& task, const Workload& workload,
                            const MicroStepInput& input_of) {
    const SyncSettings sync = settings_of_replay(task.sync);
    return training_time(task.schedule, sync, make_plan(workload, sync.policy), input_of);
}

}  // namespace

std::vector<MicroStepKind> micro_step_kinds(const TrainingSchedule& schedule) {
    std::set<MicroStepKind> kinds;
    for (const std::int64_t step : {std::int64_t{0}, steps_per_epoch(schedule) - 1}) {
        bool accumulates = false;
        for (const SampleRange& part : micro_steps(schedule, step, 0)) {
            kinds.emplace(part.count, accumulates);
            accumulates = true;
        }
    }
    return {kinds.begin(), kinds.end()};
}

TrainingTime predict_training(const TrainingTask& task, const Workload& workload,
                              const TrainingMeasurement& measured) {
    return predicted_time(task, workload, [&](std::int64_t samples, bool accumulates) {
        return measured_input(task, workload, measured,
                              measured.operations.at({samples, accumulates}));
    });
}

TrainingTime predict_training(const TrainingTask& task, const Scenario& scenario) {
    return predicted_time(task, step_input(scenario).workload,
                          [&](std::int64_t samples, bool /*accumulates*/) {
                              return scenario_input(task, scenario, samples);
                          });
}

std::vector<std::int64_t> predict_memory(const TrainingTask& task, std::int64_t test_samples,
                                         Bytes alignment, Bytes workspace) {
    const TrainingMemoryInput request{.shape = task.shape,
                                      .schedule = task.schedule,
                                      .test_samples = test_samples,
                                      .sync = settings_of_replay(task.sync),
                                      .optimizer = task.optimizer,
                                      .alignment = alignment,
                                      .workspace = workspace};
    std::vector<std::int64_t> by_rank;
    for (std::int64_t rank = 0; rank < task.schedule.ranks; ++rank) {
        by_rank.push_back(training_memory(request, rank).total().count);
    }
    return by_rank;
}

}  // namespace bucketwise
