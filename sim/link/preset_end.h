// The range of a prior, and its ends.
#pragma once

#include <array>
#include <cstdint>

#include "sim/base/names.h"

namespace bucketwise {

// An end of the range.
enum class PresetEnd : std::uint8_t { slow, typical, fast };

template <>
inline constexpr auto names_of<PresetEnd> = names("slow", "typical", "fast");

// By end. Slow, typical, fast.
using PresetRange = std::array<double, 3>;

}  // namespace bucketwise
