// Rows of `bucketwise bench allreduce`, `allgather` and `reducescatter`: measured, simulated and
// published, by algorithm, size and number of ranks.
//
// A row's place is its cells world_size, bytes (of the whole buffer on one rank) and algorithm (by
// its name in --algorithms). Cells end in their unit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "hw/rank/communicator.h"
#include "hw/record/measurement.h"
#include "sim/base/dtype.h"
#include "sim/base/names.h"
#include "sim/base/units.h"
#include "sim/link/link.h"

namespace bucketwise {

// With the cells of its place and message.
BenchRow row_at(std::int64_t ranks, Bytes size, const std::string& algorithm, DType dtype);
bool is_same_place(const BenchRow& one, const BenchRow& other);

// The bytes of a measured row's message per second. The bus bandwidth of nccl-tests is bus_factor()
// times as much. 0: it took no time.
double gb_per_s_of(const BenchRow& row);

constexpr double in_kib(std::int64_t bytes) {
    return static_cast<double>(bytes) / 1024;
}

// --- published ---

// Reads a CSV file with the columns of --format csv: its rows of `backend` and `dtype`. Columns
// std_s, max_memory_kib, difference, backend and dtype may be missing, and tensor_elements may
// stand for bytes. The cells are published_time_s and the like. Throws InputError that names the
// line, and for a file without rows.
BenchRows read_published_all_reduces(const std::string& path, DType dtype,
                                     const std::string& backend);

// --- simulated: time from a link; of all-reduces memory and rounding from the algorithm's working

struct SimulatedAlgorithm {
    std::string name;  // by its name in --algorithms
    LinkParameters link;
    bool over_gloo = false;  // memory and rounding are known
};

struct SimulationRequest {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::vector<SimulatedAlgorithm> algorithms;
    // Memory of a rank without messages and their sums, where the row does not have it measured.
    std::optional<Bytes> process_memory = {};
};

// The links of --link, one for all `algorithms` or one for each. With one for all, "ring", "direct"
// and the like replace its algorithm; "library" leaves it. Throws InputError.
std::vector<SimulatedAlgorithm> read_simulated_algorithms(
    const std::string& links, const std::vector<std::string>& algorithms);

// Adds simulated_time_s, of one collective alone; and, where they are known,
// simulated_added_memory_kib (message and scratch), simulated_memory_kib (with the process) and
// simulated_difference. Nothing where the request lacks the algorithm.
void add_simulated(const SimulationRequest& request, DType dtype, BenchRow& row);

// A sentence per range of sizes: the number of ranks, up to 4096, from which on the other one of
// ring and direct is the faster than on two.
std::vector<std::string> crossovers(const SimulationRequest& request,
                                    const std::vector<Bytes>& sizes);

// --- the tables ---

enum class BenchFormat : std::uint8_t {
    text,
    csv,  // one row per ranks, size and algorithm
    json,
    nccl_tests  // the output of all_reduce_perf and its like, a block per ranks and algorithm
};

template <>
inline constexpr auto names_of<BenchFormat> = names("text", "csv", "json", "nccl-tests");

struct AllReduceOptions : BenchOptions {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::optional<std::vector<std::string>> algorithms;
    std::optional<std::vector<std::int64_t>> typed_ranks;
    std::vector<Bytes> sizes;
    DType dtype = DType::float32;
    std::optional<std::int64_t> iterations;  // none: by size
    BenchFormat table = BenchFormat::text;
    std::string output;  // empty: records are not kept
    std::string links;
    std::vector<std::int64_t> simulated_ranks;
    std::optional<std::int64_t> processors;
    std::optional<Bytes> process_memory;

    // Found from those, when `sizes` and `simulated_ranks` rise, and the latter hold `ranks`.
    std::vector<AllReduceImplementation> implementations;  // to measure
    std::vector<std::int64_t> ranks;                       // to measure; rising
    std::optional<SimulationRequest> simulation;           // in the process that prints
    BenchRows published_rows;
    std::vector<RankJob> jobs;
};

std::vector<OptionText> all_reduce_rows(AllReduceOptions& options);

// Finds the rows to measure, to simulate and to compare with. Throws InputError and UsageError.
void choose_rows(AllReduceOptions& options);

// The largest part of `size` that is whole elements for each rank, where the kind has parts.
Bytes whole_parts(const AllReduceOptions& options, Bytes size, std::int64_t ranks);

// `record`: every round of a message in one.
BenchRow measured_row(const CollectiveRecord& record);

// Prints the table of the measured rows, beside the requested simulation and the published rows.
void print_all_reduces(const AllReduceOptions& options, const EnvironmentRecord* environment,
                       BenchRows rows);

// The measured rows as nccl-tests prints them.
std::string nccl_tests_report(CollectiveKind kind, const EnvironmentRecord& environment,
                              const BenchRows& rows);

}  // namespace bucketwise
