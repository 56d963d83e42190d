// Devices are no more than numbers to which streams, events and memory belong.
#include "tests/emulated_gpu/device.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/emulated_gpu/errors.h"

namespace bucketwise::emulated {
namespace {

constexpr int multiprocessors = 4;
constexpr int compute_major = 9;
constexpr int compute_minor = 0;
constexpr int clock_khz = 1'000'000;
constexpr int memory_clock_khz = 2'000'000;
constexpr int memory_bus_bits = 5120;
constexpr int l2_bytes = 4 << 20;
constexpr int shared_memory_per_block_bytes = 48 << 10;
constexpr int threads_per_block = 1024;
constexpr int threads_per_multiprocessor = 2048;
constexpr int warp = 32;

thread_local int device_of_thread = 0;

int device_count() {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody here changes the environment
    const char* count = std::getenv("EMULATED_GPUS");
    return count != nullptr ? std::atoi(count) : 8;
}

cudaError_t check_device(int device) {
    if (device_count() <= 0) {
        return cudaErrorNoDevice;
    }
    return device >= 0 && device < device_count() ? cudaSuccess : cudaErrorInvalidDevice;
}

// False for one that is not known here.
bool attribute_of(int device, cudaDeviceAttr attribute, int& value) {
    switch (attribute) {
        case cudaDevAttrMultiProcessorCount:
            value = multiprocessors;
            return true;
        case cudaDevAttrComputeCapabilityMajor:
            value = compute_major;
            return true;
        case cudaDevAttrComputeCapabilityMinor:
            value = compute_minor;
            return true;
        case cudaDevAttrClockRate:
            value = clock_khz;
            return true;
        case cudaDevAttrMemoryClockRate:
            value = memory_clock_khz;
            return true;
        case cudaDevAttrGlobalMemoryBusWidth:
            value = memory_bus_bits;
            return true;
        case cudaDevAttrL2CacheSize:
            value = l2_bytes;
            return true;
        case cudaDevAttrMaxThreadsPerBlock:
            value = threads_per_block;
            return true;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            value = threads_per_multiprocessor;
            return true;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            value = shared_memory_per_block_bytes;
            return true;
        case cudaDevAttrWarpSize:
            value = warp;
            return true;
        case cudaDevAttrPciBusId:
            value = device;
            return true;
        case cudaDevAttrAsyncEngineCount:
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrStreamPrioritiesSupported:
            value = 1;
            return true;
        case cudaDevAttrPciDeviceId:
        case cudaDevAttrPciDomainId:
        case cudaDevAttrMpsEnabled:
        case cudaDevAttrIntegrated:
        case cudaDevAttrEccEnabled:
        case cudaDevAttrComputeMode:
        case cudaDevAttrKernelExecTimeout:
        case cudaDevAttrManagedMemory:
        case cudaDevAttrPageableMemoryAccess:
            value = 0;
            return true;
        default:
            return false;
    }
}

}  // namespace

int current_device() {
    return device_of_thread;
}

}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

cudaError_t cudaGetDeviceCount(int* count) {
    *count = device_count() > 0 ? device_count() : 0;
    return noted(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    const cudaError_t error = check_device(device);
    if (error == cudaSuccess) {
        device_of_thread = device;
    }
    return noted(error);
}

cudaError_t cudaGetDevice(int* device) {
    *device = device_of_thread;
    return noted(check_device(device_of_thread));
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (const cudaError_t error = check_device(device); error != cudaSuccess) {
        return noted(error);
    }
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "Emulated GPU");
    properties->uuid.bytes[0] = static_cast<char>(device);
    std::size_t available = 0;
    cudaMemGetInfo(&available, &properties->totalGlobalMem);
    properties->major = compute_major;
    properties->minor = compute_minor;
    properties->multiProcessorCount = multiprocessors;
    properties->maxThreadsPerBlock = threads_per_block;
    properties->maxThreadsPerMultiProcessor = threads_per_multiprocessor;
    properties->sharedMemPerBlock = shared_memory_per_block_bytes;
    properties->warpSize = warp;
    properties->l2CacheSize = l2_bytes;
    properties->memoryBusWidth = memory_bus_bits;
    properties->pciBusID = device;
    properties->asyncEngineCount = 1;
    properties->concurrentKernels = 1;
    properties->unifiedAddressing = 1;
    properties->streamPrioritiesSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (const cudaError_t error = check_device(device); error != cudaSuccess) {
        return noted(error);
    }
    return noted(attribute_of(device, attribute, *value) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
    if (const cudaError_t error = check_device(device); error != cudaSuccess) {
        return noted(error);
    }
    const int needed =
        std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device);
    return noted(needed < length ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
