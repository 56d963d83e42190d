// A profiler trace made from a simulated step of fully_shard: what Kineto would write on a GPU of a
// step whose every time is the simulator's, with the streams, annotations and collectives that
// FSDP2 has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/json.h"
#include "sim/predict/prediction.h"
#include "sim/sharding/sharded_input.h"

namespace bucketwise {

struct ShardedTraceShape {
    std::int64_t steps = 3;
    bool shapes = true;           // record_shapes
    bool collective_args = true;  // what calls say of themselves
    bool hooks = true;            // FSDP2's annotations
};

class WrittenShardedTrace {
  public:
    explicit WrittenShardedTrace(const ShardedInput& input, ShardedTraceShape shape = {})
        : shape_(shape),
          input_(input),
          plan_(make_shard_plan(input)),
          program_(sharded_program(input)),
          simulation_(sharded_simulation(input, program_)),
          hosts_(program_.instructions.size()),
          kernels_(program_.instructions.size()),
          wires_(program_.collectives.size()),
          open_(plan_.groups.size()) {
        for (const Span& span : simulation_.timeline.spans) {
            auto& spans = span.track == Track::host            ? hosts_
                          : span.track == Track::communication ? wires_
                                                               : kernels_;
            spans[static_cast<std::size_t>(span.subject)] = span;
        }
    }

    [[nodiscard]] Duration step() const { return simulation_.ranks.front().step(); }
    [[nodiscard]] const Program& program() const { return program_; }

    Json document() {
        events_ = Json::array();
        for (std::int64_t n = 0; n < shape_.steps; ++n) {
            base_us_ = 1e6 + static_cast<double>(n) * to_us(step());
            write_step(n);
        }
        return {{"schemaVersion", 1},
                {"deviceProperties", {{{"id", 0}, {"name", "NVIDIA Test"}}}},
                {"distributedInfo",
                 {{"backend", "nccl"},
                  {"rank", 0},
                  {"world_size", input_.step.group.ranks * input_.step.replicas.group.ranks},
                  {"nccl_version", "2.27.3"}}},
                {"traceEvents", std::move(events_)}};
    }

  private:
    static constexpr int main_thread = 100;
    static constexpr int autograd_thread = 101;
    static constexpr int compute = 7;
    static constexpr int copy_in = 20;
    static constexpr int after_scatter = 22;
    static constexpr int shard_group = 24;  // NCCL's own
    static constexpr int replica_group = 25;

    // --- events ---

    void add(const char* category, const std::string& name, int process, int thread,
             double begin_us, double duration_us, Json args = Json::object()) {
        events_.push_back({{"ph", "X"},
                           {"cat", category},
                           {"name", name},
                           {"pid", process},
                           {"tid", thread},
                           {"ts", base_us_ + begin_us},
                           {"dur", duration_us},
                           {"args", std::move(args)}});
    }

    void annotate(const std::string& name, double begin_us, double end_us) {
        if (shape_.hooks || !name.starts_with("FSDP::")) {
            add("user_annotation", name, 1, thread_, begin_us, end_us - begin_us);
        }
    }

    // A launch at the end of that time of the host, and what it launched.
    void launch(double from_us, double to_us, const std::string& kernel, int stream,
                double begin_us, double duration_us) {
        const double call_us = std::min(to_us - from_us, 1.0);
        ++correlation_;
        add("cuda_runtime", "cudaLaunchKernel", 1, thread_, to_us - call_us, call_us,
            {{"correlation", correlation_}});
        add("kernel", kernel, 0, stream, begin_us, duration_us,
            {{"correlation", correlation_}, {"stream", stream}});
    }

    [[nodiscard]] double host_begin(std::size_t i) const { return to_us(hosts_[i]->start); }
    [[nodiscard]] double host_end(std::size_t i) const { return to_us(hosts_[i]->end); }

    [[nodiscard]] std::string modules_of(std::size_t group) const {
        std::string modules;
        for (const std::string& module : plan_.groups[group].modules) {
            modules += (modules.empty() ? "" : ", ") + module;
        }
        return modules;
    }
    [[nodiscard]] std::string name_of(const std::string& hook, std::size_t group) const {
        return "FSDP::" + hook +
               (plan_.groups[group].is_root() ? "" : " (" + modules_of(group) + ")");
    }

    // --- a step ---

    void write_step(std::int64_t n) {
        thread_ = main_thread;
        const std::vector<Instruction>& all = program_.instructions;
        cursor_us_ = first_host_us();
        annotate("ProfilerStep#" + std::to_string(n), cursor_us_, cursor_us_ + to_us(step()));
        is_backward_ = false;
        entered_at_ = 0;
        finishes_us_ = -1;
        for (std::size_t i = 0; i < all.size();) {
            enter_phase(all[i]);
            i = write(i);
        }
        if (input_.step.step.sync_each_step) {
            const double end_us = first_host_us() + to_us(step());
            add("cuda_runtime", "cudaDeviceSynchronize", 1, thread_, cursor_us_,
                end_us - cursor_us_);
        }
    }

    [[nodiscard]] double first_host_us() const {
        return to_us(std::ranges::find_if(hosts_, [](const auto& host) { return host.has_value(); })
                         ->value()
                         .start);
    }

    void enter_phase(const Instruction& next) {
        if (next.phase == Phase::backward && !is_backward_) {
            leave_and_enter(plan_.forward, input_.step.workload.forward.size());
            is_backward_ = true;
            entered_at_ = 0;
            thread_ = autograd_thread;
            add("cpu_op", "autograd::engine::evaluate_function: LossBackward", 1, thread_,
                cursor_us_, 0);
        }
        if (next.phase == Phase::forward && (is_backward_ || cursor_us_ == first_host_us())) {
            finish_backward();
            thread_ = main_thread;
            is_backward_ = false;
            entered_at_ = 0;
            // After what is left of the micro-step before.
            annotate("FSDP::root_pre_forward", cursor_us_ + 0.01, cursor_us_ + 0.01);
        }
        if (next.phase == Phase::optimizer && is_backward_) {
            finish_backward();
            thread_ = main_thread;
            is_backward_ = false;
            const double end_us = host_end(program_.instructions.size() - 1);
            annotate("Optimizer.step#AdamW.step", cursor_us_, end_us);
        }
    }

    // The rest was written already.
    void finish_backward() {
        if (is_backward_) {
            const double begin_us = finishes_us_ < 0 ? cursor_us_ : finishes_us_;
            annotate("FSDP::root_post_backward_callback", begin_us, cursor_us_);
            finishes_us_ = -1;
        }
    }

    [[nodiscard]] const std::vector<GroupCall>& calls() const {
        return is_backward_ ? plan_.backward : plan_.forward;
    }

    // Events between two operations: before the operation `at`, once.
    void leave_and_enter(const std::vector<GroupCall>& calls, std::size_t at) {
        for (const GroupCall& call : calls) {
            if (call.end == at && at >= entered_at_) {
                annotate(
                    name_of(is_backward_ ? "post_backward_reshard" : "post_forward", call.group),
                    cursor_us_, cursor_us_);
                open_[call.group] = false;
            }
        }
        for (const GroupCall& call : calls) {
            if (call.first == at && at >= entered_at_) {
                annotate(name_of(is_backward_ ? "pre_backward" : "pre_forward", call.group),
                         cursor_us_, cursor_us_);
                open_[call.group] = true;
            }
        }
        entered_at_ = at + 1;
    }

    // The instruction, and those that belong to it. Returns the next one.
    std::size_t write(std::size_t i) {
        const Instruction& instruction = program_.instructions[i];
        switch (instruction.kind) {
            case InstructionKind::forward:
            case InstructionKind::backward:
                return write_operation(i);
            case InstructionKind::clip:
            case InstructionKind::optimizer:
                write_kernel(i, "multi_tensor_apply_kernel");
                return i + 1;
            case InstructionKind::wait:
                if (waits_for_buffer(i)) {
                    annotate("FSDP::post_backward_rs_wait ()", cursor_us_ - 0.02,
                             cursor_us_ - 0.01);
                }
                cursor_us_ = hosts_[i] ? host_end(i) : cursor_us_;
                return i + 1;
            case InstructionKind::copy:
                enter_next();
                if (instruction.copy.route == CopyRoute::gradients_to_reduced ||
                    instruction.copy.route == CopyRoute::shard_to_gathered ||
                    instruction.copy.route == CopyRoute::larger_shard_to_gathered) {
                    return write_collective(i);
                }
                annotate(
                    name_of("all_gather_copy_out", static_cast<std::size_t>(instruction.subject)),
                    host_begin(i), host_end(i));
                write_kernel(i, "split_with_sizes_copy_out_contiguous");
                return i + 1;
            case InstructionKind::launch:
                break;
        }
        enter_next();
        return write_collective(i);
    }

    // For a reduce-scatter, before another takes its buffer.
    [[nodiscard]] bool waits_for_buffer(std::size_t i) const {
        const auto scatters = [&](const Instruction& one) {
            return program_.collectives[static_cast<std::size_t>(one.subject)].kind ==
                   CollectiveKind::reduce_scatter;
        };
        const auto begin = program_.instructions.begin() + static_cast<std::ptrdiff_t>(i);
        return scatters(*begin) &&
               std::any_of(begin, program_.instructions.end(), [&](const Instruction& one) {
                   return one.kind == InstructionKind::launch && scatters(one);
               });
    }

    void write_kernel(std::size_t i, const std::string& name) {
        if (kernels_[i]) {
            launch(host_begin(i), host_end(i), name, compute, to_us(kernels_[i]->start),
                   to_us(kernels_[i]->end - kernels_[i]->start));
        }
        cursor_us_ = host_end(i);
    }

    // Before what belongs to the next operation, or to the end of all.
    void enter_next() {
        const std::size_t next = next_operation_;
        if (next < entered_at_) {
            return;
        }
        const std::size_t count = is_backward_ ? input_.step.workload.backward.size()
                                               : input_.step.workload.forward.size();
        if (next == count && is_backward_) {
            finishes_us_ = cursor_us_;
        }
        leave_and_enter(calls(), next);
    }

    std::size_t write_operation(std::size_t i) {
        const Instruction& instruction = program_.instructions[i];
        const auto operation = static_cast<std::size_t>(instruction.subject);
        if (operation == 0) {
            ready_ = 0;
        }
        next_operation_ = operation;
        enter_next();
        next_operation_ = operation + 1;
        write_kernel(i, "gemm_" + std::to_string(operation));
        if (is_backward_) {
            add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 1, thread_,
                host_begin(i), host_end(i) - host_begin(i));
            const Workload& workload = input_.step.workload;
            for (std::int32_t k = 0; k < workload.backward[operation].ready_count; ++k) {
                write_ready(
                    workload.gradients[static_cast<std::size_t>(workload.readiness[ready_++])]);
            }
        }
        const bool ends = operation + 1 == (is_backward_ ? input_.step.workload.backward.size()
                                                         : input_.step.workload.forward.size());
        if (ends && is_backward_) {
            enter_next();
        }
        if (ends) {
            next_operation_ = 0;
        }
        return i + 1;
    }

    void write_ready(const Gradient& gradient) {
        Json args = Json::object();
        if (shape_.shapes) {
            const std::int64_t rows = gradient.rows > 0 ? gradient.rows : gradient.numel;
            args = {{"Input Dims", {{rows, gradient.numel / rows}}}, {"Input type", {"float"}}};
        }
        add("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 1,
            thread_, cursor_us_, 0);
        add("cpu_op", "torch::autograd::AccumulateGrad", 1, thread_, cursor_us_, 0,
            std::move(args));
    }

    // With its copy in before it, and the all-reduce of what it leaves.
    std::size_t write_collective(std::size_t i) {
        const std::vector<Instruction>& all = program_.instructions;
        const double begin_us = host_begin(i);
        const std::size_t first = all[i].kind == InstructionKind::launch ? i : i + 1;
        std::size_t end = first + 1;
        const Collective& collective = of(first);
        const auto group = static_cast<std::size_t>(collective.shards()->group);
        const bool gathers = collective.kind == CollectiveKind::all_gather;
        while (!gathers && end < all.size() && all[end].kind == InstructionKind::launch &&
               of(end).kind == CollectiveKind::all_reduce) {
            ++end;
        }
        if (gathers && !open_[group]) {
            const std::string pass = is_backward_ ? "backward" : "forward";
            annotate("FSDP::" + pass + "_prefetch for " + modules_of(group), begin_us,
                     host_end(end - 1));
        }
        annotate(name_of(gathers ? "all_gather" : "post_backward_reduce", group), begin_us,
                 host_end(end - 1));
        if (first != i) {
            write_kernel(i, "chunk_cat_cuda_kernel");
        }
        for (std::size_t k = first; k < end; ++k) {
            write_call(k);
        }
        return end;
    }

    [[nodiscard]] const Collective& of(std::size_t launch) const {
        return program_
            .collectives[static_cast<std::size_t>(program_.instructions[launch].subject)];
    }

    void write_call(std::size_t i) {
        const Collective& collective = of(i);
        const Span& wire = *wires_[static_cast<std::size_t>(program_.instructions[i].subject)];
        const ShardGroup& group =
            plan_.groups[static_cast<std::size_t>(collective.shards()->group)];
        const bool gathers = collective.kind == CollectiveKind::all_gather;
        const bool scatters = collective.kind == CollectiveKind::reduce_scatter;
        const DType dtype = gathers ? group.gathered_dtype : group.reduced_dtype;
        const std::int64_t whole = collective.bytes.count / element_size(dtype).count;
        const bool from_few = gathers && is_backward_ && !group.is_root();
        const std::int64_t shards =
            from_few ? input_.request.reshard_ranks.value_or(input_.step.group.ranks)
                     : input_.step.group.ranks;
        const std::int64_t ranks = gathers || scatters ? shards : input_.step.replicas.group.ranks;
        const char* const call = gathers    ? "_allgather_base"
                                 : scatters ? "_reduce_scatter_base"
                                            : "allreduce";
        const double begin = host_begin(i);
        const double end = host_end(i);
        if (const Duration copies = program_.instructions[i].device; copies > Duration{0}) {
            launch(begin, begin + 0.1, "copy_in_kernel", copy_in, to_us(wire.start - copies),
                   to_us(copies));
        }
        Json said{{"Collective name", call},
                  {"dtype", dtype == DType::float32 ? "Float" : "BFloat16"},
                  {"In msg nelems", gathers ? whole / ranks : whole},
                  {"Out msg nelems", scatters ? whole / ranks : whole},
                  {"Group size", ranks},
                  {"Process Group Name", gathers || scatters ? "1" : "2"}};
        Json shapes = Json::object();
        if (shape_.shapes) {
            shapes = {{"Input Dims", {{scatters ? whole / ranks : whole}}},
                      {"Input type", {dtype == DType::float32 ? "float" : "c10::BFloat16"}}};
        }
        const std::string op = std::string("c10d::") + call + "_";
        add("cpu_op", op, 1, thread_, begin + 0.2, end - begin - 0.3, std::move(shapes));
        add("cpu_op", "record_param_comms", 1, thread_, begin + 0.3, end - begin - 0.5,
            shape_.collective_args ? std::move(said) : Json::object());
        launch(end - 0.6, end - 0.3,
               gathers    ? "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
               : scatters ? "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage)"
                          : "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)",
               gathers || scatters ? shard_group : replica_group, to_us(wire.start),
               to_us(wire.end - wire.start));
        if (collective.placing > Duration{0}) {
            launch(end - 0.05, end, "cast_kernel", after_scatter, to_us(wire.end),
                   to_us(collective.placing));
        }
        cursor_us_ = end;
    }

    ShardedTraceShape shape_;
    const ShardedInput& input_;
    ShardPlan plan_;
    Program program_;
    Simulation simulation_;
    std::vector<std::optional<Span>> hosts_;  // by instruction
    std::vector<std::optional<Span>> kernels_;
    std::vector<std::optional<Span>> wires_;  // by collective
    std::vector<bool> open_;                  // groups that were entered and not left
    Json events_;
    int thread_ = main_thread;
    double base_us_ = 0;
    double cursor_us_ = 0;     // of the host
    double finishes_us_ = -1;  // autograd has ended
    bool is_backward_ = false;
    std::size_t entered_at_ = 0;
    std::size_t next_operation_ = 0;
    std::size_t ready_ = 0;
    std::int64_t correlation_ = 0;
};

}  // namespace bucketwise
