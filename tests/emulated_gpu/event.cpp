#include "tests/emulated_gpu/event.h"

#include <chrono>
#include <mutex>

#include "tests/emulated_gpu/capture.h"
#include "tests/emulated_gpu/device.h"
#include "tests/emulated_gpu/errors.h"
#include "tests/emulated_gpu/stream.h"

namespace bucketwise::emulated {
namespace {

Handles<CUevent_st>& events() {
    static auto& all = *new Handles<CUevent_st>;
    return all;
}

bool is_captured(cudaEvent_t event) {
    return event->capture != nullptr && event->capture->is_active();
}

cudaError_t check_event(cudaEvent_t event) {
    return events().is_live(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t check(cudaEvent_t event, cudaStream_t stream) {
    const cudaError_t error = check_event(event);
    return error != cudaSuccess ? error : check_stream(stream);
}

cudaError_t refuse_captured(cudaEvent_t event) {
    if (const cudaError_t error = check_event(event); error != cudaSuccess) {
        return error;
    }
    if (!is_captured(event)) {
        return cudaSuccess;
    }
    event->capture->invalidate();
    return cudaErrorCapturedEvent;
}

cudaError_t record_captured(cudaEvent_t event, cudaStream_t stream) {
    std::size_t slot = 0;
    const cudaError_t error = stream->capture->add_signal(stream, slot);
    if (error == cudaSuccess) {
        event->latest = nullptr;
        event->capture = stream->capture;
        event->slot = slot;
    }
    return error;
}

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
    if (stream->capture != nullptr) {
        return record_captured(event, stream);
    }
    Completion& completion = new_completion();
    event->latest = &completion;
    event->capture = nullptr;
    stream->worker.push([&completion] { completion.complete(); });
    return cudaSuccess;
}

cudaError_t wait(cudaStream_t stream, cudaEvent_t event) {
    if (is_captured(event)) {
        if (stream->capture != nullptr && stream->capture != event->capture) {
            stream->capture->invalidate();
            event->capture->invalidate();
            return cudaErrorStreamCaptureMerge;
        }
        return event->capture->add_wait(stream, event->slot);
    }
    if (stream->capture != nullptr) {
        stream->capture->invalidate();
        return cudaErrorStreamCaptureIsolation;
    }
    if (event->latest != nullptr) {
        stream->worker.push([completion = event->latest] { completion->wait(); });
    }
    return cudaSuccess;
}

// The flags say that nodes of their own are wanted, which only a graph has.
cudaError_t add_external(cudaStream_t stream, GraphNode::Kind kind, cudaEvent_t event) {
    return stream->capture == nullptr ? cudaErrorInvalidValue
                                      : stream->capture->add_external(stream, kind, event);
}

}  // namespace
}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    constexpr unsigned int known = cudaEventBlockingSync | cudaEventDisableTiming;
    if (event == nullptr || (flags & ~known) != 0) {
        return noted(cudaErrorInvalidValue);
    }
    const std::lock_guard lock(issuing());
    *event = events().create(current_device(), (flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = check_event(event); error != cudaSuccess) {
        return noted(error);
    }
    events().destroy(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = check(event, stream); error != cudaSuccess) {
        return noted(error);
    }
    if (event->device != stream->device) {
        return noted(cudaErrorInvalidResourceHandle);
    }
    switch (flags) {
        case cudaEventRecordDefault:
            return noted(record(event, stream));
        case cudaEventRecordExternal:
            return noted(add_external(stream, GraphNode::Kind::record_external, event));
        default:
            return noted(cudaErrorInvalidValue);
    }
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = check(event, stream); error != cudaSuccess) {
        return noted(error);
    }
    switch (flags) {
        case cudaEventWaitDefault:
            return noted(wait(stream, event));
        case cudaEventWaitExternal:
            return noted(add_external(stream, GraphNode::Kind::wait_external, event));
        default:
            return noted(cudaErrorInvalidValue);
    }
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = refuse_captured(event); error != cudaSuccess) {
        return noted(error);
    }
    if (invalidate_where_unsafe()) {
        return noted(cudaErrorStreamCaptureUnsupported);
    }
    return noted(event->latest == nullptr || event->latest->is_complete() ? cudaSuccess
                                                                          : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const Completion* latest = nullptr;
    {
        const std::lock_guard lock(issuing());
        if (const cudaError_t error = refuse_captured(event); error != cudaSuccess) {
            return noted(error);
        }
        latest = event->latest;
    }
    if (latest != nullptr) {
        latest->wait();
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
    const std::lock_guard lock(issuing());
    for (const cudaEvent_t event : {start, end}) {
        if (const cudaError_t error = check_event(event); error != cudaSuccess) {
            return noted(error);
        }
        if (!event->timing || event->latest == nullptr) {
            return noted(cudaErrorInvalidResourceHandle);
        }
    }
    if (!start->latest->is_complete() || !end->latest->is_complete()) {
        return noted(cudaErrorNotReady);
    }
    *milliseconds =
        std::chrono::duration<float, std::milli>(end->latest->time() - start->latest->time())
            .count();
    return cudaSuccess;
}
