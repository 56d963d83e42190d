// A step without its events: where collectives and computing do not disturb each other, nothing
// ever changes its pace, and every moment of a step follows from those before it in one pass over
// the program.
//
// clang-format off
//   host    h(i) = h(i-1) + host(i)                  begins no earlier than the device is idle where
//                                                    the host is the device
//   device  d(i) = max(d(i-1), h(i)) + device(i)     a wait: max(d(i-1), h(i), end of its collective)
//   stream  end(b) = max(last arrival(b), end(b-1)) + time(b)
// clang-format on
//
// The engine gives the same to the picosecond, with or without; a test compares them.
#pragma once

#include <span>

#include "sim/engine/engine.h"
#include "sim/program/program.h"

namespace bucketwise {

// Whether any collective and computing slow each other.
bool disturbs(const Program& program);

// Moves each rank on to the end of its program. Preconditions as simulate()'s; no collective
// disturbs.
void run_undisturbed(std::span<const Program> ranks, std::span<RankProgress> progress);

}  // namespace bucketwise
