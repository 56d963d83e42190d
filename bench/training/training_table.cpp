// The table of bench training.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/training/training.h"
#include "cli/shell/files.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/predict/prediction.h"
#include "sim/text/passed_on.h"

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

// --- the table -----------------------------------------------------------------------------------

double in_seconds(Duration time) {
    return to_us(time) * 1e-6;
}

std::vector<BenchColumn> columns_of(bool has_published) {
    std::vector<BenchColumn> columns{
        {{"implementation", "implementation"}},
        {{"strategy", "strategy"}},
        {{"rank", "rank"}},
        {{"time_s", "time\ns"}},
        {{"simulated_time_s", "simulated\ns"}},
        error_column({"time_error_percent", "error\n%", 1}, "simulated_time_s", "time_s"),
        {{"step_ms", "full step\nms"}, "step_s", 1e3},
        {{"simulated_step_ms", "simulated\nms"}, "simulated_step_s", 1e3},
        error_column({"step_error_percent", "error\n%", 1}, "simulated_step_s", "step_s"),
        {{"max_memory_bytes", "memory\nbytes"}},
        {{"simulated_max_memory_bytes", "simulated\nbytes"}},
        error_column({"memory_error_percent", "error\n%", 1}, "simulated_max_memory_bytes",
                     "max_memory_bytes"),
        {{"loss", "loss", 4}},
        {{"accuracy", "accuracy", 4}},
        {{"process_peak_bytes", "process\nbytes", 3, false}}};
    if (has_published) {
        columns.insert(columns.end(), {{{"published_implementation", "published\nas"}},
                                       {{"published_time_s", "published\ns"}},
                                       {{"published_max_memory_bytes", "published\nbytes", 0}},
                                       {{"published_loss", "published\nloss", 4}},
                                       {{"published_accuracy", "published\naccuracy", 4}}});
    }
    return columns;
}

std::vector<BenchRow> rows_of(const TrainingOptions& options, const TrainedImplementation& result,
                              const PublishedRows& published) {
    std::vector<BenchRow> rows;
    for (std::size_t rank = 0; rank < result.simulated_memory_bytes.size(); ++rank) {
        const auto number = static_cast<std::int64_t>(rank);
        BenchRow& row = rows.emplace_back(BenchRow{
            {"implementation", std::string(name_of(result.implementation))},
            {"strategy", std::string(name_of(options.sync_of(result.implementation).strategy))},
            {"rank", number},
            {"simulated_time_s",
             in_seconds(result.simulated.epoch()) * static_cast<double>(options.epochs)},
            {"simulated_step_s", in_seconds(result.simulated_full_step)},
            {"simulated_max_memory_bytes", result.simulated_memory_bytes[rank]}});
        if (!result.ranks.empty()) {
            const TrainedRank& run = result.ranks[rank];
            row.insert({{"time_s", run.time_s},
                        {"step_s", run.full_step_s},
                        {"max_memory_bytes", run.max_memory_bytes},
                        {"process_peak_bytes", run.process_peak_bytes},
                        {"loss", result.losses.back()},
                        {"accuracy", result.accuracy}});
        }
        if (const auto found = published.find({result.implementation, number});
            found != published.end()) {
            const PublishedRow& other = found->second;
            row.insert({{"published_implementation", other.name},
                        {"published_time_s", other.time_s},
                        {"published_max_memory_bytes", other.max_memory_bytes},
                        {"published_loss", other.loss},
                        {"published_accuracy", other.accuracy}});
        }
    }
    return rows;
}

// How the two implementations compare: simulated, measured, published.
std::vector<std::string> comparison_notes(const TrainedImplementation& reference,
                                          const TrainedImplementation& ddp,
                                          const PublishedRows& published, Bytes gradients) {
    const double simulated =
        in_seconds(reference.simulated.epoch()) / in_seconds(ddp.simulated.epoch());
    std::string time =
        fmt::format("time of reference over ddp, slowest ranks: simulated {:.3f}", simulated);
    std::string memory =
        fmt::format("memory of ddp less reference, rank 0: simulated {} bytes",
                    ddp.simulated_memory_bytes[0] - reference.simulated_memory_bytes[0]);
    if (!ddp.ranks.empty()) {
        const auto slowest_s = [](const TrainedImplementation& result) {
            return std::ranges::max(transformed(result.ranks, &TrainedRank::time_s));
        };
        const double measured = slowest_s(reference) / slowest_s(ddp);
        time += fmt::format(", measured {:.3f} (error {:+.1f} %)", measured,
                            100 * (simulated / measured - 1));
        memory += fmt::format(", measured {} bytes",
                              ddp.ranks[0].max_memory_bytes - reference.ranks[0].max_memory_bytes);
    }
    std::map<TrainingImplementation, PublishedRow> most;  // of any rank
    for (const auto& [key, row] : published) {
        PublishedRow& of = most[key.first];
        of.time_s = std::max(of.time_s, row.time_s);
        of.max_memory_bytes = std::max(of.max_memory_bytes, row.max_memory_bytes);
    }
    if (most.size() == 2) {
        const PublishedRow& ours = most.at(TrainingImplementation::ddp);
        const PublishedRow& other = most.at(TrainingImplementation::reference);
        time += fmt::format(", published {:.3f}", other.time_s / ours.time_s);
        memory +=
            fmt::format(", published {:.0f} bytes", ours.max_memory_bytes - other.max_memory_bytes);
    }
    memory += fmt::format("; a copy of all gradients is {} bytes", gradients.count);
    return {time, memory};
}

std::vector<std::string> notes_of(const TrainingOptions& options,
                                  const std::vector<TrainedImplementation>& results,
                                  const PublishedRows& published) {
    std::vector<std::string> notes = caveats(options.scenario);
    const auto find = [&](TrainingImplementation implementation) {
        return std::ranges::find(results, implementation, &TrainedImplementation::implementation);
    };
    const auto ddp = find(TrainingImplementation::ddp);
    const auto reference = find(TrainingImplementation::reference);
    if (ddp != results.end() && reference != results.end()) {
        for (const std::string& note :
             comparison_notes(*reference, *ddp, published,
                              step_input(options.scenario).workload.gradient_bytes())) {
            notes.push_back(note);
        }
    }
    if (!published.empty()) {
        notes.emplace_back(
            "published is another model on other hardware: only how the two implementations "
            "compare can be set beside ours, no time, memory, loss or accuracy by itself");
    }
    return notes;
}

}  // namespace

void print_training(const TrainingOptions& options,
                    const std::vector<TrainedImplementation>& results, const std::string& about,
                    Json head) {
    const PublishedRows published = read_published(options.published);
    std::vector<BenchRow> rows;
    head["command"] = passed_on_command(options.command);
    head["epoch_losses"] = Json::object();
    for (const TrainedImplementation& result : results) {
        for (BenchRow& row : rows_of(options, result, published)) {
            rows.push_back(std::move(row));
        }
        if (!result.losses.empty()) {
            head["epoch_losses"][std::string(name_of(result.implementation))] = result.losses;
        }
    }
    ResultTable table = table_of(columns_of(!published.empty()), rows);
    const TrainingSchedule schedule = options.task_of(options.implementations.front()).schedule;
    table.title =
        fmt::format("{}: {} epochs of {} samples, batch {} on {}, accumulation {}; {}",
                    options.scenario.name, options.epochs, options.samples, schedule.batch,
                    text_of_ranks(schedule.ranks), schedule.accumulation, about);
    table.notes = notes_of(options, results, published);
    write_output("-", render(table, options.format, head));
}

void check_published(const std::string& file) {
    static_cast<void>(read_published(file));
}

}  // namespace bucketwise
