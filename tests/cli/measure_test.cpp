// `bucketwise measure` as its users meet it: processes that are started, killed, stopped and
// interrupted, and what the file then holds. No test asserts how long anything takes, but that it
// ends.
#include <sys/mount.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/plan/strategy.h"
#include "tests/cli/process.h"
#include "tests/cli/sharded_scenario_text.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Json = nlohmann::json;

Words measure(const std::string& file, const Words& options) {
    return Words{BUCKETWISE_BINARY, "measure", two_buckets, "-o", file} + options;
}

// One record in each round but for the environment's.
const Words one_item{"--protocols", "steps", "--strategy", "flat"};

// --- what a file holds ---

// Every line, none of them torn.
std::vector<Json> records_in(const std::string& file) {
    const std::string text = text_of_file(file);
    CHECK((text.empty() || text.back() == '\n'));
    std::vector<Json> records;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        REQUIRE_NOTHROW(records.push_back(Json::parse(line)));
    }
    return records;
}

std::size_t lines_in(const std::string& file) {
    const std::string text = text_of_file(file);
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

std::int64_t rounds_in(const std::string& file) {
    std::int64_t rounds = 0;
    for (const Json& record : records_in(file)) {
        rounds = std::max(rounds, record.value("round", std::int64_t{-1}) + 1);
    }
    return rounds;
}

// The items of a round: a line each.
std::set<std::string> items_of_round(const std::vector<Json>& records, std::int64_t round) {
    std::set<std::string> items;
    for (const Json& record : records) {
        if (record["kind"] == "environment" || record["round"] != round) {
            continue;
        }
        std::string item = record["kind"];
        for (const char* key : {"bytes", "bucket_cap_mib", "is_default", "rank", "sharding"}) {
            item += " " + record.value(key, Json()).dump();
        }
        INFO(item << " in round " << round);
        CHECK(items.insert(item).second);
    }
    return items;
}

void check_complete(const std::string& file, std::int64_t rounds, std::size_t items) {
    const std::vector<Json> records = records_in(file);
    REQUIRE_FALSE(records.empty());
    CHECK(records.front()["kind"] == "environment");
    const std::set<std::string> first = items_of_round(records, 0);
    CHECK(first.size() == items);
    for (std::int64_t round = 1; round < rounds; ++round) {
        CHECK(items_of_round(records, round) == first);
    }
    CHECK(rounds_in(file) == rounds);
}

// --- runs ---

void check_ends_well(const Words& words, const Surroundings& surroundings = {}) {
    bucketwise::check_ends_well(run(words, surroundings));
}

// A run that has measured a little and has much before it.
class LongRun {
  public:
    explicit LongRun(const Words& options = {})
        : launcher(measure(file(), one_item + Words{"--rounds", "100000"} + options),
                   {.variables = {{"TMPDIR", folder.path()}}}) {
        REQUIRE(wait_until([this] { return lines_in(file()) >= 5 || launcher.has_ended(); }));
        INFO(launcher.errors());
        REQUIRE_FALSE(launcher.has_ended());
        ranks = ranks_of(launcher.pid());
        std::sort(ranks.begin(), ranks.end(), [](const ProcessId& a, const ProcessId& b) {
            return variable_of(a, "RANK") < variable_of(b, "RANK");
        });
        REQUIRE(ranks.size() == 2);
        REQUIRE(variable_of(ranks[1], "RANK") == "1");
    }

    [[nodiscard]] std::string file() const { return folder.file("measured here.jsonl"); }

    // The launcher's exit code, once it is gone and all ranks before it.
    int wait() {
        const int exit_code = launcher.wait();
        for (const ProcessId& rank : ranks) {
            CHECK_FALSE(is_alive(rank));
        }
        return exit_code;
    }

    // Its one line on standard error, once it has failed.
    std::string failure() {
        CHECK(wait() == 1);
        check_one_line(launcher.errors());
        return launcher.errors();
    }

    // The file alone is left, with whole lines.
    void check_what_is_left() {
        CHECK(records_in(file()).size() >= 5);
        CHECK(files_left() == 1);
    }
    [[nodiscard]] std::ptrdiff_t files_left() const {
        const std::filesystem::directory_iterator entries(folder.path());
        return std::distance(begin(entries), end(entries));
    }

    TestFolder folder;
    Process launcher;
    std::vector<ProcessId> ranks;  // in order
};

TEST_CASE("a whole run writes every item of every round once, the environment first") {
    const int ranks = GENERATE(1, 2, 3);
    INFO(ranks << " ranks");
    const TestFolder folder;
    const std::string file = folder.file("measured.jsonl");
    const std::string outcome =
        check_ends_well(run(measure(file, {"--ranks", std::to_string(ranks), "--rounds", "3",
                                           "--bytes", "4KiB,1MiB", "--bucket-cap", "1MiB,25MiB"})));
    CHECK_THAT(outcome, Contains("spread") && Contains(std::to_string(ranks) + " ranks"));
    // Two all-reduces, a line of compute from each rank, contention with 64 KiB and 1 MiB (16 MiB
    // are more than all gradients), and steps at two caps and at the default one.
    check_complete(file, 3, 2 + static_cast<std::size_t>(ranks) + 2 + 3);
    std::set<std::string> kinds;
    for (const Json& record : records_in(file)) {
        kinds.insert(record["kind"]);
    }
    CHECK(kinds ==
          std::set<std::string>{"environment", "allreduce", "compute", "contention", "step"});
}

TEST_CASE("every strategy can be measured") {
    for (const Strategy strategy : every<Strategy>) {
        const std::string name(name_of(strategy));
        INFO(name);
        const TestFolder folder;
        const std::string file = folder.file("measured.jsonl");
        check_ends_well(
            measure(file, {"--strategy", name, "--rounds", "1", "--protocols", "steps"}));
        const std::vector<Json> records = records_in(file);
        REQUIRE(records.size() >= 2);
        CHECK(records.back()["kind"] == "step");
        CHECK(records.back()["strategy"] == name);
    }
}

TEST_CASE("paths may be relative and hold spaces") {
    const TestFolder folder;
    std::filesystem::copy(two_buckets, folder.file("two buckets.json"));
    check_ends_well(Words{BUCKETWISE_BINARY, "measure", "two buckets.json", "-o", "to here.jsonl",
                          "--rounds", "1"} +
                        one_item,
                    {.variables = {{"TMPDIR", "."}}, .folder = folder.path()});
    check_complete(folder.file("to here.jsonl"), 1, 1);
}

// --- processes that die, stop and are interrupted ------------------------------------------------

TEST_CASE("a rank that is killed is named, and what was measured is kept") {
    LongRun run;
    const auto begin = std::chrono::steady_clock::now();
    ::kill(run.ranks[1].number, SIGKILL);
    CHECK(run.wait() == 1);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60));  // the deadline
    check_one_line(run.launcher.errors());
    CHECK_THAT(run.launcher.errors(), Contains("rank 1 was killed by signal 9 (Killed)") &&
                                          Contains(run.file() + " keeps what was measured"));
    CHECK(run.launcher.output().empty());
    run.check_what_is_left();
}

TEST_CASE("a rank that is stopped is named after the deadline") {
    LongRun run({"--deadline", "6"});  // enough to get that far under sanitizers
    ::kill(run.ranks[1].number, SIGSTOP);
    CHECK_THAT(run.failure(), Contains("rank 1 was stopped by signal 19"));
    run.check_what_is_left();
}

TEST_CASE("who interrupts a run learns that the file keeps what was measured") {
    const auto [signal, name] = GENERATE(table<int, std::string>(
        {{SIGINT, "signal 2 (Interrupt)"}, {SIGTERM, "signal 15 (Terminated)"}}));
    LongRun run;
    run.launcher.send(signal);
    CHECK_THAT(run.failure(), Contains("interrupted by " + name) &&
                                  Contains(run.file() + " keeps what was measured"));
    run.check_what_is_left();
}

TEST_CASE("when the launcher is killed its ranks end, and --resume goes on with the file") {
    LongRun run;
    run.launcher.send(SIGKILL);
    CHECK(run.launcher.wait() == 128 + SIGKILL);
    for (const ProcessId& rank : run.ranks) {
        CHECK(wait_until([&] { return !is_alive(rank); }));
    }
    // The folder where the ranks met is gone.
    CHECK(wait_until([&] { return run.files_left() == 1; }));
    const std::string left = text_of_file(run.file());
    const std::string whole = left.substr(0, left.rfind('\n') + 1);
    write_file(run.file(), whole);
    const std::int64_t rounds = rounds_in(run.file()) + 2;
    write_file(run.file(), left);
    check_ends_well(
        measure(run.file(), one_item + Words{"--rounds", std::to_string(rounds), "--resume"}));
    CHECK_THAT(text_of_file(run.file()), StartsWith(whole));
    check_complete(run.file(), rounds, 1);
}

TEST_CASE("nothing but the file is left when the launcher and its ranks are killed at once") {
    LongRun run;
    for (const ::pid_t process : {run.ranks[0].number, run.launcher.pid(), run.ranks[1].number}) {
        ::kill(process, SIGKILL);
    }
    CHECK(run.launcher.wait() == 128 + SIGKILL);
    CHECK(wait_until([&] { return run.files_left() == 1; }));
}

// --- what is full or goes away ---

// A file system of `bytes`, as long as this lives. Takes root.
class SmallDisk {
  public:
    explicit SmallDisk(const std::string& bytes)
        : mounted_(::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0,
                           ("size=" + bytes).c_str()) == 0) {}
    ~SmallDisk() {
        if (mounted_) {
            ::umount2(folder_.path().c_str(), MNT_DETACH);
        }
    }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    [[nodiscard]] bool is_mounted() const { return mounted_; }
    [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

  private:
    TestFolder folder_;
    bool mounted_;
};

// Somebody else's change to the file of a run.
struct Meddling {
    const char* name;
    std::function<void(const std::string& file, const std::string& renamed)> act;
    std::string says;              // of the file
    std::string left;              // in the file afterwards; "...": at its end
    bool is_kept_renamed = false;  // the records are in the renamed file, and the error says so
};

TEST_CASE("a run whose file others change ends and says what became of it, and leaves theirs") {
    const std::string mine = "mine, and without an end";
    const auto rename = [](const std::string& file, const std::string& renamed) {
        std::filesystem::rename(file, renamed);
    };
    const auto put_mine = [&](const std::string& file) {
        write_file(file + ".mine", mine);
        std::filesystem::rename(file + ".mine", file);
    };
    const std::vector<Meddling> all{
        {"removed", [](auto& file, auto&) { std::filesystem::remove(file); }, "was removed", ""},
        {"changed", [&](auto& file, auto&) { write_file(file, mine); }, "was changed", mine},
        {"appended to", [&](auto& file, auto&) { std::ofstream(file, std::ios::app) << mine; },
         "was changed", "..." + mine},
        {"renamed", rename, "was renamed to ", "", true},
        {"renamed and replaced",
         [&](auto& file, auto& renamed) {
             rename(file, renamed);
             put_mine(file);
         },
         "was renamed to ", mine, true},
        {"replaced", [&](auto& file, auto&) { put_mine(file); },
         "was replaced by another file while it was being written, and what had been measured is "
         "gone with it",
         mine}};
    const std::size_t which = GENERATE(range(std::size_t{0}, std::size_t{6}));
    const Meddling& meddling = all[which];
    INFO(meddling.name);
    LongRun run;
    const std::string renamed = run.folder.file("renamed.jsonl");
    meddling.act(run.file(), renamed);
    const std::string error = run.failure();
    CHECK_THAT(error, Contains(run.file() + ": " + meddling.says));
    if (meddling.is_kept_renamed) {
        CHECK_THAT(error, Contains("was renamed to " + renamed) &&
                              Contains("; " + renamed + " keeps what was measured") &&
                              !Contains("--resume"));
        CHECK(records_in(renamed).size() >= 5);
    } else if (!meddling.left.starts_with("...")) {
        CHECK_THAT(error, !Contains("keeps what was measured"));
    }
    const std::string text = text_of_file(run.file());
    if (meddling.left.starts_with("...")) {
        CHECK_THAT(text, Catch::Matchers::EndsWith(mine));
    } else {
        CHECK(text == meddling.left);
    }
}

TEST_CASE("who interrupts a run whose file was renamed learns where it is") {
    // The rank that would notice is stopped: the launcher does.
    LongRun run;
    ::kill(run.ranks[0].number, SIGSTOP);
    REQUIRE(wait_until([&] {
        const auto state = state_of(run.ranks[0].number);
        return state && state->letter == 'T';
    }));
    const std::string renamed = run.folder.file("renamed.jsonl");
    std::filesystem::rename(run.file(), renamed);
    run.launcher.send(SIGINT);
    CHECK_THAT(run.failure(), Contains("; " + renamed + " keeps what was measured"));
}

// --- a run that fails before it has measured anything ---

// A folder for temporary files that does not exist.
class NoTemporaryFiles {
  public:
    [[nodiscard]] Surroundings surroundings() const {
        return {.variables = {{"TMPDIR", folder_.file("none")}}};
    }

  private:
    TestFolder folder_;
};

TEST_CASE("a run that fails before its first record leaves nothing behind") {
    const TestFolder folder;
    const std::string file = folder.file("measured.jsonl");
    CHECK_THAT(check_fails(2, run(measure(file, one_item), NoTemporaryFiles().surroundings())),
               Contains("TMPDIR"));
    CHECK_FALSE(std::filesystem::exists(file));
    // An empty file stays.
    write_file(file, "");
    CHECK(run(measure(file, one_item), NoTemporaryFiles().surroundings()).exit_code == 2);
    CHECK(std::filesystem::exists(file));
}

TEST_CASE("a run whose folder for temporary files is full leaves nothing behind") {
    // Room for no folder, and for a folder but nothing in it.
    const std::string room = GENERATE("4k,nr_inodes=1", "4k");
    INFO(room);
    const SmallDisk disk(room);
    if (!disk.is_mounted()) {
        WARN("skipped: needs root");
        return;
    }
    std::ofstream(disk.file("full")) << std::string(4096, 'x');
    const TestFolder folder;
    const std::string file = folder.file("measured.jsonl");
    CHECK_THAT(check_fails(1, run(measure(file, one_item + Words{"--deadline", "5"}),
                                  {.variables = {{"TMPDIR", disk.file("")}}})),
               Contains(disk.file("")));
    CHECK_FALSE(std::filesystem::exists(file));
    const std::filesystem::directory_iterator left(disk.file(""));
    CHECK(std::distance(begin(left), end(left)) <= 1);
}

TEST_CASE("who interrupts a run before its first record finds nothing, and begins again") {
    const TestFolder folder;
    const std::string file = folder.file("measured.jsonl");
    const Words words = measure(file, one_item + Words{"--rounds", "2"});
    // Ranks are stopped before they have met. Where the test was too late for that, once more.
    constexpr int attempts = 20;
    bool caught = false;
    for (int attempt = 0; attempt < attempts && !caught; ++attempt) {
        std::filesystem::remove(file);
        Process launcher(words);
        REQUIRE(wait_until(
            [&] { return ranks_of(launcher.pid()).size() == 2 || launcher.has_ended(); }));
        for (const ProcessId& rank : ranks_of(launcher.pid())) {
            ::kill(rank.number, SIGSTOP);
        }
        caught = lines_in(file) == 0 && !launcher.has_ended();
        launcher.send(SIGINT);
        const int exit_code = launcher.wait();
        caught = caught && lines_in(file) == 0;
        if (caught) {
            CHECK(exit_code == 1);
            check_one_line(launcher.errors());
            CHECK_THAT(launcher.errors(), Contains("interrupted by signal 2 (Interrupt)") &&
                                              !Contains("keeps what was measured"));
            CHECK_FALSE(std::filesystem::exists(file));
        }
    }
    REQUIRE(caught);
    check_ends_well(words);
    check_complete(file, 2, 1);
}

TEST_CASE("a full disk ends the run with the file's name, and whole lines stay") {
    const SmallDisk disk("16k");
    if (!disk.is_mounted()) {
        WARN("skipped: needs root");
        return;
    }
    const std::string file = disk.file("measured.jsonl");
    const Outcome outcome = run(measure(file, one_item + Words{"--rounds", "100000"}));
    CHECK(outcome.exit_code == 1);
    check_one_line(outcome.errors);
    CHECK_THAT(outcome.errors, Contains(file + ": cannot write: No space left on device"));
    CHECK(outcome.output.empty());
    CHECK(records_in(file).size() >= 5);
}

using Variables = std::map<std::string, std::string>;

// A launcher's variables; R stands for the rank and N for the number of ranks.
Variables with_rank(Variables variables, int rank, int ranks) {
    for (auto& [name, value] : variables) {
        value = value == "R" ? std::to_string(rank) : value == "N" ? std::to_string(ranks) : value;
    }
    return variables;
}

const Variables torchrun{
    {"RANK", "R"}, {"WORLD_SIZE", "N"}, {"LOCAL_RANK", "R"}, {"LOCAL_WORLD_SIZE", "N"}};
const Variables slurm{{"SLURM_PROCID", "R"},         {"SLURM_LOCALID", "R"},
                      {"SLURM_STEP_NUM_TASKS", "N"}, {"SLURM_STEP_TASKS_PER_NODE", "N"},
                      {"SLURM_NODEID", "0"},         {"SLURM_JOB_ID", "7"},
                      {"SLURM_STEP_ID", "0"}};
const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "R"},
                         {"OMPI_COMM_WORLD_SIZE", "N"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "R"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "N"},
                         {"PMIX_NAMESPACE", "job@1"}};

Variables torchrun_variables(int rank, int ranks) {
    return with_rank(torchrun, rank, ranks);
}

TEST_CASE("a rank that waits in a store that is removed says so") {
    const TestFolder folder;
    const std::string store = folder.file("store");
    std::filesystem::create_directory(store);
    const auto begin = std::chrono::steady_clock::now();
    Process rank(measure(folder.file("measured.jsonl"),
                         one_item + Words{"--store", store, "--deadline", "1000"}),
                 {.variables = torchrun_variables(0, 2)});
    REQUIRE(wait_until([&] { return !std::filesystem::is_empty(store); }));
    std::filesystem::remove_all(store);
    CHECK(rank.wait() == 1);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(1000));
    check_one_line(rank.errors());
    CHECK_THAT(rank.errors(), Contains(store));
}

TEST_CASE("the launcher's own store can be removed at any time, and is gone in the end") {
    const std::size_t lines = GENERATE(as<std::size_t>{}, 0, 2);
    INFO("after " << lines << " lines");
    const TestFolder folder;
    const TestFolder temporary;
    const std::string file = folder.file("measured.jsonl");
    Process launcher(measure(file, one_item + Words{"--rounds", "20"}),
                     {.variables = {{"TMPDIR", temporary.path()}}});
    REQUIRE(wait_until([&] {
        return launcher.has_ended() ||
               (!std::filesystem::is_empty(temporary.path()) && lines_in(file) >= lines);
    }));
    // Ranks may be writing into it.
    REQUIRE(wait_until([&] {
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(temporary.path(), error)) {
            std::filesystem::remove_all(entry.path(), error);
        }
        return !error && std::filesystem::is_empty(temporary.path());
    }));
    const int exit_code = launcher.wait();
    if (exit_code == 0) {
        check_complete(file, 20, 1);
    } else {
        CHECK(exit_code == 1);
        check_one_line(launcher.errors());
        CHECK_THAT(launcher.errors(), Contains(temporary.path()));
    }
    CHECK(std::filesystem::is_empty(temporary.path()));
}

// --- ranks that others start ---

TEST_CASE("ranks that torchrun, srun or mpirun started meet, and the first alone writes") {
    const Variables variables = GENERATE(torchrun, slurm, open_mpi);
    const TestFolder folder;
    const TestFolder store;
    const auto command = [&](int rank) {
        return measure(folder.file(std::to_string(rank) + ".jsonl"),
                       {"--rounds", "2", "--protocols", "steps,allreduce", "--strategy", "flat",
                        "--bytes", "4KiB", "--store", store.path()});
    };
    Process first(command(0), {.variables = with_rank(variables, 0, 2)});
    Process second(command(1), {.variables = with_rank(variables, 1, 2)});
    CHECK(first.wait() == 0);
    CHECK(second.wait() == 0);
    CHECK(first.errors().empty());
    CHECK(second.errors().empty());
    CHECK_THAT(first.output(), Contains("spread"));
    CHECK(second.output().empty());
    check_complete(folder.file("0.jsonl"), 2, 2);
    CHECK(records_in(folder.file("0.jsonl")).front()["ranks"] == 2);
    CHECK_FALSE(std::filesystem::exists(folder.file("1.jsonl")));
}

TEST_CASE("ranks that were started with different things say so") {
    const auto& [option, value] =
        GENERATE(table<std::string, std::string>({{"--rounds", "3"},
                                                  {"--seed", "2"},
                                                  {"--all-reduce", "ring"},
                                                  {"--set", "/workload/gradients/0/numel=1000"}}));
    INFO(option);
    const TestFolder folder;
    const TestFolder store;
    const std::string file = folder.file("measured.jsonl");
    const Words command = measure(file, one_item + Words{"--store", store.path()});
    Process first(command, {.variables = torchrun_variables(0, 2)});
    Process second(command + Words{option, value}, {.variables = torchrun_variables(1, 2)});
    CHECK(second.wait() == 1);
    check_one_line(second.errors());
    const std::string named = option == "--set" ? "scenario" : option;
    CHECK_THAT(second.errors(), Contains("another " + named + " than rank 0"));
    CHECK(first.wait() == 1);
    CHECK(text_of_file(file).empty());
}

TEST_CASE("a rank that others started does not mix its measurements with earlier ones") {
    const TestFolder folder;
    const TestFolder store;
    const std::string file = folder.file("measured.jsonl");
    write_file(file, "{}\n");
    check_fails(2, run(measure(file, one_item + Words{"--store", store.path()}),
                       {.variables = torchrun_variables(0, 1)}));
    CHECK(text_of_file(file) == "{}\n");
}

// --- going on with an earlier run ---

// A file of one round.
class MeasuredOnce {
  public:
    MeasuredOnce() { check_ends_well(measure(file(), options())); }
    [[nodiscard]] std::string file() const { return folder_.file("measured.jsonl"); }
    [[nodiscard]] static Words options() { return one_item + Words{"--rounds", "1"}; }
    [[nodiscard]] Outcome resume(const Words& more = {}) const {
        return run(measure(file(), options() + Words{"--resume"} + more));
    }

  private:
    TestFolder folder_;
};

TEST_CASE("resuming a complete file measures nothing and leaves what is there") {
    const MeasuredOnce measured;
    const std::string before = text_of_file(measured.file());
    CHECK(measured.resume().exit_code == 0);
    CHECK_THAT(text_of_file(measured.file()), StartsWith(before));
    check_complete(measured.file(), 1, 1);
}

TEST_CASE("a file that another run has left is not gone on with") {
    const MeasuredOnce measured;
    const std::string before = text_of_file(measured.file());
    const std::vector<std::pair<Words, std::string>> changes{
        {{"--seed", "2"}, "/seed"},
        {{"--ranks", "3"}, "/ranks"},
        {{"--set", "/workload/forward_ms=2"}, "/scenario"},
        {{"--link-rate", "1gbit"}, "/link_rate"},
        {{"--all-reduce", "direct"}, "/algorithm"},
        {{"--all-reduce", "ring"}, "/implementation"}};
    for (const auto& [options, key] : changes) {
        const Outcome outcome = measured.resume(options);
        CHECK(outcome.exit_code == 2);
        check_one_line(outcome.errors);
        CHECK_THAT(outcome.errors, Contains(measured.file() + ": " + key + ":"));
        CHECK(text_of_file(measured.file()) == before);
    }
}

TEST_CASE("resuming drops a torn last line") {
    const MeasuredOnce measured;
    const std::string before = text_of_file(measured.file());
    write_file(measured.file(), before + R"({"kind":"step","round)");
    CHECK(measured.resume().exit_code == 0);
    CHECK_THAT(text_of_file(measured.file()), StartsWith(before));
    check_complete(measured.file(), 1, 1);
}

TEST_CASE("resuming begins where an earlier run ended before its first line was whole") {
    const MeasuredOnce measured;
    const std::string whole = text_of_file(measured.file());
    const std::size_t first_line = whole.find('\n');
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{15},
                                    std::size_t{40}, first_line / 2, first_line}) {
        INFO(bytes << " of the first line's " << first_line << " bytes");
        write_file(measured.file(), whole.substr(0, bytes));
        const Outcome outcome = measured.resume();
        INFO(outcome.errors);
        CHECK(outcome.exit_code == 0);
        check_complete(measured.file(), 1, 1);
    }
}

TEST_CASE("resuming does not take a record of something else for a torn beginning") {
    const MeasuredOnce measured;
    const std::string whole = text_of_file(measured.file());
    const std::size_t begin = whole.find(R"({"algorithm":"ring","backend":"gloo","bucket_bytes":)");
    REQUIRE(begin != std::string::npos);
    const std::string record = whole.substr(begin, whole.find('\n', begin) - begin);
    write_file(measured.file(), record);
    const Outcome outcome = measured.resume();
    CHECK(outcome.exit_code == 2);
    check_one_line(outcome.errors);
    CHECK(text_of_file(measured.file()) == record);
}

TEST_CASE("resuming a file cut between two ranks' lines measures every rank once") {
    const TestFolder folder;
    const std::string file = folder.file("measured.jsonl");
    const Words words = measure(file, {"--protocols", "compute", "--rounds", "2", "--ranks", "3"});
    check_ends_well(words);
    const std::string whole = text_of_file(file);
    // The environment and three ranks in each of two rounds.
    REQUIRE(lines_in(file) == 7);
    std::size_t end = 0;
    for (int line = 0; line < 7; ++line) {
        end = whole.find('\n', end) + 1;
        for (const std::size_t torn : {std::size_t{0}, std::size_t{100}}) {
            INFO("after " << line + 1 << " lines and " << torn << " bytes");
            write_file(file, whole.substr(0, end + torn));
            check_ends_well(words + Words{"--resume"});
            check_complete(file, 2, 3);
        }
    }
}

TEST_CASE("resuming refuses a damaged file by its line, and leaves it as it is") {
    const MeasuredOnce measured;
    const std::string good = text_of_file(measured.file());
    const std::string first = good.substr(0, good.find('\n') + 1);
    const std::string step = good.substr(first.size());
    const std::vector<std::pair<std::string, std::string>> damages{
        {first + "{\"kind\":\"st\n" + step, ":2: "},
        {first + "{}\n" + step, ":2: "},
        {first + step + "{\"kind\":\"lunch\"}\n", ":3: "},
        {step + first, ": expected measurements to resume, an environment first"},
        {"one torn line that this program may not have written", ": "},
        {R"({"algorithm":"ring","name":"a link without an end","segm)", ": "},
        {"\n\n", ": "},
        {text_of_file(two_buckets), ":1: "}};
    for (const auto& [text, place] : damages) {
        INFO(text);
        write_file(measured.file(), text);
        const Outcome outcome = measured.resume();
        CHECK(outcome.exit_code == 2);
        check_one_line(outcome.errors);
        CHECK_THAT(outcome.errors, StartsWith("bucketwise: " + measured.file() + place));
        CHECK(text_of_file(measured.file()) == text);
    }
}

TEST_CASE("two runs do not write to one file") {
    LongRun running;
    CHECK_THAT(check_fails(1, run(measure(running.file(),
                                          one_item + Words{"--rounds", "100000", "--resume"}))),
               Contains(running.file() + ": another run is writing to it"));
    running.launcher.send(SIGTERM);
    CHECK(running.wait() == 1);
    const std::vector<Json> records = records_in(running.file());
    CHECK(std::count_if(records.begin(), records.end(),
                        [](const Json& r) { return r["kind"] == "environment"; }) == 1);
}

// --- wrong use ---

void check_bad_use(const Words& words, const Surroundings& surroundings = {}) {
    std::string typed;
    for (const std::string& word : words) {
        typed += word + " ";
    }
    INFO(typed);
    check_fails(2, run(words, surroundings));
}

TEST_CASE("wrong use of measure ends with 2 and one line, and no file is made") {
    const TestFolder folder;
    const std::string file = folder.file("never.jsonl");
    for (const Words& options : std::vector<Words>{{"--backend", "mpi"},
                                                   {"--ranks", "0"},
                                                   {"--ranks", "251"},
                                                   {"--ranks", "x"},
                                                   {"--ranks", "-1"},
                                                   {"--rounds", "0"},
                                                   {"--protocols", "steps,lunch"},
                                                   {"--protocols", ""},
                                                   {"--all-reduce", "gossip"},
                                                   {"--link-rate", "fast"},
                                                   {"--link-rate", "1"},
                                                   {"--bytes", "4"},
                                                   {"--bytes", "1MiB,"},
                                                   {"--bytes", "6B"},  // float32 takes 4 each
                                                   {"--bucket-cap", "1MiB", "--strategy", "flat"},
                                                   {"--bucket-cap", "0MiB"},
                                                   {"--deadline", "nan"},
                                                   {"--deadline", "0"},
                                                   {"--seed", "-1"},
                                                   {"--strategy", "fastest"},
                                                   {"--store", folder.path()},
                                                   {"--interface", "lo"},
                                                   {"--resume"},
                                                   {"--no-such-option"},
                                                   {"another.json"}}) {
        check_bad_use(measure(file, options));
        CHECK_FALSE(std::filesystem::exists(file));
    }
    check_bad_use({BUCKETWISE_BINARY, "measure"});
    check_bad_use({BUCKETWISE_BINARY, "measure", "-o", file});
    check_bad_use({BUCKETWISE_BINARY, "measure", two_buckets});
    check_bad_use({BUCKETWISE_BINARY, "measure", folder.file("nothing.json"), "-o", file});
    check_bad_use({BUCKETWISE_BINARY, "measure", "/dev/null", "-o", file});
    const std::string damaged = folder.file("damaged.json");
    write_file(damaged, text_of_file(two_buckets).substr(0, 100));
    check_bad_use({BUCKETWISE_BINARY, "measure", damaged, "-o", file});
    auto third_of_two = torchrun_variables(2, 2);
    check_bad_use(measure(file, {"--store", folder.path()}), {.variables = third_of_two});
    check_bad_use(measure(file, {}), {.variables = {{"RANK", "2"}, {"WORLD_SIZE", "2"}}});
    check_bad_use(measure(file, {}), {.variables = torchrun_variables(0, 2)});  // no --store
    CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("what measurements cannot be written to is refused before anything is measured") {
    const TestFolder folder;
    check_bad_use(measure(folder.path(), one_item));
    check_bad_use(measure(folder.file("no such folder/measured.jsonl"), one_item));
    for (const char* place : {"/dev/null", "/dev/stdout", "-", ""}) {
        check_bad_use(measure(place, one_item));
    }
    const std::string pipe = folder.file("pipe");
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    check_bad_use(measure(pipe, one_item));
    const std::string notes = folder.file("notes");
    write_file(notes, "mine\n");
    check_bad_use(measure(notes, one_item));
    check_bad_use(measure(notes, one_item + Words{"--resume"}));
    CHECK(text_of_file(notes) == "mine\n");
}

TEST_CASE("an interface that does not exist is named") {
    const TestFolder folder;
    const std::string file = folder.file("never.jsonl");
    CHECK_THAT(check_fails(2, run(measure(file, one_item + Words{"--store", folder.path(),
                                                                 "--interface", "nosuch"}),
                                  {.variables = torchrun_variables(0, 1)})),
               Contains("--interface: expected a network interface") && Contains("nosuch"));
    CHECK((!std::filesystem::exists(file) || text_of_file(file).empty()));
}

TEST_CASE("a store that ranks cannot meet in is bad input") {
    const TestFolder folder;
    for (const std::string& store :
         {folder.file("nothing"), std::string("redis://host"), std::string("http://host:1")}) {
        CHECK_THAT(check_fails(2, run(measure(folder.file("never.jsonl"),
                                              one_item + Words{"--store", store}),
                                      {.variables = torchrun_variables(0, 2)})),
                   Contains(store + ": expected "));
    }
}

// --- parameters that are sharded ---

// The records give link and computing, and each setting is predicted with them.
void check_predicted(const TestFolder& folder, const std::string& file, std::size_t settings) {
    const std::string calibrated = folder.file("calibrated.json");
    const std::string compared = folder.file("compared.json");
    check_ends_well({BUCKETWISE_BINARY, "calibrate", file, "-o", folder.file("link.json"),
                     "--scenario-output", calibrated});
    check_ends_well(
        {BUCKETWISE_BINARY, "compare", calibrated, "--measurements", file, "-o", compared});
    const Json comparison = Json::parse(text_of_file(compared));
    CHECK(comparison["points"].size() == settings);
    for (const Json& point : comparison["points"]) {
        CHECK(point["predicted_step_ms"] > 0);
    }
    check_ends_well({BUCKETWISE_BINARY, "check", file, "--max-step", "1000s"});
}

// A sharded scenario, and the file that it is measured into.
struct ShardedRun {
    ShardedRun() { write_file(scenario, sharded_scenario_text); }
    [[nodiscard]] Words measure(const Words& options) const {
        return Words{BUCKETWISE_BINARY, "measure", scenario, "-o", file} + options;
    }

    TestFolder folder;
    std::string scenario = folder.file("sharded.json");
    std::string file = folder.file("measured.jsonl");
};

TEST_CASE("settings of a sharded step are measured side by side, and what they send") {
    const ShardedRun sharded;
    const TestFolder& folder = sharded.folder;
    const std::string& file = sharded.file;
    const Words words = sharded.measure({"--sharding", "1,2/keep,2,all,3", "--bytes", "4KiB,1MiB"});
    const std::string outcome = check_ends_well(run(words + Words{"--rounds", "2"}));
    CHECK_THAT(outcome, Contains("all-gather alone") && Contains("reduce-scatter alone") &&
                            Contains("2 layers, kept, async") && Contains("every sum is right"));
    // Two all-gathers, two reduce-scatters, a line of compute from each rank, contention with an
    // all-gather; the scenario's own setting, which is 1, two layers both ways, and all, which
    // is 3.
    check_complete(file, 2, 2 + 2 + 2 + 1 + 4);
    for (const Json& record : records_in(file)) {
        if (record["kind"] == "step") {
            // Two gathers of each group but for the root, which stays with kept ones.
            const Json& sharding = record["sharding"];
            const std::int64_t groups = sharding["layers_per_group"] == 1   ? 3
                                        : sharding["layers_per_group"] == 2 ? 2
                                                                            : 1;
            const std::int64_t gathered = sharding["reshard_after_forward"] == true ? 2 : 1;
            CHECK(std::ssize(record["collective_end_us"]) == 2 + (gathered + 1) * groups);
        }
    }
    check_ends_well(words + Words{"--rounds", "3", "--resume"});
    check_complete(file, 3, 2 + 2 + 2 + 1 + 4);
    check_predicted(folder, file, 4);
    CHECK(Json::parse(text_of_file(folder.file("calibrated.json")))["workload"]["host_is_device"] ==
          true);
    const std::string compared = check_ends_well(
        run({BUCKETWISE_BINARY, "compare", folder.file("calibrated.json"), "--measurements", file,
             "--details", "--trace", folder.file("t.json")}));
    CHECK_THAT(compared, Contains("2 layers, kept, async") && Contains("What would help"));
    CHECK_THAT(text_of_file(folder.file("t.json")), Contains("measured: rank 0 of 2, medians"));
}

TEST_CASE("replicas of shards are measured, with what each group of ranks exchanges") {
    const ShardedRun sharded;
    const std::string& file = sharded.file;
    const Words words = sharded.measure(
        {"--ranks", "4", "--set", R"(/sync={"strategy": "hsdp", "sharding": {"shard_ranks": 2}})",
         "--sharding", "1,all", "--bytes", "4KiB,64KiB"});
    check_ends_well(words + Words{"--rounds", "1"});
    // Two messages of each kind, a line of compute from each rank, contention with an all-gather,
    // two settings.
    check_complete(file, 1, 2 * 3 + 4 + 1 + 2);
    for (const Json& record : records_in(file)) {
        const std::string kind = record["kind"];
        if (kind == "allgather" || kind == "reducescatter" || kind == "allreduce") {
            CHECK(record["ranks"] == 2);
        } else {
            CHECK(record["ranks"] == 4);
        }
        if (kind == "step" && record["sharding"]["layers_per_group"] == 1) {
            // Three layers are gathered twice and the root once; four are reduced, among two ranks
            // and then between both replicas.
            CHECK(std::ssize(record["collective_end_us"]) == 2 * 3 + 1 + 2 * 4);
        }
    }
    check_ends_well(words + Words{"--rounds", "2", "--resume"});
    check_complete(file, 2, 2 * 3 + 4 + 1 + 2);
    check_predicted(sharded.folder, file, 2);
}

TEST_CASE("stage 3 is measured with other numbers of elements that are prefetched") {
    const ShardedRun sharded;
    const TestFolder& folder = sharded.folder;
    const std::string& file = sharded.file;
    const Words words = sharded.measure({"--set",
                                         R"(/sync={"strategy": "zero3", "sharding": {)"
                                         R"("param_persistence_threshold": 30, )"
                                         R"("prefetch_bucket_size": 0}})",
                                         "--bytes", "4KiB,64KiB"});
    const std::string outcome =
        check_ends_well(run(words + Words{"--rounds", "1", "--sharding", "35,all"}));
    CHECK_THAT(outcome, Contains("stage3_prefetch_bucket_size 0,") &&
                            Contains("stage3_prefetch_bucket_size 35,") &&
                            Contains("every sum is right"));
    check_predicted(folder, file, 3);
    // Settings whose collectives are alike are measured once.
    const std::string once = folder.file("once.jsonl");
    check_ends_well({BUCKETWISE_BINARY, "measure", sharded.scenario, "-o", once, "--set",
                     R"(/sync={"strategy": "zero3", "sharding": {"prefetch_bucket_size": 0}})",
                     "--sharding", "1,2", "--rounds", "1", "--bytes", "4KiB,64KiB"});
    const std::vector<Json> records = records_in(once);
    CHECK(std::ranges::count(records, Json("step"), [](const Json& r) { return r["kind"]; }) == 1);
    for (const std::string setting : {"1/keep", "few"}) {
        check_bad_use(words + Words{"--sharding", setting});
    }
}

TEST_CASE("what real ranks cannot shard is refused by name") {
    const ShardedRun sharded;
    const std::string& file = sharded.file;
    for (const Words& options :
         std::vector<Words>{{"--ranks", "1"},
                            {"--bucket-cap", "1MiB"},
                            {"--bytes", "4KiB", "--ranks", "3"},  // 4096 is no multiple of 12
                            {"--sharding", "1,some"},
                            {"--sharding", ""}}) {
        check_bad_use(sharded.measure(options));
    }
    check_bad_use(measure(file, {"--sharding", "1"}));
    CHECK_FALSE(std::filesystem::exists(file));
}

TEST_CASE("steps that real ranks cannot run are refused by name") {
    const TestFolder folder;
    const std::string file = folder.file("trained.json");
    Json scenario = Json::parse(R"({
        "name": "trained",
        "workload": {"model": {"family": "gpt2", "layers": 1, "hidden": 8, "feed_forward": 8,
                               "heads": 1, "vocabulary": 8, "context": 4},
                     "batch": 1, "sequence_length": 4, "device": "H100"},
        "cluster": {"ranks": 2, "link": {"name": "some", "algorithm": "ring",
                    "segments": [{"latency_us": 20, "bandwidth_gb_per_s": 1}]}},
        "sync": {"strategy": "ddp"}, "step": {"clip_gradients": true}})");
    const std::string output = folder.file("measurements.jsonl");
    const auto errors = [&] {
        write_file(file, scenario.dump());
        const Outcome outcome =
            run({BUCKETWISE_BINARY, "measure", file, "--backend", "gloo", "-o", output});
        CHECK(outcome.exit_code == 2);
        CHECK_FALSE(std::filesystem::exists(output));
        return outcome.errors;
    };
    CHECK_THAT(errors(), Contains("/step/clip_gradients: expected false"));
    scenario["step"] = {{"one_hardware_queue", true}};
    CHECK_THAT(errors(), Contains("/step/one_hardware_queue: expected false"));
    scenario.erase("step");
    scenario["workload"]["arithmetic"] = "float8_rowwise";
    CHECK_THAT(errors(), Contains("/workload/arithmetic: expected 16 bits or more"));
}

// --- what a machine lacks ---

// Runs words in namespaces of their own, in a shell that makes the machine lack something. Nothing
// where this process may not have such namespaces, or the machine cannot be made so.
std::optional<Outcome> run_where(const std::string& namespaces, const std::string& preparation,
                                 const Words& words, const Surroundings& surroundings = {}) {
    const std::string shell =
        "exec 3>&2 2>/dev/null; " + preparation + " || exit 99; exec 2>&3 \"$@\"";
    const Outcome outcome =
        run(Words{"unshare", namespaces, "/bin/sh", "-c", shell, "sh"} + words, surroundings);
    const bool possible = outcome.exit_code != 99 && !outcome.errors.starts_with("unshare");
    if (!possible) {
        WARN("skipped: may not unshare " << namespaces << ", or " << preparation);
    }
    return possible ? std::optional(outcome) : std::nullopt;
}

TEST_CASE("without loopback the message says that it is down, and how to set it up") {
    const TestFolder folder;
    const auto outcome = run_where("-n", ":", measure(folder.file("measured.jsonl"), one_item));
    if (outcome) {
        CHECK(outcome->exit_code == 1);
        check_one_line(outcome->errors);
        CHECK_THAT(outcome->errors, Contains("cannot listen on 127.0.0.1: "));
        CHECK_THAT(outcome->errors, Contains("ip link set lo up"));
    }
}

TEST_CASE("where ranks cannot meet as TMPDIR is full, the message names it and says what is full") {
    const TestFolder folder;
    const std::string place = folder.file("full");
    REQUIRE(std::filesystem::create_directory(place));
    // A file takes a page of 4096 bytes: none is left, or one for the scenario and none for what
    // ranks tell each other. An inode is the root's and one each folder's and each file's.
    for (const char* options :
         {"nr_inodes=1", "nr_inodes=3", "nr_inodes=4", "nr_inodes=5", "size=4k", "size=8k"}) {
        INFO(options);
        const auto outcome =
            run_where("-m",
                      fmt::format("mount -t tmpfs -o {} none '{}' && {{ head -c 4096 /dev/zero "
                                  ">'{}/used'; :; }}",
                                  options, place, place),
                      measure(folder.file("measured.jsonl"), one_item + Words{"--rounds", "1"}),
                      {.variables = {{"TMPDIR", place}}});
        if (outcome) {
            CHECK(outcome->exit_code == 1);
            check_one_line(outcome->errors);
            CHECK_THAT(outcome->errors, Contains(place));
            CHECK_THAT(outcome->errors, Contains("No space left on device, or no room for another "
                                                 "file (df and df -i tell which)"));
        }
        std::filesystem::remove(folder.file("measured.jsonl"));
    }
}

TEST_CASE("a TMPDIR that is none is bad input") {
    const TestFolder folder;
    CHECK_THAT(check_fails(2, run(measure(folder.file("measured.jsonl"), one_item),
                                  {.variables = {{"TMPDIR", folder.file("nothing")}}})),
               Contains("TMPDIR: expected a folder for temporary files") &&
                   Contains(folder.file("nothing")));
}

TEST_CASE("a closed stream never takes measurements or messages in another's place") {
    const TestFolder folder;
    const std::string file = folder.file("measured.jsonl");
    const std::string closed = GENERATE("<&-", ">&-", "2>&-", "<&- >&- 2>&-");
    INFO(closed);
    const Words command = measure(file, one_item + Words{"--rounds", "2"});
    check_ends_well(Words{"/bin/sh", "-c", "\"$@\" " + closed, "sh"} + command);
    check_complete(file, 2, 1);
}

// --- a network of each rank's own ---

std::string network_of(const std::string& process) {
    std::error_code ignored;
    return std::filesystem::read_symlink("/proc/" + process + "/ns/net", ignored).string();
}

bool anybody_is_in(const std::set<std::string>& networks) {
    const std::filesystem::directory_iterator processes("/proc");
    return std::any_of(begin(processes), end(processes), [&](const auto& process) {
        return networks.count(network_of(process.path().filename().string())) != 0;
    });
}

// The interfaces of this machine, and what shapes them.
std::string interfaces() {
    return testing::run_in_shell("PATH=$PATH:/usr/sbin:/sbin; ip -o link; tc qdisc show").output;
}

bool can_shape_networks() {
    const TestFolder folder;
    const Outcome outcome = run(measure(folder.file("measured.jsonl"),
                                        one_item + Words{"--rounds", "1", "--link-rate", "1gbit"}));
    const bool lacks = outcome.errors.find("--link-rate needs") != std::string::npos;
    if (lacks) {
        WARN("skipped: " << outcome.errors);
    }
    return !lacks;
}

TEST_CASE("no all-reduce is faster than --link-rate allows, and the machine stays as it was") {
    if (!can_shape_networks()) {
        return;
    }
    const std::string before = interfaces();
    const TestFolder folder;
    const std::string file = folder.file("measured.jsonl");
    check_ends_well(measure(file, {"--protocols", "allreduce", "--bytes", "4MiB", "--rounds", "2",
                                   "--link-rate", "1gbit"}));
    check_complete(file, 2, 1);
    const std::vector<Json> records = records_in(file);
    CHECK(records.front()["link_rate"] == "1gbit");
    for (std::size_t i = 1; i < records.size(); ++i) {
        // In a ring of two each rank sends 2 (p-1)/p = 1 times the message: 2^22 bytes at 125 MB/s
        // take 33.6 ms. An idle link saves less than a tenth of that.
        for (const double sample_us : records[i]["samples_us"]) {
            CHECK(sample_us > 0.9 * 33'554);
        }
    }
    CHECK(interfaces() == before);
}

TEST_CASE("a network of the ranks' own is gone with them, however they end") {
    if (!can_shape_networks()) {
        return;
    }
    const int signal = GENERATE(SIGTERM, SIGKILL);
    const std::string before = interfaces();
    LongRun run({"--link-rate", "1gbit"});
    std::set<std::string> networks;
    for (const ProcessId& rank : run.ranks) {
        networks.insert(network_of(std::to_string(rank.number)));
    }
    CHECK(networks.size() == 2);
    CHECK(networks.count(network_of("self")) == 0);
    CHECK(networks.count("") == 0);
    CHECK(anybody_is_in(networks));
    run.launcher.send(signal);
    if (signal == SIGKILL) {
        run.launcher.wait();
    } else {
        run.wait();
    }
    CHECK(wait_until([&] { return !anybody_is_in(networks); }));
    for (const ProcessId& rank : run.ranks) {
        // A process leaves its network before it has ended.
        CHECK(wait_until([&] { return !is_alive(rank); }));
    }
    for (const std::string& network : networks) {
        CHECK_THAT(text_of_file("/proc/self/mountinfo"), !Contains(network));  // nothing holds it
    }
    CHECK(interfaces() == before);
}

}  // namespace
}  // namespace bucketwise
