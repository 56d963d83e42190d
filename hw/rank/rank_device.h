// One rank's compute and communication, behind one interface for every backend: it runs programs
// on real buffers and says when everything happened.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hw/record/step_trace.h"
#include "sim/base/dtype.h"
#include "sim/base/interface.h"
#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"

namespace bucketwise {

struct StepCheck {
    double largest_difference = 0;  // of any gradient's element from the exact mean
    std::string wrong;              // what is wrong with a sum; empty: nothing
};

// What is sent in isolation.
struct Message {
    Bytes size;
    DType dtype = DType::float32;
    std::optional<std::int64_t> ctas = {};  // most thread blocks that carry it; none: as in steps
    // Not a broadcast. Of an all-gather or a reduce-scatter the size is that of all ranks' parts
    // together, each of as many elements.
    CollectiveKind kind = CollectiveKind::all_reduce;
    bool operator==(const Message&) const = default;
};

struct MessageTrace {
    std::vector<Duration> times;  // one per iteration, back to back
    std::vector<Duration> issue;  // host time to launch each; empty: the host runs it itself
    double largest_difference = 0;
    std::string wrong;
    std::int64_t ranks = 0;  // among how many; 0: all
};

// Collectives of one message back to back, as a step runs them. They are of zeros, so that no sum
// overflows.
class MessageDevice : public Interface {
  public:
    // After one that warms up and whose result is checked, element by element.
    virtual MessageTrace measure(const Message& message, std::int64_t iterations) = 0;

    // Without it. `waiting` is called now and then while this thread waits; may be empty.
    virtual std::vector<Duration> repeat(const Message& message, std::int64_t iterations,
                                         const std::function<void()>& waiting) = 0;

    // The most that this rank has had in the memory it computes in so far.
    [[nodiscard]] virtual std::int64_t peak_memory_bytes() const = 0;
};

// What operations took while all-reduces were running, and the same ones alone. Both zero: there
// were none.
struct Disturbance {
    Duration disturbed{0};
    Duration alone{0};
    bool operator==(const Disturbance&) const = default;
};

// All-reduces back to back while backward runs over and over.
struct ContentionTrace {
    std::vector<Duration> times;  // of the all-reduces
    Disturbance compute;          // operations of backward from begin to end while all-reduces ran
    std::optional<Disturbance> products = {};  // of these the matrix products; none: not told apart
};

enum class Communicate : std::uint8_t {
    yes,
    for_free  // collectives are launched and waited for, and do nothing
};

// What computes, too.
class ComputingDevice : public MessageDevice {
  public:
    // Measures what fillers need. Collective only in that all ranks should do it at once.
    virtual void calibrate() = 0;

    // What each operation of backward takes while nothing is communicated.
    virtual std::vector<Duration> backward_alone() = 0;

    // As measure(), of what steps have: among the ranks that exchange there; where a step waits for
    // each collective, behind computing, so that ranks do not come all at once. Times are from when
    // the last has come.
    virtual MessageTrace measure_as_in_steps(const Message& message, std::int64_t iterations) {
        return measure(message, iterations);
    }

    // `iterations` collectives back to back, and backward over and over until they have ended.
    // `alone` is what backward_alone() said.
    virtual ContentionTrace contend(const Message& message, std::int64_t iterations,
                                    const std::vector<Duration>& alone) = 0;
};

class RankDevice : public ComputingDevice {
  public:
    // Runs one step. `program` was built for `plan` and `sync`. Steps are numbered so that no two
    // successive ones have equal gradients. What the trace says of each single instruction may be
    // coarse: the time of several may count to the last of them, where nobody waits in between.
    virtual StepTrace run(const Program& program, const SyncSettings& sync, const BucketPlan& plan,
                          std::int64_t step, Communicate communicate) = 0;

    // The same without communication, every instruction by itself, none waiting for its launch:
    // what the device is busy with. Nothing: run() says so already.
    virtual std::optional<StepTrace> run_each(const Program& /*program*/,
                                              const SyncSettings& /*sync*/,
                                              const BucketPlan& /*plan*/, std::int64_t /*step*/) {
        return std::nullopt;
    }

    // Compares every element of every gradient of the step that ran last with the exact mean.
    virtual StepCheck check() = 0;
};

}  // namespace bucketwise
