// Reading a workload that lists its gradients, and perhaps its operations.
#pragma once

#include <cstddef>

#include "sim/base/json_table.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// Generous for anything that exists.
constexpr std::size_t most_gradients = 100'000;
constexpr std::size_t most_operations = 1'000'000;
constexpr double longest_operation_us = 1e10;
JsonType<Duration> operation_time();

// Gradients, and when each is ready. Throws InputError.
GradientWorkload read_gradient_workload(const JsonPlace& place);
const ObjectText& gradient_lists_text();

// Gradients, and the operations that make them ready. Throws InputError.
GradientWorkload read_operation_workload(const JsonPlace& place);
const ObjectText& operation_lists_text();

}  // namespace bucketwise
