// What an NVTX range is called, and what PyTorch's emit_nvtx appends to the name of an operation:
// "aten::mul, seq = 12, op_id = 340, sizes = [[64, 3], []]" (getNvtxStr() in
// torch/csrc/profiler/util.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bucketwise {

struct RangeText {
    std::string_view name;
    std::int64_t elements = -1;      // of its first input; -1: not said
    std::int64_t all_elements = -1;  // of all inputs that are tensors with sizes
    bool of_operation = false;       // emit_nvtx numbered it
};

RangeText range_text(std::string_view text);

// The same for all ranges that a loop marks: in lower case, without what numbers them. "Step 3" and
// "step_4" are "step", "ProfilerStep#7" is "profilerstep".
std::string repeated_name(std::string_view name);

}  // namespace bucketwise
