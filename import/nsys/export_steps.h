// Which part of an export is a training step: what its ranges mark, or, where nothing does, what
// the device is given to do again and again.
#pragma once

#include <cstddef>
#include <vector>

#include "import/nsys/export_names.h"
#include "import/nsys/export_process.h"

namespace bucketwise {

// More would fill memory, and tell no more.
constexpr std::size_t most_steps_read = 50;

// Ranges of one name on one thread that follow one another and have gradients and the optimizer
// within: ProfilerStep#N, otherwise names for steps, otherwise names with such a word, each those
// that last longest in all. Without them, what lies between the ends of two optimizer steps. Empty:
// nothing marks steps.
std::vector<StepSpan> marked_steps(const ExportProcess& process, const ExportNames& names);

// The longest part of the launches (by rising begin) that is a sequence of kernels repeated three
// times or more, with an all-reduce in it. Where a step begins is told by the optimizer's kernels
// after the last all-reduce; without them by the thread that runs backward. Empty: none is.
std::vector<StepSpan> repeated_steps(const std::vector<DeviceWork>& work, const ExportNames& names);

}  // namespace bucketwise
