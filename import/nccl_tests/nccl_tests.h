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

// The user's statements about the logs.
struct NcclTestsOptions {
    std::vector<std::int64_t> ranks = {};  // of each log, or one for all; empty: as logged
    std::optional<std::int64_t> ranks_per_node = {};
    std::optional<DType> dtype = {};  // default: float32 where there is any
    bool operator==(const NcclTestsOptions&) const = default;
};

struct ImportedNcclTests {
    // The caller sets version and command of the environment; its date is a log's, or empty.
    EnvironmentRecord environment;
    std::vector<CollectiveRecord> collectives;
    std::string report;  // findings, assumptions and omissions, per log
    bool operator==(const ImportedNcclTests&) const = default;
};

// Makes a record of each row that is a sum of one dtype, or an all-gather of one; its samples are
// the times out of place and in place, without those of wrong results. Throws InputError where a
// log has no such row, where the number of ranks is unknown or contradictory, and for different
// GPUs.
ImportedNcclTests import_nccl_tests(std::vector<NcclTestsLog> logs,
                                    const NcclTestsOptions& options);

}  // namespace bucketwise
