#include "sim/link/network/nccl_constants.h"

#include <algorithm>
#include <bit>

namespace bucketwise {
namespace {

// A fact and the first of our versions that has it.
template <typename Value>
struct Since {
    NcclVersion version = NcclVersion::v2_18;
    Value value;
};

// The last that is no newer than the version; the first one is as old as any.
template <typename Value, std::size_t size>
constexpr const Value& as_of(NcclVersion version, const std::array<Since<Value>, size>& facts) {
    std::size_t last = 0;
    while (last + 1 < size && facts[last + 1].version <= version) {
        ++last;
    }
    return facts[last].value;
}

using enum NcclVersion;

// --- latencies ---

// By protocol: LL, LL128, Simple.
using ByProtocol = std::array<double, every<NcclProtocol>.size()>;
constexpr ByProtocol only_simple(double us) {
    return {0, 0, us};
}

struct Latencies {
    ByProtocol base;
    std::array<ByProtocol, every<NcclHop>.size()> hops;  // NVLink, PCIe, network
};

// src/graph/tuning.cc: baseLat and hwLat, from 2.28 on ncclTunerConstantsDefaults. NVLSTree's
// network latency was 14 until 2.28.3; that of 2.28.9 is taken for 2.28.
constexpr std::array<Since<Latencies>, 3> tree_us{{
    {v2_18, {{6.8, 14, 0}, {{{0.6, 1.25, 4}, {1, 1.9, 6}, {5, 8.5, 14}}}}},
    {v2_20, {{6.8, 14, 0}, {{{0.6, 1.25, 28}, {1, 1.9, 28}, {5, 8.5, 28}}}}},
    {v2_23, {{6.8, 14, 8.4}, {{{0.6, 1.25, 4}, {1, 1.9, 4}, {5, 8.5, 14}}}}},
}};
constexpr std::array<Since<Latencies>, 1> ring_us{{
    {v2_18, {{6.6, 14, 8.4}, {{{0.6, 1.9, 3.4}, {1, 2.5, 5.7}, {2.7, 4, 14}}}}},
}};
constexpr std::array<Since<Latencies>, 2> collnet_direct_us{{
    {v2_18, {{6.8, 14, 0}, {{only_simple(8), only_simple(8), only_simple(10.7)}}}},
    {v2_20, {{}, {{only_simple(3.7), only_simple(3.7), only_simple(31)}}}},
}};
constexpr std::array<Since<Latencies>, 2> collnet_chain_us{{
    {v2_18, {{6.8, 14, 0}, {{only_simple(4.75), only_simple(8), only_simple(14)}}}},
    {v2_20, {{}, {{only_simple(2.8), only_simple(2.8), only_simple(30)}}}},
}};
constexpr std::array<Since<Latencies>, 3> nvls_us{{
    {v2_18, {only_simple(23), {{{}, {}, only_simple(18)}}}},
    {v2_20, {{}, {{only_simple(23), {}, only_simple(18)}}}},
    {v2_23, {{}, {{only_simple(25), {}, only_simple(18)}}}},
}};
constexpr std::array<Since<Latencies>, 4> nvls_tree_us{{
    {v2_18, {only_simple(23), {{{}, {}, only_simple(19)}}}},
    {v2_20, {{}, {{only_simple(23), {}, only_simple(14)}}}},
    {v2_23, {{}, {{only_simple(25), {}, only_simple(14)}}}},
    {v2_28, {{}, {{only_simple(25), {}, only_simple(20.9)}}}},
}};
constexpr std::array<Since<Latencies>, 1> pat_us{{
    {v2_23, {{8, 8, 8}, {{only_simple(4), only_simple(4), only_simple(14)}}}},
}};

const Latencies& latencies_of(NcclVersion version, NcclAlgorithm algorithm) {
    switch (algorithm) {
        case NcclAlgorithm::tree:
            return as_of(version, tree_us);
        case NcclAlgorithm::ring:
            return as_of(version, ring_us);
        case NcclAlgorithm::collnet_direct:
            return as_of(version, collnet_direct_us);
        case NcclAlgorithm::collnet_chain:
            return as_of(version, collnet_chain_us);
        case NcclAlgorithm::nvls:
            return as_of(version, nvls_us);
        case NcclAlgorithm::nvls_tree:
            return as_of(version, nvls_tree_us);
        case NcclAlgorithm::pat:
            break;
    }
    return as_of(version, pat_us);
}

// --- limits ---

// On one node, on two, on more.
using ByNodes = std::array<double, 3>;
// Volta, Ampere, Hopper, Blackwell. NCCL knew no Blackwell before 2.25 and took it for a Hopper.
using ByGeneration = std::array<ByNodes, every<GpuGeneration>.size()>;

constexpr ByNodes on_any(double gb_per_s) {
    return {gb_per_s, gb_per_s, gb_per_s};
}

// src/graph/tuning.cc: llMaxBws. Rows count for one node only; on several the first is Intel's, and
// every other CPU's, and the second AMD's, whatever the GPUs.
constexpr ByNodes volta_ll{39, 39, 20.4};
constexpr ByNodes ampere_ll{87.7, 22.5, 19};
constexpr ByNodes hopper_ll{141, 45, 35};
constexpr std::array<Since<ByGeneration>, 3> ll_limits{{
    {v2_18, {volta_ll, ampere_ll, ampere_ll, ampere_ll}},
    {v2_23, {volta_ll, ampere_ll, hopper_ll, hopper_ll}},
    {v2_27, {volta_ll, ampere_ll, hopper_ll, {282, 90, 70}}},
}};
// The same file: perChMaxRingLL128Bws.
constexpr std::array<Since<ByGeneration>, 4> ring_ll128_limits{{
    {v2_18, {on_any(20), on_any(20), on_any(36.7), on_any(36.7)}},
    {v2_27, {on_any(20), on_any(20), on_any(36.7), on_any(73.4)}},
    {v2_28, {on_any(20), on_any(20), on_any(36.7), {73.4, 34.6, 73.4}}},
    {v2_30, {on_any(20), on_any(20), on_any(36.7), on_any(40)}},
}};
// perChMaxTreeLL128Bws.
constexpr ByNodes hopper_tree_ll128{36.7, 36.7, 29};
constexpr std::array<Since<ByGeneration>, 3> tree_ll128_limits{{
    {v2_18, {on_any(20), on_any(20), hopper_tree_ll128, hopper_tree_ll128}},
    {v2_27, {on_any(20), on_any(20), hopper_tree_ll128, {73.4, 73.4, 58}}},
    {v2_28, {on_any(20), on_any(20), hopper_tree_ll128, {55.6, 31.67, 20}}},
}};
// perChMaxTreeBws.
constexpr ByNodes volta_tree{26.5, 18.5, 10};
constexpr ByNodes ampere_tree{24, 23.6, 17.8};
constexpr ByNodes hopper_tree{38.7, 41.4, 36};
constexpr std::array<Since<ByGeneration>, 3> tree_limits{{
    {v2_18, {volta_tree, ampere_tree, hopper_tree, hopper_tree}},
    {v2_27, {volta_tree, ampere_tree, hopper_tree, {77.4, 82.8, 72}}},
    {v2_28, {volta_tree, ampere_tree, hopper_tree, {70, 42.8, 24}}},
}};
// perChMaxNVLSTreeBws, from 2.28 on, as in 2.28.9.
constexpr std::array<Since<ByGeneration>, 2> nvls_tree_limits{{
    {v2_28, {volta_tree, ampere_tree, {0, 57.7, 45.5}, {0, 96, 43.8}}},
    {v2_30, {volta_tree, ampere_tree, {0, 57.7, 45.5}, {0, 96, 80}}},
}};

// src/graph/tuning.cc: treeCorrectionFactor, alike in all versions. From 64 bytes on, by powers of
// two; NVLSTree of 2.30 looks at one more.
constexpr std::array<std::array<double, 24>, every<NcclProtocol>.size()> tree_shares{{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
     .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

}  // namespace

double nccl_base_us(NcclVersion version, NcclAlgorithm algorithm, NcclProtocol protocol) {
    return latencies_of(version, algorithm).base[static_cast<std::size_t>(protocol)];
}

double nccl_hop_us(NcclVersion version, NcclHop hop, NcclAlgorithm algorithm,
                   NcclProtocol protocol) {
    const Latencies& latencies = latencies_of(version, algorithm);
    return latencies.hops[static_cast<std::size_t>(hop)][static_cast<std::size_t>(protocol)];
}

NcclLimits nccl_limits(const NcclSettings& settings, std::int64_t nodes) {
    const NcclVersion version = settings.version;
    const auto row = static_cast<std::size_t>(settings.generation);
    const auto column = static_cast<std::size_t>(std::min<std::int64_t>(nodes, 3) - 1);
    const std::size_t host_row = settings.cpu == HostCpu::amd ? 1 : 0;
    return {.ll = as_of(version, ll_limits)[nodes == 1 ? row : host_row][column],
            .ring_ll128 = as_of(version, ring_ll128_limits)[row][column],
            .tree_ll128 = as_of(version, tree_ll128_limits)[row][column],
            .tree = as_of(version, tree_limits)[row][column],
            .nvls_tree = as_of(version, nvls_tree_limits)[row][column]};
}

// src/graph/tuning.cc: nvlsEfficiency.
double nccl_nvls_efficiency(GpuGeneration generation) {
    constexpr std::array<double, every<GpuGeneration>.size()> efficiency{0, 0, 0.85, 0.74};
    return efficiency[static_cast<std::size_t>(generation)];
}

// src/graph/tuning.cc, ncclTopoGetAlgoTime. The logarithm of less than 64 bytes was 0 up to 2.20
// and is -1, which has no share, since (src/include/utils.h, log2i).
double nccl_tree_share(NcclVersion version, NcclAlgorithm algorithm, NcclProtocol protocol,
                       Bytes bytes) {
    const auto& shares = tree_shares[static_cast<std::size_t>(protocol)];
    const std::size_t counted = shares.size() - (algorithm == NcclAlgorithm::tree ? 1 : 0);
    const auto pieces = static_cast<std::uint64_t>(bytes.count) / 64;
    if (pieces == 0) {
        return version < v2_23 ? shares.front() : 1;
    }
    const auto step = static_cast<std::size_t>(std::bit_width(pieces) - 1);
    return step < counted ? shares[step] : 1;
}

// src/graph/tuning.cc: getNetOverhead.
double nccl_post_us(HostCpu cpu) {
    return cpu == HostCpu::amd ? 2 : 1;
}

// src/graph/search.cc: the first of speedArrayIntra, of one node, and speedArrayInter, of sm90 and,
// from 2.25 on, sm100. Only NVLS, whose channels are as many as its heads, is held by it.
double nccl_fastest_channel(const NcclSettings& settings, std::int64_t nodes) {
    const bool blackwell =
        settings.generation == GpuGeneration::blackwell && settings.version >= v2_27;
    if (nodes == 1) {
        return blackwell ? 90 : 60;
    }
    return blackwell ? 96 : 48;
}

std::int64_t compute_capability_of(const NcclSettings& settings) {
    return settings.compute_capability.value_or(first_capability(settings.generation));
}

}  // namespace bucketwise
