// Finds steps in an unmarked list of all-reduces: the sequence that repeats.
//
// A ring buffer begins and ends within a step, the first iterations have other buckets, and an
// evaluation or a checkpoint may lie in between; but steps repeat the same all-reduces. The longest
// pause lies between steps, as forward and the optimizer issue none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

// All-reduces of one process group, in the order of issue.
struct IssuedAllReduces {
    std::vector<std::int64_t> sizes = {};
    std::vector<Duration> issued = {};    // empty: unknown
    std::vector<bool> after_others = {};  // since the one before the group did something else
    bool operator==(const IssuedAllReduces&) const = default;
};

// The evidence for the length of a step that repeats itself, and for its begin.
enum class ToldBy : std::uint8_t { order, others, pauses, sum };

struct RepeatedSteps {
    std::size_t length = 0;                // all-reduces of a step
    std::vector<std::size_t> begins = {};  // of whole steps, in the list
    ToldBy length_by = ToldBy::order;      // others: by the iterations before that have other sizes
    ToldBy begin_by = ToldBy::order;       // order, others or pauses
    bool operator==(const RepeatedSteps&) const = default;
};

// The number of last all-reduces that are examined, and the longest step, in all-reduces.
constexpr std::size_t most_looked_at = 20'000;
constexpr std::size_t longest_step = 2'000;

// `sum`: of a step's sizes, if known. Finds nothing (length 0) where no sequence happens twice
// without a break, or many all-reduces after its first are not part of it.
//
// A step begins where the group does something else before it (a broadcast of buffers, the average
// of a loss), as DistributedDataParallel does nothing between two buckets. Otherwise it begins
// after the longest pause, and without times at the first all-reduce of the sequence.
RepeatedSteps find_steps(const IssuedAllReduces& all_reduces, std::optional<std::int64_t> sum);

}  // namespace bucketwise
