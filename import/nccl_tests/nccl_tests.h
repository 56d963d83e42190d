// nccl-tests' all-reduces, all-gathers and reduce-scatters as measurement records, which
// `calibrate` reads like any other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hw/record/measurement.h"
#include "import/nccl_tests/nccl_tests_log.h"
#include "sim/base/dtype.h"

namespace bucketwise {

// What a user says beside the logs.
struct NcclTestsOptions {
    std::vector<std::int64_t> ranks = {};  // of each log, or one for all; empty: the logs tell
    std::optional<std::int64_t> ranks_per_node = {};
    std::optional<DType> dtype = {};  // none: float32 where there is any, else the most frequent
    bool operator==(const NcclTestsOptions&) const = default;
};

struct ImportedNcclTests {
    // An environment, then collectives in the order of the logs. The environment's version and
    // command are the caller's to set; its date is that of a log, or empty.
    EnvironmentRecord environment;
    std::vector<AllReduceRecord> all_reduces;
    std::vector<CollectiveRecord> collectives;  // of other kinds
    std::string report;                         // what was found, assumed and left out, per log
    bool operator==(const ImportedNcclTests&) const = default;
};

// A record for each row that is a sum of one dtype, or a gathering of one, with its times out of
// place and in place as samples; none of them where its result was wrong. Throws InputError where a
// log has no such row, where the number of ranks cannot be told or is told differently, and where
// logs are not of the same GPU.
ImportedNcclTests import_nccl_tests(std::vector<NcclTestsLog> logs,
                                    const NcclTestsOptions& options);

}  // namespace bucketwise
