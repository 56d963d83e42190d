// A synchronised BatchNorm layer on real ranks: its time, its memory, and whether it normalises.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/bench.h"
#include "sim/workload/batch_norm_layer.h"

namespace bucketwise {

// Collective. Checks each layer once, then measures `iterations` steps of it in every round. On
// rank 0, a row for each layer: times of the slowest rank, memory of the rank with most. Throws
// std::runtime_error for a wrong result.
BenchRows measure_layers(const std::vector<BatchNormLayer>& layers, std::int64_t iterations,
                         const MeasuringOrder& order, RankSession& session);

}  // namespace bucketwise
