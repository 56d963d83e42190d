// What `bucketwise bench training` was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_options.h"
#include "cli/shell/command_help.h"
#include "cli/shell/result_table.h"
#include "hw/launch/rank_identity.h"
#include "hw/training/trainer.h"
#include "sim/base/names.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

enum class TrainingImplementation : std::uint8_t {
    ddp,       // buckets and launches as the scenario's strategy has them
    reference  // one all-reduce of everything after backward
};

template <>
inline constexpr auto names_of<TrainingImplementation> = names("ddp", "reference");

struct BenchTrainingOptions : BenchOptions {
    Scenario scenario;
    std::string file;  // the scenario's, for messages
    bool simulate = false;
    std::int64_t epochs = 0;
    std::int64_t samples = 0;  // to train on
    std::int64_t test_samples = 0;
    double learning_rate = 0;
    std::vector<TrainingImplementation> implementations;
    TableFormat format = TableFormat::text;
    std::string published;  // empty: nothing to compare with

    [[nodiscard]] SyncRequest sync_of(TrainingImplementation implementation) const;
    [[nodiscard]] TrainingTask task_of(TrainingImplementation implementation) const;
    [[nodiscard]] ImageDataRequest data() const;
};

// `identity`: who this process is, if a launcher started it; its number of ranks then holds. Throws
// InputError and UsageError.
BenchTrainingOptions bench_training_options(const CommandLine& line,
                                            const std::optional<RankIdentity>& identity);

}  // namespace bucketwise
