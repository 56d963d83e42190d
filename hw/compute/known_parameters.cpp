#include "hw/compute/known_parameters.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "hw/compute/elements.h"
#include "hw/compute/known_message.h"

namespace bucketwise {
namespace {

constexpr std::int64_t known_block = 4096;
using KnownBlock = std::array<double, known_block>;

// In the shard's dtype each of them is exact.
void fill(KnownBlock& block, const KnownParameter& known, std::int64_t first, std::int64_t count) {
    constexpr std::int64_t steps = 1024;  // that differ
    const auto term = static_cast<int>(known.parameter * steps + known.step % steps);
    for (std::int64_t i = 0; i < count; ++i) {
        block[static_cast<std::size_t>(i)] = known_term(term, first + i, known.dtype);
    }
}

}  // namespace

void write_known_parameter(void* data, const KnownParameter& known, std::int64_t first,
                           std::int64_t count) {
    KnownBlock block{};
    for (std::int64_t done = 0; done < count; done += known_block) {
        const std::int64_t now = std::min(known_block, count - done);
        fill(block, known, first + done, now);
        cast_scaled(static_cast<std::byte*>(data) + done * element_size(known.dtype).count,
                    known.dtype, block.data(), DType::float64, now, 1.0);
    }
}

ElementCheck check_known_parameter(const void* data, DType dtype, std::int64_t numel,
                                   const KnownParameter& known) {
    KnownBlock expected{};
    KnownBlock cast{};
    KnownBlock got{};
    ElementCheck check;
    for (std::int64_t done = 0; done < numel; done += known_block) {
        const std::int64_t now = std::min(known_block, numel - done);
        fill(expected, known, done, now);
        cast_scaled(cast.data(), dtype, expected.data(), DType::float64, now, 1.0);
        cast_scaled(expected.data(), DType::float64, cast.data(), dtype, now, 1.0);
        cast_scaled(got.data(), DType::float64,
                    static_cast<const std::byte*>(data) + done * element_size(dtype).count, dtype,
                    now, 1.0);
        for (std::int64_t i = 0; i < now; ++i) {
            const auto at = static_cast<std::size_t>(i);
            check.compare(done + i, expected[at], got[at], 0.0);
        }
    }
    return check;
}

}  // namespace bucketwise
