// cuBLAS and NCCL as the program calls them: not opened, but the functions of this folder.
#include "hw/gpu/runtime/cublas_library.h"
#include "hw/nccl/nccl_library.h"

namespace bucketwise {

const CublasLibrary& cublas() {
    static constexpr CublasLibrary functions{
        .cublasGetStatusName = ::cublasGetStatusName,
        .cublasGetStatusString = ::cublasGetStatusString,
        .cublasGetProperty = ::cublasGetProperty,
        .cublasCreate = ::cublasCreate,
        .cublasDestroy = ::cublasDestroy,
        .cublasSetStream = ::cublasSetStream,
        .cublasSetWorkspace = ::cublasSetWorkspace,
        .cublasGemmStridedBatchedEx = ::cublasGemmStridedBatchedEx,
    };
    return functions;
}

const NcclLibrary& nccl() {
    static constexpr NcclLibrary functions{
        .ncclGetVersion = ::ncclGetVersion,
        .ncclGetUniqueId = ::ncclGetUniqueId,
        .ncclGetErrorString = ::ncclGetErrorString,
        .ncclGetLastError = ::ncclGetLastError,
        .ncclCommInitRankConfig = ::ncclCommInitRankConfig,
        .ncclCommGetAsyncError = ::ncclCommGetAsyncError,
        .ncclCommAbort = ::ncclCommAbort,
        .ncclAllReduce = ::ncclAllReduce,
        .ncclAllGather = ::ncclAllGather,
        .ncclReduceScatter = ::ncclReduceScatter,
        .ncclBroadcast = ::ncclBroadcast,
    };
    return functions;
}

}  // namespace bucketwise
