#include "sim/workload/batch_norm_layer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/dtype.h"
#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

constexpr Bytes float_size{4};
constexpr Bytes double_size{8};
constexpr Bytes integer_size{8};

class Recorder {
  public:
    explicit Recorder(const BatchNormLayer& layer)
        : layer_(layer), matrix_(layer.rows * layer.channels), vector_(layer.channels) {}

    std::vector<LayerEvent> record() && {
        if (const auto sync = real_layer_of(layer_.system)) {
            own_layer(*sync);
        } else if (layer_.system == BatchNormSystem::pytorch) {
            pytorch_forward();
        } else {
            selfmade_forward();
        }
        return std::move(events_);
    }

  private:
    using Kind = LayerEvent::Kind;

    void allocate(std::string name, std::int64_t elements, Bytes element = float_size) {
        events_.push_back(
            {.kind = Kind::allocate, .name = std::move(name), .size = elements * element});
    }
    void release(std::string name) {
        events_.push_back({.kind = Kind::release, .name = std::move(name)});
    }
    void kernel(std::string name, std::int64_t elements) {
        events_.push_back({.kind = Kind::kernel, .name = std::move(name), .elements = elements});
    }
    void collective(std::string name, const Exchange& exchange) {
        events_.push_back(
            {.kind = Kind::collective, .name = std::move(name), .exchange = exchange});
    }
    // Reads and writes equally many elements; the result is a new tensor.
    void operation(const std::string& name, std::int64_t elements) {
        allocate(name, elements);
        kernel(name, 2 * elements);
    }

    // hw/batch_norm/sync_batch_norm.cpp, line by line.
    void own_layer(BatchNormSync sync) {
        allocate("input", matrix_);
        if (layer_.passes == BatchNormPasses::both) {
            allocate("output gradient", matrix_);
        }
        for (const char* name : {"weight", "bias", "running mean", "running variance"}) {
            allocate(name, vector_);
        }
        own_forward(sync);
        if (layer_.passes == BatchNormPasses::both) {
            own_backward(sync);
        }
    }

    void own_forward(BatchNormSync sync) {
        allocate("mean", vector_);
        allocate("inverse deviation", vector_);
        allocate("rows", 1);
        const std::int64_t row = 2 * vector_ + 1;
        if (sync == BatchNormSync::gather) {
            allocate("own statistics", row);
            kernel("local statistics", matrix_ + row);
            allocate("all statistics", layer_.ranks * row);
            collective("all-gather", forward_exchange(sync, vector_));
            release("own statistics");
            kernel("combine", layer_.ranks * row + 6 * vector_);
            release("all statistics");
        } else {
            allocate("sums", row, double_size);
            kernel("local sums", matrix_ + 2 * row);
            collective("all-reduce", forward_exchange(sync, vector_));
            kernel("statistics", 2 * row + 6 * vector_);
            release("sums");
        }
        allocate("output", matrix_);
        kernel("normalise", 2 * matrix_ + 4 * vector_);
    }

    void own_backward(BatchNormSync sync) {
        allocate("weight gradient", vector_);
        allocate("bias gradient", vector_);
        allocate("gradient sums", 2 * vector_);
        kernel("gradient sums", 2 * matrix_ + 6 * vector_);
        collective("all-reduce", backward_exchange(sync, vector_));
        allocate("input gradient", matrix_);
        kernel("input gradients", 3 * matrix_ + 5 * vector_);
    }

    // torch/nn/modules/_functions.py of PyTorch 1.13, SyncBatchNorm.forward over NCCL, for a module
    // without weight and bias. Names are those of Python variables; binding a variable anew
    // releases its tensor.
    void pytorch_forward() {
        const std::int64_t row = 2 * vector_ + 1;
        const std::int64_t ranks = layer_.ranks;
        allocate("input", matrix_);
        allocate("running_mean", vector_);
        allocate("running_var", vector_);
        allocate("num_batches_tracked", 1, integer_size);
        kernel("num_batches_tracked.add_", 1);
        allocate("local mean", vector_);
        allocate("local invstd", vector_);
        kernel("batch_norm_stats", matrix_ + 2 * vector_);
        allocate("count", 1);
        kernel("full", 1);
        allocate("local combined", row);
        kernel("cat", 2 * row);
        allocate("combined", ranks * row);
        collective("all_gather_into_tensor",
                   {CollectiveKind::all_gather, row * float_size, DType::float32});
        release("local combined");
        allocate("mask", ranks, Bytes{1});
        kernel("ge", ranks);
        masked("count_all", ranks);
        masked("mean_all", ranks * vector_);
        masked("invstd_all", ranks * vector_);
        allocate("mean", vector_);
        allocate("invstd", vector_);
        kernel("batch_norm_gather_stats_with_counts", 2 * ranks * vector_ + 6 * vector_);
        release("local mean");
        release("local invstd");
        allocate("count as int32", ranks);
        kernel("to", 2 * ranks);
        allocate("output", matrix_);
        kernel("batch_norm_elemt", 2 * matrix_ + 2 * vector_);
    }

    // tensor[mask]: nonzero() counts, copies the number to the host, which needs it to allocate,
    // and selects; index() copies (aten/src/ATen/native/cuda/Nonzero.cu).
    void masked(const std::string& name, std::int64_t elements) {
        kernel("count of nonzero", layer_.ranks);
        events_.push_back({.kind = Kind::copy_to_host, .name = "number of nonzero"});
        allocate("indices", layer_.ranks, integer_size);
        for (const char* step : {"scan", "select", "indices"}) {
            kernel(step, layer_.ranks);
        }
        allocate(name, elements);
        kernel("index", 2 * elements);
        release("indices");
    }

    // A layer written formula by formula: each line is a tensor operation, and a variable holds its
    // result until the function ends. All ranks have equally many rows, so no count is sent.
    void selfmade_forward() {
        allocate("input", matrix_);
        for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
            allocate(name, vector_);
        }
        allocate("num_batches_tracked", 1, integer_size);
        kernel("num_batches_tracked.add_", 1);
        operation("squares", matrix_);
        allocate("sum", vector_);
        kernel("sum", matrix_);
        allocate("sum of squares", vector_);
        kernel("sum of squares", matrix_);
        allocate("sums", 2 * vector_);
        kernel("cat", 4 * vector_);
        release("sum");
        release("sum of squares");
        collective("all_reduce",
                   {CollectiveKind::all_reduce, 2 * vector_ * float_size, DType::float32});
        selfmade_statistics();
        for (const char* name : {"centred", "normalised", "scaled", "output"}) {
            operation(name, matrix_);
        }
    }

    // mean = sum / n; variance = sum of squares / n - mean^2; deviation = sqrt(variance + epsilon);
    // running statistics in place.
    void selfmade_statistics() {
        operation("mean", vector_);
        operation("mean of squares", vector_);
        release("sums");
        operation("squared mean", vector_);
        operation("variance", vector_);
        release("mean of squares");
        release("squared mean");
        operation("variance + epsilon", vector_);
        operation("deviation", vector_);
        release("variance + epsilon");
        for (const char* name :
             {"running_mean.mul_", "running_mean.add_", "running_var.mul_", "running_var.add_"}) {
            kernel(name, 2 * vector_);
        }
        release("variance");
    }

    const BatchNormLayer& layer_;
    std::int64_t matrix_;  // elements
    std::int64_t vector_;
    std::vector<LayerEvent> events_;
};

Bytes in_whole_blocks(Bytes size) {
    constexpr std::int64_t block = 512;
    return divided(size.count, block) * Bytes{block};
}

Duration pass_time(std::int64_t elements, const Device& device) {
    const double seconds = roofline_seconds({0, elements}, device, Arithmetic::float32);
    return Duration{std::llround(seconds * 1e12)};
}

}  // namespace

std::optional<BatchNormSync> real_layer_of(BatchNormSystem system) {
    if (system == BatchNormSystem::gather) {
        return BatchNormSync::gather;
    }
    return system == BatchNormSystem::fused ? std::optional(BatchNormSync::fused) : std::nullopt;
}

std::vector<LayerEvent> events_of(const BatchNormLayer& layer) {
    invariant(layer.rows >= 0 && layer.channels >= 1 && layer.ranks >= 1, "a layer has a shape");
    invariant(real_layer_of(layer.system) || layer.passes == BatchNormPasses::forward,
              "of the published systems only forward is known");
    return Recorder(layer).record();
}

MemoryPeak memory_peak(const std::vector<LayerEvent>& events) {
    MemoryPeak peak;
    std::vector<LiveTensor> live;
    Bytes size;
    for (const LayerEvent& event : events) {
        if (event.kind == LayerEvent::Kind::allocate) {
            live.push_back({event.name, in_whole_blocks(event.size)});
            size += live.back().size;
            if (size > peak.size) {
                peak = {size, live};
            }
        } else if (event.kind == LayerEvent::Kind::release) {
            const auto released =
                std::find_if(live.begin(), live.end(),
                             [&](const LiveTensor& tensor) { return tensor.name == event.name; });
            invariant(released != live.end(), "what is released is live");
            size = size - released->size;
            live.erase(released);
        }
    }
    return peak;
}

Duration time_of(const std::vector<LayerEvent>& events, const Device& device,
                 const RankGroup& group, const LinkParameters& link) {
    Duration host{0};
    Duration end{0};
    const auto issue = [&](Duration cost) {
        host = (device.host_is_device ? std::max(host, end) : host) + cost;
        end = std::max(host, end);
    };
    for (const LayerEvent& event : events) {
        switch (event.kind) {
            case LayerEvent::Kind::allocate:
            case LayerEvent::Kind::release:
                break;  // the caching allocator's time is part of a launch
            case LayerEvent::Kind::kernel:
                issue(device.launch);
                end += pass_time(event.elements, device);
                break;
            case LayerEvent::Kind::collective:
                issue(link.host_issue);
                end += collective_time(event.exchange.kind, event.exchange.buffer(group.ranks),
                                       group, link);
                break;
            case LayerEvent::Kind::copy_to_host:
                issue(device.launch);
                host = end;
                break;
        }
    }
    return std::max(host, end);
}

}  // namespace bucketwise
