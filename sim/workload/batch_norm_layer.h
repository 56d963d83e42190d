// One BatchNorm layer synchronised over ranks, on tensors [rows, channels] of float32: a rank's
// events in one step. The step's time and its memory peak follow from them.
//
// gather and fused are this project's own layers (hw/batch_norm/sync_batch_norm.h). pytorch and
// selfmade are the two systems of the published table (scenarios/published/syncbn.csv), which shows
// their forward pass; sim/README.md has the evidence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/link/link.h"
#include "sim/workload/batch_norm.h"
#include "sim/workload/device.h"

namespace bucketwise {

enum class BatchNormSystem : std::uint8_t { gather, fused, pytorch, selfmade };

template <>
inline constexpr auto names_of<BatchNormSystem> = names("gather", "fused", "pytorch", "selfmade");

// The layer that runs on real ranks; empty: the system can only be simulated.
std::optional<BatchNormSync> real_layer_of(BatchNormSystem system);

struct BatchNormLayer {
    BatchNormSystem system = BatchNormSystem::gather;
    BatchNormPasses passes = BatchNormPasses::both;  // pytorch and selfmade: forward
    std::int64_t rows = 0;                           // of this rank
    std::int64_t channels = 1;
    std::int64_t ranks = 1;
    bool operator==(const BatchNormLayer&) const = default;
};

struct LayerEvent {
    enum class Kind : std::uint8_t {
        allocate,     // `name`, `size`
        release,      // `name`
        kernel,       // moves `elements` to and from memory
        collective,   // `exchange`; later work of the device waits for it
        copy_to_host  // of a few bytes, for which the host waits
    };
    Kind kind = Kind::kernel;
    std::string name;
    Bytes size = {};
    std::int64_t elements = 0;  // of float32, read + written
    Exchange exchange = {};
    bool operator==(const LayerEvent&) const = default;
};

// By the host's order of issue. Precondition (asserted): rows >= 0, channels >= 1,
// ranks >= 1; pytorch and selfmade run forward only.
std::vector<LayerEvent> events_of(const BatchNormLayer& layer);

// A tensor, and the memory that PyTorch's caching allocator takes for it: whole blocks of 512 bytes
// (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize).
struct LiveTensor {
    std::string name;
    Bytes size;
    bool operator==(const LiveTensor&) const = default;
};

// The moment with the most live memory; the first of several.
struct MemoryPeak {
    Bytes size;
    std::vector<LiveTensor> live;
    bool operator==(const MemoryPeak&) const = default;
};

MemoryPeak memory_peak(const std::vector<LayerEvent>& events);

// From the first launch until host and device are done. As for a step's operations (sim/README.md),
//     kernel i is issued at h(i) = h(i-1) + launch
//     and starts at max(h(i), end(i-1)).
Duration time_of(const std::vector<LayerEvent>& events, const Device& device,
                 const RankGroup& group, const LinkParameters& link);

}  // namespace bucketwise
