#include "hw/nccl/gpu_rank.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <type_traits>

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
    : OnGpu(scenario, communicators, workload, sync, communicators.of_steps().rank(),
            communicators.of_steps().ranks()),
      as_graph_(scenario.step.cuda_graph),
      memory_(this->workload(), sync),
      kernels_(kernel_plan(), this->workload().gradients, memory_.buffers, scenario.step.optimizer,
               arithmetic_of(scenario), compute_),
      checks_(kernel_plan(), this->workload().gradients, memory_.buffers, kernels_.patterns(),
              compute_),
      ones_(DeviceMemory::of(std::vector<float>(workload.gradients.size(), 1.0F))) {
    GpuRank::lay_out();
}

void GpuRank::lay_out() {
    memory_.buffers.arrange(plan());
    kernels_.arrange();
    checks_.arrange();
    bucket_chunks_.clear();
    for (std::int32_t i = 0; memory_.buffers.has_buckets() && i < std::ssize(plan().buckets); ++i) {
        bucket_chunks_.emplace_back(places_in(i, memory_.buffers));
    }
}

std::int64_t GpuRank::peak_memory_bytes() const {
    std::int64_t bytes = kernels_.memory_bytes() + checks_.memory_bytes() +
                         messages_.peak_memory_bytes() + ones_.size_bytes() +
                         memory_.unused_map.size_bytes() + memory_.statistics.size_bytes();
    for (const DeviceMemory* memory : memory_.buffers.blocks()) {
        bytes += memory->size_bytes();
    }
    for (const auto* groups : {&memory_.broadcast, &memory_.module_buffers}) {
        for (const DeviceMemory& memory : *groups) {
            bytes += memory.size_bytes();
        }
    }
    return bytes;
}

// --- a step ---

// Prepares everything that a step needs and that is no part of it. The GPU is idle afterwards.
void GpuRank::prepare_step() {
    stamps_.reserve(*step().program);
    poison();
    const std::vector<std::byte>& initial = statistics().initial();
    if (memory_.statistics.size_bytes() < std::ssize(initial)) {
        memory_.statistics = DeviceMemory(std::ssize(initial));
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

// A step exchanges these values and does not compute them anew.
void GpuRank::restore_exchanged() {
    compute_.copy(memory_.unused_map.at(0), ones_.at(0), ones_.size_bytes(),
                  cudaMemcpyDeviceToDevice);
    if (const std::int64_t size = std::ssize(statistics().initial()); size > 0) {
        compute_.copy(memory_.statistics.at(0), initial_statistics_.at(0), size,
                      cudaMemcpyDeviceToDevice);
    }
}

StepTrace GpuRank::run(const ReplayedStep& step, std::int64_t number, Communicate communicate) {
    begin_step(step, number, communicate);
    prepare_step();
    StepTrace trace;
    if (as_graph_) {
        issue_as_graph(step.program, trace);
    } else {
        if (communicate == Communicate::yes) {
            messages_.meet();  // all set out together
        }
        for (int ahead = lead_in_; ahead > 0; --ahead) {
            begin_step_again(number + ahead);  // results differ from the timed step's
            issue(step.program);
            restore_exchanged();
        }
        begin_step_again(number);
        stamps_.start().record(compute_);
        trace.host = issue(step.program);
        stamps_.end().record(compute_);
    }
    finish(step.program);
    stamps_.read(step.program, trace);
    return trace;
}

std::vector<Interval> GpuRank::issue(const Program& program) {
    return stamps_.issue(
        program, [&](std::size_t i) { execute(program.instructions[i]); }, is_captured_);
}

// Captured anew for every step, as the values of gradients differ from step to step; only launching
// and running it is timed. The steps that lead in leave the same results, which are poisoned.
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

// Gradients that live in their buckets are divided there, if there is anything to do.
void GpuRank::copy(InstructionKind kind, std::int32_t subject) {
    const Copy c = copy_of(kind, subject, memory_.buffers);
    if (c.from != c.to || !step().rules.casts(c.to_dtype)) {
        launch_copy(compute_.get(), c.to, c.to_dtype, c.from, c.from_dtype, c.numel, c.factor);
    }
}

void GpuRank::pack(std::int32_t index, PackDirection direction, double factor) {
    const ChunkTable& chunks = bucket_chunks_[static_cast<std::size_t>(index)];
    const bool in = direction == PackDirection::into_place;
    const DType packed = packed_dtype_of(index);
    const DType own = bucket(index).dtype;
    launch_pack(compute_.get(), direction, chunks.data(), chunks.count(), in ? packed : own,
                in ? own : packed, factor);
}

void GpuRank::copy_buffers(std::int32_t group) {
    const auto index = static_cast<std::size_t>(group);
    compute_.copy(memory_.module_buffers[index].at(0), memory_.broadcast[index].at(0),
                  memory_.broadcast[index].size_bytes(), cudaMemcpyDeviceToDevice);
}

// The communication stream waits for the launches so far, as DDP's does.
void GpuRank::launch(std::int32_t collective) {
    const StepStamps::CollectiveEvents& events = stamps_.of_collective(collective);
    events.launched.record(compute_);
    events.launched.hold_up(messages_.stream());
    stamps_.stamp(events.begin, messages_.stream(), is_captured_);
    if (step().communicate == Communicate::yes) {
        communicator().carry(exchange_of(collective, memory_), messages_.stream());
    }
    stamps_.stamp(events.end, messages_.stream(), is_captured_);
    events.done.record(messages_.stream());
}

void GpuRank::wait_for(std::int32_t collective) {
    stamps_.of_collective(collective).done.hold_up(compute_);
}

void GpuRank::finish(const Program& program) {
    const auto is_idle = [this] { return messages_.stream().is_idle(); };
    if (as_graph_) {
        stamps_.finish_graph(program, communicator(), led_in(), is_idle);
    } else {
        stamps_.finish(program, communicator(), led_in(), is_idle);
    }
}

void GpuRank::calibrate() {
    kernels_.calibrate();
    stamps_.calibrate();
}

std::optional<StepTrace> GpuRank::run_each(const ReplayedStep& step, std::int64_t number) {
    begin_step(step, number, Communicate::for_free);
    prepare_step();
    return stamps_.run_each(
        step.program, [&](std::size_t i) { execute(step.program.instructions[i]); }, kernel_plan(),
        communicator());
}

StepCheck GpuRank::check() {
    StepCheck check = checks_.check(exact_mean(), tolerances());
    if (step().reduces_unused_map) {
        std::vector<float> map(workload().gradients.size());
        memory_.unused_map.copy_out(map.data(), 0, memory_.unused_map.size_bytes());
        check_unused_map(map, check);
    }
    if (!statistics().initial().empty()) {
        std::vector<std::byte> exchanged(statistics().initial().size());
        memory_.statistics.copy_out(exchanged.data(), 0, std::ssize(exchanged));
        check_statistics(exchanged, check);
    }
    return check;
}

}  // namespace bucketwise
