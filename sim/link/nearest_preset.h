// The preset that measured all-reduces resemble most, and how far they are from it.
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
    double mean_error = 0;    // mean of typical over measured times, less 1, as a share
    std::int64_t sizes = 0;   // compared
    std::int64_t inside = 0;  // of them, within the preset's range
};

// Measured times and their hardware. `gpu`: its name, such as "NVIDIA H100 80GB HBM3", or empty.
struct MeasuredTimes {
    std::vector<MeasuredTime> times = {};
    std::int64_t ranks = 1;
    std::int64_t nodes = 1;
    std::string gpu = {};
};

// The preset whose typical times are nearest, by the mean of the ratios' logarithms, among those
// that hold so many ranks on so many nodes and are not of another GPU. Sizes from 64 KiB on count,
// where there are any: below, launching dominates. Empty: no preset holds the ranks, or nothing was
// measured.
std::optional<PresetDistance> nearest_preset(const MeasuredTimes& measured);

}  // namespace bucketwise
