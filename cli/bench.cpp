// bucketwise bench SUBCOMMAND: one kind of measurement each, on real ranks.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "bench/benches.h"
#include "cli/commands.h"
#include "cli/shell/command_help.h"

namespace bucketwise {
namespace {

constexpr std::array<CommandEntry, 8> benches{{
    {"allreduce", "time, memory and exactness of all-reduces, by algorithm, size and ranks",
     run_bench_allreduce, bench_allreduce_help},
    {"bucketed", "bucket sizes by sequence lengths and batch sizes (CS336)", run_bench_bucketed,
     bench_bucketed_help},
    {"compare-ddp", "DistributedDataParallel beside Python reductions (PyTorch's ddp/compare)",
     run_bench_compare_ddp, bench_compare_ddp_help},
    {"compute", "one rank's step without communication, predicted and measured, layer by layer",
     run_bench_compute, bench_compute_help},
    {"copies", "what packing gradients into a bucket costs beside a plain copy", run_bench_copies,
     bench_copies_help},
    {"ddp-strategies", "naive, flat and overlapped synchronisation (CS336)",
     run_bench_ddp_strategies, bench_ddp_strategies_help},
    {"syncbn", "a BatchNorm layer synchronised over ranks, by implementation, batch and width",
     run_bench_syncbn, bench_syncbn_help},
    {"training", "a data-parallel training run, simulated and real", run_bench_training,
     bench_training_help},
}};

constexpr std::string_view bench_text = R"(
  bucketwise bench WHAT --help   its options and examples

examples:
  bucketwise bench allreduce
  bucketwise bench ddp-strategies scenarios/cs336_ddp.json --simulate
)";

}  // namespace

const CommandGroup& bench_commands() {
    static const CommandGroup group{.name = "bench",
                                    .wants = "what to measure",
                                    .usage = "bench WHAT [OPTIONS]",
                                    .explanation = "Measures on real ranks; most simulate too.",
                                    .text = bench_text,
                                    .commands = benches};
    return group;
}

int run_bench(const std::vector<std::string>& arguments) {
    return run_group(bench_commands(), arguments);
}

}  // namespace bucketwise
