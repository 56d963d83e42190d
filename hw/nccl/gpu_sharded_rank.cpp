#include "hw/nccl/gpu_sharded_rank.h"

namespace bucketwise {

GpuShardedRank::GpuShardedRank(const Scenario& scenario, const Workload& of_scenario,
                               Communicators& communicators)
    : OnGpu(scenario, communicators, of_scenario,
            shard_place(scenario, communicators.of_steps().rank())),
      with_(ShardCommunicators<NcclCommunicator>::made(
          place(), communicator(),
          [&](const std::vector<std::int64_t>& ranks) -> NcclCommunicator& {
              return communicators.among(ranks);
          })),
      kernels_(kernel_plan(), workload().gradients, gradients_, Duration{0},
               arithmetic_of(scenario), compute_),
      no_operations_{{}, {}, kernel_plan().columns},
      optimizer_(no_operations_, own_gradients(), own_, scenario.step.optimizer,
                 Arithmetic::float32, compute_) {
    kernels_.arrange();
    optimizer_.arrange();
}

void GpuShardedRank::copies_changed() {
    chunks_.clear();
    for (std::int32_t move = 0; move < std::ssize(moves()); ++move) {
        std::array<ChunkTable, shard_copies>& of_move = chunks_.emplace_back();
        for (std::size_t copy = 0; copy < shard_copies; ++copy) {
            of_move[copy] = ChunkTable(places_of(static_cast<ShardCopy>(copy), move));
        }
    }
}

void GpuShardedRank::write_shard(const KnownParameter& known, std::int64_t first,
                                 std::int64_t count) {
    const std::int64_t bytes = count * element_size(known.dtype).count;
    host_.resize(static_cast<std::size_t>(bytes));
    write_known_parameter(host_.data(), known, first, count);
    copy_to_device(shards_.at(known.parameter), host_.data(), bytes);
}

const void* GpuShardedRank::downloaded(const std::byte* from, Bytes size) {
    PatientWait(communicator()).until([&] { return compute_.is_idle(); }, "what was computed");
    host_.resize(static_cast<std::size_t>(size.count));
    copy_to_host(host_.data(), from, size.count);
    return host_.data();
}

const void* GpuShardedRank::gathered_values(std::int32_t parameter) {
    return downloaded(unsharded_.at(parameter), gathered_size(parameter));
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
    if (communicates()) {
        messages_.meet();
    }
    at_ = 0;
    last_in_place_.reset();
    begun_.record(compute_);
}

void GpuShardedRank::prepare() {
    const std::vector<Instruction>& all = step().program.instructions;
    is_followed_.assign(all.size(), false);
    for (const Instruction& instruction : all) {
        if (instruction.launched_after >= 0) {
            is_followed_[static_cast<std::size_t>(instruction.launched_after)] = true;
        }
    }
    while (followed_.size() < all.size()) {
        followed_.emplace_back(Timing::off);
    }
    stamps_.reserve(step().program);
}

StepTrace GpuShardedRank::run(const ReplayedStep& step, std::int64_t number,
                              Communicate communicate) {
    begin_step(step, number, communicate);
    StepTrace trace;
    set_out();  // all at once
    for (int ahead = lead_in_; ahead > 0; --ahead) {
        begin_step_again(number + ahead);  // gradients differ from the timed step's
        issue();
    }
    begin_step_again(number);
    stamps_.start().record(compute_);
    trace.host = issue();
    stamps_.end().record(compute_);
    stamps_.finish(step.program, communicator(), led_in(), [this] { return is_idle(); });
    stamps_.read(step.program, trace);
    return trace;
}

std::optional<StepTrace> GpuShardedRank::run_each(const ReplayedStep& step, std::int64_t number) {
    begin_step(step, number, Communicate::for_free);
    compute_.wait();
    return stamps_.run_each(
        step.program, [this](std::size_t i) { execute_at(i); }, kernel_plan(), communicator());
}

std::vector<Interval> GpuShardedRank::issue() {
    begun_.record(compute_);
    return stamps_.issue(step().program, [this](std::size_t i) { execute_at(i); });
}

void GpuShardedRank::execute_at(std::size_t instruction) {
    at_ = instruction;
    execute(step().calls[instruction]);
}

void GpuShardedRank::execute(const ShardedCall& call) {
    ShardedRankIn::execute(call);
    if (is_followed_[at_]) {
        followed_[at_].record(compute_);
    }
    ++at_;
}

void GpuShardedRank::settle() {
    PatientWait(communicator(), step().program.collectives.size() + 1)
        .until([this] { return is_idle(); }, "a step");
}

const GpuStream& GpuShardedRank::stream_of(Lane lane) const {
    const std::array<const GpuStream*, lane_count> streams{
        &compute_, &filling_, &messages_.stream(), &between_replicas_, &placing_};
    return *streams[static_cast<std::size_t>(lane)];
}

bool GpuShardedRank::is_idle() const {
    return compute_.is_idle() && filling_.is_idle() && messages_.stream().is_idle() &&
           between_replicas_.is_idle() && placing_.is_idle();
}

// --- copies ---

void GpuShardedRank::pack(ShardCopy copy, std::int32_t move, DType to, DType from, double factor,
                          Lane lane) {
    const ChunkTable& table =
        chunks_[static_cast<std::size_t>(move)][static_cast<std::size_t>(copy)];
    launch_pack(stream_of(lane).get(), direction_of(copy), table.data(), table.count(), to, from,
                factor);
}

void GpuShardedRank::copy(std::byte* to, const std::byte* from, DType dtype, std::int64_t numel,
                          Lane lane) {
    launch_copy(stream_of(lane).get(), to, dtype, from, dtype, numel, 1.0);
}

void GpuShardedRank::add(std::byte* to, DType to_dtype, const std::byte* from, DType from_dtype,
                         std::int64_t numel, Lane lane) {
    launch_add(stream_of(lane).get(), to, to_dtype, from, from_dtype, numel);
}

// --- collectives ---

void GpuShardedRank::follow(const Instruction& launch) {
    if (launch.launched_after >= 0) {
        followed_[static_cast<std::size_t>(launch.launched_after)].hold_up(filling_);
    } else if (launch.launched_after == before_all) {
        begun_.hold_up(filling_);
    } else {
        followed_[at_].record(compute_);
        followed_[at_].hold_up(filling_);
    }
}

void GpuShardedRank::launch(const ShardedCall& call) {
    const StepStamps::CollectiveEvents& events = stamps_.of_collective(call.subject);
    const bool gathers = call.act == ShardedAct::gather;
    const Lane lane = call.act == ShardedAct::all_reduce ? Lane::between_replicas : Lane::moving;
    const GpuStream& stream = stream_of(lane);
    // Memory that all moves share is in use until the collective before has been placed.
    if (moves_one_by_one() && last_in_place_) {
        const GpuEvent& before = stamps_.of_collective(*last_in_place_).done;
        before.hold_up(filling_);
        before.hold_up(messages_.stream());
    }
    last_in_place_ = call.subject;
    if (gathers) {
        follow(step().program.instructions[at_]);
        before_collective(call, Lane::filling);
    }
    events.launched.record(gathers ? filling_ : compute_);
    events.launched.hold_up(stream);
    const Collective& collective =
        step().program.collectives[static_cast<std::size_t>(call.subject)];
    if (lane == Lane::between_replicas && collective.follows) {
        stamps_.of_collective(*collective.follows).done.hold_up(stream);
    }
    if (!gathers) {
        before_collective(call, lane);
    }
    stamps_.stamp(events.begin, stream, false);
    if (communicates()) {
        with_.of(sharers_of(call)).carry(exchange_of(call), stream);
    }
    stamps_.stamp(events.end, stream, false);
    if (!continues(call)) {
        events.done.record(stream);
        return;
    }
    events.end.hold_up(placing_);
    after_collective(call, Lane::placing);
    events.done.record(placing_);
}

void GpuShardedRank::wait_for(std::int32_t collective) {
    stamps_.of_collective(collective).done.hold_up(compute_);
}

}  // namespace bucketwise
