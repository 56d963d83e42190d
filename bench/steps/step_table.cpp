#include "bench/steps/step_table.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/bench_options.h"
#include "cli/ranks/backends.h"
#include "cli/ranks/rank_job.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/link/link_topology.h"
#include "sim/link/network/topology_cost.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

po::options_description described_options(const StepTable& table) {
    po::options_description options("options", 100);
    add_options(options,
                {{"simulate", "simulate every row; with --backend too, beside what is measured",
                  no_value}});
    add_options(options, table.options);
    add_options(
        options,
        {{"ranks", "how many ranks; default: the scenario's"},
         {"published", "CSV file of the published table, whose rows are shown beside ours"},
         {"rounds", "how often to measure every row, in an order of its own each time", "5"},
         {"steps", "steps of a row in each round, after one that warms up", "4"},
         {"seed", "of the order within each round", "1"},
         {"format", "text, csv or json", "text"}});
    add_backend_options(options);
    add_network_options(options, deadline_text);
    add_scenario_options(options);
    add_options(options, {{"help,h", "show this", no_value}});
    return options;
}

struct Request : VariantRun {
    std::string file;
    Scenario scenario;
    std::vector<StepVariant> variants;
    bool simulates = false;
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

// The rows say how gradients are synchronised, and a simulation asks nothing of real ranks.
void refuse_options_without_effect(const StepTable& table, const po::variables_map& values,
                                   bool measures) {
    if (values.count("strategy") != 0) {
        throw UsageError{fmt::format(
            "bench {}: expected no --strategy, as the rows have strategies of their own",
            table.name)};
    }
    const auto option =
        first_typed(values, {"share-gpu", "ctas", "link-rate", "deadline", "store", "interface"});
    if (!measures && option) {
        throw UsageError{
            fmt::format("bench {}: expected --backend beside --simulate and --{}, as only real "
                        "ranks have that",
                        table.name, *option)};
    }
}

// Throws InputError for one that lacks what the rows are found by, or a number of theirs.
CsvFile published_table(const StepTable& table, const std::string& path) {
    check_can_be_read_again(path);
    CsvFile file = CsvFile::read(path);
    std::vector<std::string> needed = transformed(table.keys, &Column::key);
    for (const StepColumn& column : table.columns) {
        if (column.is_published) {
            needed.push_back(column.column.key);
        }
    }
    file.require_columns(needed);
    return file;
}

Request read_request(const StepTable& table, const po::variables_map& values,
                     const std::optional<RankIdentity>& identity) {
    Request request;
    request.file = scenario_file(values, fmt::format("bench {}", table.name));
    request.simulates = values.count("simulate") != 0;
    const bool measures = is_measured(values);
    refuse_options_without_effect(table, values, measures);
    const Json document = scenario_for_ranks(values, identity, request.file);
    request.document = document.dump();
    request.scenario = parse_scenario(document, request.file, read_text_file);
    set_ranks(values, identity, measures, request.scenario);
    request.variants = table.variants(values, request.scenario, request.file);
    if (measures) {
        read_job(table.name, values, identity, request);
    }
    request.rounds = whole_number(values, "rounds", {1, 100'000});
    request.steps_per_round = whole_number(values, "steps", {1, 100'000});
    if (measures) {
        request.seed = seed_value(values);
        for (const StepVariant& variant : request.variants) {
            request.backend->check_scenario(variant.scenario, request.file);
        }
    }
    if (values.count("published") != 0) {
        request.published = published_table(table, text_value(values, "published"));
    }
    request.format = choice_value(values, "format", every<TableFormat>);
    return request;
}

// --- rows ---

// One source's samples of every variant.
struct Source {
    bool is_simulated = false;
    std::vector<StepSamples> by_variant;
};

StepNumbers numbers_of(const StepTable& table, const StepSamples& samples, const StepPlace& place) {
    StepNumbers numbers;
    for (const StepColumn& column : table.columns) {
        if (column.number) {
            numbers[column.column.key] = column.number(samples, place);
        }
    }
    return numbers;
}

// Empty where there is no such row.
StepNumbers published_numbers(const StepTable& table, const std::optional<CsvFile>& file,
                              const std::vector<Cell>& cells) {
    TableKeys keys;
    for (std::size_t i = 0; file && i < cells.size(); ++i) {
        keys.emplace_back(table.keys[i].key, cells[i]);
    }
    const auto row = keys.empty() ? std::nullopt : find_row(*file, keys);
    StepNumbers numbers;
    for (const StepColumn& column : table.columns) {
        if (row && column.is_published) {
            numbers[column.column.key] = file->number(*row, column.column.key);
        }
    }
    return numbers;
}

// Published, measured, simulated, as far as they are there.
std::vector<StepRow> rows_of(const StepTable& table, const Request& request,
                             const std::vector<Source>& sources) {
    std::vector<StepRow> rows;
    for (const StepPlace& place : table.places(request.variants)) {
        StepNumbers actual = published_numbers(table, request.published, place.keys);
        if (!actual.empty()) {
            StepNumbers base = published_numbers(table, request.published, place.base_keys);
            rows.push_back({place, "published", actual, base.empty() ? actual : base});
        }
        for (const auto& [is_simulated, by_variant] : sources) {
            StepRow& row = rows.emplace_back(
                StepRow{place, is_simulated ? "simulated" : "measured",
                        numbers_of(table, by_variant[place.variant], place),
                        numbers_of(table, by_variant[place.base_variant], place)});
            if (is_simulated) {
                row.actual = actual;
            } else {
                actual = row.numbers;
            }
        }
    }
    return rows;
}

ResultTable table_of_rows(const StepTable& table, const std::vector<StepRow>& rows) {
    std::vector<ColumnOf<StepRow>> columns;
    for (std::size_t i = 0; i < table.keys.size(); ++i) {
        columns.push_back({table.keys[i], [i](const StepRow& row) { return row.place.keys[i]; }});
    }
    columns.push_back({{.key = "source", .heading = "source"},
                       [](const StepRow& row) { return std::string(row.source); }});
    for (const StepColumn& column : table.columns) {
        const auto number = [key = column.column.key](const StepRow& row) {
            const auto found = row.numbers.find(key);
            return found == row.numbers.end() ? Cell() : Cell(found->second);
        };
        columns.push_back({column.column, column.number ? number : column.derived});
    }
    ResultTable result = table_of(columns, rows);
    if (table.notes) {
        result.notes = table.notes(rows);
    }
    return result;
}

void print_table(const StepTable& table, const Request& request,
                 const EnvironmentRecord* environment, const std::vector<StepSamples>& measured) {
    std::vector<Source> sources;
    Json head{{"table", table.name},
              {"scenario", request.scenario.name},
              {"command", passed_on_command(request.command)},
              {"date", utc_now()}};
    std::string title = fmt::format("{}: {}, {}", table.name, request.scenario.name,
                                    text_of_ranks(request.scenario.group.ranks));
    if (environment != nullptr) {
        sources.push_back({.is_simulated = false, .by_variant = measured});
        title +=
            fmt::format("\nmeasured on {}; {}{}", hardware_of(*environment), environment->libraries,
                        environment->link_rate.empty() ? "" : " at " + environment->link_rate);
        head["environment"] = to_json(*environment);
    }
    if (request.simulates) {
        sources.push_back({.is_simulated = true,
                           .by_variant = transformed(request.variants, [&](const auto& variant) {
                               return simulate_steps(variant,
                                                     request.rounds * request.steps_per_round);
                           })});
        title += fmt::format("\nsimulated with {}", request.scenario.link.name);
        head["link"] = request.scenario.link.name;
    }
    ResultTable result = table_of_rows(table, rows_of(table, request, sources));
    result.title = title;
    write_output("-", render(result, request.format, head));
}

}  // namespace

CommandHelp help_of(const StepTable& table) {
    return {.usage = {fmt::format("bucketwise bench {} SCENARIO [OPTIONS]", table.name)},
            .options = described_options(table),
            .text = table.explanation,
            .values = table.values};
}

int run_step_table(const StepTable& table, const CommandLine& line) {
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    Request request = read_request(table, line.values, identity);
    request.command = bench_command(table.name, line.arguments);
    if (request.backend == nullptr) {
        print_table(table, request, nullptr, {});
        return exit_done;
    }
    if (!identity && request.scenario.group.ranks > most_ranks_here) {
        throw InputError(
            request.file, "/cluster/ranks",
            fmt::format("at most {} ranks on one machine (--ranks says how many)", most_ranks_here),
            std::to_string(request.scenario.group.ranks));
    }
    return run_variants(request.variants, request, identity,
                        [&](const EnvironmentRecord& environment, const auto& measured) {
                            print_table(table, request, &environment, measured);
                        });
}

Cell StepRow::error_percent(const std::string& key) const {
    const auto found = actual.find(key);
    return found == actual.end() ? Cell() : cell_of(error_of(numbers.at(key), found->second), 100);
}

StepColumn ratio_column(Column column, const std::string& part, const std::string& whole) {
    return {.column = std::move(column), .derived = [=](const StepRow& row) -> Cell {
                return row.numbers.at(part) / row.numbers.at(whole);
            }};
}

StepColumn delta_column(Column column, const std::string& of) {
    return {.column = std::move(column), .derived = [=](const StepRow& row) {
                return cell_of(error_of(row.numbers.at(of), row.base.at(of)), 100);
            }};
}

StepColumn error_column(Column column, const std::string& of) {
    return {.column = std::move(column),
            .derived = [=](const StepRow& row) { return row.error_percent(of); }};
}

}  // namespace bucketwise
