#include "hw/gloo/gloo_communicator.h"

#include <gloo/allgather.h>
#include <gloo/broadcast.h>

#include <cstring>

namespace bucketwise {

void GlooCommunicator::all_reduce_sum(void* data, std::int64_t elements, DType dtype) {
    if (ranks() > 1 && elements > 0) {
        reduce_over_ranks(data, elements, dtype);
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
    options.setTimeout(group_.deadline());
    group_.collective("all-gather", [&] { gloo::allgather(options); });
}

void GlooCommunicator::broadcast_from_first(void* data, Bytes size) {
    if (ranks() == 1 || size.count == 0) {
        return;
    }
    gloo::BroadcastOptions options(group_.context());
    options.setOutput(static_cast<char*>(data), static_cast<std::size_t>(size.count));
    options.setRoot(0);
    options.setTimeout(group_.deadline());
    group_.collective("broadcast", [&] { gloo::broadcast(options); });
}

}  // namespace bucketwise
