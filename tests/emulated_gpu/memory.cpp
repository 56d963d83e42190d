#include "tests/emulated_gpu/memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/device.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/errors.h"
#include "tests/emulated_gpu/fatal.h"
#include "tests/emulated_gpu/stream.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) (static_cast<void>(begin), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ASAN_POISON_MEMORY_REGION(begin, bytes)
#endif

namespace bucketwise::emulated {
namespace {

constexpr std::size_t region_bytes = std::size_t{32} << 30;
constexpr std::size_t alignment = 256;
constexpr std::size_t gap = alignment;  // behind each allocation: its end is no other's begin
constexpr int unset = 0xFF;             // every float type reads it as NaN, every integer as -1

using Ranges = std::map<std::uintptr_t, std::size_t>;  // begin to bytes, disjoint

struct OfDevice {
    std::size_t bytes = 0;  // allocated
    std::set<std::uintptr_t> begins;
};

std::uintptr_t address_of(const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

char* reserve(int protection) {
    void* begin = ::mmap(nullptr, region_bytes, protection,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) {
        fatal("cannot reserve address space for device memory");
    }
    return static_cast<char*>(begin);
}

std::size_t rounded_up(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

// The range that `address` is in or at the end of.
Ranges::const_iterator find(const Ranges& ranges, std::uintptr_t address) {
    auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) {
        return ranges.end();
    }
    --after;
    return address - after->first <= after->second ? after : ranges.end();
}

bool is_within(const Ranges& ranges, std::uintptr_t address, std::size_t bytes) {
    const auto range = find(ranges, address);
    return range != ranges.end() && bytes <= range->second - (address - range->first);
}

class Memory {
  public:
    Memory() : device_(reserve(PROT_NONE)), bytes_(reserve(PROT_READ | PROT_WRITE)) {
        free_[address_of(device_)] = region_bytes;
    }

    void* allocate(std::size_t bytes) {
        const std::unique_lock lock(mutex_);
        const std::size_t needed = rounded_up(bytes);
        OfDevice& owner = devices_[current_device()];
        if (bytes > region_bytes || owner.bytes + needed > total()) {
            return nullptr;
        }
        for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
            const auto [begin, available] = *hole;
            if (available >= needed + gap) {
                free_.erase(hole);
                if (available > needed + gap) {
                    free_[begin + needed + gap] = available - needed - gap;
                }
                live_[begin] = bytes;
                owner.bytes += needed;
                owner.begins.insert(begin);
                char* memory = bytes_at(begin);
                ASAN_POISON_MEMORY_REGION(memory, needed + gap);
                ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
                std::memset(memory, unset, bytes);
                return device_ + (begin - address_of(device_));
            }
        }
        return nullptr;
    }

    bool release(const void* pointer) {
        const std::unique_lock lock(mutex_);
        const auto found = live_.find(address_of(pointer));
        if (found == live_.end()) {
            return false;
        }
        const std::uintptr_t begin = found->first;
        const std::size_t bytes = rounded_up(found->second);
        live_.erase(found);
        for (auto& [device, owner] : devices_) {
            owner.bytes -= owner.begins.erase(begin) > 0 ? bytes : 0;
        }
        give_pages_back(bytes_at(begin), bytes);
        ASAN_POISON_MEMORY_REGION(bytes_at(begin), bytes);
        auto hole = free_.emplace(begin, bytes + gap).first;
        const auto next = std::next(hole);
        if (next != free_.end() && next->first == begin + hole->second) {
            hole->second += next->second;
            free_.erase(next);
        }
        if (hole != free_.begin()) {
            const auto previous = std::prev(hole);
            if (previous->first + previous->second == begin) {
                previous->second += hole->second;
                free_.erase(hole);
            }
        }
        return true;
    }

    void* allocate_pinned(std::size_t bytes) {
        constexpr std::size_t page = 4096;
        void* memory = std::aligned_alloc(page, (bytes + page - 1) / page * page);
        if (memory != nullptr) {
            std::memset(memory, unset, bytes);
            const std::unique_lock lock(mutex_);
            pinned_[address_of(memory)] = bytes;
        }
        return memory;
    }

    bool release_pinned(void* pointer) {
        const std::unique_lock lock(mutex_);
        if (pinned_.erase(address_of(pointer)) == 0) {
            return false;
        }
        std::free(pointer);
        return true;
    }

    [[nodiscard]] bool is_memory(MemoryKind kind, const void* pointer, std::size_t bytes) const {
        const std::shared_lock lock(mutex_);
        const std::uintptr_t address = address_of(pointer);
        switch (kind) {
            case MemoryKind::device:
                return is_within(live_, address, bytes);
            case MemoryKind::pinned:
                return is_within(pinned_, address, bytes);
            case MemoryKind::pageable:
                break;
        }
        return !is_device_address(address) && !is_within(pinned_, address, 0);
    }

    // Streams only read: readers of a shared mutex do not order each other.
    [[nodiscard]] const void* alias(const void* pointer) const {
        const std::shared_lock lock(mutex_);
        const std::uintptr_t address = address_of(pointer);
        if (find(live_, address) != live_.end()) {
            return bytes_at(address);
        }
        if (pointer == nullptr || find(pinned_, address) != pinned_.end()) {
            return pointer;
        }
        std::ostringstream message;
        message << pointer << " is used on the device but is "
                << (is_device_address(address) ? "device memory that is not allocated"
                                               : "neither device memory nor pinned host memory");
        fatal(message.str());
    }

    [[nodiscard]] static std::size_t total() {
        // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody here changes the environment
        const char* mebibytes = std::getenv("EMULATED_GPU_MEMORY_MIB");
        return (mebibytes != nullptr ? std::strtoull(mebibytes, nullptr, 10) : 8192) << 20;
    }

    [[nodiscard]] std::size_t allocated() const {
        const std::shared_lock lock(mutex_);
        const auto owner = devices_.find(current_device());
        return owner != devices_.end() ? owner->second.bytes : 0;
    }

    // The device of the allocation that begins there; none if none does.
    [[nodiscard]] std::optional<int> device_of(const void* pointer) const {
        const std::shared_lock lock(mutex_);
        for (const auto& [device, owner] : devices_) {
            if (owner.begins.count(address_of(pointer)) > 0) {
                return device;
            }
        }
        return std::nullopt;
    }

  private:
    [[nodiscard]] bool is_device_address(std::uintptr_t address) const {
        return address - address_of(device_) < region_bytes;
    }

    [[nodiscard]] char* bytes_at(std::uintptr_t address) const {
        return bytes_ + (address - address_of(device_));
    }

    static void give_pages_back(char* begin, std::size_t bytes) {
        constexpr std::size_t page = 4096;
        const std::size_t lead = (page - address_of(begin) % page) % page;
        if (bytes >= lead + page) {
            ::madvise(begin + lead, (bytes - lead) / page * page, MADV_DONTNEED);
        }
    }

    mutable std::shared_mutex mutex_;
    char* device_;  // what programs see: no access
    char* bytes_;   // the same offsets, with the data
    Ranges live_;
    Ranges free_;
    Ranges pinned_;
    std::map<int, OfDevice> devices_;
};

Memory& memory() {
    static auto& only = *new Memory;
    return only;
}

bool is_device(const void* pointer, std::size_t bytes) {
    return is_memory(MemoryKind::device, pointer, bytes);
}

bool is_host(const void* pointer, std::size_t bytes) {
    return is_memory(MemoryKind::pinned, pointer, bytes) ||
           is_memory(MemoryKind::pageable, pointer, bytes);
}

bool is_right_way(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    switch (kind) {
        case cudaMemcpyHostToHost:
            return is_host(to, bytes) && is_host(from, bytes);
        case cudaMemcpyHostToDevice:
            return is_device(to, bytes) && is_host(from, bytes);
        case cudaMemcpyDeviceToHost:
            return is_host(to, bytes) && is_device(from, bytes);
        case cudaMemcpyDeviceToDevice:
            return is_device(to, bytes) && is_device(from, bytes);
        case cudaMemcpyDefault:
            return (is_host(to, bytes) || is_device(to, bytes)) &&
                   (is_host(from, bytes) || is_device(from, bytes));
    }
    return false;
}

template <typename T>
T* bytes_behind(T* pointer) {
    return is_memory(MemoryKind::pageable, pointer, 0) ? pointer : alias(pointer);
}

void copy(void* to, const void* from, std::size_t bytes) {
    std::memmove(bytes_behind(to), bytes_behind(from), bytes);
}

bool may_set(const void* pointer, std::size_t bytes) {
    return is_device(pointer, bytes) || is_memory(MemoryKind::pinned, pointer, bytes);
}

// Pageable memory is read before the call returns, and written before it returns, as the CUDA
// documentation says ("API synchronization behavior").
cudaError_t copy_pageable(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
    if (const cudaError_t error = refuse_in_capture(stream); error != cudaSuccess) {
        return error;
    }
    if (is_memory(MemoryKind::pageable, from, 0)) {
        const auto* first = static_cast<const char*>(from);
        std::vector<char> staged(first, first + bytes);
        const cudaError_t error = issue(
            stream, [to, staged = std::move(staged)] { copy(to, staged.data(), staged.size()); });
        if (error != cudaSuccess || !is_memory(MemoryKind::pageable, to, 0)) {
            return error;
        }
    } else if (const cudaError_t error = issue(stream, [=] { copy(to, from, bytes); });
               error != cudaSuccess) {
        return error;
    }
    return cudaStreamSynchronize(stream);
}

}  // namespace

bool is_memory(MemoryKind kind, const void* pointer, std::size_t bytes) {
    return memory().is_memory(kind, pointer, bytes);
}

const void* alias_of(const void* device_pointer) {
    return memory().alias(device_pointer);
}

}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    if (pointer == nullptr) {
        return noted(cudaErrorInvalidValue);
    }
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) {
        return noted(error);
    }
    *pointer = bytes > 0 ? memory().allocate(bytes) : nullptr;
    return noted(*pointer != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* pointer) {
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) {
        return noted(error);
    }
    if (pointer == nullptr) {
        return cudaSuccess;
    }
    const std::optional<int> device = memory().device_of(pointer);
    if (!device) {
        return noted(cudaErrorInvalidValue);
    }
    wait_for_streams(*device, Streams::all);
    return noted(memory().release(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
    if (pointer == nullptr) {
        return noted(cudaErrorInvalidValue);
    }
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) {
        return noted(error);
    }
    *pointer = bytes > 0 ? memory().allocate_pinned(bytes) : nullptr;
    return noted(*pointer != nullptr || bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) {
        return noted(error);
    }
    if (pointer == nullptr) {
        return cudaSuccess;
    }
    wait_for_streams(current_device(), Streams::all);
    return noted(memory().release_pinned(pointer) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
    *total = memory().total();
    *available = *total - memory().allocated();
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (!is_right_way(to, from, bytes, kind)) {
        return noted(cudaErrorInvalidValue);
    }
    if (is_memory(MemoryKind::pageable, to, 0) || is_memory(MemoryKind::pageable, from, 0)) {
        return noted(copy_pageable(to, from, bytes, stream));
    }
    return noted(issue(stream, [=] { copy(to, from, bytes); }));
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
    if (count == 0) {
        return cudaSuccess;
    }
    if (!may_set(devPtr, count)) {
        return noted(cudaErrorInvalidValue);
    }
    return noted(issue(stream, [=] { std::memset(alias(devPtr), value, count); }));
}

// On the default stream: they wait for streams of the device that were not created as
// cudaStreamNonBlocking, and for no others.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (!is_right_way(to, from, bytes, kind)) {
        return noted(cudaErrorInvalidValue);
    }
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) {
        return noted(error);
    }
    wait_for_streams(current_device(), Streams::blocking);
    copy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void* devPtr, int value, size_t count) {
    if (count == 0) {
        return cudaSuccess;
    }
    if (!may_set(devPtr, count)) {
        return noted(cudaErrorInvalidValue);
    }
    if (const cudaError_t error = refuse_unsafe_call(); error != cudaSuccess) {
        return noted(error);
    }
    wait_for_streams(current_device(), Streams::blocking);
    std::memset(alias(devPtr), value, count);
    return cudaSuccess;
}
