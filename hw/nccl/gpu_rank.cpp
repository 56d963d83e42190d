#include "hw/nccl/gpu_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <type_traits>

#include "hw/nccl/contention.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

// Ends a capture that failed, so that the stream can be used, or destroyed.
class Capture {
  public:
    // `is_going_on` is true until its end.
    Capture(const GpuStream& stream, bool& is_going_on)
        : stream_(stream), is_going_on_(is_going_on) {
        // Launches of other threads are not part of it.
        check_gpu(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                  "cudaStreamBeginCapture");
        is_going_on_ = true;
    }
    ~Capture() {
        if (is_going_on_) {
            is_going_on_ = false;
            cudaGraph_t graph = nullptr;
            cudaStreamEndCapture(stream_.get(), &graph);
            if (graph != nullptr) {
                cudaGraphDestroy(graph);
            }
        }
    }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;

    cudaGraph_t end() {
        is_going_on_ = false;
        cudaGraph_t graph = nullptr;
        check_gpu(cudaStreamEndCapture(stream_.get(), &graph), "cudaStreamEndCapture");
        return graph;
    }

  private:
    const GpuStream& stream_;
    bool& is_going_on_;
};

struct GraphDeleter {
    void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter>;
using ExecutableGraph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, GraphDeleter>;

ExecutableGraph executable(const Graph& graph) {
    cudaGraphExec_t instance = nullptr;
    check_gpu(cudaGraphInstantiate(&instance, graph.get(), 0), "cudaGraphInstantiate");
    return ExecutableGraph(instance);
}

}  // namespace

GpuRank::GpuRank(const Scenario& scenario, const Workload& workload, const SyncSettings& sync,
                 Communicators& communicators)
    : Executor(
          scenario, workload, sync,
          rank_place(scenario, communicators.of_steps().rank(), communicators.of_steps().ranks()),
          {.make = shared_device_block, .alignment_bytes = DeviceMemory::alignment_bytes}),
      communicators_(communicators),
      among_(memory().place(), communicator(),
             [&](const std::vector<std::int64_t>& ranks) -> NcclCommunicator& {
                 return communicators.among(ranks);
             }),
      messages_(communicators),
      lead_in_(steps_leading_in(scenario)),
      as_graph_(scenario.step.cuda_graph),
      kernels_(kernel_plan(), this->workload().gradients, memory().gradients(),
               memory().updates_parts() ? Duration{0} : scenario.step.optimizer,
               arithmetic_of(scenario), compute_) {
    invariant(!sync.framework.adds_into_bucket, "the backend has refused Megatron-LM");
    if (memory().updates_parts()) {
        own_optimizer_.emplace(no_operations(), memory().updated(), memory().updated_buffers(),
                               part_of_optimizer(scenario, sync), Arithmetic::float32, compute_);
        own_optimizer_->arrange();
    }
    if (!memory().is_sharded()) {
        checks_.emplace(kernel_plan(), this->workload().gradients, memory().gradients(),
                        kernels_.patterns(), compute_);
    }
    GpuRank::rearranged();
}

// Memory that a collective still uses must not go, and cudaFree would wait for the collective for
// ever.
GpuRank::~GpuRank() {
    stamps_.release();
    bool are_well = true;
    for (std::size_t lane = 0; lane < lane_count; ++lane) {
        are_well = ends_well(stream_of(static_cast<Lane>(lane))) && are_well;
    }
    if (!are_well) {
        communicators_.abort();
    }
}

void GpuRank::rearranged() {
    kernels_.arrange();
    if (checks_) {
        checks_->arrange();
    }
    chunks_.clear();
}

std::int64_t GpuRank::peak_memory_bytes() const {
    return memory_bytes() + kernels_.memory_bytes() + messages_.peak_memory_bytes() +
           initially_exchanged_.size_bytes() + (checks_ ? checks_->memory_bytes() : 0) +
           (own_optimizer_ ? own_optimizer_->memory_bytes() : 0);
}

void GpuRank::calibrate() {
    kernels_.calibrate();
    if (own_optimizer_) {
        own_optimizer_->calibrate();
    }
    stamps_.calibrate();
}

// --- memory ---

void GpuRank::write(std::byte* to, const std::byte* from, std::int64_t bytes) {
    copy_to_device(to, from, bytes);
}

const std::byte* GpuRank::read(const std::byte* from, Bytes size) {
    PatientWait(communicator()).until([&] { return compute_.is_idle(); }, "what was computed");
    host_.resize(static_cast<std::size_t>(size.count));
    copy_to_host(host_.data(), from, size.count);
    return host_.data();
}

void GpuRank::poison() {
    if (communicates() && checks_) {
        checks_->poison();
    }
}

// A step exchanges these values and does not compute them anew.
void GpuRank::restore_exchanged() {
    compute_.copy(memory().unused_map(), initially_exchanged_.at(0),
                  initially_exchanged_.size_bytes(), cudaMemcpyDeviceToDevice);
}

// --- a step ---

// The GPU is idle afterwards.
void GpuRank::prepare_step() {
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
    poison();
    if (initially_exchanged_.size_bytes() != std::ssize(initially_exchanged())) {
        initially_exchanged_ = DeviceMemory(std::ssize(initially_exchanged()));
    }
    initially_exchanged_.write(initially_exchanged());
    compute_.wait();
}

void GpuRank::set_out() {
    if (communicates()) {
        messages_.meet();
    }
    begin_program();
}

// In a graph, nothing is launched ahead.
void GpuRank::begin_program() {
    last_in_place_.reset();
    if (!is_captured_) {
        begun_.record(compute_);
    }
}

StepTrace GpuRank::run(const ReplayedStep& step, std::int64_t number, Communicate communicate) {
    begin_step(step, number, communicate);
    StepTrace trace;
    if (as_graph_) {
        issue_as_graph(number, trace);
    } else {
        set_out();  // all at once
        for (int ahead = lead_in_; ahead > 0; --ahead) {
            begin_step_again(number + ahead);  // gradients differ from the timed step's
            issue();
            restore_exchanged();
        }
        begin_step_again(number);
        stamps_.start().record(compute_);
        trace.host = issue();
        stamps_.end().record(compute_);
    }
    finish();
    stamps_.read(step.program, trace);
    return trace;
}

std::vector<Interval> GpuRank::issue() {
    begin_program();
    return stamps_.issue(
        step().program, [this](std::size_t i) { execute(i); }, is_captured_);
}

void GpuRank::execute(std::size_t instruction) {
    Executor::execute(instruction);
    if (is_followed_[instruction]) {
        followed_[instruction].record(compute_);
    }
}

void GpuRank::settle() {
    PatientWait(communicator(), step().program.collectives.size() + 1)
        .until([this] { return is_idle(); }, "a step");
}

void GpuRank::finish() {
    const auto idle = [this] { return is_idle(); };
    const auto led_in = static_cast<std::size_t>(lead_in_);
    if (as_graph_) {
        stamps_.finish_graph(step().program, communicator(), led_in, idle);
    } else {
        stamps_.finish(step().program, communicator(), led_in, idle);
    }
}

// Captured anew for every step, as the values of gradients differ from step to step; only launching
// and running it is timed. The steps that lead in leave the same results, which are poisoned.
void GpuRank::issue_as_graph(std::int64_t number, StepTrace& trace) {
    warm_up(number);
    Capture capture(compute_, is_captured_);
    issue();
    const Graph graph(capture.end());
    const ExecutableGraph instance = executable(graph);
    check_gpu(cudaGraphUpload(instance.get(), compute_.get()), "cudaGraphUpload");
    compute_.wait();
    set_out();
    for (int ahead = lead_in_; ahead > 0; --ahead) {
        check_gpu(cudaGraphLaunch(instance.get(), compute_.get()), "cudaGraphLaunch");
    }
    if (lead_in_ > 0) {
        poison();
        restore_exchanged();
    }
    stamps_.start().record(compute_);
    const Clock::time_point begin = Clock::now();
    check_gpu(cudaGraphLaunch(instance.get(), compute_.get()), "cudaGraphLaunch");
    trace.graph_launch = std::chrono::duration_cast<Duration>(Clock::now() - begin);
    stamps_.end().record(compute_);
    // The one launch issued all of it.
    trace.host.assign(step().program.instructions.size(),
                      {*trace.graph_launch, *trace.graph_launch});
    finish();  // the graph must outlive what it runs
}

// NCCL connects, and the driver loads kernels, when something is first launched; neither may happen
// while a stream is captured.
void GpuRank::warm_up(std::int64_t number) {
    const std::pair now{memory().plan(), communicates() ? Communicate::yes : Communicate::for_free};
    if (std::find(warm_.begin(), warm_.end(), now) != warm_.end()) {
        return;
    }
    stamps_.start().record(compute_);
    issue();
    stamps_.end().record(compute_);
    finish();
    begin_step_again(number);
    warm_.push_back(now);
    prepare_step();  // writes from the host what restoring reads on a stream
    restore_exchanged();
}

std::optional<StepTrace> GpuRank::run_each(const ReplayedStep& step, std::int64_t number) {
    begin_step(step, number, Communicate::for_free);
    return stamps_.run_each(
        step.program, [this](std::size_t i) { execute(i); }, kernel_plan(), communicator());
}

// --- copies ---

const GpuStream& GpuRank::stream_of(Lane lane) const {
    const std::array<const GpuStream*, lane_count> streams{
        &compute_, &filling_, &messages_.stream(), &between_replicas_, &placing_};
    return *streams[static_cast<std::size_t>(lane)];
}

bool GpuRank::is_idle() const {
    return compute_.is_idle() && filling_.is_idle() && messages_.stream().is_idle() &&
           between_replicas_.is_idle() && placing_.is_idle();
}

void GpuRank::prepare(const Transfer& transfer) {
    chunks_.push_back(transfer.tensors.size() > 1 ? ChunkTable(transfer.tensors) : ChunkTable());
}

// Gradients that live in their buckets are divided there, if there is anything to do.
void GpuRank::copy(std::size_t transfer, double factor, Lane lane) {
    const Transfer& copied = this->transfer(transfer);
    const GpuStream& stream = stream_of(lane);
    const ChunkTable& chunks = chunks_[transfer];
    if (copied.tensors.size() > 1) {
        return launch_pack(stream.get(), copied.direction, chunks.data(), chunks.count(),
                           copied.to_dtype(), copied.from_dtype(), factor);
    }
    for (const TensorPlace& one : copied.tensors) {
        if (copied.is_raw) {
            stream.copy(copied.to(one), copied.from(one), one.numel, cudaMemcpyDeviceToDevice);
        } else if (one.numel > 0 && (one.tensor != one.place || factor != 1.0)) {
            launch_copy(stream.get(), copied.to(one), copied.to_dtype(), copied.from(one),
                        copied.from_dtype(), one.numel, factor);
        }
    }
}

// PyTorch, too, adds parameter by parameter.
void GpuRank::add(std::size_t transfer, Lane lane) {
    const Transfer& added = this->transfer(transfer);
    for (const TensorPlace& one : added.tensors) {
        launch_add(stream_of(lane).get(), added.to(one), added.to_dtype(), added.from(one),
                   added.from_dtype(), one.numel);
    }
}

void GpuRank::examine(std::size_t /*transfer*/, Lane /*lane*/) {
    invariant(false, "GPUs replay no strategy that examines gradients");
}

// --- collectives ---

void GpuRank::follow(std::size_t launch) {
    const std::int32_t after = step().program.instructions[launch].launched_after;
    if (after >= 0) {
        followed_[static_cast<std::size_t>(after)].hold_up(filling_);
    } else if (after == before_all) {
        begun_.hold_up(filling_);
    } else {
        followed_[launch].record(compute_);
        followed_[launch].hold_up(filling_);
    }
}

// The collective's stream waits for the launches so far, as DDP's does; that of an all-gather which
// is filled on the way, for its filling alone.
void GpuRank::launch(std::size_t instruction, std::int32_t collective) {
    const StepStamps::CollectiveEvents& events = stamps_.of_collective(collective);
    const Collective& launched = this->collective(collective);
    const Lane lane =
        launched.among.communicator == Among::replicas ? Lane::between_replicas : Lane::moving;
    const GpuStream& stream = stream_of(lane);
    // Memory that all moves share is in use until the collective before has been placed.
    if (step().moves_share_buffers && last_in_place_) {
        const GpuEvent& before = stamps_.of_collective(*last_in_place_).done;
        before.hold_up(filling_);
        before.hold_up(messages_.stream());
    }
    last_in_place_ = collective;
    const bool is_filled =
        launched.kind == CollectiveKind::all_gather && launched.before.route != CopyRoute::none;
    if (is_filled) {
        follow(instruction);
        copy_before(collective, Lane::filling, micro_step());
    }
    events.launched.record(is_filled ? filling_ : compute_);
    events.launched.hold_up(stream);
    if (launched.follows) {
        stamps_.of_collective(*launched.follows).done.hold_up(stream);
    }
    if (!is_filled) {
        copy_before(collective, lane, micro_step());
    }
    stamps_.stamp(events.begin, stream, is_captured_);
    if (communicates()) {
        among_.of(launched.among.communicator).carry(exchange_of(collective), stream);
    }
    stamps_.stamp(events.end, stream, is_captured_);
    if (launched.after.route == CopyRoute::none) {
        events.done.record(stream);
        return;
    }
    events.end.hold_up(placing_);
    copy_after(collective, Lane::placing, micro_step());
    events.done.record(placing_);
}

void GpuRank::wait_for(std::int32_t collective) {
    stamps_.of_collective(collective).done.hold_up(compute_);
}

// --- computing and messages beside it ---

MessageTrace GpuRank::measure_as_in_steps(const Message& message, std::int64_t iterations) {
    return memory().is_sharded()
               ? messages_.measure_among(message, iterations, among_.of_kind(message.kind))
               : measure(message, iterations);
}

std::vector<Duration> GpuRank::backward_alone() {
    const std::size_t operations = workload().backward.size();
    Program program;
    for (std::size_t i = 0; i < operations; ++i) {
        program.instructions.push_back({.kind = InstructionKind::backward,
                                        .phase = Phase::backward,
                                        .subject = static_cast<std::int32_t>(i)});
    }
    stamps_.reserve(program);
    const auto warm_up = [&] {
        for (std::size_t i = 0; i < operations; ++i) {
            launch_backward(i);
        }
        PatientWait(communicator()).until([&] { return compute_.is_idle(); }, "backward");
    };
    const auto time = [&] {
        const StepTrace trace = stamps_.run_each(
            program, [this](std::size_t i) { launch_backward(i); }, kernel_plan(), communicator());
        return transformed(trace.instructions, &Interval::length);
    };
    return times_alone(operations, warm_up, time);
}

ContentionTrace GpuRank::contend(const Message& message, std::int64_t iterations,
                                 const std::vector<Duration>& alone) {
    messages_.prepare(message);
    const Load collectives{messages_.stream(), [&](std::size_t) { messages_.launch(message); }};
    const Load backward{compute_, [&](std::size_t i) { launch_backward(i); }};
    OperationsAlone operations{.times = alone};
    for (const KernelCall& call : kernel_plan().backward) {
        operations.are_products.push_back(call.product.has_value());
    }
    const RanTogether ran = run_together(communicators_.with_ctas(message.ctas), collectives,
                                         iterations, backward, alone.size());
    return contention_of(ran, operations, stamps_.stamp_time());
}

}  // namespace bucketwise
