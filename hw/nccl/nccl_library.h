// NCCL, opened at run time: the functions that this program calls, typed as their header has them.
#pragma once

#include <nccl.h>

#include "hw/gpu/runtime/opened_library.h"

namespace bucketwise {

// By their own names, so that a call reads like any other: nccl().ncclCommAbort(communicator).
struct NcclLibrary {
    static const OpenedLibrary& file();

    decltype(&::ncclGetVersion) ncclGetVersion = file()["ncclGetVersion"];
    decltype(&::ncclGetUniqueId) ncclGetUniqueId = file()["ncclGetUniqueId"];
    decltype(&::ncclGetErrorString) ncclGetErrorString = file()["ncclGetErrorString"];
    decltype(&::ncclGetLastError) ncclGetLastError = file()["ncclGetLastError"];
    decltype(&::ncclCommInitRankConfig) ncclCommInitRankConfig = file()["ncclCommInitRankConfig"];
    decltype(&::ncclCommGetAsyncError) ncclCommGetAsyncError = file()["ncclCommGetAsyncError"];
    decltype(&::ncclCommAbort) ncclCommAbort = file()["ncclCommAbort"];
    decltype(&::ncclAllReduce) ncclAllReduce = file()["ncclAllReduce"];
    decltype(&::ncclAllGather) ncclAllGather = file()["ncclAllGather"];
    decltype(&::ncclReduceScatter) ncclReduceScatter = file()["ncclReduceScatter"];
    decltype(&::ncclBroadcast) ncclBroadcast = file()["ncclBroadcast"];
};

// Opens it the first time, which takes about a millisecond. Throws LibraryError where the library
// of the headers' major version is not found, or lacks one of the functions.
const NcclLibrary& nccl();

}  // namespace bucketwise
