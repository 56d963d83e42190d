#include "hw/cpu/cpu_sharded_rank.h"

#include <algorithm>
#include <cstring>

#include "hw/compute/elements.h"
#include "hw/cpu/beside_communication.h"
#include "hw/rank/backward_alone.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// Gradients by themselves, none a view.
SyncSettings without_buckets() {
    SyncRequest none;
    none.strategy = Strategy::none;
    return settings_of_replay(none);
}

std::byte* element(std::byte* data, std::int64_t index, DType dtype) {
    return data + index * element_size(dtype).count;
}

}  // namespace

CpuShardedRank::CpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                               const ShardCommunicators<Communicator>& communicators)
    : ShardedReplayRank(scenario, of_scenario, shard_place(scenario, communicators.all.rank())),
      communicators_(communicators),
      gradients_(workload().gradients, without_buckets()),
      kernels_(kernel_plan(), workload().gradients, gradients_, Duration{0}),
      own_(own_gradients(), without_buckets()),
      optimizer_(no_operations_, own_gradients(), own_, scenario.step.optimizer),
      messages_(communicators.all) {
    std::vector<Bytes> shards;
    std::vector<Bytes> whole;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(workload().gradients.size()); ++i) {
        shards.push_back(shard_size(i));
        whole.push_back(gathered_size(i));
    }
    shards_.arrange(shards);
    unsharded_.arrange(whole);
}

void CpuShardedRank::lay_out() {
    const auto sizes = [&](DType ShardMove::*dtype, std::int64_t ranks) {
        return transformed(moves(), [&](const ShardMove& move) {
            return ranks * move.layout.part * element_size(move.*dtype);
        });
    };
    const auto placing = moves_one_by_one() ? BlockPlacing::together : BlockPlacing::apart;
    gathered_.arrange(sizes(&ShardMove::gathered_dtype, place().ranks), placing);
    reduced_.arrange(sizes(&ShardMove::reduced_dtype, place().ranks), placing);
    kept_.arrange(sizes(&ShardMove::reduced_dtype, place().replicas > 1 ? 1 : 0));
}

void CpuShardedRank::write_shard(const KnownParameter& known, std::int64_t first,
                                 std::int64_t count) {
    write_known_parameter(shards_.at(known.parameter), known, first, count);
}

// --- a step ---

void CpuShardedRank::calibrate() {
    kernels_.calibrate();
    optimizer_.calibrate();
}

void CpuShardedRank::set_out() {
    tickets_.clear();
    thread_.restart();
    if (communicate() == Communicate::yes) {
        thread_.wait(thread_.launch([this] { messages_.meet(); }));  // all set out together
    }
}

StepTrace CpuShardedRank::run(const ShardedReplay& replay, std::int64_t number,
                              Communicate communicate) {
    begin_step(replay, number, communicate);
    set_out();
    return traced_step(replay.calls.size(), thread_, tickets_,
                       [&](std::size_t i) { execute(replay.calls[i]); });
}

void CpuShardedRank::execute(const ShardedCall& call) {
    switch (call.act) {
        case ShardedAct::forward:
            return kernels_.forward(call.subject);
        case ShardedAct::backward:
            return kernels_.backward(call.subject, backward_value(call.micro_step),
                                     accumulates(call.micro_step));
        case ShardedAct::gather_in:
            return gather_in(call);
        case ShardedAct::gather_out:
            return gather_out(call);
        case ShardedAct::reduce_in:
            return reduce_in(call);
        case ShardedAct::place:
            return place_reduced(call);
        case ShardedAct::gather:
        case ShardedAct::reduce:
        case ShardedAct::all_reduce:
            return launch(call);
        case ShardedAct::wait:
            return thread_.wait(tickets_[static_cast<std::size_t>(call.subject)]);
        case ShardedAct::optimizer:
            return optimizer_.optimizer();
    }
}

void CpuShardedRank::settle() {
    for (const CommunicationThread::Ticket ticket : tickets_) {
        thread_.wait(ticket);
    }
}

// Among fewer ranks each has a larger part, of what forward has gathered.
void CpuShardedRank::gather_in(const ShardedCall& call) {
    const ShardMove& moved = move(call);
    const Gathering among = gathering(call);
    const DType dtype = moved.gathered_dtype;
    for (const ShardedParameter& of : among.layout.parameters) {
        std::byte* to = element(gathered_.at(call.move), among.layout.place(of, among.rank), dtype);
        if (among.among_fewer) {
            copy_scaled(to, element(unsharded_.at(of.parameter), of.first_of(among.rank), dtype),
                        of.part, dtype, 1.0);
        } else {
            cast_scaled(to, dtype, shards_.at(of.parameter), moved.dtype, of.part, 1.0);
        }
    }
}

void CpuShardedRank::gather_out(const ShardedCall& call) {
    const Gathering among = gathering(call);
    const DType dtype = move(call).gathered_dtype;
    for (const ShardedParameter& of : among.layout.parameters) {
        for (std::int64_t rank = 0; rank < among.ranks; ++rank) {
            copy_scaled(element(unsharded_.at(of.parameter), of.first_of(rank), dtype),
                        element(gathered_.at(call.move), among.layout.place(of, rank), dtype),
                        of.part, dtype, 1.0);
        }
    }
}

// Divided where they are cast, which Gloo's sums leave to others. What is padded is zero.
void CpuShardedRank::reduce_in(const ShardedCall& call) {
    const DType dtype = move(call).reduced_dtype;
    const ShardedLayout& layout = move(call).layout;
    for (std::int64_t rank = 0; rank < place().ranks; ++rank) {
        for (const ShardedParameter& of : layout.parameters) {
            std::byte* to = element(reduced_.at(call.move), layout.place(of, rank), dtype);
            const std::int64_t numel = of.numel_of(rank);
            if (numel > 0) {
                const DType from =
                    workload().gradients[static_cast<std::size_t>(of.parameter)].dtype;
                cast_scaled(to, dtype,
                            element(gradients_.gradient(of.parameter), of.first_of(rank), from),
                            from, numel, mean_factor());
            }
            std::memset(element(to, numel, dtype), 0,
                        static_cast<std::size_t>(((of.part - numel) * element_size(dtype)).count));
        }
    }
}

std::byte* CpuShardedRank::own_reduced(const ShardedCall& call) {
    return element(reduced_.at(call.move), place().rank * move(call).layout.part,
                   move(call).reduced_dtype);
}

void CpuShardedRank::place_reduced(const ShardedCall& call) {
    const ShardMove& moved = move(call);
    if (call.placing == Placing::keeps) {
        if (call.micro_step == 0) {
            copy_scaled(kept_.at(call.move), own_reduced(call), moved.layout.part,
                        moved.reduced_dtype, 1.0);
        } else {
            add_cast(kept_.at(call.move), moved.reduced_dtype, own_reduced(call),
                     moved.reduced_dtype, moved.layout.part);
        }
        return;
    }
    for (const ShardedParameter& of : moved.layout.parameters) {
        const std::byte* from = element(own_reduced(call), of.offset, moved.reduced_dtype);
        std::byte* to = own_.gradient(of.parameter);
        const std::int64_t numel = of.numel_of(place().rank);
        if (call.placing == Placing::adds) {
            add_cast(to, moved.dtype, from, moved.reduced_dtype, numel);
        } else {
            cast_scaled(to, moved.dtype, from, moved.reduced_dtype, numel, 1.0);
        }
    }
}

// --- collectives ---

void CpuShardedRank::launch(const ShardedCall& call) {
    invariant(call.subject == std::ssize(tickets_), "collectives are launched in their order");
    tickets_.push_back(thread_.launch([this, call] {
        if (communicate() == Communicate::for_free) {
            return;
        }
        switch (call.act) {
            case ShardedAct::gather:
                return gather(call);
            case ShardedAct::reduce:
                return reduce(call);
            default:
                return all_reduce(call);
        }
    }));
}

void CpuShardedRank::gather(const ShardedCall& call) {
    if (call.copies_in) {
        gather_in(call);
    }
    const Gathering among = gathering(call);
    Communicator& communicator =
        among.among_fewer ? communicators_.gathering : communicators_.sharing;
    const Bytes part = among.layout.part * element_size(move(call).gathered_dtype);
    std::byte* all = gathered_.at(call.move);
    communicator.all_gather(all + among.rank * part.count, all, part);
    if (call.copies_out) {
        gather_out(call);
    }
}

// PyTorch's writes what it reduced to a tensor of its own.
void CpuShardedRank::reduce(const ShardedCall& call) {
    if (call.copies_in) {
        reduce_in(call);
    }
    communicators_.sharing.reduce_scatter_sum(reduced_.at(call.move), move(call).layout.part,
                                              move(call).reduced_dtype);
    if (call.placing != Placing::none) {
        place_reduced(call);
    }
}

void CpuShardedRank::all_reduce(const ShardedCall& call) {
    const ShardMove& moved = move(call);
    std::byte* own = own_reduced(call);
    if (call.takes_kept) {
        add_cast(own, moved.reduced_dtype, kept_.at(call.move), moved.reduced_dtype,
                 moved.layout.part);
    }
    communicators_.replicas.all_reduce_sum(own, moved.layout.part, moved.reduced_dtype);
    if (call.placing != Placing::none) {
        place_reduced(call);
    }
}

// --- beside each other ---

std::vector<Duration> CpuShardedRank::backward_alone() {
    const auto once = [this] {
        return times_of_backward(workload().backward.size(),
                                 [this](std::int32_t operation) { run_backward(operation); });
    };
    return times_alone(
        workload().backward.size(), [&] { once(); }, once);
}

ContentionTrace CpuShardedRank::contend(const Message& message, std::int64_t iterations,
                                        const std::vector<Duration>& alone) {
    return contend_with(messages_, message, iterations, alone,
                        [this](std::int32_t operation) { run_backward(operation); });
}

}  // namespace bucketwise
