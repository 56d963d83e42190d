// The driver of all benches. A bench is a published table: rows, each published, measured on real
// ranks, and simulated. It binds its options, fills rows, and lists its columns as data.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/ranks/backends.h"
#include "cli/ranks/rank_job.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/option_values.h"
#include "cli/shell/result_table.h"
#include "cli/shell/scenario_document.h"
#include "sim/scenario/scenario.h"

namespace bucketwise {

// --- options ---

constexpr WholeNumbers bench_counts{1, 1'000'000};  // rounds, iterations, ranks

// The fields of all benches. A bench adds its own, and binds those that it offers.
struct BenchOptions {
    std::string file;         // the scenario
    ScenarioOptions changes;  // of the scenario; and --ranks
    bool simulates = false;
    bool measures_beside = true;  // --simulate with --backend does both
    BackendOptions backend;
    NetworkOptions network;
    std::int64_t rounds = 1;
    std::uint64_t seed = 0;
    std::optional<std::string> published;
    TableFormat format = TableFormat::text;

    // Found by the driver.
    const CommandLine* line = nullptr;
    std::string name;                      // "bench syncbn"
    std::optional<RankIdentity> identity;  // of this process, if a launcher started it
    bool measures = false;
    RankJob job;
};

// A bench as a command, with `own` rows, then those of real ranks. `arguments`: as --help shows
// them, " SCENARIO"; empty: there are none. `run` finds all fields filled.
CommandHelp bench_command(const char* name, const char* arguments, BenchOptions& options,
                          std::vector<OptionText> own, std::string_view text,
                          const std::function<int()>& run, const std::string& more_deadline = "");

OptionText ranks_row(BenchOptions& options, const std::string& text);
OptionText rounds_row(BenchOptions& options, const std::string& text);
OptionText seed_row(BenchOptions& options,
                    const std::string& text = "of the order within each round");
OptionText published_row(BenchOptions& options);
// The rows that change a scenario in these ways.
std::vector<OptionText> change_rows(BenchOptions& options,
                                    std::initializer_list<std::string_view> names);

// Throws UsageError where one of them was typed, which has no effect `where`.
void refuse_typed(const BenchOptions& options, std::initializer_list<const char*> typed,
                  const char* where);

// --- what a bench reads ---

// The scenario, changed as options and `change` say, for the ranks that run. The job has it, too.
// Throws InputError.
Scenario read_bench_scenario(BenchOptions& options, const std::function<void(Json&)>& change = {});

// The published table, if one was named. Throws InputError where it lacks a column.
std::optional<CsvFile> read_published(const BenchOptions& options,
                                      const std::vector<std::string>& keys,
                                      const std::vector<std::string>& numbers);

// --- rows ---

using BenchRow = NamedRow;
using BenchRows = std::vector<BenchRow>;

// Adds the `numbers` of the first published row whose `keys` are the row's, each as
// "published_NUMBER". The first key, as "published_KEY", is the first of `names` with such a row.
// Empty `names`: the row's own. Returns whether there is one. Throws InputError.
bool add_published(const CsvFile& file, const std::vector<std::string>& keys,
                   const std::vector<std::string>& numbers, BenchRow& row,
                   std::vector<Json> names = {});

// --- the table ---

struct BenchReport {
    std::string title;
    std::string simulated = {};  // the simulated machine; empty: nothing to say
    std::vector<NamedColumn> columns;
    BenchRows rows = {};
    std::vector<std::string> notes = {};
    Json head = Json::object();  // of the JSON, beside those of all benches
};

// Prints it; `environment`: of the ranks that measured, if any did.
void print_report(const BenchOptions& options, const EnvironmentRecord* environment,
                  const BenchReport& report);

// --- running ---

// Prints rank 0's rows of `measure`, or, where nothing is measured, none at once. No `jobs`: the
// options' own is the only one. Returns the exit code.
int run_bench(const BenchOptions& options,
              const std::function<BenchRows(const RankJob& job, RankSession& session)>& measure,
              const std::function<void(const EnvironmentRecord* environment,
                                       const BenchRows& measured)>& print,
              const std::vector<RankJob>& jobs = {});

// "1 rank", "2 ranks"
std::string text_of_ranks(std::int64_t ranks);

}  // namespace bucketwise
