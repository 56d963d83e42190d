#include "hw/nccl/nccl_library.h"

#include <string>

#include "hw/gpu/runtime/opened_library.h"

namespace bucketwise {

const NcclLibrary& nccl() {
    static const NcclLibrary functions = [] {
        const OpenedLibrary library("NCCL", "libnccl.so." + std::to_string(NCCL_MAJOR));
        return NcclLibrary{
            .ncclGetVersion = library["ncclGetVersion"],
            .ncclGetUniqueId = library["ncclGetUniqueId"],
            .ncclGetErrorString = library["ncclGetErrorString"],
            .ncclGetLastError = library["ncclGetLastError"],
            .ncclCommInitRankConfig = library["ncclCommInitRankConfig"],
            .ncclCommGetAsyncError = library["ncclCommGetAsyncError"],
            .ncclCommAbort = library["ncclCommAbort"],
            .ncclAllReduce = library["ncclAllReduce"],
            .ncclAllGather = library["ncclAllGather"],
            .ncclBroadcast = library["ncclBroadcast"],
        };
    }();
    return functions;
}

}  // namespace bucketwise
