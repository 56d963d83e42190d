// The number of ranks of a table, inferred from the table alone: an all-reduce's busbw is
// 2 (n - 1) / n times its algbw, both rounded; an all-gather's or reduce-scatter's is half of that,
// and its size is n times the count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "import/nccl_tests/nccl_tests_log.h"
#include "import/nccl_tests/nccl_tests_row.h"
#include "sim/link/network/algorithm.h"

namespace bucketwise {

// The numbers of ranks that agree with most rows.
struct InferredRanks {
    std::int64_t fewest = 1;
    std::int64_t most = 1;
    std::int64_t telling = 0;   // times (two a row) that exclude any number
    std::int64_t agreeing = 0;  // those of them that allow these numbers
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

// A number of ranks or of nodes, and its source.
struct Told {
    std::int64_t number = 0;
    std::string how;  // as the report says it
};

// Throws InputError, which names the place of the run.
[[noreturn]] void contradict(const NcclTestsLog& log, const NcclTestsRun& run,
                             const std::string& expected, const std::string& got);

// "all-gathers"
std::string plural_of(CollectiveKind kind);

// The run's ranks by its log, its table or `asked` (--ranks; 0: not given), and its nodes. Throw
// InputError where these contradict each other, and for ranks that nothing tells.
Told ranks_of(const NcclTestsLog& log, const NcclTestsRun& run, std::int64_t asked);
Told nodes_of(const NcclTestsLog& log, const NcclTestsRun& run,
              std::optional<std::int64_t> ranks_per_node);

}  // namespace bucketwise
