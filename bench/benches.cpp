#include "bench/benches.h"

#include <array>

namespace bucketwise {
namespace {

constexpr std::array<CommandEntry, 8> bench_entries{{
    {"allreduce", "time, memory and exactness of all-reduces, by algorithm, size and ranks",
     bench_allreduce_help},
    {"allgather", "the same for all-gathers", bench_allgather_help},
    {"reducescatter", "the same for reduce-scatters", bench_reducescatter_help},
    {"bucketed", "bucket sizes by sequence lengths and batch sizes (CS336)", bench_bucketed_help},
    {"compare-ddp", "DistributedDataParallel beside Python reductions (PyTorch's ddp/compare)",
     bench_compare_ddp_help},
    {"ddp-strategies", "naive, flat and overlapped synchronisation (CS336)",
     bench_ddp_strategies_help},
    {"syncbn", "a BatchNorm layer synchronised over ranks, by implementation, batch and width",
     bench_syncbn_help},
    {"training", "a data-parallel training run, simulated and real", bench_training_help},
}};
}  // namespace

const CommandGroup bench_group{.name = "bench",
                               .wants = "what to measure",
                               .usage = "bench WHAT [OPTIONS]",
                               .explanation = "Measures on real ranks; most simulate too.",
                               .text = R"(
examples:
  bucketwise bench allreduce
  bucketwise bench ddp-strategies scenarios/cs336_ddp.json --simulate
)",
                               .commands = bench_entries};

}  // namespace bucketwise
