// One rank's compute and communication, behind one interface for every backend: it runs steps on
// real buffers and says when everything happened.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/compute/gradient_pattern.h"
#include "hw/rank/replayed_step.h"
#include "hw/record/step_trace.h"
#include "sim/base/dtype.h"
#include "sim/base/interface.h"
#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"

namespace bucketwise {

struct StepCheck {
    double largest_difference = 0;  // of any gradient's element from the exact mean
    std::string wrong;              // the first wrong element, for people; empty: none

    // `what` was checked; `is` goes before the expected value.
    void add(const ElementCheck& found, const std::string& what, const char* is);
};

// A message that is sent in isolation.
struct Message {
    Bytes size;
    DType dtype = DType::float32;
    std::optional<std::int64_t> ctas = {};  // most thread blocks that carry it; none: as in steps
    // Not a broadcast. In an all-gather or a reduce-scatter the size is that of all ranks' parts
    // together, each of as many elements.
    CollectiveKind kind = CollectiveKind::all_reduce;
    bool operator==(const Message&) const = default;
};

inline std::int64_t elements_of(const Message& message) {
    return message.size.count / element_size(message.dtype).count;
}

struct MessageTrace {
    std::vector<Duration> times;  // one per iteration, back to back
    std::vector<Duration> issue;  // host time to launch each; empty: the host runs it itself
    double largest_difference = 0;
    std::string wrong;
    std::int64_t ranks = 0;  // that took part; 0: all
};

// Collectives of one message back to back, as a step runs them. They carry zeros, so that no sum
// overflows.
class MessageDevice : public Interface {
  public:
    // After one that warms up and whose result is checked, element by element.
    virtual MessageTrace measure(const Message& message, std::int64_t iterations) = 0;

    // Without a check. `waiting` is called now and then while this thread waits; may be empty.
    virtual std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                         const std::function<void()>& waiting) = 0;

    // The most that this rank has had so far in the memory it computes in.
    [[nodiscard]] virtual std::int64_t peak_memory_bytes() const = 0;
};

// Times of operations while collectives were running, and of the same operations alone. Both zero:
// no operation counted.
struct Disturbance {
    Duration disturbed{0};
    Duration alone{0};
    bool operator==(const Disturbance&) const = default;

    Disturbance& operator+=(const Disturbance& other) {
        disturbed += other.disturbed;
        alone += other.alone;
        return *this;
    }
};

// Collectives back to back while backward runs over and over.
struct ContentionTrace {
    std::vector<Duration> times;  // of the collectives
    Disturbance compute;          // operations of backward that ran wholly while collectives did
    std::optional<Disturbance> products = {};  // the matrix products among them; none: unknown
};

enum class Communicate : std::uint8_t {
    yes,
    for_free  // collectives are launched and waited for, and do nothing
};

class RankDevice : public MessageDevice {
  public:
    // Measures what fillers need. All ranks should do it at once.
    virtual void calibrate() = 0;

    // The time of each operation of backward while nothing is communicated.
    virtual std::vector<Duration> backward_alone() = 0;

    // Like measure(), but as steps have the message: among the ranks that exchange it there and,
    // where a step waits for each collective, behind computing, so that ranks do not come all at
    // once. Times begin when the last rank has come.
    virtual MessageTrace measure_as_in_steps(const Message& message, std::int64_t iterations) {
        return measure(message, iterations);
    }

    // `iterations` collectives back to back, and backward over and over until they have ended.
    // `alone` is the result of backward_alone().
    virtual ContentionTrace contend(const Message& message, std::int64_t iterations,
                                    const std::vector<Duration>& alone) = 0;

    // Runs one step. Steps are numbered so that no two successive ones have equal gradients or
    // parameters. The trace of single instructions may be coarse: the time of several may count to
    // the last of them, where nobody waits in between.
    virtual StepTrace run(const ReplayedStep& step, std::int64_t number,
                          Communicate communicate) = 0;

    // The same without communication, every instruction by itself, none waiting for its launch:
    // the times for which the device is busy. Nothing: run() has them already.
    virtual std::optional<StepTrace> run_each(const ReplayedStep& /*step*/,
                                              std::int64_t /*number*/) {
        return std::nullopt;
    }

    // Compares every element that the last step left with its exact value: the mean of every
    // gradient or, in sharded steps, the parameters gathered last and the rank's own part of every
    // gradient.
    virtual StepCheck check() = 0;

    // Runs one step that is not timed, and compares after every all-gather and every reduction.
    // Nothing where check() sees as much.
    virtual StepCheck run_checked(const ReplayedStep& /*step*/, std::int64_t /*number*/) {
        return {};
    }
};

// The median time of each operation of backward alone, over and over for as long as contend() will,
// after one warm-up: with a mean, one interruption would count in every comparison. `time` runs
// every operation once and returns the time of each.
std::vector<Duration> times_alone(std::size_t operations, const std::function<void()>& warm_up,
                                  const std::function<std::vector<Duration>()>& time);

}  // namespace bucketwise
