// Graphs and their replay.
#include <cuda_runtime_api.h>

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/capture.h"
#include "tests/emulated_gpu/completion.h"
#include "tests/emulated_gpu/errors.h"
#include "tests/emulated_gpu/event.h"
#include "tests/emulated_gpu/handles.h"
#include "tests/emulated_gpu/stream.h"

struct CUgraph_st {
    const bucketwise::emulated::GraphBody* body;

    explicit CUgraph_st(const bucketwise::emulated::GraphBody* recorded) : body(recorded) {}
};

// Under issuing(), but for the workers.
struct CUgraphExec_st {
    const bucketwise::emulated::GraphBody* body;
    // One for each lane but the first, which runs on the stream of the launch: lanes that ran one
    // after the other would hide that an event is missing between them.
    std::deque<bucketwise::emulated::Worker> workers;
    const bucketwise::emulated::Completion* previous_end = nullptr;

    explicit CUgraphExec_st(const bucketwise::emulated::GraphBody* recorded)
        : body(recorded), workers(recorded->lanes - 1) {}
};

namespace bucketwise::emulated {
namespace {

Handles<CUgraph_st>& graphs() {
    static auto& all = *new Handles<CUgraph_st>;
    return all;
}

Handles<CUgraphExec_st>& executables() {
    static auto& all = *new Handles<CUgraphExec_st>;
    return all;
}

// One node of one launch.
struct Step {
    const std::function<void()>* work = nullptr;
    const Completion* awaited = nullptr;
    Completion* completed = nullptr;

    void run() const {
        if (work != nullptr) {
            (*work)();
        }
        if (awaited != nullptr) {
            awaited->wait();
        }
        if (completed != nullptr) {
            completed->complete();
        }
    }
};

using Lane = std::vector<Step>;

void run(const Lane& lane) {
    for (const Step& step : lane) {
        step.run();
    }
}

// An external event counts as recorded from the launch on; an external wait is for the record that
// is the latest when the launch reaches it.
Step step_of(const GraphNode& node, const std::vector<Completion*>& slots) {
    switch (node.kind) {
        case GraphNode::Kind::work:
            return {&node.work, nullptr, nullptr};
        case GraphNode::Kind::signal:
            return {nullptr, nullptr, slots[node.slot]};
        case GraphNode::Kind::wait:
            return {nullptr, slots[node.slot], nullptr};
        case GraphNode::Kind::record_external:
            node.event->latest = &new_completion();
            node.event->capture = nullptr;
            return {nullptr, nullptr, node.event->latest};
        case GraphNode::Kind::wait_external:
            return {nullptr, node.event->latest, nullptr};
    }
    return {};
}

std::vector<Lane> lanes_of(const GraphBody& body) {
    std::vector<Completion*> slots;
    for (std::size_t i = 0; i < body.slots; ++i) {
        slots.push_back(&new_completion());
    }
    std::vector<Lane> lanes(body.lanes);
    for (const GraphNode& node : body.nodes) {
        lanes[node.lane].push_back(step_of(node, slots));
    }
    return lanes;
}

void launch(CUgraphExec_st& executable, cudaStream_t stream) {
    std::vector<Lane> lanes = lanes_of(*executable.body);
    // Launches of one executable do not overlap, whatever their streams.
    Completion& begin = new_completion();
    Completion& end = new_completion();
    const Step after_previous{nullptr, std::exchange(executable.previous_end, &end), nullptr};
    Lane first{after_previous, {nullptr, nullptr, &begin}};
    first.insert(first.end(), lanes[0].begin(), lanes[0].end());
    for (std::size_t i = 1; i < lanes.size(); ++i) {
        Completion& lane_end = new_completion();
        Lane& lane = lanes[i];
        lane.insert(lane.begin(), {nullptr, &begin, nullptr});
        lane.push_back({nullptr, nullptr, &lane_end});
        first.push_back({nullptr, &lane_end, nullptr});
        executable.workers[i - 1].push([lane] { run(lane); });
    }
    first.push_back({nullptr, nullptr, &end});
    stream->worker.push([first] { run(first); });
}

}  // namespace
}  // namespace bucketwise::emulated

using namespace bucketwise::emulated;

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    const std::lock_guard lock(issuing());
    *graph = nullptr;
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) {
        return noted(error);
    }
    if (stream->capture == nullptr) {
        return noted(cudaErrorIllegalState);
    }
    const GraphBody* body = nullptr;
    const cudaError_t error = stream->capture->end(stream, body);
    if (error == cudaSuccess) {
        body->take();
        *graph = graphs().create(body);
    }
    return noted(error);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    const std::lock_guard lock(issuing());
    if (!graphs().is_live(graph)) {
        return noted(cudaErrorInvalidValue);
    }
    graph->body->drop();
    graphs().destroy(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
    const std::lock_guard lock(issuing());
    if (executable == nullptr || !graphs().is_live(graph)) {
        return noted(cudaErrorInvalidValue);
    }
    graph->body->take();
    *executable = executables().create(graph->body);
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
    const std::lock_guard lock(issuing());
    return noted(executables().is_live(executable) ? check_stream(stream) : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    const std::lock_guard lock(issuing());
    if (!executables().is_live(executable)) {
        return noted(cudaErrorInvalidValue);
    }
    if (const cudaError_t error = check_stream(stream); error != cudaSuccess) {
        return noted(error);
    }
    if (stream->capture != nullptr) {  // would be a graph in a graph
        stream->capture->invalidate();
        return noted(cudaErrorStreamCaptureUnsupported);
    }
    launch(*executable, stream);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    const std::lock_guard lock(issuing());
    if (!executables().is_live(executable)) {
        return noted(cudaErrorInvalidValue);
    }
    for (Worker& worker : executable->workers) {
        worker.stop();
    }
    executable->body->drop();
    executables().destroy(executable);
    return cudaSuccess;
}
