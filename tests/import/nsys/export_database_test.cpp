// Databases as they should not be: refused by saying what and where, whatever is in them.
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <unistd.h>

#include "import/nsys/nsys_trace.h"
#include "import/replay/trace_import.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/nsys/opened_export.h"
#include "tests/import/nsys/written_export.h"
#include "tests/import/replay/written_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

template <typename Open>
std::string outcome(Open open) {
    try {
        std::vector<TracedRank> ranks;
        ExportDatabase database = open();
        for (const ProfilerTrace& trace : read_nsys_export(database, {})) {
            ranks.push_back(traced_rank(trace));
        }
        import_trace(ranks, {});
        return "imported";
    } catch (const InputError& error) {
        return error.what();
    }
}

std::string outcome_of(const std::string& bytes) {
    return outcome([&] { return opened_export(bytes, "e.sqlite"); });
}

std::string outcome_of_file(const std::string& file) {
    return outcome([&] { return ExportDatabase::of_file(file); });
}

void write(const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
}

class Folder {
  public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "nsys_XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

// A sound export, and what was done to it.
std::string changed(const std::string& statements) {
    WrittenExport file;
    file.add(SyntheticTrace({}).events(), 1000, 0);
    file.database().run(statements);
    return file.bytes();
}

}  // namespace

TEST_CASE("what is no database, or no export, is said to be none", "[nsys]") {
    const std::string expected =
        "e.sqlite: expected a database of Nsight Systems (nsys export --type sqlite REPORT), got ";
    CHECK(outcome_of("{\"traceEvents\": []}") == expected + "file is not a database");
    CHECK(outcome_of(std::string(5000, '\xff')) == expected + "file is not a database");
    CHECK(contains(outcome_of(""), "got a database without tables"));
    WrittenDatabase foreign;
    foreign.run("CREATE TABLE a (b); CREATE TABLE c (d); CREATE VIEW e AS SELECT * FROM a;");
    CHECK(contains(outcome_of(foreign.bytes()),
                   "expected an export of Nsight Systems with kernels "
                   "(CUPTI_ACTIVITY_KIND_KERNEL: nsys profile -t cuda,nvtx "));
    CHECK(contains(outcome_of(foreign.bytes()), "got a database of 2 tables: a, c"));
    CHECK(contains(outcome_of(changed("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")),
                   "e.sqlite: /CUPTI_ACTIVITY_KIND_KERNEL: expected kernels"));
    CHECK(contains(outcome_of(changed("DROP TABLE StringIds")), "expected "));
    CHECK(contains(outcome_of(changed("DROP TABLE NVTX_EVENTS")), "expected "));
    CHECK(contains(outcome_of(changed("DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME")), "expected "));
}

TEST_CASE("files are opened for reading alone, and only when they are whole", "[nsys]") {
    const Folder folder;
    const std::string file = folder.file("a report%20?mode=rw#1.sqlite");
    write(file, changed(""));
    CHECK(outcome_of_file(file) == "imported");
    CHECK(std::distance(std::filesystem::directory_iterator(folder.file("")), {}) == 1);
    write(file + "-wal", "");
    CHECK(outcome_of_file(file) == "imported");
    write(file + "-wal", "pages");
    CHECK(contains(outcome_of_file(file), "expected an export that nobody is writing"));
    write(file + "-wal", "");
    write(file + "-journal", "pages");
    CHECK(contains(outcome_of_file(file), "-journal beside it"));
    CHECK(contains(outcome_of_file(folder.file("none")), "got no such file"));
    CHECK(contains(outcome_of_file(folder.file("")), "got no regular file"));
    // A header that says there may be a log of changes.
    std::string logged = changed("");
    logged[18] = logged[19] = 2;
    write(folder.file("wal.sqlite"), logged);
    CHECK(outcome_of_file(folder.file("wal.sqlite")) == "imported");
}

TEST_CASE("rows that are not as they should be", "[nsys]") {
    CHECK(contains(outcome_of(changed("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'")),
                   "e.sqlite: /CUPTI_ACTIVITY_KIND_KERNEL/0/start: expected a whole number, got "
                   "\"soon\""));
    CHECK(contains(outcome_of(changed("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = NULL")),
                   "e.sqlite: /CUPTI_ACTIVITY_KIND_RUNTIME/0/end: expected a whole number, got "
                   "none"));
    for (const char* const time :
         {"9223372036854775807", "-9223372036854775808", "4000000000000000000", "1e300", "9e15"}) {
        const std::string set = std::string("SET start = ") + time + " WHERE rowid = 7";
        CHECK(contains(outcome_of(changed("UPDATE NVTX_EVENTS " + set)), "/start: expected "));
        CHECK(contains(outcome_of(changed("UPDATE CUPTI_ACTIVITY_KIND_KERNEL " + set)),
                       "/start: expected "));
    }
    // Marks, and ranges that were open at the end, have no end.
    CHECK(outcome_of(changed("INSERT INTO NVTX_EVENTS (start, eventType, text) VALUES "
                             "(5, 59, 'open'), (5, 34, 'mark'), (5, 75, 'NCCL')")) == "imported");
    // All that is missing here is not needed.
    CHECK(outcome_of(changed("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET shortName = 'x', "
                             "contextId = 1.5, deviceId = NULL, streamId = streamId + 0.0")) ==
          "imported");
    CHECK(outcome_of(changed("UPDATE NVTX_EVENTS SET jsonText = '{\"a\": [' WHERE jsonText IS "
                             "NOT NULL AND text != 'ncclCommInitRank'")) == "imported");
    for (const char* const update :
         {"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = -5, shortName = 'x'",
          "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 3",
          "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = -1",
          "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = rowid * 16777216",
          "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1000",
          "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = rowid",
          "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = -rowid * 16777216",
          "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = NULL",
          "UPDATE NVTX_EVENTS SET globalTid = NULL", "UPDATE NVTX_EVENTS SET end = start",
          "UPDATE NVTX_EVENTS SET eventType = 60", "UPDATE NVTX_EVENTS SET text = x'00ff'",
          "UPDATE NVTX_EVENTS SET text = replace(text, '[', '[-')",
          "UPDATE NVTX_EVENTS SET text = replace(text, '[', '[99999999999999, 999999999999, ')",
          "UPDATE StringIds SET value = NULL WHERE 0", "UPDATE StringIds SET value = zeroblob(9)",
          "UPDATE NVTX_EVENTS SET jsonText = replace(jsonText, 'bytes]\":', 'bytes]\":-')"}) {
        INFO(update);
        // Whatever comes of it: one of the two.
        const std::string result = outcome_of(changed(update));
        CHECK((result == "imported" || contains(result, "expected ")));
    }
}

TEST_CASE("ranges that are nested without end", "[nsys]") {
    CHECK(
        outcome_of(changed(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) "
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) SELECT 1000000 + i, "
            "9000000 - i, 59, 'a::b', 16777216000 + 100 FROM n")) ==
        "e.sqlite: /NVTX_EVENTS: expected ranges nested at most 2000 deep, got deeper ones");
}

TEST_CASE("a schema does nothing by itself", "[nsys]") {
    // A view that never ends, in place of a table; and columns that an expression makes.
    CHECK(contains(outcome_of(changed(
                       "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; CREATE VIEW "
                       "CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n (start) AS (SELECT 1 UNION "
                       "ALL SELECT start + 1 FROM n) SELECT start, start AS end FROM n")),
                   "expected an export of Nsight Systems"));
    CHECK(contains(outcome_of(changed(
                       "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL; CREATE TABLE "
                       "CUPTI_ACTIVITY_KIND_KERNEL (id INT, start AS (length(zeroblob(id))), "
                       "end AS (id)); INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (999999999)")),
                   "/CUPTI_ACTIVITY_KIND_KERNEL/0/start: expected a whole number, got none"));
    CHECK(contains(outcome_of(changed("DROP TABLE StringIds; CREATE VIRTUAL TABLE StringIds USING "
                                      "fts5(id, value)")),
                   "expected "));
}

TEST_CASE("a database that is damaged or cut off", "[nsys]") {
    const std::string whole = changed("");
    for (const std::size_t length : {16U, 100U, 512U, 4095U, 4096U, 8192U, 40'000U}) {
        CHECK(contains(outcome_of(whole.substr(0, length)), "e.sqlite: expected "));
    }
    CHECK(contains(outcome_of(whole.substr(0, whole.size() - 1)), "as if it was cut off"));
    // No damage brings it down, or makes it read on without end.
    std::mt19937 random(1);
    constexpr int rounds = 300 / BUCKETWISE_TEST_SHARE;
    for (int round = 0; round < rounds; ++round) {
        std::string damaged = whole;
        for (int i = 0; i < 1 + round % 40; ++i) {
            damaged[random() % damaged.size()] = static_cast<char>(random());
        }
        const std::string result = outcome_of(damaged);
        CHECK((result == "imported" || contains(result, "expected ")));
    }
}

// Interior pages whose children are all one and the same leaf: rows without end, were they not
// counted.
TEST_CASE("pages that lead to the same page again and again", "[nsys]") {
    WrittenDatabase database;
    database.run(
        "PRAGMA page_size = 512; VACUUM; CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start "
        "INT, end INT); CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)");
    for (int i = 0; i < 2'000; ++i) {
        database.insert("StringIds", {{"id", i}, {"value", "a text of some length"}});
    }
    std::string bytes = database.bytes();
    for (std::size_t page = 512; page + 512 <= bytes.size(); page += 512) {
        if (static_cast<unsigned char>(bytes[page]) == 5) {  // interior, of a table
            for (std::size_t cell = 0; cell < 60; ++cell) {
                const auto at = static_cast<std::size_t>(
                    static_cast<unsigned char>(bytes[page + 12 + 2 * cell]) * 256 +
                    static_cast<unsigned char>(bytes[page + 13 + 2 * cell]));
                const auto cells =
                    static_cast<std::size_t>(static_cast<unsigned char>(bytes[page + 3]) * 256 +
                                             static_cast<unsigned char>(bytes[page + 4]));
                if (cell < cells && at >= 12 && at + 4 <= 512) {
                    // The page itself, as its own child.
                    const std::size_t number = page / 512 + 1;
                    bytes[page + at + 2] = static_cast<char>(number / 256);
                    bytes[page + at + 3] = static_cast<char>(number % 256);
                }
            }
        }
    }
    CHECK(contains(outcome_of(bytes), "expected "));
}

}  // namespace bucketwise
