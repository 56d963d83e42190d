// The thread blocks of a GPU that a collective takes.
#include <algorithm>

#include "sim/link/network/nccl_model.h"

namespace bucketwise {
namespace {

struct BlockLimits {
    std::int64_t threads = 640;      // of a block, at most
    std::int64_t thread_bytes = 64;  // that a thread is to have at least
};

// src/graph/tuning.cc: maxThreads and threadThresholds; src/include/device.h, src/include/comm.h.
BlockLimits block_limits(const NcclEstimate& chosen, const NcclMachine& machine) {
    constexpr double slow_gb_per_s = 12;  // PCI_BW
    const bool ring = chosen.algorithm == NcclAlgorithm::ring;
    if (is_collnet(chosen.algorithm)) {
        return {640, 512};
    }
    if (!ring && chosen.algorithm != NcclAlgorithm::tree) {
        return {};
    }
    switch (chosen.protocol) {
        case NcclProtocol::ll:
            return {512, 8 * (ring ? machine.ranks : 1)};
        case NcclProtocol::ll128:
            return {640, 8};
        case NcclProtocol::simple:
            break;
    }
    const double bus = static_cast<double>(machine.ring.channels) * machine.ring.intra_gb_per_s;
    return {ring && bus <= slow_gb_per_s ? 256 : 512, 64};
}

// src/transport/nvls.cc, ncclNvlsInit: NVLS_NCHANNELS_*.
std::int64_t nvls_channels(const NcclMachine& machine) {
    const NcclSettings& settings = machine.settings;
    if (settings.version < NcclVersion::v2_27 || settings.generation < GpuGeneration::blackwell) {
        return 16;
    }
    return machine.nodes > 1 ? 32 : 24;
}

// Channels are given up one by one until each has enough; below 16, 8, 4 of them ever less is
// enough.
std::int64_t collnet_direct_channels(Bytes bytes, std::int64_t channels, BlockLimits limits,
                                     std::int64_t heads) {
    const auto too_few = [&] {
        return bytes.count < channels * limits.threads * heads * limits.thread_bytes;
    };
    for (std::int64_t least = 16; least >= 1 && too_few(); least /= 2) {
        while (channels > least && too_few()) {
            if (channels == least + least / 2) {
                limits.thread_bytes /= 2;
            }
            --channels;
        }
    }
    return channels;
}

// The most channels, before the work is cut into cells.
std::int64_t channels_for(Bytes bytes, const NcclEstimate& chosen, const NcclMachine& machine,
                          BlockLimits limits) {
    const std::int64_t channels = machine.settings.channels;
    switch (chosen.algorithm) {
        case NcclAlgorithm::collnet_direct:
            return collnet_direct_channels(bytes, channels, limits, machine.collnet_heads);
        case NcclAlgorithm::nvls:
            return machine.settings.version >= NcclVersion::v2_28 && machine.nodes > 1
                       ? std::min(nvls_channels(machine), channels)
                       : nvls_channels(machine);
        case NcclAlgorithm::nvls_tree:
            return nvls_channels(machine);
        case NcclAlgorithm::pat:  // nobody sets its number of threads, so nothing is too few
            return channels;
        case NcclAlgorithm::collnet_chain:
        case NcclAlgorithm::tree:
        case NcclAlgorithm::ring:
            break;
    }
    const std::int64_t enough = bytes.count / (limits.threads * limits.thread_bytes);
    return std::clamp<std::int64_t>(enough, 1, channels);
}

std::int64_t threads_for(Bytes bytes, const NcclEstimate& chosen, const NcclMachine& machine,
                         BlockLimits limits, std::int64_t channels) {
    constexpr std::int64_t warp = 32;
    const NcclAlgorithm algorithm = chosen.algorithm;
    const bool tree = algorithm == NcclAlgorithm::tree;
    std::int64_t threads = limits.threads;
    if ((tree && machine.settings.version >= NcclVersion::v2_23) ||
        algorithm == NcclAlgorithm::pat) {
        return 640;
    }
    if (tree || algorithm == NcclAlgorithm::ring || algorithm == NcclAlgorithm::collnet_chain) {
        while (bytes.count < channels * threads * limits.thread_bytes && threads % 128 == 0) {
            threads /= 2;
        }
    }
    if (chosen.protocol == NcclProtocol::simple) {
        threads += algorithm == NcclAlgorithm::ring ? warp : tree ? 4 * warp : 0;
    }
    return std::max(threads, 3 * warp);
}

// scheduleCollTasksToPlan: cells of 16 KiB of traffic are dealt out to channels.
std::int64_t dealt_out(CollectiveKind kind, Bytes bytes, const NcclEstimate& chosen,
                       const NcclMachine& machine, std::int64_t channels) {
    constexpr std::int64_t least_traffic = 16 << 10;
    constexpr std::int64_t line = 16;
    const NcclVersion version = machine.settings.version;
    const std::int64_t own = scatters(kind) ? bytes.count / machine.ranks : bytes.count;
    const std::int64_t of_byte =
        (scatters(kind) ? machine.ranks : rounds_of(kind)) *
        (version >= NcclVersion::v2_27 && chosen.protocol == NcclProtocol::ll ? 4 : 1);
    const std::int64_t share = std::max(least_traffic, own * of_byte) / channels;
    const std::int64_t traffic = version >= NcclVersion::v2_30 ? divided(share, line) * line
                                                               : std::max(least_traffic, share);
    const std::int64_t cell = divided(divided(least_traffic, of_byte), line) * line;
    const std::int64_t cells = std::max<std::int64_t>(divided(own, cell), 1);
    const std::int64_t each = std::min(cells, divided(traffic, cell * of_byte));
    const std::int64_t most =
        is_nvls(chosen.algorithm) ? nvls_channels(machine) : machine.settings.channels;
    return std::min(most, divided(cells, each));
}

}  // namespace

NcclBlocks nccl_blocks(CollectiveKind kind, Bytes bytes, const NcclEstimate& chosen,
                       const NcclMachine& machine) {
    const BlockLimits limits = block_limits(chosen, machine);
    const std::int64_t channels = channels_for(bytes, chosen, machine, limits);
    NcclBlocks taken{channels, threads_for(bytes, chosen, machine, limits, channels)};
    const bool on_collnet = is_collnet(chosen.algorithm) ||
                            (chosen.algorithm == NcclAlgorithm::nvls && machine.nodes > 1);
    if (machine.settings.version >= NcclVersion::v2_23 && !on_collnet) {
        taken.blocks = dealt_out(kind, bytes, chosen, machine, channels);
    }
    return taken;
}

}  // namespace bucketwise
