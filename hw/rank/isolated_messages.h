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

    // Among the ranks of `among`, each of which calls `computing` before every collective and waits
    // for it: times are from when the last of them has launched it until this one goes on.
    MessageTrace measure_between(const std::function<void()>& computing, const Message& message,
                                 std::int64_t iterations, Communicator& among);

    // For who has something to do meanwhile: waits until all ranks have come here, launches, and
    // leaves waiting to the caller.
    std::vector<CommunicationThread::Ticket> launch(const Message& message,
                                                    std::int64_t iterations);
    // Waits for all.
    std::vector<Duration> times_of(const std::vector<CommunicationThread::Ticket>& tickets);

    // Returns once all ranks have called it. On the communication thread.
    void meet();

    [[nodiscard]] CommunicationThread& thread() { return thread_; }

  private:
    void prepare(Bytes size);
    // Among the ranks of `among`.
    void exchange(const Message& message, Communicator& among);
    void write_known(const Message& message, const Communicator& among);
    [[nodiscard]] MessageCheck check(const Message& message, const Communicator& among);
    // The one that warms up.
    void exchange_known(const Message& message, Communicator& among, MessageTrace& trace);
    std::vector<CommunicationThread::Ticket> launch_all(const Message& message,
                                                        std::int64_t iterations);

    Communicator& communicator_;
    Arena message_;
    CommunicationThread thread_;  // last, so that it ends first
};

// How many make a measurement: small messages take microseconds, so more of them make a sample
// that counts; large ones are measured once.
std::int64_t iterations_for(Bytes size);

}  // namespace bucketwise
