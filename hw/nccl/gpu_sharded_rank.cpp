#include "hw/nccl/gpu_sharded_rank.h"

#include <array>

#include "hw/compute/elements.h"
#include "hw/rank/backward_alone.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

ShardCommunicators<NcclCommunicator> communicators_of(const ShardPlace& place,
                                                      Communicators& communicators) {
    NcclCommunicator& all = communicators.of_steps();
    NcclCommunicator& sharing = communicators.among(place.sharing());
    NcclCommunicator& gathering =
        place.gathers_among_fewer() ? communicators.among(place.gathering()) : sharing;
    NcclCommunicator& replicas =
        place.replicas > 1 ? communicators.among(place.replicating()) : all;
    return {all, sharing, gathering, replicas};
}

}  // namespace

GpuShardedRank::GpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                               Communicators& communicators)
    : ShardedReplayRank(scenario, of_scenario,
                        shard_place(scenario, communicators.of_steps().rank())),
      lead_in_(steps_leading_in(scenario)),
      communicators_(communicators),
      with_(communicators_of(place(), communicators)),
      messages_(communicators),
      between_replicas_(StreamPriority::high),
      gradients_(workload().gradients, without_buckets()),
      kernels_(kernel_plan(), workload().gradients, gradients_, Duration{0},
               arithmetic_of(scenario), compute_),
      own_(own_gradients(), without_buckets()),
      no_operations_{{}, {}, kernel_plan().columns},
      optimizer_(no_operations_, own_gradients(), own_, scenario.step.optimizer,
                 Arithmetic::float32, compute_) {
    arrange_parameters(blocks_);
    kernels_.arrange();
    optimizer_.arrange();
}

// Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
GpuShardedRank::~GpuShardedRank() {
    stamps_.release();
    bool are_well = true;
    for (const GpuStream* stream : std::array<const GpuStream*, 5>{
             &compute_, &filling_, &messages_.stream(), &between_replicas_, &placing_}) {
        are_well = ends_well(*stream) && are_well;
    }
    if (!are_well) {
        communicators_.abort();
    }
}

void GpuShardedRank::lay_out() {
    arrange_moves(blocks_);
    compute_.fill(blocks_.reduced.at(0), 0,
                  blocks_.reduced.size_bytes());  // what is padded stays so
    chunks_.clear();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(moves().size()); ++i) {
        chunks_.push_back(chunks_of_move(i));
    }
}

GpuShardedRank::MoveChunks GpuShardedRank::chunks_of_move(std::int32_t index) {
    const ShardMove& moved = moves()[static_cast<std::size_t>(index)];
    const auto slot = [&](const ShardedLayout& layout, const ShardedParameter& of,
                          std::int64_t rank) {
        return element(blocks_.gathered.at(index), layout.place(of, rank), moved.gathered_dtype);
    };
    const auto whole = [&](const ShardedParameter& of, std::int64_t rank) {
        return element(blocks_.unsharded.at(of.parameter), of.first_of(rank), moved.gathered_dtype);
    };
    std::vector<TensorPlace> in;
    std::vector<TensorPlace> out;
    std::vector<TensorPlace> reduced;
    std::vector<TensorPlace> placed;
    for (const ShardedParameter& of : moved.layout.parameters) {
        in.push_back({.tensor = blocks_.shards.at(of.parameter),
                      .place = slot(moved.layout, of, place().rank),
                      .numel = of.part});
        for (std::int64_t rank = 0; rank < place().ranks; ++rank) {
            const DType dtype = workload().gradients[static_cast<std::size_t>(of.parameter)].dtype;
            out.push_back({.tensor = whole(of, rank),
                           .place = slot(moved.layout, of, rank),
                           .numel = of.part});
            reduced.push_back(
                {.tensor = element(gradients_.gradient(of.parameter), of.first_of(rank), dtype),
                 .place = element(blocks_.reduced.at(index), moved.layout.place(of, rank),
                                  moved.reduced_dtype),
                 .numel = of.numel_of(rank)});
        }
        placed.push_back({.tensor = own_.gradient(of.parameter),
                          .place = element(own_reduced(index), of.offset, moved.reduced_dtype),
                          .numel = of.numel_of(place().rank)});
    }
    std::vector<TensorPlace> fewer_in;
    std::vector<TensorPlace> fewer_out;
    for (const ShardedParameter& of : moved.fewer.parameters) {
        const std::int64_t own = place().rank % place().fewer;
        fewer_in.push_back(
            {.tensor = whole(of, own), .place = slot(moved.fewer, of, own), .numel = of.part});
        for (std::int64_t rank = 0; rank < place().fewer; ++rank) {
            fewer_out.push_back({.tensor = whole(of, rank),
                                 .place = slot(moved.fewer, of, rank),
                                 .numel = of.part});
        }
    }
    return {.gather_in = ChunkTable(in),
            .gather_out = ChunkTable(out),
            .fewer_in = ChunkTable(fewer_in),
            .fewer_out = ChunkTable(fewer_out),
            .reduce_in = ChunkTable(reduced),
            .place = ChunkTable(placed)};
}

std::int64_t GpuShardedRank::peak_memory_bytes() const {
    std::int64_t bytes = kernels_.memory_bytes() + optimizer_.memory_bytes() +
                         messages_.peak_memory_bytes() + blocks_.size_bytes();
    for (const GpuGradientBuffers* buffers : {&gradients_, &own_}) {
        for (const DeviceMemory* memory : buffers->blocks()) {
            bytes += memory->size_bytes();
        }
    }
    return bytes;
}

void GpuShardedRank::write_shard(const KnownParameter& known, std::int64_t first,
                                 std::int64_t count) {
    const std::int64_t bytes = count * element_size(known.dtype).count;
    host_.resize(static_cast<std::size_t>(bytes));
    write_known_parameter(host_.data(), known, first, count);
    if (bytes > 0) {
        copy_to_device(blocks_.shards.at(known.parameter), host_.data(), bytes);
    }
}

const void* GpuShardedRank::downloaded(const std::byte* from, Bytes size) {
    PatientWait(communicator()).until([&] { return compute_.is_idle(); }, "what was computed");
    host_.resize(static_cast<std::size_t>(size.count));
    if (size > Bytes{0}) {
        copy_to_host(host_.data(), from, size.count);
    }
    return host_.data();
}

const void* GpuShardedRank::gathered_values(std::int32_t parameter) {
    return downloaded(blocks_.unsharded.at(parameter), gathered_size(parameter));
}

const void* GpuShardedRank::own_gradient_values(std::int32_t parameter) {
    const Gradient& own = own_gradients()[static_cast<std::size_t>(parameter)];
    return downloaded(own_.gradient(parameter), own.size());
}

// --- a step ---

void GpuShardedRank::calibrate() {
    kernels_.calibrate();
    optimizer_.calibrate();
    stamps_.calibrate();
}

void GpuShardedRank::set_out() {
    if (communicate() == Communicate::yes) {
        messages_.meet();
    }
    at_ = 0;
    last_in_place_.reset();
    begun_.record(compute_);
}

void GpuShardedRank::prepare(const ShardedReplay& replay) {
    replay_ = &replay;
    const std::vector<Instruction>& all = replay.program.instructions;
    is_followed_.assign(all.size(), false);
    for (const Instruction& instruction : all) {
        if (instruction.launched_after >= 0) {
            is_followed_[static_cast<std::size_t>(instruction.launched_after)] = true;
        }
    }
    while (followed_.size() < all.size()) {
        followed_.emplace_back(Timing::off);
    }
    stamps_.reserve(replay.program);
}

StepTrace GpuShardedRank::run(const ShardedReplay& replay, std::int64_t number,
                              Communicate communicate) {
    begin_step(replay, number, communicate);
    StepTrace trace;
    set_out();  // all at once
    for (int ahead = lead_in_; ahead > 0; --ahead) {
        begin_step_again(number + ahead);  // whose gradients are not the timed one's
        issue();
    }
    begin_step_again(number);
    stamps_.start().record(compute_);
    trace.host = issue();
    stamps_.end().record(compute_);
    stamps_.finish(replay.program, communicator(), static_cast<std::size_t>(lead_in_),
                   [this] { return is_idle(); });
    stamps_.read(replay.program, trace);
    return trace;
}

std::vector<Interval> GpuShardedRank::issue() {
    begun_.record(compute_);
    return stamps_.issue(replay_->program, [this](std::size_t i) { execute_at(i); });
}

void GpuShardedRank::execute_at(std::size_t instruction) {
    at_ = instruction;
    execute(replay_->calls[instruction]);
}

void GpuShardedRank::execute(const ShardedCall& call) {
    switch (call.act) {
        case ShardedAct::forward:
            kernels_.forward(call.subject);
            break;
        case ShardedAct::backward:
            kernels_.backward(call.subject, backward_value(call.micro_step),
                              accumulates(call.micro_step));
            break;
        case ShardedAct::gather_in:
            gather_in(call, compute_);
            break;
        case ShardedAct::gather_out:
            gather_out(call, compute_);
            break;
        case ShardedAct::reduce_in:
            reduce_in(call, compute_);
            break;
        case ShardedAct::place:
            place_reduced(call, compute_);
            break;
        case ShardedAct::gather:
        case ShardedAct::reduce:
        case ShardedAct::all_reduce:
            launch(call);
            break;
        case ShardedAct::wait:
            stamps_.of_collective(call.subject).done.hold_up(compute_);
            break;
        case ShardedAct::optimizer:
            optimizer_.optimizer();
            break;
    }
    if (is_followed_[at_]) {
        followed_[at_].record(compute_);
    }
    ++at_;
}

void GpuShardedRank::settle() {
    PatientWait(communicator(), replay_->program.collectives.size() + 1)
        .until([this] { return is_idle(); }, "a step");
}

bool GpuShardedRank::is_idle() const {
    return compute_.is_idle() && filling_.is_idle() && messages_.stream().is_idle() &&
           between_replicas_.is_idle() && placing_.is_idle();
}

// --- copies ---

void GpuShardedRank::gather_in(const ShardedCall& call, const GpuStream& stream) {
    const ShardMove& moved = move(call);
    const bool fewer = gathering(call).among_fewer;
    const ChunkTable& table = fewer ? chunks(call).fewer_in : chunks(call).gather_in;
    launch_pack(stream.get(), PackDirection::into_place, table.data(), table.count(),
                moved.gathered_dtype, fewer ? moved.gathered_dtype : moved.dtype, 1.0);
}

void GpuShardedRank::gather_out(const ShardedCall& call, const GpuStream& stream) {
    const DType dtype = move(call).gathered_dtype;
    const ChunkTable& table =
        gathering(call).among_fewer ? chunks(call).fewer_out : chunks(call).gather_out;
    launch_pack(stream.get(), PackDirection::out_of_place, table.data(), table.count(), dtype,
                dtype, 1.0);
}

void GpuShardedRank::reduce_in(const ShardedCall& call, const GpuStream& stream) {
    const ShardMove& moved = move(call);
    const auto first = static_cast<std::size_t>(moved.layout.parameters.front().parameter);
    const ChunkTable& table = chunks(call).reduce_in;
    launch_pack(stream.get(), PackDirection::into_place, table.data(), table.count(),
                moved.reduced_dtype, workload().gradients[first].dtype, mean_factor());
}

std::byte* GpuShardedRank::own_reduced(std::int32_t index) const {
    const ShardMove& moved = moves()[static_cast<std::size_t>(index)];
    return element(blocks_.reduced.at(index), place().rank * moved.layout.part,
                   moved.reduced_dtype);
}

// PyTorch adds parameter by parameter, too.
void GpuShardedRank::place_reduced(const ShardedCall& call, const GpuStream& stream) {
    const ShardMove& moved = move(call);
    const ShardedLayout& layout = moved.layout;
    std::byte* own = own_reduced(call.move);
    if (call.placing == Placing::keeps && call.micro_step == 0) {
        launch_copy(stream.get(), blocks_.kept.at(call.move), moved.reduced_dtype, own,
                    moved.reduced_dtype, layout.part, 1.0);
    } else if (call.placing == Placing::keeps) {
        launch_add(stream.get(), blocks_.kept.at(call.move), moved.reduced_dtype, own,
                   moved.reduced_dtype, layout.part);
    } else if (call.placing == Placing::adds) {
        for (const ShardedParameter& of : layout.parameters) {
            launch_add(stream.get(), own_.gradient(of.parameter), moved.dtype,
                       element(own, of.offset, moved.reduced_dtype), moved.reduced_dtype,
                       of.numel_of(place().rank));
        }
    } else {
        const ChunkTable& table = chunks(call).place;
        launch_pack(stream.get(), PackDirection::out_of_place, table.data(), table.count(),
                    moved.dtype, moved.reduced_dtype, 1.0);
    }
}

// --- collectives ---

void GpuShardedRank::launch(const ShardedCall& call) {
    const StepStamps::CollectiveEvents& events = stamps_.of_collective(call.subject);
    // What lies where all moves do is there until the one before has been put in place.
    if (moves_one_by_one() && last_in_place_) {
        const GpuEvent& before = stamps_.of_collective(*last_in_place_).done;
        before.hold_up(filling_);
        before.hold_up(messages_.stream());
    }
    switch (call.act) {
        case ShardedAct::gather:
            gather(call, events);
            break;
        case ShardedAct::reduce:
            reduce(call, events);
            break;
        default:
            all_reduce(call, events);
            break;
    }
    last_in_place_ = call.subject;
}

void GpuShardedRank::follow(const Instruction& launch, const GpuStream& stream) {
    if (launch.launched_after >= 0) {
        followed_[static_cast<std::size_t>(launch.launched_after)].hold_up(stream);
    } else if (launch.launched_after == before_all) {
        begun_.hold_up(stream);
    } else {
        followed_[at_].record(compute_);
        followed_[at_].hold_up(stream);
    }
}

void GpuShardedRank::gather(const ShardedCall& call, const StepStamps::CollectiveEvents& events) {
    const GpuStream& stream = messages_.stream();
    follow(replay_->program.instructions[at_], filling_);
    if (call.copies_in) {
        gather_in(call, filling_);
    }
    events.launched.record(filling_);
    events.launched.hold_up(stream);
    const Gathering among = gathering(call);
    NcclCommunicator& with = among.among_fewer ? with_.gathering : with_.sharing;
    const Bytes part = among.layout.part * element_size(move(call).gathered_dtype);
    std::byte* all = blocks_.gathered.at(call.move);
    put(events, stream, [&] { with.all_gather(all + among.rank * part.count, all, part, stream); });
    end(call, events, stream);
}

void GpuShardedRank::reduce(const ShardedCall& call, const StepStamps::CollectiveEvents& events) {
    const GpuStream& stream = messages_.stream();
    events.launched.record(compute_);
    events.launched.hold_up(stream);
    if (call.copies_in) {
        reduce_in(call, stream);
    }
    put(events, stream, [&] {
        with_.sharing.reduce_scatter_sum(blocks_.reduced.at(call.move), move(call).layout.part,
                                         move(call).reduced_dtype, stream);
    });
    end(call, events, stream);
}

void GpuShardedRank::all_reduce(const ShardedCall& call,
                                const StepStamps::CollectiveEvents& events) {
    const ShardMove& moved = move(call);
    const Collective& collective =
        replay_->program.collectives[static_cast<std::size_t>(call.subject)];
    const GpuStream& stream = between_replicas_;
    events.launched.record(compute_);
    events.launched.hold_up(stream);
    if (collective.follows) {
        stamps_.of_collective(*collective.follows).done.hold_up(stream);
    }
    std::byte* own = own_reduced(call.move);
    if (call.takes_kept) {
        launch_add(stream.get(), own, moved.reduced_dtype, blocks_.kept.at(call.move),
                   moved.reduced_dtype, moved.layout.part);
    }
    put(events, stream, [&] {
        with_.replicas.all_reduce(own, moved.layout.part, moved.reduced_dtype, Reduction::sum,
                                  stream);
    });
    end(call, events, stream);
}

void GpuShardedRank::put(const StepStamps::CollectiveEvents& events, const GpuStream& stream,
                         const std::function<void()>& collective) {
    stamps_.stamp(events.begin, stream, false);
    if (communicate() == Communicate::yes) {
        collective();
    }
    stamps_.stamp(events.end, stream, false);
}

void GpuShardedRank::end(const ShardedCall& call, const StepStamps::CollectiveEvents& events,
                         const GpuStream& stream) {
    if (!call.copies_out && call.placing == Placing::none) {
        events.done.record(stream);
        return;
    }
    events.end.hold_up(placing_);
    if (call.copies_out) {
        gather_out(call, placing_);
    } else {
        place_reduced(call, placing_);
    }
    events.done.record(placing_);
}

// --- each instruction by itself, and backward beside collectives ---

std::optional<StepTrace> GpuShardedRank::run_each(const ShardedReplay& replay,
                                                  std::int64_t number) {
    begin_step(replay, number, Communicate::for_free);
    compute_.wait();
    return stamps_.run_each(
        replay.program, [this](std::size_t i) { execute_at(i); }, kernel_plan(), communicator());
}

std::vector<Duration> GpuShardedRank::backward_alone() {
    const Program program = program_of_backward(workload().backward.size());
    stamps_.reserve(program);
    const auto time = [&] {
        const StepTrace trace = stamps_.run_each(
            program, [this](std::size_t i) { backward_.launch(i); }, kernel_plan(), communicator());
        return transformed(trace.instructions, [](const Interval& of) { return of.length(); });
    };
    return times_alone(
        program.instructions.size(), [this] { backward_.warm_up(); }, time);
}

ContentionTrace GpuShardedRank::contend(const Message& message, std::int64_t iterations,
                                        const std::vector<Duration>& alone) {
    return backward_.contend(messages_, message, iterations, alone, stamps_.stamp_time());
}

}  // namespace bucketwise
