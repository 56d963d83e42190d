#include "import/nccl_tests/nccl_tests.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/nccl_tests/nccl_tests_log.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

using testing::contains;

NcclTestsLog read(const std::string& text, std::size_t block = 1000) {
    return read_nccl_tests_log(text_source(text, block), "log.txt");
}

ImportedNcclTests imported(const std::string& text, const NcclTestsOptions& options = {}) {
    return import_nccl_tests({read(text)}, options);
}

std::string refusal(const std::string& text, const NcclTestsOptions& options = {}) {
    try {
        static_cast<void>(imported(text, options));
    } catch (const InputError& error) {
        return error.what();
    }
    return "nothing was refused";
}

void check_times(const ImportedNcclTests& got, const std::vector<LoggedTimes>& expected,
                 std::int64_t ranks) {
    REQUIRE(got.collectives.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const CollectiveRecord& record = got.collectives[i];
        CAPTURE(i);
        CHECK(record.size.count == expected[i].bytes);
        CHECK(record.transport.ranks == ranks);
        REQUIRE(record.samples_us.size() == 2);
        CHECK(record.samples_us[0] == Approx(expected[i].out_of_place_us).epsilon(1e-9));
        CHECK(record.samples_us[1] == Approx(expected[i].in_place_us).epsilon(1e-9));
    }
}

// The documents of -J, version 3.
std::string json_text_of(const std::vector<LoggedTimes>& all, std::int64_t ranks,
                         std::int64_t processes) {
    Json document{{"version", 3},
                  {"start_time", "2026-11-21 10:20:30"},
                  {"args", {"/home/someone/build/all_reduce_perf", "-g", "2"}},
                  {"env", {"SECRET_TOKEN=hunter2"}},
                  {"nccl_version", 22902},
                  {"config", {{"nthreads", 1}, {"ngpus", ranks / processes}, {"graph", 0}}}};
    for (std::int64_t p = 0; p < processes; ++p) {
        document["devices"].push_back({{"rank", p * ranks / processes},
                                       {"group", 0},
                                       {"pid", 1},
                                       {"hostname", fmt::format("host{}", p)},
                                       {"device", 0},
                                       {"device_info", "NVIDIA H100"}});
    }
    const auto half = [&](std::int64_t bytes, double us) {
        return Json{{"time", us},
                    {"alg_bw", algbw_of(bytes, us)},
                    {"bus_bw", busbw_of(bytes, us, ranks)},
                    {"nwrong", nullptr}};
    };
    for (const LoggedTimes& times : all) {
        document["results"].push_back({{"size", times.bytes},
                                       {"count", times.bytes / 4},
                                       {"type", "float"},
                                       {"redop", "sum"},
                                       {"root", "    -1"},
                                       {"out_of_place", half(times.bytes, times.out_of_place_us)},
                                       {"in_place", half(times.bytes, times.in_place_us)}});
    }
    document["out_of_bounds"] = {{"count", 0}, {"okay", "true"}};
    return document.dump();
}

std::string device_list(std::int64_t ranks, std::int64_t per_host) {
    std::string text = fmt::format(
        "# nThread 1 nGpus {} minBytes 8 maxBytes 1073741824 step: 4(factor) iters: 20\n#\n"
        "# Using devices\n",
        1);
    for (std::int64_t r = 0; r < ranks; ++r) {
        text += fmt::format(
            "#  Rank {:>2} Group  0 Pid   1275 on     host{:02} device {:>2} "
            "[0000:01:00] NVIDIA H100 80GB HBM3\n",
            r, r / per_host, r % per_host);
    }
    return text;
}

}  // namespace

TEST_CASE("All columns that nccl-tests ever printed give the same times", "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    std::vector<LogStyle> styles;
    for (const bool root : {true, false}) {
        for (const bool per_iteration : {true, false}) {
            for (const bool timestamp : {true, false}) {
                for (const char* wrong : {"0", "N/A", "5e-07", "nan"}) {
                    styles.push_back({root, per_iteration, timestamp, wrong});
                }
            }
        }
    }
    for (const LogStyle& style : styles) {
        const std::string text = log_text(times, 8, style);
        CAPTURE(text);
        check_times(imported(text), times, 8);
        // Rows alone, as a log has them whose '#' lines were filtered out.
        std::string rows;
        for (const LoggedTimes& t : times) {
            rows += row_text(t, 8, style) + "\n";
        }
        check_times(imported(rows), times, 8);
    }
}

TEST_CASE("What launchers, terminals and editors put around a row does not matter", "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    for (const char* before : {"[1,0]<stdout>:", "    [1,0]<stdout>: ", "0: ", " 0: ",
                               "pod/nccl-launcher-x7 ", "2026-11-21T10:20:30.123456Z ",
                               "[2026-11-21 10:20:30] ", "> ", "# ", "| ", "10.0.0.1: [rank0] "}) {
        CAPTURE(before);
        check_times(imported(log_text(times, 8, {.before = before})), times, 8);
        check_times(imported(log_text(times, 8, {.root = false, .before = before})), times, 8);
    }
    const std::string windows = "\xef\xbb\xbf" + log_text(times, 8, {.end = "\r\n"});
    check_times(imported(windows), times, 8);
    check_times(
        imported("# My cluster\n\n```console\n$ mpirun -np 8 ./build/all_reduce_perf -b 8\n" +
                 log_text(times, 8, {}) + "```\nThat is fast.\n"),
        times, 8);
}

TEST_CASE("A tag of mpirun within a row, or within a number, is taken out", "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    const std::string tag = "[1,0]<stdout>:";
    const std::string heading = log_text({}, 8, {.before = tag});
    const std::string row = row_text(times.back(), 8, {});
    for (std::size_t cut = 1; cut < row.size(); ++cut) {
        const std::string torn = row.substr(0, cut) + tag + row.substr(cut) + "\n";
        CAPTURE(torn);
        check_times(imported(heading + tag + torn), {times.back()}, 8);
        // The row's first half may have come without a tag of its own.
        check_times(imported(heading + torn), {times.back()}, 8);
    }
    // Text after another rank's tag is not this row's.
    const std::string other =
        tag + row.substr(0, row.size() / 2) + "[1,1]<stdout>:" + row.substr(row.size() / 2);
    const NcclTestsLog log = read(heading + other + "\n" + tag + row + "\n");
    REQUIRE(log.runs.size() == 1);
    CHECK(log.runs[0].rows.back().halves.size() == 2);
}

TEST_CASE("Pieces of a row behind [0], and on lines of their own, are put together", "[import]") {
    const std::string heading =
        "[0] # nThread 1 nGpus 1 minBytes 8\n[0] #  Rank  0 Pid 7 on a "
        "device  0 [0x0c] H100\nb:7:8 [0] NCCL INFO comm nRanks 24\n";
    // 512 KiB in 366.5 us is 1.43 GB/s, and 2 * 23 / 24 of that on the bus.
    const std::string sizes = "      524288        131072     float     sum      -1";
    const std::string halves[] = {"     366.5    1.43    2.74      0",
                                  "     340.8    1.54    2.95      0"};
    for (const std::string& row : {"[0]" + sizes + "[0]" + halves[0] + "[0]" + halves[1] + "\n",
                                   "[0]" + sizes + "\n[0]" + halves[0] + "[0]" + halves[1] + "\n",
                                   "[0]" + sizes + "[0]" + halves[0] + "\n[0]" + halves[1] + "\n",
                                   "[0]" + sizes + "\n[0]" + halves[0] +
                                       "\nb:7:8 [0] NCCL INFO x\n[0]" + halves[1] + "\n"}) {
        CAPTURE(row);
        check_times(imported(heading + row), {{524288, 366.5, 340.8}}, 24);
    }
    // Numbers after a whole row are no part of it.
    CHECK(imported(heading + "[0]" + sizes + halves[0] + halves[1] + "\n[0] 1 2 3\n")
              .collectives.size() == 1);
}

TEST_CASE("Before 2.10 an all-gather's algbw was its busbw, and the time counts", "[import]") {
    // 64 KiB in 16.57 us are 3.955 GB/s on 2 ranks: half came from the other rank.
    const std::string old =
        "./all_gather_perf -b 8 -e 128M -f 2 -g 2\n# nThread 1 nGpus 2 minBytes 8\n"
        "       65536          8192   float    16.57    1.98    1.98  0e+00    13.83    2.37    "
        "2.37  0e+00\n"
        "    67108864       8388608   float   1568.3   21.40   21.40  0e+00   1560.9   21.50   "
        "21.50  0e+00\n";
    const ImportedNcclTests got = imported(old);
    REQUIRE(got.collectives.size() == 2);
    CHECK(got.environment.transport.ranks == 2);
    CHECK(got.collectives[1].kind == CollectiveKind::all_gather);
    CHECK(got.collectives[0].samples_us == std::vector<double>{16.57, 13.83});
    // An all-reduce whose algbw is too small is torn, as before.
    CHECK(
        contains(refusal("# all_reduce_perf\n       65536         16384   float   sum    16.57    "
                         "1.98    1.98  0e+00\n"),
                 "1 row torn"));
}

TEST_CASE("Ranks that each ran alone are told how to run together", "[import]") {
    CHECK(
        contains(refusal("# nThread 1 nGpus 1 minBytes 8\n#   Rank  0 Pid 7 on a device  0 [0] "
                         "V100\n  1310720   327680   float   sum   3364.7  0.39    0.00  0e+00\n"),
                 "got only 1 all-reduce on one rank; each process saw one rank: start it with "
                 "-g 2 or more, or under mpirun from a build with MPI=1"));
}

TEST_CASE("NCCL's lines between rows are passed over, and tell ranks and nodes", "[import]") {
    // A table of two small sizes, whose busbw tells nothing.
    const std::vector<LoggedTimes> small{{8, 20, 19}, {16, 20.5, 19.5}};
    std::string text;
    for (const LoggedTimes& times : small) {
        text +=
            "node1:12:34 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 24 cudaDev 0\n"
            "node1:12:34 [0] NCCL INFO comm 0x1 rank 0 nRanks 24 nNodes 3 localRanks 8\n" +
            row_text(times, 24, {}) + "\n";
    }
    const ImportedNcclTests got = imported(text);
    check_times(got, small, 24);
    CHECK(got.environment.hosts == 3);
    CHECK(contains(got.report, "4 lines of NCCL's own log"));
}

TEST_CASE("Columns that ran into each other are taken apart where that agrees with itself",
          "[import]") {
    // 1 GiB in 10 ms and 9 ms on 16 ranks: algbw 107.37, 119.30; busbw times 1.875.
    const std::string row =
        "  1073741824     268435456     float     sum      -1   10000.0107.37201.33      0  "
        "9000.0119.30223.70      0\n";
    const ImportedNcclTests got = imported(row);
    REQUIRE(got.collectives.size() == 1);
    CHECK(got.collectives[0].samples_us == std::vector<double>{10000, 9000});
    CHECK(got.collectives[0].transport.ranks == 16);
    // Size and count: the one is 4 times the other, of floats.
    const ImportedNcclTests together = imported(
        "1073741824268435456     float     sum      -1   10000  107.37  201.33      0  9000.0  "
        "119.30  223.70      0\n");
    REQUIRE(together.collectives.size() == 1);
    CHECK(together.collectives[0].size.count == 1 << 30);
}

TEST_CASE("The number of ranks follows from busbw and algbw", "[import]") {
    for (const std::int64_t ranks : {2, 3, 4, 6, 7, 8, 12, 16, 24, 32, 64}) {
        CAPTURE(ranks);
        const ImportedNcclTests got = imported(log_text(usual_times(), ranks, {}));
        CHECK(got.environment.transport.ranks == ranks);
        CHECK(contains(got.report, "busbw / algbw of"));
    }
}

TEST_CASE("Where the log cannot tell, --ranks is asked for, and held against what it does tell",
          "[import]") {
    // 2 (n-1)/n of 1024 and 1025 ranks differ by 2e-6: no log has so many digits.
    const std::string many = log_text(usual_times(), 1024, {});
    CHECK(contains(refusal(many), "expected --ranks, as the log has no list of devices"));
    CHECK(imported(many, {.ranks = {1024}}).environment.transport.ranks == 1024);
    CHECK(contains(refusal(many, {.ranks = {8}}), "got --ranks 8"));
    // Two small sizes tell nothing at all.
    const std::string small = row_text({8, 20, 19}, 8, {}) + "\n" + row_text({16, 20, 19}, 8, {});
    CHECK(contains(refusal(small), "a busbw that does not tell either"));
    CHECK(imported(small, {.ranks = {5}}).environment.transport.ranks == 5);

    const std::string eight = log_text(usual_times(), 8, {});
    CHECK(contains(refusal(eight, {.ranks = {16}}), "expected --ranks 8, as busbw / algbw of"));
    CHECK(contains(refusal(eight, {.ranks = {16}}), "got --ranks 16"));
    // A list of devices that contradicts the table: these are no all-reduces of 16 ranks.
    CHECK(contains(refusal(device_list(16, 8) + eight),
                   "expected all-reduces on 16 ranks, as the device list says, got busbw / algbw "
                   "of all-reduces on 8"));
}

TEST_CASE("The device list tells ranks, nodes and GPUs; one that was cut off does not mislead",
          "[import]") {
    const std::string table = log_text(usual_times(), 16, {});
    const ImportedNcclTests got = imported(device_list(16, 8) + table);
    CHECK(got.environment.transport.ranks == 16);
    CHECK(got.environment.hosts == 2);
    CHECK(got.environment.gpu == "NVIDIA H100 80GB HBM3");
    const ImportedNcclTests cut = imported(device_list(3, 8) + table);
    CHECK(cut.environment.transport.ranks == 16);
    CHECK(contains(cut.report, "the device list has only 3"));
    CHECK(contains(
        refusal(device_list(16, 8) + table, {.ranks_per_node = 4}),
        "expected --ranks-per-node 8 for 2 nodes, as the log names them, with 8 ranks each, "
        "got 4"));
    // The list has one of 1,440 ranks, and the table tells no number of them: it is asked for, and
    // the one host that is named is not taken for all.
    const std::string many = device_list(1, 8) + log_text(usual_times(), 1440, {});
    CHECK(contains(refusal(many), "expected --ranks, as the device list has only 1, got "));
    const ImportedNcclTests given = imported(many, {.ranks = {1440}});
    CHECK(given.environment.transport.ranks == 1440);
    CHECK(given.environment.hosts == 180);
    CHECK(contains(given.report, "assumed, as the device list was cut off: 8 GPUs a node"));
    CHECK(imported(many, {.ranks = {1440}, .ranks_per_node = 4}).environment.hosts == 360);
    CHECK(contains(refusal(many, {.ranks = {8}}), "got --ranks 8"));
    // A list that was cut off after its first host tells how many ranks each has.
    const ImportedNcclTests hosts =
        imported(device_list(6, 4) + log_text(usual_times(), 1440, {}), {.ranks = {1440}});
    CHECK(hosts.environment.hosts == 360);
    CHECK(contains(hosts.report, "which was cut off, has 4 ranks on its first host"));
    CHECK(contains(imported(device_list(16, 8) + table).report,
                   "nodes  2 (the log names them, with 8 ranks each)"));
    // rccl-tests has no groups.
    const ImportedNcclTests rccl = imported(
        "rccl-tests: Version develop:3f7f785\n"
        "#   Rank  0 Pid  21284 on hostA device  0 [0000:2f:00.0] AMD Instinct MI100\n"
        "#   Rank  1 Pid  21284 on hostA device  1 [0000:03:00.0] AMD Instinct MI100\n" +
        log_text(usual_times(), 2, {}));
    CHECK(rccl.environment.transport.ranks == 2);
    CHECK(rccl.environment.gpu == "AMD Instinct MI100");
    CHECK(rccl.environment.libraries == "RCCL");
}

TEST_CASE("Text and JSON give the same measurements, and nothing of the environment", "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    const ImportedNcclTests text = imported(device_list(16, 8) + log_text(times, 16, {}));
    for (const char* before : {"", "\xef\xbb\xbf", " \n"}) {
        const ImportedNcclTests json = imported(before + json_text_of(times, 16, 2));
        check_times(json, times, 16);
        CHECK(json.collectives == text.collectives);
        CHECK(json.environment.hosts == 2);
        CHECK(json.environment.libraries == "NCCL 2.29.2");
        CHECK_FALSE(contains(to_json(json.environment).dump() + json.report, "hunter2"));
        CHECK_FALSE(contains(to_json(json.environment).dump() + json.report, "someone"));
    }
    // Two documents, and a list of them, are two runs.
    const std::string two = json_text_of(times, 16, 2) + "\n" + json_text_of(times, 16, 2);
    CHECK(imported(two).collectives.size() == 2 * times.size());
    CHECK(imported(two).collectives.back().round == 1);
    CHECK(imported("[" + json_text_of(times, 16, 2) + "]").collectives.size() == times.size());
}

TEST_CASE("Of JSON that was cut off every whole row is taken", "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    const std::string text = json_text_of(times, 16, 2);
    const std::size_t results = text.find("\"results\"");
    std::size_t most_rows = 0;
    for (std::size_t end = results; end < text.size(); end += 41) {
        try {
            const ImportedNcclTests got = imported(text.substr(0, end));
            CHECK(got.collectives.size() >= most_rows);
            most_rows = got.collectives.size();
            CHECK(got.collectives.front().size.count == times.front().bytes);
            CHECK(contains(got.report, "cut off"));
        } catch (const InputError&) {
            CHECK(most_rows == 0);
        }
    }
    CHECK(most_rows == times.size());
}

TEST_CASE("A log cut off anywhere gives the rows before, and no row that is not there",
          "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    const std::string text = device_list(4, 4) + log_text(times, 4, {});
    for (std::size_t end = text.find("\n           8"); end < text.size(); end += 3) {
        try {
            const ImportedNcclTests got = imported(text.substr(0, end), {.ranks = {4}});
            REQUIRE(got.collectives.size() <= times.size());
            for (std::size_t i = 0; i < got.collectives.size(); ++i) {
                const std::vector<double>& samples = got.collectives[i].samples_us;
                CHECK(samples.front() == Approx(times[i].out_of_place_us));
                CHECK((samples.size() == 1 || samples[1] == Approx(times[i].in_place_us)));
            }
        } catch (const InputError& error) {
            CHECK(contains(error.what(), "expected rows of all_reduce_perf"));
        }
    }
}

TEST_CASE("Wrong results and rows that contradict themselves are left out, and said so",
          "[import]") {
    const std::string good = log_text(usual_times(), 8, {});
    const std::size_t rows = usual_times().size();
    const auto with = [&](const std::string& row) { return imported(good + row + "\n"); };

    const ImportedNcclTests wrong = with(row_text({1 << 20, 30, 29}, 8, {.wrong = "17"}));
    CHECK(wrong.collectives.size() == rows);
    CHECK(contains(wrong.report, "2 times of wrong results"));
    CHECK(with(row_text({1 << 20, 30, 29}, 8, {.wrong = "1e+06"})).collectives.size() == rows);
    CHECK(with(row_text({1 << 20, 30, 29}, 8, {.root = false, .wrong = "3e-01*"}))
              .collectives.size() == rows);
    // 1 MiB in 300 us is 3.5 GB/s, not 34.95: a digit was lost, or the times are in ms.
    const ImportedNcclTests damaged = with(
        "     1048576        262144     float     sum      -1    300.0   34.95   61.17      0");
    CHECK(damaged.collectives.size() == rows);
    CHECK(contains(damaged.report, "1 row torn, or whose algbw is not bytes / time"));
    // One half is enough.
    const ImportedNcclTests half = with(
        "     1048576        262144     float     sum      -1    30.00   34.95   61.17      0"
        "      nan     nan     nan    N/A");
    REQUIRE(half.collectives.size() == rows + 1);
    CHECK(half.collectives.back().samples_us == std::vector<double>{30});
    CHECK(contains(half.report, "1 half-row torn"));
}

TEST_CASE("Of other collectives nothing is taken, nor of those whose rows do not tell them",
          "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    const auto other = [](const std::string& before) {
        return before + "# nThread 1 nGpus 8 minBytes 8\n" + heading_text({}) +
               "\n     1048576        262144     float    none      -1    30.00   34.95   30.58    "
               "  0    30.00   34.95   30.58      0\n# Avg bus bandwidth    : 30\n";
    };
    const std::string text = other("# Collective test starting: alltoall_perf\n") +
                             "# Collective test starting: all_reduce_perf\n" +
                             log_text(times, 8, {}) + other("$ ./build/broadcast_perf -g 8\n");
    const ImportedNcclTests got = imported(text);
    check_times(got, times, 8);
    CHECK(contains(got.report, "1 row of alltoall_perf"));
    CHECK(contains(got.report, "1 row of broadcast_perf"));
    // A table without an end, then a command; and an end that names what came before it.
    const std::string torn =
        "$ ./gather_perf\n" + heading_text({}) + "\n" + row_text({1 << 20, 30, 29}, 8, {}) +
        "\n$ ./all_reduce_perf\n# nThread 1 nGpus 8 minBytes 8\n" + log_text(times, 8, {});
    check_times(imported(torn), times, 8);
    check_times(imported("# Collective test concluded: all_gather_perf\n" + log_text(times, 8, {})),
                times, 8);
    // Without names: a reduce has a root, a reduce-scatter's count is that of a rank.
    const std::string reduce =
        "     1048576        262144     float     sum       0    30.00   34.95   34.95      0    "
        "30.00   34.95   34.95      0\n";
    const std::string scatter =
        "     1048576         32768     float     sum      -1    30.00   34.95   30.58      0    "
        "30.00   34.95   30.58      0\n";
    CHECK(contains(imported(log_text(times, 8, {}) + reduce + scatter).report,
                   "2 rows of other collectives"));
    CHECK(contains(refusal(reduce), "got only 1 row of other collectives"));
}

// 1 KiB to 64 MiB, whose parts of 8 ranks are whole elements.
std::vector<LoggedTimes> times_of_parts() {
    std::vector<LoggedTimes> all = usual_times();
    std::erase_if(all, [](const LoggedTimes& times) {
        return times.bytes < 1024 || times.bytes > (std::int64_t{1} << 26);
    });
    return all;
}

std::string log_of(const char* program, CollectiveKind kind, std::int64_t ranks = 8) {
    return fmt::format("# Collective test starting: {}\n", program) +
           log_text(times_of_parts(), ranks, {.kind = kind});
}

void check_parts(const ImportedNcclTests& got, CollectiveKind kind) {
    std::size_t i = 0;
    const std::vector<LoggedTimes> expected = times_of_parts();
    for (const CollectiveRecord& record : got.collectives) {
        if (record.kind != kind) {
            continue;
        }
        REQUIRE(i < expected.size());
        // The gathered buffer, and all that is scattered.
        CHECK(record.size.count == expected[i].bytes);
        CHECK(record.transport.ranks == 8);
        CHECK(record.round == 0);
        REQUIRE(record.samples_us.size() == 2);
        CHECK(record.samples_us[0] == Approx(expected[i].out_of_place_us).epsilon(1e-9));
        ++i;
    }
    CHECK(i == expected.size());
}

TEST_CASE("All-gathers and reduce-scatters are taken where the log names them", "[import]") {
    const std::string gathers = log_of("all_gather_perf", CollectiveKind::all_gather);
    const std::string scatters = log_of("reduce_scatter_perf", CollectiveKind::reduce_scatter);
    const std::string reduces = log_of("all_reduce_perf", CollectiveKind::all_reduce);
    // In one log, and in three; a kind alone, too.
    const ImportedNcclTests one = imported(gathers + scatters + reduces);
    const ImportedNcclTests three =
        import_nccl_tests({read(gathers), read(scatters), read(reduces)}, {});
    for (const ImportedNcclTests& got : {one, three}) {
        check_parts(got, CollectiveKind::all_reduce);
        check_parts(got, CollectiveKind::all_gather);
        check_parts(got, CollectiveKind::reduce_scatter);
        CHECK(contains(got.report, "8 all-gathers (float32), 8 sizes from 2 KiB"));
        CHECK(contains(got.report, "8 reduce-scatters (float32, sum)"));
        CHECK_FALSE(contains(got.report, "not taken"));
    }
    const ImportedNcclTests alone = imported(gathers);
    CHECK(alone.collectives.size() == times_of_parts().size());
    CHECK(alone.environment.transport.ranks == 8);
    check_parts(alone, CollectiveKind::all_gather);
    // The size is 8 times the count, and busbw is 7/8 of algbw.
    CHECK(contains(alone.report, "ranks  8 (size / count and busbw / algbw of 16 times say so)"));
    CHECK_FALSE(contains(alone.report, "nearest preset"));
    // An all-gather without its name may be an all-to-all.
    const std::string nameless = gathers.substr(gathers.find('\n') + 1);
    CHECK(contains(refusal(nameless),
                   "expected rows of all_reduce_perf, all_gather_perf or reduce_scatter_perf on "
                   "more than one rank, as nccl-tests prints them, got only 8 rows of other"));
}

TEST_CASE("Ranks that an all-gather's size or busbw contradicts are refused", "[import]") {
    const std::string gathers = log_of("all_gather_perf", CollectiveKind::all_gather);
    CHECK(contains(refusal(gathers, {.ranks = {4}}),
                   "expected --ranks 8, as size / count and busbw / algbw of 16 times say so, got "
                   "--ranks 4"));
    CHECK(contains(refusal(device_list(4, 4) +
                           log_text(times_of_parts(), 4, {.kind = CollectiveKind::all_gather})),
                   "got only 8 rows of other"));
    const std::string on_four = device_list(4, 4) + gathers;
    CHECK(imported(on_four).environment.transport.ranks == 8);
    // Sizes of 8 ranks with the busbw of an all-reduce, which is twice as much, agree on nothing.
    std::string twice = log_text(times_of_parts(), 8, {});
    twice = "# Collective test starting: reduce_scatter_perf\n" + twice;
    CHECK(contains(refusal(twice), "got a busbw that does not tell either"));
}

TEST_CASE("JSON of the three programs is told by the program's name", "[import]") {
    std::string text = json_text_of(times_of_parts(), 16, 2);
    const auto renamed = [&](const char* program, double share) {
        Json document = Json::parse(text);
        document["args"][0] = fmt::format("/build/{}", program);
        for (Json& result : document["results"]) {
            result["count"] = result["size"].get<std::int64_t>() / 4 / 16;
            result["redop"] = program[0] == 'a' ? "none" : "sum";
            for (const char* half : {"out_of_place", "in_place"}) {
                result[half]["bus_bw"] = result[half]["bus_bw"].get<double>() * share;
            }
        }
        return document.dump();
    };
    const ImportedNcclTests got =
        imported(text + renamed("all_gather_perf", 0.5) + renamed("reduce_scatter_perf", 0.5));
    REQUIRE(got.collectives.size() == 24);
    CHECK(got.collectives.front().kind == CollectiveKind::all_reduce);
    CHECK(got.collectives[8].kind == CollectiveKind::all_gather);
    CHECK(got.collectives.back().kind == CollectiveKind::reduce_scatter);
    CHECK(got.collectives.back().transport.ranks == 16);
    CHECK(imported(text + renamed("alltoall_perf", 0.5)).collectives.size() == 8);
}

TEST_CASE("All-gathers may be of another dtype than sums, which are of one", "[import]") {
    // A mebibyte of 8 ranks is 65,536 elements of two bytes each, or 32,768 of four.
    const std::string row =
        "     1048576         {}     {}     {}      -1    30.00   34.95   30.58      0    30.00   "
        "34.95   30.58      0\n";
    const auto rows = [&](const char* program, const char* redop, auto... dtypes) {
        std::string text = fmt::format("# Collective test starting: {}\n", program);
        for (const char* dtype : {dtypes...}) {
            const bool wide = std::string(dtype) != "bfloat16";
            text += fmt::format(fmt::runtime(row), wide ? 32768 : 65536, dtype, redop);
        }
        return text;
    };
    const ImportedNcclTests got =
        imported(rows("all_gather_perf", "none", "bfloat16") +
                 rows("reduce_scatter_perf", "sum", "float", "bfloat16", "int32"));
    REQUIRE(got.collectives.size() == 2);
    CHECK(got.collectives[0].dtype == DType::bfloat16);
    CHECK(got.collectives[1].dtype == DType::float32);
    CHECK(contains(got.report, "1 reduce-scatter of bfloat16 (--dtype chooses)"));
    CHECK(contains(got.report, "1 reduce-scatter of int32, which no gradient is"));
    CHECK(contains(got.report, "1 all-gather (bfloat16), 1 size"));
}

TEST_CASE("One dtype and one reduction are taken: float32 and sum where there are any",
          "[import]") {
    constexpr const char* row =
        "     1048576        {}     {}     {}      -1    30.00   34.95   61.17      0    30.00   "
        "34.95   61.17      0\n";
    const std::string text =
        fmt::format(row, 524288, "half", "sum") + fmt::format(row, 262144, "float", "max") +
        fmt::format(row, 262144, "float", "sum") + fmt::format(row, 1048576, "int8", "sum");
    const ImportedNcclTests got = imported(text);
    REQUIRE(got.collectives.size() == 1);
    CHECK(got.collectives[0].dtype == DType::float32);
    CHECK(contains(got.report, "1 all-reduce of float16 (--dtype chooses)"));
    CHECK(contains(got.report, "1 all-reduce by max"));
    CHECK(contains(got.report, "1 all-reduce of int8, which no gradient is"));
    const ImportedNcclTests half = imported(text, {.dtype = DType::float16});
    REQUIRE(half.collectives.size() == 1);
    CHECK(half.collectives[0].dtype == DType::float16);
}

TEST_CASE("With -C algbw tells the time, where it has digits enough", "[import]") {
    // 64 MiB at 134.22 GB/s take 67108864 / 134220 us = 500 us; launching took 5 us. For 8 bytes
    // algbw says 0.00.
    const std::string text =
        heading_text({}, "cputime") +
        "\n           8             2     float     sum      -1     4.00    0.00    0.00      0    "
        " "
        "4.00    0.00    0.00      0\n"
        "    67108864      16777216     float     sum      -1     5.00  134.22  234.88      0     "
        "5.00  134.22  234.88      0\n";
    const ImportedNcclTests got = imported(text);
    REQUIRE(got.collectives.size() == 1);
    CHECK(got.collectives[0].samples_us[0] == Approx(500).epsilon(1e-4));
    CHECK(got.collectives[0].issue_us == std::vector<double>{5, 5});
    CHECK(contains(got.report, "2 times of launching only"));
}

TEST_CASE("Several logs are one file: rounds count up, ranks may differ, nodes had better not",
          "[import]") {
    const std::vector<LoggedTimes> times = usual_times();
    const NcclTestsLog four = read(log_text(times, 4, {}));
    const NcclTestsLog eight = read(device_list(8, 4) + log_text(times, 8, {}));
    const ImportedNcclTests twice = import_nccl_tests({four, four}, {});
    CHECK(twice.environment.rounds == 2);
    CHECK(twice.collectives.back().round == 1);
    const ImportedNcclTests both = import_nccl_tests({four, eight}, {});
    CHECK(both.collectives.front().transport.ranks == 4);
    CHECK(both.collectives.back().transport.ranks == 8);
    CHECK(contains(both.report, "Note: logs on 1 and 2 nodes together"));
    // One --ranks for each.
    const NcclTestsLog small = read(row_text({8, 20, 19}, 8, {}));
    const ImportedNcclTests asked = import_nccl_tests({small, small}, {.ranks = {8, 16}});
    CHECK(asked.collectives[0].transport.ranks == 8);
    CHECK(asked.collectives[1].transport.ranks == 16);
}

TEST_CASE("All sizes are taken, however many", "[import]") {
    std::string text;
    for (std::int64_t i = 1; i <= 300; ++i) {
        const std::int64_t bytes = i << 20;
        text += row_text({bytes, 20 + static_cast<double>(bytes) / 1e5, 30}, 8, {}) + "\n";
    }
    const ImportedNcclTests got = imported(text, {.ranks = {8}});
    CHECK(got.collectives.size() == 300);
}

TEST_CASE("Rubbish is refused by name, in bounded memory", "[import]") {
    for (const std::string& text :
         {std::string(), std::string("\n\n"), std::string("hello"), std::string(1000, '\0'),
          std::string("{}"), std::string("{\"results\": []}"), std::string("[{}]"),
          std::string("{\"results\": [{\"size\": -1, \"type\": 7}]}"),
          std::string("99999999999999999999 1 float sum -1 1 1 1 0 1 1 1 0")}) {
        CAPTURE(text);
        CHECK(contains(refusal(text), "log.txt: expected rows of all_reduce_perf"));
    }
    CHECK(contains(refusal("{\"results\": "), "log.txt: "));
    CHECK(contains(refusal("{\"a\":" + std::string(1'000'000, '[')), "log.txt: "));
    std::string rows;
    for (int i = 0; i < 100'001; ++i) {
        rows += "8 2 float sum -1 20 0.00 0.00 0 20 0.00 0.00 0\n";
    }
    CHECK(contains(refusal(rows), "expected at most 100000 rows, got more"));
    CHECK(contains(refusal("8 2 float sum -1 20 0.00 0.00 0 20 0.00 0.00 0\n" +
                           std::string(70'000, 'x') + "\n"),
                   "--ranks"));
    CHECK(contains(
        refusal(row_text({8, 20, 19}, 1, {}) + "\n" + row_text({1 << 20, 20, 19}, 1, {}) + "\n"),
        "got only 2 all-reduces on one rank"));
}

TEST_CASE("A log takes memory for its rows, not for what is between them", "[import]") {
    // 96 MiB without the end of a line, then as much in lines, then a table.
    constexpr std::size_t length = std::size_t{192} << 20;
    constexpr std::size_t line = 4096;
    const std::string table = "\n" + log_text(usual_times(), 8, {});
    std::size_t given = 0;
    const std::int64_t before = peak_memory_bytes();
    const NcclTestsLog log = read_nccl_tests_log(
        [&](char* buffer, std::size_t size) {
            const std::size_t count = std::min(size, length + table.size() - given);
            for (std::size_t i = 0; i < count; i += line) {
                std::fill_n(buffer + i, std::min(line, count - i), 'x');
                buffer[i] = given > length / 2 ? '\n' : 'x';
            }
            for (std::size_t i = 0; i < count; ++i) {
                if (given + i >= length) {
                    buffer[i] = table[given + i - length];
                }
            }
            given += count;
            return count;
        },
        "long.txt");
    CHECK(given == length + table.size());
    REQUIRE(log.runs.size() == 1);
    CHECK(log.runs[0].rows.size() == usual_times().size());
    // Earlier tests may have used more; the check counts where this test runs alone.
    CHECK(peak_memory_bytes() - before < std::int64_t{32} << 20);
}

TEST_CASE("Every all-reduce of the real logs is imported", "[import]") {
    // Nothing here changes the environment.
    // NOLINTNEXTLINE(concurrency-mt-unsafe)
    const char* const given = std::getenv("BUCKETWISE_SHARED_DIR");
    const std::filesystem::path folder =
        (given != nullptr ? std::filesystem::path(given)
                          : std::filesystem::path(BUCKETWISE_SCENARIO_DIR) / "../../shared") /
        "logs";
    struct RealLog {
        const char* file;
        std::size_t rows;
        std::int64_t ranks;
        double first_us;
        double last_us;
    };
    // As they stand in the first and the last row.
    const std::vector<RealLog> logs{{"a100-2x8-ib-old.txt", 30, 16, 38.63, 42677},
                                    {"h100-2x8-efa-k8s.txt", 32, 16, 87.96, 66717},
                                    {"h100x4-nvlink.txt", 31, 4, 22.72, 35182.8}};
    for (const RealLog& log : logs) {
        std::ifstream file(folder / log.file, std::ios::binary);
        if (!file) {
            WARN("skipped: no " << (folder / log.file).string());
            continue;
        }
        const ImportedNcclTests got = imported({std::istreambuf_iterator<char>(file), {}});
        CAPTURE(log.file);
        REQUIRE(got.collectives.size() == log.rows);
        CHECK(got.environment.transport.ranks == log.ranks);
        CHECK(got.collectives.front().samples_us.front() == log.first_us);
        CHECK(got.collectives.back().samples_us.back() == log.last_us);
        for (const CollectiveRecord& record : got.collectives) {
            CHECK(record.samples_us.size() == 2);
        }
        CHECK_FALSE(contains(got.report, "not taken"));
    }
}

}  // namespace bucketwise
