// How many ranks a table was measured on, told from the table alone: its busbw is 2 (n - 1) / n
// times its algbw, of all-gathers and reduce-scatters half of that, both rounded; and of these the
// size is n times the count.
#pragma once

#include <cstdint>
#include <vector>

#include "import/nccl_tests/nccl_tests_row.h"
#include "sim/link/network/algorithm.h"

namespace bucketwise {

// The numbers of ranks that agree with most rows.
struct InferredRanks {
    std::int64_t fewest = 1;
    std::int64_t most = 1;
    std::int64_t agreeing = 0;  // times (two a row) that leave fewer than all numbers and agree
    std::int64_t telling = 0;   // times that leave fewer than all numbers
    bool operator==(const InferredRanks&) const = default;

    [[nodiscard]] bool is_known() const { return telling > 0; }
    [[nodiscard]] bool is_one() const { return is_known() && fewest == most; }
};

// Only multiples of `multiple` (at least 1) are considered.
InferredRanks infer_ranks(CollectiveKind kind, const std::vector<NcclTestsRow>& rows,
                          std::int64_t multiple);

// Whether nearly all rows can have been measured on `ranks`.
bool agrees_with_ranks(CollectiveKind kind, const std::vector<NcclTestsRow>& rows,
                       std::int64_t ranks);

}  // namespace bucketwise
