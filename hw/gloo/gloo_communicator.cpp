#include "hw/gloo/gloo_communicator.h"

#include <gloo/broadcast.h>

namespace bucketwise {

void GlooCommunicator::all_reduce_sum(void* data, std::int64_t elements, DType dtype) {
    if (ranks() > 1 && elements > 0) {
        reduce_over_ranks(data, elements, dtype);
    }
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
