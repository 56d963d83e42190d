// NCCL, opened at run time: the functions that this program calls, typed as their header has them.
#pragma once

#include <nccl.h>

namespace bucketwise {

// By their own names, so that a call reads like any other: nccl().ncclCommAbort(communicator).
struct NcclLibrary {
    decltype(&::ncclGetVersion) ncclGetVersion;
    decltype(&::ncclGetUniqueId) ncclGetUniqueId;
    decltype(&::ncclGetErrorString) ncclGetErrorString;
    decltype(&::ncclGetLastError) ncclGetLastError;
    decltype(&::ncclCommInitRankConfig) ncclCommInitRankConfig;
    decltype(&::ncclCommGetAsyncError) ncclCommGetAsyncError;
    decltype(&::ncclCommAbort) ncclCommAbort;
    decltype(&::ncclAllReduce) ncclAllReduce;
    decltype(&::ncclAllGather) ncclAllGather;
    decltype(&::ncclBroadcast) ncclBroadcast;
};

// Opens it the first time, which takes about a millisecond. Throws LibraryError where the library
// of the headers' major version is not found, or lacks one of the functions.
const NcclLibrary& nccl();

}  // namespace bucketwise
