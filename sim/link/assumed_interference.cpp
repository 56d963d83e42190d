#include "sim/link/assumed_interference.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/base/invariant.h"
#include "sim/link/network/nccl_model.h"

namespace bucketwise {
namespace {

// Bytes of a message for which NCCL takes one thread block more: 512 threads x 64 bytes.
constexpr Bytes bytes_per_block{512LL * 64};
// A GPU reads its own data and what it received, and writes what it sends, for each byte on the
// wire.
constexpr double memory_passes = 3;
// Half of a wave: the loss of matrix products of 60 us beyond the multiprocessors, on two A100.
constexpr double half_wave_us = 12;
constexpr double most_lost_to_waves = 1;  // of a product: its only wave becomes two
constexpr Duration longest_operation = std::chrono::milliseconds(1);  // listed ones may be coarser
constexpr double communication_slowdown = 1.3;
constexpr double communication_error = 0.2;
// Standard errors, as shares of what is assumed beyond 1, and of the delay.
constexpr double compute_share_error = 0.5;
constexpr double least_compute_error = 0.03;
constexpr double delay_share_error = 0.5;

constexpr std::int64_t multiprocessors_of(GpuGeneration generation) {
    constexpr std::array<std::int64_t, every<GpuGeneration>.size()> of{80, 108, 132, 148};
    return of[static_cast<std::size_t>(generation)];
}

const NcclSettings* nccl_of(const LinkParameters& link) {
    return link.topology && link.topology->nccl ? &*link.topology->nccl : nullptr;
}

constexpr Bytes large{std::int64_t{1} << 28};

double bus_gb_per_s_of(const LinkParameters& link, const RankGroup& group) {
    const Duration time = collective_time(CollectiveKind::all_reduce, large, group, link);
    return time > Duration{0}
               ? bus_gb_per_s(CollectiveKind::all_reduce, large, group.ranks, to_us(time))
               : 0.0;
}

// The thread blocks of the algorithm that NCCL would choose on this topology.
std::int64_t chosen_blocks(const RegularTopology& topology, const NcclSettings& nccl,
                           const RankGroup& group) {
    const auto kind = CollectiveKind::all_reduce;
    return nccl_blocks(kind, large, nccl_choice(kind, large, group.ranks, topology, nccl),
                       nccl_machine(group.ranks, topology, nccl))
        .blocks;
}

// NCCL's channels, each a thread block: what the topology says; else by what NVLink, and what PCIe,
// host memory or a NIC would reach.
std::int64_t thread_blocks(const LinkParameters& link, const RankGroup& group,
                           double bus_gb_per_s) {
    constexpr double slowest_nvlink_gb_per_s = 60;
    constexpr std::int64_t of_nvlink = 24;
    constexpr std::int64_t of_others = 4;
    const NcclSettings* nccl = nccl_of(link);
    if (nccl == nullptr) {
        return link.ctas.value_or(bus_gb_per_s >= slowest_nvlink_gb_per_s ? of_nvlink : of_others);
    }
    const bool chooses = link.algorithm == Algorithm::nccl && group.ranks > 1;
    const std::int64_t blocks =
        chooses ? chosen_blocks(*link.topology->regular, *nccl, group) : nccl->channels;
    return std::min(blocks, link.ctas.value_or(blocks));
}

double compute_slowdown(double blocks, double memory_share, std::int64_t multiprocessors,
                        const ComputingBeside& computing) {
    const auto all = static_cast<double>(multiprocessors);
    constexpr double least_left = 0.25;  // of the multiprocessors
    const double alone = all / std::max(all - blocks, least_left * all);
    const double waves = computing.product > Duration{0}
                             ? std::min(half_wave_us / to_us(computing.product), most_lost_to_waves)
                             : 0.0;
    return alone + computing.product_share * waves + (1 - computing.product_share) * memory_share;
}

std::int64_t to_ppm(double slowdown) {
    return std::llround(1e6 * slowdown);
}

}  // namespace

bool joins_gpus(const LinkParameters& link) {
    return nccl_of(link) != nullptr || link.provenance.backend == "nccl" ||
           std::any_of(link.tiers.begin(), link.tiers.end(), joins_gpus);
}

bool lacks_interference(const LinkParameters& link) {
    return link.interference.empty() && joins_gpus(link);
}

std::vector<InterferenceSegment> assumed_interference(const LinkParameters& link,
                                                      const RankGroup& group,
                                                      const ComputingBeside& computing) {
    invariant(lacks_interference(link), "what is known is not assumed");
    const double bus = bus_gb_per_s_of(link, group);
    const std::int64_t most_blocks = thread_blocks(link, group, bus);
    const NcclSettings* nccl = nccl_of(link);
    const std::int64_t multiprocessors = computing.multiprocessors.value_or(
        multiprocessors_of(nccl != nullptr ? nccl->generation : GpuGeneration::ampere));
    const double memory_share =
        computing.memory_bandwidth
            ? std::min(memory_passes * bus / to_gb_per_s(*computing.memory_bandwidth), 1.0)
            : 0.0;
    // The last of p ranks that are met at random moments.
    const auto ranks = static_cast<double>(group.ranks);
    const Duration delay =
        scaled(std::min(computing.operation, longest_operation), ranks / (ranks + 1));
    std::vector<InterferenceSegment> segments;
    for (std::int64_t blocks = 1;; blocks = std::min(2 * blocks, most_blocks)) {
        const double share = static_cast<double>(blocks) / static_cast<double>(most_blocks);
        const double compute = compute_slowdown(static_cast<double>(blocks), share * memory_share,
                                                multiprocessors, computing);
        InterferenceSegment& segment = segments.emplace_back();
        segment.slowdown = {to_ppm(compute), to_ppm(communication_slowdown), delay};
        segment.errors = {
            .compute_slowdown = std::max(compute_share_error * (compute - 1), least_compute_error),
            .communication_slowdown = communication_error,
            .start_delay_us = delay_share_error * to_us(delay)};
        if (blocks >= most_blocks) {
            return segments;
        }
        segment.up_to = 2 * blocks * bytes_per_block;
    }
}

}  // namespace bucketwise
