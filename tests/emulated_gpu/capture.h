// The recording of streams into a graph.
//
// A lane is the part of one stream. Nodes of a lane run in order; lanes are ordered by their events
// only: a signal node of one lane sets a slot that wait nodes of others wait for.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace bucketwise::emulated {

struct GraphNode {
    enum class Kind { work, signal, wait, record_external, wait_external };
    Kind kind = Kind::work;
    std::size_t lane = 0;
    std::function<void()> work;
    std::size_t slot = 0;         // of signal and wait
    cudaEvent_t event = nullptr;  // of the external ones
};

// Never freed: graphs may be destroyed while they run.
struct GraphBody {
    std::size_t lanes = 0;
    std::size_t slots = 0;
    std::deque<GraphNode> nodes;  // as issued
    // Signals the end of the last graph; counts graphs and executables.
    mutable std::vector<std::shared_ptr<void>> held = {};
    mutable int holders = 0;

    void take() const { ++holders; }
    void drop() const {
        if (--holders == 0) {
            held.clear();
        }
    }
};

// All under issuing().
class Capture {
  public:
    Capture(cudaStream_t origin, cudaStreamCaptureMode mode);

    [[nodiscard]] bool is_active() const { return !over_; }
    [[nodiscard]] bool is_valid() const { return valid_; }
    [[nodiscard]] int device() const;
    [[nodiscard]] bool is_unsafe_here(cudaStreamCaptureMode mode_of_thread) const;
    void invalidate() { valid_ = false; }

    // Each returns cudaErrorStreamCaptureInvalidated once the capture is invalid.
    cudaError_t add_work(cudaStream_t stream, std::function<void()> work);
    cudaError_t add_external(cudaStream_t stream, GraphNode::Kind kind, cudaEvent_t event);
    // Sets `slot`.
    cudaError_t add_signal(cudaStream_t stream, std::size_t& slot);
    // Takes the stream into the capture unless it is in it.
    cudaError_t add_wait(cudaStream_t stream, std::size_t slot);

    // Kept for as long as there is a graph or executable of it.
    void hold(std::shared_ptr<void> resource) { body_.held.push_back(std::move(resource)); }

    // Ends the capture in any case; a `body` only on success.
    cudaError_t end(cudaStream_t stream, const GraphBody*& body);

  private:
    // By lane, how many of its nodes that do something come before.
    using Clock = std::vector<std::size_t>;

    GraphNode& add(cudaStream_t stream, GraphNode::Kind kind);
    [[nodiscard]] bool is_joined() const;

    cudaStream_t origin_;
    cudaStreamCaptureMode mode_;
    std::thread::id thread_ = std::this_thread::get_id();
    bool over_ = false;
    bool valid_ = true;
    std::vector<cudaStream_t> streams_;  // by lane
    std::vector<Clock> clocks_;          // by lane
    std::vector<Clock> slots_;           // when they were set
    GraphBody body_;
};

// Under issuing(). Invalidate the captures that the calling thread must not disturb, or those of a
// device; whether there were any.
bool invalidate_where_unsafe();
bool invalidate_captures_of(int device);

}  // namespace bucketwise::emulated
