#include "hw/nccl/gpu_messages.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "hw/compute/known_message.h"

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t elements_of(const Message& message) {
    return message.size.count / element_size(message.dtype).count;
}

// Of one rank.
Bytes part_of(const Message& message, int ranks) {
    return elements_of(message) / ranks * element_size(message.dtype);
}

MessageCheck check_known(const Message& message, const std::vector<std::byte>& values, int rank,
                         int ranks) {
    const Bytes part = part_of(message, ranks);
    const std::int64_t elements = elements_of(message) / ranks;
    switch (message.kind) {
        case CollectiveKind::all_gather:
            return check_known_gather(values.data(), elements, message.dtype, ranks);
        case CollectiveKind::reduce_scatter:
            return check_known_sum(values.data() + rank * part.count, elements, message.dtype,
                                   ranks, rank * elements);
        case CollectiveKind::all_reduce:
        case CollectiveKind::broadcast:
            break;
    }
    return check_known_sum(values.data(), elements_of(message), message.dtype, ranks);
}

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
    communicator.all_reduce(one_.at(0), 1, DType::float32, Reduction::sum, stream_);
    PatientWait(communicator).until([&] { return stream_.is_idle(); }, "meeting all ranks");
}

void GpuMessages::prepare(const Message& message) {
    if (message_.size_bytes() < message.size.count) {
        message_ = DeviceMemory();  // never two at once
        message_ = DeviceMemory(message.size.count);
    }
    stream_.fill(message_.at(0), 0, message.size.count);
    static_cast<void>(communicators_.with_ctas(message.ctas));  // connects
    meet();
}

void GpuMessages::launch(const Message& message) {
    NcclCommunicator& communicator = communicators_.with_ctas(message.ctas);
    const Bytes part = part_of(message, communicator.ranks());
    switch (message.kind) {
        case CollectiveKind::all_gather:
            communicator.all_gather(message_.at(communicator.rank() * part.count), message_.at(0),
                                    part, stream_);
            return;
        case CollectiveKind::reduce_scatter:
            communicator.reduce_scatter_sum(message_.at(0),
                                            elements_of(message) / communicator.ranks(),
                                            message.dtype, stream_);
            return;
        case CollectiveKind::all_reduce:
        case CollectiveKind::broadcast:
            break;
    }
    communicator.all_reduce(message_.at(0), elements_of(message), message.dtype, Reduction::sum,
                            stream_);
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

std::vector<Duration> GpuMessages::repeat(const Message& message, std::int64_t iterations,
                                          const std::function<void()>& waiting) {
    return timed(message, iterations, waiting).times;
}

// Of an all-gather the rank's own part of the message; the others are to come.
std::vector<std::byte> GpuMessages::known_values(const Message& message, int rank) const {
    std::vector<std::byte> values(static_cast<std::size_t>(message.size.count));
    if (message.kind != CollectiveKind::all_gather) {
        write_known_message(values.data(), elements_of(message), message.dtype, rank);
        return values;
    }
    const int ranks = communicators_.of_steps().ranks();
    write_known_message(values.data() + rank * part_of(message, ranks).count,
                        elements_of(message) / ranks, message.dtype, rank);
    return values;
}

// Making and checking the values takes the host far longer than the GPU takes for the sum, so each
// message is checked once.
void GpuMessages::check_result(const Message& message, MessageTrace& trace) {
    const auto key =
        std::make_tuple(message.kind, message.size.count, message.dtype, message.ctas.value_or(0));
    const auto earlier = checked_.find(key);
    NcclCommunicator& communicator = communicators_.with_ctas(message.ctas);
    if (earlier != checked_.end()) {
        trace.largest_difference = earlier->second;
        launch(message);  // warms up
        PatientWait(communicator).until([&] { return stream_.is_idle(); }, "a collective");
        return;
    }
    std::vector<std::byte> values = known_values(message, communicator.rank());
    message_.copy_in(values.data(), 0, message.size.count);
    launch(message);
    PatientWait(communicator).until([&] { return stream_.is_idle(); }, "a collective");
    message_.copy_out(values.data(), 0, message.size.count);
    const MessageCheck check =
        check_known(message, values, communicator.rank(), communicator.ranks());
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
    NcclCommunicator& communicator = communicators_.with_ctas(message.ctas);
    const auto count = static_cast<std::size_t>(iterations);
    while (begins_.size() < count) {
        begins_.emplace_back(Timing::on);
        ends_.emplace_back(Timing::on);
    }
    HeadStart::Hold hold(head_start_, stream_);
    communicators_.of_steps().all_reduce(one_.at(0), 1, DType::float32, Reduction::sum, stream_);
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
