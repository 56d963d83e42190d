#include "hw/cpu/cpu_sharded_rank.h"

#include <cstring>

#include "sim/base/invariant.h"

namespace bucketwise {

CpuShardedRank::CpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                               const ShardCommunicators<Communicator>& communicators)
    : OnCpu(communicators.all, scenario, of_scenario,
            shard_place(scenario, communicators.all.rank())),
      communicators_(communicators),
      kernels_(kernel_plan(), workload().gradients, gradients_, Duration{0}),
      optimizer_(no_operations_, own_gradients(), own_, scenario.step.optimizer) {}

void CpuShardedRank::write_shard(const KnownParameter& known, std::int64_t first,
                                 std::int64_t count) {
    write_known_parameter(shards_.at(known.parameter), known, first, count);
}

void CpuShardedRank::calibrate() {
    kernels_.calibrate();
    optimizer_.calibrate();
}

void CpuShardedRank::set_out() {
    tickets_.clear();
    set_out_together(communicates());
}

StepTrace CpuShardedRank::run(const ReplayedStep& step, std::int64_t number,
                              Communicate communicate) {
    begin_step(step, number, communicate);
    set_out();
    return traced_step(step.calls.size(), tickets_, [&](std::size_t i) { execute(step.calls[i]); });
}

void CpuShardedRank::settle() {
    for (const CommunicationThread::Ticket ticket : tickets_) {
        thread().wait(ticket);
    }
}

// PyTorch's reduce-scatter writes to a tensor of its own.
void CpuShardedRank::launch(const ShardedCall& call) {
    invariant(call.subject == std::ssize(tickets_), "collectives are launched in their order");
    tickets_.push_back(thread().launch([this, call] {
        before_collective(call, Lane::moving);
        if (communicates()) {
            carry(communicators_.of(sharers_of(call)), exchange_of(call));
        }
        after_collective(call, Lane::placing);
    }));
}

void CpuShardedRank::clear(std::byte* data, std::int64_t bytes) {
    std::memset(data, 0, static_cast<std::size_t>(bytes));
}

// Means are divided in the copy into a reduce-scatter, as Gloo's sums are not divided.
void CpuShardedRank::pack(ShardCopy copy, std::int32_t move, DType to, DType from, double factor,
                          Lane /*lane*/) {
    pack_all(places_of(copy, move), direction_of(copy), to, from, factor);
}

void CpuShardedRank::copy(std::byte* to, const std::byte* from, DType dtype, std::int64_t numel,
                          Lane /*lane*/) {
    copy_scaled(to, from, numel, dtype, 1.0);
}

void CpuShardedRank::add(std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype,
                         std::int64_t numel, Lane /*lane*/) {
    add_cast(to, to_dtype, from, from_dtype, numel);
}

// Behind some operations of backward, the next ones each time, so that ranks are as far apart as
// they are in steps.
MessageTrace CpuShardedRank::measure_as_in_steps(const Message& message, std::int64_t iterations) {
    constexpr std::chrono::milliseconds long_enough{1};
    std::size_t next = 0;
    const auto computing = [&] {
        const Clock::time_point begin = Clock::now();
        do {
            run_backward(next);
            next = (next + 1) % operations();
        } while (Clock::now() - begin < long_enough);
    };
    return messages().measure_between(computing, message, iterations,
                                      communicators_.of_kind(message.kind));
}

}  // namespace bucketwise
