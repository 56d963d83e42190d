// Whether all ranks have the same bits, as data-parallel ranks must after every synchronisation.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "hw/rank/communicator.h"
#include "hw/training/trainer.h"

namespace bucketwise {

// Names the tensor whose bits are not rank 0's.
class RanksDiffer : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

enum class CheckedTensors : std::uint8_t { gradients, parameters };

// A hash of all bytes of each gradient or parameter, in order. One changed bit changes it.
std::vector<std::int64_t> hashes_of(const Trainer& trainer, CheckedTensors tensors);

// Collective. Compares every tensor's bits with rank 0's. `when`, for messages: "after step 3 of
// epoch 1". Throws RanksDiffer on the ranks that differ from rank 0.
void check_equal_on_all_ranks(const Trainer& trainer, CheckedTensors tensors, ControlGroup& control,
                              const std::string& when);

}  // namespace bucketwise
