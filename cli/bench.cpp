// bucketwise bench SUBCOMMAND: one kind of measurement each, on real ranks.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/command.h"

namespace bucketwise {
namespace {

struct Bench {
    std::string_view name;
    std::string_view summary;
    int (*run)(const std::vector<std::string>&);
};

constexpr std::array<Bench, 8> benches{{
    {"allreduce", "time, memory and exactness of all-reduces, by algorithm, size and ranks",
     run_bench_allreduce},
    {"bucketed", "bucket sizes by sequence lengths and batch sizes (CS336)", run_bench_bucketed},
    {"compare-ddp", "DistributedDataParallel beside Python reductions (PyTorch's ddp/compare)",
     run_bench_compare_ddp},
    {"compute", "one rank's step without communication, predicted and measured, layer by layer",
     run_bench_compute},
    {"copies", "what packing gradients into a bucket costs beside a plain copy", run_bench_copies},
    {"ddp-strategies", "naive, flat and overlapped synchronisation (CS336)",
     run_bench_ddp_strategies},
    {"syncbn", "a BatchNorm layer synchronised over ranks, by implementation, batch and width",
     run_bench_syncbn},
    {"training", "a data-parallel training run, simulated and real", run_bench_training},
}};

std::string usage() {
    std::string text =
        "usage: bucketwise bench WHAT [OPTIONS]\n\nMeasures on real ranks; most simulate "
        "too.\n\nwhat:\n";
    for (const Bench& bench : benches) {
        text += fmt::format("  {:<14} {}\n", bench.name, bench.summary);
    }
    return text + "\n  bucketwise bench WHAT --help   its options and examples\n";
}

}  // namespace

int run_bench(const std::vector<std::string>& arguments) {
    if (arguments.empty()) {
        throw UsageError{
            "bench: expected what to measure, got nothing; see bucketwise bench --help"};
    }
    const std::string& name = arguments.front();
    if (name == "--help" || name == "-h" || name == "help") {
        fmt::print("{}", usage());
        return exit_done;
    }
    for (const Bench& bench : benches) {
        if (bench.name == name) {
            return bench.run({arguments.begin() + 1, arguments.end()});
        }
    }
    throw UsageError{fmt::format(
        "bench: expected what to measure, got \"{}\"; see bucketwise bench --help", name)};
}

}  // namespace bucketwise
