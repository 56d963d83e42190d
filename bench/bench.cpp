#include "bench/bench.h"

#include <fmt/format.h>

#include "cli/ranks/backends.h"
#include "sim/base/transformed.h"

namespace bucketwise {

namespace po = boost::program_options;

po::options_description bench_options(const std::vector<OptionText>& own,
                                      void (*add)(po::options_description& options),
                                      const std::string& deadline) {
    po::options_description options("options", 100);
    add_options(options, own);
    if (add != nullptr) {
        add(options);
    }
    add_backend_options(options);
    add_network_options(options, deadline);
    add_options(options, {help_option});
    return options;
}

void read_bench(std::string_view name, const CommandLine& line,
                const std::optional<RankIdentity>& identity,
                std::initializer_list<const char*> measuring, BenchOptions& options,
                bool may_measure) {
    const po::variables_map& values = line.values;
    options.command = {"bucketwise", "bench", std::string(name)};
    options.command.insert(options.command.end(), line.arguments.begin(), line.arguments.end());
    options.simulates = values.count("simulate") != 0;
    options.seed = seed_value(values);
    if (values.count("rounds") != 0) {
        options.rounds = whole_number(values, "rounds", {1, 1'000'000});
    }
    if (may_measure && (!options.simulates || is_typed(values, "backend"))) {
        options.backend = &requested_backend(values);
        options.request = backend_request(values);
        options.backend->check(options.request);
        options.network =
            job_network(values, identity, fmt::format("bench {}", name), standard_deadline);
        return;
    }
    auto unused =
        first_typed(values, {"share-gpu", "ctas", "link-rate", "deadline", "store", "interface"});
    if (const auto option = unused ? unused : first_typed(values, measuring)) {
        throw UsageError{
            fmt::format("bench {}: --{} has no effect where nothing is measured; see bucketwise "
                        "bench {} --help",
                        name, *option, name)};
    }
}

RankJob job_of(const BenchOptions& options, std::int64_t ranks) {
    return {.command = options.command,
            .ranks = static_cast<int>(ranks),
            .backend = options.backend,
            .request = options.request,
            .network = options.network,
            .order = {.rounds = options.rounds, .seed = options.seed},
            .document = options.document};
}

BenchColumn error_column(Column column, std::string of, std::string against) {
    return {.column = std::move(column),
            .of = std::move(of),
            .factor = 100,
            .show = Show::error,
            .against = std::move(against)};
}

std::optional<double> number_in(const BenchRow& row, const std::string& name) {
    const auto found = row.find(name);
    if (found == row.end()) {
        return std::nullopt;
    }
    if (const auto* whole = std::get_if<std::int64_t>(&found->second)) {
        return static_cast<double>(*whole);
    }
    const auto* number = std::get_if<double>(&found->second);
    return number == nullptr ? std::nullopt : std::optional(*number);
}

std::optional<double> error_in(const BenchRow& row, const std::string& name,
                               const std::string& against) {
    return error_of(number_in(row, name), number_in(row, against));
}

namespace {

Cell cell_in(const BenchRow& row, const BenchColumn& column) {
    const std::string& name = column.of.empty() ? column.column.key : column.of;
    if (column.show == Show::error) {
        return cell_of(error_in(row, name, column.against), column.factor);
    }
    if (column.show == Show::ratio) {
        const auto part = number_in(row, name);
        const auto whole = number_in(row, column.against);
        return part && whole ? Cell(*part / *whole) : Cell();
    }
    if (column.factor != 1) {
        return cell_of(number_in(row, name), column.factor);
    }
    const auto found = row.find(name);
    return found == row.end() ? Cell() : found->second;
}

}  // namespace

ResultTable table_of(const std::vector<BenchColumn>& columns, const std::vector<BenchRow>& rows) {
    return table_of(transformed(columns,
                                [](const BenchColumn& column) {
                                    return ColumnOf<BenchRow>{column.column,
                                                              [column](const BenchRow& row) {
                                                                  return cell_in(row, column);
                                                              },
                                                              column.always};
                                }),
                    rows);
}

std::string text_of_ranks(std::int64_t ranks) {
    return fmt::format("{} {}", ranks, ranks == 1 ? "rank" : "ranks");
}

}  // namespace bucketwise
