#include "import/nccl_tests/nccl_tests.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "import/nccl_tests/nccl_tests_ranks.h"
#include "import/source/dtype_names.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"
#include "sim/link/nearest_preset.h"

namespace bucketwise {
namespace {

constexpr std::string_view on_one_rank = " on one rank";

// --- which rows are taken ---

// A log without a program's name is of all-reduces, as most are: their rows then tell.
std::optional<CollectiveKind> kind_of(const NcclTestsRun& run) {
    for (const auto& [program, kind] :
         {std::pair("all_reduce_perf", CollectiveKind::all_reduce),
          std::pair("all_gather_perf", CollectiveKind::all_gather),
          std::pair("reduce_scatter_perf", CollectiveKind::reduce_scatter)}) {
        if (run.collective.starts_with(program)) {
            return kind;
        }
    }
    return run.collective.empty() ? std::optional(CollectiveKind::all_reduce) : std::nullopt;
}

// Without the program's name, all-reduces are the rows without a root, with a reduction, and with
// the count's size. An all-gather's or reduce-scatter's count is one rank's (src/all_gather.cu and
// src/reduce_scatter.cu, GetCollByteCount); only its name tells an all-gather from an all-to-all.
std::string not_taken(const NcclTestsRun& run, const NcclTestsRow& row) {
    const auto kind = kind_of(run);
    if (!kind) {
        return "rows of " + run.collective;
    }
    const bool reduces = !row.redop.empty() && row.redop != "none";
    const bool has_root = row.root && *row.root >= 0;
    const std::int64_t counted = row.count * nccl_element_bytes(row.dtype);
    const bool whole = *kind == CollectiveKind::all_reduce
                           ? row.bytes == counted
                           : counted > 0 && row.bytes % counted == 0;
    const bool as_it_should = reduces || *kind == CollectiveKind::all_gather;
    return as_it_should && !has_root && whole && row.bytes > 0
               ? ""
               : "rows of other collectives, or of no bytes";
}

// Drops the rows for which `why` gives a reason.
template <typename Why>
void drop_rows(std::vector<NcclTestsLog>& logs, const Why& why) {
    for (NcclTestsLog& log : logs) {
        for (NcclTestsRun& run : log.runs) {
            run.kind = kind_of(run).value_or(run.kind);
            std::erase_if(run.rows, [&](const NcclTestsRow& row) {
                const std::string reason = why(run, row);
                if (!reason.empty()) {
                    log.skip(reason, row.line);
                }
                return !reason.empty();
            });
        }
        std::erase_if(log.runs, [](const NcclTestsRun& run) { return run.rows.empty(); });
    }
}

// Drops the times for which `is_bad` holds, and rows without any.
template <typename IsBad>
void drop_halves(std::vector<NcclTestsLog>& logs, const char* what, const IsBad& is_bad) {
    for (NcclTestsLog& log : logs) {
        for (NcclTestsRun& run : log.runs) {
            for (NcclTestsRow& row : run.rows) {
                const auto dropped = std::erase_if(
                    row.halves, [&](const NcclTestsHalf& half) { return is_bad(run, row, half); });
                if (dropped > 0) {
                    log.skip(what, row.line, static_cast<std::int64_t>(dropped));
                }
            }
            std::erase_if(run.rows, [](const NcclTestsRow& row) { return row.halves.empty(); });
        }
    }
}

// --- samples ---

// The whole time by algbw, where that has enough digits: with -C the printed time is the launch's.
std::optional<double> whole_time_us(const NcclTestsHalf& half, std::int64_t bytes) {
    constexpr double precise = 0.01;
    if (half.algbw.value <= 0 || half.algbw.half_unit > precise * half.algbw.value) {
        return std::nullopt;
    }
    const double us = static_cast<double>(bytes) / 1e3 / half.algbw.value;
    return can_be_measured(us) ? std::optional(us) : std::nullopt;
}

CollectiveRecord record_of(const NcclTestsRun& run, const NcclTestsRow& row,
                           const Transport& transport, DType dtype) {
    CollectiveRecord record{.kind = run.kind,
                            .transport = transport,
                            .size = {row.bytes},
                            .dtype = dtype,
                            .samples_us = {}};
    record.transport.ranks = run.ranks;
    for (const NcclTestsHalf& half : row.halves) {
        record.samples_us.push_back(run.columns.cpu_time ? whole_time_us(half, row.bytes).value()
                                                         : half.time_us.value);
        if (run.columns.cpu_time) {
            record.issue_us.push_back(half.time_us.value);
        }
    }
    return record;
}

std::int64_t asked_ranks(const NcclTestsOptions& options, std::size_t log) {
    return options.ranks.empty()       ? 0
           : options.ranks.size() == 1 ? options.ranks.front()
                                       : options.ranks.at(log);
}

// --- one dtype and one reduction for all logs ---

bool sums(const NcclTestsRun& run) {
    return run.kind != CollectiveKind::all_gather;
}

// Visits the rows of runs that sum, or of those that do not.
template <typename Visit>
void for_each_row(const std::vector<NcclTestsLog>& logs, bool summing, const Visit& visit) {
    for (const NcclTestsLog& log : logs) {
        for (const NcclTestsRun& run : log.runs) {
            if (sums(run) == summing) {
                std::for_each(run.rows.begin(), run.rows.end(), visit);
            }
        }
    }
}

// Float32, the usual type of gradients, where there is any; else the most frequent.
std::optional<DType> chosen_dtype(const std::vector<NcclTestsLog>& logs, bool summing) {
    std::map<DType, std::size_t> rows;
    for_each_row(logs, summing, [&](const NcclTestsRow& row) {
        if (const auto dtype = dtype_named(row.dtype)) {
            ++rows[*dtype];
        }
    });
    if (rows.empty()) {
        return std::nullopt;
    }
    const auto most =
        std::ranges::max_element(rows, {}, [](const auto& of_dtype) { return of_dtype.second; });
    return rows.contains(DType::float32) ? DType::float32 : most->first;
}

// Sums, as of gradients, where there are any; else the first reduction.
std::string chosen_reduction(const std::vector<NcclTestsLog>& logs) {
    std::string chosen;
    for_each_row(logs, true, [&](const NcclTestsRow& row) {
        chosen = chosen.empty() || row.redop == "sum" ? row.redop : chosen;
    });
    return chosen;
}

// --- the report ---

std::string size_text(std::int64_t bytes) {
    constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    constexpr double next = 1024;
    for (; value >= next && unit + 1 < units.size(); ++unit) {
        value /= next;
    }
    return fmt::format("{:.4g} {}", value, units.at(unit));
}

std::string run_text(const NcclTestsRun& run, const std::string& what, const Told& ranks,
                     const Told& nodes) {
    std::set<std::int64_t> sizes;
    std::size_t times = 0;
    for (const NcclTestsRow& row : run.rows) {
        sizes.insert(row.bytes);
        times += row.halves.size();
    }
    const auto plural = [](std::size_t count) { return count == 1 ? "" : "s"; };
    std::string text = fmt::format(
        "  {} {}{} ({}), {} size{} from {} to {}, {} time{}\n", run.rows.size(), name_of(run.kind),
        plural(run.rows.size()), what, sizes.size(), plural(sizes.size()),
        size_text(*sizes.begin()), size_text(*sizes.rbegin()), times, plural(times));
    text += fmt::format("    ranks  {} ({})\n", ranks.number, ranks.how);
    text += fmt::format("    nodes  {} ({})\n", nodes.number, nodes.how);
    if (run.columns.cpu_time) {
        text +=
            "    times  told by algbw, as cputime (-C) is the time to launch: kept as the host's "
            "time to issue one\n";
    }
    return text;
}

std::string gpus_of(const NcclTestsRun& run) {
    std::set<std::string> names;
    for (const NcclTestsDevice& device : run.devices) {
        if (!device.name.empty()) {
            names.insert(device.name);
        }
    }
    return fmt::format("{}", fmt::join(names, " and "));
}

std::string nearest_text(const MeasuredTimes& measured) {
    const auto nearest = nearest_preset(measured);
    if (!nearest) {
        return "";
    }
    if (nearest->inside == 0) {
        return fmt::format("    nearest preset  none is near; {} is off by {:.0f} % on average\n",
                           nearest->preset->name, 100 * nearest->mean_error);
    }
    return fmt::format(
        "    nearest preset  {} ({}): off by {:.0f} % on average, {} of {} sizes within its "
        "range\n",
        nearest->preset->name, nearest->preset->what, 100 * nearest->mean_error, nearest->inside,
        nearest->sizes);
}

// "3 lines of ...", "1 line of ...": every text of skipped lines begins with a plural.
std::string counted(const SkippedLines& skipped) {
    std::string what = skipped.what;
    if (skipped.count == 1) {
        what.erase(what.find(' ') - 1, 1);
    }
    return fmt::format("{} {}", skipped.count, what);
}

std::string skipped_text(const NcclTestsLog& log) {
    std::string text;
    for (const SkippedLines& skipped : log.skipped) {
        text += fmt::format("    not taken: {}, {}in {} {}\n", counted(skipped),
                            skipped.count == 1 ? "" : "first ", log.json ? "document" : "line",
                            skipped.first_line);
    }
    return text;
}

// --- the environment ---

void add_environment(EnvironmentRecord& environment, const NcclTestsLog& log,
                     const NcclTestsRun& run, const Told& nodes) {
    const std::string gpus = gpus_of(run);
    if (!environment.gpu.empty() && !gpus.empty() && environment.gpu != gpus) {
        contradict(log, run, "logs of one kind of GPU: " + environment.gpu, gpus);
    }
    environment.gpu = environment.gpu.empty() ? gpus : environment.gpu;
    environment.libraries = environment.libraries.empty() ? run.library : environment.libraries;
    environment.date = environment.date.empty() ? run.date : environment.date;
    environment.hosts = std::max(environment.hosts, nodes.number);
}

class Import {
  public:
    explicit Import(const NcclTestsOptions& options) : options_(options) {
        result_.environment.transport = {
            .backend = "nccl", .algorithm = "ring", .implementation = "library"};
        result_.environment.machine = {.cpu = "unknown",
                                       .cores = 0,
                                       .kernel = "unknown",
                                       .compiler = "unknown",
                                       .gpu_libraries = "unknown",
                                       .scheduling = "unknown"};
    }

    void add(NcclTestsLog& log, std::size_t index) {
        result_.report += fmt::format("{}\n", log.file);
        for (NcclTestsRun& run : log.runs) {
            const Told ranks = ranks_of(log, run, asked_ranks(options_, index));
            run.ranks = ranks.number;
            if (run.ranks == 1) {
                log.skip(plural_of(run.kind) + std::string(on_one_rank), run.rows.front().line,
                         static_cast<std::int64_t>(run.rows.size()));
            } else {
                add_run(log, run, ranks);
            }
        }
        if (log.runs.empty()) {
            result_.report += "  nothing taken\n";
        }
        result_.report += skipped_text(log);
    }

    ImportedNcclTests finish() {
        EnvironmentRecord& environment = result_.environment;
        environment.transport.ranks = first_ranks_;
        environment.rounds = 1;
        for (const auto& [point, rounds] : rounds_) {
            environment.rounds = std::max(environment.rounds, rounds);
        }
        if (environment.libraries.empty()) {
            environment.libraries = "NCCL, version unknown";
        }
        if (nodes_.size() > 1) {
            result_.report += fmt::format(
                "Note: logs on {} nodes together. A ring has one latency and one bandwidth for all "
                "of them, and those within a node and between nodes differ: import each number of "
                "nodes into a file of its own, and calibrate a link from each.\n",
                fmt::join(nodes_, " and "));
        }
        return std::move(result_);
    }

    [[nodiscard]] bool is_empty() const { return first_ranks_ == 0; }

  private:
    void add_run(const NcclTestsLog& log, const NcclTestsRun& run, const Told& ranks) {
        const Told nodes = nodes_of(log, run, options_.ranks_per_node);
        nodes_.insert(nodes.number);
        add_environment(result_.environment, log, run, nodes);
        MeasuredTimes measured{.ranks = ranks.number, .nodes = nodes.number, .gpu = gpus_of(run)};
        const DType dtype = *dtype_named(run.rows.front().dtype);
        for (const NcclTestsRow& row : run.rows) {
            CollectiveRecord record = record_of(run, row, result_.environment.transport, dtype);
            record.round = rounds_[{run.kind, run.ranks, row.bytes}]++;
            // The better of the times in place and out of place.
            measured.times.push_back({record.size, std::ranges::min(record.samples_us)});
            result_.collectives.push_back(std::move(record));
        }
        first_ranks_ = first_ranks_ == 0 ? run.ranks : first_ranks_;
        const std::string redop = sums(run) ? ", " + run.rows.front().redop : "";
        result_.report += run_text(run, fmt::format("{}{}", name_of(dtype), redop), ranks, nodes);
        // Presets were compared with all-reduces only.
        result_.report += run.kind == CollectiveKind::all_reduce ? nearest_text(measured) : "";
    }

    const NcclTestsOptions& options_;
    ImportedNcclTests result_;
    std::int64_t first_ranks_ = 0;  // of the first run that is taken; 0: none is
    std::map<std::tuple<CollectiveKind, std::int64_t, std::int64_t>, std::int64_t>
        rounds_;  // by kind, ranks and bytes
    std::set<std::int64_t> nodes_;
};

[[noreturn]] void refuse(const std::vector<NcclTestsLog>& logs) {
    std::vector<std::string> skipped;
    bool alone = false;
    for (const NcclTestsLog& log : logs) {
        for (const SkippedLines& lines : log.skipped) {
            skipped.push_back(counted(lines));
            alone = alone || lines.what.ends_with(on_one_rank);
        }
    }
    throw InputError(
        logs.front().file, "",
        "rows of all_reduce_perf, all_gather_perf or reduce_scatter_perf on more than one rank, as "
        "nccl-tests prints them",
        (skipped.empty() ? "nothing of it" : fmt::format("only {}", fmt::join(skipped, ", "))) +
            (alone ? "; each process saw one rank: start it with -g 2 or more, or under mpirun "
                     "from a build with MPI=1"
                   : ""));
}

}  // namespace

ImportedNcclTests import_nccl_tests(std::vector<NcclTestsLog> logs,
                                    const NcclTestsOptions& options) {
    drop_rows(logs, not_taken);
    drop_halves(logs, "times of wrong results (#wrong above 0, or *)",
                [](const auto&, const auto&, const NcclTestsHalf& half) { return half.wrong; });
    drop_halves(logs,
                "times of launching only (cputime, -C) whose algbw has too few digits to tell the "
                "whole",
                [](const NcclTestsRun& run, const NcclTestsRow& row, const NcclTestsHalf& half) {
                    return run.columns.cpu_time && !whole_time_us(half, row.bytes);
                });
    drop_rows(logs, [](const NcclTestsRun& run, const NcclTestsRow& row) {
        return dtype_named(row.dtype)
                   ? ""
                   : fmt::format("{} of {}, which no gradient is", plural_of(run.kind), row.dtype);
    });
    // Summing costs differ by dtype, so all sums are of one. Gathers may have another.
    const auto of_sums = options.dtype ? options.dtype : chosen_dtype(logs, true);
    const auto of_gathers = options.dtype ? options.dtype : chosen_dtype(logs, false);
    drop_rows(logs, [&](const NcclTestsRun& run, const NcclTestsRow& row) {
        const DType other = *dtype_named(row.dtype);
        return other == (sums(run) ? of_sums : of_gathers)
                   ? ""
                   : fmt::format("{} of {} (--dtype chooses)", plural_of(run.kind), name_of(other));
    });
    const std::string reduction = chosen_reduction(logs);
    drop_rows(logs, [&](const NcclTestsRun& run, const NcclTestsRow& row) {
        return !sums(run) || row.redop == reduction
                   ? ""
                   : fmt::format("{} by {}", plural_of(run.kind), row.redop);
    });
    Import imported(options);
    for (std::size_t i = 0; i < logs.size(); ++i) {
        imported.add(logs[i], i);
    }
    if (imported.is_empty()) {
        refuse(logs);
    }
    return imported.finish();
}

}  // namespace bucketwise
