// Percentiles of single steps under the variation from step to step: computing, operations,
// collectives, ranks, stragglers. Errors of a fit are not drawn here (sim/predict/confidence.h);
// the steps are those of the described machine.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/plan/strategy.h"
#include "sim/predict/planned_setting.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"

namespace bucketwise {

struct StepPercentiles {
    Duration p50{0};
    Duration p90{0};
    Duration p95{0};
    Duration p99{0};
    bool operator==(const StepPercentiles&) const = default;
};

// By choice; choices differ only in their bucket plans, or in how they shard. All share each draw:
// the time of each operation, the slowest rank, and the k-th collective's deviation. Draws come
// from the seed in `input`: the same input gives the same answer. The accumulated micro-steps of a
// step vary alike. The percentile q of n steps is the one at rank q (n - 1), rounded. Throws
// InputError if a drawn step could last longer than longest_duration.
std::vector<StepPercentiles> percentiles_of(const StepInput& input,
                                            const std::vector<Setting>& choices,
                                            std::int64_t draws);

struct PercentileRow {
    Cap cap = Cap::none();
    std::optional<ShardingRequest> sharding = {};  // in place of a cap
    StepPercentiles steps = {};
    bool operator==(const PercentileRow&) const = default;
};

// The rows of a prediction that matter (rows_that_matter), and the framework's default, or a
// sharded scenario's own setting.
struct PercentileTable {
    std::int64_t draws = 0;
    std::vector<PercentileRow> rows;  // by rising cap; the default last
    // Indices into rows: the prediction's choice, and the least of each percentile.
    std::size_t chosen = 0;
    std::size_t best_p50 = 0;
    std::size_t best_p99 = 0;
    bool operator==(const PercentileTable&) const = default;

    [[nodiscard]] std::size_t default_row() const { return rows.size() - 1; }
};

PercentileTable percentile_table(const StepInput& input, const SyncRequest& request,
                                 const Prediction& prediction, std::int64_t draws);

}  // namespace bucketwise
