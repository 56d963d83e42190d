// What a sharded step holds in a rank's memory of parameters and gradients, in the order in which
// its host asks for it: a caching allocator hands memory out in that order, whatever the device has
// run.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class ShardedTensor : std::uint8_t {
    parameters,         // this rank's part, from which all are gathered; a larger one after forward
                        // where that is resharded to fewer ranks
    gathered,           // buffers that all-gathers fill
    unsharded,          // parameters to compute with
    gradients,          // of those
    reduced,            // buffers that reduce-scatters read
    sharded_gradients,  // what they write, and the optimizer reads
};

template <>
inline constexpr auto names_of<ShardedTensor> = names("parameters", "gathered", "unsharded",
                                                      "gradients", "reduced", "sharded_gradients");

struct ShardedMemory {
    using Sizes = std::array<Bytes, every<ShardedTensor>.size()>;
    Sizes now = {};
    Sizes at_peak = {};
    Bytes peak = {};  // of all of them together
    bool operator==(const ShardedMemory&) const = default;

    void hold(ShardedTensor tensor, Bytes size) {
        now[static_cast<std::size_t>(tensor)] += size;
        const Bytes sum = total(now);
        if (sum > peak) {
            peak = sum;
            at_peak = now;
        }
    }
    void release(ShardedTensor tensor, Bytes size) {
        Bytes& held = now[static_cast<std::size_t>(tensor)];
        held = held - size;
    }
    // What another part of the step, which began as this one ended, came to.
    void go_on_with(const ShardedMemory& other) {
        if (other.peak > peak) {
            peak = other.peak;
            at_peak = other.at_peak;
        }
        now = other.now;
    }
    [[nodiscard]] Bytes of(ShardedTensor tensor) const {
        return at_peak[static_cast<std::size_t>(tensor)];
    }

  private:
    static Bytes total(const Sizes& sizes) {
        Bytes sum;
        for (const Bytes size : sizes) {
            sum += size;
        }
        return sum;
    }
};

}  // namespace bucketwise
