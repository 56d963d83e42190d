#include "bench/steps/step_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/link/link_topology.h"
#include "sim/link/network/topology_cost.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

struct Request : BenchOptions {
    Scenario scenario;
    StepCases cases;
    std::int64_t steps = 1;  // of a variant in each round
    std::optional<CsvFile> published;
    TableFormat format = TableFormat::text;
};

void set_ranks(const po::variables_map& values, const std::optional<RankIdentity>& identity,
               bool measures, Scenario& scenario) {
    const auto ranks =
        requested_ranks(values, identity, measures ? most_ranks_here : std::int64_t{1'000'000});
    if (!ranks) {
        return;
    }
    const bool foreign = identity && !is_own_rank(identity);
    scenario.group = {*ranks, foreign ? identity->local_ranks : *ranks};
    if (scenario.link.topology) {
        if (const auto fault = prepare_topology(scenario.link, *ranks)) {
            throw InputError("--ranks", "", fault->expected, fault->got);
        }
    }
}

// Throws InputError for a table without a column that rows are found by, or without their numbers.
CsvFile published_table(const StepTable& table, const std::string& path) {
    check_can_be_read_again(path);
    CsvFile file = CsvFile::read(path);
    std::vector<std::string> needed = transformed(table.keys, &Column::key);
    for (const StepColumn& column : table.columns) {
        if (column.is_published) {
            needed.push_back(column.shown.column.key);
        }
    }
    file.require_columns(needed);
    return file;
}

Request read_request(const StepTable& table, const CommandLine& line,
                     const std::optional<RankIdentity>& identity) {
    const po::variables_map& values = line.values;
    Request request;
    const std::string file = scenario_file(values, fmt::format("bench {}", table.name));
    if (values.count("strategy") != 0) {
        throw UsageError{fmt::format(
            "bench {}: expected no --strategy, as the rows have strategies of their own",
            table.name)};
    }
    read_bench(table.name, line, identity, {}, request);
    const bool measures = request.backend != nullptr;
    const Json document = scenario_for_ranks(values, identity, file);
    request.document = document.dump();
    request.scenario = parse_scenario(document, file, read_text_file);
    set_ranks(values, identity, measures, request.scenario);
    request.cases = table.cases(values, request.scenario, file);
    request.steps = whole_number(values, "steps", {1, 100'000});
    if (measures) {
        for (const StepVariant& variant : request.cases.variants) {
            request.backend->check_scenario(variant.scenario, file);
        }
    }
    if (values.count("published") != 0) {
        request.published = published_table(table, text_value(values, "published"));
    }
    request.format = choice_value(values, "format", every<TableFormat>);
    const std::int64_t ranks = request.scenario.group.ranks;
    if (measures && !identity && ranks > most_ranks_here) {
        throw InputError(
            file, "/cluster/ranks",
            fmt::format("at most {} ranks on one machine (--ranks says how many)", most_ranks_here),
            std::to_string(ranks));
    }
    return request;
}

// --- rows ---

using Numbers = std::map<std::string, double>;  // by column

// Empty where there is no such row.
Numbers published_numbers(const StepTable& table, const CsvFile& file, const StepPlace& place) {
    TableKeys keys;
    for (std::size_t i = 0; i < place.keys.size(); ++i) {
        keys.emplace_back(table.keys[i].key, place.keys[i]);
    }
    Numbers numbers;
    if (const auto row = find_row(file, keys)) {
        for (const StepColumn& column : table.columns) {
            if (column.is_published) {
                numbers[column.shown.column.key] = file.number(*row, column.shown.column.key);
            }
        }
    }
    return numbers;
}

Numbers numbers_of(const StepTable& table, const std::vector<StepSamples>& by_variant,
                   const StepPlace& place) {
    Numbers numbers;
    for (const StepColumn& column : table.columns) {
        if (column.number) {
            numbers[column.shown.column.key] = column.number(by_variant[place.variant], place);
        }
    }
    return numbers;
}

BenchRow row_of(const StepTable& table, const StepPlace& place, const char* source,
                const Numbers& numbers, const Numbers& base, const Numbers& actual = {}) {
    BenchRow row{{"source", std::string(source)}};
    for (std::size_t i = 0; i < place.keys.size(); ++i) {
        row[table.keys[i].key] = place.keys[i];
    }
    row.insert(numbers.begin(), numbers.end());
    for (const auto& [key, number] : base) {
        row["base " + key] = number;
    }
    for (const auto& [key, number] : actual) {
        row["actual " + key] = number;
    }
    return row;
}

// Published, measured, simulated, as far as they are there.
std::vector<BenchRow> rows_of(const StepTable& table, const Request& request,
                              const std::vector<StepSamples>& measured,
                              const std::vector<StepSamples>& simulated) {
    const std::vector<StepPlace>& places = request.cases.places;
    std::vector<BenchRow> rows;
    for (const StepPlace& place : places) {
        const StepPlace& base = places[place.base];
        Numbers actual;
        if (request.published) {
            actual = published_numbers(table, *request.published, place);
            if (!actual.empty()) {
                const Numbers other = published_numbers(table, *request.published, base);
                rows.push_back(
                    row_of(table, place, "published", actual, other.empty() ? actual : other));
            }
        }
        if (!measured.empty()) {
            actual = numbers_of(table, measured, place);
            rows.push_back(
                row_of(table, place, "measured", actual, numbers_of(table, measured, base)));
        }
        if (!simulated.empty()) {
            rows.push_back(row_of(table, place, "simulated", numbers_of(table, simulated, place),
                                  numbers_of(table, simulated, base), actual));
        }
    }
    return rows;
}

void print_table(const StepTable& table, const Request& request,
                 const EnvironmentRecord& environment, const std::vector<StepSamples>& measured) {
    Json head{{"table", table.name},
              {"scenario", request.scenario.name},
              {"command", passed_on_command(request.command)},
              {"date", utc_now()}};
    std::string title = fmt::format("{}: {}, {}", table.name, request.scenario.name,
                                    text_of_ranks(request.scenario.group.ranks));
    if (!measured.empty()) {
        title +=
            fmt::format("\nmeasured on {}; {}{}", hardware_of(environment), environment.libraries,
                        environment.link_rate.empty() ? "" : " at " + environment.link_rate);
        head["environment"] = to_json(environment);
    }
    std::vector<StepSamples> simulated;
    if (request.simulates) {
        simulated = transformed(request.cases.variants, [&](const StepVariant& variant) {
            return simulate_steps(variant, request.rounds * request.steps);
        });
        title += fmt::format("\nsimulated with {}", request.scenario.link.name);
        head["link"] = request.scenario.link.name;
    }
    std::vector<BenchColumn> columns =
        transformed(table.keys, [](const Column& key) { return BenchColumn{key}; });
    columns.push_back({{.key = "source", .heading = "source"}});
    for (const StepColumn& column : table.columns) {
        columns.push_back(column.shown);
    }
    const std::vector<BenchRow> rows = rows_of(table, request, measured, simulated);
    ResultTable result = table_of(columns, rows);
    result.title = title;
    if (table.notes) {
        result.notes = table.notes(rows);
    }
    write_output("-", render(result, request.format, head));
}

}  // namespace

CommandHelp help_of(const StepTable& table) {
    std::vector<OptionText> options{
        {"simulate", "simulate every row; with --backend too, beside measured ranks", no_value}};
    options.insert(options.end(), table.options.begin(), table.options.end());
    options.insert(
        options.end(),
        {{"ranks", "how many ranks; default: the scenario's"},
         {"published", "CSV file of the published table, whose rows are shown beside ours"},
         {"rounds", "how often to measure every row, in an order of its own each time", "5"},
         {"steps", "steps of a row in each round, after one that warms up", "4"},
         {"seed", "of the order within each round", "1"},
         {"format", "text, csv or json", "text"}});
    return {.usage = {fmt::format("bucketwise bench {} SCENARIO [OPTIONS]", table.name)},
            .options = bench_options(options, add_scenario_options),
            .text = table.explanation,
            .values = table.values};
}

int run_step_table(const StepTable& table, const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    const Request request = read_request(table, line, identity);
    return run_bench<std::vector<StepSamples>>(
        request, request.scenario.group.ranks, identity,
        [&](RankSession& session) {
            return measure_steps(request.cases.variants, request.steps,
                                 {.rounds = request.rounds, .seed = request.seed}, session);
        },
        [&](const EnvironmentRecord& environment, const auto& measured) {
            print_table(table, request, environment, measured);
        });
}

StepColumn actual_error(Column column, const std::string& of) {
    return {error_column(std::move(column), of, "actual " + of)};
}

StepColumn base_delta(Column column, const std::string& of) {
    return {error_column(std::move(column), of, "base " + of)};
}

std::vector<double> absolute_errors(const std::vector<BenchRow>& rows, const std::string& key,
                                    const BenchRow& where) {
    std::vector<double> errors;
    for (const BenchRow& row : rows) {
        const auto error = error_in(row, key, "actual " + key);
        if (error && std::ranges::all_of(where, [&](const auto& cell) {
                return row.at(cell.first) == cell.second;
            })) {
            errors.push_back(std::abs(100 * *error));
        }
    }
    return errors;
}

}  // namespace bucketwise
