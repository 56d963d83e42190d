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
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/shell/csv.h"
#include "cli/shell/exit_codes.h"
#include "cli/shell/files.h"
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
#include "sim/report/misfit.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/report/sweep_table.h"
#include "sim/report/verdict.h"

namespace bucketwise {
namespace {

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
gain_ms, the gain over the framework's default, which is negative where the choice is safer rather
than faster. A step that shards has its sharding, groups and memory_bytes in place of a cap and
buckets; its default_step_ms is that of the scenario's own sharding.

examples:
  bucketwise sweep scenarios/resnet50_8xh100.json --vary /cluster/ranks=8..1024:x2 --format csv
  bucketwise sweep scenarios/gpt2_xl_32xh100.json --vary /sync/comm_hook=none,bf16 \
    --vary /cluster/link/inter/segments/4/bandwidth_gb_per_s=25..400:x2 --bucket-cap best

On many machines; the concatenated files of the shards are the file of one run:
  sbatch --array=1-16 --wrap 'bucketwise sweep S.json --vary ... --shard $SLURM_ARRAY_TASK_ID/16 \
    -o rows.$(printf %03d $SLURM_ARRAY_TASK_ID).jsonl'
  seq -w 16 | parallel 'bucketwise sweep S.json --vary ... --jobs 1 --shard {}/16 -o rows.{}.jsonl'
  cat rows.*.jsonl > rows.jsonl
)";

struct SweepOptions {
    std::string file;
    std::vector<VariedKey> keys;
    CapChoice cap;
    bool range = false;
    ScenarioOptions scenario;
    std::optional<std::int64_t> jobs;
    std::string shard;
    bool is_csv = false;
    std::string output = "-";
};

bool reads_csv(const std::string& text, const std::string& option) {
    if (text != "jsonl" && text != "csv") {
        throw InputError(option, "", "jsonl or csv", "\"" + text + "\"");
    }
    return text == "csv";
}

CapChoice read_cap(const std::string& text, const std::string& option) {
    return text == "best" ? CapChoice{.best = true} : CapChoice{.cap = parse_size(text, option)};
}

// A contiguous block of points.
struct Block {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    bool is_first = true;

    [[nodiscard]] std::int64_t size() const { return end - begin; }
};

Block requested_block(const std::string& text, std::int64_t points) {
    if (text.empty()) {
        return {0, points};
    }
    const std::size_t slash = text.find('/');
    if (slash == std::string::npos) {
        throw InputError("--shard", "", "i/n, such as 1/16", "\"" + text + "\"");
    }
    const std::int64_t shards = WholeNumbers{1, most_shards}(text.substr(slash + 1), "--shard");
    const std::int64_t shard = WholeNumbers{1, shards}(text.substr(0, slash), "--shard");
    // Whole parts of points / shards first, as the product may not fit.
    const auto boundary = [&](std::int64_t i) {
        return points / shards * i + points % shards * i / shards;
    };
    return {boundary(shard - 1), boundary(shard), shard == 1};
}

// --- rows ---

// The kinds of strategies that points have.
struct Strategies {
    bool replicated = false;
    bool sharded = false;

    void add(const Scenario& scenario) { (scenario.sharding ? sharded : replicated) = true; }
};

// Formats rows as they are simulated: there may be millions, too many for a ResultTable.
class RowFormat {
  public:
    RowFormat(const Grid& grid, bool is_csv, const CapChoice& cap, const Strategies& strategies)
        : is_csv_(is_csv), is_best_(cap.best), has_range_(cap.range), strategies_(strategies) {
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
        text += strategies_.replicated ? ",bucket_cap_mib,buckets" : "";
        text += strategies_.sharded ? ",sharding,groups,memory_bytes" : "";
        text += ",step_ms,forward_ms,backward_ms,exposed_communication_ms";
        text += is_best_ ? ",default_step_ms,gain_ms" : "";
        return text + (has_range_ ? ",low_step_ms,high_step_ms\n" : "\n");
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
        const auto add_nothing = [&](std::string_view key) { add(key, is_csv_ ? "" : "null"); };
        if (strategies_.replicated) {
            const std::optional<Bytes> cap = row.cap.size();
            cap ? add("bucket_cap_mib", typed_mib(*cap)) : add_nothing("bucket_cap_mib");
            row.sharding ? add_nothing("buckets") : add("buckets", row.buckets);
        }
        if (strategies_.sharded && row.sharding) {
            const std::string label = setting_label(*row.sharding);
            add("sharding", is_csv_ ? csv_text(label) : json_text_of(label));
            add("groups", row.buckets);
            add("memory_bytes", row.memory.count);
        } else if (strategies_.sharded) {
            for (const char* key : {"sharding", "groups", "memory_bytes"}) {
                add_nothing(key);
            }
        }
        add("step_ms", to_ms(row.times.step()));
        add("forward_ms", to_ms(row.times.forward));
        add("backward_ms", to_ms(row.times.backward));
        add("exposed_communication_ms", to_ms(row.exposed));
        if (row.default_step) {
            add("default_step_ms", to_ms(*row.default_step));
            add("gain_ms", to_ms(*row.default_step - row.times.step()));
        }
        if (has_range_ && row.range) {
            add("low_step_ms", to_ms(row.range->low));
            add("high_step_ms", to_ms(row.range->high));
        } else if (has_range_) {
            add_nothing("low_step_ms");
            add_nothing("high_step_ms");
        }
        fmt::format_to(out, FMT_STRING("{}"), is_csv_ ? "\n" : "}\n");
    }

  private:
    static std::string json_text_of(const Json& value) {
        return value.dump(-1, ' ', false, Json::error_handler_t::replace);
    }

    bool is_csv_;
    bool is_best_;
    bool has_range_;
    Strategies strategies_;
    std::vector<std::string> keys_;
    std::vector<std::vector<std::string>> values_;
};

// --- simulation ---

// The start of every thread.
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

// Reads every value of every key once, the other keys at their first: finds typing errors before
// anything is simulated.
Strategies checked_values(const SweepTask& task) {
    WhatIfs what_ifs(task.document, task.file, remembering_reader(), task.grid, task.cap);
    std::int64_t stride = task.grid.points();
    const Scenario& first = what_ifs.read(0);
    Strategies strategies;
    strategies.add(first);
    const auto varies_sync = [](const VariedKey& key) {
        return key.pointer.rfind("/sync/", 0) == 0;
    };
    const bool sync_varies =
        std::any_of(task.grid.keys().begin(), task.grid.keys().end(), varies_sync);
    const bool has_caps = !first.sharding && has_cap(without_list(first.sync));
    if (task.cap.cap && !has_caps && !sync_varies) {
        throw UsageError{fmt::format("--bucket-cap: expected a strategy with a bucket cap, got {}",
                                     strategy_of(first))};
    }
    for (const VariedKey& key : task.grid.keys()) {
        stride /= std::ssize(key.values);
        for (std::int64_t i = 1; i < std::ssize(key.values); ++i) {
            strategies.add(what_ifs.read(i * stride));
        }
    }
    return strategies;
}

struct Extreme {
    Duration step{0};
    std::int64_t point = 0;
    std::string setting = {};  // with --bucket-cap best
};

// The fastest and the slowest point; the first of equals.
struct SweepExtremes {
    std::optional<Extreme> fastest;
    std::optional<Extreme> slowest;

    void add(const Extreme& one) {
        const auto is_first = [&](const Extreme& other) {
            return one.step == other.step && one.point < other.point;
        };
        if (!fastest || one.step < fastest->step || is_first(*fastest)) {
            fastest = one;
        }
        if (!slowest || one.step > slowest->step || is_first(*slowest)) {
            slowest = one;
        }
    }
};

// "12.3 ms (/cluster/ranks=8)"; with the cap where each point has its best.
std::string text_of(const Extreme& extreme, const SweepTask& task, std::string_view at) {
    std::vector<std::size_t> position;
    task.grid.locate(extreme.point, position);
    std::vector<std::string> values;
    for (std::size_t key = 0; key < position.size(); ++key) {
        const VariedKey& varied = task.grid.keys()[key];
        values.push_back(fmt::format("{}={}", varied.pointer, varied.values[position[key]].dump()));
    }
    return fmt::format("{} ms{}{} ({})", three_digits(to_ms(extreme.step)),
                       extreme.setting.empty() ? "" : " with " + extreme.setting, at,
                       values.empty() ? "unchanged" : fmt::format("{}", fmt::join(values, ", ")));
}

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
            const bool is_named = task.cap.best && (row.sharding || row.cap.size());
            own.add({row.times.step(), point,
                     !is_named      ? ""
                     : row.sharding ? setting_label(*row.sharding)
                                    : bucket_cap_text(row.cap.size())});
            format.append(text, point, position, row);
        }
        const std::lock_guard guard(mutex);
        for (const auto& one : {own.fastest, own.slowest}) {
            if (one) {
                extremes.add(*one);
            }
        }
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

SweepTask requested_task(const SweepOptions& options) {
    if (options.range && options.cap.best) {
        throw UsageError{"--range: expected one cap for every point, got --bucket-cap best"};
    }
    CapChoice cap = options.cap;
    cap.range = options.range;
    Json document = read_simulated_document(options.scenario, options.file);
    const bool varies_link = std::ranges::any_of(options.keys, [](const VariedKey& key) {
        return key.pointer == "/cluster/link" || key.pointer == "/cluster";
    });
    if (!varies_link) {
        inline_link(document, options.file, read_text_file);
    }
    return {std::move(document), options.file, Grid(options.keys), cap};
}

int run_sweep(const SweepOptions& options) {
    const std::int64_t jobs =
        options.jobs.value_or(std::max<std::int64_t>(std::thread::hardware_concurrency(), 1));
    const SweepTask task = requested_task(options);
    const Block block = requested_block(options.shard, task.grid.points());
    if (block.size() > most_rows) {
        throw UsageError{fmt::format(
            "sweep: expected at most {} points in one run, got {}; --shard i/n simulates a part",
            most_rows, block.size())};
    }
    const Strategies strategies = checked_values(task);
    refuse_overwriting({options.output});  // not after an hour
    const RowFormat rows(task.grid, options.is_csv, task.cap, strategies);
    std::string text = block.is_first ? rows.header() : "";
    SweepExtremes extremes;
    for (std::string& chunk : simulated_rows(task, rows, block, jobs, extremes)) {
        text += chunk;
        chunk = {};
    }
    write_output(options.output, text);
    // Nothing else goes where rows go.
    if (std::filesystem::is_regular_file(options.output) && block.size() > 0) {
        const std::string best = fmt::format(" at the best of {}", counted(block.size(), "point"));
        const std::string misfit =
            misfit_text(parse_scenario(task.document, task.file, read_text_file));
        write_output("-", (misfit.empty() ? "" : wrapped(misfit) + "\n") +
                              fmt::format("A step takes {} and {}.\n",
                                          text_of(*extremes.fastest, task, best),
                                          text_of(*extremes.slowest, task, " at the worst")));
    }
    return exit_done;
}

}  // namespace

CommandHelp sweep_help() {
    const auto o = std::make_shared<SweepOptions>();
    const auto add_key = [](const std::string& text, const std::string&) {
        return parse_varied_key(text);
    };
    return {
        .usage = {"bucketwise sweep SCENARIO --vary /json/pointer=VALUES [OPTIONS]"},
        .options = options_of(
            {{"vary", "a key of the scenario and its values, /json/pointer=VALUES; may be repeated",
              OptionValue::each(o->keys, add_key)},
             {"bucket-cap",
              "one cap for every point, such as 25MiB, or best: predict's choice at each, also of "
              "shardings; default: the scenario's own, or the framework's default",
              {o->cap, read_cap},
              Completions{.names = {"best"}, .files = false}}},
            simulated_rows(o->scenario),
            {{"jobs,j",
              "threads; default: as many as cores",
              {o->jobs, WholeNumbers{1, most_jobs}}},
             {"shard", "i/n: only the i-th of n equal parts of the points, from 1", o->shard},
             {"range",
              "also low_step_ms and high_step_ms: where the step may lie if presets are off",
              o->range},
             {"format",
              "jsonl or csv",
              {o->is_csv, reads_csv, "jsonl"},
              Completions{.names = {"jsonl", "csv"}, .files = false}},
             {"output,o", "file to write; - is standard output", o->output}}),
        .text = sweep_text,
        .arguments = scenarios(),
        .positional = {.value = o->file},
        .required = {"scenario"},
        .wants = "a scenario file or a model's name, got none",
        .run = [o](const CommandLine&) { return run_sweep(*o); }};
}

}  // namespace bucketwise
