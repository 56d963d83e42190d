#include "sim/report/optimal_report.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json_output.h"
#include "sim/base/transformed.h"
#include "sim/plan/strategy.h"
#include "sim/report/number_text.h"
#include "sim/report/prediction_json.h"

namespace bucketwise {
namespace {

constexpr std::size_t most_shown = 12;  // of a list in the text

// Caps as typed: "1, 2.5, 3".
std::string typed_list(const std::vector<Bytes>& caps) {
    return fmt::format("{}", fmt::join(transformed(caps, typed_mib), ", "));
}

// Rounded sizes in MiB, the last ones counted: "1.5, 25, ... (3 more)".
std::string rounded_list(const std::vector<Bytes>& sizes) {
    const std::vector<double> mib = transformed(sizes, to_mib);
    const auto shown = std::span(mib).first(std::min(mib.size(), most_shown));
    return fmt::format(
        "{:.4g}{}", fmt::join(shown, ", "),
        mib.size() > most_shown ? fmt::format(", ... ({} more)", mib.size() - most_shown) : "");
}

std::string what_is(const ExpressiblePlan& plan) {
    switch (plan.kind) {
        case PlanKind::framework_default:
            return "default";
        case PlanKind::configured:
            return "yours";
        case PlanKind::uniform:
            return fmt::format("best single cap, {} MiB", typed_mib(plan.caps.front()));
        case PlanKind::greedy_merge:
            return "greedy merge (MG-WFBP)";
        case PlanKind::list_of_two:
            return fmt::format("best list of two caps, {} MiB", typed_list(plan.caps));
        case PlanKind::cap_list:
            return "list of " + counted(std::ssize(plan.caps), "cap");
    }
    return {};
}

std::vector<std::string> row(const std::string& plan, std::size_t buckets, Duration step,
                             double gap) {
    constexpr double shown_as_none = 5e-7;  // a picosecond of rounding is no "-0.0000 %"
    gap = std::abs(gap) < shown_as_none ? 0.0 : gap;
    return {plan, buckets == 0 ? "" : std::to_string(buckets), fmt::format("{:.3f}", to_ms(step)),
            fmt::format("{:.4f} %", 100 * gap)};
}

std::string typed(const Scenario& scenario, const OptimalPlan& optimum) {
    if (optimum.cap_list.empty()) {
        return "  No list of caps gives this plan with this strategy.\n";
    }
    const std::string list = typed_list(optimum.cap_list);
    return is_ddp(scenario.sync.strategy)
               ? fmt::format("  DistributedDataParallel(model, bucket_cap_mb_list=[{}])\n", list)
               : fmt::format("  In the scenario, \"bucket_cap_mib_list\": [{}]\n", list);
}

Json gap(const OptimalPlan& optimum, const ExpressiblePlan& plan) {
    Json json{{"plan", name_of(plan.kind)},
              {"step_ms", to_ms(plan.step)},
              {"gap", gap_to(optimum, plan.step)},
              {"buckets", plan.buckets}};
    if (plan.kind == PlanKind::uniform) {
        json["bucket_cap_mib"] = typed_mib(plan.caps.front());
    } else if (!plan.caps.empty()) {
        json["bucket_cap_mib_list"] = json_list(plan.caps, typed_mib);
    }
    return json;
}

}  // namespace

std::string optimal_text(const Scenario& scenario, const OptimalPlan& optimum) {
    const Duration step = optimum.evaluation.times.step();
    const std::vector<Bytes>& sizes = optimum.evaluation.bucket_bytes;
    std::string text = fmt::format("\n  {}: {:.3f} ms per step. Its {} hold{} {} MiB.\n",
                                   optimum.proved ? "Optimal plan, proved" : "Best plan found",
                                   to_ms(step), counted(std::ssize(sizes), "bucket"),
                                   sizes.size() == 1 ? "s" : "", rounded_list(sizes));
    std::vector<std::vector<std::string>> rows;
    for (const ExpressiblePlan& other : optimum.others) {
        rows.push_back(row(what_is(other), other.buckets, other.step, gap_to(optimum, other.step)));
    }
    rows.push_back(row(optimum.proved ? "optimum" : "best found", sizes.size(), step, 0));
    rows.push_back(
        row("bound: no plan is faster", 0, optimum.bound, gap_to(optimum, optimum.bound)));
    text += "\n" + text_table({{"plan", 44}, {"buckets"}, {"step (ms)", 11}, {"gap", 11}}, rows) +
            "\n" + typed(scenario, optimum);
    for (const std::string& note : optimum.notes) {
        text += fmt::format("  Note: {}.\n", note);
    }
    return text;
}

Json to_json(const OptimalPlan& optimum) {
    const auto gap_json = [&](const ExpressiblePlan& other) { return gap(optimum, other); };
    const StepTimes& times = optimum.evaluation.times;
    return {{"step_ms", to_ms(times.step())},
            {"forward_ms", to_ms(times.forward)},
            {"backward_ms", to_ms(times.backward)},
            {"bucket_bytes", json_list(optimum.evaluation.bucket_bytes, byte_count)},
            {"bound_ms", to_ms(optimum.bound)},
            {"proved", optimum.proved},
            {"bucket_cap_mib_list",
             optimum.cap_list.empty() ? Json(nullptr) : json_list(optimum.cap_list, typed_mib)},
            {"gaps", json_list(optimum.others, gap_json)},
            {"notes", optimum.notes}};
}

}  // namespace bucketwise
