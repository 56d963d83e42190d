// The driver of all benches: their shared options, their real ranks, and one printer of rows.
// A bench is a function that fills rows, and a list of columns, which is data.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

#include "cli/ranks/rank_bench.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/option_values.h"
#include "cli/shell/result_table.h"
#include "hw/backend/backend.h"

namespace bucketwise {

// --- options ---

struct BenchOptions {
    std::vector<std::string> command;  // as typed, for the record
    bool simulates = false;
    const Backend* backend = nullptr;  // null: nothing is measured
    BackendRequest request;
    JobNetwork network;
    std::int64_t rounds = 0;
    std::uint64_t seed = 0;
    std::string document;  // the scenario, as in RankJob
};

// How long a rank waits for others where --deadline is left out, and its help text.
constexpr std::chrono::milliseconds standard_deadline{60'000};
inline const std::string deadline_text =
    "seconds that a rank may be silent, or a collective take, before the run fails; default: 60";

// --- the commands ---

// A bench's own options, those that `add` adds, and those that all benches take.
boost::program_options::options_description bench_options(
    const std::vector<OptionText>& own,
    void (*add)(boost::program_options::options_description& options) = nullptr,
    const std::string& deadline = deadline_text);

// Reads the shared options of bench `name`. Real ranks are measured unless --simulate stands
// without
// --backend, or `may_measure` is false; then network options and `measuring` ones are refused.
// Throws InputError and UsageError.
void read_bench(std::string_view name, const CommandLine& line,
                const std::optional<RankIdentity>& identity,
                std::initializer_list<const char*> measuring, BenchOptions& options,
                bool may_measure = true);

RankJob job_of(const BenchOptions& options, std::int64_t ranks);

// Prints what `measure` returns on rank 0, or, where nothing is measured, empty values at once.
template <typename Values, typename Measure, typename Print>
int run_bench(const BenchOptions& options, std::int64_t ranks,
              const std::optional<RankIdentity>& identity, const Measure& measure,
              const Print& print) {
    if (options.backend != nullptr) {
        return run_rank_bench<Values>(job_of(options, ranks), identity, measure, print);
    }
    if (!identity || identity->rank == 0) {
        print(EnvironmentRecord{}, Values{});
    }
    return exit_done;
}

// --- the printer ---

// Cells by name; a name that is missing is an empty cell.
using BenchRow = std::map<std::string, Cell>;

enum class Show : std::uint8_t {
    number,  // the cell itself
    error,   // how much too large it is against another one, as a share
    ratio    // its share of another one
};

struct BenchColumn {
    Column column;
    std::string of = {};  // the cell's name; empty: the column's key
    double factor = 1;
    Show show = Show::number;
    std::string against = {};
    bool always = true;  // else left out where all its cells are empty
};

// An error in percent.
BenchColumn error_column(Column column, std::string of, std::string against);

std::optional<double> number_in(const BenchRow& row, const std::string& name);
std::optional<double> error_in(const BenchRow& row, const std::string& name,
                               const std::string& against);

ResultTable table_of(const std::vector<BenchColumn>& columns, const std::vector<BenchRow>& rows);

// "1 rank", "2 ranks"
std::string text_of_ranks(std::int64_t ranks);

}  // namespace bucketwise
