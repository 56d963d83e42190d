// Collectives of one message back to back on the communication stream of a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "hw/gpu/head_start.h"
#include "hw/gpu/runtime/device_memory.h"
#include "hw/gpu/runtime/gpu_stream.h"
#include "hw/nccl/nccl_communicator.h"
#include "hw/rank/communicator.h"
#include "hw/rank/rank_device.h"

namespace bucketwise {

// The communicators of one rank: one for each number of thread blocks that is asked for, and for
// each group of ranks.
class Communicators {
  public:
    // `control` is kept by reference. `ctas`: of steps; none: NCCL's choice. Collective.
    Communicators(ControlGroup& control, std::chrono::milliseconds deadline,
                  std::optional<std::int64_t> ctas);

    [[nodiscard]] NcclCommunicator& of_steps() { return *of_steps_; }
    // No number: the communicator of steps. Collective when it is asked for the first time.
    [[nodiscard]] NcclCommunicator& with_ctas(std::optional<std::int64_t> ctas);
    // For some ranks, this one among them. Collective when it is asked for the first time.
    [[nodiscard]] NcclCommunicator& among(const std::vector<std::int64_t>& ranks);
    // Ends the collectives on all of them.
    void abort() noexcept;

  private:
    ControlGroup& control_;
    std::chrono::milliseconds deadline_;
    std::optional<std::int64_t> ctas_;
    std::unique_ptr<NcclCommunicator> of_steps_;
    std::map<std::int64_t, std::unique_ptr<NcclCommunicator>> others_;
    std::map<std::vector<std::int64_t>, std::unique_ptr<NcclCommunicator>> groups_;
};

class GpuMessages : public MessageDevice {
  public:
    // Kept by reference.
    explicit GpuMessages(Communicators& communicators);
    ~GpuMessages() override;

    MessageTrace measure(const Message& message, std::int64_t iterations) override;
    // The same among the ranks of `among`, with its number of thread blocks.
    MessageTrace measure_among(const Message& message, std::int64_t iterations,
                               NcclCommunicator& among);
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override;

    // For callers that launch themselves: makes room for the message, and all ranks meet.
    void prepare(const Message& message);
    // Puts one collective of the prepared message on the stream.
    void launch(const Message& message);
    // Returns once all ranks have called it.
    void meet();
    [[nodiscard]] const GpuStream& stream() const { return stream_; }
    // NCCL's own buffers are not counted.
    [[nodiscard]] std::int64_t peak_memory_bytes() const override {
        return message_.size_bytes() + one_.size_bytes();
    }

  private:
    [[nodiscard]] RankExchange one_element() const {
        return {.own = one_.at(0), .size = element_size(DType::float32)};
    }
    [[nodiscard]] NcclCommunicator& communicator_of(const Message& message);
    void check_result(const Message& message, MessageTrace& trace);
    MessageTrace timed(const Message& message, std::int64_t iterations,
                       const std::function<void()>& waiting);
    void time_batch(const Message& message, std::int64_t iterations, MessageTrace& trace,
                    const std::function<void()>& waiting);

    Communicators& communicators_;
    NcclCommunicator* among_ = nullptr;  // that measures; none: all ranks
    GpuStream stream_;
    DeviceMemory message_;
    DeviceMemory one_;  // by which ranks meet
    HeadStart head_start_;
    Duration stamp_time_{0};  // that a stamp adds to an interval
    std::vector<GpuEvent> begins_;
    std::vector<GpuEvent> ends_;
    // Differences by kind, size, dtype, number of thread blocks and of ranks.
    std::map<std::tuple<CollectiveKind, std::int64_t, DType, std::int64_t, int>, double> checked_;
};

}  // namespace bucketwise
