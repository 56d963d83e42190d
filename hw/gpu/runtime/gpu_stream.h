// Streams and events of the GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "hw/gpu/runtime/gpu_check.h"
#include "sim/base/units.h"

namespace bucketwise {

enum class StreamPriority { normal, high };

// Does not wait for the default stream.
class GpuStream {
  public:
    explicit GpuStream(StreamPriority priority = StreamPriority::normal);
    [[nodiscard]] cudaStream_t get() const { return stream_.get(); }
    // Has everything on it ended? Throws GpuError if something failed.
    [[nodiscard]] bool is_idle() const;
    // Until it is idle, however long that takes: for work that waits for no other rank.
    void wait() const;
    // Put on it, unless there are no bytes. `to` and `from` must last until it is done.
    void copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
              const CallPlace& place = CallPlace::current()) const;
    void fill(void* to, int byte, std::int64_t bytes,
              const CallPlace& place = CallPlace::current()) const;

  private:
    struct Deleter {
        void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Deleter> stream_;
};

enum class Timing { off, on };

// A moment on a stream.
class GpuEvent {
  public:
    explicit GpuEvent(Timing timing);
    [[nodiscard]] cudaEvent_t get() const { return event_.get(); }
    void record(const GpuStream& stream) const;
    // Also in a stream that is being captured: each launch of the graph then records it anew.
    void record_in_graph(const GpuStream& stream) const;
    // Later work on the stream comes after the event.
    void hold_up(const GpuStream& stream) const;
    [[nodiscard]] bool has_happened() const;

  private:
    struct Deleter {
        void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
    };
    std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Deleter> event_;
};

// Whether everything on the stream has ended without an error; for destructors.
bool ends_well(const GpuStream& stream) noexcept;

// By the GPU's clock, to half a microsecond or so. Precondition: both have happened.
Duration between(const GpuEvent& begin, const GpuEvent& end);

}  // namespace bucketwise
