// From what the host's threads of a process did to the events of its trace.
#pragma once

#include <cstdint>
#include <vector>

#include "import/nsys/export_names.h"
#include "import/nsys/export_process.h"

namespace bucketwise {

// The call that launched a collective, by its kernel's name and what NCCL noted of it. -1
// elements: not known.
CollectiveCall collective_call(const CollectiveLaunch& launch, std::int64_t elements,
                               const ExportProcess& process, const ExportNames& names);

void add_steps(ExportProcess& process);

// The ranges that PyTorch's emit_nvtx pushed: its operations. Collectives that have none get one
// around their launch.
void add_operations(ExportProcess& process, const ExportNames& names);

// Without such ranges: each all-reduce of the group that reduces in backward stands for a gradient,
// which is ready when it is launched. `bytes` of each, in every step, where NCCL notes none. Throws
// InputError where nothing tells their sizes.
void add_standing_gradients(ExportProcess& process, const ExportNames& names,
                            const std::vector<std::int64_t>& bytes);

}  // namespace bucketwise
