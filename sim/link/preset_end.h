// What a prior leaves open: its range, and which end of it.
#pragma once

#include <array>
#include <cstdint>

#include "sim/base/names.h"

namespace bucketwise {

// Which end of its range.
enum class PresetEnd : std::uint8_t { slow, typical, fast };

template <>
inline constexpr auto names_of<PresetEnd> = names("slow", "typical", "fast");

// By end. Slow, typical, fast.
using PresetRange = std::array<double, 3>;

}  // namespace bucketwise
