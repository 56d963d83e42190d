// bucketwise bench syncbn: time and peak memory of a BatchNorm layer that is synchronised over
// ranks, by implementation, batch and width; on real ranks, simulated, and published.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/batch_norm/layer_rank.h"
#include "bench/benches.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

constexpr std::string_view explanation = R"(
examples:
  bucketwise bench syncbn --ranks 2
  bucketwise bench syncbn --backend nccl --ranks 2 --batch 32,64 --format csv
  bucketwise bench syncbn scenarios/syncbn_a4000.json --simulate --published scenarios/published/syncbn.csv
  bucketwise bench syncbn scenarios/syncbn_a4000.json --simulate --backend gloo --passes forward

A BatchNorm layer over all ranks, on [batch, width] float32 on each of them. gather works like PyTorch's SyncBatchNorm
(an all-gather of statistics; an all-reduce in backward), fused sums both ways in one all-reduce each. A time runs from
the first launch until the device has finished, on the slowest rank. Memory is the peak of live tensors: input, output,
their gradients and parameters, each in whole blocks of 512 bytes, as PyTorch's allocator counts. pytorch and selfmade
are the systems of the published table; they run forward only, and can only be simulated.
)";

struct SyncBnOptions : BenchOptions {
    std::optional<std::vector<BatchNormSystem>> systems;
    std::optional<std::vector<std::int64_t>> batches;
    std::optional<std::vector<std::int64_t>> widths;
    BatchNormPasses passes = BatchNormPasses::both;
    std::int64_t iterations = 0;
};

// --- options and rows ----------------------------------------------------------------------------

constexpr std::int64_t most_rows = (std::int64_t{1} << 24U) - 1;  // float32 counts them exactly
constexpr WholeNumbers batches{0, most_rows};
constexpr WholeNumbers widths{1, std::int64_t{1} << 20U};

std::vector<OptionText> syncbn_rows(SyncBnOptions& o) {
    std::vector<OptionText> rows{
        {"simulate",
         "simulate the scenario's device, ranks and link; with --backend too, beside measured "
         "ranks",
         o.simulates},
        {"implementations",
         "gather, fused, pytorch, selfmade; default: the first two, or, only simulated, all",
         {o.systems, ListOf{Choice{every<BatchNormSystem>}}},
         some_of(every<BatchNormSystem>)},
        {"batch",
         "rows of each rank; default: those of --published, or 32",
         {o.batches, ListOf{batches}}},
        {"width",
         "channels; default: those of --published, or 128,256,512,1024",
         {o.widths, ListOf{widths}}},
        {"passes",
         "of gather and fused: forward, or both (and backward)",
         {o.passes, Choice{every<BatchNormPasses>}, "both"}},
        ranks_row(o, "default: the scenario's, or 2"),
        rounds_row(o, "how often to measure everything, after a round that warms up"),
        {"iterations", "steps back to back in each round", {o.iterations, bench_counts, "20"}},
        seed_row(o),
        published_row(o),
        format_row(o.format)};
    std::ranges::move(change_rows(o, {"link", "set"}), std::back_inserter(rows));
    return rows;
}

// As typed, else each value of the published column once, else the standard.
template <typename Value, typename Read>
std::vector<Value> listed(const std::optional<std::vector<Value>>& typed,
                          const std::optional<CsvFile>& published, const char* column,
                          const Read& read, std::vector<Value> standard) {
    if (typed) {
        return *typed;
    }
    if (published && published->rows() > 0) {
        standard.clear();
        for (std::size_t row = 0; row < published->rows(); ++row) {
            standard.push_back(read(published->text(row, column), column));
        }
    }
    return each_once(standard);
}

std::vector<BatchNormSystem> requested_systems(const SyncBnOptions& o,
                                               const std::optional<CsvFile>& published) {
    using enum BatchNormSystem;
    if (!o.measures) {
        return listed(o.systems, published, "implementation", Choice{every<BatchNormSystem>},
                      {gather, fused, pytorch, selfmade});
    }
    std::vector<BatchNormSystem> systems = o.systems.value_or(std::vector{gather, fused});
    for (const BatchNormSystem system : systems) {
        if (!real_layer_of(system)) {
            throw InputError(
                "--implementations", "",
                fmt::format("gather or fused, as {} can only be simulated", name_of(system)),
                std::string(name_of(system)));
        }
    }
    return systems;
}

std::vector<BatchNormLayer> requested_layers(const SyncBnOptions& o,
                                             const std::optional<CsvFile>& published) {
    constexpr std::int64_t most_elements = std::int64_t{1} << 30U;
    std::vector<BatchNormLayer> layers;
    for (const BatchNormSystem system : requested_systems(o, published)) {
        for (const std::int64_t batch : listed(o.batches, published, "batch_size", batches, {32})) {
            for (const std::int64_t width :
                 listed(o.widths, published, "hidden_dim", widths, {128, 256, 512, 1024})) {
                if (batch * width > most_elements || batch * o.job.ranks > most_rows) {
                    throw InputError("--batch", "",
                                     "at most 2^30 elements on each rank, and fewer than 2^24 rows "
                                     "on all",
                                     fmt::format("{} x {}", batch, width));
                }
                layers.push_back(
                    {.system = system,
                     .passes = real_layer_of(system) ? o.passes : BatchNormPasses::forward,
                     .rows = batch,
                     .channels = width,
                     .ranks = o.job.ranks});
            }
        }
    }
    return each_once(layers);
}

Device simulated_device(const Scenario& scenario, const std::string& file) {
    const auto device =
        std::visit([](const auto& workload) { return workload.device; }, scenario.workload);
    if (!device || !(device->peak(Arithmetic::float32) > 0)) {
        throw InputError(file, "/workload/device", "a device to simulate, with a float32 peak",
                         device ? device->name : "none");
    }
    return *device;
}

// The scenario to simulate; none without --simulate. Sets the job's ranks.
std::optional<Scenario> requested_scenario(SyncBnOptions& o) {
    if (!o.simulates) {
        refuse_typed(o, {"scenario", "link", "set"}, "without --simulate");
        o.job.ranks = static_cast<int>(
            requested_ranks(o.changes.ranks, o.identity, most_ranks_here).value_or(2));
        return std::nullopt;
    }
    if (o.file.empty()) {
        throw UsageError{
            "bench syncbn --simulate: expected a scenario, whose device, ranks and link are "
            "simulated, got none; for example scenarios/syncbn_a4000.json"};
    }
    return read_bench_scenario(o);
}

// --- the table -----------------------------------------------------------------------------------

std::vector<NamedColumn> columns_of(bool measures, bool simulates, bool has_published) {
    constexpr int digits = -4;  // of a time
    std::vector<NamedColumn> columns{{{"implementation", "implementation"}},
                                     {{"batch_size", "batch"}},
                                     {{"hidden_dim", "width"}},
                                     {{"median_s", "median\ns", digits}},
                                     {{"max_memory_bytes", "memory\nbytes"}}};
    const auto add = [&](bool wanted, const std::vector<NamedColumn>& more) {
        columns.insert(columns.end(), more.begin(), wanted ? more.end() : more.begin());
    };
    add(measures,
        {{{"p10_s", "p10\ns", digits}}, {{"p90_s", "p90\ns", digits}}, {{"samples", "samples"}}});
    add(measures && simulates,
        {{{"simulated_s", "simulated\ns", digits}},
         error_column({"simulated_error_percent", "error\n%", 1}, "simulated_s", "median_s"),
         {{"simulated_memory_bytes", "simulated\nbytes"}}});
    add(has_published,
        {{{"published_implementation", "published\nas"}},
         {{"published_median_s", "published\ns", digits}},
         error_column({"median_error_percent", "error\n%", 1}, "median_s", "published_median_s"),
         {{"published_max_memory_bytes", "published\nbytes", 0}},
         error_column({"max_memory_error_percent", "error\n%", 2}, "max_memory_bytes",
                      "published_max_memory_bytes")});
    add(true, {{{"passes", "passes"}}, {{"ranks", "ranks"}}});
    return columns;
}

const std::vector<std::string> published_keys{"implementation", "batch_size", "hidden_dim"};
const std::vector<std::string> published_numbers{"median_s", "max_memory_bytes"};

// Beside the published row of the layer's own name, or else of the system that works alike.
BenchRow row_of(const BatchNormLayer& layer, const std::optional<CsvFile>& published) {
    using enum BatchNormSystem;
    BenchRow row{{"implementation", name_of(layer.system)},
                 {"batch_size", layer.rows},
                 {"hidden_dim", layer.channels},
                 {"passes", name_of(layer.passes)},
                 {"ranks", layer.ranks}};
    if (published) {
        const bool gathers = layer.system == gather || layer.system == pytorch;
        add_published(*published, published_keys, published_numbers, row,
                      {name_of(layer.system), name_of(gathers ? pytorch : selfmade)});
    }
    return row;
}

BenchRow simulated_row(const Scenario& scenario, const Device& device,
                       const BatchNormLayer& layer) {
    const std::vector<LayerEvent> events = events_of(layer);
    const double s = to_us(time_of(events, device, scenario.group, scenario.link)) * 1e-6;
    const std::int64_t bytes = memory_peak(events).size.count;
    return {{"median_s", s},
            {"simulated_s", s},
            {"max_memory_bytes", bytes},
            {"simulated_memory_bytes", bytes}};
}

std::vector<std::string> notes_of(const BenchRows& rows, std::size_t published) {
    std::size_t found = 0;
    bool other = false;
    bool other_passes = false;
    for (const BenchRow& row : rows) {
        if (const auto name = row.find("published_implementation"); name != row.end()) {
            ++found;
            other = other || *name != row["implementation"];
            other_passes = other_passes || row["passes"] == "both";
        }
    }
    std::vector<std::string> notes;
    if (found < published) {
        notes.push_back(fmt::format("{} of {} published rows have a row here.", found, published));
    }
    if (other) {
        notes.emplace_back(
            "gather stands beside the published pytorch, fused beside selfmade: the same "
            "collectives, but other code on another machine.");
    }
    if (other_passes) {
        notes.emplace_back(
            "The published numbers are of forward alone (--passes forward), these of forward and "
            "backward.");
    }
    return notes;
}

int run_syncbn(SyncBnOptions& o) {
    if (!o.measures) {
        refuse_typed(o, {"rounds", "iterations", "seed"}, "where nothing is measured");
    }
    const std::optional<Scenario> scenario = requested_scenario(o);
    const std::optional<CsvFile> published = read_published(o, published_keys, published_numbers);
    const std::vector<BatchNormLayer> layers = requested_layers(o, published);
    BenchReport report{
        .title = fmt::format("SyncBatchNorm layer, float32, {}{}", text_of_ranks(o.job.ranks),
                             o.measures ? "; the slowest rank's times" : ""),
        .columns = columns_of(o.measures, o.simulates, published.has_value()),
        .rows = transformed(layers, [&](const auto& layer) { return row_of(layer, published); }),
        .head = {{"ranks", o.job.ranks}}};
    report.notes = notes_of(report.rows, published ? published->rows() : 0);
    Device device;
    if (scenario) {
        device = simulated_device(*scenario, o.file);
        report.simulated =
            fmt::format("{} over {} ({})", device.name, scenario->link.name, scenario->name);
        report.head["simulated"] = {
            {"scenario", scenario->name}, {"device", device.name}, {"link", scenario->link.name}};
    }
    return run_bench(
        o,
        [&](const RankJob& job, RankSession& session) {
            return measure_layers(layers, o.iterations, job.order, session);
        },
        [&](const EnvironmentRecord* environment, const BenchRows& measured) {
            for (std::size_t i = 0; i < layers.size(); ++i) {
                if (scenario) {
                    report.rows[i].update(simulated_row(*scenario, device, layers[i]));
                }
                report.rows[i].update(measured.empty() ? Json::object() : measured[i]);
            }
            print_report(o, environment, report);
        });
}

}  // namespace

CommandHelp bench_syncbn_help() {
    const auto o = std::make_shared<SyncBnOptions>();
    return bench_command("syncbn", " [SCENARIO --simulate]", *o, syncbn_rows(*o), explanation,
                         [o] { return run_syncbn(*o); });
}

}  // namespace bucketwise
