#include "hw/nccl/gpu_rank.h"

#include <algorithm>
#include <chrono>
#include <type_traits>
#include <variant>

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t float_bytes = 4;

// Ends a capture that something went wrong in, so that the stream can be used, or destroyed.
class Capture {
  public:
    // `is_going_on` is true until its end.
    Capture(const GpuStream& stream, bool& is_going_on)
        : stream_(stream), is_going_on_(is_going_on) {
        // What other threads do meanwhile is not part of it.
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
    : ReplayRank(scenario, workload, sync, communicators.of_steps().rank(),
                 communicators.of_steps().ranks()),
      as_graph_(scenario.step.cuda_graph),
      lead_in_(steps_leading_in(scenario)),
      communicators_(communicators),
      messages_(communicators),
      buffers_(this->workload().gradients, sync),
      kernels_(kernel_plan(), this->workload().gradients, buffers_, scenario.step.optimizer,
               arithmetic_of(scenario), compute_),
      checks_(kernel_plan(), this->workload().gradients, buffers_, kernels_.patterns(), compute_),
      ones_(float_bytes * static_cast<std::int64_t>(workload.gradients.size())),
      unused_map_(ones_.size_bytes()) {
    for (const BufferGroup& group : workload.buffer_groups) {
        broadcast_.emplace_back(group.size.count);
        module_buffers_.emplace_back(group.size.count);
    }
    ones_.write(std::vector<float>(workload.gradients.size(), 1.0F));
    GpuRank::lay_out();
}

// Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
GpuRank::~GpuRank() {
    stamps_.release();
    if (!ends_well(compute_) || !ends_well(messages_.stream())) {
        communicators_.abort();
    }
}

void GpuRank::lay_out() {
    buffers_.arrange(plan());
    kernels_.arrange();
    checks_.arrange();
    arrange_chunks();
}

void GpuRank::arrange_chunks() {
    bucket_chunks_.clear();
    if (!buffers_.has_buckets()) {
        return;
    }
    for (std::size_t i = 0; i < plan().buckets.size(); ++i) {
        const bool is_cast = packs_what_travels(static_cast<std::int32_t>(i));
        std::vector<TensorPlace> tensors;
        for (const std::int32_t index : plan().buckets[i].gradients) {
            tensors.push_back({.tensor = buffers_.gradient(index),
                               .place = is_cast ? buffers_.compressed_place(index)
                                                : buffers_.place_in_bucket(index),
                               .numel = gradient(index).numel});
        }
        bucket_chunks_.emplace_back(tensors);
    }
}

std::int64_t GpuRank::peak_memory_bytes() const {
    std::int64_t bytes = kernels_.memory_bytes() + checks_.memory_bytes() +
                         messages_.peak_memory_bytes() + ones_.size_bytes() +
                         unused_map_.size_bytes() + statistics_.size_bytes();
    for (const DeviceMemory* memory : buffers_.blocks()) {
        bytes += memory->size_bytes();
    }
    for (const auto* groups : {&broadcast_, &module_buffers_}) {
        for (const DeviceMemory& memory : *groups) {
            bytes += memory.size_bytes();
        }
    }
    return bytes;
}

// --- a step ---

// Everything that a step needs and that is no part of it, on a GPU that is idle afterwards.
void GpuRank::prepare_step() {
    stamps_.reserve(*step().program);
    poison();
    const std::vector<std::byte>& initial = statistics().initial();
    if (statistics_.size_bytes() < std::ssize(initial)) {
        statistics_ = DeviceMemory(std::ssize(initial));
        initial_statistics_ = DeviceMemory(std::ssize(initial));
    }
    initial_statistics_.write(initial);
    restore_exchanged();
    compute_.wait();
}

void GpuRank::poison() {
    if (step().communicate == Communicate::yes) {
        checks_.poison();
    }
}

// What a step exchanges and does not compute anew.
void GpuRank::restore_exchanged() {
    compute_.copy(unused_map_.at(0), ones_.at(0), ones_.size_bytes(), cudaMemcpyDeviceToDevice);
    if (const std::int64_t size = std::ssize(statistics().initial()); size > 0) {
        compute_.copy(statistics_.at(0), initial_statistics_.at(0), size, cudaMemcpyDeviceToDevice);
    }
}

StepTrace GpuRank::run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                       std::int64_t step, Communicate communicate) {
    begin_step(program, sync, plan, step, communicate);
    prepare_step();
    StepTrace trace;
    if (as_graph_) {
        issue_as_graph(program, trace);
    } else {
        if (communicate == Communicate::yes) {
            messages_.meet();  // all set out together
        }
        for (int ahead = lead_in_; ahead > 0; --ahead) {
            begin_step_again(step + ahead);  // whose results are not the timed one's
            issue(program);
            restore_exchanged();
        }
        begin_step_again(step);
        stamps_.start().record(compute_);
        trace.host = issue(program);
        stamps_.end().record(compute_);
    }
    finish(program);
    stamps_.read(program, trace);
    return trace;
}

std::vector<Interval> GpuRank::issue(const Program& program) {
    return stamps_.issue(
        program, [&](std::size_t i) { execute(program.instructions[i]); }, is_captured_);
}

// Captured anew for every step, as the values of gradients differ from step to step; what counts is
// how long launching and running it takes. The steps that lead in leave the same results, which
// are poisoned.
void GpuRank::issue_as_graph(const Program& program, StepTrace& trace) {
    warm_up(program);
    Capture capture(compute_, is_captured_);
    issue(program);
    const Graph graph(capture.end());
    const ExecutableGraph instance = executable(graph);
    check_gpu(cudaGraphUpload(instance.get(), compute_.get()), "cudaGraphUpload");
    compute_.wait();
    if (step().communicate == Communicate::yes) {
        messages_.meet();
    }
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
    trace.host.assign(program.instructions.size(), {*trace.graph_launch, *trace.graph_launch});
    finish(program);  // the graph must outlive what it runs
}

// NCCL connects, and the driver loads kernels, when something is first launched; neither may happen
// while a stream is captured.
void GpuRank::warm_up(const Program& program) {
    const std::pair<BucketPlan, Communicate> now{plan(), step().communicate};
    if (std::find(warm_.begin(), warm_.end(), now) != warm_.end()) {
        return;
    }
    stamps_.start().record(compute_);
    issue(program);
    stamps_.end().record(compute_);
    finish(program);
    begin_step_again(step().number);
    warm_.push_back(now);
    prepare_step();
}

// Gradients that live in their buckets are divided there, if anything is to be done.
void GpuRank::copy(InstructionKind kind, std::int32_t subject) {
    const Copy c = copy_of(kind, subject, buffers_);
    if (c.from != c.to || !step().rules.casts(c.to_dtype)) {
        launch_copy(compute_.get(), c.to, c.to_dtype, c.from, c.from_dtype, c.numel, c.factor);
    }
}

void GpuRank::pack(std::int32_t index) {
    const ChunkTable& chunks = bucket_chunks_[static_cast<std::size_t>(index)];
    launch_pack(compute_.get(), PackDirection::into_place, chunks.data(), chunks.count(),
                packed_dtype_of(index), bucket(index).dtype, step().rules.pack_factor());
}

void GpuRank::unpack(std::int32_t index) {
    const ChunkTable& chunks = bucket_chunks_[static_cast<std::size_t>(index)];
    launch_pack(compute_.get(), PackDirection::out_of_place, chunks.data(), chunks.count(),
                bucket(index).dtype, packed_dtype_of(index), 1.0);
}

void GpuRank::copy_buffers(std::int32_t group) {
    const auto index = static_cast<std::size_t>(group);
    compute_.copy(module_buffers_[index].at(0), broadcast_[index].at(0),
                  broadcast_[index].size_bytes(), cudaMemcpyDeviceToDevice);
}

// The communication stream waits for what has been launched so far, as DDP's does.
void GpuRank::launch(std::int32_t collective) {
    const StepStamps::CollectiveEvents& events = stamps_.of_collective(collective);
    events.launched.record(compute_);
    events.launched.hold_up(messages_.stream());
    stamps_.stamp(events.begin, messages_.stream(), is_captured_);
    if (step().communicate == Communicate::yes) {
        std::visit([&](const auto& moved) { put(moved); }, movement(collective));
    }
    stamps_.stamp(events.end, messages_.stream(), is_captured_);
    events.done.record(messages_.stream());
}

void GpuRank::put(const BufferBroadcast& moved) {
    communicator().broadcast_from_first(broadcast_[static_cast<std::size_t>(moved.group)].at(0),
                                        moved.size, messages_.stream());
}

void GpuRank::put(const UnusedMapSum& moved) {
    communicator().all_reduce(unused_map_.at(0), moved.elements, DType::float32, Reduction::sum,
                              messages_.stream());
}

// Where no copy divides, NCCL does.
void GpuRank::put(const BucketReduction& moved) {
    communicator().all_reduce(
        moved.casts ? buffers_.compressed(moved.bucket) : buffers_.bucket(moved.bucket),
        moved.elements, moved.dtype, moved.averages ? Reduction::mean : Reduction::sum,
        messages_.stream());
}

void GpuRank::put(const StatisticsExchange& moved) {
    std::byte* own = statistics_.at(moved.own_offset);
    if (moved.gathers) {
        communicator().all_gather(own, statistics_.at(moved.all_offset), moved.own_size(),
                                  messages_.stream());
    } else {
        communicator().all_reduce(own, moved.elements, moved.dtype, Reduction::sum,
                                  messages_.stream());
    }
}

void GpuRank::wait_for(std::int32_t collective) {
    stamps_.of_collective(collective).done.hold_up(compute_);
}

void GpuRank::finish(const Program& program) {
    const auto is_idle = [this] { return messages_.stream().is_idle(); };
    const auto led_in = static_cast<std::size_t>(lead_in_);
    if (as_graph_) {
        stamps_.finish_graph(program, communicator(), led_in, is_idle);
    } else {
        stamps_.finish(program, communicator(), led_in, is_idle);
    }
}

// --- each instruction by itself ---

void GpuRank::calibrate() {
    kernels_.calibrate();
    stamps_.calibrate();
}

std::optional<StepTrace> GpuRank::run_each(const Program& program, const SyncSettings& sync,
                                           const BucketPlan& plan, std::int64_t step) {
    begin_step(program, sync, plan, step, Communicate::for_free);
    prepare_step();
    return stamps_.run_each(
        program, [&](std::size_t i) { execute(program.instructions[i]); }, kernel_plan(),
        communicator());
}

// --- checking ---

StepCheck GpuRank::check() {
    StepCheck check = checks_.check(exact_mean(), tolerances());
    if (step().reduces_unused_map) {
        std::vector<float> map(workload().gradients.size());
        unused_map_.copy_out(map.data(), 0, unused_map_.size_bytes());
        check_unused_map(map, check);
    }
    if (!statistics().initial().empty()) {
        std::vector<std::byte> exchanged(statistics().initial().size());
        statistics_.copy_out(exchanged.data(), 0, std::ssize(exchanged));
        check_statistics(exchanged, check);
    }
    return check;
}

// --- all-reduces, alone and beside backward ---

std::vector<Duration> GpuRank::time_backward() {
    const Program program = program_of_backward(workload().backward.size());
    const std::optional<StepTrace> trace = run_each(program, {}, {}, 0);
    std::vector<Duration> times;
    for (const Interval& operation : trace->instructions) {
        times.push_back(operation.length());
    }
    return times;
}

ContentionTrace GpuRank::contend(const Message& message, std::int64_t iterations,
                                 const std::vector<Duration>& alone) {
    return backward_.contend(messages_, message, iterations, alone, stamps_.stamp_time());
}

}  // namespace bucketwise
