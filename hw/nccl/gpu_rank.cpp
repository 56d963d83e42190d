#include "hw/nccl/gpu_rank.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <type_traits>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "hw/gradient_pattern.h"
#include "hw/nccl/contention.h"
#include "sim/invariant.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t scratch_word_bytes = 16;

DType dtype_of(CommHook hook) {
    return hook == CommHook::bf16 ? DType::bfloat16 : DType::float16;
}

Arithmetic arithmetic_of(const Scenario& scenario) {
    const auto* workload = std::get_if<ModelWorkload>(&scenario.workload);
    return workload == nullptr ? Arithmetic::float32 : workload->arithmetic;
}

std::int64_t numel_of(const Bucket& bucket) {
    return bucket.size.count / element_size(bucket.dtype).count;
}

// Which instructions run() stamps: those before and at a wait, and the last of each phase.
std::vector<bool> stamped(const Program& program) {
    const std::vector<Instruction>& all = program.instructions;
    std::vector<bool> result(all.size(), false);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool is_last = i + 1 == all.size() || all[i + 1].phase != all[i].phase;
        const bool is_wait = all[i].kind == InstructionKind::wait;
        result[i] = is_last || is_wait;
        if (is_wait && i > 0) {
            result[i - 1] = true;
        }
    }
    return result;
}

// Ends a capture that something went wrong in, so that the stream can be used, or destroyed.
class Capture {
  public:
    explicit Capture(const GpuStream& stream) : stream_(stream) {
        // What other threads do meanwhile is not part of it.
        check_gpu(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                  "cudaStreamBeginCapture");
    }
    ~Capture() {
        if (!ended_) {
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
        ended_ = true;
        cudaGraph_t graph = nullptr;
        check_gpu(cudaStreamEndCapture(stream_.get(), &graph), "cudaStreamEndCapture");
        return graph;
    }

  private:
    const GpuStream& stream_;
    bool ended_ = false;
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
    : workload_(workload),
      accumulation_(scenario.step.accumulation),
      as_graph_(scenario.step.cuda_graph),
      comm_hook_(sync.comm_hook),
      value_scale_(scale_within_float16(communicators.of_steps().ranks(), accumulation_)),
      communicators_(communicators),
      kernel_plan_(plan_kernels(workload_, model_behind(scenario))),
      messages_(communicators),
      buffers_(workload_.gradients, sync),
      kernels_(kernel_plan_, workload_.gradients, buffers_, scenario.step.optimizer,
               arithmetic_of(scenario), compute_),
      checks_(kernel_plan_, workload_.gradients, buffers_, kernels_.patterns(), compute_),
      ones_(float_bytes * static_cast<std::int64_t>(workload_.gradients.size())),
      unused_map_(ones_.size_bytes()),
      scratch_(2 * scratch_word_bytes) {
    for (const BufferGroup& group : workload_.buffer_groups) {
        broadcast_.emplace_back(group.size.count);
        module_buffers_.emplace_back(group.size.count);
    }
    ones_.write(std::vector<float>(workload_.gradients.size(), 1.0F));
    // Gradients that live in buckets need a place also before the first step, and without buckets.
    arrange(make_plan(workload_.gradients, workload_.readiness, sync.policy));
}

// Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
GpuRank::~GpuRank() {
    head_start_.release();
    if (!ends_well(compute_) || !ends_well(messages_.stream())) {
        communicators_.abort();
    }
}

void GpuRank::arrange(const BucketPlan& plan) {
    arranged_ = plan;
    buffers_.arrange(plan);
    kernels_.arrange();
    checks_.arrange();
    arrange_chunks();
}

void GpuRank::arrange_chunks() {
    bucket_chunks_.clear();
    for (std::size_t i = 0; i < arranged_.buckets.size(); ++i) {
        std::vector<TensorPlace> tensors;
        for (const std::int32_t index : arranged_.buckets[i].gradients) {
            tensors.push_back(
                {.tensor = buffers_.gradient(index),
                 .place = casts(static_cast<std::int32_t>(i)) ? buffers_.compressed_place(index)
                                                              : buffers_.place_in_bucket(index),
                 .numel = workload_.gradients[static_cast<std::size_t>(index)].numel});
        }
        bucket_chunks_.emplace_back(tensors);
    }
}

std::int64_t GpuRank::peak_memory_bytes() const {
    std::int64_t bytes = kernels_.memory_bytes() + checks_.memory_bytes() +
                         messages_.peak_memory_bytes() + ones_.size_bytes() +
                         unused_map_.size_bytes();
    for (const DeviceMemory* memory :
         {&buffers_.buckets_block(), &buffers_.own_block(), &buffers_.compressed_block()}) {
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

void GpuRank::begin_step(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                         std::int64_t step, Communicate communicate) {
    if (!plan.buckets.empty() && !(arranged_ == plan)) {
        arrange(plan);
    }
    step_ = {.program = &program,
             .sync = sync,
             .plan = &arranged_,
             .number = step,
             .communicate = communicate};
    reserve_events(program);
    if (communicate == Communicate::yes) {
        checks_.poison();
    }
    restore_unused_map();
    compute_.wait();
}

void GpuRank::restore_unused_map() {
    if (ones_.size_bytes() > 0) {
        check_gpu(cudaMemcpyAsync(unused_map_.at(0), ones_.at(0),
                                  static_cast<std::size_t>(ones_.size_bytes()),
                                  cudaMemcpyDeviceToDevice, compute_.get()),
                  "cudaMemcpyAsync");
    }
}

void GpuRank::reserve_events(const Program& program) {
    while (stamps_.size() < program.instructions.size()) {
        stamps_.emplace_back(Timing::on);
    }
    while (collectives_.size() < program.collectives.size()) {
        collectives_.emplace_back();
    }
}

StepTrace GpuRank::run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                       std::int64_t step, Communicate communicate) {
    begin_step(program, sync, plan, step, communicate);
    StepTrace trace;
    if (as_graph_) {
        issue_as_graph(program, trace);
    } else {
        if (communicate == Communicate::yes) {
            messages_.meet();  // all set out together
        }
        start_.record(compute_);
        issue(program);
        end_.record(compute_);
    }
    finish(program);
    read_stamps(program, trace);
    return trace;
}

void GpuRank::issue(const Program& program) {
    const std::vector<bool> is_stamped = stamped(program);
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        execute(program.instructions[i]);
        if (is_stamped[i]) {
            stamp(stamps_[i], compute_);
        }
    }
}

// Captured anew for every step, as the values of gradients differ from step to step; what counts is
// how long launching and running it takes.
void GpuRank::issue_as_graph(const Program& program, StepTrace& trace) {
    warm_up(program);
    step_.is_captured = true;
    Capture capture(compute_);
    issue(program);
    const Graph graph(capture.end());
    step_.is_captured = false;
    const ExecutableGraph instance = executable(graph);
    check_gpu(cudaGraphUpload(instance.get(), compute_.get()), "cudaGraphUpload");
    compute_.wait();
    if (step_.communicate == Communicate::yes) {
        messages_.meet();
    }
    start_.record(compute_);
    const Clock::time_point begin = Clock::now();
    check_gpu(cudaGraphLaunch(instance.get(), compute_.get()), "cudaGraphLaunch");
    trace.graph_launch = std::chrono::duration_cast<Duration>(Clock::now() - begin);
    end_.record(compute_);
    finish(program);  // the graph must outlive what it runs
}

// NCCL connects, and the driver loads kernels, when something is first launched; neither may happen
// while a stream is captured.
void GpuRank::warm_up(const Program& program) {
    const std::pair<BucketPlan, Communicate> now{arranged_, step_.communicate};
    if (std::find(warm_.begin(), warm_.end(), now) != warm_.end()) {
        return;
    }
    start_.record(compute_);
    issue(program);
    end_.record(compute_);
    finish(program);
    step_.micro_step = 0;
    warm_.push_back(now);
    if (step_.communicate == Communicate::yes) {
        checks_.poison();
    }
    restore_unused_map();
    compute_.wait();
}

void GpuRank::stamp(const GpuEvent& event, const GpuStream& stream) const {
    if (step_.is_captured) {
        event.record_in_graph(stream);
    } else {
        event.record(stream);
    }
}

void GpuRank::execute(const Instruction& instruction) {
    switch (instruction.kind) {
        case InstructionKind::copy_buffers:
            return copy_buffers(instruction.subject);
        case InstructionKind::forward:
            return kernels_.forward(instruction.subject);
        case InstructionKind::backward:
            return backward(instruction.subject);
        case InstructionKind::copy_in:
            return copy_in(instruction.subject);
        case InstructionKind::pack:
            return pack(instruction.subject);
        case InstructionKind::cast_down:
            return cast_down(instruction.subject);
        case InstructionKind::launch:
            return launch(instruction.subject);
        case InstructionKind::wait:
            return wait_for(instruction.subject);
        case InstructionKind::cast_up:
            return cast_up(instruction.subject);
        case InstructionKind::unpack:
            return unpack(instruction.subject);
        case InstructionKind::copy_back:
            return copy_back(instruction.subject);
        case InstructionKind::optimizer:
            return kernels_.optimizer();
    }
}

// The last operation of backward ends a micro-step.
void GpuRank::backward(std::int32_t operation) {
    const float value = value_scale_ * static_cast<float>(rank_value(
                                           communicator().rank(), step_.number, step_.micro_step));
    kernels_.backward(operation, value, step_.micro_step > 0);
    if (operation + 1 == static_cast<std::int32_t>(workload_.backward.size())) {
        ++step_.micro_step;
    }
}

double GpuRank::mean_factor() const {
    return 1.0 / communicators_.of_steps().ranks();
}

bool GpuRank::casts(std::int32_t bucket) const {
    const DType dtype = arranged_.buckets[static_cast<std::size_t>(bucket)].dtype;
    return comm_hook_ != CommHook::none && element_size(dtype) > Bytes{2};
}

DType GpuRank::wire_dtype(std::int32_t bucket) const {
    return casts(bucket) ? dtype_of(comm_hook_)
                         : arranged_.buckets[static_cast<std::size_t>(bucket)].dtype;
}

// DDP divides on the way into the bucket; a hook divides when it casts.
void GpuRank::copy_in(std::int32_t gradient) {
    const Gradient& g = workload_.gradients[static_cast<std::size_t>(gradient)];
    const bool hook_divides =
        step_.sync.comm_hook != CommHook::none && element_size(g.dtype) > Bytes{2};
    const std::byte* from = buffers_.gradient(gradient);
    std::byte* to = buffers_.place_in_bucket(gradient);
    if (from != to || !hook_divides) {
        launch_copy(compute_.get(), to, g.dtype, from, g.dtype, g.numel,
                    hook_divides ? 1.0 : mean_factor());
    }
}

void GpuRank::copy_back(std::int32_t gradient) {
    const Gradient& g = workload_.gradients[static_cast<std::size_t>(gradient)];
    launch_copy(compute_.get(), buffers_.gradient(gradient), g.dtype,
                buffers_.place_in_bucket(gradient), g.dtype, g.numel, 1.0);
}

void GpuRank::pack(std::int32_t bucket) {
    const ChunkTable& chunks = bucket_chunks_[static_cast<std::size_t>(bucket)];
    launch_pack(compute_.get(), chunks.data(), chunks.count(), wire_dtype(bucket),
                arranged_.buckets[static_cast<std::size_t>(bucket)].dtype, mean_factor());
}

void GpuRank::unpack(std::int32_t bucket) {
    const ChunkTable& chunks = bucket_chunks_[static_cast<std::size_t>(bucket)];
    launch_unpack(compute_.get(), chunks.data(), chunks.count(),
                  arranged_.buckets[static_cast<std::size_t>(bucket)].dtype, wire_dtype(bucket),
                  1.0);
}

void GpuRank::cast_down(std::int32_t bucket) {
    const Bucket& b = step_.plan->buckets[static_cast<std::size_t>(bucket)];
    launch_copy(compute_.get(), buffers_.compressed(bucket), wire_dtype(bucket),
                buffers_.bucket(bucket), b.dtype, numel_of(b), mean_factor());
}

void GpuRank::cast_up(std::int32_t bucket) {
    const Bucket& b = step_.plan->buckets[static_cast<std::size_t>(bucket)];
    launch_copy(compute_.get(), buffers_.bucket(bucket), b.dtype, buffers_.compressed(bucket),
                wire_dtype(bucket), numel_of(b), 1.0);
}

void GpuRank::copy_buffers(std::int32_t group) {
    const auto index = static_cast<std::size_t>(group);
    check_gpu(cudaMemcpyAsync(module_buffers_[index].at(0), broadcast_[index].at(0),
                              static_cast<std::size_t>(broadcast_[index].size_bytes()),
                              cudaMemcpyDeviceToDevice, compute_.get()),
              "cudaMemcpyAsync");
}

// The communication stream waits for what has been launched so far, as DDP's does.
void GpuRank::launch(std::int32_t collective) {
    const CollectiveEvents& events = collectives_[static_cast<std::size_t>(collective)];
    events.launched.record(compute_);
    events.launched.hold_up(messages_.stream());
    stamp(events.begin, messages_.stream());
    if (step_.communicate == Communicate::yes) {
        put_collective(collective);
    }
    stamp(events.end, messages_.stream());
    events.done.record(messages_.stream());
}

void GpuRank::put_collective(std::int32_t collective) {
    const Collective& c = step_.program->collectives[static_cast<std::size_t>(collective)];
    const GpuStream& stream = messages_.stream();
    if (c.kind == CollectiveKind::broadcast) {
        // Broadcasts open a step, one per buffer group in order.
        std::byte* data = broadcast_[static_cast<std::size_t>(collective)].at(0);
        return communicator().broadcast_from_first(data, c.bytes, stream);
    }
    invariant(c.kind == CollectiveKind::all_reduce, "a step broadcasts and all-reduces");
    if (!c.bucket) {
        return communicator().all_reduce(unused_map_.at(0), c.bytes.count / float_bytes,
                                         DType::float32, Reduction::sum, stream);
    }
    const Bucket& bucket = step_.plan->buckets[static_cast<std::size_t>(*c.bucket)];
    const bool compressed = casts(*c.bucket);
    std::byte* data = compressed ? buffers_.compressed(*c.bucket) : buffers_.bucket(*c.bucket);
    // Where no copy divides, NCCL does.
    const bool averages = !step_.sync.copies_in && !compressed;
    communicator().all_reduce(data, numel_of(bucket), wire_dtype(*c.bucket),
                              averages ? Reduction::mean : Reduction::sum, stream);
}

void GpuRank::wait_for(std::int32_t collective) {
    collectives_[static_cast<std::size_t>(collective)].done.hold_up(compute_);
}

// Each collective may take as long as the deadline, and so may what comes after the last.
void GpuRank::finish(const Program& program) {
    if (as_graph_) {
        // Its events tell nothing before they have been recorded, so all of it is waited for at
        // once.
        PatientWait(communicator(), program.collectives.size() + 1)
            .until([&] { return end_.has_happened() && messages_.stream().is_idle(); }, "a step");
        return;
    }
    PatientWait wait(communicator());
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        wait.until([&] { return end_.has_happened() || collectives_[i].end.has_happened(); },
                   "a collective of a step");
    }
    wait.until([&] { return end_.has_happened() && messages_.stream().is_idle(); }, "a step");
}

void GpuRank::read_stamps(const Program& program, StepTrace& trace) const {
    const std::vector<bool> is_stamped = stamped(program);
    Duration now{0};
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Duration before = now;
        if (is_stamped[i]) {
            now = std::max(now, between(start_, stamps_[i]));
        }
        trace.instructions.push_back({before, now});
    }
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        trace.collectives.push_back(
            {between(start_, collectives_[i].begin), between(start_, collectives_[i].end)});
    }
}

// --- each instruction by itself ---

void GpuRank::calibrate() {
    kernels_.calibrate();
    stamp_time_ = time_of_a_stamp(compute_, head_start_, scratch_);
}

// So many instructions from `begin` on as may be launched ahead at once.
std::size_t GpuRank::end_of_batch(const Program& program, std::size_t begin) const {
    std::size_t launches = 0;
    std::size_t end = begin;
    while (end < program.instructions.size()) {
        launches += launches_of(program.instructions[end]);
        if (end > begin && launches > HeadStart::most_launches) {
            break;
        }
        ++end;
    }
    return end;
}

// At most, with the stamp behind it.
std::size_t GpuRank::launches_of(const Instruction& instruction) const {
    constexpr std::size_t operation_and_stamp = 4;
    if (instruction.kind != InstructionKind::backward) {
        return operation_and_stamp;
    }
    return operation_and_stamp +
           kernel_plan_.backward[static_cast<std::size_t>(instruction.subject)].gradients.size();
}

std::optional<StepTrace> GpuRank::run_each(const Program& program, const SyncSettings& sync,
                                           const BucketPlan& plan, std::int64_t step) {
    begin_step(program, sync, plan, step, Communicate::for_free);
    StepTrace trace;
    trace.collectives.resize(program.collectives.size());
    Duration now{0};
    const std::vector<Instruction>& all = program.instructions;
    for (std::size_t begin = 0; begin < all.size();) {
        const std::size_t end = end_of_batch(program, begin);
        {
            // More than the GPU's queue holds could not be launched ahead.
            constexpr std::size_t most = std::size_t{3} * HeadStart::most_launches;
            std::optional<HeadStart::Hold> hold;
            if (launches_of(all[begin]) <= most) {
                hold.emplace(head_start_, compute_);
            }
            start_.record(compute_);
            for (std::size_t i = begin; i < end; ++i) {
                const Clock::time_point issued = Clock::now();
                if (is_compute(all[i].kind)) {
                    execute(all[i]);
                }
                trace.launches.push_back(
                    std::chrono::duration_cast<Duration>(Clock::now() - issued));
                if (is_compute(all[i].kind)) {
                    stamps_[i].record(compute_);
                }
            }
        }
        PatientWait(communicator()).until([&] { return compute_.is_idle(); }, "a step");
        head_start_.check();
        const GpuEvent* before = &start_;
        for (std::size_t i = begin; i < end; ++i) {
            const Duration begun = now;
            if (is_compute(all[i].kind)) {
                now += std::max(Duration{1}, between(*before, stamps_[i]) - stamp_time_);
                before = &stamps_[i];
            }
            trace.instructions.push_back({begun, now});
        }
        begin = end;
    }
    return trace;
}

// --- checking ---

StepCheck GpuRank::check() {
    const int ranks = communicator().ranks();
    std::vector<double> tolerances;
    for (const Gradient& gradient : workload_.gradients) {
        const bool hooked =
            step_.sync.comm_hook != CommHook::none && element_size(gradient.dtype) > Bytes{2};
        tolerances.push_back(rounding_tolerance(
            ranks, accumulation_, hooked ? dtype_of(step_.sync.comm_hook) : gradient.dtype));
    }
    StepCheck check = checks_.check(
        double{value_scale_} * mean_rank_value(ranks, step_.number, accumulation_), tolerances);
    if (step_.sync.reduces_unused_map) {
        std::vector<float> map(workload_.gradients.size());
        unused_map_.copy_out(map.data(), 0, unused_map_.size_bytes());
        for (std::size_t i = 0; i < map.size(); ++i) {
            if (map[i] != static_cast<float>(ranks) && check.wrong.empty()) {
                check.wrong = fmt::format("map of used parameters, element {}: expected {}, got {}",
                                          i, ranks, map[i]);
            }
        }
    }
    return check;
}

// --- all-reduces, alone and beside backward ---

AllReduceTrace GpuRank::all_reduce(const Message& message, std::int64_t iterations) {
    return messages_.all_reduce(message, iterations);
}

std::vector<Duration> GpuRank::repeat(const Message& message, std::int64_t iterations,
                                      const std::function<void()>& waiting) {
    return messages_.repeat(message, iterations, waiting);
}

namespace {

// Every operation of backward, once.
Program program_of_backward(std::size_t operations) {
    Program program;
    for (std::size_t i = 0; i < operations; ++i) {
        program.instructions.push_back({.kind = InstructionKind::backward,
                                        .phase = Phase::backward,
                                        .subject = static_cast<std::int32_t>(i)});
    }
    return program;
}

}  // namespace

// Over and over for as long as contend() will, after a pass that warms up. Medians, as one
// interruption would else count in every comparison.
std::vector<Duration> GpuRank::backward_alone() {
    constexpr std::chrono::milliseconds enough{100};
    constexpr std::size_t most_passes = 100;
    std::vector<std::vector<Duration>> samples(workload_.backward.size());
    const Program program = program_of_backward(samples.size());
    const Clock::time_point start = Clock::now();
    for (std::size_t pass = 0; pass < 3 || (pass < most_passes && Clock::now() - start < enough);
         ++pass) {
        if (pass == 0) {
            // Launched once before anything is launched ahead.
            for (std::size_t i = 0; i < samples.size(); ++i) {
                kernels_.backward(static_cast<std::int32_t>(i), 1.0F, false);
            }
            PatientWait(communicator()).until([&] { return compute_.is_idle(); }, "backward");
            continue;
        }
        const std::optional<StepTrace> trace = run_each(program, {}, {}, 0);
        for (std::size_t i = 0; i < samples.size(); ++i) {
            samples[i].push_back(trace->instructions[i].length());
        }
    }
    std::vector<Duration> medians;
    for (std::vector<Duration>& of_operation : samples) {
        const auto middle = of_operation.begin() + std::ssize(of_operation) / 2;
        std::nth_element(of_operation.begin(), middle, of_operation.end());
        medians.push_back(*middle);
    }
    return medians;
}

ContentionTrace GpuRank::contend(const Message& message, std::int64_t iterations,
                                 const std::vector<Duration>& alone) {
    messages_.prepare(message);
    const Load all_reduces{messages_.stream(), [&](std::size_t) { messages_.launch(message); }};
    const Load backward{compute_, [&](std::size_t operation) {
                            kernels_.backward(static_cast<std::int32_t>(operation), 1.0F, false);
                        }};
    OperationsAlone operations{.times = alone};
    for (const KernelCall& call : kernel_plan_.backward) {
        operations.are_products.push_back(call.product.has_value());
    }
    const RanTogether ran = run_together(communicators_.with_ctas(message.ctas), all_reduces,
                                         iterations, backward, alone.size());
    return contention_of(ran, operations, stamp_time_);
}

}  // namespace bucketwise
