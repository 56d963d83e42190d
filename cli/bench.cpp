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

constexpr std::array<Bench, 4> benches{{
    {"allreduce", "time, memory and exactness of all-reduces, by algorithm, size and ranks",
     run_bench_allreduce},
    {"compute", "one rank's step without communication, predicted and measured, layer by layer",
     run_bench_compute},
    {"copies", "what packing gradients into a bucket costs beside a plain copy", run_bench_copies},
    {"syncbn", "a BatchNorm layer synchronised over ranks, by implementation, batch and width",
     run_bench_syncbn},
}};

std::string usage() {
    std::string text =
        "usage: bucketwise bench WHAT [OPTIONS]\n\nMeasures on real ranks.\n\nwhat:\n";
    for (const Bench& bench : benches) {
        text += fmt::format("  {:<10} {}\n", bench.name, bench.summary);
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
