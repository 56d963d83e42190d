// Observations of training steps that a gate compares: times by step, and evidence of why they
// changed.
//
// The nouns: a case is one thing that is trained, such as a scenario, a cap of a measurement, or
// the subject of a trace; a run is one execution of it, a sequence of steps.
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

// The parts of a step's time, in ms. A step computes, copies, and waits: for launches, for
// communication (exposed), and for others, which are other ranks and streams.
enum class StepPart : std::uint8_t { step, exposed, computing, copying, launching, others };

template <>
inline constexpr auto names_of<StepPart> = names("step_ms", "exposed_ms", "computing_ms",
                                                 "copying_ms", "launching_ms", "others_ms");

struct GateBucket {
    Bytes bytes;                     // 0: unknown
    std::string last_gradient = {};  // that fills it; empty: unknown
    // By step: its readiness, from the start of backward, and its collective's time once its turn
    // had come. Empty: unknown.
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
    // By StepPart, then by step; empty: unknown. Steps are always known.
    std::array<std::vector<double>, every<StepPart>.size()> parts = {};
    std::vector<GateBucket> buckets = {};      // in launch order
    std::vector<GateGradient> gradients = {};  // by readiness; empty: unknown
    // Collectives contain waiting for other ranks, some of them not observed.
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
    std::string misfit = {};         // sentences: a predicted step does not fit its device
    bool operator==(const GateCase&) const = default;
};

}  // namespace bucketwise
