#include "sim/link/network/nccl_clock.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "sim/link/network/nccl_constants.h"

namespace bucketwise {
namespace {

constexpr NcclClock as_expected{.ring_ll = 1, .nvls = 1, .network = 1};
constexpr double least_factor = 0.1;
constexpr Bytes ring_fills{1 << 24};  // from here on its bytes suffer less
// Pairs that NCCL expects to take so much longer than its choice are not taken at all.
constexpr double doubtful = 0.15;
constexpr double least_us = 1e-6;

// How much of a factor, as a power of it, holds from this size on: linear in the logarithm of the
// size up to the next.
struct ShapePoint {
    int log2_bytes = 0;
    double power = 0;
};

constexpr std::array<ShapePoint, 11> nvls_shape{{
    {20, 0.3},
    {21, 0.4},
    {22, 0.55},
    {23, 1},
    {24, 0.95},
    {25, 0.85},
    {26, 0.65},
    {27, 0.3},
    {28, 0.2},
    {30, 0.05},
    {31, 0},
}};
// Trees whose data reach their NICs through PCIe switches alone, and through CPUs.
constexpr std::array<ShapePoint, 10> near_shape{{
    {9, 0},
    {12, 0.5},
    {14, 0.9},
    {16, 1},
    {22, 1},
    {24, 0.75},
    {26, 0.5},
    {28, 0.3},
    {30, 0.25},
    {32, 0.15},
}};
constexpr std::array<ShapePoint, 9> far_shape{{
    {9, 0},
    {12, 0.5},
    {14, 0.9},
    {16, 1},
    {24, 1},
    {26, 0.75},
    {28, 0.45},
    {30, 0.25},
    {32, 0.15},
}};
// NVLSTree fills later.
constexpr std::array<ShapePoint, 9> nvls_tree_shape{{
    {9, 0},
    {16, 1},
    {24, 1.1},
    {25, 1.4},
    {26, 1.25},
    {27, 1},
    {28, 0.8},
    {29, 0.4},
    {30, 0.2},
}};
// A ring has all of its bandwidth much earlier, and then a tenth more than NCCL expects of LL128.
constexpr std::array<ShapePoint, 9> ring_shape{{
    {9, 0},
    {12, 0.5},
    {14, 0.9},
    {16, 1},
    {24, 1},
    {25, 0.6},
    {26, -0.2},
    {28, -0.2},
    {30, 0},
}};

double power_at(std::span<const ShapePoint> shape, Bytes bytes) {
    const double x = std::log2(static_cast<double>(std::max<std::int64_t>(bytes.count, 1)));
    if (x <= shape.front().log2_bytes) {
        return shape.front().power;
    }
    for (std::size_t i = 1; i < shape.size(); ++i) {
        const ShapePoint& before = shape[i - 1];
        const ShapePoint& after = shape[i];
        if (x <= after.log2_bytes) {
            return std::lerp(before.power, after.power,
                             (x - before.log2_bytes) / (after.log2_bytes - before.log2_bytes));
        }
    }
    return shape.back().power;
}

double on_nodes(double network, std::int64_t nodes) {
    return 1 + (network - 1) * std::sqrt(std::log2(static_cast<double>(nodes)));
}

Duration stretched_by(Duration time, double factor) {
    return duration_from_us(std::min(to_us(time) * factor, to_us(longest_duration)));
}

// A ring's latency stays what it is where its bytes no longer suffer. NVLSTree's extra
// slowdown does not grow with the nodes: one log of two has it.
Duration between_nodes(const NcclEstimate& expected, Bytes bytes, const NcclMachine& machine) {
    const double network = machine.settings.clock.network;
    const double factor = std::max(on_nodes(network, machine.nodes), least_factor);
    if (expected.algorithm == NcclAlgorithm::ring) {
        const double power = power_at(ring_shape, bytes);
        const double of_latency = bytes < ring_fills ? power : 1;
        return stretched_by(expected.latency, std::pow(factor, of_latency)) +
               stretched_by(expected.time - expected.latency, std::pow(factor, power));
    }
    if (expected.algorithm == NcclAlgorithm::nvls_tree) {
        const double power = power_at(nvls_tree_shape, bytes);
        return stretched_by(
            expected.time, std::pow(factor, std::min(power, 1.0)) *
                               std::pow(std::max(network, least_factor), std::max(power - 1, 0.0)));
    }
    const double power =
        machine.nic_path == NicPath::pxb ? power_at(near_shape, bytes) : power_at(far_shape, bytes);
    return stretched_by(expected.time, std::pow(factor, power));
}

// The time that fewer blocks need beside that of as many as NCCL would take, at least 1.
double of_fewer_blocks(CollectiveKind kind, Bytes bytes, const NcclEstimate& chosen,
                       const NcclMachine& machine, std::int64_t most_blocks) {
    const double moving_us = to_us(chosen.time - chosen.latency);
    if (moving_us <= 0 || nccl_blocks(kind, bytes, chosen, machine).blocks <= most_blocks) {
        return 1;
    }
    const double reach =
        static_cast<double>(most_blocks) * nccl_limits(machine.settings, machine.nodes).tree;
    return std::max(bus_gb_per_s(kind, bytes, machine.ranks, moving_us) / reach, 1.0);
}

}  // namespace

Duration nccl_clock_time(const NcclEstimate& expected, Bytes bytes, const NcclMachine& machine) {
    const NcclClock& clock = machine.settings.clock;
    const NcclAlgorithm algorithm = expected.algorithm;
    const bool one_node = machine.nodes == 1;
    const bool by_collnet = algorithm == NcclAlgorithm::collnet_direct ||
                            algorithm == NcclAlgorithm::collnet_chain ||
                            (algorithm == NcclAlgorithm::nvls && !one_node);
    if (by_collnet) {
        return expected.time;
    }
    if (!one_node) {
        return between_nodes(expected, bytes, machine);
    }
    if (algorithm == NcclAlgorithm::nvls) {
        return stretched_by(expected.time, std::pow(clock.nvls, power_at(nvls_shape, bytes)));
    }
    const bool ring_ll = algorithm == NcclAlgorithm::ring && expected.protocol == NcclProtocol::ll;
    const Duration moving = expected.time - expected.latency;
    return ring_ll ? expected.latency + stretched_by(moving, clock.ring_ll) : expected.time;
}

Duration nccl_time(CollectiveKind kind, Bytes bytes, std::int64_t ranks,
                   const RegularTopology& topology, const NcclSettings& settings,
                   std::optional<std::int64_t> most_blocks) {
    NcclPairs pairs;
    const NcclMachine machine = nccl_machine(ranks, topology, settings);
    const std::span<const NcclEstimate> estimates = nccl_estimates(kind, bytes, machine, pairs);
    const auto with_blocks = [&](const NcclEstimate& estimate, Duration time) {
        return most_blocks ? stretched_by(time, of_fewer_blocks(kind, bytes, estimate, machine,
                                                                *most_blocks))
                           : time;
    };
    const NcclEstimate& chosen = *std::ranges::min_element(estimates, {}, &NcclEstimate::time);
    const Duration least = chosen.time;
    if (kind == CollectiveKind::broadcast || settings.clock == as_expected) {
        return with_blocks(chosen, least);
    }
    const double doubtful_us = doubtful * std::max(to_us(least), least_us);
    double weights = 0;
    double us = 0;
    for (const NcclEstimate& estimate : estimates) {
        const double weight = 1 - to_us(estimate.time - least) / doubtful_us;
        if (weight > 0) {
            weights += weight;
            us += weight * to_us(with_blocks(estimate, nccl_clock_time(estimate, bytes, machine)));
        }
    }
    return duration_from_us(std::min(us / weights, to_us(longest_duration)));
}

}  // namespace bucketwise
