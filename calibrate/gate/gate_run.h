// What was observed of training steps, as far as a gate compares it: times by step, and what tells
// why they changed.
//
// The nouns: a case is one thing that is trained, such as a scenario, a cap of a measurement, or
// whatever a trace is of; a run is one execution of it, which holds steps that follow one another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/names.h"
#include "sim/base/units.h"

namespace bucketwise {

// Where its times are from. A prediction is one step without noise.
enum class GateSource : std::uint8_t { trace, measurement, prediction };

template <>
inline constexpr auto names_of<GateSource> = names("trace", "measurement", "prediction");

// What of a step takes how long, in ms. A step is what it computes, copies, and waits for:
// launches, communication (exposed), and others, which are other ranks and streams.
enum class StepPart : std::uint8_t { step, exposed, computing, copying, launching, others };

template <>
inline constexpr auto names_of<StepPart> = names("step_ms", "exposed_ms", "computing_ms",
                                                 "copying_ms", "launching_ms", "others_ms");

struct GateBucket {
    Bytes bytes;
    std::string last_gradient = {};  // that fills it; empty: not known
    // By step: when it was ready, from the start of backward, and what its collective took once its
    // turn had come. Empty: nothing tells.
    std::vector<double> ready_ms = {};
    std::vector<double> collective_ms = {};
    bool operator==(const GateBucket&) const = default;
};

struct GateGradient {
    std::string name;
    double ready_ms = 0;  // median, from the start of backward
    bool operator==(const GateGradient&) const = default;
};

struct GateRun {
    std::string file;  // without its folder
    // By StepPart, then by step; empty: nothing tells. Steps always are told.
    std::array<std::vector<double>, every<StepPart>.size()> parts = {};
    std::vector<GateBucket> buckets = {};      // in launch order
    std::vector<GateGradient> gradients = {};  // by readiness; empty: nothing tells
    // Collectives hold waiting for other ranks, of which not all were observed.
    bool collectives_wait = false;
    bool operator==(const GateRun&) const = default;

    [[nodiscard]] std::vector<double>& part(StepPart part) {
        return parts[static_cast<std::size_t>(part)];
    }
    [[nodiscard]] const std::vector<double>& part(StepPart part) const {
        return parts[static_cast<std::size_t>(part)];
    }
};

struct GateCase {
    std::string name;
    GateSource source = GateSource::trace;
    std::vector<GateRun> runs = {};  // at least one
    bool operator==(const GateCase&) const = default;
};

}  // namespace bucketwise
