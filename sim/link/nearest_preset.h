// Which preset measured all-reduces are most like, and how far from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/link_presets.h"

namespace bucketwise {

struct MeasuredTime {
    Bytes bytes;
    double us = 0;
    bool operator==(const MeasuredTime&) const = default;
};

struct PresetDistance {
    const LinkPreset* preset = nullptr;
    double mean_error = 0;    // mean of what is typical over what was measured, less 1, as a share
    std::int64_t sizes = 0;   // compared
    std::int64_t inside = 0;  // of them, within the preset's range
};

// What was measured, and on what. `gpu`: its name, such as "NVIDIA H100 80GB HBM3", or empty.
struct MeasuredTimes {
    std::vector<MeasuredTime> times = {};
    std::int64_t ranks = 1;
    std::int64_t nodes = 1;
    std::string gpu = {};
};

// Of the presets that have a place for so many ranks on so many nodes, and are not of another GPU,
// the one whose typical times are nearest, by the mean of the ratios' logarithms. Sizes from 64 KiB
// on count, where there are any: below, times are the launching's. None: no preset has that place,
// or nothing was measured.
std::optional<PresetDistance> nearest_preset(const MeasuredTimes& measured);

}  // namespace bucketwise
