// A device on which a pass takes a nanosecond per byte, and nothing else takes any time; and a
// small model for it.
#pragma once

#include <algorithm>
#include <string>

#include "sim/workload/device.h"
#include "sim/workload/model.h"
#include "sim/workload/models/models.h"
#include "tests/catch.h"

namespace bucketwise {

// Every factor 1 but for kernels, which cost nothing beyond their work, and a memory of 10^9 bytes
// per s, beside which products take no time.
inline Device slow_memory() {
    Device device = *device_preset("A100");
    device.memory_bandwidth = {1'000'000'000};
    device.peak_tflop_per_s.fill(1e9);
    device.prior->given.fill(1.0);
    device.prior->given[static_cast<std::size_t>(GpuFactor::kernel_us)] = 0;
    return device;
}

inline const Operation& named(const Model& model, const std::string& name) {
    const auto found = std::ranges::find(model.operations, name, &Operation::name);
    REQUIRE(found != model.operations.end());
    return *found;
}

// 32 tokens of width 64, 4 heads of queries and 2 of keys and values, 128 within, 100 words.
inline Model two_layer_llama() {
    return make_transformer("llama",
                            {.family = TransformerFamily::llama,
                             .layers = 2,
                             .hidden = 64,
                             .feed_forward = 128,
                             .heads = 4,
                             .vocabulary = 100,
                             .context = 16,
                             .key_value_heads = 2},
                            {.batch = 2, .sequence_length = 16});
}

}  // namespace bucketwise
