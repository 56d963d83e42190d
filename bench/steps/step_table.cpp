#include "bench/steps/step_table.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "sim/base/json_output.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

std::vector<std::string> published_numbers(const StepTable& table) {
    std::vector<std::string> keys;
    for (const StepColumn& column : table.columns) {
        if (column.is_published) {
            keys.push_back(column.shown.column.key);
        }
    }
    return keys;
}

BenchRow row_of(const StepTable& table, const StepPlace& place) {
    BenchRow row = Json::object();
    for (std::size_t i = 0; i < place.keys.size(); ++i) {
        row[table.keys[i].key] = place.keys[i];
    }
    return row;
}

// --- the numbers of a source, by place; a place that it lacks is empty ---

BenchRows published_rows(const StepTable& table, const StepCases& cases, const CsvFile& file) {
    const auto keys = transformed(table.keys, &Column::key);
    const std::vector<std::string> numbers = published_numbers(table);
    return transformed(cases.places, [&](const StepPlace& place) {
        BenchRow found = row_of(table, place);
        BenchRow row = Json::object();
        if (add_published(file, keys, numbers, found)) {
            for (const std::string& number : numbers) {
                row[number] = found["published_" + number];
            }
        }
        return row;
    });
}

BenchRows rows_of_samples(const StepTable& table, const StepCases& cases,
                          const std::vector<StepSamples>& by_variant) {
    return transformed(cases.places, [&](const StepPlace& place) {
        BenchRow row = Json::object();
        for (const StepColumn& column : table.columns) {
            if (column.number) {
                row[column.shown.column.key] = column.number(by_variant[place.variant], place);
            }
        }
        return row;
    });
}

// --- the table ---

using Source = std::pair<const char*, BenchRows>;

// Each place as every source has it.
BenchRows rows_of(const StepTable& table, const std::vector<StepPlace>& places,
                  const std::vector<Source>& sources) {
    const auto add = [](const char* prefix, const BenchRow& numbers, BenchRow& row) {
        for (const auto& [key, number] : numbers.items()) {
            row[prefix + key] = number;
        }
    };
    BenchRows rows;
    for (std::size_t i = 0; i < places.size(); ++i) {
        BenchRow actual = Json::object();
        for (const auto& [source, numbers] : sources) {
            if (numbers.empty() || numbers[i].empty()) {
                continue;
            }
            BenchRow& row = rows.emplace_back(row_of(table, places[i]));
            row["source"] = source;
            row.update(numbers[i]);
            const BenchRow& base = numbers[places[i].base];
            add("base ", base.empty() ? numbers[i] : base, row);
            if (std::string_view(source) == "simulated") {
                add("actual ", actual, row);
            }
            actual = numbers[i];
        }
    }
    return rows;
}

std::vector<NamedColumn> columns_of(const StepTable& table) {
    std::vector<NamedColumn> columns =
        transformed(table.keys, [](const Column& key) { return NamedColumn{key}; });
    columns.push_back({{"source", "source"}});
    for (const StepColumn& column : table.columns) {
        columns.push_back(column.shown);
    }
    return columns;
}

int run_step_table(const StepTable& table, StepOptions& o) {
    if (o.changes.strategy) {
        throw UsageError{fmt::format(
            "{}: expected no --strategy, as the rows have strategies of their own", o.name)};
    }
    const Scenario scenario = read_bench_scenario(o);
    const StepCases cases = table.cases(o, scenario);
    for (const StepVariant& variant : cases.variants) {
        if (o.measures) {
            o.job.backend->check_scenario(variant.scenario, o.file);
        }
    }
    const std::optional<CsvFile> published =
        read_published(o, transformed(table.keys, &Column::key), published_numbers(table));
    return run_bench(
        o,
        [&](const RankJob& job, RankSession& session) {
            const auto samples = measure_steps(cases.variants, o.steps, job.order, session);
            return session.is_first() ? rows_of_samples(table, cases, samples) : BenchRows{};
        },
        [&](const EnvironmentRecord* environment, const BenchRows& measured) {
            std::vector<Source> sources;
            if (published) {
                sources.emplace_back("published", published_rows(table, cases, *published));
            }
            sources.emplace_back("measured", measured);
            if (o.simulates) {
                sources.emplace_back(
                    "simulated",
                    rows_of_samples(table, cases,
                                    transformed(cases.variants, [&](const StepVariant& variant) {
                                        return simulate_steps(variant, o.rounds * o.steps);
                                    })));
            }
            const BenchRows rows = rows_of(table, cases.places, sources);
            Json head{{"table", table.name}, {"scenario", scenario.name}};
            add_if(o.simulates, head, "link", scenario.link.name);
            print_report(o, environment,
                         {.title = fmt::format("{}: {}, {}", table.name, scenario.name,
                                               text_of_ranks(o.job.ranks)),
                          .simulated = o.simulates ? scenario.link.name : "",
                          .columns = columns_of(table),
                          .rows = rows,
                          .notes = table.notes ? table.notes(rows) : std::vector<std::string>{},
                          .head = head});
        });
}

}  // namespace

CommandHelp step_table_help(const StepTable& table) {
    const auto o = std::make_shared<StepOptions>();
    std::vector<OptionText> rows{{"simulate",
                                  "simulate every row; with --backend too, beside measured ranks",
                                  o->simulates}};
    std::ranges::move(table.options(*o), std::back_inserter(rows));
    std::ranges::move(
        std::vector<OptionText>{
            ranks_row(*o, "how many ranks; default: the scenario's"),
            published_row(*o),
            rounds_row(*o, "how often to measure every row, in an order of its own each time"),
            {"steps",
             "steps of a row in each round, after one that warms up",
             {o->steps, WholeNumbers{1, 100'000}, "4"}},
            seed_row(*o),
            format_row(o->format)},
        std::back_inserter(rows));
    std::ranges::move(change_rows(*o, {"link", "strategy", "set"}), std::back_inserter(rows));
    CommandHelp help = bench_command(table.name, " SCENARIO", *o, rows, table.text,
                                     [o, table] { return run_step_table(table, *o); });
    help.required = {"scenario"};
    help.wants = "a scenario file or a model's name, got none";
    return help;
}

}  // namespace bucketwise
