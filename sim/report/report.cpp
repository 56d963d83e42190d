#include "sim/report/report.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/transformed.h"
#include "sim/report/lever_text.h"
#include "sim/report/number_text.h"
#include "sim/report/sharding_text.h"
#include "sim/report/verdict.h"

namespace bucketwise {
namespace {

constexpr std::size_t longest_typed = 64;  // in one line of the report

constexpr std::size_t widest_line = 110;

// Wraps into lines that are indented by so many spaces.
std::string indented(const std::string& text, std::size_t spaces) {
    const std::string margin(spaces, ' ');
    std::string lines = margin + wrapped(text, widest_line - spaces) + "\n";
    for (std::size_t end = lines.find('\n'); end + 1 < lines.size();
         end = lines.find('\n', end + 1)) {
        lines.insert(end + 1, margin);
    }
    return lines;
}

// Why no cap is better than another, where the reason is plain.
std::string indifference_reason(const Prediction& prediction) {
    const std::vector<Evaluation>& sweep = prediction.sweep;
    const auto negligible = [](const Evaluation& e) {
        return share_of(e.exposed, e.times.step()) <= plateau_tolerance;
    };
    const Evaluation& best = sweep[prediction.best];
    if (best.communication == Duration{0}) {
        return ", because nothing is communicated";
    }
    if (2 * prediction.binding.launch > best.times.step()) {
        return ", because launching takes most of the step";
    }
    if (std::ranges::all_of(sweep, negligible)) {
        return ", because communication is hidden behind computing";
    }
    if (std::ranges::all_of(sweep, [&](const Evaluation& e) {
            return e.bucket_bytes.size() == best.bucket_bytes.size();
        })) {
        return ", because all caps give equally many buckets";
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
    // Among plans that stay equally fast under every error there is nothing to lose.
    const bool is_choice = prediction.sweep.size() > 1 && confidence && confidence->regret.most > 0;
    return is_choice ? text + fmt::format(
                                  "  By the model's declared error this choice costs {} over the "
                                  "best on average,\n  and at most {} in 95 % of cases.\n",
                                  percent_text(confidence->regret.expected),
                                  percent_text(std::max(confidence->regret.most, 0.001)))
                     : text;
}

// By how much the slowest cap is slower than the fastest.
double width_of(const std::vector<Evaluation>& sweep) {
    const auto [least, most] = std::ranges::minmax_element(sweep, {}, &Evaluation::step);
    return share_of(most->step() - least->step(), least->step());
}

std::string plateau_text(const Prediction& prediction) {
    constexpr double little = 0.02;
    const std::vector<Evaluation>& sweep = prediction.sweep;
    if (sweep.size() == 1 || sweep.front().sharded) {
        return "";
    }
    if (all_within_plateau(prediction)) {
        const double width = width_of(sweep);
        return width <= little
                   ? fmt::format("  The bucket cap hardly matters here: {} at most{}.\n",
                                 percent_text(width), indifference_reason(prediction))
                   : fmt::format(
                         "  Caps differ by {}, but the model cannot tell which are faster.\n",
                         percent_text(width));
    }
    if (prediction.plateau_low == prediction.plateau_high) {
        return "";
    }
    return indented(
        fmt::format(
            "Caps of {} to {} are equally good: within {:g} % of the best, or statistically "
            "indistinguishable.",
            rounded_cap_text(sweep[prediction.plateau_low].cap.size()),
            rounded_cap_text(sweep[prediction.plateau_high].cap.size()), 100 * plateau_tolerance),
        2);
}

// A step that waits for launches gains more from fewer launches than from another cap.
std::string launch_text(const Prediction& prediction) {
    constexpr std::int64_t noticeable_part = 10;  // a tenth of the step
    if (noticeable_part * prediction.binding.launch <= prediction.chosen().times.step()) {
        return "";
    }
    return fmt::format(
        "  The step is launch-bound, because the device waits for the host: free launches would "
        "save {}.\n  Fewer launches help: a CUDA graph, compiled or fused operations, a larger "
        "batch.\n",
        ms_text(prediction.binding.launch));
}

struct SettingColumns {
    std::size_t width = 0;  // of the name
    bool buffers = false;   // shown for several frameworks, which differ in them
};

// `typed` goes below the row where it does not fit beside it.
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

// A setting may take several lines.
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
    std::string text = "\n  Settings to type";
    if (!settings.frameworks.empty()) {
        text += fmt::format(
            ", by {} own bucket rule, compared with {}:\n    {:<{}} {:>7} {:>9} {:>14}{}\n",
            settings.frameworks.size() == 1 ? "the framework's" : "each framework's",
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
                ? "    Steps of different frameworks are not comparable: each copies and launches "
                  "in its own way (see --json).\n"
                : "    For other frameworks, and wrappers such as lightning: --for all.\n");
}

bool has_choice(const Evaluation& row) {
    return row.sharded || !row.cap.is_none();
}

// Whether the advice holds over the whole range of a preset.
std::string ends_text(const std::string& what, const std::vector<PriorEnd>& ends) {
    std::string text;
    double most = 0;
    for (const PriorEnd& end : ends) {
        text += fmt::format("    at its {} end: {} per step", name_of(end.end),
                            ms_text(end.best.times.step()));
        text += !has_choice(end.best)
                    ? "\n"
                    : fmt::format(", best {} {}; with the advice above {}\n",
                                  end.best.sharded ? "with" : "cap", setting_label(end.best),
                                  ms_text(end.with_choice));
        most = std::max(most, end.regret());
    }
    if (text.empty()) {
        return "";
    }
    text = fmt::format("  {}, not a measurement:\n", what) + text;
    return !has_choice(ends.front().best)
               ? text
               : text + fmt::format("    at these ends the advice costs {}.\n",
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

// The parts that memory counts, where it does not count all.
std::string memory_parts_text(const MemoryNeed& need) {
    if (need.activations && need.optimizer_state) {
        return "";
    }
    return fmt::format(
        "  Memory counts parameters and gradients{}.\n",
        need.optimizer_state ? " and the optimizer's state; activations are not known"
        : need.activations   ? " and activations; what the optimizer keeps is not known"
                             : "; activations and what the optimizer keeps are not known");
}

std::string notes_text(const Scenario& scenario, const std::vector<std::string>& notes) {
    std::string text;
    for (const std::string& note : notes_of(scenario, notes)) {
        text += fmt::format("  Note: {}.\n", note);
    }
    return text;
}

std::string heading_text(const Scenario& scenario, const std::string& verdict,
                         std::string_view strategy) {
    return fmt::format("{}\n\n{}: {}, {}, {} over {}\n", wrapped(verdict), scenario.name, strategy,
                       counted(scenario.group.ranks, "rank"), name_of(scenario.link.algorithm),
                       scenario.link.name);
}

std::string binding_text(const Binding& binding, Duration step, Duration communication,
                         Duration exposed) {
    std::string text = fmt::format(
        "  The step of {} is bound by computing ({:.0f} %), communication ({:.0f} %) and launching "
        "({:.0f} %).\n",
        ms_text(step), 100 * share_of(binding.compute, step),
        100 * share_of(binding.communication, step), 100 * share_of(binding.launch, step));
    if (communication == Duration{0}) {
        return text;
    }
    if (exposed == Duration{0}) {
        return text + fmt::format("  Communication takes {}, all of it hidden behind computing.\n",
                                  ms_text(communication));
    }
    const Duration hidden = std::max(communication - exposed, Duration{0});
    return text +
           fmt::format(
               "  Communication takes {}, {:.0f} % of it hidden; without it the step would be "
               "{} shorter.\n",
               ms_text(communication), 100 * share_of(hidden, communication), ms_text(exposed));
}

// Between hosts over a link of the user's own; presets say what their slow end brings.
std::string longest_text(const Scenario& scenario, const Evaluation& advised) {
    const LinkParameters& link = scenario.link;
    const bool joins_hosts =
        !link.tiers.empty() ||
        (link.topology && link.topology->regular && link.topology->regular->nics &&
         scenario.group.ranks > link.topology->regular->node.gpus);
    if (!link.preset.empty() || !joins_hosts || advised.communication == Duration{0}) {
        return "";
    }
    return indented(
        fmt::format(
            "Even with nothing hidden a step would take {} over this link. A longer one has "
            "another cause: NCCL on sockets (NCCL_DEBUG=INFO says NET/Socket), a link "
            "slower than stated, or data that arrive late.",
            ms_text(advised.step() - advised.exposed + advised.communication)),
        2);
}

std::string percentile_marks(const PercentileTable& table, std::size_t row) {
    return marks_text({{row == table.chosen, "chosen"},
                       {row == table.default_row(), table.rows[row].sharding ? "yours" : "default"},
                       {row == table.best_p50, "best p50"},
                       {row == table.best_p99, "best p99"}});
}

}  // namespace

std::string text_report(const Scenario& scenario, const Prediction& prediction,
                        const SettingAdvice& settings, const PriorEnds& ends, Detail detail) {
    const Evaluation& advised = prediction.advised();
    const bool shards = advised.sharded.has_value();
    const bool full = detail == Detail::full;
    const bool chooses = has_choice(prediction.sweep[prediction.best]);
    const PredictedVerdict verdict = verdict_of(scenario, prediction);
    std::string text = heading_text(scenario, verdict.text, strategy_of(scenario));
    if (chooses) {
        text += sweep_table(prediction, detail);
        text += shards                                      ? memory_parts_text(*advised.memory)
                : full || verdict.advice == Advice::set_cap ? curve(prediction)
                                                            : "";
    }
    text += '\n';
    text += binding_text(prediction.binding, advised.times.step(), advised.communication,
                         advised.exposed) +
            launch_text(prediction) + longest_text(scenario, advised) + plateau_text(prediction);
    text += full || shards ? confidence_text(prediction) : "";
    const bool advises =
        verdict.advice != Advice::withheld && (shards || verdict.advice != Advice::does_not_fit);
    if (chooses && advises) {
        text += settings_text(settings) + settings_text(settings.sharded);
    }
    text += advises ? levers_table(scenario, prediction.levers) : "";
    text += full ? provenance_text(scenario.link) : "";
    if (!prediction.misfit.empty()) {
        return text + notes_text(scenario, prediction.notes);  // no advice, whose ends would count
    }
    text += ends_text(fmt::format("{} is a preset", scenario.link.preset), ends.link);
    if (const Device* device = device_of(scenario)) {
        text += ends_text(fmt::format("{} is {} preset", device->name,
                                      device_preset(device->name) ? "a" : "made of a"),
                          ends.device);
    }
    return text + notes_text(scenario, prediction.notes);
}

std::string text_of(const PercentileTable& table) {
    const bool shards = table.rows.front().sharding.has_value();
    std::vector<std::vector<std::string>> rows;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
        const std::string mark = percentile_marks(table, i);
        if (!mark.empty()) {
            const auto& [cap, sharding, steps] = table.rows[i];
            rows.push_back({sharding ? setting_label(*sharding) : bucket_cap_text(cap.size()),
                            three_digits(to_ms(steps.p50)), three_digits(to_ms(steps.p90)),
                            three_digits(to_ms(steps.p95)), three_digits(to_ms(steps.p99)), mark});
        }
    }
    return fmt::format("\n  {} single steps drawn from the variation, the same for every {}:\n",
                       table.draws, shards ? "setting" : "cap") +
           text_table({{shards ? "setting" : "bucket cap", 17},
                       {"p50 (ms)", 11},
                       {"p90 (ms)", 11},
                       {"p95 (ms)", 11},
                       {"p99 (ms)", 11},
                       {.heading = "", .left = true}},
                      rows);
}

namespace {

std::string setting_of(const Evaluation& row) {
    return row.sharded         ? setting_text(row.sharded->request)
           : row.cap.is_none() ? "its default cap"
                               : "a bucket cap of " + bucket_cap_text(row.cap.size());
}

// The fastest row that fits; if none fits, the fastest of all.
const StrategyRow& fastest_row(const std::vector<StrategyRow>& rows) {
    return *std::ranges::min_element(rows, {}, [](const StrategyRow& row) {
        return std::pair(!row.best.fits(), row.best.step());
    });
}

}  // namespace

std::string optimal_text(const Prediction& prediction, const OptimalGroups& optimum,
                         const std::vector<ShardedSetting>& settings) {
    const Evaluation& found = optimum.evaluation;
    const Duration even = prediction.advised().step();
    const double saved = share_of(even - found.step(), even);
    std::string text = fmt::format(
        "\n  Groups of any sizes: {} in {} groups, {} than the best above, with {}; the best "
        "of {} tried.\n",
        ms_text(found.step()), found.sharded->groups,
        saved >= 0 ? percent_text(saved) + " less" : percent_text(-saved) + " more",
        memory_text(found.peak()), optimum.evaluations);
    constexpr double noticeable = 0.001;
    return saved < noticeable ? text : text + settings_text(settings);
}

std::string settings_text(const std::vector<ShardedSetting>& settings, std::string_view heading) {
    if (settings.empty()) {
        return "";
    }
    std::string text = fmt::format("\n  {}:\n", heading);
    for (const ShardedSetting& setting : settings) {
        text += fmt::format("    {}\n", setting.place);
        for (const std::string& line : setting.lines) {
            text += fmt::format("      {}\n", line);
        }
        text += setting.note.empty() ? "" : fmt::format("      ({})\n", setting.note);
    }
    return text;
}

std::string comparison_text(const std::vector<StrategyRow>& rows) {
    const MemoryUnit unit = unit_for(std::ranges::max(
        transformed(rows, [](const StrategyRow& row) { return row.best.peak(); })));
    std::vector<std::vector<std::string>> cells;
    for (const StrategyRow& row : rows) {
        cells.push_back({fmt::format("  {}", name_of(row.strategy)),
                         three_digits(to_ms(row.best.step())),
                         three_digits(to_ms(row.best.exposed)), unit.number(row.best.peak()),
                         setting_of(row.best) + (row.best.fits() ? "" : "; does not fit")});
    }
    std::string text = "\n  Strategies, each with its best setting:\n" +
                       text_table({{.heading = "  strategy", .left = true},
                                   {"step (ms)"},
                                   {"exposed (ms)"},
                                   {fmt::format("memory ({})", unit.name)},
                                   {.heading = "setting", .left = true}},
                                  cells);
    const StrategyRow& fastest = fastest_row(rows);
    text += fmt::format("  {}{} is the fastest", name_of(fastest.strategy),
                        fastest.best.fits() ? "" : ", which does not fit either,");
    for (const StrategyRow& row : rows) {
        if (row.best.fits() && row.strategy != fastest.strategy) {
            const double faster = share_of(row.best.step() - fastest.best.step(), row.best.step());
            text +=
                fmt::format(", {} with {} of its memory",
                            faster_than_text(faster, faster, std::string(name_of(row.strategy))),
                            percent_text(static_cast<double>(fastest.best.peak().count) /
                                         static_cast<double>(row.best.peak().count)));
        }
    }
    return text + ".\n";
}

}  // namespace bucketwise
