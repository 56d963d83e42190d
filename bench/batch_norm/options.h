// What `bucketwise bench syncbn` was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_options.h"
#include "cli/shell/command_help.h"
#include "cli/shell/csv.h"
#include "cli/shell/result_table.h"
#include "hw/launch/rank_identity.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/batch_norm_layer.h"

namespace bucketwise {

// The machine that is simulated.
struct SimulatedMachine {
    std::string scenario;  // its name
    Device device;
    RankGroup group;
    LinkParameters link;
};

struct BenchSyncBnOptions : BenchOptions {
    std::optional<SimulatedMachine> machine;  // none: nothing is simulated
    int ranks = 2;
    std::vector<BatchNormLayer> layers;  // rows of the table, in its order
    std::int64_t iterations = 0;
    std::optional<CsvFile> published;
    TableFormat format = TableFormat::text;
};

// `identity`: who this process is, if a launcher started it; its number of ranks then holds. Throws
// InputError and UsageError.
BenchSyncBnOptions bench_syncbn_options(const CommandLine& line,
                                        const std::optional<RankIdentity>& identity);

}  // namespace bucketwise
