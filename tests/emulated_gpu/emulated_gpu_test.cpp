#include "tests/emulated_gpu/emulated_gpu.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/emulated_gpu/gate.h"

namespace bucketwise {
namespace {

using emulated::alias;
using emulated::enqueue;
using testing::Gate;
using testing::new_event;
using testing::new_stream;

int* new_device_int(cudaStream_t stream, int value) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, sizeof(int)) == cudaSuccess);
    auto* number = static_cast<int*>(memory);
    enqueue(stream, [=] { *alias(number) = value; });
    return number;
}

int read(const int* number, cudaStream_t stream) {
    int value = 0;
    REQUIRE(cudaMemcpyAsync(&value, number, sizeof(int), cudaMemcpyDeviceToHost, stream) ==
            cudaSuccess);
    return value;
}

// The signal that ends a child process that acts; 0 if none does.
template <typename Act>
int signal_of(const Act& act) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGSEGV, SIG_DFL);  // sanitizers and Catch2 have their own
        ::signal(SIGABRT, SIG_DFL);
        ::close(STDERR_FILENO);
        act();
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_CASE("a stream runs later what it is given, in order") {
    const cudaStream_t stream = new_stream();
    Gate gate;
    std::vector<int> order;
    gate.block(stream);
    enqueue(stream, [&] { order.push_back(1); });
    enqueue(stream, [&] { order.push_back(2); });
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    CHECK(cudaGetLastError() == cudaErrorNotReady);
    gate.open();
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(order == std::vector<int>{1, 2});
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    CHECK(cudaStreamDestroy(stream) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a stream waits for an event as it was last recorded when the wait was issued") {
    const cudaStream_t first = new_stream();
    const cudaStream_t second = new_stream();
    const cudaEvent_t event = new_event();
    Gate before;
    Gate after;
    int value = 0;
    int seen = -1;
    before.block(first);
    enqueue(first, [&] { value = 7; });
    CHECK(cudaEventRecord(event, first) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
    after.block(first);
    CHECK(cudaEventRecord(event, first) == cudaSuccess);  // not this one
    enqueue(second, [&] { seen = value; });
    CHECK(cudaStreamQuery(second) == cudaErrorNotReady);
    before.open();
    CHECK(cudaStreamSynchronize(second) == cudaSuccess);
    CHECK(seen == 7);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    after.open();
    CHECK(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaSuccess);
}

TEST_CASE("without an event, streams do not wait for each other") {
    const cudaStream_t blocked = new_stream();
    const cudaStream_t other = new_stream();
    Gate gate;
    gate.block(blocked);
    // Never recorded: no wait either.
    CHECK(cudaStreamWaitEvent(other, new_event(), 0) == cudaSuccess);
    enqueue(other, [] {});
    CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    CHECK(cudaStreamQuery(blocked) == cudaErrorNotReady);
    gate.open();
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaStreamQuery(blocked) == cudaSuccess);
}

TEST_CASE("time passes between events that time, and only between those") {
    const cudaStream_t stream = new_stream();
    const cudaEvent_t start = new_event(cudaEventDefault);
    const cudaEvent_t end = new_event(cudaEventDefault);
    const cudaEvent_t timeless = new_event();
    float elapsed_ms = -1;
    CHECK(cudaEventElapsedTime(&elapsed_ms, start, end) == cudaErrorInvalidResourceHandle);
    Gate gate;
    CHECK(cudaEventRecord(start, stream) == cudaSuccess);
    gate.block(stream);
    CHECK(cudaEventRecord(end, stream) == cudaSuccess);
    CHECK(cudaEventRecord(timeless, stream) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&elapsed_ms, start, end) == cudaErrorNotReady);
    gate.open();
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaEventElapsedTime(&elapsed_ms, start, end) == cudaSuccess);
    CHECK(elapsed_ms >= 0);
    CHECK(cudaEventElapsedTime(&elapsed_ms, start, timeless) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("device memory begins unset, and the host cannot touch it") {
    const cudaStream_t stream = new_stream();
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, 40) == cudaSuccess);
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 256 == 0);
    const auto* numbers = static_cast<const float*>(memory);
    bool all_nan = true;
    enqueue(stream, [&] {
        for (int i = 0; i < 10; ++i) {
            all_nan = all_nan && std::isnan(alias(numbers)[i]);
        }
    });
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(all_nan);
    CHECK(signal_of([&] { static_cast<volatile float*>(memory)[3] = 1.0F; }) == SIGSEGV);
    CHECK(signal_of([&] { *alias(static_cast<float*>(memory)) = 1.0F; }) == 0);
    CHECK(cudaFree(memory) == cudaSuccess);
    CHECK(cudaFree(memory) == cudaErrorInvalidValue);
    CHECK(signal_of([&] { alias(numbers); }) == SIGABRT);
    float on_host = 0;
    CHECK(signal_of([&] { alias(&on_host); }) == SIGABRT);
}

TEST_CASE("memory that is freed can be allocated again, up to the limit") {
    ::setenv("EMULATED_GPU_MEMORY_MIB", "3", 1);
    constexpr std::size_t mebibyte = 1 << 20;
    std::size_t available = 0;
    std::size_t total = 0;
    CHECK(cudaMemGetInfo(&available, &total) == cudaSuccess);
    CHECK(total == 3 * mebibyte);
    const std::size_t before = available;
    void* first = nullptr;
    void* second = nullptr;
    void* third = nullptr;
    CHECK(cudaMalloc(&first, mebibyte) == cudaSuccess);
    CHECK(cudaMalloc(&second, mebibyte) == cudaSuccess);
    CHECK(cudaMalloc(&third, mebibyte + 1) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaMemGetInfo(&available, &total) == cudaSuccess);
    CHECK(available == before - 2 * mebibyte);
    CHECK(cudaFree(first) == cudaSuccess);
    CHECK(cudaMalloc(&third, mebibyte) == cudaSuccess);
    CHECK(third == first);
    CHECK(cudaFree(second) == cudaSuccess);
    CHECK(cudaFree(third) == cudaSuccess);
    CHECK(cudaMemGetInfo(&available, &total) == cudaSuccess);
    CHECK(available == before);
    ::unsetenv("EMULATED_GPU_MEMORY_MIB");
}

TEST_CASE("freeing waits for the streams") {
    const cudaStream_t stream = new_stream();
    int* number = new_device_int(stream, 1);
    Gate gate;
    gate.block(stream);
    enqueue(stream, [=] { *alias(number) = 2; });  // aborts when the memory is gone
    std::thread opener([&] { gate.open(); });
    CHECK(cudaFree(number) == cudaSuccess);
    CHECK(cudaStreamQuery(stream) == cudaSuccess);
    opener.join();
}

TEST_CASE("a copy goes only the way that its kind says, and not beyond its memory") {
    const cudaStream_t stream = new_stream();
    void* device = nullptr;
    void* pinned = nullptr;
    REQUIRE(cudaMalloc(&device, 16) == cudaSuccess);
    REQUIRE(cudaMallocHost(&pinned, 16) == cudaSuccess);
    std::array<char, 16> pageable{};
    struct Copy {
        void* to;
        void* from;
        cudaMemcpyKind kind;
        bool right;
    };
    const std::vector<Copy> copies{
        {device, pinned, cudaMemcpyHostToDevice, true},
        {device, pageable.data(), cudaMemcpyHostToDevice, true},
        {pinned, device, cudaMemcpyHostToDevice, false},
        {device, device, cudaMemcpyHostToDevice, false},
        {pinned, device, cudaMemcpyDeviceToHost, true},
        {pageable.data(), device, cudaMemcpyDeviceToHost, true},
        {device, pinned, cudaMemcpyDeviceToHost, false},
        {device, device, cudaMemcpyDeviceToDevice, true},
        {device, pinned, cudaMemcpyDeviceToDevice, false},
        {pinned, pageable.data(), cudaMemcpyHostToHost, true},
        {device, pageable.data(), cudaMemcpyHostToHost, false},
        {device, pinned, cudaMemcpyDefault, true},
    };
    for (const Copy& copy : copies) {
        const cudaError_t expected = copy.right ? cudaSuccess : cudaErrorInvalidValue;
        CHECK(cudaMemcpyAsync(copy.to, copy.from, 16, copy.kind, stream) == expected);
        CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
        CHECK(cudaMemcpy(copy.to, copy.from, 16, copy.kind) == expected);
    }
    CHECK(cudaMemcpy(device, pinned, 17, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemset(pageable.data(), 0, 16) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(device, 0, 17, stream) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(device, pinned, 16, cudaMemcpyHostToDevice, nullptr) ==
          cudaErrorInvalidValue);  // the default stream
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(cudaFree(device) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("copies and fills take their place in the stream") {
    const cudaStream_t stream = new_stream();
    void* device = nullptr;
    void* pinned = nullptr;
    REQUIRE(cudaMalloc(&device, 4) == cudaSuccess);
    REQUIRE(cudaHostAlloc(&pinned, 4, cudaHostAllocDefault) == cudaSuccess);
    auto* bytes = static_cast<std::uint8_t*>(pinned);
    Gate gate;
    gate.block(stream);
    CHECK(cudaMemsetAsync(device, 5, 4, stream) == cudaSuccess);
    CHECK(cudaMemcpyAsync(pinned, device, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(bytes[2] == 0xFF);
    gate.open();
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(bytes[2] == 5);
    CHECK(cudaMemset(device, 6, 4) == cudaSuccess);
    CHECK(cudaMemcpy(pinned, device, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(bytes[3] == 6);
    CHECK(cudaFree(device) == cudaSuccess);
    CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

// Both lanes must be under way at the same time for either to end.
TEST_CASE("a graph replays forked streams at the same time, and ends when both have") {
    const cudaStream_t origin = new_stream();
    const cudaStream_t forked = new_stream();
    const cudaEvent_t fork = new_event();
    const cudaEvent_t join = new_event();
    int* sum = new_device_int(origin, 0);
    std::atomic<std::latch*> meeting{nullptr};
    CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    enqueue(origin, [=] { *alias(sum) += 1; });
    CHECK(cudaEventRecord(fork, origin) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(forked, fork, 0) == cudaSuccess);
    cudaStreamCaptureStatus status{};
    CHECK(cudaStreamIsCapturing(forked, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    enqueue(forked, [&meeting, sum] {
        *alias(sum) += 10;
        meeting.load()->arrive_and_wait();
    });
    CHECK(cudaEventRecord(join, forked) == cudaSuccess);
    enqueue(origin, [&meeting] { meeting.load()->arrive_and_wait(); });
    CHECK(cudaStreamWaitEvent(origin, join, 0) == cudaSuccess);
    enqueue(origin, [=] { *alias(sum) *= 2; });
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(origin, &graph) == cudaSuccess);
    CHECK(read(sum, origin) == 0);  // nothing has run yet
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphUpload(executable, origin) == cudaSuccess);
    for (const int expected : {22, 66}) {  // (0 + 11) * 2, (22 + 11) * 2
        std::latch both(2);
        meeting = &both;
        CHECK(cudaGraphLaunch(executable, origin) == cudaSuccess);
        CHECK(cudaStreamSynchronize(origin) == cudaSuccess);
        CHECK(read(sum, origin) == expected);
    }
    // Events of a capture count as never recorded once it is over.
    CHECK(cudaEventQuery(join) == cudaSuccess);
    CHECK(cudaGraphExecDestroy(executable) == cudaSuccess);
    CHECK(cudaFree(sum) == cudaSuccess);
}

TEST_CASE("launches of one graph do not overlap, whatever their streams") {
    const cudaStream_t first = new_stream();
    const cudaStream_t second = new_stream();
    int* sum = new_device_int(first, 0);
    CHECK(cudaStreamSynchronize(first) == cudaSuccess);
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    enqueue(first, [=] { *alias(sum) += 1; });
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(first, &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    Gate gate;
    gate.block(first);
    CHECK(cudaGraphLaunch(executable, first) == cudaSuccess);
    CHECK(cudaGraphLaunch(executable, second) == cudaSuccess);
    CHECK(cudaStreamQuery(second) == cudaErrorNotReady);
    gate.open();
    CHECK(cudaStreamSynchronize(second) == cudaSuccess);
    CHECK(read(sum, second) == 2);
    CHECK(cudaFree(sum) == cudaSuccess);
}

TEST_CASE("external events are recorded and waited for at each replay") {
    const cudaStream_t stream = new_stream();
    const cudaStream_t other = new_stream();
    const cudaEvent_t start = new_event(cudaEventDefault);
    const cudaEvent_t end = new_event(cudaEventDefault);
    const cudaEvent_t awaited = new_event();
    CHECK(cudaEventRecordWithFlags(start, stream, cudaEventRecordExternal) ==
          cudaErrorInvalidValue);  // not in a capture
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK(cudaEventRecordWithFlags(start, stream, cudaEventRecordExternal) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(stream, awaited, cudaEventWaitExternal) == cudaSuccess);
    CHECK(cudaEventRecordWithFlags(end, stream, cudaEventRecordExternal) == cudaSuccess);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    float elapsed_ms = -1;
    CHECK(cudaEventElapsedTime(&elapsed_ms, start, end) == cudaErrorInvalidResourceHandle);
    for (int replay = 0; replay < 2; ++replay) {
        Gate gate;
        gate.block(other);
        CHECK(cudaEventRecord(awaited, other) == cudaSuccess);
        CHECK(cudaGraphLaunch(executable, stream) == cudaSuccess);
        CHECK(cudaEventSynchronize(start) == cudaSuccess);
        CHECK(cudaEventQuery(end) == cudaErrorNotReady);
        gate.open();
        CHECK(cudaEventSynchronize(end) == cudaSuccess);
        CHECK(cudaEventElapsedTime(&elapsed_ms, start, end) == cudaSuccess);
        CHECK(elapsed_ms > 0);
    }
}

cudaError_t end_capture(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    CHECK((graph != nullptr) == (error == cudaSuccess));
    return error;
}

TEST_CASE("a capture ends only when every forked stream has been joined") {
    const cudaStream_t origin = new_stream();
    const cudaStream_t forked = new_stream();
    const cudaEvent_t fork = new_event();
    const cudaEvent_t join = new_event();
    for (const bool early : {true, false}) {
        CHECK(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK(cudaEventRecord(fork, origin) == cudaSuccess);
        CHECK(cudaStreamWaitEvent(forked, fork, 0) == cudaSuccess);
        enqueue(forked, [] {});
        CHECK(cudaEventRecord(join, forked) == cudaSuccess);
        if (early) {
            enqueue(forked, [] {});  // behind the event that joins
        }
        CHECK(cudaStreamWaitEvent(origin, join, 0) == cudaSuccess);
        CHECK(end_capture(origin) == (early ? cudaErrorStreamCaptureUnjoined : cudaSuccess));
    }
    CHECK(cudaStreamSynchronize(forked) == cudaSuccess);
}

TEST_CASE("what a capture does not allow fails, and the capture with it") {
    const cudaStream_t stream = new_stream();
    const cudaStream_t other = new_stream();
    const cudaEvent_t inside = new_event();
    const cudaEvent_t outside = new_event();
    CHECK(cudaEventRecord(outside, other) == cudaSuccess);
    void* memory = nullptr;
    struct Call {
        std::function<cudaError_t()> act;
        cudaError_t expected;
    };
    const std::vector<Call> calls{
        {[&] { return cudaStreamSynchronize(stream); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaStreamQuery(stream); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaEventQuery(inside); }, cudaErrorCapturedEvent},
        {[&] { return cudaEventSynchronize(inside); }, cudaErrorCapturedEvent},
        {[&] { return cudaEventQuery(outside); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaMalloc(&memory, 4); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaFree(memory); }, cudaErrorStreamCaptureUnsupported},
        {[&] { return cudaStreamWaitEvent(stream, outside, 0); }, cudaErrorStreamCaptureIsolation},
    };
    for (const Call& call : calls) {
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
        CHECK(cudaEventRecord(inside, stream) == cudaSuccess);
        CHECK(call.act() == call.expected);
        cudaStreamCaptureStatus status{};
        CHECK(cudaStreamIsCapturing(stream, &status) == cudaSuccess);
        CHECK(status == cudaStreamCaptureStatusInvalidated);
        CHECK(cudaEventRecord(inside, stream) == cudaErrorStreamCaptureInvalidated);
        CHECK(end_capture(stream) == cudaErrorStreamCaptureInvalidated);
    }
    CHECK(end_capture(stream) == cudaErrorIllegalState);
}

TEST_CASE("another thread disturbs a global capture, and no other") {
    const cudaStream_t stream = new_stream();
    for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
        CHECK(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
        cudaError_t of_other = cudaSuccess;
        std::thread([&] {
            void* memory = nullptr;
            of_other = cudaMalloc(&memory, 4);
        }).join();
        const bool disturbed = mode == cudaStreamCaptureModeGlobal;
        CHECK(of_other == (disturbed ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
        CHECK(end_capture(stream) == (disturbed ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
    }
}

TEST_CASE(
    "a device's work is launched by threads that have made it theirs, and waits for its own") {
    const cudaStream_t stream = new_stream();
    const cudaEvent_t event = new_event();
    Gate gate;
    gate.block(stream);
    CHECK(cudaSetDevice(1) == cudaSuccess);
    bool done = false;
    enqueue(stream, [&] { done = true; });
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    const cudaStream_t stream_of_1 = new_stream();
    CHECK(cudaEventRecord(event, stream_of_1) == cudaErrorInvalidResourceHandle);
    int* number = new_device_int(stream_of_1, 5);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(cudaFree(number) == cudaSuccess);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    gate.open();
    CHECK(cudaSetDevice(0) == cudaSuccess);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(!done);
}

TEST_CASE("there are as many devices as the environment says") {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
    CHECK(count == 8);
    CHECK(cudaSetDevice(8) == cudaErrorInvalidDevice);
    CHECK(cudaSetDevice(3) == cudaSuccess);
    int device = 0;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 3);
    CHECK(cudaSetDevice(0) == cudaSuccess);
    std::array<char, 32> id{};
    CHECK(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), 3) == cudaSuccess);
    CHECK(std::string(id.data()) == "0000:03:00.0");
    cudaDeviceProp properties{};
    CHECK(cudaGetDeviceProperties(&properties, 3) == cudaSuccess);
    CHECK(std::string(properties.name) == "Emulated GPU");
    int multiprocessors = 0;
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 3) ==
          cudaSuccess);
    CHECK(multiprocessors == properties.multiProcessorCount);
    CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMaxPitch, 3) ==
          cudaErrorInvalidValue);
    ::setenv("EMULATED_GPUS", "0", 1);
    CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
    CHECK(count == 0);
    CHECK(std::string(cudaGetErrorName(cudaErrorNoDevice)) == "cudaErrorNoDevice");
    ::unsetenv("EMULATED_GPUS");
}

}  // namespace
}  // namespace bucketwise
