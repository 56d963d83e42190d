#include "sim/report/sharded_report.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "sim/base/json_output.h"
#include "sim/report/number_text.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"
#include "sim/report/sweep_table.h"
#include "sim/report/verdict.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

struct MemoryUnit {
    double mib = 1;
    std::string name = "MiB";
    [[nodiscard]] std::string number(Bytes bytes) const {
        return three_digits(to_mib(bytes) / mib);
    }
};

MemoryUnit unit_for(Bytes most) {
    constexpr double mib_per_gib = 1024;
    return to_mib(most) < mib_per_gib ? MemoryUnit{} : MemoryUnit{mib_per_gib, "GiB"};
}

std::string memory_text(Bytes bytes) {
    const MemoryUnit unit = unit_for(bytes);
    return unit.number(bytes) + " " + unit.name;
}

std::string groups_text(const ShardingRequest& request) {
    if (!request.groups.empty()) {
        return counted(std::ssize(request.groups), "group");
    }
    return request.layers_per_group == 0   ? "all in one"
           : request.layers_per_group == 1 ? "each layer"
                                           : fmt::format("{} layers", request.layers_per_group);
}

std::string reshard_text(const ShardingRequest& request) {
    if (request.reshard_ranks) {
        return fmt::format("to {} ranks", *request.reshard_ranks);
    }
    const bool root_alone = request.groups.empty() && request.layers_per_group == 0;
    return root_alone && !request.reshard_root ? "no"
           : request.reshard_root              ? "root too"
           : request.reshard_after_forward     ? "yes"
                                               : "no";
}

std::string prefetch_text(const ShardingRequest& request) {
    const std::string ahead =
        fmt::format("{} / {}", request.forward_prefetch, request.backward_prefetch);
    return request.asynchronous_unshard ? ahead + " async" : ahead;
}

bool is_zero3(const ShardedPrediction& prediction) {
    return prediction.configured.request.strategy == ShardedStrategy::zero3;
}

std::string zero3_text(const Zero3Settings& zero3) {
    std::string text = fmt::format("stage3_prefetch_bucket_size {}, reduce_bucket_size {}",
                                   zero3.prefetch_elements, zero3.reduce_bucket_elements);
    if (zero3.max_reuse_distance != Zero3Settings{}.max_reuse_distance) {
        text += fmt::format(", stage3_max_reuse_distance {}", zero3.max_reuse_distance);
    }
    return text;
}

bool is_configured(const ShardedPrediction& prediction, const ShardedEvaluation& row) {
    return row.times == prediction.configured.times && row.memory == prediction.configured.memory &&
           row.groups == prediction.configured.groups;
}

Duration fastest_of(const ShardedPrediction& prediction) {
    return prediction.sweep[prediction.frontier.back()].step();
}

// The frontier (of a long one every n-th row, and the last), the best and the scenario's own.
std::vector<std::size_t> rows_to_show(const ShardedPrediction& prediction) {
    constexpr std::size_t most = 12;
    std::vector<std::size_t> rows;
    const std::vector<std::size_t>& frontier = prediction.frontier;
    const std::size_t every = (frontier.size() + most - 1) / most;
    for (std::size_t i = 0; i < frontier.size(); i += every) {
        rows.push_back(frontier[i]);
    }
    rows.push_back(frontier.back());
    rows.push_back(prediction.best);
    for (std::size_t i = 0; i < prediction.sweep.size(); ++i) {
        if (is_configured(prediction, prediction.sweep[i])) {
            rows.push_back(i);
        }
    }
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    std::ranges::stable_sort(rows, {},
                             [&](std::size_t row) { return prediction.sweep[row].peak(); });
    return rows;
}

std::string table_text(const ShardedPrediction& prediction) {
    const Duration fastest = fastest_of(prediction);
    const std::vector<std::size_t> shown = rows_to_show(prediction);
    const MemoryUnit unit = unit_for(prediction.sweep[shown.back()].peak());  // the largest
    std::vector<TextColumn> columns{{"group", 11}, {"reshard"}, {"ahead, fwd/bwd"}};
    if (is_zero3(prediction)) {
        columns = {{"prefetch bucket"}, {"reduce bucket", 15}, {"reuse distance", 15}};
    }
    columns.insert(columns.end(), {{"step (ms)"},
                                   {"exposed (ms)"},
                                   {fmt::format("memory ({})", unit.name)},
                                   {"over fastest"},
                                   {.heading = "", .left = true}});
    std::vector<std::vector<std::string>> rows;
    for (const std::size_t i : shown) {
        const ShardedEvaluation& row = prediction.sweep[i];
        const ShardingRequest& request = row.request;
        std::vector<std::string> cells{groups_text(request), reshard_text(request),
                                       prefetch_text(request)};
        if (is_zero3(prediction)) {
            cells = {fmt::to_string(request.zero3.prefetch_elements),
                     fmt::to_string(request.zero3.reduce_bucket_elements),
                     fmt::to_string(request.zero3.max_reuse_distance)};
        }
        cells.insert(cells.end(),
                     {three_digits(to_ms(row.step())), three_digits(to_ms(row.exposed)),
                      unit.number(row.peak()),
                      fmt::format("{:.2f} %", 100 * share_of(row.step() - fastest, fastest)),
                      marks_text({{i == prediction.best, "best"},
                                  {is_configured(prediction, row), "yours"},
                                  {!row.memory.fits(), "does not fit"}})});
        rows.push_back(std::move(cells));
    }
    std::string text = "\n" + text_table(columns, rows);
    const bool counts_all = prediction.configured.memory.activations.has_value() &&
                            prediction.configured.memory.optimizer_state.has_value();
    if (!counts_all) {
        text += fmt::format("  Memory counts parameters and gradients{}.\n",
                            prediction.configured.memory.optimizer_state
                                ? " and the optimizer's state; activations are not known"
                            : prediction.configured.memory.activations
                                ? " and activations; what the optimizer keeps is not known"
                                : "; activations and what the optimizer keeps are not known");
    }
    return text;
}

std::string settings_text(const std::vector<ShardedSetting>& settings) {
    std::string text = "\n  Settings to type:\n";
    for (const ShardedSetting& setting : settings) {
        text += fmt::format("    {}\n", setting.place);
        for (const std::string& line : setting.lines) {
            text += fmt::format("      {}\n", line);
        }
        text += setting.note.empty() ? "" : fmt::format("      ({})\n", setting.note);
    }
    return text;
}

std::string advice_text(const ShardedPrediction& prediction) {
    const ShardedEvaluation& best = prediction.advised();
    if (!prediction.best_fits) {
        return fmt::format("No setting fits: even {} needs {}, and the device has {}.",
                           setting_text(best.request), memory_text(best.peak()),
                           memory_text(*best.memory.device));
    }
    const Duration yours = prediction.configured.step();
    const double saved = share_of(yours - best.step(), yours);
    std::string text =
        fmt::format("{}: {} per step", setting_text(best.request), ms_text(best.step()));
    if (best.request.strategy != ShardedStrategy::zero3) {
        text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
    }
    if (is_configured(prediction, best)) {
        text += ", the scenario's own setting";
    } else if (saved >= 0) {
        text += fmt::format(", {} less than with the scenario's setting", percent_text(saved));
    } else if (prediction.configured.memory.fits()) {
        text += fmt::format(", {} more than with the scenario's setting", percent_text(-saved));
    }
    return text + fmt::format(", with {} of memory at most{}.", memory_text(best.peak()),
                              prediction.configured.memory.fits()
                                  ? ""
                                  : "; the scenario's setting does not fit");
}

std::string verdict_text(const Scenario& scenario, const ShardedPrediction& prediction) {
    const std::vector<std::string> reasons = reasons_to_withhold(scenario);
    return reasons.empty() ? advice_text(prediction) : withheld_text(reasons);
}

Json sharded_row(const ShardedEvaluation& row) {
    Json held = Json::object();
    for (const ShardedTensor tensor : every<ShardedTensor>) {
        held[std::string(name_of(tensor)) + "_bytes"] = row.sharded.of(tensor).count;
    }
    Json json = times_json(row.times, row.communication, row.exposed);
    json.update({{"sharding", sharding_json(row.request)},
                 {"groups", row.groups},
                 {"largest_gather_bytes", row.largest_gather.count},
                 {"memory", to_json(row.memory)},
                 {"sharded_peak_bytes", row.sharded.peak.count},
                 {"at_sharded_peak", held}});
    return json;
}

}  // namespace

std::string setting_label(const ShardingRequest& request) {
    if (request.strategy == ShardedStrategy::zero3) {
        return zero3_text(request.zero3);
    }
    std::string label = groups_text(request);
    label += request.reshard_ranks           ? ", to " + std::to_string(*request.reshard_ranks)
             : request.reshard_after_forward ? ""
                                             : ", kept";
    label += request.reshard_root ? ", root too" : "";
    if (request.forward_prefetch > 0 || request.backward_prefetch > 1) {
        label += fmt::format(", {}/{} ahead", request.forward_prefetch, request.backward_prefetch);
    }
    return request.asynchronous_unshard ? label + ", async" : label;
}

std::string setting_text(const ShardingRequest& request) {
    if (request.strategy == ShardedStrategy::zero3) {
        return zero3_text(request.zero3);
    }
    std::string text = !request.groups.empty()         ? groups_text(request)
                       : request.layers_per_group == 0 ? "everything in one group"
                       : request.layers_per_group == 1
                           ? "a group for each layer"
                           : fmt::format("a group for every {} layers", request.layers_per_group);
    const bool root_alone = request.groups.empty() && request.layers_per_group == 0;
    text += root_alone && !request.reshard_root ? ", kept after forward"
            : request.reshard_ranks ? fmt::format(", resharded to {} ranks", *request.reshard_ranks)
            : request.reshard_after_forward ? ", resharded after forward"
                                            : ", kept after forward";
    if (request.forward_prefetch > 0) {
        text += fmt::format(", {} ahead in forward", request.forward_prefetch);
    }
    if (request.backward_prefetch > 1) {
        text += fmt::format(", {} ahead in backward", request.backward_prefetch);
    }
    return request.asynchronous_unshard ? text + ", gathered asynchronously" : text;
}

std::string text_report(const Scenario& scenario, const ShardedPrediction& prediction,
                        const std::vector<ShardedSetting>& settings) {
    const ShardedEvaluation& advised = prediction.advised();
    std::string text =
        heading_text(scenario, verdict_text(scenario, prediction),
                     name_of(scenario.sharding->strategy)) +
        table_text(prediction) + "\n" +
        binding_text(prediction.binding, advised.step(), advised.communication, advised.exposed);
    if (reasons_to_withhold(scenario).empty()) {
        text += settings_text(settings);
    }
    return text + notes_text(scenario, prediction.notes);
}

namespace {

std::string setting_of(const StrategyRow& row) {
    return row.sharding ? setting_text(*row.sharding)
           : row.cap    ? "a bucket cap of " + bucket_cap_text(row.cap)
                        : "its default cap";
}

// The fastest row that fits; if none fits, the fastest of all.
const StrategyRow& fastest_row(const std::vector<StrategyRow>& rows) {
    return *std::ranges::min_element(
        rows, {}, [](const StrategyRow& row) { return std::pair(!row.fits, row.step); });
}

}  // namespace

std::string optimal_text(const ShardedPrediction& prediction, const OptimalGroups& optimum,
                         const std::vector<ShardedSetting>& settings) {
    const ShardedEvaluation& found = optimum.evaluation;
    const Duration even = prediction.advised().step();
    const double saved = share_of(even - found.step(), even);
    std::string text = fmt::format(
        "\n  Groups of any sizes: {} in {} groups, {} than the best above, with {}; the best "
        "of {} tried.\n",
        ms_text(found.step()), found.groups,
        saved >= 0 ? percent_text(saved) + " less" : percent_text(-saved) + " more",
        memory_text(found.peak()), optimum.evaluations);
    constexpr double noticeable = 0.001;
    return saved < noticeable ? text : text + settings_text(settings);
}

Json to_json(const OptimalGroups& optimum) {
    Json json = sharded_row(optimum.evaluation);
    json["evaluations"] = optimum.evaluations;
    return json;
}

std::string comparison_text(const std::vector<StrategyRow>& rows) {
    const MemoryUnit unit = unit_for(std::ranges::max(rows, {}, &StrategyRow::memory).memory);
    std::vector<std::vector<std::string>> cells;
    for (const StrategyRow& row : rows) {
        cells.push_back({fmt::format("  {}", name_of(row.strategy)), three_digits(to_ms(row.step)),
                         three_digits(to_ms(row.exposed)), unit.number(row.memory),
                         setting_of(row) + (row.fits ? "" : "; does not fit")});
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
                        fastest.fits ? "" : ", which does not fit either,");
    for (const StrategyRow& row : rows) {
        if (row.fits && row.strategy != fastest.strategy) {
            text += fmt::format(", {} faster than {} with {} of its memory",
                                percent_text(share_of(row.step - fastest.step, row.step)),
                                name_of(row.strategy),
                                percent_text(static_cast<double>(fastest.memory.count) /
                                             static_cast<double>(row.memory.count)));
        }
    }
    return text + ".\n";
}

Json to_json(const std::vector<StrategyRow>& rows) {
    return json_list(rows, [](const StrategyRow& row) {
        Json json{{"strategy", name_of(row.strategy)},
                  {"step_ms", to_ms(row.step)},
                  {"exposed_communication_ms", to_ms(row.exposed)},
                  {"memory_bytes", row.memory.count},
                  {"fits", row.fits}};
        add_optional(json, "bucket_cap_mib", row.cap, to_mib);
        add_optional(json, "sharding", row.sharding, sharding_json);
        return json;
    });
}

Json to_json(const Scenario& scenario, const ShardedPrediction& prediction,
             const std::vector<ShardedSetting>& settings) {
    Json typed = Json::object();
    for (const ShardedSetting& setting : settings) {
        typed[setting.place] = {{"typed", fmt::format("{}", fmt::join(setting.lines, "\n"))},
                                {"note", setting.note}};
    }
    return {{"format", sharded_prediction_format},
            {"sharded", true},
            {"verdict", verdict_text(scenario, prediction)},
            {"scenario", scenario.name},
            {"strategy", name_of(scenario.sharding->strategy)},
            {"ranks", scenario.group.ranks},
            {"link", scenario.link.name},
            {"best", sharded_row(prediction.advised())},
            {"configured", sharded_row(prediction.configured)},
            {"binding", to_json(prediction.binding)},
            {"frontier",
             json_list(prediction.frontier,
                       [&](std::size_t row) { return sharded_row(prediction.sweep[row]); })},
            {"sweep", json_list(prediction.sweep, sharded_row)},
            {"settings", typed},
            {"notes", notes_of(scenario, prediction.notes)}};
}

}  // namespace bucketwise
