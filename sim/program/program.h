// A program: the instructions that one rank's host issues during one training step, in order. It
// contains all launch rules, copies, comm hooks, accumulation and buffer broadcasts; the engine
// executes a list.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>
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
    forward,    // subject: operation of Workload::forward
    backward,   // subject: operation of Workload::backward
    copy,       // subject: as its route says
    launch,     // subject: collective; issued by the host, runs on the communication stream
    wait,       // subject: collective; what follows on the compute stream starts after its end
    clip,       // subject: 0, the norm of all gradients; 1, their multiplication
    optimizer,  // subject: part, from 0; where launching takes the host time there are two
};

// Moves bytes, and nothing else.
constexpr bool is_copy(InstructionKind kind) {
    return kind == InstructionKind::copy;
}
constexpr bool is_compute(InstructionKind kind) {
    return kind != InstructionKind::launch && kind != InstructionKind::wait;
}

// Where a copy reads and where it writes. A bucket's gradients are packed into it; a comm hook's
// wire is a narrower copy of the bucket, which travels in its place.
enum class CopyRoute : std::uint8_t {
    none,
    received_to_buffers,  // subject: group of Workload::buffer_groups, after its broadcast
    // Subject: gradient.
    gradient_to_bucket,
    bucket_to_gradient,
    // Subject: bucket. Several gradients in one launch, with the hook's cast where it is the wire.
    gradients_to_bucket,
    gradients_to_wire,
    bucket_to_gradients,
    wire_to_gradients,
    // Subject: bucket, as a whole.
    bucket_to_wire,
    wire_to_bucket,  // before the wait only its launch: Collective::placing
    within_bucket,
    within_wire,
    bucket_to_host,   // its norm, which the host reads back
    bucket_to_share,  // of the parameters one after the other, a rank's share
    // Subject: parameters that move together, an index into ShardedProgram::moves. The buffers that
    // an all-gather fills and a reduce-scatter reads have a part for each rank.
    shard_to_gathered,
    gathered_to_unsharded,
    larger_shard_to_gathered,  // among the fewer ranks that keep larger shards
    gathered_to_unsharded_fewer,
    gradients_to_reduced,
    reduced_to_shard,  // of the gradient
    reduced_to_kept,   // until the micro-step that all-reduces
    kept_to_reduced,
};

enum class Copying : std::uint8_t {
    plain,
    averaging,  // divides by the number of ranks, so that sums become means
    adding      // to the contents
};

struct Copy {
    CopyRoute route = CopyRoute::none;
    Copying how = Copying::plain;
    bool operator==(const Copy&) const = default;
};

// A launch in its place waits for everything issued before it on the compute stream; before_all
// waits only for everything before the program.
constexpr std::int32_t in_its_place = -1;
constexpr std::int32_t before_all = -2;

// The part of the step an instruction's time counts to.
enum class Phase : std::uint8_t { forward, backward, optimizer };

struct Instruction {
    InstructionKind kind = InstructionKind::forward;
    Phase phase = Phase::forward;
    Copy copy = {};  // of a copy
    std::int32_t subject = 0;
    Duration host{0};  // host time to issue it
    Duration device{
        0};  // undisturbed time on its stream; zero for a wait, and a launch in its place
    // Part of the call that finishes synchronisation, after backward and its hooks: DDP's finalize,
    // CS336's finish_gradient_synchronization.
    bool finishing = false;
    bool host_waits = false;  // the host issues the next one when this one has run
    // An operation beside the compute stream does not count as computing: no
    // interference, and no time in a phase except through waits for it.
    StreamOrder order = {};
    // A launch ahead of its place sends from another stream, which waits for that earlier
    // instruction in its place, or for before_all, and then takes `device` to prepare.
    std::int32_t launched_after = in_its_place;
    bool operator==(const Instruction&) const = default;

    [[nodiscard]] constexpr bool is_launched_ahead() const {
        return launched_after != in_its_place;
    }
};

// A sweep writes and reads millions of them.
static_assert(std::is_trivially_copyable_v<Instruction> && sizeof(Instruction) == 32);

// --- the tensors that a collective moves ---

struct BuffersOf {
    std::int32_t group = 0;  // of Workload::buffer_groups
    bool operator==(const BuffersOf&) const = default;
};
struct GradientsOf {
    std::int32_t bucket = 0;
    bool on_wire = false;  // what the comm hook made of them
    Bytes from = {};       // where a piece begins in the bucket
    bool operator==(const GradientsOf&) const = default;
};
// An int32 for each parameter: how many ranks use it.
struct UnusedMap {
    bool operator==(const UnusedMap&) const = default;
};
// BatchNorm's statistics of an operation of Workload::forward or Workload::backward.
struct StatisticsOf {
    Phase phase = Phase::forward;
    std::int32_t operation = 0;
    DType dtype = DType::float32;  // of what travels
    bool operator==(const StatisticsOf&) const = default;
};
// Parameters that an optimizer updated in parts.
struct UpdatedParameters {
    bool operator==(const UpdatedParameters&) const = default;
};
// Sharded parameters, or their gradients.
struct ShardsOf {
    std::int32_t move = 0;    // of ShardedProgram::moves
    std::int32_t group = -1;  // of ShardPlan::groups, which needs them; -1: no single one
    bool operator==(const ShardsOf&) const = default;
};
// A few numbers about tensors, which each rank has a part of.
enum class SharedNumbers : std::uint8_t { gradient_norm, float8_scales };
struct NumbersOf {
    SharedNumbers what = SharedNumbers::gradient_norm;
    bool operator==(const NumbersOf&) const = default;
};
using Cargo = std::variant<UnusedMap, BuffersOf, GradientsOf, StatisticsOf, UpdatedParameters,
                           ShardsOf, NumbersOf>;

// The ranks that a collective connects, by the communicator they have for it.
enum class Among : std::uint8_t {
    all,
    sharing,  // that share parameters
    fewer,    // of those, that keep larger shards after forward
    replicas  // that hold the same shards
};

// Collectives on one stream follow one another. The second stream is another communicator with
// links of its own: neither slows the other.
enum class CommunicationStream : std::uint8_t { first, second };
constexpr std::size_t communication_streams = 2;

// The ranks of a collective, and their link: StepInput's, or those of replicas.
struct CollectiveRanks {
    Among communicator = Among::all;
    std::optional<std::int64_t> ranks = {};  // only so many of them, that keep more than a shard
    bool operator==(const CollectiveRanks&) const = default;

    [[nodiscard]] bool joins_replicas() const { return communicator == Among::replicas; }
    [[nodiscard]] bool are_all() const { return !joins_replicas() && !ranks; }
};

struct Collective {
    CollectiveKind kind = CollectiveKind::all_reduce;
    Cargo cargo = {};
    Bytes bytes;                     // after the comm hook
    Duration time{0};                // alone on the link
    Interference interference = {};  // while it is in flight
    // From its end until its result is in place, on a stream of its own. A wait includes it; the
    // next collective does not.
    Duration placing{0};
    // Its stream, and the collective on the other stream that it waits for.
    CommunicationStream stream = CommunicationStream::first;
    std::optional<std::int32_t> follows = {};
    CollectiveRanks among = {};
    Duration copying{0};    // the part of `time` that copies on its stream take, not the link
    bool averages = false;  // the sum, as no copy divides
    // Copies of its cargo that are part of it: before it is sent, and once it is there.
    Copy before = {};
    Copy after = {};
    bool operator==(const Collective&) const = default;

    [[nodiscard]] std::optional<std::int32_t> bucket() const {
        const auto* gradients = std::get_if<GradientsOf>(&cargo);
        return gradients != nullptr ? std::optional(gradients->bucket) : std::nullopt;
    }
    [[nodiscard]] bool has_bucket() const { return std::holds_alternative<GradientsOf>(cargo); }
    // Null: it moves others.
    [[nodiscard]] const StatisticsOf* statistics() const {
        return std::get_if<StatisticsOf>(&cargo);
    }
    [[nodiscard]] const ShardsOf* shards() const { return std::get_if<ShardsOf>(&cargo); }
};

struct Program {
    std::vector<Instruction> instructions;
    std::vector<Collective> collectives;  // in the order they are issued
    bool host_is_device = false;
    bool operator==(const Program&) const = default;
};

// clip_grad_norm_ between backward and the optimizer: a foreach norm over the gradients that a rank
// holds, one all-reduce of a number where each rank holds a part of them, and a foreach
// multiplication. Gradients that every rank has whole need no all-reduce; nor do hsdp's replicas.
struct Clipping {
    Duration norm{0};  // on the device
    Duration norm_launch{0};
    Duration multiplication{0};
    Duration multiplication_launch{0};
    bool host_waits = false;  // for the norm: it is logged, or error_if_nonfinite
    bool operator==(const Clipping&) const = default;
};

struct StepSettings {
    std::int64_t accumulation = 1;  // micro-steps; only the last one reduces gradients (no_sync)
    Duration optimizer{0};
    // Host time to launch the optimizer, spread evenly over one update per gradient.
    Duration optimizer_launch{0};
    std::vector<TimedOperation> optimizer_operations = {};  // replace both if not empty
    std::optional<Clipping> clipping = {};
    // Host time to launch the whole step as one CUDA graph: the first instruction's; the others are
    // free. Empty: each instruction is issued on its own.
    std::optional<Duration> graph_launch = {};
    // The host reads back a loss or a scale in every step before it continues.
    bool sync_each_step = false;
    // CUDA_DEVICE_MAX_CONNECTIONS=1: the device takes all streams' work in the order it was issued
    // in, and nothing begins before all that was issued earlier has begun.
    bool one_hardware_queue = false;
    std::int64_t launch_queue = 1024;  // the host's largest lead over the device, in launches
    bool operator==(const StepSettings&) const = default;
};

// Equal ranks that compute slower than others: forward, backward and optimizer take this many times
// as long, copies and launches do not.
struct RankClass {
    std::int64_t ranks = 1;
    double compute_slowdown = 1;
    bool operator==(const RankClass&) const = default;
};

// Ranks with the same shards, for hsdp's all-reduces.
struct Replicas {
    RankGroup group;
    LinkParameters link;
    bool operator==(const Replicas&) const = default;
};

// A step without its bucket plan. In a sharded step, `group` and `link` are of the ranks that share
// parameters.
struct StepInput {
    Workload workload;
    RankGroup group;
    LinkParameters link;
    std::optional<BytesPerSecond> copy_bandwidth;  // payload; none: copies and casts cost nothing
    Duration copy_fixed{0};                        // added to each copy or cast
    StepSettings step;
    std::optional<Variation> variation;
    std::vector<RankClass> classes = {};  // together all ranks; empty: equal ranks
    Replicas replicas = {};               // one rank: none
    // The device's memory beyond the need of training; none: not known.
    std::optional<Bytes> spare_memory = {};
    bool operator==(const StepInput&) const = default;

    [[nodiscard]] std::int64_t all_ranks() const { return group.ranks * replicas.group.ranks; }
    [[nodiscard]] RankGroup group_of(const CollectiveRanks& among) const;
    [[nodiscard]] const LinkParameters& link_of(const CollectiveRanks& among) const {
        return among.joins_replicas() ? replicas.link : link;
    }
};

// The dtype that a bucket travels in: a hook casts those wider than 16 bits.
constexpr DType wire_dtype(CommHook hook, DType dtype) {
    return hook == CommHook::none || element_size(dtype) <= element_size(DType::float16) ? dtype
           : hook == CommHook::bf16 ? DType::bfloat16
                                    : DType::float16;
}
inline bool hook_casts(const SyncSettings& sync, DType dtype) {
    return wire_dtype(sync.comm_hook, dtype) != dtype;
}
// The size of elements of `dtype` held as another.
inline Bytes size_as(Bytes size, DType dtype, DType other) {
    return Bytes{size.count / element_size(dtype).count * element_size(other).count};
}
inline Bytes bytes_on_wire(const SyncSettings& sync, const Bucket& bucket) {
    return hook_casts(sync, bucket.dtype) ? size_as(bucket.size, bucket.dtype, DType::float16)
           : sync.framework.reduced_as
               ? size_as(bucket.size, bucket.dtype, *sync.framework.reduced_as)
               : bucket.size;
}

// Whether any operation runs beside the compute stream.
bool uses_side_streams(const StepInput& input);

struct StepLoop {
    bool starts_idle = true;  // host and device are idle when a step begins
    std::int64_t launch_queue = 1024;
    bool one_launch = false;    // the step is one CUDA graph
    bool host_waits = false;    // for the device, within the step
    bool side_streams = false;  // their remaining work continues into the next step
    bool operator==(const StepLoop&) const = default;
};

// Steps start idle where the host is the device, and where the framework's host waits for gradients
// (Horovod's synchronize()): only the short optimizer remains. The host then waits for side
// streams, too.
StepLoop loop_of(const StepInput& input, const SyncSettings& sync);

// The settings of the parts before the last backward, without any bucket.
SyncSettings without_buckets_before(SyncSettings sync);

// Whether a collective is launched ahead of its place, or uses the second stream.
bool communicates_beside(const Program& program);

// The step with free communication: collectives take no time and disturb nothing; issuing and
// copying keep their costs.
Program with_free_communication(Program program);

// The step on a rank that computes slower.
Program with_slower_computing(Program program, double slowdown);

// The slowest class's computing; 1 where there are none.
double largest_slowdown(const std::vector<RankClass>& classes);
Program on_slowest_rank(Program program, const std::vector<RankClass>& classes);

// `program` slowed down for each class; the program itself without classes.
std::vector<Program> programs_of_classes(const Program& program,
                                         const std::vector<RankClass>& classes);

// Sets the costs of collectives on other links or among other ranks, which change nothing else.
void set_collective_costs(Program& program, const StepInput& input);

// The step with a host that issues everything in no time.
Program with_free_launches(Program program);

// The step with a host that never waits for the device by an instruction.
Program without_host_waits(Program program);

// The step with side streams that take host time only, and that nothing waits for.
Program without_side_streams(Program program);

// An upper bound in seconds: everything one after another, slowed down.
double longest_possible_seconds(const Program& program);

}  // namespace bucketwise
