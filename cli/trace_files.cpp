#include "cli/trace_files.h"

#include <atomic>
#include <cstdint>

#include "cli/shell/files.h"
#include "cli/shell/progress.h"
#include "cli/shell/read_files.h"
#include "import/kineto/kineto_trace.h"
#include "import/nsys/export_database.h"
#include "import/source/inflate.h"
#include "import/source/read_ahead.h"

namespace bucketwise {

// What a file's thread has read of it is shown by the one that asks.
TracedRank read_kineto_file(const std::string& file) {
    const std::uint64_t size = size_of_file(file);
    std::atomic<std::uint64_t> read = 0;
    const ByteSource counted = [&read, blocks = blocks_of_file(file)](char* buffer,
                                                                      std::size_t room) {
        const std::size_t count = blocks(buffer, room);
        read += count;
        return count;
    };
    // Who writes to a pipe may never go on, so a thread could not be told to end.
    const ByteSource unpacked = inflated(counted, file);
    const ByteSource ahead = size > 0 ? read_ahead(unpacked) : unpacked;
    ReadingLine line(file, size);
    return traced_rank(read_kineto_trace(
        [&](char* buffer, std::size_t room) {
            line(read);
            return ahead(buffer, room);
        },
        file));
}

std::vector<TracedRank> read_nsys_file(const std::string& file, const NsysRequest& request) {
    ExportDatabase database = ExportDatabase::of_file(file);
    note_read(file);
    PercentLine line("reading " + file);
    database.report_to([&line](std::int64_t done, std::int64_t all) {
        line(all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0);
    });
    std::vector<TracedRank> ranks;
    for (const ProfilerTrace& trace : read_nsys_export(database, request)) {
        ranks.push_back(traced_rank(trace));
    }
    return ranks;
}

}  // namespace bucketwise
