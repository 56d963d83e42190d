#include "hw/gpu/runtime/gpu_stream.h"

namespace bucketwise {
namespace {

bool has_ended(cudaError_t result, const char* query,
               const CallPlace& place = CallPlace::current()) {
    if (result == cudaErrorNotReady) {
        cudaGetLastError();  // or the next launch might report it
        return false;
    }
    check_gpu(result, query, place);
    return true;
}

}  // namespace

GpuStream::GpuStream(StreamPriority priority) {
    int least = 0;
    int greatest = 0;
    check_gpu(cudaDeviceGetStreamPriorityRange(&least, &greatest),
              "cudaDeviceGetStreamPriorityRange");
    cudaStream_t stream = nullptr;
    check_gpu(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                           priority == StreamPriority::high ? greatest : least),
              "cudaStreamCreateWithPriority");
    stream_.reset(stream);
}

bool GpuStream::is_idle() const {
    return has_ended(cudaStreamQuery(get()), "cudaStreamQuery");
}

void GpuStream::wait() const {
    check_gpu(cudaStreamSynchronize(get()), "cudaStreamSynchronize");
}

void GpuStream::copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
                     const CallPlace& place) const {
    if (bytes > 0) {
        check_gpu(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, get()),
                  "cudaMemcpyAsync", place);
    }
}

void GpuStream::fill(void* to, int byte, std::int64_t bytes, const CallPlace& place) const {
    if (bytes > 0) {
        check_gpu(cudaMemsetAsync(to, byte, static_cast<std::size_t>(bytes), get()),
                  "cudaMemsetAsync", place);
    }
}

GpuEvent::GpuEvent(Timing timing) {
    cudaEvent_t event = nullptr;
    check_gpu(cudaEventCreateWithFlags(
                  &event, timing == Timing::on ? cudaEventDefault : cudaEventDisableTiming),
              "cudaEventCreateWithFlags");
    event_.reset(event);
}

void GpuEvent::record(const GpuStream& stream) const {
    check_gpu(cudaEventRecord(get(), stream.get()), "cudaEventRecord");
}

void GpuEvent::record_in_graph(const GpuStream& stream) const {
    check_gpu(cudaEventRecordWithFlags(get(), stream.get(), cudaEventRecordExternal),
              "cudaEventRecordWithFlags");
}

void GpuEvent::hold_up(const GpuStream& stream) const {
    check_gpu(cudaStreamWaitEvent(stream.get(), get(), cudaEventWaitDefault),
              "cudaStreamWaitEvent");
}

bool GpuEvent::has_happened() const {
    return has_ended(cudaEventQuery(get()), "cudaEventQuery");
}

Duration between(const GpuEvent& begin, const GpuEvent& end) {
    float milliseconds = 0;
    check_gpu(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    return duration_from_us(double{milliseconds} * 1e3);
}

bool ends_well(const GpuStream& stream) noexcept {
    const bool idle = cudaStreamQuery(stream.get()) == cudaSuccess;
    cudaGetLastError();
    return idle;
}

}  // namespace bucketwise
