#include "bench/steps/bench_steps.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/ranks/backends.h"
#include "cli/ranks/rank_job.h"
#include "cli/shell/command_help.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/scenario_document.h"
#include "hw/record/environment.h"
#include "sim/base/error.h"
#include "sim/link/link_topology.h"
#include "sim/link/network/topology_cost.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

constexpr std::chrono::milliseconds standard_deadline{60'000};

po::options_description described_options(const StepTable& table) {
    po::options_description options("options", 100);
    options.add_options()  //
        ("simulate", "simulate every row; with --backend too, beside what is measured");
    table.add_options(options);
    options.add_options()                                                               //
        ("ranks", po::value<std::string>(), "how many ranks; default: the scenario's")  //
        ("published", po::value<std::string>(),
         "CSV file of the published table, whose rows are shown beside ours")  //
        ("rounds", po::value<std::string>()->default_value("5"),
         "how often to measure every row, in an order of its own each time")  //
        ("steps", po::value<std::string>()->default_value("4"),
         "steps of a row in each round, after one that warms up")                                 //
        ("seed", po::value<std::string>()->default_value("1"), "of the order within each round")  //
        ("format", po::value<std::string>()->default_value("text"), "text, csv or json");
    add_backend_options(options);
    add_network_options(options,
                        "seconds that a rank may be silent, or a collective take, before the run "
                        "fails; default: 60");
    add_scenario_options(options);
    options.add_options()("help,h", "show this");
    return options;
}

struct Request {
    std::vector<std::string> command;  // as typed, for the record
    std::string file;
    Scenario scenario;
    std::vector<StepVariant> variants;
    bool simulates = false;
    std::optional<VariantRun> run;  // none: nothing is measured
    std::int64_t steps = 0;         // of each row, simulated
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

VariantRun read_run(const StepTable& table, const po::variables_map& values,
                    const std::optional<RankIdentity>& identity) {
    VariantRun run;
    run.backend = &requested_backend(values);
    run.request = backend_request(values);
    run.backend->check(run.request);
    run.network =
        job_network(values, identity, fmt::format("bench {}", table.name), standard_deadline);
    run.rounds = whole_number(values, "rounds", {1, 100'000});
    run.steps_per_round = whole_number(values, "steps", {1, 100'000});
    run.seed = static_cast<std::uint64_t>(whole_number(values, "seed", {0, std::int64_t{1} << 50}));
    return run;
}

// The rows say how gradients are synchronised, and a simulation asks nothing of real ranks.
void refuse_options_without_effect(const StepTable& table, const po::variables_map& values,
                                   bool measures) {
    if (values.count("strategy") != 0) {
        throw UsageError{fmt::format(
            "bench {}: expected no --strategy, as the rows have strategies of their own",
            table.name)};
    }
    for (const char* option :
         {"share-gpu", "ctas", "link-rate", "deadline", "store", "interface"}) {
        if (!measures && values.count(option) != 0) {
            throw UsageError{
                fmt::format("bench {}: expected --backend beside --simulate and --{}, as only real "
                            "ranks have that",
                            table.name, option)};
        }
    }
}

Request read_request(const StepTable& table, const po::variables_map& values,
                     const std::optional<RankIdentity>& identity) {
    if (values.count("scenario") == 0) {
        throw UsageError{fmt::format(
            "bench {0}: expected a scenario file, got none; see bucketwise bench {0} --help",
            table.name)};
    }
    Request request;
    request.file = values["scenario"].as<std::string>();
    request.simulates = values.count("simulate") != 0;
    const bool measures = !request.simulates || !values["backend"].defaulted();
    refuse_options_without_effect(table, values, measures);
    request.scenario =
        parse_scenario(read_scenario_document(values, request.file), request.file, read_text_file);
    set_ranks(values, identity, measures, request.scenario);
    request.variants = table.variants(values, request.scenario, request.file);
    if (measures) {
        request.run = read_run(table, values, identity);
        for (const StepVariant& variant : request.variants) {
            request.run->backend->check_scenario(variant.scenario, request.file);
        }
    }
    request.steps =
        whole_number(values, "rounds", {1, 100'000}) * whole_number(values, "steps", {1, 100'000});
    if (values.count("published") != 0) {
        request.published = CsvFile::read(values["published"].as<std::string>());
    }
    request.format =
        choice_named(values["format"].as<std::string>(), all_table_formats, "--format");
    return request;
}

std::vector<StepSamples> simulate_all(const Request& request) {
    std::vector<StepSamples> all;
    for (const StepVariant& variant : request.variants) {
        all.push_back(simulate_steps(variant, request.steps));
    }
    return all;
}

void print_table(const StepTable& table, const Request& request,
                 const std::optional<MeasuredVariants>& measured) {
    std::vector<VariantSource> sources;
    Json head{{"table", table.name},
              {"scenario", request.scenario.name},
              {"command", request.command},
              {"date", utc_now()}};
    const std::int64_t ranks = request.scenario.group.ranks;
    std::string title = fmt::format("{}: {}, {} {}", table.name, request.scenario.name, ranks,
                                    ranks == 1 ? "rank" : "ranks");
    if (measured) {
        sources.push_back({.is_simulated = false, .by_variant = measured->by_variant});
        const EnvironmentRecord& environment = measured->environment;
        title +=
            fmt::format("\nmeasured on {}; {}{}", hardware_of(environment), environment.libraries,
                        environment.link_rate.empty() ? "" : " at " + environment.link_rate);
        head["environment"] = to_json(environment);
    }
    if (request.simulates) {
        sources.push_back({.is_simulated = true, .by_variant = simulate_all(request)});
        title += fmt::format("\nsimulated with {}", request.scenario.link.name);
        head["link"] = request.scenario.link.name;
    }
    ResultTable rows = table.rows(request.variants, sources, request.published);
    rows.title = title;
    write_output("-", render(rows, request.format, head));
}

}  // namespace

CommandHelp help_of(const StepTable& table) {
    return {.usage = {fmt::format("bucketwise bench {} SCENARIO [OPTIONS]", table.name)},
            .options = described_options(table),
            .text = table.explanation,
            .values = table.values};
}

int run_step_table(const StepTable& table, const std::vector<std::string>& arguments) {
    const CommandHelp help = help_of(table);
    const po::variables_map values = parse_arguments(arguments, help.options);
    if (values.count("help") != 0) {
        return print_help(help);
    }
    const std::optional<RankIdentity> identity = rank_from_environment(environment_variable);
    Request request = read_request(table, values, identity);
    request.command = {"bucketwise", "bench", std::string(table.name)};
    request.command.insert(request.command.end(), arguments.begin(), arguments.end());
    if (!request.run) {
        print_table(table, request, std::nullopt);
        return exit_done;
    }
    if (!identity && request.scenario.group.ranks > most_ranks_here) {
        throw InputError(
            request.file, "/cluster/ranks",
            fmt::format("at most {} ranks on one machine (--ranks says how many)", most_ranks_here),
            std::to_string(request.scenario.group.ranks));
    }
    return run_variants(
        request.variants, *request.run, request.command, identity,
        [&](const MeasuredVariants& measured) { print_table(table, request, measured); });
}

std::vector<double> each(const StepSamples& samples, double StepSample::*number) {
    std::vector<double> values;
    for (const StepSample& sample : samples) {
        values.push_back(sample.*number);
    }
    return values;
}

std::vector<double> steps_us(const StepSamples& samples) {
    std::vector<double> values;
    for (const StepSample& sample : samples) {
        values.push_back(sample.step_us());
    }
    return values;
}

Cell error_percent(double predicted, const std::optional<double>& actual) {
    if (!actual || !(*actual > 0)) {
        return std::monostate{};
    }
    return 100 * (predicted / *actual - 1);
}

}  // namespace bucketwise
