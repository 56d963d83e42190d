// Finds the training steps of an export: ranges mark them, or the device is given the same work
// again and again.
#pragma once

#include <cstddef>
#include <string>
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

// Keeps the last most_steps_read marked steps, and their time as the window.
void keep_last_steps(ExportProcess& process);

// Finds steps without marks: the longest part of the launches that is a sequence of kernels
// repeated three times or more, with an all-reduce in it. A step begins after the optimizer's
// kernels that follow the last all-reduce, or else after the thread's that runs backward. Throws
// InputError where there is none, or `step_range` names marks that are not there.
void find_repeated_steps(const std::string& step_range, const ExportNames& names,
                         ExportProcess& process);

}  // namespace bucketwise
