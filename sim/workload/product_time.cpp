#include "sim/workload/eager_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "sim/base/invariant.h"

namespace bucketwise {
namespace {

// Rows and columns of the result that one thread block computes; CUTLASS and cuBLAS have these and
// their transposes.
struct Tile {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};
constexpr std::array<Tile, 10> tiles{{{256, 128},
                                      {128, 256},
                                      {128, 128},
                                      {128, 64},
                                      {64, 128},
                                      {64, 64},
                                      {128, 32},
                                      {32, 128},
                                      {64, 32},
                                      {32, 64}}};

// Losses of a tile: feeding its operands, and filling and emptying its pipeline. Tensor cores are
// faster, so both weigh more.
struct Pipeline {
    double feeding = 0;  // against flop per loaded element
    double filling = 0;  // in steps of depth
};
constexpr Pipeline tensor_pipeline{12, 96};
constexpr Pipeline vector_pipeline{3, 16};

// Rows of 16-bit matrices that do not begin at 16 bytes are loaded piecemeal.
constexpr std::int64_t alignment = 8;
constexpr double misaligned_efficiency = 0.5;
// Deep products of few tiles are split by depth, and their parts added.
constexpr std::int64_t shallowest_part = 256;
constexpr double waves_that_blur = 4;  // with more, blocks end one by one: half a wave is lost
constexpr std::int64_t bytes_of_part = 4;

std::int64_t parts_of(std::int64_t whole, std::int64_t part) {
    return (whole + part - 1) / part;
}

bool is_misaligned(const ProductWork& work, Arithmetic arithmetic) {
    const MatrixProduct& shape = work.shape;
    return element_size(arithmetic) == Bytes{2} && !work.convolution &&
           (shape.m % alignment != 0 || shape.n % alignment != 0 || shape.k % alignment != 0);
}

double waves_of(double blocks, double multiprocessors) {
    return blocks > waves_that_blur * multiprocessors ? blocks / multiprocessors + 0.5
                                                      : std::ceil(blocks / multiprocessors);
}

}  // namespace

double product_rate(const Device& device, Arithmetic arithmetic) {
    invariant(device.prior.has_value() && device.peak(arithmetic) > 0,
              "the device has a prior and supports the arithmetic");
    // Two of four operands of 128 lanes come from the same registers, and power limits the clock.
    constexpr double wide_efficiency = 0.75;
    // Products in float8 reach less of their peak, which is twice the 16-bit one. A prior.
    constexpr double float8_efficiency = 0.88;
    const GpuPrior& prior = *device.prior;
    const double efficiency =
        on_tensor_cores(arithmetic)
            ? prior[GpuFactor::tensor_efficiency] * device.tensor_sustained *
                  (is_float8(arithmetic) ? float8_efficiency : 1.0)
            : prior[GpuFactor::vector_efficiency] * (device.wide ? wide_efficiency : 1.0);
    return device.peak(arithmetic) * 1e12 * device.sustained * efficiency;
}

double product_seconds(const ProductWork& work, const Device& device, Arithmetic arithmetic) {
    const GpuPrior& prior = *device.prior;
    const MatrixProduct& shape = work.shape;
    const auto multiprocessors = static_cast<double>(device.multiprocessors.value());
    const Pipeline& pipeline = on_tensor_cores(arithmetic) ? tensor_pipeline : vector_pipeline;
    const double rate = product_rate(device, arithmetic) / multiprocessors *
                        (work.convolution ? prior[GpuFactor::convolution_efficiency] : 1.0) *
                        (is_misaligned(work, arithmetic) ? misaligned_efficiency : 1.0);
    const double bytes_per_s =
        static_cast<double>(device.memory_bandwidth.count) * prior[GpuFactor::pass_efficiency];
    const double results = static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                           static_cast<double>(shape.count);
    double least = std::numeric_limits<double>::infinity();
    for (const Tile& tile : tiles) {
        const double area = static_cast<double>(tile.rows * tile.columns);
        const double reuse = area / static_cast<double>(tile.rows + tile.columns);
        const double blocks =
            static_cast<double>(parts_of(shape.m, tile.rows) * parts_of(shape.n, tile.columns)) *
            static_cast<double>(shape.count);
        for (std::int64_t parts = 1;; parts *= 2) {
            const double depth = static_cast<double>(parts_of(shape.k, parts)) + pipeline.filling;
            const double all = blocks * static_cast<double>(parts);
            const double block_seconds =
                2 * area * depth / (rate * reuse / (reuse + pipeline.feeding));
            const double adding =
                parts == 1
                    ? 0.0
                    : results * static_cast<double>((parts + 1) * bytes_of_part) / bytes_per_s;
            least = std::min(least, waves_of(all, multiprocessors) * block_seconds + adding);
            if (shape.k < 2 * parts * shallowest_part || all > 8 * multiprocessors) {
                break;
            }
        }
    }
    return std::max(least, work.bytes / bytes_per_s);
}

}  // namespace bucketwise
