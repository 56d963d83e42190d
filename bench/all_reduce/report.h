// The tables that `bucketwise bench allreduce` and its like print.
#pragma once

#include <string>
#include <vector>

#include "bench/all_reduce/options.h"
#include "bench/all_reduce/rows.h"
#include "hw/record/measurement.h"

namespace bucketwise {

// What is not in the rows.
struct AllReduceReport {
    CollectiveKind kind = CollectiveKind::all_reduce;
    std::vector<std::string> command;
    const EnvironmentRecord* environment = nullptr;  // nothing: none was measured
    std::vector<std::string> links = {};             // simulated with, one sentence each
    std::vector<std::string> notes = {};
};

// Columns of what no row has are left out. nccl-tests' columns hold what was measured only.
std::string bench_allreduce_report(AllReduceReport report, std::vector<AllReduceRow> rows,
                                   BenchFormat format);

// All that is printed at the end: what was measured, beside what was asked to be simulated and what
// was published.
std::string bench_allreduce_result(const BenchAllReduceOptions& options,
                                   const std::vector<Measurement>& records);

// Bytes of the message per second, and 2(p-1)/p of it, or half of that, which crosses each rank's
// link in a ring and in a direct exchange, as nccl-tests counts its bus bandwidth. Precondition: it
// was measured.
double algorithm_gb_per_s(const AllReduceRow& row);
double bus_gb_per_s(const AllReduceRow& row);

std::string nccl_tests_report(const EnvironmentRecord* environment,
                              const std::vector<AllReduceRow>& rows);

}  // namespace bucketwise
