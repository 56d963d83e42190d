#include "sim/report/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/report/number_text.h"
#include "sim/report/verdict.h"

namespace bucketwise {
namespace {

constexpr std::size_t longest_typed = 64;  // in one line of the report

double percent_of(Duration part, Duration whole) {
    return whole.count() == 0
               ? 0.0
               : 100 * static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

std::string ms_text(Duration duration) {
    return three_digits(to_ms(duration)) + " ms";
}

std::string cap_text(const Evaluation& e) {
    return bucket_cap_text(e.cap.size());
}

// What is predicted, of what.
std::string subject_text(const Scenario& scenario) {
    return fmt::format("{}: {}, {}, {} over {}\n", scenario.name, name_of(scenario.sync.strategy),
                       counted(scenario.group.ranks, "rank"), name_of(scenario.link.algorithm),
                       scenario.link.name);
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
            "  95 % of steps lie between {} and {} ms, by the fit's errors and the measured "
            "variation.\n",
            three_digits(to_ms(confidence->interval->low)),
            three_digits(to_ms(confidence->interval->high)));
    }
    // Among plans that are all as fast whatever is wrong there is nothing to lose.
    const bool is_choice = prediction.sweep.size() > 1 && confidence && confidence->regret.most > 0;
    return is_choice ? text + fmt::format(
                                  "  By the model's declared error this choice costs {} over the "
                                  "best on average,\n  at most {} in 95 % of cases.\n",
                                  percent_text(confidence->regret.expected),
                                  percent_text(std::max(confidence->regret.most, 0.001)))
                     : text;
}

// By how much the slowest cap is slower than the fastest.
double width_of(const std::vector<Evaluation>& sweep) {
    const auto [least, most] = std::ranges::minmax_element(sweep, {}, &Evaluation::step);
    return percent_of(most->step() - least->step(), least->step()) / 100;
}

std::string plateau_text(const Prediction& prediction) {
    constexpr double little = 0.02;
    const std::vector<Evaluation>& sweep = prediction.sweep;
    if (sweep.size() == 1) {
        return "";
    }
    if (all_within_plateau(prediction)) {
        const double width = width_of(sweep);
        return width <= little
                   ? fmt::format("  The bucket cap hardly matters here, by {} at most{}.\n",
                                 percent_text(width), indifference_reason(prediction))
                   : fmt::format(
                         "  Caps differ by {}, and the model is not sure which are the "
                         "faster ones.\n",
                         percent_text(width));
    }
    if (prediction.plateau_low == prediction.plateau_high) {
        return "";
    }
    return fmt::format(
        "  Caps of {} to {} do as well: within {:g} % of the best, or not to be told from it.\n",
        rounded_cap_text(sweep[prediction.plateau_low].cap.size()),
        rounded_cap_text(sweep[prediction.plateau_high].cap.size()), 100 * plateau_tolerance);
}

std::string communication_text(const Evaluation& advised) {
    if (advised.communication == Duration{0}) {
        return "";
    }
    if (advised.exposed == Duration{0}) {
        return fmt::format("  Communication takes {}, all of it hidden behind computing.\n",
                           ms_text(advised.communication));
    }
    const Duration hidden = std::max(advised.communication - advised.exposed, Duration{0});
    return fmt::format("  Communication takes {}, {:.0f} % of it hidden; free, it would save {}.\n",
                       ms_text(advised.communication), percent_of(hidden, advised.communication),
                       ms_text(advised.exposed));
}

std::string binding_text(const Prediction& prediction) {
    const Evaluation& advised = prediction.advised();
    const Duration step = advised.times.step();
    const Binding& binding = prediction.binding;
    return fmt::format(
               "  What binds the step of {}: computing {:.0f} %, communication {:.0f} %, "
               "launching {:.0f} %.\n",
               ms_text(step), percent_of(binding.compute, step),
               percent_of(binding.communication, step), percent_of(binding.launch, step)) +
           communication_text(advised);
}

// Where the device waits for the host, caps are not what to look at first.
std::string launch_text(const Prediction& prediction) {
    constexpr std::int64_t parts_of_which_one_counts = 10;  // what launching costs, of the step
    const Duration step = prediction.chosen().times.step();
    if (parts_of_which_one_counts * prediction.binding.launch <= step) {
        return "";
    }
    return fmt::format(
        "  The step is launch-bound, as the device waits for the host: free launches would save "
        "{}.\n  Fewer of them help: a CUDA graph, compiled or fused operations, a larger batch.\n",
        ms_text(prediction.binding.launch));
}

constexpr std::size_t widest_line = 110;

// Lines of words, each that far in.
std::string indented(const std::string& text, std::size_t spaces) {
    const std::string margin(spaces, ' ');
    std::string lines = margin + wrapped(text, widest_line - spaces) + "\n";
    for (std::size_t end = lines.find('\n'); end + 1 < lines.size();
         end = lines.find('\n', end + 1)) {
        lines.insert(end + 1, margin);
    }
    return lines;
}

// How the rows of settings are laid out.
struct SettingColumns {
    std::size_t width = 0;  // of the name
    bool buffers = false;   // of several frameworks, which differ in them
};

// `typed` below where it does not fit beside.
std::string setting_row(std::string_view framework, const SettingColumns& columns,
                        const FrameworkSetting& setting, const FrameworkChoice& choice,
                        const std::string& typed) {
    std::string row = fmt::format("    {:<{}} {:>7} {:>9} {:>12.2f} %", framework, columns.width,
                                  choice.bucket_bytes.size(), three_digits(to_ms(choice.step)),
                                  100 * setting.loss_of(choice.step));
    row += columns.buffers ? fmt::format(" {:>13}", three_digits(to_mib(choice.buffers))) : "";
    return row.size() + 2 + typed.size() <= widest_line ? row + "  " + typed + "\n"
                                                        : row + "\n" + indented(typed, 6);
}

std::string framework_name(const FrameworkUse& use) {
    return use.version ? fmt::format("{}={}", name_of(use.framework), version_text(*use.version))
                       : std::string(name_of(use.framework));
}

// What is typed may be several lines.
std::string wrapper_text(const WrapperSetting& setting, std::size_t width) {
    std::string text = fmt::format("    {}", name_of(setting.place));
    std::size_t typed = 0;  // lines of it
    for (std::string_view left = setting.typed; !left.empty(); ++typed) {
        const std::string line(left.substr(0, left.find('\n')));
        const bool beside = typed == 0 && width + 6 + line.size() <= widest_line;
        text += beside ? std::string(width + 6 - text.size(), ' ')
                       : std::string(typed == 0 ? "\n      " : "      ");
        text += line + "\n";
        left.remove_prefix(std::min(left.size(), line.size() + 1));
    }
    text += typed == 0 ? "\n" : "";
    for (const std::string& note : setting.notes) {
        text += indented(note, typed == 0 ? 6 : 8);
    }
    return text;
}

std::string settings_text(const SettingAdvice& settings) {
    if (settings.frameworks.empty() && settings.wrappers.empty()) {
        return "";
    }
    const auto optimum =
        std::ranges::all_of(settings.frameworks, [](const auto& s) { return s.ideal_is_optimum; });
    SettingColumns columns{12, settings.frameworks.size() > 1};
    std::size_t& width = columns.width;
    for (const FrameworkSetting& setting : settings.frameworks) {
        width = std::max(width, framework_name(setting.use).size());
    }
    for (const WrapperSetting& setting : settings.wrappers) {
        width = std::max(width, name_of(setting.place).size());
    }
    std::string text = "\n  What to type";
    if (!settings.frameworks.empty()) {
        text += fmt::format(
            ", by {}, held against {}:\n    {:<{}} {:>7} {:>9} {:>14}{}\n",
            settings.frameworks.size() == 1 ? "the framework's own rule for buckets"
                                            : "each framework's own rule for buckets",
            optimum ? "the best of all plans" : "the best simulated", "", width, "buckets",
            "step (ms)", "over its best", columns.buffers ? " buffers (MiB)" : "");
    } else {
        text += ":\n";
    }
    for (const FrameworkSetting& setting : settings.frameworks) {
        text +=
            setting_row(framework_name(setting.use), columns, setting, setting.best, setting.typed);
        if (!setting.typed_elsewhere.empty()) {
            // One statement a line.
            std::string statements = setting.typed_elsewhere;
            if (const std::size_t first = statements.find("; "); first != std::string::npos) {
                statements.replace(first, 2, ";\n        ");
            }
            text += fmt::format("      {}\n", statements);
        }
        if (!setting.typed_list.empty()) {
            text += setting_row("  or a list", columns, setting, setting.list,
                                setting.typed_list.size() <= longest_typed
                                    ? setting.typed_list
                                    : "bucket_cap_mb_list: see --json");
        }
    }
    for (const WrapperSetting& setting : settings.wrappers) {
        text += wrapper_text(setting, width);
    }
    return text +
           (settings.frameworks.size() > 1
                ? "    Steps of different frameworks do not compare: each copies and launches "
                  "in its own way (see --json).\n"
                : "    In other frameworks, and in wrappers such as lightning: --for all.\n");
}

// Whether what is advised holds over the whole range of a preset.
std::string ends_text(const std::string& what, const std::vector<PriorEnd>& ends) {
    std::string text;
    double most = 0;
    for (const PriorEnd& end : ends) {
        text += fmt::format("    at its {} end: {} per step", name_of(end.end),
                            ms_text(end.best.times.step()));
        text += end.best.cap.is_none() ? "\n"
                                       : fmt::format(", best cap {}; with the advice above {}\n",
                                                     cap_text(end.best), ms_text(end.with_choice));
        most = std::max(most, end.regret());
    }
    if (text.empty()) {
        return "";
    }
    text = fmt::format("  {}, a prior and no measurement:\n", what) + text;
    return ends.front().best.cap.is_none()
               ? text
               : text + fmt::format("    at its ends the advice costs {}.\n",
                                    most < 0.0005 ? "nothing" : "at most " + percent_text(most));
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

std::vector<std::string> notes_of(const Scenario& scenario, const Prediction& prediction) {
    std::vector<std::string> notes = prediction.notes;
    std::ranges::copy(caveats(scenario), std::back_inserter(notes));
    return notes;
}

std::string text_report(const Scenario& scenario, const Prediction& prediction,
                        const SettingAdvice& settings, const PriorEnds& ends, Detail detail) {
    const bool full = detail == Detail::full;
    const bool has_choice = !prediction.sweep[prediction.best].cap.is_none();
    const PredictedVerdict verdict = verdict_of(scenario, prediction);
    std::string text = fmt::format("{}\n\n{}", wrapped(verdict.text), subject_text(scenario));
    if (has_choice) {
        text += full ? telling_table(prediction) : short_table(prediction);
        text += full || verdict.advice == Advice::set_cap ? curve(prediction) : "";
    }
    text += '\n';
    text += binding_text(prediction) + launch_text(prediction) + plateau_text(prediction);
    text += full ? confidence_text(prediction) : "";
    if (has_choice && verdict.advice != Advice::withheld) {
        text += settings_text(settings);
    }
    text += full ? provenance_text(scenario.link) : "";
    text += ends_text(fmt::format("{} is a preset", scenario.link.preset), ends.link);
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
        text += fmt::format("  {:>17} {:>12} {:>12} {:>12} {:>12}  {}\n",
                            bucket_cap_text(row.cap.size()), three_digits(to_ms(row.steps.p50)),
                            three_digits(to_ms(row.steps.p90)), three_digits(to_ms(row.steps.p95)),
                            three_digits(to_ms(row.steps.p99)), mark);
    }
    return text;
}

}  // namespace bucketwise
