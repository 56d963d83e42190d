// Steps in a list of all-reduces that nothing marks: what repeats.
//
// A ring buffer begins and ends in mid-step, the first iterations have other buckets, and an
// evaluation or a checkpoint may lie in between; but steps repeat the same all-reduces, and between
// the last of one and the first of the next lies the longest pause, as forward and the optimizer
// issue none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"

namespace bucketwise {

// All-reduces of one process group, in the order of issue.
struct IssuedAllReduces {
    std::vector<std::int64_t> sizes = {};  // that tell one from another
    std::vector<Duration> issued = {};     // empty: not known
    std::vector<bool> after_others = {};   // since the one before the group did something else
    bool operator==(const IssuedAllReduces&) const = default;
};

// What a step is told by where the same all-reduces repeat within it, and where it begins.
enum class ToldBy : std::uint8_t { order, others, pauses, sum };

struct RepeatedSteps {
    std::size_t length = 0;                // all-reduces of a step
    std::vector<std::size_t> begins = {};  // of whole steps, in the list
    ToldBy length_by = ToldBy::order;      // others: by the iterations before that have other sizes
    ToldBy begin_by = ToldBy::order;       // order, others or pauses
    bool operator==(const RepeatedSteps&) const = default;
};

// Only the last so many all-reduces are looked at, and steps of at most so many.
constexpr std::size_t most_looked_at = 20'000;
constexpr std::size_t longest_step = 2'000;

// `sum`: of a step's sizes, where it is known. Nothing is found (length 0) where no sequence
// happens twice without a break, or many all-reduces from its first on are no part of it.
//
// A step begins where the group does something else before it (a broadcast of buffers, a loss that
// is averaged): between two buckets DistributedDataParallel does not. Else after the longest pause,
// and without times where the first of what repeats does.
RepeatedSteps find_steps(const IssuedAllReduces& all_reduces, std::optional<std::int64_t> sum);

}  // namespace bucketwise
