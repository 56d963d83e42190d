// A synchronised BatchNorm layer on real ranks: its time, its memory, and whether it normalises.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

#include "hw/measure/rank_session.h"
#include "sim/workload/batch_norm_layer.h"

namespace bucketwise {

struct MeasuredLayer {
    std::vector<double> samples_us;      // of the slowest rank, one per step
    std::int64_t peak_memory_bytes = 0;  // of the rank with most
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MeasuredLayer, samples_us, peak_memory_bytes)

// Collective. Checks each layer once, then measures `iterations` steps of it in every round. The
// result, in the layers' order, is rank 0's. Throws std::runtime_error for a wrong result.
std::vector<MeasuredLayer> measure_layers(const std::vector<BatchNormLayer>& layers,
                                          std::int64_t iterations, const MeasuringOrder& order,
                                          RankSession& session);

}  // namespace bucketwise
