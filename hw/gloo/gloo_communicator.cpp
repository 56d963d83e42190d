#include "hw/gloo/gloo_communicator.h"

#include <cstring>

namespace bucketwise {

void GlooCommunicator::all_reduce_sum(void* data, std::int64_t elements, DType dtype) {
    if (ranks() > 1 && elements > 0) {
        collectives_.all_reduce(group_, scratch_, data, elements, dtype);
    }
}

void GlooCommunicator::reduce_scatter_sum(void* data, std::int64_t elements, DType dtype) {
    if (ranks() > 1 && elements > 0) {
        collectives_.reduce_scatter(group_, scratch_, data, ranks() * elements, dtype);
    }
}

void GlooCommunicator::all_gather(const void* own, void* all, Bytes size) {
    if (size.count == 0) {
        return;
    }
    char* const place = static_cast<char*>(all) + rank() * size.count;
    if (own != place) {
        std::memcpy(place, own, static_cast<std::size_t>(size.count));
    }
    if (ranks() > 1) {
        collectives_.all_gather(group_, all, ranks() * size.count);
    }
}

}  // namespace bucketwise
