#include "sim/report/sweep_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_telling_rows = 12;
// A row closer than this to the line between its neighbours, as a share of the best step, tells
// nothing new.
constexpr double telling_deviation = 0.002;

double step_ms(const Evaluation& e) {
    return to_ms(e.step());
}

double log_cap(const Evaluation& e) {
    return std::log(static_cast<double>(e.cap.size().value_or(Bytes{1}).count));
}

// The row between `low` and `high` that lies furthest from the line between them.
std::pair<std::size_t, double> furthest_from_line(const std::vector<Evaluation>& sweep,
                                                  std::size_t low, std::size_t high) {
    std::pair<std::size_t, double> furthest{low, 0.0};
    const double width = std::max(log_cap(sweep[high]) - log_cap(sweep[low]), 1e-9);
    for (std::size_t i = low + 1; i < high; ++i) {
        const double along = (log_cap(sweep[i]) - log_cap(sweep[low])) / width;
        const double line =
            step_ms(sweep[low]) + along * (step_ms(sweep[high]) - step_ms(sweep[low]));
        const double deviation = std::abs(step_ms(sweep[i]) - line);
        if (deviation > furthest.second) {
            furthest = {i, deviation};
        }
    }
    return furthest;
}

bool same_plan(const Evaluation& a, const Evaluation& b) {
    return a.bucket_bytes == b.bucket_bytes && a.times == b.times;
}

std::string over_text(Duration over, Duration fastest) {
    const double percent = 100 * share_of(over, fastest);
    return percent < 10 ? fmt::format("{:.2f} %", percent) : three_digits(percent) + " %";
}

// The default's plan is in the sweep only where its first, smaller bucket makes no difference.
std::string marks(const Prediction& prediction, std::size_t i) {
    const Evaluation& row = prediction.sweep[i];
    const auto& yours = prediction.configured;
    return marks_text({{i == prediction.best, prediction.keep_default ? "best named" : "best"},
                       {same_plan(row, prediction.default_cap), "default"},
                       {yours && same_plan(row, *yours), "yours"}});
}

// The ends of the sweep, the best and the fastest.
std::vector<std::size_t> short_rows(const Prediction& prediction) {
    const auto fastest =
        static_cast<std::size_t>(std::ranges::min_element(prediction.sweep, {}, &Evaluation::step) -
                                 prediction.sweep.begin());
    std::set<std::size_t> rows{0, prediction.best, prediction.sweep.size() - 1};
    if (prediction.sweep[fastest].step() < prediction.sweep[prediction.best].step()) {
        rows.insert(fastest);
    }
    return {rows.begin(), rows.end()};
}

struct ShownRow {
    std::vector<std::string> knobs;
    const Evaluation* row = nullptr;
    std::string mark = {};
};

// Rows by rising cap.
std::vector<ShownRow> cap_rows(const Prediction& prediction, Detail detail) {
    const bool exact = detail == Detail::full;
    std::vector<ShownRow> rows;
    const auto add = [&](const std::string& cap, const Evaluation& row, const std::string& mark) {
        rows.push_back({{cap, std::to_string(row.bucket_bytes.size())}, &row, mark});
    };
    std::string listed;
    for (const std::size_t i : exact ? telling_rows(prediction) : short_rows(prediction)) {
        const std::string mark = marks(prediction, i);
        const std::optional<Bytes> cap = prediction.sweep[i].cap.size();
        add(exact || !mark.empty() ? bucket_cap_text(cap) : rounded_cap_text(cap),
            prediction.sweep[i], mark);
        listed += mark;
    }
    if (listed.find("default") == std::string::npos) {
        add("default", prediction.default_cap, "");
    }
    if (prediction.configured && listed.find("yours") == std::string::npos) {
        add(bucket_cap_text(prediction.configured->cap.size()), *prediction.configured, "yours");
    }
    return rows;
}

bool is_configured(const Prediction& prediction, const Evaluation& row) {
    const Evaluation& own = *prediction.configured;
    return row.times == own.times && row.memory == own.memory &&
           row.sharded->groups == own.sharded->groups;
}

std::vector<ShownRow> sharded_rows(const Prediction& prediction) {
    constexpr std::size_t most = 12;
    const std::vector<Evaluation>& sweep = prediction.sweep;
    const std::vector<std::size_t>& frontier = prediction.frontier;
    const std::size_t every = (frontier.size() + most - 1) / most;
    std::set<std::size_t> chosen{frontier.back(), prediction.best};
    for (std::size_t i = 0; i < frontier.size(); i += every) {
        chosen.insert(frontier[i]);
    }
    for (std::size_t i = 0; i < sweep.size(); ++i) {
        if (is_configured(prediction, sweep[i])) {
            chosen.insert(i);
        }
    }
    std::vector<ShownRow> rows;
    for (const std::size_t i : chosen) {
        rows.push_back({knob_cells(sweep[i].sharded->request), &sweep[i],
                        marks_text({{i == prediction.best, "best"},
                                    {is_configured(prediction, sweep[i]), "yours"},
                                    {!sweep[i].fits(), "does not fit"}})});
    }
    std::ranges::stable_sort(rows, {}, [](const ShownRow& shown) { return shown.row->peak(); });
    return rows;
}

std::string table_text(const std::vector<std::string>& knobs, const std::vector<ShownRow>& rows,
                       const Prediction& prediction) {
    const bool is_sharded = rows.front().row->sharded.has_value();
    const Duration fastest = prediction.fastest().step();
    const MemoryUnit unit = unit_for(rows.back().row->peak());
    std::vector<TextColumn> columns;
    for (const std::string& knob : knobs) {
        columns.push_back({knob});
    }
    columns.insert(
        columns.end(),
        {{"step (ms)"}, {"exposed (ms)"}, {"over fastest"}, {.heading = "", .left = true}});
    const std::size_t place = knobs.size() + (is_sharded ? 2 : 1);
    columns.insert(columns.begin() + static_cast<std::ptrdiff_t>(place),
                   {is_sharded ? fmt::format("memory ({})", unit.name) : "backward (ms)"});
    std::vector<std::vector<std::string>> cells;
    for (const auto& [typed, row, mark] : rows) {
        cells.push_back(typed);
        cells.back().insert(cells.back().end(),
                            {three_digits(step_ms(*row)), three_digits(to_ms(row->exposed)),
                             over_text(row->step() - fastest, fastest), mark});
        cells.back().insert(
            cells.back().begin() + static_cast<std::ptrdiff_t>(place),
            is_sharded ? unit.number(row->peak()) : three_digits(to_ms(row->times.backward)));
    }
    return text_table(columns, cells);
}

}  // namespace

std::string bucket_cap_text(const std::optional<Bytes>& cap) {
    constexpr Bytes smallest_in_mib{10'000};
    if (!cap) {
        return "-";
    }
    return *cap < smallest_in_mib ? fmt::format("{} B", cap->count)
                                  : fmt::format("{} MiB", typed_mib(*cap));
}

std::string rounded_cap_text(const std::optional<Bytes>& cap) {
    std::string exact = bucket_cap_text(cap);
    if (!cap || exact.ends_with(" B")) {
        return exact;
    }
    std::string rounded = fmt::format("{} MiB", three_digits(to_mib(*cap)));
    return rounded.size() < exact.size() ? rounded : exact;
}

std::string marks_text(const std::vector<std::pair<bool, std::string_view>>& marks) {
    std::string text;
    for (const auto& [holds, mark] : marks) {
        if (holds) {
            text += (text.empty() ? "" : ", ") + std::string(mark);
        }
    }
    return text;
}

bool all_within_plateau(const Prediction& prediction) {
    return prediction.plateau_low == 0 && prediction.plateau_high + 1 == prediction.sweep.size();
}

std::vector<std::size_t> telling_rows(const Prediction& prediction) {
    const std::vector<Evaluation>& sweep = prediction.sweep;
    if (sweep.size() <= most_telling_rows) {
        std::vector<std::size_t> all(sweep.size());
        std::iota(all.begin(), all.end(), 0);
        return all;
    }
    std::set<std::size_t> chosen{0, prediction.plateau_low, prediction.best,
                                 prediction.plateau_high, sweep.size() - 1};
    const double least = telling_deviation * step_ms(sweep[prediction.best]);
    while (chosen.size() < most_telling_rows) {
        std::pair<std::size_t, double> furthest{0, 0.0};
        for (auto low = chosen.begin(), high = std::next(low); high != chosen.end();
             ++low, ++high) {
            const auto candidate = furthest_from_line(sweep, *low, *high);
            if (candidate.second > furthest.second) {
                furthest = candidate;
            }
        }
        if (furthest.second < least) {
            break;
        }
        chosen.insert(furthest.first);
    }
    return {chosen.begin(), chosen.end()};
}

std::string setting_label(const Evaluation& row) {
    return row.sharded ? setting_label(row.sharded->request) : bucket_cap_text(row.cap.size());
}

std::string sweep_table(const Prediction& prediction, Detail detail) {
    return "\n" +
           (prediction.sweep.front().sharded
                ? table_text(knob_headings(prediction.sweep.front().sharded->request.strategy),
                             sharded_rows(prediction), prediction)
                : table_text({"bucket cap", "buckets"}, cap_rows(prediction, detail), prediction));
}

std::string curve(const Prediction& prediction) {
    constexpr std::size_t width = 64;
    constexpr std::size_t height = 8;
    const std::vector<Evaluation>& sweep = prediction.sweep;
    const double slowest = step_ms(*std::ranges::max_element(sweep, {}, &Evaluation::step));
    const double fastest = step_ms(*std::ranges::min_element(sweep, {}, &Evaluation::step));
    constexpr std::size_t fewest_points = 8;
    if (sweep.size() < fewest_points || all_within_plateau(prediction)) {
        return "";
    }
    std::vector<std::string> canvas(height, std::string(width, ' '));
    const double low = log_cap(sweep.front());
    const double span = log_cap(sweep.back()) - low;
    const auto line_of = [&](const Evaluation& e) {
        const double share = (step_ms(e) - fastest) / (slowest - fastest);
        return height - 1 - static_cast<std::size_t>(std::lround(share * (height - 1)));
    };
    std::size_t at = 0;
    for (std::size_t column = 0; column < width; ++column) {
        const double here = low + span * static_cast<double>(column) / (width - 1) + 1e-9;
        while (at + 1 < sweep.size() && log_cap(sweep[at + 1]) <= here) {
            ++at;
        }
        canvas[line_of(sweep[at])][column] = '*';
    }
    const auto best_column = static_cast<std::size_t>(
        std::lround((log_cap(sweep[prediction.best]) - low) / span * (width - 1)));
    canvas[line_of(sweep[prediction.best])][best_column] = 'B';
    std::string text = "\n";
    for (std::size_t line = 0; line < height; ++line) {
        const std::string label = line == 0            ? three_digits(slowest) + " ms"
                                  : line == height - 1 ? three_digits(fastest) + " ms"
                                                       : "";
        text += fmt::format("  {:>14} |{}\n", label, canvas[line]);
    }
    return text + fmt::format("  {:>14} +{}\n  {:>14}  {:<{}}{:>{}}\n", "", std::string(width, '-'),
                              "", rounded_cap_text(sweep.front().cap.size()), width / 2,
                              rounded_cap_text(sweep.back().cap.size()), width / 2);
}

}  // namespace bucketwise
