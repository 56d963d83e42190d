#include "hw/gloo/gloo_communicator.h"

#include <gloo/allgather.h>

#include <cstring>

namespace bucketwise {

void GlooCommunicator::all_reduce_sum(void* data, std::int64_t elements, DType dtype) {
    if (ranks() > 1 && elements > 0) {
        all_reduce_(group_, scratch_, data, elements, dtype);
    }
}

// In place: Gloo would copy what it is given as its input, too.
void GlooCommunicator::all_gather(const void* own, void* all, Bytes size) {
    if (size.count == 0) {
        return;
    }
    auto* const blocks = static_cast<char*>(all);
    std::memcpy(blocks + rank() * size.count, own, static_cast<std::size_t>(size.count));
    if (ranks() == 1) {
        return;
    }
    gloo::AllgatherOptions options(group_.context());
    options.setOutput(blocks, static_cast<std::size_t>(ranks() * size.count));
    group_.collective("all-gather", options, gloo::allgather);
}

}  // namespace bucketwise
