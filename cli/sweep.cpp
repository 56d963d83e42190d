// bucketwise sweep SCENARIO --vary POINTER=VALUES: the step at every combination of values, in
// parallel, a row each.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/shell/command_help.h"
#include "cli/shell/csv.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
#include "cli/shell/option_values.h"
#include "cli/shell/parallel_texts.h"
#include "cli/shell/progress.h"
#include "cli/shell/read_files.h"
#include "cli/shell/scenario_document.h"
#include "cli/shell/size.h"
#include "cli/varied_values.h"
#include "sim/link/link_input.h"
#include "sim/plan/cap.h"
#include "sim/plan/strategy.h"
#include "sim/predict/what_if.h"
#include "sim/report/number_text.h"
#include "sim/report/sweep_table.h"

namespace bucketwise {
namespace {

namespace po = boost::program_options;

// All rows are in memory before the first is written: an invalid point leaves no half file.
constexpr std::int64_t most_rows = 2'000'000;
constexpr std::int64_t most_jobs = 1024;
constexpr std::int64_t most_shards = 1'000'000;

constexpr std::string_view sweep_text = R"(
VALUES: a list a,b,c (numbers, true, false, strings), or a range: 8..65536:x2 (geometric),
0..1:+0.1 or 100..0:-5 (arithmetic), both ends included where they are hit. A pointer may lead into
the link: /cluster/link/segments/0/latency_us. The last --vary changes fastest. A row has its index,
the varied values by pointer, bucket_cap_mib, buckets, step_ms, forward_ms, backward_ms and
exposed_communication_ms as predict --json has them; with --bucket-cap best also default_step_ms and
gain_ms, what that cap gains over the framework's default: less than nothing where the
choice is safer rather than faster.

examples:
  bucketwise sweep scenarios/resnet50_8xh100.json --vary /cluster/ranks=8..1024:x2 --format csv
  bucketwise sweep scenarios/gpt2_xl_32xh100.json --vary /sync/comm_hook=none,bf16 \
    --vary /cluster/link/inter/segments/4/bandwidth_gb_per_s=25..400:x2 --bucket-cap best

On many machines; the files of the shards, one after another, are the file of one run:
  sbatch --array=1-16 --wrap 'bucketwise sweep S.json --vary ... --shard $SLURM_ARRAY_TASK_ID/16 \
    -o rows.$(printf %03d $SLURM_ARRAY_TASK_ID).jsonl'
  seq -w 16 | parallel 'bucketwise sweep S.json --vary ... --jobs 1 --shard {}/16 -o rows.{}.jsonl'
  cat rows.*.jsonl > rows.jsonl
)";

po::options_description sweep_options() {
    po::options_description options("options");
    add_options(
        options,
        {{"vary",
          "a key of the scenario and the values it takes, /json/pointer=VALUES; may be repeated",
          many_values},
         {"bucket-cap",
          "one cap for every point, such as 25MiB, or best: the one predict would choose at each; "
          "without "
          "it the scenario's own, or the framework's default"}});
    add_scenario_options(options);
    add_workload_options(options);
    add_options(options, {ranks_option,
                          {"jobs,j", "threads; without it as many as there are cores"},
                          {"shard", "i/n: only the i-th of n equal parts of the points, from 1"},
                          {"format", "jsonl or csv", "jsonl"},
                          {"output,o", "file to write; - is standard output", "-"},
                          help_option});
    return options;
}

// A contiguous block of points.
struct Block {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool is_first = true;

    [[nodiscard]] std::int64_t size() const { return end - begin; }
};

Block requested_block(const po::variables_map& values, std::int64_t points) {
    if (values.count("shard") == 0) {
        return {0, points};
    }
    const std::string& text = text_value(values, "shard");
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) {
        throw InputError("--shard", "", "i/n, such as 1/16", "\"" + text + "\"");
    }
    const std::int64_t shards = whole_number(text.substr(slash + 1), "--shard", {1, most_shards});
    const std::int64_t shard = whole_number(text.substr(0, slash), "--shard", {1, shards});
    // Whole parts of points / shards first, as the product may not fit.
    const auto boundary = [&](std::int64_t i) {
        return points / shards * i + points % shards * i / shards;
    };
    return {boundary(shard - 1), boundary(shard), shard == 1};
}

CapChoice requested_cap(const po::variables_map& values) {
    const std::string text = text_or_empty(values, "bucket-cap");
    if (text.empty()) {
        return {};
    }
    return text == "best" ? CapChoice{.best = true}
                          : CapChoice{.cap = parse_size(text, "--bucket-cap")};
}

// --- rows ---

// Not a ResultTable, which would hold all rows: there may be millions, and each is printed as soon
// as it is simulated.
class RowFormat {
  public:
    RowFormat(const Grid& grid, bool is_csv, bool is_best) : is_csv_(is_csv), is_best_(is_best) {
        for (const VariedKey& key : grid.keys()) {
            keys_.push_back(is_csv ? csv_text(key.pointer) : json_text_of(key.pointer));
            values_.emplace_back();
            for (const Json& value : key.values) {
                const bool is_text = is_csv && value.is_string();
                values_.back().push_back(is_text ? csv_text(value.get<std::string>())
                                                 : json_text_of(value));
            }
        }
    }

    // The first line of a CSV file; empty for JSON lines.
    [[nodiscard]] std::string header() const {
        if (!is_csv_) {
            return "";
        }
        std::string text = "index";
        for (const std::string& key : keys_) {
            text += "," + key;
        }
        text += ",bucket_cap_mib,buckets,step_ms,forward_ms,backward_ms,exposed_communication_ms";
        return text + (is_best_ ? ",default_step_ms,gain_ms\n" : "\n");
    }

    void append(fmt::memory_buffer& text, std::int64_t index,
                const std::vector<std::size_t>& position, const WhatIf& row) const {
        const auto out = std::back_inserter(text);
        fmt::format_to(out, FMT_STRING("{}{}"), is_csv_ ? "" : "{\"index\":", index);
        for (std::size_t i = 0; i < position.size(); ++i) {
            const std::string& value = values_[i][position[i]];
            if (is_csv_) {
                fmt::format_to(out, FMT_STRING(",{}"), value);
            } else {
                fmt::format_to(out, FMT_STRING(",{}:{}"), keys_[i], value);
            }
        }
        const auto add = [&](std::string_view key, auto value) {
            if (is_csv_) {
                fmt::format_to(out, FMT_STRING(",{}"), value);
            } else {
                fmt::format_to(out, FMT_STRING(",\"{}\":{}"), key, value);
            }
        };
        if (const std::optional<Bytes> cap = row.cap.size()) {
            add("bucket_cap_mib", typed_mib(*cap));
        } else {
            add("bucket_cap_mib", is_csv_ ? "" : "null");
        }
        add("buckets", row.buckets);
        add("step_ms", to_ms(row.times.step()));
        add("forward_ms", to_ms(row.times.forward));
        add("backward_ms", to_ms(row.times.backward));
        add("exposed_communication_ms", to_ms(row.exposed));
        if (row.default_step) {
            add("default_step_ms", to_ms(*row.default_step));
            add("gain_ms", to_ms(*row.default_step - row.times.step()));
        }
        fmt::format_to(out, FMT_STRING("{}"), is_csv_ ? "\n" : "}\n");
    }

  private:
    static std::string json_text_of(const Json& value) {
        return value.dump(-1, ' ', false, Json::error_handler_t::replace);
    }

    bool is_csv_;
    bool is_best_;
    std::vector<std::string> keys_;
    std::vector<std::vector<std::string>> values_;
};

// --- simulation ---

// What every thread starts from.
struct SweepTask {
    Json document;
    std::string file;
    Grid grid;
    CapChoice cap;
};

// Reads each file once: a varied link is named again and again.
FileReader remembering_reader() {
    const auto texts = std::make_shared<std::map<std::string, std::string>>();
    return [texts](const std::string& path) {
        const auto known = texts->find(path);
        return known != texts->end() ? known->second
                                     : texts->emplace(path, read_text_file(path)).first->second;
    };
}

// Every value of every key once, the other keys at their first: a mistyped one is found before
// anything is simulated.
void check_values(const SweepTask& task) {
    WhatIfs what_ifs(task.document, task.file, remembering_reader(), task.grid, task.cap);
    std::int64_t stride = task.grid.points();
    const Scenario& first = what_ifs.read(0);
    const auto varies_sync = [](const VariedKey& key) {
        return key.pointer.rfind("/sync/", 0) == 0;
    };
    const bool sync_varies =
        std::any_of(task.grid.keys().begin(), task.grid.keys().end(), varies_sync);
    if (task.cap.cap && !has_cap(without_list(first.sync)) && !sync_varies) {
        throw UsageError{fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                                     name_of(first.sync.strategy))};
    }
    for (const VariedKey& key : task.grid.keys()) {
        stride /= std::ssize(key.values);
        for (std::int64_t i = 1; i < std::ssize(key.values); ++i) {
            what_ifs.read(i * stride);
        }
    }
}

// The fastest and the slowest of points; of several the first.
class SweepExtremes {
  public:
    void add(std::int64_t point, const WhatIf& row) { add({row.times.step(), point, row.cap}); }
    void add(const SweepExtremes& others) {
        for (const std::optional<Extreme>* one : {&others.fastest_, &others.slowest_}) {
            if (*one) {
                add(**one);
            }
        }
    }

    // "A step takes 12.3 ms at the best of 16 points (/cluster/ranks=8) ..."; with the caps where
    // each point has its best one. Precondition: a point.
    [[nodiscard]] std::string sentence(const SweepTask& task, std::int64_t points) const {
        return fmt::format("A step takes {} at the best of {} ({}) and {} at the worst ({}).\n",
                           text_of(*fastest_, task.cap.best), counted(points, "point"),
                           place_of(*fastest_, task.grid), text_of(*slowest_, task.cap.best),
                           place_of(*slowest_, task.grid));
    }

  private:
    struct Extreme {
        Duration step{0};
        std::int64_t point = 0;
        Cap cap = Cap::none();
    };

    void add(const Extreme& one) {
        const auto is_before = [&](const Extreme& other) {
            return one.step == other.step && one.point < other.point;
        };
        if (!fastest_ || one.step < fastest_->step || is_before(*fastest_)) {
            fastest_ = one;
        }
        if (!slowest_ || one.step > slowest_->step || is_before(*slowest_)) {
            slowest_ = one;
        }
    }

    static std::string text_of(const Extreme& extreme, bool with_cap) {
        const std::string step = three_digits(to_ms(extreme.step)) + " ms";
        return with_cap && extreme.cap.size()
                   ? fmt::format("{} with {}", step, bucket_cap_text(extreme.cap.size()))
                   : step;
    }

    static std::string place_of(const Extreme& extreme, const Grid& grid) {
        std::vector<std::size_t> position;
        grid.locate(extreme.point, position);
        std::string text;
        for (std::size_t key = 0; key < position.size(); ++key) {
            text += fmt::format("{}{}={}", key == 0 ? "" : ", ", grid.keys()[key].pointer,
                                grid.keys()[key].values[position[key]].dump());
        }
        return text.empty() ? "as it is" : text;
    }

    std::optional<Extreme> fastest_;
    std::optional<Extreme> slowest_;
};

// The rows of a block, in chunks that several threads simulate.
std::vector<std::string> simulated_rows(const SweepTask& task, const RowFormat& format,
                                        const Block& block, std::int64_t jobs,
                                        SweepExtremes& extremes) {
    constexpr std::int64_t most_points_in_chunk = 1024;
    constexpr std::int64_t chunks_per_job = 16;
    const std::int64_t chunk_size =
        std::clamp<std::int64_t>(block.size() / (jobs * chunks_per_job), 1, most_points_in_chunk);
    std::mutex mutex;
    const auto rows_of = [&](WhatIfs& what_ifs, std::int64_t chunk) {
        fmt::memory_buffer text;
        std::vector<std::size_t> position;
        SweepExtremes own;
        const std::int64_t begin = block.begin + chunk * chunk_size;
        const std::int64_t end = std::min(begin + chunk_size, block.end);
        for (std::int64_t point = begin; point < end; ++point) {
            task.grid.locate(point, position);
            const WhatIf row = what_ifs.evaluate(point);
            own.add(point, row);
            format.append(text, point, position, row);
        }
        const std::lock_guard guard(mutex);
        extremes.add(own);
        return fmt::to_string(text);
    };
    PercentLine line("simulating what-ifs");
    ParallelTexts chunks((block.size() + chunk_size - 1) / chunk_size, jobs);
    return chunks.make(
        [&]() -> TextMaker {
            auto what_ifs = std::make_shared<WhatIfs>(task.document, task.file,
                                                      remembering_reader(), task.grid, task.cap);
            return [&, what_ifs](std::int64_t chunk) { return rows_of(*what_ifs, chunk); };
        },
        [&](double done) { line(done); });
}

SweepTask requested_task(const po::variables_map& values, const std::string& file) {
    std::vector<VariedKey> keys;
    for (const std::string& text : texts_value(values, "vary")) {
        keys.push_back(parse_varied_key(text));
    }
    Json document = read_simulated_document(values, file);
    const bool varies_link = std::any_of(keys.begin(), keys.end(), [](const VariedKey& key) {
        return key.pointer == "/cluster/link" || key.pointer == "/cluster";
    });
    if (!varies_link) {
        inline_link(document, file, read_text_file);
    }
    return {std::move(document), file, Grid(std::move(keys)), requested_cap(values)};
}

}  // namespace

CommandHelp sweep_help() {
    return {.usage = {"bucketwise sweep SCENARIO --vary /json/pointer=VALUES [OPTIONS]"},
            .options = sweep_options(),
            .text = sweep_text,
            .arguments = scenarios(),
            .values = {{"bucket-cap", {.names = {"best"}, .files = false}},
                       {"format", {.names = {"jsonl", "csv"}, .files = false}}},
            .required = {"scenario"},
            .wants = "a scenario file or a model's name, got none"};
}

int run_sweep(const CommandLine& line) {
    const po::variables_map& values = line.values;
    const std::string& file = text_value(values, "scenario");
    const std::string& format = text_value(values, "format");
    if (format != "jsonl" && format != "csv") {
        throw InputError("--format", "", "jsonl or csv", "\"" + format + "\"");
    }
    const std::int64_t jobs =
        optional_number(values, "jobs", {1, most_jobs})
            .value_or(std::max<std::int64_t>(std::thread::hardware_concurrency(), 1));
    const SweepTask task = requested_task(values, file);
    const Block block = requested_block(values, task.grid.points());
    if (block.size() > most_rows) {
        throw UsageError{fmt::format(
            "sweep: expected at most {} points in one run, got {}; --shard i/n simulates a part",
            most_rows, block.size())};
    }
    check_values(task);
    const std::string& output = text_value(values, "output");
    refuse_overwriting({output});  // not after an hour
    const RowFormat rows(task.grid, format == "csv", task.cap.best);
    std::string text = block.is_first ? rows.header() : "";
    SweepExtremes extremes;
    for (std::string& chunk : simulated_rows(task, rows, block, jobs, extremes)) {
        text += chunk;
        chunk = {};
    }
    write_output(output, text);
    // Nothing else goes where rows go.
    if (std::filesystem::is_regular_file(output) && block.size() > 0) {
        write_output("-", extremes.sentence(task, block.size()));
    }
    return exit_done;
}

}  // namespace bucketwise
