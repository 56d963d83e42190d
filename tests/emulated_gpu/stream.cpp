#include "tests/emulated_gpu/stream.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/capture.h"
#include "tests/emulated_gpu/device.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/errors.h"
#include "tests/emulated_gpu/fatal.h"

namespace bucketwise::emulated {
namespace {

constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

cudaError_t issue_locked(cudaStream_t stream, std::function<void()> work) {
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) {
        return error;
    }
    if (stream->capture != nullptr) {
        return stream->capture->add_work(stream, std::move(work));
    }
    stream->worker.push(std::move(work));
    return cudaSuccess;
}

}  // namespace

cudaError_t issue(cudaStream_t stream, std::function<void()> work) {
    const std::lock_guard lock(issuing());
    return issue_locked(stream, std::move(work));
}

cudaError_t launch(cudaStream_t stream, std::function<void()> work) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) {
        return error;
    }
    return stream->device == current_device() ? issue_locked(stream, std::move(work))
                                              : cudaErrorInvalidResourceHandle;
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
    {
        const std::lock_guard lock(issuing());
        if (check_stream(stream) != cudaSuccess) {
            fatal("work for the default stream, or one that does not exist");
        }
    }
    noted(launch(stream, std::move(work)));
}

void wait_for_streams(int device, Streams which) {
    std::vector<std::pair<const Worker*, Worker::Ticket>> given;
    {
        const std::lock_guard lock(issuing());
        for (const CUstream_st& stream : streams().all()) {
            if (stream.device == device && (which == Streams::all || stream.blocking)) {
                given.emplace_back(&stream.worker, stream.worker.issued());
            }
        }
    }
    for (const auto& [worker, ticket] : given) {
        worker->wait(ticket);
    }
}

cudaError_t refuse_in_capture(cudaStream_t stream) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) {
        return error;
    }
    if (stream->capture == nullptr) {
        return cudaSuccess;
    }
    stream->capture->invalidate();
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_unsafe_call() {
    const std::lock_guard lock(issuing());
    return invalidate_where_unsafe() ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority) {
    // As on a GPU, a priority out of range is taken for the nearest.
    static_cast<void>(priority);
    if (stream == nullptr || flags > cudaStreamNonBlocking) {
        return noted(cudaErrorInvalidValue);
    }
    const std::lock_guard lock(issuing());
    *stream = streams().create(current_device(), (flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
    return cudaStreamCreateWithPriority(stream, flags, least_priority);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = least_priority;
    *greatest = greatest_priority;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    if (const cudaError_t error = refuse_in_capture(stream); error != cudaSuccess) {
        return noted(error);
    }
    const std::lock_guard lock(issuing());
    stream->worker.stop();
    streams().destroy(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    if (const cudaError_t error = refuse_in_capture(stream); error != cudaSuccess) {
        return noted(error);
    }
    Worker::Ticket ticket = 0;
    {
        const std::lock_guard lock(issuing());
        ticket = stream->worker.issued();
    }
    stream->worker.wait(ticket);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    if (const cudaError_t error = refuse_in_capture(stream); error != cudaSuccess) {
        return noted(error);
    }
    const std::lock_guard lock(issuing());
    return noted(stream->worker.has_finished(stream->worker.issued()) ? cudaSuccess
                                                                      : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
    {
        const std::lock_guard lock(issuing());
        if (invalidate_captures_of(current_device())) {
            return noted(cudaErrorStreamCaptureUnsupported);
        }
    }
    wait_for_streams(current_device(), Streams::all);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
    if (function == nullptr) {
        return noted(cudaErrorInvalidValue);
    }
    return noted(issue(stream, [=] { function(data); }));
}
