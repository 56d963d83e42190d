#include "bench/training/report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/csv.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

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
        const double rank = file.number(i, "rank");
        constexpr double most_ranks = 1e6;
        if (!(rank >= 0 && rank < most_ranks)) {
            file.fail(i, "rank",
                      fmt::format("a number of rank from 0 to below {:.0f}", most_ranks));
        }
        rows[{published_implementation(name, path), std::llround(rank)}] = {
            .name = name,
            .time_s = file.number(i, "time_s"),
            .max_memory_bytes = file.number(i, "max_memory_bytes"),
            .loss = file.number(i, "loss"),
            .accuracy = file.number(i, "accuracy")};
    }
    return rows;
}

// --- rows ---

double in_seconds(Duration time) {
    return to_us(time) * 1e-6;
}

double percent_off(double predicted, double measured) {
    return 100 * (predicted / measured - 1);
}

// One rank of an implementation, and what others published of the same.
struct Row {
    const TrainedImplementation& result;
    std::size_t rank = 0;
    const PublishedRow* published = nullptr;

    [[nodiscard]] const TrainedRank* run() const {
        return result.ranks.empty() ? nullptr : &result.ranks[rank];
    }
    [[nodiscard]] std::int64_t simulated_bytes() const {
        return result.simulated_memory_bytes[rank];
    }
};

using CellOf = std::function<Cell(const Row&)>;
using Columns = std::vector<ColumnOf<Row>>;

// A column that only rows have that ran.
template <typename Value>
CellOf measured(const Value& value) {
    return [value](const Row& row) { return row.run() ? Cell(value(row)) : Cell(); };
}

template <typename Value>
CellOf published(Value PublishedRow::*value) {
    return [value](const Row& row) { return row.published ? Cell(row.published->*value) : Cell(); };
}

Columns columns_of(const BenchTrainingOptions& options, bool has_published) {
    const auto simulated_s = [epochs = static_cast<double>(options.epochs)](const Row& row) {
        return in_seconds(row.result.simulated.epoch()) * epochs;
    };
    const auto step_s = [](const Row& row) { return in_seconds(row.result.simulated_full_step); };
    Columns columns{
        {{"implementation", "implementation"},
         [](const Row& row) { return std::string(name_of(row.result.implementation)); }},
        {{"strategy", "strategy"},
         [&options](const Row& row) {
             return std::string(name_of(options.sync_of(row.result.implementation).strategy));
         }},
        {{"rank", "rank"}, [](const Row& row) { return static_cast<std::int64_t>(row.rank); }},
        {{"time_s", "time\ns"}, measured([](const Row& row) { return row.run()->time_s; })},
        {{"simulated_time_s", "simulated\ns"}, simulated_s},
        {{"time_error_percent", "error\n%", 1}, measured([simulated_s](const Row& row) {
             return percent_off(simulated_s(row), row.run()->time_s);
         })},
        {{"step_ms", "full step\nms"},
         measured([](const Row& row) { return 1e3 * row.run()->full_step_s; })},
        {{"simulated_step_ms", "simulated\nms"},
         [step_s](const Row& row) { return 1e3 * step_s(row); }},
        {{"step_error_percent", "error\n%", 1}, measured([step_s](const Row& row) {
             return percent_off(step_s(row), row.run()->full_step_s);
         })},
        {{"max_memory_bytes", "memory\nbytes"},
         measured([](const Row& row) { return row.run()->max_memory_bytes; })},
        {{"simulated_max_memory_bytes", "simulated\nbytes"}, &Row::simulated_bytes},
        {{"memory_error_percent", "error\n%", 1}, measured([](const Row& row) {
             return percent_off(static_cast<double>(row.simulated_bytes()),
                                static_cast<double>(row.run()->max_memory_bytes));
         })},
        {{"loss", "loss", 4}, measured([](const Row& row) { return row.result.losses.back(); })},
        {{"accuracy", "accuracy", 4}, measured([](const Row& row) { return row.result.accuracy; })},
        {{"process_peak_bytes", "process\nbytes", 3, false},
         measured([](const Row& row) { return row.run()->process_peak_bytes; })}};
    if (has_published) {
        append(
            columns,
            Columns{{{"published_implementation", "published\nas"}, published(&PublishedRow::name)},
                    {{"published_time_s", "published\ns"}, published(&PublishedRow::time_s)},
                    {{"published_max_memory_bytes", "published\nbytes", 0},
                     published(&PublishedRow::max_memory_bytes)},
                    {{"published_loss", "published\nloss", 4}, published(&PublishedRow::loss)},
                    {{"published_accuracy", "published\naccuracy", 4},
                     published(&PublishedRow::accuracy)}});
    }
    return columns;
}

// --- notes ---

const TrainedImplementation* find(const std::vector<TrainedImplementation>& results,
                                  TrainingImplementation implementation) {
    const auto found =
        std::ranges::find(results, implementation, &TrainedImplementation::implementation);
    return found == results.end() ? nullptr : &*found;
}

double slowest_s(const TrainedImplementation& result) {
    return std::ranges::max(transformed(result.ranks, &TrainedRank::time_s));
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
    std::vector<Row> rows;
    for (const TrainedImplementation& result : results) {
        for (std::size_t rank = 0; rank < result.simulated_memory_bytes.size(); ++rank) {
            const auto found =
                published.find({result.implementation, static_cast<std::int64_t>(rank)});
            rows.push_back({result, rank, found == published.end() ? nullptr : &found->second});
        }
    }
    ResultTable table = table_of(columns_of(options, !published.empty()), rows);
    const TrainingTask task = options.task_of(options.implementations.front());
    table.title =
        fmt::format("{}: {} epochs of {} samples, batch {} on {}, accumulation {}; {}",
                    options.scenario.name, options.epochs, options.samples, task.schedule.batch,
                    text_of_ranks(task.schedule.ranks), task.schedule.accumulation, about);
    table.notes = notes_of(options, results, published);
    Json document = head;
    document["epoch_losses"] = epochs_json(results);
    return render(table, options.format, document);
}

}  // namespace bucketwise
