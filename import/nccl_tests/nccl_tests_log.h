// What nccl-tests or rccl-tests wrote: text as it stands in logs of all kinds, or the JSON of -J.
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

// One program that ran once: a table, and what was said before it.
struct NcclTestsRun {
    std::int64_t line = 0;        // where it begins; of JSON the number of the document
    std::string collective = {};  // all_reduce_perf, ...; empty: the log does not say
    CollectiveKind kind = CollectiveKind::all_reduce;  // that is made of it, once it is imported
    std::int64_t gpus_per_process = 0;                 // nThread x nGpus; 0: not said
    std::vector<NcclTestsDevice> devices = {};
    std::int64_t ranks = 0;       // as the device list or NCCL itself says; 0: neither does
    std::string ranks_from = {};  // which of them did
    std::int64_t nodes = 0;       // likewise
    std::int64_t listed = 0;      // ranks that the device list has, which may be cut off
    bool nodes_listed = false;    // by their names in the device list, not by NCCL itself
    std::string library = {};     // such as "NCCL 2.29.2"
    std::string date = {};        // of the run, as it was printed; empty: it was not
    NcclTestsColumns columns = {};
    std::vector<NcclTestsRow> rows = {};
    bool operator==(const NcclTestsRun&) const = default;
};

// Lines of one kind that are not taken.
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
    // Whether something of a row can be used. Counts it, or half of it, as skipped where that
    // cannot: `what` says why.
    bool is_usable(const NcclTestsRow& row, const std::string& what, std::int64_t line);
};

// In memory that does not grow with the log but for its rows, of which there may be 100,000. Throws
// InputError, which names `file`.
NcclTestsLog read_nccl_tests_log(const ByteSource& source, const std::string& file);

// Adds the runs of `text`, the JSON that nccl-tests writes with -J, to a log whose `file` is set:
// one document after another, of which the last may be cut off. Of a document only what is named
// here is looked at; its `env` never is. Throws InputError for what is no JSON of nccl-tests.
void read_nccl_tests_json(const std::string& text, NcclTestsLog& log);

// "2.29.2" of 22902, NCCL's number of its version; of two digits less before 2.9.
std::string nccl_version_text(std::int64_t code);

}  // namespace bucketwise
