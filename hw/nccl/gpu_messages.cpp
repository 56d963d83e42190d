#include "hw/nccl/gpu_messages.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "hw/rank/isolated_messages.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// --- Communicators ---

Communicators::Communicators(ControlGroup& control, std::chrono::milliseconds deadline,
                             std::optional<std::int64_t> ctas)
    : control_(control),
      deadline_(deadline),
      ctas_(ctas),
      of_steps_(std::make_unique<NcclCommunicator>(control, deadline, ctas)) {}

NcclCommunicator& Communicators::with_ctas(std::optional<std::int64_t> ctas) {
    if (!ctas || ctas == ctas_) {
        return *of_steps_;
    }
    std::unique_ptr<NcclCommunicator>& communicator = others_[*ctas];
    if (!communicator) {
        communicator = std::make_unique<NcclCommunicator>(control_, deadline_, ctas);
    }
    return *communicator;
}

NcclCommunicator& Communicators::among(const std::vector<std::int64_t>& ranks) {
    if (std::ssize(ranks) == of_steps_->ranks()) {
        return *of_steps_;
    }
    std::unique_ptr<NcclCommunicator>& communicator = groups_[ranks];
    if (!communicator) {
        communicator = std::make_unique<NcclCommunicator>(control_, ranks, deadline_, ctas_);
    }
    return *communicator;
}

void Communicators::abort() noexcept {
    of_steps_->abort();
    const auto abort_all = [](const auto& communicators) {
        for (const auto& [of_what, communicator] : communicators) {
            if (communicator) {
                communicator->abort();
            }
        }
    };
    abort_all(others_);
    abort_all(groups_);
}

// --- GpuMessages ---

GpuMessages::GpuMessages(Communicators& communicators)
    : communicators_(communicators), stream_(StreamPriority::high), one_(32) {
    stamp_time_ = time_of_a_stamp(stream_, head_start_, one_);
}

// Memory that a collective still uses must not go, and cudaFree would wait for it for ever.
GpuMessages::~GpuMessages() {
    head_start_.release();
    if (!ends_well(stream_)) {
        communicators_.abort();
    }
}

void GpuMessages::meet() {
    NcclCommunicator& communicator = communicators_.of_steps();
    communicator.carry(one_element(), stream_);
    PatientWait(communicator).until([&] { return stream_.is_idle(); }, "meeting all ranks");
}

NcclCommunicator& GpuMessages::communicator_of(const Message& message) {
    return among_ != nullptr ? *among_ : communicators_.with_ctas(message.ctas);
}

void GpuMessages::prepare(const Message& message) {
    if (message_.size_bytes() < message.size.count) {
        message_ = DeviceMemory();  // never two at once
        message_ = DeviceMemory(message.size.count);
    }
    stream_.fill(message_.at(0), 0, message.size.count);
    static_cast<void>(communicator_of(message));  // connects
    meet();
}

void GpuMessages::launch(const Message& message) {
    NcclCommunicator& communicator = communicator_of(message);
    communicator.carry(
        exchange_of(message, message_.at(0), communicator.rank(), communicator.ranks()), stream_);
}

MessageTrace GpuMessages::measure(const Message& message, std::int64_t iterations) {
    MessageTrace checked;
    prepare(message);
    check_result(message, checked);
    MessageTrace trace = timed(message, iterations, {});
    trace.largest_difference = checked.largest_difference;
    trace.wrong = checked.wrong;
    return trace;
}

MessageTrace GpuMessages::measure_among(const Message& message, std::int64_t iterations,
                                        NcclCommunicator& among) {
    among_ = &among;
    MessageTrace trace = measure(message, iterations);
    among_ = nullptr;
    trace.ranks = among.ranks();
    return trace;
}

std::vector<Duration> GpuMessages::repeat(const Message& message, std::int64_t iterations,
                                          const std::function<void()>& waiting) {
    return timed(message, iterations, waiting).times;
}

// The host takes far longer to make and check the values than the GPU for the sum, so each message
// is checked once.
void GpuMessages::check_result(const Message& message, MessageTrace& trace) {
    NcclCommunicator& communicator = communicator_of(message);
    const auto key = std::make_tuple(message.kind, message.size.count, message.dtype,
                                     message.ctas.value_or(0), communicator.ranks());
    const auto earlier = checked_.find(key);
    if (earlier != checked_.end()) {
        trace.largest_difference = earlier->second;
        launch(message);  // warms up
        PatientWait(communicator).until([&] { return stream_.is_idle(); }, "a collective");
        return;
    }
    std::vector<std::byte> values(static_cast<std::size_t>(message.size.count));
    write_known(message, values.data(), communicator.rank(), communicator.ranks());
    message_.copy_in(values.data(), 0, message.size.count);
    launch(message);
    PatientWait(communicator).until([&] { return stream_.is_idle(); }, "a collective");
    message_.copy_out(values.data(), 0, message.size.count);
    const MessageCheck check =
        check_known(message, values.data(), communicator.rank(), communicator.ranks());
    trace.largest_difference = check.largest_difference;
    trace.wrong = check.wrong;
    checked_[key] = check.largest_difference;
}

MessageTrace GpuMessages::timed(const Message& message, std::int64_t iterations,
                                const std::function<void()>& waiting) {
    MessageTrace trace;
    prepare(message);
    constexpr std::int64_t most = HeadStart::most_launches / 4;  // each is a collective, two events
    for (std::int64_t left = iterations; left > 0; left -= most) {
        time_batch(message, std::min(left, most), trace, waiting);
    }
    return trace;
}

// The GPU waits until all are launched, then the ranks meet once more: each collective then starts
// on all of them where the one before ended.
void GpuMessages::time_batch(const Message& message, std::int64_t iterations, MessageTrace& trace,
                             const std::function<void()>& waiting) {
    NcclCommunicator& communicator = communicator_of(message);
    const auto count = static_cast<std::size_t>(iterations);
    while (begins_.size() < count) {
        begins_.emplace_back(Timing::on);
        ends_.emplace_back(Timing::on);
    }
    HeadStart::Hold hold(head_start_, stream_);
    communicators_.of_steps().carry(one_element(), stream_);
    for (std::size_t i = 0; i < count; ++i) {
        begins_[i].record(stream_);
        const Clock::time_point issued = Clock::now();
        launch(message);
        trace.issue.push_back(std::chrono::duration_cast<Duration>(Clock::now() - issued));
        ends_[i].record(stream_);
    }
    hold.release();
    PatientWait wait(communicator);
    for (std::size_t i = 0; i < count; ++i) {
        wait.until([&] { return ends_[i].has_happened(); }, "a collective", waiting);
        trace.times.push_back(std::max(Duration{1}, between(begins_[i], ends_[i]) - stamp_time_));
    }
    head_start_.check();
}

}  // namespace bucketwise
