// A profiler trace made from a known step: what Kineto would write of a DDP step whose every time
// is given here, in the formats it has had over the years.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/json.h"

namespace bucketwise {

struct TraceShape {
    std::int64_t steps = 3;
    std::int64_t rank = 0;
    std::int64_t ranks = 2;
    std::vector<std::int64_t> gradients{1000, 300'000, 200'000, 500};  // elements, by readiness
    std::vector<std::size_t> bucket_ends{2, 4};                        // gradients before each end
    double host_us = 50;                                               // between two launches
    double kernel_us = 10;                                             // each
    double copy_us = 4;                    // each, into a bucket or out of one
    double wire_us = 100;                  // each all-reduce
    double arrives_us = 0;                 // later than the other ranks, before every all-reduce
    std::vector<double> lateness_us = {};  // the same, step by step
    std::int64_t forward_kernels = 4;
    std::int64_t backwards = 1;  // micro-steps
    std::int64_t buffers = 0;    // of 16 floats
    double clock_us = 0;         // added to every time
    bool shapes = true;          // record_shapes
    bool copies_back = true;     // no: gradient_as_bucket_view
    bool collective_args = true;
    bool kernel_collective_args = false;
    bool collective_ops = true;  // c10d::allreduce_ around record_param_comms
    bool profiler_steps = true;
    bool optimizer_annotations = true;
    bool old_categories = false;  // "Kernel", "Operator", before PyTorch 1.12
    bool other_group = false;     // small all-reduces of another process group, in backward
    bool distributed_info = true;
    bool device = true;
    std::string dtype = "Float";
    bool hook = false;                // gradients are cast into their buckets
    bool accumulated_shapes = false;  // AccumulateGrad says what it took
    bool unnamed_reducer = false;     // copies into buckets are aten::mul
    bool list_shapes = false;      // collectives take lists of tensors, annotations say their shape
    bool inner_module = false;     // wrapped, too: its forward is within the other's
    bool stray_gradient = false;   // of a parameter that is not wrapped, before the others
    bool tensor_parallel = false;  // large all-reduces of another group within layers
    std::string layer_collective = "allreduce";  // what tensor parallel layers do
    // How long such collectives, also in forward, run on a stream of their own, for which the
    // compute stream waits; 0: 1 us among the gradients', for which nothing waits.
    double layer_us = 0;
    double transfer_us = 0;     // a stage of a pipeline: receives before each pass, sends after it
    bool scatters = false;      // buckets are reduce-scattered in the group "shard"
    bool replicas = false;      // and then what is left all-reduced in the group "replica"
    std::string sharding = {};  // an annotation around forward: "FSDP::pre_forward"
    std::int64_t compiled_pieces = 0;     // CompiledFunctionBackward, each of as many gradients
    std::int64_t graph_kernels = 0;       // in forward, launched by one cudaGraphLaunch
    bool accumulates = true;              // no: AccumulateGrad is not seen
    bool fp8 = false;                     // forward is of scaled matrix products
    bool checkpointing = false;           // a wrapped module runs forward again in backward
    std::int64_t recomputed_kernels = 0;  // before each gradient's own backward runs forward again
    bool differentiable = false;          // backward itself is recorded by autograd
    bool batched_copies = false;          // a bucket is copied and divided at once, and copied back
    bool coalesced = false;               // gradients' all-reduces are of several tensors at once
    double idle_us = 0;                   // before forward's second kernel the host does nothing
    bool loads_data = false;              // but to wait for DataLoader
    std::string idle_in = {};             // and is in an operation of this name
    double others_us = 0;                 // in forward the host waits for an all-to-all
    double stall_us = 0;                  // in forward the device does, for one that takes so long
    // In forward, after its first kernel, three kernels as long on a stream of their own. The first
    // waits for the compute stream, which waits for the last before backward.
    double beside_us = 0;
    double input_us = 0;  // before forward the compute stream waits for a copy on a third stream
    bool reads_loss = false;       // after forward, by the host
    bool reads_norm = false;       // the same in the optimizer
    bool generic_kernels = false;  // RCCL's
    bool no_sync = false;          // gradients are neither copied nor reduced
    // How many times as long kernels take while all-reduces run: those of odd gradients, and of
    // even ones, which then are matrix products.
    double slowdown = 1;
    double product_slowdown = 1;
    std::int64_t blocks = 0;   // of NCCL's kernels; 0: not said
    bool copies_wait = false;  // calls that copy to the host, without a synchronisation
};

class SyntheticTrace {
  public:
    explicit SyntheticTrace(TraceShape shape) : shape_(std::move(shape)) {}

    Json events() {
        for (std::int64_t step = 0; step < shape_.steps; ++step) {
            write_step(step);
        }
        return std::move(events_);
    }

    Json document() {
        Json document{{"schemaVersion", 1},
                      {"displayTimeUnit", "ms"},
                      {"traceName", "t.json"},
                      {"baseTimeNanoseconds", 1711964646000000000}};
        if (shape_.device) {
            document["deviceProperties"] = {{{"id", 0}, {"name", "NVIDIA Test"}}};
        }
        if (shape_.distributed_info) {
            document["distributedInfo"] = {{"backend", "nccl"},
                                           {"rank", shape_.rank},
                                           {"world_size", shape_.ranks},
                                           {"nccl_version", "2.17.1"}};
        }
        document["traceEvents"] = events();
        return document;
    }

    // The time of a step, from its begin to the next one's.
    [[nodiscard]] double step_us() const { return step_us_; }
    // The same on the device, from the end of its work to the end of the next one's.
    [[nodiscard]] double device_step_us() const { return compute_free_ - device_before_; }
    // When the all-reduces of the last step begin on the device.
    [[nodiscard]] const std::vector<double>& starts_us() const { return starts_us_; }

  private:
    static constexpr int main_thread = 100;
    static constexpr int autograd_thread = 101;
    static constexpr int compute = 7;
    static constexpr int communication = 20;
    static constexpr int all_to_all = 21;
    static constexpr int layers = 22;
    static constexpr int transfers = 23;
    static constexpr int side = 24;
    static constexpr int input_copies = 25;
    static constexpr double call_us = 5;  // a launch

    [[nodiscard]] std::string category(const std::string& name) const {
        if (!shape_.old_categories) {
            return name;
        }
        return name == "cpu_op"         ? "Operator"
               : name == "kernel"       ? "Kernel"
               : name == "cuda_runtime" ? "Runtime"
               : name == "gpu_memcpy"   ? "Memcpy"
                                        : name;
    }

    void add(const std::string& category_name, const std::string& name, int process, int thread,
             double begin, double duration, Json args = Json::object()) {
        events_.push_back({{"ph", "X"},
                           {"cat", category(category_name)},
                           {"name", name},
                           {"pid", process},
                           {"tid", thread},
                           {"ts", begin + shape_.clock_us},
                           {"dur", duration},
                           {"args", std::move(args)}});
    }

    // The host takes host_us until the launch is made; the device runs in order.
    void launch(const std::string& name, double duration, int stream = compute, Json args = {}) {
        const bool copies = name.rfind("Memcpy", 0) == 0;
        host_ += shape_.host_us;
        if (!shape_.device) {
            return;
        }
        ++correlation_;
        const std::int64_t external = stream == compute ? 0 : external_;  // 0: no operation's
        add("cuda_runtime", copies ? "cudaMemcpyAsync" : "cudaLaunchKernel", 1, thread_,
            host_ - call_us, call_us, {{"correlation", correlation_}, {"External id", external}});
        double& free = stream == compute ? compute_free_ : free_[stream];
        double begin = std::max(host_, free);
        if (stream != compute) {
            begin = std::max(begin, compute_free_);
        } else if (name.starts_with("backward")) {
            duration = beside_all_reduces(begin, duration, name == "backward_gemm");
        }
        free = begin + duration;
        if (args.is_null()) {
            args = Json::object();
        }
        args["correlation"] = correlation_;
        args["External id"] = external;
        args["stream"] = stream;
        add(copies ? "gpu_memcpy" : "kernel", name, 0, stream, begin, duration, std::move(args));
        last_begin_ = begin;
    }

    // Once they are done the rest of it goes on as fast as alone.
    double beside_all_reduces(double begin, double work, bool is_product) {
        const double slowdown = is_product ? shape_.product_slowdown : shape_.slowdown;
        const double both = std::max(free_[communication] - begin, 0.0);
        return work * slowdown <= both ? work * slowdown : both + work - both / slowdown;
    }

    void write_step(std::int64_t step) {
        const double begin = host_;
        device_before_ = compute_free_;
        thread_ = main_thread;
        arrives_us_ = shape_.lateness_us.empty()
                          ? shape_.arrives_us
                          : shape_.lateness_us[static_cast<std::size_t>(step)];
        starts_us_.clear();
        for (std::int64_t pass = 0; pass < shape_.backwards; ++pass) {
            thread_ = main_thread;
            const double forward = host_;
            if (pass == 0) {
                broadcast_buffers();
            }
            transfer("recv");
            copy_input();
            for (std::int64_t i = 0; i < shape_.forward_kernels; ++i) {
                be_idle(i);
                launch(shape_.fp8 ? "sm90_xmma_gemm_e4m3e4m3_kernel" : "forward_kernel",
                       shape_.kernel_us);
                if (shape_.tensor_parallel && shape_.layer_us > 0) {
                    reduce_layer();
                }
                if (i == 0) {
                    compute_beside();
                }
            }
            join_beside();
            launch_graph();
            transfer("send");
            wait_for_others();
            stall();
            if (shape_.reads_loss) {
                read_back();
            }
            if (!shape_.sharding.empty()) {
                add("user_annotation", shape_.sharding, 1, main_thread, forward, host_ - forward);
            }
            add("user_annotation", "DistributedDataParallel.forward", 1, main_thread, forward,
                host_ - forward);
            if (shape_.inner_module) {
                add("user_annotation", "DistributedDataParallel.forward", 1, main_thread,
                    forward + 1, 10);
            }
            thread_ = autograd_thread;
            backward(begin, pass + 1 == shape_.backwards && !shape_.no_sync);
        }
        thread_ = main_thread;
        const double optimizer = host_;
        if (shape_.reads_norm) {
            launch("norm_kernel", shape_.kernel_us);
            read_back();
        }
        launch("sgd_kernel", shape_.kernel_us);
        if (shape_.optimizer_annotations) {
            add("user_annotation", "Optimizer.step#SGD.step", 1, main_thread, optimizer,
                host_ - optimizer);
        }
        if (shape_.profiler_steps) {
            add("user_annotation", "ProfilerStep#" + std::to_string(step + 4), 1, main_thread,
                begin, host_ - begin);
        }
        step_us_ = host_ - begin;
    }

    void be_idle(std::int64_t kernel) {
        if (kernel == 1 && shape_.loads_data) {
            add("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                1, main_thread, host_, shape_.idle_us);
        }
        if (kernel == 1 && !shape_.idle_in.empty()) {
            add("cpu_op", shape_.idle_in, 1, main_thread, host_, shape_.idle_us);
        }
        host_ += kernel == 1 ? shape_.idle_us : 0;
    }

    // All that was launched before is done by then.
    void wait_for_others() {
        if (shape_.others_us == 0) {
            return;
        }
        launch("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", shape_.others_us,
               all_to_all);
        const double begin = host_;
        host_ = last_begin_ + shape_.others_us;
        add("cuda_runtime", "cudaStreamSynchronize", 1, thread_, begin, host_ - begin);
    }

    // The compute stream goes on when another stream's kernel has ended.
    void stall() {
        if (shape_.stall_us == 0) {
            return;
        }
        free_[all_to_all] = std::max(free_[all_to_all], compute_free_);
        launch("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", shape_.stall_us, all_to_all);
        compute_free_ = free_[all_to_all];
        launch("after_kernel", shape_.kernel_us);
    }

    // Once the copy stream is free, whatever computes.
    void copy_input() {
        if (shape_.input_us == 0) {
            return;
        }
        const double computed = std::exchange(compute_free_, 0);
        launch("Memcpy HtoD (Pinned -> Device)", shape_.input_us, input_copies, {{"bytes", 64}});
        compute_free_ = std::max(computed, free_[input_copies]);
    }
    void compute_beside() {
        for (int i = 0; shape_.beside_us > 0 && i < 3; ++i) {
            const double computed = i == 0 ? compute_free_ : std::exchange(compute_free_, 0);
            launch("side_kernel", shape_.beside_us, side);
            compute_free_ = computed;
        }
    }
    void join_beside() {
        if (shape_.beside_us > 0) {
            compute_free_ = std::max(compute_free_, free_[side]);
            launch("after_side_kernel", shape_.kernel_us);
        }
    }

    // As .item() does.
    void read_back() {
        if (shape_.copies_wait) {
            return copy_that_waits();
        }
        launch("Memcpy DtoH (Device -> Pageable)", 1, compute, {{"bytes", 4}});
        const double begin = host_;
        host_ = std::max(host_, compute_free_) + 4;
        add("cuda_runtime", "cudaStreamSynchronize", 1, thread_, begin, host_ - begin);
    }

    // The call of the copy itself waits.
    void copy_that_waits() {
        host_ += shape_.host_us;
        const double begin = host_ - call_us;
        const double copied = std::max(host_, compute_free_);
        compute_free_ = copied + 1;
        host_ = compute_free_ + 4;
        ++correlation_;
        const Json args{{"correlation", correlation_}, {"External id", external_}};
        add("cuda_runtime", "cudaMemcpyAsync", 1, thread_, begin, host_ - begin, args);
        Json copy = args;
        copy["stream"] = compute;
        copy["bytes"] = 4;
        add("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 0, compute, copied, 1, copy);
    }

    // The compute stream waits for the last launch, on a stream of its own.
    void compute_waits(double duration) {
        compute_free_ = std::max(compute_free_, last_begin_ + duration);
    }

    void reduce_layer() {
        if (shape_.layer_us == 0) {
            collective(shape_.layer_collective, "nccl:" + shape_.layer_collective, 5'000'000,
                       "Float", 1, "tensor");
            return;
        }
        collective(shape_.layer_collective, "nccl:" + shape_.layer_collective, 5'000'000, "Float",
                   shape_.layer_us, "tensor", layers);
        compute_waits(shape_.layer_us);
    }

    void transfer(const std::string& name) {
        if (shape_.transfer_us > 0) {
            collective(name, "nccl:" + name, 100'000, "Float", shape_.transfer_us, "pipeline",
                       transfers);
            if (name == "recv") {
                compute_waits(shape_.transfer_us);
            }
        }
    }

    // All kernels have the launch's correlation.
    void launch_graph() {
        if (shape_.graph_kernels == 0) {
            return;
        }
        host_ += shape_.host_us;
        ++correlation_;
        add("cuda_runtime", "cudaGraphLaunch", 1, thread_, host_ - call_us, call_us,
            {{"correlation", correlation_}, {"External id", external_}});
        compute_free_ = std::max(compute_free_, host_);
        for (std::int64_t i = 0; i < shape_.graph_kernels; ++i) {
            add("kernel", "graph_kernel", 0, compute, compute_free_, shape_.kernel_us,
                {{"correlation", correlation_}, {"External id", 0}, {"stream", compute}});
            compute_free_ += shape_.kernel_us;
        }
    }

    void broadcast_buffers() {
        if (shape_.buffers == 0) {
            return;
        }
        collective("broadcast", "nccl:broadcast", shape_.buffers * 16, "Float", 10);
        for (std::int64_t i = 0; i < shape_.buffers; ++i) {
            launch("Memcpy DtoD (Device -> Device)", 2, compute, {{"bytes", 64}});
        }
    }

    [[nodiscard]] Json kernel_args(const Json& said) const {
        Json args = shape_.kernel_collective_args ? said : Json::object();
        if (shape_.blocks > 0) {
            args["grid"] = Json::array({shape_.blocks, 1, 1});
        }
        return args;
    }

    void collective(const std::string& name, const std::string& annotation, std::int64_t elements,
                    const std::string& dtype, double wire_us, const std::string& group = "0",
                    int stream = communication) {
        const double begin = host_;
        ++external_;
        Json call{{"External id", external_}};
        Json said{{"Collective name", name},        {"dtype", dtype},
                  {"In msg nelems", elements},      {"Out msg nelems", elements},
                  {"Group size", shape_.ranks},     {"Process Group Name", group},
                  {"Process Group Ranks", "[0, 1]"}};
        if (shape_.collective_args) {
            call.update(said);
        }
        launch(stream == transfers      ? "ncclDevKernel_SendRecv(ncclDevComm*)"
               : shape_.generic_kernels ? "ncclDevKernel_Generic(ncclDevComm*)"
                                        : "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
               wire_us, stream, kernel_args(said));
        if (!shape_.device) {
            add("user_annotation", "gloo:" + annotation.substr(annotation.find(':') + 1), 1, 300,
                host_, wire_us);
        }
        if (shape_.collective_ops) {
            Json list = Json::object();
            if (shape_.list_shapes) {
                list = {{"Input Dims", Json::array({Json::array(), Json::array()})},
                        {"Input type", Json::array({"TensorList", "Scalar"})}};
            }
            add("cpu_op", "c10d::" + name + "_", 1, thread_, begin + 1, host_ + 3 - begin, list);
        }
        add("cpu_op", "record_param_comms", 1, thread_, begin + 2, host_ + 1 - begin, call);
        if (shape_.device) {
            Json shape = Json::object();
            if (shape_.list_shapes) {
                shape = {{"Input Dims", Json::array({Json::array({elements})})},
                         {"Input type", Json::array({"float"})}};
            }
            add("user_annotation", annotation, 1, thread_, begin + 3, host_ - begin - 3, shape);
        }
        host_ += 5;
    }

    void backward(double step_begin, bool synchronises) {
        add("cpu_op", "autograd::engine::evaluate_function: LossBackward0", 1, thread_, host_, 1);
        if (shape_.stray_gradient) {
            add("cpu_op", "torch::autograd::AccumulateGrad", 1, main_thread, host_ + 2, 4);
            host_ += 10;
        }
        transfer("recv");
        std::size_t bucket = 0;
        std::int64_t in_bucket = 0;
        for (std::size_t i = 0; i < shape_.gradients.size(); ++i) {
            launch_backward(i);
            if (shape_.tensor_parallel) {
                reduce_layer();
            }
            const double node = host_;
            host_ += 6;
            Json taken = Json::object();
            if (shape_.accumulated_shapes) {
                taken["Input Dims"] = Json::array({Json::array({shape_.gradients[i]})});
            }
            if (shape_.accumulates) {
                add("cpu_op", "torch::autograd::AccumulateGrad", 1, thread_, node + 1, 4, taken);
            }
            if (synchronises) {
                if (!shape_.batched_copies) {
                    copy_in(shape_.gradients[i]);
                }
                in_bucket += shape_.gradients[i];
                if (bucket < shape_.bucket_ends.size() && i + 1 == shape_.bucket_ends[bucket]) {
                    if (shape_.other_group) {
                        collective("allreduce", "nccl:all_reduce", 7, "Float", 1, "metrics");
                    }
                    host_ += arrives_us_;
                    reduce(in_bucket);
                    starts_us_.push_back(last_begin_ - step_begin);
                    in_bucket = 0;
                    ++bucket;
                }
            }
            if (shape_.accumulates) {
                add("cpu_op",
                    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 1,
                    thread_, node, host_ - node);
            }
        }
        transfer("send");
        if (synchronises && shape_.batched_copies) {
            compute_free_ = std::max(compute_free_, free_[communication]);
            for (std::size_t i = 0; i < shape_.bucket_ends.size(); ++i) {
                const double begin = host_;
                launch("multi_tensor_apply_kernel", shape_.copy_us);
                add("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad_batched", 1,
                    thread_, begin, host_ - begin);
            }
        } else if (synchronises && shape_.copies_back) {
            compute_free_ = std::max(compute_free_, free_[communication]);
            for (const std::int64_t elements : shape_.gradients) {
                const double begin = host_;
                launch("Memcpy DtoD (Device -> Device)", shape_.copy_us, compute,
                       {{"bytes", 4 * elements}});
                add("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", 1, thread_,
                    begin, host_ - begin);
            }
        }
    }

    // The kernels of gradient i; of a compiled piece, all at its first gradient.
    void launch_backward(std::size_t i) {
        if (shape_.checkpointing) {
            const double begin = host_;
            launch("forward_kernel", shape_.kernel_us);
            add("user_annotation", "DistributedDataParallel.forward", 1, thread_, begin + 1,
                host_ - begin - 1);
            add("cpu_op", "autograd::engine::evaluate_function: CheckpointFunctionBackward", 1,
                thread_, begin, host_ - begin);
        }
        if (shape_.recomputed_kernels > 0 || shape_.differentiable) {
            const double begin = host_;
            for (std::int64_t k = 0; k < shape_.recomputed_kernels; ++k) {
                launch_in("aten::linear", "forward_kernel", true);
            }
            launch_in("aten::mm", "backward_kernel", shape_.differentiable);
            add("cpu_op", "autograd::engine::evaluate_function: LinearBackward0", 1, thread_, begin,
                host_ - begin, {{"Fwd thread id", 1}, {"Sequence number", 3}});
            return;
        }
        if (shape_.compiled_pieces == 0) {
            const bool product = shape_.product_slowdown != 1 && i % 2 == 0;
            launch(product ? "backward_gemm" : "backward_kernel", shape_.kernel_us);
            return;
        }
        const auto gradients = static_cast<std::int64_t>(shape_.gradients.size());
        const std::int64_t in_piece = gradients / shape_.compiled_pieces;
        if (static_cast<std::int64_t>(i) % in_piece != 0) {
            return;
        }
        const double begin = host_;
        for (std::int64_t k = 0; k < in_piece; ++k) {
            launch("triton_kernel", shape_.kernel_us);
        }
        add("cpu_op", "autograd::engine::evaluate_function: CompiledFunctionBackward", 1, thread_,
            begin, host_ - begin);
    }

    // Within an operation, which autograd records if it is `recorded`.
    void launch_in(const std::string& operation, const std::string& kernel, bool recorded) {
        const double begin = host_;
        launch(kernel, shape_.kernel_us);
        Json args = Json::object();
        if (recorded) {
            args = {{"Fwd thread id", 0}, {"Sequence number", 7}};
        }
        add("cpu_op", operation, 1, thread_, begin + 1, host_ - begin - 1, args);
    }

    void reduce(std::int64_t elements) {
        const double wire_us = shape_.wire_us - arrives_us_;
        if (shape_.batched_copies) {
            copy_at_once(elements);
        }
        if (!shape_.scatters) {
            collective(shape_.coalesced ? "allreduce_coalesced" : "allreduce", "nccl:all_reduce",
                       elements, shape_.dtype, wire_us);
            return;
        }
        collective("_reduce_scatter_base", "nccl:_reduce_scatter_base", elements, shape_.dtype,
                   wire_us, "shard");
        if (shape_.replicas) {
            collective("allreduce", "nccl:all_reduce", elements / shape_.ranks, shape_.dtype,
                       wire_us, "replica");
        }
    }

    void copy_at_once(std::int64_t elements) {
        double begin = host_;
        launch("multi_tensor_apply_kernel", shape_.copy_us);
        add("cpu_op", "aten::_foreach_copy_", 1, thread_, begin, host_ - begin);
        begin = host_;
        launch("div_kernel", shape_.copy_us);
        add("cpu_op", "aten::div_", 1, thread_, begin, host_ - begin,
            {{"Input Dims", Json::array({Json::array({elements}), Json::array()})}});
    }

    void copy_in(std::int64_t elements) {
        const double begin = host_;
        launch("mul_kernel", shape_.copy_us);
        Json args = Json::object();
        if (shape_.shapes) {
            args["Input Dims"] = Json::array({Json::array({elements / 4, 4}), Json::array()});
        }
        add("cpu_op",
            shape_.unnamed_reducer ? "aten::mul"
            : !shape_.copies_back  ? "aten::div_"
            : shape_.hook          ? "torch::distributed::reducer::copy_"
                                   : "torch::distributed::reducer::mul_out",
            1, thread_, begin, host_ - begin, args);
    }

    TraceShape shape_;
    Json events_ = Json::array();
    double host_ = 1000;
    double compute_free_ = 0;
    std::map<int, double> free_;  // by stream, but for the compute stream
    double last_begin_ = 0;
    double arrives_us_ = 0;
    double step_us_ = 0;
    double device_before_ = 0;
    std::vector<double> starts_us_;
    int thread_ = main_thread;
    std::int64_t correlation_ = 0;
    std::int64_t external_ = 1000;
};

}  // namespace bucketwise
