// The output of nccl-tests or rccl-tests: text in logs of all kinds, or the JSON of -J.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "import/nccl_tests/nccl_tests_row.h"
#include "import/source/byte_source.h"
#include "sim/link/network/algorithm.h"

namespace bucketwise {

// A line of the device list.
struct NcclTestsDevice {
    std::int64_t rank = 0;
    std::int64_t group = 0;  // communicator, where the ranks were split
    std::string host = {};
    std::string name = {};
    bool operator==(const NcclTestsDevice&) const = default;
};

// One run of a program: a table and the lines before it.
struct NcclTestsRun {
    std::int64_t line = 0;        // of its begin; in JSON the number of the document
    std::string collective = {};  // all_reduce_perf, ...; empty: unknown
    CollectiveKind kind = CollectiveKind::all_reduce;  // set on import
    std::int64_t gpus_per_process = 0;                 // nThread x nGpus; 0: unknown
    std::vector<NcclTestsDevice> devices = {};
    std::int64_t ranks = 0;       // by the device list or NCCL's own lines; 0: unknown
    std::string ranks_from = {};  // their source
    std::int64_t nodes = 0;       // 0: unknown
    std::int64_t listed = 0;      // ranks in the device list, which may be cut off
    bool nodes_listed = false;    // nodes are from the device list, not from NCCL's own lines
    std::string library = {};     // such as "NCCL 2.29.2"
    std::string date = {};        // of the run, as printed; empty: it was not
    NcclTestsColumns columns = {};
    std::vector<NcclTestsRow> rows = {};
    bool operator==(const NcclTestsRun&) const = default;
};

// Lines of one kind that were skipped.
struct SkippedLines {
    std::string what;
    std::int64_t count = 0;
    std::int64_t first_line = 0;
    bool operator==(const SkippedLines&) const = default;
};

struct NcclTestsLog {
    std::string file;
    bool json = false;
    std::vector<NcclTestsRun> runs = {};
    std::vector<SkippedLines> skipped = {};
    bool operator==(const NcclTestsLog&) const = default;

    // Counts one line, or `count` of them.
    void skip(const std::string& what, std::int64_t line, std::int64_t count = 1);
    // Whether the row has a usable half. Counts an unusable row, or half of one, as skipped:
    // `what`.
    bool is_usable(const NcclTestsRow& row, const std::string& what, std::int64_t line);
};

// Takes memory for the rows only, at most 100,000. Throws InputError, which names `file`.
NcclTestsLog read_nccl_tests_log(const ByteSource& source, const std::string& file);

// Adds the runs of `text` to a log whose `file` is set: the JSON documents of nccl-tests -J, one
// after another, the last maybe cut off. Ignores unknown keys, and never reads `env`. Throws
// InputError for other JSON.
void read_nccl_tests_json(const std::string& text, NcclTestsLog& log);

// "2.29.2" of 22902, NCCL's number of its version; of two digits less before 2.9.
std::string nccl_version_text(std::int64_t code);

}  // namespace bucketwise
