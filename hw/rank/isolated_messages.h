// Collectives of one message back to back, on the communication thread, as a step runs them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "hw/compute/arena.h"
#include "hw/compute/known_message.h"
#include "hw/rank/communication_thread.h"
#include "hw/rank/communicator.h"
#include "hw/rank/rank_device.h"
#include "hw/record/environment.h"
#include "sim/base/units.h"

namespace bucketwise {

// A message of `data`, in place, on one rank.
RankExchange exchange_of(const Message& message, std::byte* data, int rank, int ranks);

// Writes the rank's known values, and compares the result with the exact one, element by element.
// An all-gather has only the rank's own part before.
void write_known(const Message& message, std::byte* data, int rank, int ranks);
MessageCheck check_known(const Message& message, const std::byte* data, int rank, int ranks);

class IsolatedMessages : public MessageDevice {
  public:
    // Kept by reference, and used by another thread.
    explicit IsolatedMessages(Communicator& communicator)
        : communicator_(communicator), thread_(communicator.rank()) {}

    MessageTrace measure(const Message& message, std::int64_t iterations) override;
    std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                 const std::function<void()>& waiting) override;
    // The process's, not the communicator's alone.
    [[nodiscard]] std::int64_t peak_memory_bytes() const override {
        return bucketwise::peak_memory_bytes();
    }

    // Every rank of `among` calls `computing` before each collective and waits for the collective.
    // Times begin when the last of them has launched it, and end when this one goes on.
    MessageTrace measure_between(const std::function<void()>& computing, const Message& message,
                                 std::int64_t iterations, Communicator& among);

    // Launches once all ranks have come here, and leaves waiting to the caller.
    std::vector<CommunicationThread::Ticket> launch(const Message& message,
                                                    std::int64_t iterations);
    // Waits for all.
    std::vector<Duration> times_of(const std::vector<CommunicationThread::Ticket>& tickets);

    // Returns once all ranks have called it. On the communication thread.
    void meet();

    [[nodiscard]] CommunicationThread& thread() { return thread_; }

  private:
    void prepare(Bytes size);
    void exchange(const Message& message, Communicator& among);
    // Warms up and checks.
    void exchange_known(const Message& message, Communicator& among, MessageTrace& trace);
    std::vector<CommunicationThread::Ticket> launch_all(const Message& message,
                                                        std::int64_t iterations);

    Communicator& communicator_;
    Arena message_;
    CommunicationThread thread_;  // last, so that it ends first
};

// Repetitions of one measurement: small messages take microseconds, so a sample needs more of them;
// large ones are measured once.
std::int64_t iterations_for(Bytes size);

}  // namespace bucketwise
