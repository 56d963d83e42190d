// For functions of the passes that a CPU and a GPU share: what the CUDA compiler makes for both.
#pragma once

#if defined(__CUDACC__)
#define BUCKETWISE_BOTH_SIDES __host__ __device__ __forceinline__
#else
#define BUCKETWISE_BOTH_SIDES inline
#endif
