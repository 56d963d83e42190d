#include "hw/measure/measurer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "hw/rank/isolated_all_reduce.h"
#include "hw/rank/replay_rules.h"
#include "sim/base/invariant.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

constexpr int first_rank = 0;

std::vector<double> in_us(const std::vector<Duration>& times) {
    std::vector<double> us;
    for (const Duration time : times) {
        us.push_back(to_us(time));
    }
    return us;
}

std::vector<double> begins_us(const StepTrace& trace) {
    std::vector<double> begins;
    for (const Interval& collective : trace.collectives) {
        begins.push_back(to_us(collective.begin));
    }
    return begins;
}

double sum_us(const std::vector<Duration>& times) {
    return to_us(std::accumulate(times.begin(), times.end(), Duration{0}));
}

Program communication_free_program(const StepInput& input) {
    SyncRequest request;
    request.strategy = Strategy::none;
    return build_program(input, settings_for(request), {});
}

// From the first instruction of the last micro-step's backward.
struct LastMicroStep {
    std::vector<Duration> forward;
    std::vector<Duration> backward;
    std::vector<Duration> backward_ends;  // from the start of backward
};

LastMicroStep last_micro_step(const Program& program, const StepTrace& trace) {
    LastMicroStep last;
    Duration start{0};
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Instruction& instruction = program.instructions[i];
        const Interval& interval = trace.instructions[i];
        if (instruction.kind == InstructionKind::forward) {
            if (instruction.subject == 0) {
                last = {};
            }
            last.forward.push_back(interval.length());
        } else if (instruction.kind == InstructionKind::backward) {
            if (instruction.subject == 0) {
                start = interval.begin;
            }
            last.backward.push_back(interval.length());
            last.backward_ends.push_back(interval.end - start);
        }
    }
    return last;
}

std::vector<double> ready_us(const Workload& workload, const LastMicroStep& last) {
    std::vector<double> ready(workload.gradients.size(), 0.0);
    std::size_t next = 0;
    for (std::size_t i = 0; i < workload.backward.size(); ++i) {
        for (std::int32_t k = 0; k < workload.backward[i].ready_count; ++k) {
            ready[static_cast<std::size_t>(workload.readiness[next++])] =
                to_us(last.backward_ends[i]);
        }
    }
    return ready;
}

// Launches one after another, in place of what they launch.
StepTrace as_intervals(const std::vector<Duration>& launches) {
    StepTrace trace;
    Duration now{0};
    for (const Duration launch : launches) {
        trace.instructions.push_back({now, now + launch});
        now += launch;
    }
    return trace;
}

double copies_us(const Program& program, const StepTrace& trace) {
    Duration sum{0};
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        if (is_copy(program.instructions[i].kind)) {
            sum += trace.instructions[i].length();
        }
    }
    return to_us(sum);
}

// Visits every number that a rank measured, in one order for the sender and the receiver.
template <typename Record, typename Visit>
void write_or_read(Record& record, const Visit& visit) {
    for (auto* number :
         {&record.forward_us, &record.backward_us, &record.optimizer_us, &record.copying_step_us}) {
        visit(*number);
    }
    for (auto* list :
         {&record.samples_us, &record.forward_operations_us, &record.backward_operations_us,
          &record.ready_us, &record.forward_launches_us, &record.backward_launches_us}) {
        for (auto& number : *list) {
            visit(number);
        }
    }
    for (auto* number : {&record.copies_us, &record.graph_launch_us}) {
        if (*number) {
            visit(**number);
        }
    }
}

RankStep rank_step(const MeasuredStep& step, std::int64_t peak_memory_bytes) {
    return {.step_us = to_us(step.step()),
            .forward_us = to_us(step.forward),
            .backward_us = to_us(step.backward),
            .optimizer_us = to_us(step.optimizer),
            .waiting_us = to_us(step.waiting),
            .peak_memory_bytes = peak_memory_bytes};
}

constexpr std::size_t rank_step_values = 6;

std::vector<double> values_of(const RankStep& step) {
    return {step.step_us,      step.forward_us, step.backward_us,
            step.optimizer_us, step.waiting_us, static_cast<double>(step.peak_memory_bytes)};
}

RankStep rank_step_of(const double* values) {
    return {values[0], values[1], values[2],
            values[3], values[4], static_cast<std::int64_t>(values[5])};
}

}  // namespace

StepInput replay_input(const Scenario& scenario) {
    StepInput input = step_input(scenario);
    if (!input.copy_bandwidth) {
        input.copy_bandwidth = bandwidth_from_gb_per_s(1);
    }
    input.step.optimizer_launch = Duration{0};  // real launches take what they take
    if (std::holds_alternative<Optimizer>(scenario.step.optimizer)) {
        input.step.optimizer = std::max(input.step.optimizer, Duration{1});
    }
    return input;
}

SyncRequest request_with_cap(const SyncRequest& request, const std::optional<Bytes>& cap) {
    SyncRequest with_cap = request;
    if (has_cap(request)) {
        with_cap.bucket_cap = cap;
    }
    return with_cap;
}

DType wire_dtype(const Scenario& scenario, const Workload& workload) {
    std::array<std::int64_t, all_dtypes.size()> bytes{};
    for (const Gradient& gradient : workload.gradients) {
        bytes[static_cast<std::size_t>(gradient.dtype)] += gradient.size().count;
    }
    const auto most = std::max_element(bytes.begin(), bytes.end());
    return wire_dtype(scenario.sync.comm_hook, static_cast<DType>(most - bytes.begin()));
}

Measurer::Measurer(const Scenario& scenario, const StepInput& input, Transport transport,
                   RankDevice& device, ControlGroup& control)
    : scenario_(scenario),
      input_(input),
      transport_(std::move(transport)),
      device_(device),
      control_(control),
      wire_dtype_(wire_dtype(scenario, input.workload)) {}

std::vector<Measurement> Measurer::measure(const Item& item, std::int64_t round,
                                           std::uint64_t bits) {
    control_.barrier();
    switch (item.protocol) {
        case Protocol::all_reduce:
            return measure_all_reduce(item, round);
        case Protocol::compute:
            return measure_compute(round, (bits & 1U) != 0);
        case Protocol::contention:
            return measure_contention(item, round);
        case Protocol::step:
            return measure_step(item, round, (bits & 1U) != 0);
    }
    return {};
}

std::vector<Measurement> Measurer::measure_all_reduce(const Item& item, std::int64_t round) {
    const AllReduceTrace trace =
        device_.all_reduce({item.message, wire_dtype_}, iterations_for(item.message));
    if (!trace.wrong.empty()) {
        throw WrongSum(trace.wrong);
    }
    const std::array own{trace.largest_difference,
                         static_cast<double>(device_.peak_memory_bytes())};
    const std::vector<double> all = control_.gather_to_first(own);
    std::vector<double> samples = slowest_us(control_, trace.times);
    if (control_.rank() != first_rank) {
        return {};
    }
    AllReduceRecord record{.transport = transport_,
                           .size = item.message,
                           .dtype = wire_dtype_,
                           .round = round,
                           .samples_us = std::move(samples),
                           .issue_us = in_us(trace.issue)};
    for (std::size_t i = 0; i < all.size(); i += own.size()) {
        record.largest_difference = std::max(record.largest_difference, all[i]);
        record.peak_memory_bytes =
            std::max(record.peak_memory_bytes, static_cast<std::int64_t>(all[i + 1]));
    }
    return {std::move(record)};
}

ComputeRecord Measurer::compute_on_this_rank(bool copies_first) {
    const ReplayedStep copying = replayed_step(std::nullopt);
    ComputeRecord record;
    record.copying_step_us = copies_first ? run_free(copying) : 0;
    control_.barrier();
    const Program program = communication_free_program(input_);
    SyncRequest none;
    none.strategy = Strategy::none;
    const SyncSettings sync = settings_for(none);
    const StepTrace trace = device_.run(program, sync, {}, next_step_++, Communicate::for_free);
    if (!copies_first) {
        record.copying_step_us = run_free(copying);
    }
    const MeasuredStep step = summarize(program, trace);
    record.samples_us = {to_us(step.step())};
    record.forward_us = to_us(step.forward);
    record.backward_us = to_us(step.backward);
    record.optimizer_us = to_us(step.optimizer);
    const std::optional<StepTrace> each = device_.run_each(program, sync, {}, next_step_++);
    const LastMicroStep last = last_micro_step(program, each ? *each : trace);
    record.forward_operations_us = in_us(last.forward);
    record.backward_operations_us = in_us(last.backward);
    record.ready_us = ready_us(input_.workload, last);
    // Of a step that runs as one graph nothing is launched by itself. Behind a head start the host
    // never waits for room in the GPU's queue, as it does in a step that the GPU is slow with.
    if (each && !trace.graph_launch) {
        const LastMicroStep launched = last_micro_step(program, as_intervals(each->launches));
        record.forward_launches_us = in_us(launched.forward);
        record.backward_launches_us = in_us(launched.backward);
    }
    if (trace.graph_launch) {
        record.graph_launch_us = to_us(*trace.graph_launch);
    }
    const std::optional<StepTrace> each_copy =
        device_.run_each(copying.program, copying.sync, copying.plan, next_step_++);
    if (each_copy) {
        record.copies_us = copies_us(copying.program, *each_copy);
    }
    return record;
}

std::vector<Measurement> Measurer::measure_compute(std::int64_t round, bool copies_first) {
    const ComputeRecord own = compute_on_this_rank(copies_first);
    std::vector<double> values;
    write_or_read(own, [&](const double& value) { values.push_back(value); });
    const std::vector<double> all = control_.gather_to_first(values);
    std::vector<Measurement> records;
    for (std::size_t at = 0; at < all.size();) {
        ComputeRecord record = own;  // of the same shape on every rank
        record.backend = transport_.backend;
        record.shared_gpu = transport_.shared_gpu;
        record.ranks = transport_.ranks;
        record.rank = static_cast<std::int64_t>(at / values.size());
        record.round = round;
        write_or_read(record, [&](double& value) { value = all[at++]; });
        records.emplace_back(std::move(record));
    }
    return records;
}

// Enough for a tenth of a second, and for several of the longest operations, so that some lie
// wholly within. Rank 0 decides, so that all agree.
std::int64_t Measurer::contention_iterations(const std::vector<Duration>& all_reduces,
                                             const std::vector<Duration>& operations) {
    const auto longest = std::max_element(operations.begin(), operations.end());
    const double longest_us = longest == operations.end() ? 0.0 : to_us(*longest);
    const double mean_us = sum_us(all_reduces) / static_cast<double>(all_reduces.size());
    const double wanted = std::max(1e5, 4 * longest_us) / std::max(mean_us, 1.0);
    auto iterations = static_cast<std::int64_t>(std::clamp(std::ceil(wanted), 2.0, 10'000.0));
    control_.broadcast_from_first({&iterations, 1});
    return iterations;
}

std::vector<Measurement> Measurer::measure_contention(const Item& item, std::int64_t round) {
    const Message message{item.message, wire_dtype_, item.ctas};
    const AllReduceTrace alone = device_.all_reduce(message, iterations_for(item.message));
    if (!alone.wrong.empty()) {
        throw WrongSum(alone.wrong);
    }
    const std::vector<Duration> operations = device_.backward_alone();
    const ContentionTrace both =
        device_.contend(message, contention_iterations(alone.times, operations), operations);
    std::vector<double> alone_us = slowest_us(control_, alone.times);
    std::vector<double> disturbed_us = slowest_us(control_, both.times);
    const Disturbance products = both.products.value_or(Disturbance{});
    const std::array own{to_us(both.compute.alone), to_us(both.compute.disturbed),
                         to_us(products.alone), to_us(products.disturbed)};
    const std::vector<double> compute = control_.gather_to_first(own);
    if (control_.rank() != first_rank) {
        return {};
    }
    ContentionRecord record;
    record.transport = transport_;
    if (item.ctas) {
        record.transport.ctas = item.ctas;
    }
    record.size = item.message;
    record.dtype = wire_dtype_;
    record.round = round;
    record.allreduce_alone_us = std::move(alone_us);
    record.allreduce_disturbed_us = std::move(disturbed_us);
    for (std::size_t i = 0; i < compute.size(); i += own.size()) {
        record.compute_alone_us.push_back(compute[i]);
        record.compute_disturbed_us.push_back(compute[i + 1]);
        if (both.products) {
            record.products_alone_us.push_back(compute[i + 2]);
            record.products_disturbed_us.push_back(compute[i + 3]);
        }
    }
    return {std::move(record)};
}

Measurer::ReplayedStep Measurer::replayed_step(const std::optional<Bytes>& cap) const {
    ReplayedStep replayed{.sync = settings_for(request_with_cap(scenario_.sync, cap))};
    replayed.plan =
        make_plan(input_.workload.gradients, input_.workload.readiness, replayed.sync.policy);
    replayed.program = build_program(input_, replayed.sync, replayed.plan);
    return replayed;
}

// The step on this rank with collectives that do nothing.
double Measurer::run_free(const ReplayedStep& replayed) {
    control_.barrier();
    const StepTrace trace = device_.run(replayed.program, replayed.sync, replayed.plan,
                                        next_step_++, Communicate::for_free);
    return to_us(summarize(replayed.program, trace).step());
}

// Both runs of one sample, on this rank.
Measurer::StepSample Measurer::run_step(const ReplayedStep& replayed, bool free_first) {
    StepSample sample;
    if (free_first) {
        sample.free_us = run_free(replayed);
    }
    control_.barrier();
    sample.trace =
        device_.run(replayed.program, replayed.sync, replayed.plan, next_step_++, Communicate::yes);
    const StepCheck check = device_.check();
    if (replayed.sync.communicates && !check.wrong.empty()) {
        throw WrongSum(check.wrong);
    }
    sample.largest_difference = replayed.sync.communicates ? check.largest_difference : 0;
    sample.times =
        rank_step(summarize(replayed.program, sample.trace), device_.peak_memory_bytes());
    if (!free_first) {
        sample.free_us = run_free(replayed);
    }
    return sample;
}

std::vector<Measurement> Measurer::measure_step(const Item& item, std::int64_t round,
                                                bool free_first) {
    const ReplayedStep replayed = replayed_step(item.cap);
    const StepSample sample = run_step(replayed, free_first);

    std::vector<double> values = values_of(sample.times);
    values.push_back(sample.free_us);
    values.push_back(sample.largest_difference);
    const std::vector<double> all = control_.gather_to_first(values);
    const std::vector<double> begins = control_.gather_to_first(begins_us(sample.trace));
    if (control_.rank() != first_rank) {
        return {};
    }
    StepRecord record;
    record.transport = transport_;
    record.strategy = name_of(scenario_.sync.strategy);
    record.round = round;
    if (has_cap(scenario_.sync)) {
        record.cap = item.cap.value_or(replayed.sync.policy.limits.cap);
        record.is_default = !item.cap;
    }
    gather_ranks(all, values.size(), record);
    add_collectives(replayed, sample.trace, begins, record);
    return {std::move(record)};
}

void Measurer::gather_ranks(const std::vector<double>& all, std::size_t per_rank,
                            StepRecord& record) {
    double step_us = 0;
    double free_us = 0;
    for (std::size_t i = 0; i < all.size(); i += per_rank) {
        record.by_rank.push_back(rank_step_of(&all[i]));
        step_us = std::max(step_us, all[i]);
        free_us = std::max(free_us, all[i + rank_step_values]);
        record.largest_difference =
            std::max(record.largest_difference, all[i + rank_step_values + 1]);
    }
    record.samples_us = {step_us};
    record.free_communication_us = {free_us};
    record.exposed_communication_us = step_us - free_us;
}

// `begins`: of every collective on every rank, rank by rank.
void Measurer::add_collectives(const ReplayedStep& replayed, const StepTrace& trace,
                               const std::vector<double>& begins, StepRecord& record) {
    const std::size_t collectives = replayed.program.collectives.size();
    record.collective_last_begin_us.resize(collectives, 0.0);
    for (std::size_t i = 0; i < begins.size(); ++i) {
        double& last = record.collective_last_begin_us[i % collectives];
        last = std::max(last, begins[i]);
    }
    for (std::size_t i = 0; i < replayed.program.collectives.size(); ++i) {
        const Collective& collective = replayed.program.collectives[i];
        if (collective.bucket) {
            record.bucket_bytes.push_back(
                replayed.plan.buckets[static_cast<std::size_t>(*collective.bucket)].size);
        }
        record.collective_begin_us.push_back(to_us(trace.collectives[i].begin));
        record.collective_end_us.push_back(to_us(trace.collectives[i].end));
    }
}

}  // namespace bucketwise
