#include "tests/emulated_gpu/capture.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "tests/emulated_gpu/errors.h"
#include "tests/emulated_gpu/stream_handle.h"

namespace bucketwise::emulated {
namespace {

thread_local cudaStreamCaptureMode mode_of_this_thread = cudaStreamCaptureModeGlobal;

// Events may refer to captures that are over.
std::deque<Capture>& captures() {
    static auto& all = *new std::deque<Capture>;
    return all;
}

template <typename Predicate>
bool invalidate_if(const Predicate& predicate) {
    bool any = false;
    for (Capture& capture : captures()) {
        if (capture.is_active() && predicate(capture)) {
            capture.invalidate();
            any = true;
        }
    }
    return any;
}

}  // namespace

bool invalidate_where_unsafe() {
    return invalidate_if(
        [](const Capture& capture) { return capture.is_unsafe_here(mode_of_this_thread); });
}

bool invalidate_captures_of(int device) {
    return invalidate_if([&](const Capture& capture) { return capture.device() == device; });
}

Capture::Capture(cudaStream_t origin, cudaStreamCaptureMode mode)
    : origin_(origin), mode_(mode), streams_{origin}, clocks_{Clock{0}} {
    origin->capture = this;
    origin->lane = 0;
}

int Capture::device() const {
    return origin_->device;
}

// See cudaThreadExchangeStreamCaptureMode.
bool Capture::is_unsafe_here(cudaStreamCaptureMode mode_of_thread) const {
    const bool own = thread_ == std::this_thread::get_id();
    switch (mode_of_thread) {
        case cudaStreamCaptureModeGlobal:
            return own ? mode_ != cudaStreamCaptureModeRelaxed
                       : mode_ == cudaStreamCaptureModeGlobal;
        case cudaStreamCaptureModeThreadLocal:
            return own && mode_ != cudaStreamCaptureModeRelaxed;
        case cudaStreamCaptureModeRelaxed:
            break;
    }
    return false;
}

GraphNode& Capture::add(cudaStream_t stream, GraphNode::Kind kind) {
    GraphNode& node = body_.nodes.emplace_back();
    node.kind = kind;
    node.lane = stream->lane;
    if (kind != GraphNode::Kind::signal && kind != GraphNode::Kind::wait) {
        ++clocks_[node.lane][node.lane];
    }
    return node;
}

cudaError_t Capture::add_work(cudaStream_t stream, std::function<void()> work) {
    if (!valid_) {
        return cudaErrorStreamCaptureInvalidated;
    }
    add(stream, GraphNode::Kind::work).work = std::move(work);
    return cudaSuccess;
}

cudaError_t Capture::add_external(cudaStream_t stream, GraphNode::Kind kind, cudaEvent_t event) {
    if (!valid_) {
        return cudaErrorStreamCaptureInvalidated;
    }
    add(stream, kind).event = event;
    return cudaSuccess;
}

cudaError_t Capture::add_signal(cudaStream_t stream, std::size_t& slot) {
    if (!valid_) {
        return cudaErrorStreamCaptureInvalidated;
    }
    slot = slots_.size();
    slots_.push_back(clocks_[stream->lane]);
    add(stream, GraphNode::Kind::signal).slot = slot;
    return cudaSuccess;
}

cudaError_t Capture::add_wait(cudaStream_t stream, std::size_t slot) {
    if (!valid_) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (stream->capture == nullptr) {
        const auto before = std::find(streams_.begin(), streams_.end(), stream);
        stream->capture = this;
        stream->lane = static_cast<std::size_t>(before - streams_.begin());
        if (before == streams_.end()) {
            streams_.push_back(stream);
            clocks_.emplace_back();
            for (Clock& clock : clocks_) {
                clock.resize(streams_.size());
            }
        }
    }
    add(stream, GraphNode::Kind::wait).slot = slot;
    Clock& clock = clocks_[stream->lane];
    const Clock& then = slots_[slot];
    for (std::size_t lane = 0; lane < then.size(); ++lane) {
        clock[lane] = std::max(clock[lane], then[lane]);
    }
    return cudaSuccess;
}

// Whether all that was forked comes before what the origin would do next.
bool Capture::is_joined() const {
    for (std::size_t lane = 0; lane < clocks_.size(); ++lane) {
        if (clocks_[0][lane] != clocks_[lane][lane]) {
            return false;
        }
    }
    return true;
}

cudaError_t Capture::end(cudaStream_t stream, const GraphBody*& body) {
    if (stream != origin_) {
        invalidate();
        return cudaErrorStreamCaptureUnmatched;
    }
    if (mode_ != cudaStreamCaptureModeRelaxed && thread_ != std::this_thread::get_id()) {
        return cudaErrorStreamCaptureWrongThread;
    }
    over_ = true;
    for (const cudaStream_t captured : streams_) {
        captured->capture = nullptr;
    }
    if (!valid_ || !is_joined()) {
        body_.held.clear();
        return valid_ ? cudaErrorStreamCaptureUnjoined : cudaErrorStreamCaptureInvalidated;
    }
    body_.lanes = streams_.size();
    body_.slots = slots_.size();
    body = &body_;
    return cudaSuccess;
}

}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) {
        return noted(error);
    }
    if (stream->capture != nullptr) {
        return noted(cudaErrorIllegalState);
    }
    captures().emplace_back(stream, mode);
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    const std::lock_guard lock(issuing());
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) {
        return noted(error);
    }
    if (stream->capture == nullptr) {
        *status = cudaStreamCaptureStatusNone;
    } else {
        *status = stream->capture->is_valid() ? cudaStreamCaptureStatusActive
                                              : cudaStreamCaptureStatusInvalidated;
    }
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(*mode, mode_of_this_thread);
    return cudaSuccess;
}
