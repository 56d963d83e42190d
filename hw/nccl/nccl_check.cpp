#include "hw/nccl/nccl_check.h"

#include "hw/nccl/nccl_library.h"
#include "hw/rank/communicator.h"

namespace bucketwise {

void check_nccl(ncclResult_t result, const char* call, ncclComm_t communicator,
                const CallPlace& place) {
    if (result == ncclSuccess) {
        return;
    }
    // NCCL keeps it for the communicator, or for the thread where there is none yet.
    const char* last = nccl().ncclGetLastError(communicator);
    const bool is_known = last != nullptr && *last != '\0';
    const std::string text = gpu_error_text(call, nccl().ncclGetErrorString(result),
                                            is_known ? last : "NCCL_DEBUG=WARN tells more", place);
    if (result == ncclRemoteError || result == ncclSystemError) {
        throw PeerFailure(text);
    }
    throw GpuError(text);
}

}  // namespace bucketwise
