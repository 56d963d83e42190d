// Measurement records: what real ranks write, one JSON object per line, and what calibration
// reads. scenarios/measurement.schema.json says the same as a schema.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hw/record/environment.h"
#include "sim/base/dtype.h"
#include "sim/base/json.h"
#include "sim/base/units.h"
#include "sim/link/network/algorithm.h"
#include "sim/sharding/sharding.h"

namespace bucketwise {

// The carrier of messages.
struct Transport {
    std::string backend;         // "gloo" or "nccl"
    std::string algorithm;       // of the all-reduce, as a link file names it: "ring" or "direct"
    std::string implementation;  // "library" or "bucketwise"
    std::int64_t ranks = 1;
    bool shared_gpu = false;  // several ranks on one GPU: never an interconnect
    // Most thread blocks (CTAs) of one collective; none: the library's choice.
    std::optional<std::int64_t> ctas = {};
    bool operator==(const Transport&) const = default;

    // Whether ranks compute by themselves, whatever device the scenario names.
    [[nodiscard]] bool computes_on_host() const { return backend == "gloo"; }
};

// The first line of a file, and the first of each resumption.
struct EnvironmentRecord {
    std::string version;  // of this program
    std::string date;     // UTC, ISO 8601
    std::vector<std::string> command;
    Environment machine;
    std::string libraries;  // of the backend and the kernels, with versions
    Transport transport;
    std::int64_t hosts = 1;
    std::string link_rate;  // such as "1gbit"; empty: not limited
    std::uint64_t seed = 0;
    std::int64_t rounds = 0;
    std::vector<std::string> gradients;            // names, in parameter order
    std::vector<std::string> forward_operations;   // names, in the order they run
    std::vector<std::string> backward_operations;  // the same
    std::string scenario;  // the whole document, as JSON text; empty: none was replayed
    std::string gpu = {};  // name, memory, multiprocessors, driver; empty: none was used
    bool operator==(const EnvironmentRecord&) const = default;
};

// Such as "NVIDIA H200, ..., shared by all ranks" or "AMD EPYC, 2 cores".
std::string hardware_of(const EnvironmentRecord& environment);

// Isolated all-reduces, all-gathers, kind "allgather", or reduce-scatters, kind "reducescatter".
// `size` is that of all ranks' parts together; an all-gather's result is equal to the sent parts,
// or nothing is recorded.
struct CollectiveRecord {
    CollectiveKind kind = CollectiveKind::all_reduce;
    Transport transport;
    Bytes size;
    DType dtype = DType::float32;
    std::int64_t round = 0;
    std::vector<double> samples_us;      // of the slowest rank, one per repetition
    double largest_difference = 0;       // of an element's mean over the ranks from the exact one
    std::int64_t peak_memory_bytes = 0;  // the most that any rank has had in memory so far
    // Host time to issue one, one per repetition; empty: the host runs it itself.
    std::vector<double> issue_us = {};
    // The rank's memory before its first message of this kind; none: not measured.
    std::optional<std::int64_t> memory_before_bytes = {};
    bool operator==(const CollectiveRecord&) const = default;
};

// As records name a kind: "allreduce". Precondition (asserted): none of broadcasts.
std::string_view record_name(CollectiveKind kind);

// A step of one rank without communication.
struct ComputeRecord {
    std::string backend;
    std::int64_t ranks = 1;
    std::int64_t rank = 0;
    std::int64_t round = 0;
    std::vector<double> samples_us;  // one: the step
    double forward_us = 0;
    double backward_us = 0;
    double optimizer_us = 0;
    // The same step with every copy, cast and launch of the scenario's strategy at its default cap,
    // and collectives that do nothing.
    double copying_step_us = 0;
    std::vector<double> forward_operations_us;   // of the last micro-step
    std::vector<double> backward_operations_us;  // the same
    std::vector<double> ready_us;  // by gradient, from the start of the last micro-step's backward
    bool shared_gpu = false;       // as the transport's
    // Host time to launch each operation of the last micro-step; empty: host is device.
    std::vector<double> forward_launches_us = {};
    std::vector<double> backward_launches_us = {};
    // Device time of all copies and casts of the copying step; none: told from it only.
    std::optional<double> copies_us = {};
    // Host time to launch the whole step as one CUDA graph; none: it was not.
    std::optional<double> graph_launch_us = {};
    bool operator==(const ComputeRecord&) const = default;
};

struct ContentionRecord {
    Transport transport;
    CollectiveKind collective = CollectiveKind::all_reduce;  // which `allreduce_...` times are of
    Bytes size;
    DType dtype = DType::float32;
    std::int64_t round = 0;
    std::vector<double> allreduce_alone_us;  // of the slowest rank, one per repetition
    std::vector<double> allreduce_disturbed_us;
    // By rank: the operations that ran while all-reduces did, and the same ones alone. Both zero:
    // none of that rank's counted, so it says nothing.
    std::vector<double> compute_alone_us;
    std::vector<double> compute_disturbed_us;
    // By rank: of these operations, those that are matrix products; empty: not told apart.
    std::vector<double> products_alone_us = {};
    std::vector<double> products_disturbed_us = {};
    bool operator==(const ContentionRecord&) const = default;
};

struct RankStep {
    double step_us = 0;
    double forward_us = 0;
    double backward_us = 0;
    double optimizer_us = 0;
    double waiting_us = 0;               // of these, blocked until a collective had ended
    std::int64_t peak_memory_bytes = 0;  // of the process, so far
    bool operator==(const RankStep&) const = default;
};

struct StepRecord {
    Transport transport;
    std::string strategy;
    std::optional<Bytes> cap;         // none: the strategy has no cap to vary
    bool is_default = false;          // the framework's default, not a cap that was named
    std::vector<Bytes> bucket_bytes;  // in launch order; empty where parameters are sharded
    std::int64_t round = 0;
    std::vector<double> samples_us;             // one: the step of the slowest rank
    std::vector<double> free_communication_us;  // one: the same with collectives that do nothing
    double exposed_communication_us = 0;        // the difference of the two
    std::vector<RankStep> by_rank;
    std::vector<double> collective_begin_us;  // of rank 0, from the start of the step
    std::vector<double> collective_end_us;
    // When the last rank began it, from the start of that rank's step: before that, rank 0 only
    // waits for its peers.
    std::vector<double> collective_last_begin_us;
    double largest_difference = 0;  // of any gradient's element from the exact mean
    // As a scenario says it, which leaves the PyTorch version aside; none: nothing is sharded.
    std::optional<ShardingRequest> sharding = {};
    bool operator==(const StepRecord&) const = default;
};

using Measurement =
    std::variant<EnvironmentRecord, CollectiveRecord, ComputeRecord, ContentionRecord, StepRecord>;

Json to_json(const Measurement& record);

// `document` is line `line` (from 1) of `file`. Throws InputError.
Measurement read_measurement(const Json& document, const std::string& file, std::int64_t line);

}  // namespace bucketwise
