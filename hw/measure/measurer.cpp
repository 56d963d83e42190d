#include "hw/measure/measurer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "hw/rank/isolated_messages.h"
#include "sim/base/transformed.h"
#include "sim/program/framework.h"

namespace bucketwise {
namespace {

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
            // An operation that Horovod's cycle cuts has several instructions.
            if (instruction.subject + 1 == std::ssize(last.backward)) {
                last.backward.back() += interval.length();
                last.backward_ends.back() = interval.end - start;
                continue;
            }
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

// Launches one after another.
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

double within_collectives_us(const StepTrace& free_trace) {
    Duration sum{0};
    for (const Interval& collective : free_trace.collectives) {
        sum += collective.length();
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

// One rank's numbers of a step: as many as rank_step_of() reads, then the step with free
// communication and the largest difference of a gradient.
constexpr std::size_t rank_step_values = 6;

std::vector<double> values_of(const MeasuredStep& step, std::int64_t peak_memory_bytes,
                              double free_us, double largest_difference) {
    return {to_us(step.step()),
            to_us(step.forward),
            to_us(step.backward),
            to_us(step.optimizer),
            to_us(step.waiting),
            static_cast<double>(peak_memory_bytes),
            free_us,
            largest_difference};
}

RankStep rank_step_of(const std::vector<double>& values) {
    return {values[0], values[1], values[2],
            values[3], values[4], static_cast<std::int64_t>(values[5])};
}

// The last micro-step of a step without communication, operation by operation.
void add_operations(const StepInput& input, const Program& program, const StepTrace& trace,
                    ComputeRecord& record) {
    const LastMicroStep last = last_micro_step(program, trace);
    record.forward_operations_us = microseconds(last.forward);
    record.backward_operations_us = microseconds(last.backward);
    record.ready_us = ready_us(input.workload, last);
}

void add_parts(const Program& program, const StepTrace& trace, ComputeRecord& record) {
    const MeasuredStep step = summarize(program, trace);
    record.samples_us = {to_us(step.step())};
    record.forward_us = to_us(step.forward);
    record.backward_us = to_us(step.backward);
    record.optimizer_us = to_us(step.optimizer);
}

// `each`: every instruction by itself, if the device times them. In a step that runs as one graph
// no operation is launched by itself. Behind a head start the host never waits for room in the
// GPU's queue, as it does in a step that is slow on the GPU.
void add_computing(const StepInput& input, const Program& program, const StepTrace& trace,
                   const std::optional<StepTrace>& each, ComputeRecord& record) {
    add_parts(program, trace, record);
    add_operations(input, program, each ? *each : trace, record);
    if (each && !trace.graph_launch) {
        const LastMicroStep launched = last_micro_step(program, as_intervals(each->launches));
        record.forward_launches_us = microseconds(launched.forward);
        record.backward_launches_us = microseconds(launched.backward);
    }
}

void refuse_wrong(const StepCheck& check) {
    if (!check.wrong.empty()) {
        throw WrongSum(check.wrong);
    }
}

}  // namespace

DType wire_dtype(const Scenario& scenario, const Workload& workload) {
    std::array<std::int64_t, every<DType>.size()> bytes{};
    for (const Gradient& gradient : workload.gradients) {
        bytes[static_cast<std::size_t>(gradient.dtype)] += gradient.size().count;
    }
    const auto most = std::max_element(bytes.begin(), bytes.end());
    return wire_dtype(scenario.sync.comm_hook, static_cast<DType>(most - bytes.begin()));
}

std::optional<CollectiveKind> isolated_kind(Protocol protocol) {
    switch (protocol) {
        case Protocol::all_reduce:
            return CollectiveKind::all_reduce;
        case Protocol::all_gather:
            return CollectiveKind::all_gather;
        case Protocol::reduce_scatter:
            return CollectiveKind::reduce_scatter;
        default:
            return std::nullopt;
    }
}

// A sharded step has the dtypes of its largest group.
MessageDtypes message_dtypes(const Scenario& scenario, const StepInput& input) {
    if (!scenario.sharding) {
        const DType dtype =
            settings_for(scenario.sync, input)
                .framework.reduced_as.value_or(wire_dtype(scenario, input.workload));
        return {dtype, dtype};
    }
    const ShardPlan plan = make_shard_plan(input.workload, *scenario.sharding, input.group.ranks);
    const ShardGroup& largest =
        *std::ranges::max_element(plan.groups, {}, &ShardGroup::padded_numel);
    return {largest.gathered_dtype, largest.reduced_dtype};
}

Measurer::Measurer(const Scenario& scenario, const StepInput& input, Transport transport,
                   MakePlan make_plan, RankDevice& device, const RankSession& session)
    : scenario_(scenario),
      input_(input),
      transport_(std::move(transport)),
      make_plan_(make_plan),
      device_(device),
      session_(session),
      dtypes_(message_dtypes(scenario, input)) {}

std::vector<Measurement> Measurer::measure(const Item& item, std::int64_t round,
                                           std::uint64_t bits) {
    session_.control().barrier();
    switch (item.protocol) {
        case Protocol::all_reduce:
        case Protocol::all_gather:
        case Protocol::reduce_scatter:
            return measure_isolated(*isolated_kind(item.protocol), item, round);
        case Protocol::compute:
            return measure_compute(round, (bits & 1U) != 0);
        case Protocol::contention:
            return measure_contention(item, round);
        case Protocol::step:
            return measure_step(item, round, (bits & 1U) != 0);
    }
    return {};
}

std::vector<Measurement> Measurer::measure_isolated(CollectiveKind kind, const Item& item,
                                                    std::int64_t round) {
    const DType dtype = dtype_of(kind);
    const Message message{.size = item.message, .dtype = dtype, .kind = kind};
    const MessageTrace trace = device_.measure_as_in_steps(message, iterations_for(item.message));
    refuse_wrong({.wrong = trace.wrong});
    const std::vector<double> greatest = session_.greatest(
        std::array{trace.largest_difference, static_cast<double>(device_.peak_memory_bytes())});
    std::vector<double> samples = session_.slowest_us(trace.times);
    if (!session_.is_first()) {
        return {};
    }
    CollectiveRecord record{.kind = kind,
                            .transport = transport_,
                            .size = item.message,
                            .dtype = dtype,
                            .round = round,
                            .samples_us = std::move(samples),
                            .largest_difference = greatest[0],
                            .peak_memory_bytes = static_cast<std::int64_t>(greatest[1]),
                            .issue_us = microseconds(trace.issue)};
    if (trace.ranks > 0) {
        record.transport.ranks = trace.ranks;
    }
    return {std::move(record)};
}

// Sharded steps tell the time of copies from the copying step, unless the device times each one;
// zero3 copies within its collectives, too.
ComputeRecord Measurer::compute_on_this_rank(bool copies_first) {
    prepare({});
    ComputeRecord record;
    const auto run_copies = [&] {
        const StepTrace trace = run_free();
        record.copying_step_us = step_us(trace);
        if (scenario_.sharding) {
            const bool within = step_.request.strategy == ShardedStrategy::zero3;
            record.copies_us =
                copies_us(step_.program, trace) + (within ? within_collectives_us(trace) : 0);
        }
    };
    if (copies_first) {
        run_copies();
    }
    session_.control().barrier();
    const ReplayedStep computing = computing_of(step_);
    const StepTrace trace = device_.run(computing, next_step_++, Communicate::for_free);
    if (!copies_first) {
        run_copies();
    }
    add_computing(input_, computing.program, trace, device_.run_each(computing, next_step_++),
                  record);
    if (trace.graph_launch) {
        record.graph_launch_us = to_us(*trace.graph_launch);
    }
    if (const std::optional<StepTrace> each_copy = device_.run_each(step_, next_step_++)) {
        record.copies_us = copies_us(step_.program, *each_copy);
    }
    return record;
}

std::vector<Measurement> Measurer::measure_compute(std::int64_t round, bool copies_first) {
    const ComputeRecord own = compute_on_this_rank(copies_first);
    std::vector<double> values;
    write_or_read(own, [&](const double& value) { values.push_back(value); });
    std::vector<Measurement> records;
    for (const std::vector<double>& of_rank : session_.gather(values)) {
        ComputeRecord record = own;  // of the same shape on every rank
        record.backend = transport_.backend;
        record.shared_gpu = transport_.shared_gpu;
        record.ranks = transport_.ranks;
        record.rank = std::ssize(records);
        record.round = round;
        auto next = of_rank.begin();
        write_or_read(record, [&next](double& value) { value = *next++; });
        records.emplace_back(std::move(record));
    }
    return records;
}

// Enough collectives for a tenth of a second, and for several of the longest operations, so that
// some lie wholly within. Rank 0 decides, so that all agree.
std::int64_t Measurer::contention_iterations(const std::vector<Duration>& collectives,
                                             const std::vector<Duration>& operations) {
    const auto longest = std::max_element(operations.begin(), operations.end());
    const double longest_us = longest == operations.end() ? 0.0 : to_us(*longest);
    const Duration sum = std::accumulate(collectives.begin(), collectives.end(), Duration{0});
    const double mean_us = to_us(sum) / static_cast<double>(collectives.size());
    const double wanted = std::max(1e5, 4 * longest_us) / std::max(mean_us, 1.0);
    auto iterations = static_cast<std::int64_t>(std::clamp(std::ceil(wanted), 2.0, 10'000.0));
    session_.control().broadcast_from_first({&iterations, 1});
    return iterations;
}

std::vector<Measurement> Measurer::measure_contention(const Item& item, std::int64_t round) {
    const DType dtype = dtype_of(item.collective);
    const Message message{item.message, dtype, item.ctas, item.collective};
    const MessageTrace alone = device_.measure(message, iterations_for(item.message));
    refuse_wrong({.wrong = alone.wrong});
    const std::vector<Duration> operations = device_.backward_alone();
    const ContentionTrace both =
        device_.contend(message, contention_iterations(alone.times, operations), operations);
    std::vector<double> alone_us = session_.slowest_us(alone.times);
    std::vector<double> disturbed_us = session_.slowest_us(both.times);
    const Disturbance products = both.products.value_or(Disturbance{});
    const std::array own{to_us(both.compute.alone), to_us(both.compute.disturbed),
                         to_us(products.alone), to_us(products.disturbed)};
    const std::vector<std::vector<double>> compute = session_.gather(own);
    if (!session_.is_first()) {
        return {};
    }
    ContentionRecord record;
    record.transport = transport_;
    if (item.ctas) {
        record.transport.ctas = item.ctas;
    }
    record.collective = item.collective;
    record.size = item.message;
    record.dtype = dtype;
    record.round = round;
    record.allreduce_alone_us = std::move(alone_us);
    record.allreduce_disturbed_us = std::move(disturbed_us);
    for (const std::vector<double>& of_rank : compute) {
        record.compute_alone_us.push_back(of_rank[0]);
        record.compute_disturbed_us.push_back(of_rank[1]);
        if (both.products) {
            record.products_alone_us.push_back(of_rank[2]);
            record.products_disturbed_us.push_back(of_rank[3]);
        }
    }
    return {std::move(record)};
}

StepTrace Measurer::run_free() {
    session_.control().barrier();
    return device_.run(step_, next_step_++, Communicate::for_free);
}

double Measurer::step_us(const StepTrace& trace) const {
    return to_us(summarize(step_.program, trace).step());
}

// Both runs of one sample, in either order.
std::vector<Measurement> Measurer::measure_step(const Item& item, std::int64_t round,
                                                bool free_first) {
    prepare(item);
    const bool warms_up = round < 0;
    if (warms_up) {
        refuse_wrong(device_.run_checked(step_, next_step_++));
    }
    double free_us = free_first ? step_us(run_free()) : 0;
    session_.control().barrier();
    const StepTrace trace = device_.run(step_, next_step_++, Communicate::yes);
    // A step that communicates nothing leaves no means.
    const bool communicates = scenario_.sharding || step_.sync.communicates;
    const StepCheck checked = device_.check();
    const StepCheck found = communicates ? checked : StepCheck{};
    refuse_wrong(found);
    const std::int64_t peak_memory_bytes = device_.peak_memory_bytes();
    if (!free_first) {
        free_us = step_us(run_free());
    }
    const std::vector<double> values = values_of(summarize(step_.program, trace), peak_memory_bytes,
                                                 free_us, found.largest_difference);
    const std::vector<std::vector<double>> by_rank = session_.gather(values);
    const std::vector<double> greatest = session_.greatest(values);
    const std::vector<double> last_begins =
        session_.greatest(microseconds(transformed(trace.collectives, &Interval::begin)));
    if (!session_.is_first()) {
        return {};
    }
    StepRecord record;
    record.transport = transport_;
    record.round = round;
    describe(item, record);
    record.by_rank = transformed(by_rank, rank_step_of);
    record.samples_us = {greatest.front()};
    record.free_communication_us = {greatest[rank_step_values]};
    record.exposed_communication_us = greatest.front() - greatest[rank_step_values];
    record.largest_difference = greatest[rank_step_values + 1];
    record.collective_begin_us = microseconds(transformed(trace.collectives, &Interval::begin));
    record.collective_end_us = microseconds(transformed(trace.collectives, &Interval::end));
    record.collective_last_begin_us = last_begins;
    return {std::move(record)};
}

void Measurer::prepare(const Item& item) {
    step_ = scenario_.sharding ? sharded_replay(sharded_replay_input(
                                     scenario_, item.sharding.value_or(*scenario_.sharding),
                                     transport_.computes_on_host()))
                               : replayed_step(scenario_, input_, item.cap, make_plan_);
}

void Measurer::describe(const Item& item, StepRecord& record) const {
    if (scenario_.sharding) {
        record.strategy = name_of(step_.request.strategy);
        record.sharding = step_.request;
        return;
    }
    record.strategy = name_of(scenario_.sync.strategy);
    if (has_cap(scenario_.sync)) {
        record.cap = item.cap.named().value_or(step_.sync.policy.cap_bytes_of_limit *
                                               step_.sync.policy.limits.cap);
        record.is_default = item.cap.is_default();
    }
    for (const Collective& collective : step_.program.collectives) {
        if (const auto bucket = collective.bucket()) {
            record.bucket_bytes.push_back(
                step_.plan.buckets[static_cast<std::size_t>(*bucket)].size);
        }
    }
}

}  // namespace bucketwise
