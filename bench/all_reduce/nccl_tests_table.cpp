// The tables of nccl-tests' all_reduce_perf, all_gather_perf and reduce_scatter_perf, for readers
// of those.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "sim/base/names.h"
#include "sim/link/collective.h"

namespace bucketwise {
namespace {

// In the order of DType.
constexpr auto nccl_types = names("float", "half", "bfloat16", "double");

std::int64_t bytes_of(const BenchRow& row) {
    return row["bytes"];
}

// We work in place only. nccl-tests always measures both ways, so it has no sign for a missing time
// (its N/A is one of #wrong alone), and most readers of its tables take the left half for numbers.
// So both halves show the one measurement, and the block says so above the table. Where a kind has
// parts, nccl-tests counts the elements of one (src/all_gather.cu, getCollByteCount). Its times
// have fewer decimals the larger they are.
std::string nccl_row(CollectiveKind kind, const BenchRow& row) {
    const std::int64_t elements = row["tensor_elements"];
    const std::int64_t ranks = row["world_size"];
    const double us = row["time_s"].get<double>() * 1e6;
    const int decimals = us >= 10'000 ? 0 : us >= 100 ? 1 : 2;
    const double gb_per_s = gb_per_s_of(row);
    const std::string half = fmt::format("  {:7.{}f}  {:6.2f}  {:6.2f}  {:>5}", us, decimals,
                                         gb_per_s, gb_per_s * bus_factor(kind, ranks), 0);
    const auto dtype = choice_named(row["dtype"].get<std::string>(), every<DType>, "dtype");
    return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", bytes_of(row),
                       kind == CollectiveKind::all_reduce ? elements : elements / ranks,
                       nccl_types.at(static_cast<std::size_t>(dtype)),
                       kind == CollectiveKind::all_gather ? "none" : "sum", -1, half, half);
}

// "step: 2(factor)" if each size is so many times the one before; nccl-tests has no lists.
std::string nccl_step(const BenchRows& block) {
    const std::int64_t factor = block.size() < 2 ? 0 : bytes_of(block[1]) / bytes_of(block[0]);
    const auto other = std::adjacent_find(block.begin(), block.end(),
                                          [&](const BenchRow& one, const BenchRow& next) {
                                              return bytes_of(next) != factor * bytes_of(one);
                                          });
    return factor == 0 || other != block.end() ? "0(list)" : fmt::format("{}(factor)", factor);
}

std::string nccl_devices(const EnvironmentRecord& environment, std::int64_t ranks) {
    std::string text = "# Using devices\n";
    const bool shared = environment.transport.shared_gpu;
    const std::string device =
        environment.gpu.empty() ? "[cpu] " + environment.machine.cpu
                                : "[gpu] " + environment.gpu.substr(0, environment.gpu.find(','));
    const std::int64_t per_host = (ranks + environment.hosts - 1) / environment.hosts;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        // Process ids, and bus ids, which a CPU lacks, are not in the records.
        text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} {}\n", rank, 0,
                            fmt::format("host{:02}", rank / per_host), shared ? 0 : rank % per_host,
                            device);
    }
    return text + "#\n";
}

// clang-format off
constexpr std::string_view nccl_heading =
    "#                                                              out-of-place     "
    "                  in-place          \n"
    "#       size         count      type   redop    root     time   algbw   busbw #w"
    "rong     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)   "
    "         (us)  (GB/s)  (GB/s)       \n";
// clang-format on

std::string nccl_block(CollectiveKind kind, const EnvironmentRecord& environment,
                       const BenchRows& block) {
    const BenchRow& first = block.front();
    const std::int64_t ranks = first["world_size"];
    const std::string program = with_replaced(name_of(kind), {{'-', "_"}}) + "_perf";
    std::string text = fmt::format(
        "# bucketwise {}: {} {} over {}, {} ranks; medians of the slowest rank, in place; both "
        "halves of a row show that one measurement\n"
        "# Collective test starting: {}\n"
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {} warmup iters: 1 iters: {} agg iters: "
        "1 validation: 1 graph: 0\n#\n",
        environment.version, first["implementation"].get<std::string>(), name_of(kind),
        environment.libraries, ranks, program, bytes_of(first), bytes_of(block.back()),
        nccl_step(block), first["samples"].get<std::int64_t>());
    text += nccl_devices(environment, ranks);
    text += nccl_heading;
    double sum = 0;
    for (const BenchRow& row : block) {
        text += nccl_row(kind, row);
        sum += gb_per_s_of(row) * bus_factor(kind, ranks);
    }
    // A wrong sum would have failed the run.
    return text + fmt::format(
                      "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {:.6g} \n#\n"
                      "# Collective test concluded: {}\n#\n",
                      sum / static_cast<double>(block.size()), program);
}

}  // namespace

std::string nccl_tests_report(CollectiveKind kind, const EnvironmentRecord& environment,
                              const BenchRows& rows) {
    std::string text;
    for (auto begin = rows.begin(); begin != rows.end();) {
        const auto end = std::find_if(begin, rows.end(), [&](const BenchRow& row) {
            return row["world_size"] != (*begin)["world_size"] ||
                   row["algorithm"] != (*begin)["algorithm"];
        });
        text += nccl_block(kind, environment, {begin, end});
        begin = end;
    }
    return text;
}

}  // namespace bucketwise
