// A program: what one rank's host issues during one training step, in order. Launch rules, copies,
// comm hooks, accumulation and buffer broadcasts are all decided here, so that the engine only has
// to execute a list.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/units.h"
#include "sim/link/collective.h"
#include "sim/link/link.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/workload/variation.h"
#include "sim/workload/workload.h"

namespace bucketwise {

enum class InstructionKind : std::uint8_t {
    copy_buffers,  // subject: group of Workload::buffer_groups; each buffer back after its
                   // broadcast
    forward,       // subject: operation of Workload::forward
    backward,      // subject: operation of Workload::backward
    copy_in,       // subject: gradient; into its bucket with the division by the number of ranks
    pack,          // subject: bucket; all its copies in and the hook's cast, in one launch
    check,         // subject: bucket; its norm, which the host reads back
    scale,         // subject: bucket; by the number of ranks, where it lies
    cast_down,     // subject: bucket; comm hook
    launch,        // subject: collective; issued by the host, runs on the communication stream
    wait,          // subject: collective; what follows on the compute stream starts after its end
    cast_up,    // subject: bucket; comm hook. Before the wait only its launch: Collective::placing
    unpack,     // subject: bucket; the hook's cast and all its copies back, in one launch
    copy_back,  // subject: gradient
    optimizer   // subject: part, from 0; where launching takes the host time there are two
};

// Moves bytes, and nothing else.
bool is_copy(InstructionKind kind);

constexpr bool is_compute(InstructionKind kind) {
    return kind != InstructionKind::launch && kind != InstructionKind::wait;
}

// Of a launch: that it waits for all that was issued before it on the compute stream; and that it
// waits for what was there before the program alone.
constexpr std::int32_t in_its_place = -1;
constexpr std::int32_t before_all = -2;

// The part of the step an instruction's time counts to.
enum class Phase : std::uint8_t { forward, backward, optimizer };

struct Instruction {
    InstructionKind kind = InstructionKind::forward;
    Phase phase = Phase::forward;
    std::int32_t subject = 0;
    Duration host{0};  // host time to issue it
    Duration device{
        0};  // undisturbed time on its stream; zero for a wait, and a launch in its place
    // Part of the call that finishes synchronisation, after backward and its hooks: DDP's finalize,
    // CS336's finish_gradient_synchronization.
    bool finishing = false;
    bool host_waits = false;  // the host issues the next one when this one has run
    // Of operations. What runs beside the compute stream does not compute: it neither slows what is
    // communicated nor is slowed by it, and is no part of a phase but for what waits for it.
    StreamOrder order = {};
    // Of a launch: what it brings is sent from a stream that waits for that instruction, an earlier
    // one in its place, or for none, whatever the compute stream does, and then takes `device` to
    // get it ready.
    std::int32_t launched_after = in_its_place;
    bool operator==(const Instruction&) const = default;

    [[nodiscard]] constexpr bool is_launched_ahead() const {
        return launched_after != in_its_place;
    }
};

// BatchNorm's, of an operation of Workload::forward or Workload::backward.
struct StatisticsOf {
    Phase phase = Phase::forward;
    std::int32_t operation = 0;
    DType dtype = DType::float32;  // of what travels
    bool operator==(const StatisticsOf&) const = default;
};

// Collectives on one stream follow one another. A second one carries what another communicator
// does, over links of its own: neither slows the other.
enum class CommunicationStream : std::uint8_t { first, second };
constexpr std::size_t communication_streams = 2;

struct Collective {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::optional<std::int32_t>
        bucket;        // none: buffers, DDP's map of unused parameters, statistics, parameters
    Bytes bytes;       // after the comm hook
    Duration time{0};  // alone on the link
    Interference interference = {};               // while it is in flight
    std::optional<StatisticsOf> statistics = {};  // waited for where they are launched
    // From its end until what it brought is in place, on a stream of its own: who waits for it,
    // waits for that; the next collective does not.
    Duration placing{0};
    // Which communication stream carries it, and the one before it, on the other, that it waits
    // for.
    CommunicationStream stream = CommunicationStream::first;
    std::optional<std::int32_t> follows = {};
    // Of a sharded step: whose parameters or gradients it moves, as an index of ShardPlan::groups.
    std::optional<std::int32_t> group = {};
    bool operator==(const Collective&) const = default;
};

struct Program {
    std::vector<Instruction> instructions;
    std::vector<Collective> collectives;  // in the order they are issued
    bool host_is_device = false;
    bool operator==(const Program&) const = default;
};

struct StepSettings {
    std::int64_t accumulation = 1;  // micro-steps; only the last one reduces gradients (no_sync)
    Duration optimizer{0};
    // Host time to launch the optimizer, evenly over its updates, one per gradient.
    Duration optimizer_launch{0};
    std::vector<TimedOperation> optimizer_operations = {};  // instead of both, if there are any
    // Host time to launch the whole step as one CUDA graph: the first instruction's, and all others
    // are issued for free. None: each instruction is issued on its own.
    std::optional<Duration> graph_launch = {};
    // The host reads back something of every step, a loss or a scale, before it goes on.
    bool sync_each_step = false;
    std::int64_t launch_queue = 1024;  // launches that the host may be ahead of the device
    bool operator==(const StepSettings&) const = default;
};

// Ranks that are alike among themselves and compute slower than others: forward, backward and
// optimizer take this many times as long, copies and launches do not.
struct RankClass {
    std::int64_t ranks = 1;
    double compute_slowdown = 1;
    bool operator==(const RankClass&) const = default;
};

// Everything about a step but its bucket plan.
struct StepInput {
    Workload workload;
    RankGroup group;
    LinkParameters link;
    std::optional<BytesPerSecond> copy_bandwidth;  // payload; none: copies and casts cost nothing
    Duration copy_fixed{0};                        // of each copy or cast, besides
    StepSettings step;
    std::optional<Variation> variation;
    std::vector<RankClass> classes = {};  // together all ranks; empty: all are alike
    bool operator==(const StepInput&) const = default;
};

// Whether any operation runs beside the compute stream.
bool uses_side_streams(const StepInput& input);

// How one step follows another.
struct StepLoop {
    bool starts_idle = true;  // host and device have nothing left to do when a step begins
    std::int64_t launch_queue = 1024;
    bool one_launch = false;    // the step is, as a CUDA graph
    bool host_waits = false;    // for the device, somewhere within the step
    bool side_streams = false;  // what is left of them when a step ends goes on into the next
    bool operator==(const StepLoop&) const = default;
};

// Where the host is the device, every step starts idle, and where the framework's host waits for
// the gradients, as Horovod's synchronize() does: what is left, the optimizer, is little. It then
// waits for side streams, too.
StepLoop loop_of(const StepInput& input, const SyncSettings& sync);

// Whether some collective is launched ahead of its place, or there is a second stream of them.
bool communicates_beside(const Program& program);

// The same step if communication were free: collectives take no time and disturb nothing. What
// issuing and copying cost stays.
Program with_free_communication(Program program);

// The same step on a rank that computes slower.
Program with_slower_computing(Program program, double slowdown);

// The slowest class's computing; 1 where there are none.
double largest_slowdown(const std::vector<RankClass>& classes);
Program on_slowest_rank(Program program, const std::vector<RankClass>& classes);

// One program per class, each of `program` slowed down; the program itself where there is none.
std::vector<Program> programs_of_classes(const Program& program,
                                         const std::vector<RankClass>& classes);

// What the program's collectives cost on another link or among other ranks, which change nothing
// else of it.
void set_collective_costs(Program& program, const RankGroup& group, const LinkParameters& link);

// The same step if the host issued everything in no time.
Program with_free_launches(Program program);

// The same step if the host did not wait for the device where instructions say so.
Program without_host_waits(Program program);

// The same step if side streams took nothing but the host's time to issue what they run, and nobody
// waited for them.
Program without_side_streams(Program program);

// No execution of the program can take longer, in seconds: everything one after another, slowed
// down.
double longest_possible_seconds(const Program& program);

}  // namespace bucketwise
