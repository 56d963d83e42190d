// Reading the section workload of a scenario: a model, or gradients and operations one by one.
#pragma once

#include <variant>

#include "sim/base/json_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Throws InputError.
std::variant<ModelWorkload, GradientWorkload> read_workload(const JsonPlace& place);
JsonDescription workload_description();

// Throws InputError where the times of operations at `place`, the workload, are not as many as the
// model has operations. A synchronised BatchNorm has one operation more.
void check_operation_counts(const JsonPlace& place, const ModelWorkload& workload,
                            BatchNormSync batch_norm);

// Only the ratio of arithmetic to memory rate matters where totals are measured and no device is
// given; an A100 stands for all.
Device device_for_spreading();

}  // namespace bucketwise
