#include "bench/bench.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cli/ranks/rank_bench.h"
#include "cli/shell/files.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

// Real ranks are measured unless --simulate stands without --backend. Throws InputError and
// UsageError.
void read_bench(const char* name, const CommandLine& line, BenchOptions& options) {
    options.line = &line;
    options.name = fmt::format("bench {}", name);
    options.identity = rank_from_environment(environment_variable);
    options.measures =
        !options.simulates || (options.measures_beside && !line.values["backend"].defaulted());
    RankJob& job = options.job;
    job.command = {"bucketwise", "bench", name};
    std::ranges::copy(line.arguments, std::back_inserter(job.command));
    job.order = {.rounds = options.rounds, .seed = options.seed};
    if (!options.measures) {
        refuse_typed(options, {"share-gpu", "ctas", "link-rate", "deadline", "store", "interface"},
                     "where nothing is measured");
        return;
    }
    job.backend = options.backend.backend;
    job.request = options.backend.request;
    job.backend->check(job.request);
    job.network =
        job_network(options.network, options.identity, options.name, std::chrono::minutes{1});
}

}  // namespace

// --- options ---

CommandHelp bench_command(const char* name, const char* arguments, BenchOptions& options,
                          std::vector<OptionText> own, std::string_view text,
                          const std::function<int()>& run, const std::string& more_deadline) {
    std::ranges::move(backend_rows(options.backend), std::back_inserter(own));
    return {.usage = {fmt::format("bucketwise bench {}{} [OPTIONS]", name, arguments)},
            .options = options_of(
                own, network_rows(options.network,
                                  "seconds that a rank may be silent, or a collective take, "
                                  "before the run fails; default: 60" +
                                      more_deadline)),
            .text = text,
            .positional = {.most = *arguments == 0 ? 0 : 1, .value = options.file},
            .run = [name, &options, run](const CommandLine& line) {
                read_bench(name, line, options);
                return run();
            }};
}

OptionText ranks_row(BenchOptions& options, const std::string& text) {
    return {"ranks", text, {options.changes.ranks, bench_counts}};
}

OptionText rounds_row(BenchOptions& options, const std::string& text) {
    return {"rounds", text, {options.rounds, bench_counts, "5"}};
}

OptionText seed_row(BenchOptions& options, const std::string& text) {
    return {"seed", text, {options.seed, read_seed, "1"}};
}

OptionText published_row(BenchOptions& options) {
    return {"published", "CSV file of the published table, whose rows are shown beside ours",
            options.published};
}

std::vector<OptionText> change_rows(BenchOptions& options,
                                    std::initializer_list<std::string_view> names) {
    std::vector<OptionText> rows = scenario_rows(options.changes);
    std::erase_if(rows,
                  [&](const OptionText& row) { return std::ranges::count(names, row.name) == 0; });
    return rows;
}

void refuse_typed(const BenchOptions& options, std::initializer_list<const char*> typed,
                  const char* where) {
    for (const char* option : typed) {
        const auto& values = options.line->values;
        if (values.count(option) != 0 && !values[option].defaulted()) {
            throw UsageError{fmt::format("{0}: --{1} has no effect {2}; see bucketwise {0} --help",
                                         options.name, option, where)};
        }
    }
}

// --- what a bench reads ---

Scenario read_bench_scenario(BenchOptions& options, const std::function<void(Json&)>& change) {
    Json document = options.measures
                        ? scenario_for_ranks(options.changes, options.identity, options.file)
                        : read_simulated_document(options.changes, options.file);
    if (change) {
        change(document);
    }
    options.job.document = document.dump();
    Scenario scenario = parse_scenario(document, options.file, read_text_file);
    options.job.ranks = static_cast<int>(scenario.group.ranks);
    if (options.measures && !options.identity) {
        check_local_ranks(scenario, options.file);
    }
    return scenario;
}

std::optional<CsvFile> read_published(const BenchOptions& options,
                                      const std::vector<std::string>& keys,
                                      const std::vector<std::string>& numbers) {
    if (!options.published) {
        return std::nullopt;
    }
    check_can_be_read_again(*options.published);
    CsvFile file = CsvFile::read(*options.published);
    file.require_columns(keys);
    file.require_columns(numbers);
    return file;
}

// --- rows ---

bool add_published(const CsvFile& file, const std::vector<std::string>& keys,
                   const std::vector<std::string>& numbers, BenchRow& row,
                   std::vector<Json> names) {
    if (names.empty()) {
        names = {row.at(keys.front())};
    }
    for (const Json& name : names) {
        TableKeys where{{keys.front(), name}};
        for (std::size_t i = 1; i < keys.size(); ++i) {
            where.emplace_back(keys[i], row.at(keys[i]));
        }
        if (const auto found = find_row(file, where)) {
            row["published_" + keys.front()] = name;
            for (const std::string& number : numbers) {
                row["published_" + number] = file.number(*found, number);
            }
            return true;
        }
    }
    return false;
}

// --- the table ---

void print_report(const BenchOptions& options, const EnvironmentRecord* environment,
                  const BenchReport& report) {
    ResultTable table = table_of(report.columns, report.rows);
    table.title = report.title;
    table.notes = report.notes;
    Json head = report.head;
    head["command"] = passed_on_command(options.job.command);
    head["date"] = utc_now();
    if (environment != nullptr) {
        const std::string& rate = environment->link_rate;
        table.title += fmt::format("\nmeasured on {}; {}{}", hardware_of(*environment),
                                   environment->libraries, rate.empty() ? "" : " at " + rate);
        head.update({{"date", environment->date},
                     {"hardware", hardware_of(*environment)},
                     {"libraries", environment->libraries},
                     {"link_rate", rate.empty() ? Json(nullptr) : Json(rate)},
                     {"environment", to_json(*environment)}});
    }
    if (!report.simulated.empty()) {
        table.title += "\nsimulated with " + report.simulated;
    }
    write_output("-", render(table, options.format, head));
}

// --- running ---

int run_bench(const BenchOptions& options,
              const std::function<BenchRows(const RankJob& job, RankSession& session)>& measure,
              const std::function<void(const EnvironmentRecord* environment,
                                       const BenchRows& measured)>& print,
              const std::vector<RankJob>& jobs) {
    if (options.measures) {
        return run_rank_bench(
            jobs.empty() ? std::vector{options.job} : jobs, options.identity,
            [&](const RankJob& job, RankSession& session) { return Json(measure(job, session)); },
            [&](const EnvironmentRecord& environment, const Json& rows) {
                print(&environment, rows.get<BenchRows>());
            });
    }
    if (!options.identity || options.identity->rank == 0) {
        print(nullptr, {});
    }
    return exit_done;
}

std::string text_of_ranks(std::int64_t ranks) {
    return fmt::format("{} {}", ranks, ranks == 1 ? "rank" : "ranks");
}

}  // namespace bucketwise
