#include "sim/report/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

namespace bucketwise {
namespace {

constexpr std::size_t most_telling_rows = 12;
// A row that lies closer than this to the line between its neighbours, as a share of the best step,
// tells nothing new.
constexpr double telling_deviation = 0.002;
constexpr std::size_t longest_typed = 64;  // in one line of the report

double step_ms(const Evaluation& e) {
    return to_ms(e.step());
}

double log_cap(const Evaluation& e) {
    return std::log(static_cast<double>(e.cap.size().value_or(Bytes{1}).count));
}

std::string cap_text(const Evaluation& e) {
    return bucket_cap_text(e.cap.size());
}

double percent_of(Duration part, Duration whole) {
    return whole.count() == 0
               ? 0.0
               : 100 * static_cast<double>(part.count()) / static_cast<double>(whole.count());
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

bool all_within_plateau(const Prediction& p) {
    return p.plateau_low == 0 && p.plateau_high + 1 == p.sweep.size();
}

bool same_plan(const Evaluation& a, const Evaluation& b) {
    return a.bucket_bytes == b.bucket_bytes && a.times == b.times;
}

std::string configured_text(const Prediction& prediction) {
    return prediction.configured
               ? fmt::format("  Your cap {}: {:.3f} ms per step.\n",
                             cap_text(*prediction.configured), step_ms(*prediction.configured))
               : "";
}

std::string default_headline(const Prediction& prediction) {
    const Evaluation& named = prediction.sweep[prediction.best];
    return fmt::format(
        "  Leave the bucket cap at the default (first bucket {:g} MiB, then {:g} MiB): {:.3f} ms "
        "per step.\n"
        "  The best cap to name is {}: {:.3f} ms.\n",
        to_mib(default_first_bucket), to_mib(default_bucket_cap), step_ms(prediction.default_cap),
        cap_text(named), step_ms(named));
}

// Only DDP has a default cap of its own; the other strategies are held against it all the same.
std::string default_text(const Scenario& scenario, const Prediction& prediction) {
    return (is_ddp(scenario.sync.strategy) ? "the default of " : "DDP's default of ") +
           cap_text(prediction.default_cap);
}

std::string headline_without_cap(const Scenario& scenario, const Prediction& prediction) {
    const double step = step_ms(prediction.sweep[prediction.best]);
    if (scenario.sync.bucket_cap_list.empty()) {
        return fmt::format("  Step {:.3f} ms. This strategy has no bucket cap to choose.\n", step);
    }
    return fmt::format(
        "  Step {:.3f} ms with the caps of bucket_cap_mib_list; {:.3f} ms with {}.\n", step,
        step_ms(prediction.default_cap), default_text(scenario, prediction));
}

std::string regret_text(double share) {
    constexpr double shown = 0.0005;
    return share < shown ? "less than 0.1 %" : fmt::format("{:.1f} %", 100 * share);
}

constexpr double shown_gain_ms = 0.0005;  // less would print as 0.000

// What leaving the default as it is forgoes.
std::string forgone_text(const Prediction& prediction) {
    const Evaluation& fastest = prediction.fastest();
    const Duration default_step = prediction.default_cap.step();
    const Duration gain = default_step - fastest.step();
    if (to_ms(gain) < shown_gain_ms) {
        return "No cap is faster.";
    }
    return fmt::format("{} saves only {:.3f} ms ({:.2f} %).",
                       fastest.cap.size() == default_bucket_cap
                           ? "Naming it, which makes the first bucket as large,"
                           : fmt::format("The fastest cap, {},", cap_text(fastest)),
                       to_ms(gain), percent_of(gain, default_step));
}

std::string headline_with_cap(const Scenario& scenario, const Prediction& prediction) {
    const Evaluation& best = prediction.sweep[prediction.best];
    const Duration default_step = prediction.default_cap.step();
    const Duration gain = default_step - best.step();
    const std::string the_default = default_text(scenario, prediction);
    if (prediction.keep_default) {
        return fmt::format("  Keep {}: {:.3f} ms per step.\n  {}\n", the_default,
                           to_ms(default_step), forgone_text(prediction));
    }
    if (to_ms(gain) < shown_gain_ms) {
        return fmt::format(
            "  Safest bucket cap {}: {:.3f} ms per step. With {} it is {:.3f} ms,\n  which is "
            "expected to cost {} over the best if the model is wrong.\n",
            cap_text(best), step_ms(best), the_default, to_ms(default_step),
            regret_text(prediction.default_cap.confidence->regret.expected));
    }
    return fmt::format(
        "  Best bucket cap {}: {:.3f} ms per step, {:.3f} ms ({:.1f} %) less than {}.\n",
        cap_text(best), step_ms(best), to_ms(gain), percent_of(gain, default_step), the_default);
}

std::string headline(const Scenario& scenario, const Prediction& prediction) {
    std::string text = fmt::format("{}: {}, {} rank{}, {} over {}\n\n", scenario.name,
                                   name_of(scenario.sync.strategy), scenario.group.ranks,
                                   scenario.group.ranks == 1 ? "" : "s",
                                   name_of(scenario.link.algorithm), scenario.link.name);
    if (prediction.sweep[prediction.best].cap.is_none()) {
        return text + headline_without_cap(scenario, prediction);
    }
    text += prediction.default_is_fastest ? default_headline(prediction)
                                          : headline_with_cap(scenario, prediction);
    return text + configured_text(prediction);
}

// Why no cap is better than another, where it is plain to see.
std::string indifference_reason(const Prediction& prediction) {
    const std::vector<Evaluation>& sweep = prediction.sweep;
    const auto negligible = [](const Evaluation& e) {
        return static_cast<double>(e.exposed.count()) <=
               plateau_tolerance * static_cast<double>(e.times.step().count());
    };
    const Evaluation& best = sweep[prediction.best];
    if (best.communication == Duration{0}) {
        return ", as nothing is communicated";
    }
    if (2 * prediction.binding.launch > best.times.step()) {
        return ", as launching takes most of the step";
    }
    if (std::all_of(sweep.begin(), sweep.end(), negligible)) {
        return ", as communication is hidden behind computing";
    }
    if (std::all_of(sweep.begin(), sweep.end(), [&](const Evaluation& e) {
            return e.bucket_bytes.size() == best.bucket_bytes.size();
        })) {
        return ", as they all give as many buckets";
    }
    return "";
}

std::string confidence_text(const Prediction& prediction) {
    const std::optional<StepConfidence>& confidence = prediction.advised().confidence;
    std::string text;
    if (confidence && confidence->interval) {
        text = fmt::format(
            "  95 % of steps lie between {:.3f} and {:.3f} ms, by the fit's errors and the "
            "measured variation.\n",
            to_ms(confidence->interval->low), to_ms(confidence->interval->high));
    }
    // Among plans that are all as fast whatever is wrong there is nothing to lose.
    const bool is_choice = prediction.sweep.size() > 1 && confidence && confidence->regret.most > 0;
    return is_choice ? text + fmt::format(
                                  "  By the model's declared error this choice costs {} "
                                  "over the best on average,\n  at most {} in 95 % of "
                                  "cases.\n",
                                  regret_text(confidence->regret.expected),
                                  regret_text(std::max(confidence->regret.most, 0.001)))
                     : text;
}

std::string plateau_text(const Prediction& prediction) {
    const std::vector<Evaluation>& sweep = prediction.sweep;
    if (sweep.size() == 1) {
        return "";
    }
    const std::string range = fmt::format("{} to {}", cap_text(sweep[prediction.plateau_low]),
                                          cap_text(sweep[prediction.plateau_high]));
    // The model may be too uncertain to tell caps apart that are further apart than that.
    const std::string alike =
        fmt::format("within {:g} % of the best or not to be told from it", 100 * plateau_tolerance);
    if (all_within_plateau(prediction)) {
        return fmt::format("  The bucket cap hardly matters here: from {} every step is {}{}.\n",
                           range, alike, indifference_reason(prediction));
    }
    if (prediction.plateau_low == prediction.plateau_high) {
        return fmt::format("  No cap beside {} is within {:g} % of it.\n",
                           cap_text(sweep[prediction.best]), 100 * plateau_tolerance);
    }
    return fmt::format("  Plateau {}: steps {}.\n", range, alike);
}

std::string binding_text(const Prediction& prediction) {
    const Evaluation& best = prediction.advised();
    const Duration step = best.times.step();
    const Binding& binding = prediction.binding;
    std::string text;
    if (best.communication > Duration{0} && best.exposed == Duration{0}) {
        text += fmt::format("  Communication takes {:.3f} ms, all of it hidden behind computing.\n",
                            to_ms(best.communication));
    } else if (best.communication > Duration{0}) {
        const Duration hidden = std::max(best.communication - best.exposed, Duration{0});
        text += fmt::format(
            "  Communication takes {:.3f} ms, {:.0f} % of it hidden; free, it would save {:.3f} "
            "ms.\n",
            to_ms(best.communication), percent_of(hidden, best.communication), to_ms(best.exposed));
    }
    return text + fmt::format(
                      "  The step is bound by: compute {:.1f} %, communication {:.1f} %, launching "
                      "{:.1f} %.\n",
                      percent_of(binding.compute, step), percent_of(binding.communication, step),
                      percent_of(binding.launch, step));
}

// Where the device waits for the host, caps are not what to look at first; this says so, and from
// which cap on they make little difference.
std::string launch_text(const Prediction& prediction) {
    constexpr double little = 0.02;
    constexpr std::int64_t parts_of_which_one_counts = 10;  // what launching costs, of the step
    const std::vector<Evaluation>& sweep = prediction.sweep;
    const Evaluation& chosen = prediction.chosen();
    const Duration step = chosen.times.step();
    if (parts_of_which_one_counts * prediction.binding.launch <= step) {
        return "";
    }
    const auto matters = [&](const Evaluation& e) {
        return static_cast<double>(e.times.step().count()) >
               (1 + little) * static_cast<double>(step.count());
    };
    std::string text;
    if (!chosen.cap.is_none() && sweep.size() > 1 && !matters(sweep.back()) &&
        !matters(prediction.default_cap) &&
        !(prediction.configured && matters(*prediction.configured)) &&
        !all_within_plateau(prediction)) {
        const auto first = std::find_if(sweep.rbegin(), sweep.rend(), matters).base();
        text = fmt::format(
            "  Bucket size hardly matters here: from {} up every step is within {:g} % of the "
            "best.\n",
            cap_text(*first), 100 * little);
    }
    return text + fmt::format(
                      "  The step is launch-bound, as the device waits for the host: free "
                      "launches would save {:.3f} ms.\n  Fewer of them help: a CUDA graph, "
                      "compiled or fused operations, a larger batch.\n",
                      to_ms(prediction.binding.launch));
}

std::string row_text(const Evaluation& row, Duration fastest, std::string_view mark) {
    return fmt::format("  {:>17} {:>8} {:>12.3f} {:>13.3f} {:>13.3f} {:>12.2f} %{}{}\n",
                       cap_text(row), row.bucket_bytes.size(), step_ms(row),
                       to_ms(row.times.backward), to_ms(row.exposed),
                       percent_of(row.step() - fastest, fastest), mark.empty() ? "" : "  ", mark);
}

// What a row of the sweep is besides a row.
std::string marks(const Prediction& prediction, std::size_t i) {
    const Evaluation& row = prediction.sweep[i];
    const auto& yours = prediction.configured;
    return marks_text({{i == prediction.best, "best"},
                       {same_plan(row, prediction.default_cap), "default"},
                       {yours && same_plan(row, *yours), "yours"}});
}

std::string table(const Prediction& prediction) {
    const Duration fastest = prediction.fastest().step();
    std::string text =
        fmt::format("\n  {:>17} {:>8} {:>12} {:>13} {:>13} {:>14}\n", "bucket cap", "buckets",
                    "step (ms)", "backward (ms)", "exposed (ms)", "over fastest");
    std::string listed;
    for (const std::size_t i : telling_rows(prediction)) {
        const std::string mark = marks(prediction, i);
        text += row_text(prediction.sweep[i], fastest, mark);
        listed += mark;
    }
    if (listed.find("default") == std::string::npos) {
        text += row_text(prediction.default_cap, fastest, "default");
    }
    if (prediction.configured && listed.find("yours") == std::string::npos) {
        text += row_text(*prediction.configured, fastest, "yours");
    }
    return text;
}

// Step time over the logarithm of the cap, one character per column: the last plan that starts at
// or below the column's cap.
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
        const std::string label = line == 0            ? fmt::format("{:.1f} ms", slowest)
                                  : line == height - 1 ? fmt::format("{:.1f} ms", fastest)
                                                       : "";
        text += fmt::format("  {:>14} |{}\n", label, canvas[line]);
    }
    return text + fmt::format("  {:>14} +{}\n  {:>14}  {:<{}}{:>{}}\n", "", std::string(width, '-'),
                              "", cap_text(sweep.front()), width / 2, cap_text(sweep.back()),
                              width / 2);
}

std::string setting_row(std::string_view framework, const FrameworkSetting& setting,
                        const FrameworkChoice& choice, const std::string& typed) {
    return fmt::format("    {:<12} {:>7} {:>11.3f} {:>10.2f} %  {}\n", framework,
                       choice.bucket_bytes.size(), to_ms(choice.step),
                       100 * setting.loss_of(choice.step), typed);
}

std::string settings_text(const std::vector<FrameworkSetting>& settings) {
    if (settings.empty()) {
        return "";
    }
    const bool optimum = std::all_of(settings.begin(), settings.end(),
                                     [](const auto& s) { return s.ideal_is_optimum; });
    std::string text = fmt::format(
        "\n  What to type, and what each framework does with it by its own rule, over {}:\n"
        "    {:<12} {:>7} {:>11} {:>12}\n",
        optimum ? "the best of all plans" : "the best simulated", "", "buckets", "step (ms)",
        "over");
    for (const FrameworkSetting& setting : settings) {
        text += setting_row(name_of(setting.framework), setting, setting.best, setting.typed);
        if (!setting.typed_elsewhere.empty()) {
            // One statement a line.
            std::string statements = setting.typed_elsewhere;
            if (const std::size_t first = statements.find("; "); first != std::string::npos) {
                statements.replace(first, 2, ";\n        ");
            }
            text += fmt::format("      {}\n", statements);
        }
        if (!setting.typed_list.empty()) {
            text += setting_row("  or a list", setting, setting.list,
                                setting.typed_list.size() <= longest_typed
                                    ? setting.typed_list
                                    : "bucket_cap_mb_list: see --json");
        }
    }
    return text +
           "    Compare \"over\", not steps: what else a framework copies and launches is its own "
           "(assumes in --json).\n";
}

// Whether what is advised holds over the whole range of a preset.
std::string ends_text(const std::string& what, const std::vector<PriorEnd>& ends) {
    std::string text;
    double most = 0;
    for (const PriorEnd& end : ends) {
        text += fmt::format("    at its {} end: {:.3f} ms per step", name_of(end.end),
                            to_ms(end.best.times.step()));
        text += end.best.cap.is_none()
                    ? "\n"
                    : fmt::format(", best cap {}; with the advice above {:.3f} ms\n",
                                  cap_text(end.best), to_ms(end.with_choice));
        most = std::max(most, end.regret());
    }
    if (text.empty()) {
        return "";
    }
    text = fmt::format("  {}, a prior and no measurement:\n", what) + text;
    return ends.front().best.cap.is_none()
               ? text
               : text + fmt::format("    at its ends the advice costs at most {:.2f} %.\n",
                                    100 * most);
}

std::string provenance_text(const LinkParameters& link) {
    const Provenance& from = link.provenance;
    std::string text;
    for (const std::string* part : {&from.source, &from.hardware, &from.date}) {
        text += part->empty() ? "" : (text.empty() ? "" : "; ") + *part;
    }
    return text.empty() ? "" : fmt::format("\n  Link {}: {}\n", link.name, text);
}

// What a row is besides a row.
std::string percentile_marks(const PercentileTable& table, std::size_t row) {
    return marks_text({{row == table.chosen, "chosen"},
                       {row == table.default_row(), "default"},
                       {row == table.best_p50, "best p50"},
                       {row == table.best_p99, "best p99"}});
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

std::string marks_text(const std::vector<std::pair<bool, std::string_view>>& marks) {
    std::string text;
    for (const auto& [holds, mark] : marks) {
        if (holds) {
            text += (text.empty() ? "" : ", ") + std::string(mark);
        }
    }
    return text;
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

std::vector<std::string> notes_of(const Scenario& scenario, const Prediction& prediction) {
    std::vector<std::string> notes = prediction.notes;
    std::ranges::copy(caveats(scenario), std::back_inserter(notes));
    return notes;
}

std::string text_report(const Scenario& scenario, const Prediction& prediction,
                        const std::vector<FrameworkSetting>& settings, const PriorEnds& ends) {
    const Evaluation& best = prediction.sweep[prediction.best];
    std::string text = headline(scenario, prediction) + confidence_text(prediction) +
                       plateau_text(prediction) + binding_text(prediction) +
                       launch_text(prediction);
    if (!best.cap.is_none()) {
        text += table(prediction) + curve(prediction) + settings_text(settings);
    }
    text += provenance_text(scenario.link) +
            ends_text(fmt::format("{} is a preset", scenario.link.preset), ends.link);
    if (const Device* device = device_of(scenario)) {
        text += ends_text(fmt::format("{} is {} preset", device->name,
                                      device_preset(device->name) ? "a" : "made of a"),
                          ends.device);
    }
    for (const std::string& note : notes_of(scenario, prediction)) {
        text += fmt::format("  Note: {}.\n", note);
    }
    return text;
}

std::string text_of(const PercentileTable& table) {
    std::string text = fmt::format(
        "\n  Single steps, {} drawn from what varies, the same for every cap:\n  {:>17} {:>12} "
        "{:>12} {:>12} {:>12}\n",
        table.draws, "bucket cap", "p50 (ms)", "p90 (ms)", "p95 (ms)", "p99 (ms)");
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const std::string mark = percentile_marks(table, i);
        if (mark.empty()) {
            continue;
        }
        const PercentileRow& row = table.rows[i];
        text += fmt::format("  {:>17} {:>12.3f} {:>12.3f} {:>12.3f} {:>12.3f}  {}\n",
                            bucket_cap_text(row.cap.size()), to_ms(row.steps.p50),
                            to_ms(row.steps.p90), to_ms(row.steps.p95), to_ms(row.steps.p99), mark);
    }
    return text;
}

}  // namespace bucketwise
