// The tables of nccl-tests' all_reduce_perf, all_gather_perf and reduce_scatter_perf, for readers
// of those.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bench/all_reduce/all_reduce.h"
#include "sim/base/names.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

// In the order of DType.
constexpr auto nccl_types = names("float", "half", "bfloat16", "double");

// We work in place only. nccl-tests always measures both ways, so it has no sign for a missing time
// (its N/A is one of #wrong alone), and most readers of its tables take the left half for numbers.
// So both halves show the one measurement, and the block says so above the table. Where a kind has
// parts, nccl-tests counts the elements of one (src/all_gather.cu, getCollByteCount). Its times
// have fewer decimals the larger they are.
std::string nccl_row(CollectiveKind kind, const AllReduceRecord& record) {
    const std::int64_t elements = record.size.count / element_size(record.dtype).count;
    const bool whole = kind == CollectiveKind::all_reduce;
    const double us = median(record.samples_us);
    const int decimals = us >= 10'000 ? 0 : us >= 100 ? 1 : 2;
    const std::string half = fmt::format("  {:7.{}f}  {:6.2f}  {:6.2f}  {:>5}", us, decimals,
                                         algorithm_gb_per_s(record), bus_gb_per_s(kind, record), 0);
    return fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", record.size.count,
                       whole ? elements : elements / record.transport.ranks,
                       nccl_types.at(static_cast<std::size_t>(record.dtype)),
                       kind == CollectiveKind::all_gather ? "none" : "sum", -1, half, half);
}

using Block = std::vector<AllReduceRecord>;  // of one world, by size

// "step: 2(factor)" if each size is so many times the one before; nccl-tests has no lists.
std::string nccl_step(const Block& block) {
    const std::int64_t factor = block.size() < 2 ? 0 : block[1].size.count / block[0].size.count;
    for (std::size_t i = 1; i < block.size(); ++i) {
        if (block[i].size.count != factor * block[i - 1].size.count) {
            return "0(list)";
        }
    }
    return block.size() < 2 ? "0(list)" : fmt::format("{}(factor)", factor);
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

std::string nccl_heading() {
    constexpr std::string_view form =
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6} {:>6}  {:>7}  {:>6}  {:>6} "
        "{:>6}\n";
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {}\n", "", "", "", "", "",
                       "         out-of-place                       in-place          ") +
           fmt::format(form, "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                       "#wrong", "time", "algbw", "busbw", "#wrong") +
           fmt::format(form, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "",
                       "(us)", "(GB/s)", "(GB/s)", "");
}

std::string nccl_block(CollectiveKind kind, const EnvironmentRecord& environment,
                       const Block& block) {
    const Transport& transport = block.front().transport;
    const std::string program = with_replaced(name_of(kind), {{'-', "_"}}) + "_perf";
    std::string text = fmt::format(
        "# bucketwise {}: {} {} {} over {}, {} ranks; medians of the slowest rank, in place; both "
        "halves of a row show that one measurement\n"
        "# Collective test starting: {}\n"
        "# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {} warmup iters: 1 iters: {} agg iters: "
        "1 validation: 1 graph: 0\n#\n",
        environment.version, transport.implementation, transport.algorithm, name_of(kind),
        environment.libraries, transport.ranks, program, block.front().size.count,
        block.back().size.count, nccl_step(block), block.front().samples_us.size());
    text += nccl_devices(environment, transport.ranks) + nccl_heading();
    double sum = 0;
    for (const AllReduceRecord& record : block) {
        text += nccl_row(kind, record);
        sum += bus_gb_per_s(kind, record);
    }
    // A wrong sum would have failed the run.
    return text + fmt::format(
                      "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {:.6g} \n#\n"
                      "# Collective test concluded: {}\n#\n",
                      sum / static_cast<double>(block.size()), program);
}

}  // namespace

std::string nccl_tests_report(CollectiveKind kind, const EnvironmentRecord& environment,
                              const std::vector<AllReduceRecord>& records) {
    std::string text;
    for (auto begin = records.begin(); begin != records.end();) {
        const auto end = std::ranges::find_if(begin, records.end(), [&](const auto& record) {
            return record.transport != begin->transport;
        });
        text += nccl_block(kind, environment, {begin, end});
        begin = end;
    }
    return text;
}

}  // namespace bucketwise
