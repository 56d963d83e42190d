// Events.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "tests/emulated_gpu/completion.h"
#include "tests/emulated_gpu/handles.h"

namespace bucketwise::emulated {
class Capture;
}

// Under issuing().
struct CUevent_st {
    CUevent_st(int on_device, bool with_time) : device(on_device), timing(with_time) {}

    int device;
    bool timing;
    // When the most recent record is done; null where there was none.
    bucketwise::emulated::Completion* latest = nullptr;
    // Where that record was captured; then latest is null.
    bucketwise::emulated::Capture* capture = nullptr;
    std::size_t slot = 0;  // in the capture
};
