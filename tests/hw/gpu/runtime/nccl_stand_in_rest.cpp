// With nccl_stand_in.cpp, a library that has every NCCL function of the program. All of them fail:
// it is to be found, not to be used.
extern "C" {
#define BUCKETWISE_FAILS(function) \
    int function();                \
    int function() {               \
        return 1;                  \
    }
BUCKETWISE_FAILS(ncclGetUniqueId)
BUCKETWISE_FAILS(ncclGetErrorString)
BUCKETWISE_FAILS(ncclGetLastError)
BUCKETWISE_FAILS(ncclCommInitRankConfig)
BUCKETWISE_FAILS(ncclCommGetAsyncError)
BUCKETWISE_FAILS(ncclCommAbort)
BUCKETWISE_FAILS(ncclAllReduce)
BUCKETWISE_FAILS(ncclAllGather)
BUCKETWISE_FAILS(ncclReduceScatter)
BUCKETWISE_FAILS(ncclBroadcast)
}
