#include "bench/training/report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/csv.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

struct PublishedRow {
    std::string name;  // as published
    double time_s = 0;
    double max_memory_bytes = 0;
    double loss = 0;
    double accuracy = 0;
};

using PublishedRows = std::map<std::pair<TrainingImplementation, std::int64_t>, PublishedRow>;

// "selfmade" all-reduces after backward; "pytorch" is DistributedDataParallel.
TrainingImplementation published_implementation(const std::string& name, const std::string& file) {
    if (name == "ddp" || name == "pytorch") {
        return TrainingImplementation::ddp;
    }
    if (name == "reference" || name == "selfmade") {
        return TrainingImplementation::reference;
    }
    throw InputError(file, "", "an implementation ddp, pytorch, reference or selfmade",
                     "\"" + name + "\"");
}

PublishedRows read_published(const std::string& path) {
    PublishedRows rows;
    if (path.empty()) {
        return rows;
    }
    const CsvFile file = CsvFile::read(path);
    for (std::size_t i = 0; i < file.rows(); ++i) {
        const std::string& name = file.text(i, "implementation");
        rows[{published_implementation(name, path), std::llround(file.number(i, "rank"))}] = {
            .name = name,
            .time_s = file.number(i, "time_s"),
            .max_memory_bytes = file.number(i, "max_memory_bytes"),
            .loss = file.number(i, "loss"),
            .accuracy = file.number(i, "accuracy")};
    }
    return rows;
}

// --- rows ---

std::vector<Column> columns(bool published) {
    std::vector<Column> all{
        {.key = "implementation", .heading = "implementation"},
        {.key = "strategy", .heading = "strategy"},
        {.key = "rank", .heading = "rank"},
        {.key = "time_s", .heading = "time\ns"},
        {.key = "simulated_time_s", .heading = "simulated\ns"},
        {.key = "time_error_percent", .heading = "error\n%", .decimals = 1},
        {.key = "step_ms", .heading = "full step\nms"},
        {.key = "simulated_step_ms", .heading = "simulated\nms"},
        {.key = "step_error_percent", .heading = "error\n%", .decimals = 1},
        {.key = "max_memory_bytes", .heading = "memory\nbytes"},
        {.key = "simulated_max_memory_bytes", .heading = "simulated\nbytes"},
        {.key = "memory_error_percent", .heading = "error\n%", .decimals = 1},
        {.key = "loss", .heading = "loss", .decimals = 4},
        {.key = "accuracy", .heading = "accuracy", .decimals = 4},
        {.key = "process_peak_bytes", .heading = "process\nbytes", .in_text = false}};
    if (published) {
        all.push_back({.key = "published_implementation", .heading = "published\nas"});
        all.push_back({.key = "published_time_s", .heading = "published\ns"});
        all.push_back(
            {.key = "published_max_memory_bytes", .heading = "published\nbytes", .decimals = 0});
        all.push_back({.key = "published_loss", .heading = "published\nloss", .decimals = 4});
        all.push_back(
            {.key = "published_accuracy", .heading = "published\naccuracy", .decimals = 4});
    }
    return all;
}

double in_seconds(Duration time) {
    return to_us(time) * 1e-6;
}

double percent_off(double predicted, double measured) {
    return 100 * (predicted / measured - 1);
}

void add_published(const PublishedRow* row, std::vector<Cell>& cells) {
    if (row == nullptr) {
        cells.resize(cells.size() + 5);
        return;
    }
    cells.insert(cells.end(),
                 {row->name, row->time_s, row->max_memory_bytes, row->loss, row->accuracy});
}

std::vector<Cell> cells_of(const BenchTrainingOptions& options, const TrainedImplementation& result,
                           std::size_t rank) {
    const double simulated_s =
        in_seconds(result.simulated.epoch()) * static_cast<double>(options.epochs);
    const double simulated_step_s = in_seconds(result.simulated_full_step);
    const std::int64_t simulated_bytes = result.simulated_memory_bytes[rank];
    std::vector<Cell> cells{std::string(name_of(result.implementation)),
                            std::string(name_of(options.sync_of(result.implementation).strategy)),
                            static_cast<std::int64_t>(rank)};
    if (result.ranks.empty()) {
        const Cell none;
        cells.insert(cells.end(), {none, simulated_s, none, none, 1e3 * simulated_step_s, none,
                                   none, simulated_bytes, none, none, none, none});
        return cells;
    }
    const TrainedRank& run = result.ranks[rank];
    cells.insert(cells.end(), {run.time_s, simulated_s, percent_off(simulated_s, run.time_s),
                               1e3 * run.full_step_s, 1e3 * simulated_step_s,
                               percent_off(simulated_step_s, run.full_step_s), run.max_memory_bytes,
                               simulated_bytes,
                               percent_off(static_cast<double>(simulated_bytes),
                                           static_cast<double>(run.max_memory_bytes)),
                               result.losses.back(), result.accuracy, run.process_peak_bytes});
    return cells;
}

// --- notes ---

const TrainedImplementation* find(const std::vector<TrainedImplementation>& results,
                                  TrainingImplementation implementation) {
    const auto found = std::find_if(
        results.begin(), results.end(),
        [&](const TrainedImplementation& r) { return r.implementation == implementation; });
    return found == results.end() ? nullptr : &*found;
}

double slowest_s(const TrainedImplementation& result) {
    double slowest = 0;
    for (const TrainedRank& rank : result.ranks) {
        slowest = std::max(slowest, rank.time_s);
    }
    return slowest;
}

struct PublishedExtremes {
    double slowest_s = 0;
    double most_bytes = 0;
};

std::map<TrainingImplementation, PublishedExtremes> extremes(const PublishedRows& rows) {
    std::map<TrainingImplementation, PublishedExtremes> all;
    for (const auto& [key, row] : rows) {
        PublishedExtremes& of = all[key.first];
        of.slowest_s = std::max(of.slowest_s, row.time_s);
        of.most_bytes = std::max(of.most_bytes, row.max_memory_bytes);
    }
    return all;
}

// "reference over ddp, ...: simulated 1.2, measured 1.3 (simulated is 7.7 % off), published 1.1"
std::string ratio_note(const TrainedImplementation& reference, const TrainedImplementation& ddp,
                       const PublishedRows& published) {
    const double simulated =
        in_seconds(reference.simulated.epoch()) / in_seconds(ddp.simulated.epoch());
    std::string text =
        fmt::format("time of reference over ddp, slowest ranks: simulated {:.3f}", simulated);
    if (!ddp.ranks.empty()) {
        const double measured = slowest_s(reference) / slowest_s(ddp);
        text += fmt::format(", measured {:.3f} (error {:+.1f} %)", measured,
                            percent_off(simulated, measured));
    }
    const auto rows = extremes(published);
    if (rows.size() == 2) {
        text +=
            fmt::format(", published {:.3f}", rows.at(TrainingImplementation::reference).slowest_s /
                                                  rows.at(TrainingImplementation::ddp).slowest_s);
    }
    return text;
}

std::string memory_note(const TrainedImplementation& reference, const TrainedImplementation& ddp,
                        const PublishedRows& published, std::int64_t gradient_bytes) {
    std::string text =
        fmt::format("memory of ddp less reference, rank 0: simulated {} bytes",
                    ddp.simulated_memory_bytes[0] - reference.simulated_memory_bytes[0]);
    if (!ddp.ranks.empty()) {
        text += fmt::format(", measured {} bytes",
                            ddp.ranks[0].max_memory_bytes - reference.ranks[0].max_memory_bytes);
    }
    const auto rows = extremes(published);
    if (rows.size() == 2) {
        text += fmt::format(", published {:.0f} bytes",
                            rows.at(TrainingImplementation::ddp).most_bytes -
                                rows.at(TrainingImplementation::reference).most_bytes);
    }
    text += fmt::format("; a copy of all gradients is {} bytes", gradient_bytes);
    return text;
}

std::vector<std::string> notes_of(const BenchTrainingOptions& options,
                                  const std::vector<TrainedImplementation>& results,
                                  const PublishedRows& published) {
    std::vector<std::string> notes = caveats(options.scenario);
    const auto* ddp = find(results, TrainingImplementation::ddp);
    const auto* reference = find(results, TrainingImplementation::reference);
    if (ddp != nullptr && reference != nullptr) {
        notes.push_back(ratio_note(*reference, *ddp, published));
        notes.push_back(memory_note(*reference, *ddp, published,
                                    step_input(options.scenario).workload.gradient_bytes().count));
    }
    if (!published.empty()) {
        notes.emplace_back(
            "published is another model on other hardware: only how the two implementations "
            "compare can be set beside ours, no time, memory, loss or accuracy by itself");
    }
    return notes;
}

Json epochs_json(const std::vector<TrainedImplementation>& results) {
    Json all = Json::object();
    for (const TrainedImplementation& result : results) {
        if (!result.losses.empty()) {
            all[std::string(name_of(result.implementation))] = result.losses;
        }
    }
    return all;
}

}  // namespace

void check_published(const std::string& file) {
    static_cast<void>(read_published(file));
}

std::string bench_training_report(const BenchTrainingOptions& options,
                                  const std::vector<TrainedImplementation>& results,
                                  const std::string& about, const Json& head) {
    const PublishedRows published = read_published(options.published);
    ResultTable table;
    const TrainingTask task = options.task_of(options.implementations.front());
    table.title =
        fmt::format("{}: {} epochs of {} samples, batch {} on {} {}, accumulation {}; {}",
                    options.scenario.name, options.epochs, options.samples, task.schedule.batch,
                    task.schedule.ranks, task.schedule.ranks == 1 ? "rank" : "ranks",
                    task.schedule.accumulation, about);
    table.columns = columns(!published.empty());
    for (const TrainedImplementation& result : results) {
        for (std::size_t rank = 0; rank < result.simulated_memory_bytes.size(); ++rank) {
            table.rows.push_back(cells_of(options, result, rank));
            if (!published.empty()) {
                const auto found =
                    published.find({result.implementation, static_cast<std::int64_t>(rank)});
                add_published(found == published.end() ? nullptr : &found->second,
                              table.rows.back());
            }
        }
    }
    table.notes = notes_of(options, results, published);
    Json document = head;
    document["epoch_losses"] = epochs_json(results);
    return render(table, options.format, document);
}

}  // namespace bucketwise
