// One step, predicted and measured, as spans for a picture.
#pragma once

#include <string>
#include <vector>

#include "calibrate/comparison/measured_setting.h"
#include "sim/engine/step_loop.h"
#include "sim/program/program.h"

namespace bucketwise {

struct PictureSpan {
    std::string what;  // a phase, "bucket 1", or a kind of collective
    double begin_ms = 0;
    double end_ms = 0;
    bool operator==(const PictureSpan&) const = default;
};

struct StepPicture {
    std::vector<PictureSpan> computing;
    std::vector<PictureSpan> communicating;
    double step_ms = 0;
    bool operator==(const StepPicture&) const = default;
};

// `program` runs from the start of a settled step.
StepPicture predicted_picture(const Program& program, const StepLoop& loop);

// The step of medians of rank 0, whose program it is. Where collectives block what computes, that
// computes between them; else forward, then backward as far as rank 0 computed, then the optimizer
// at the end.
StepPicture measured_picture(const MeasuredSetting& measured, const Program& program);

}  // namespace bucketwise
