// The engine: moves ranks through their programs, by events where collectives and computing disturb
// each other, and without where they do not.
#pragma once

#include <span>

#include "sim/engine/event_engine.h"
#include "sim/engine/step_times.h"
#include "sim/program/program.h"

namespace bucketwise {

// Moves each rank on to the end of its program: the progress that simulate() gives. Where
// collectives and computing do not disturb each other, without its events, several times as fast.
void run_programs(std::span<const Program> ranks, std::span<RankProgress> progress);

// A group of equal ranks.
StepTimes simulate_times(const Program& program, const RankProgress& start = {});

}  // namespace bucketwise
