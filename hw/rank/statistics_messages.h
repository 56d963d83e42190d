// A replayed step's substitute for BatchNorm's statistics, and for parameters that ranks updated in
// parts: as many bytes of the same dtype, with values whose sums and places every rank knows, so
// that every element can be checked.
//
// A replayed BatchNorm moves memory, but computes no statistics; an optimizer updates nothing. Each
// collective of the step has a place of its own for its values, filled before the step and read
// after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/dtype.h"
#include "sim/program/program.h"

namespace bucketwise {

// One collective's, in the block of memory that holds all.
struct StatisticsExchange {
    bool gathers = false;  // else all-reduces `own` in place
    DType dtype = DType::float32;
    std::int64_t elements = 0;    // that each rank brings
    std::int64_t own_offset = 0;  // bytes
    std::int64_t all_offset = 0;  // of an all-gather's result
    bool operator==(const StatisticsExchange&) const = default;

    [[nodiscard]] Bytes own_size() const { return elements * element_size(dtype); }
};

class StatisticsMessages {
  public:
    StatisticsMessages() = default;
    StatisticsMessages(const Program& program, int rank, int ranks);

    // Whether the collective exchanges such values.
    [[nodiscard]] static bool stand_for(const Collective& collective);

    // Precondition (asserted): they stand for it.
    [[nodiscard]] const StatisticsExchange& of(std::int32_t collective) const;

    // The block before the step. Empty: the step exchanges none.
    [[nodiscard]] const std::vector<std::byte>& initial() const { return initial_; }
    // `block`: after the step, as long as initial(). Empty: nothing is wrong.
    [[nodiscard]] std::string what_is_wrong(const std::vector<std::byte>& block) const;

  private:
    void add(const Collective& collective, std::size_t index, int rank);

    int ranks_ = 1;
    std::vector<StatisticsExchange> exchanges_;  // by collective; others have no elements
    std::vector<std::byte> initial_;
};

}  // namespace bucketwise
