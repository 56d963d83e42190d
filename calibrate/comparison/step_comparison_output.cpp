// The output of `bucketwise compare`.
#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibrate/comparison/step_comparison.h"
#include "sim/base/json_output.h"
#include "sim/report/number_text.h"
#include "sim/report/prediction_json.h"
#include "sim/report/sweep_table.h"
#include "sim/scenario/sharding_input.h"

namespace bucketwise {
namespace {

// The setting's name and knobs, or its cap.
void add_setting(const MeasuredSetting& setting, Json& json) {
    if (setting.sharding) {
        json["setting"] = setting_name(setting);
        json["sharding"] = sharding_json(*setting.sharding);
    } else {
        json["bucket_cap_mib"] = mib_or_null(setting.cap);
    }
}

Json point_json(const SettingComparison& point) {
    Json causes = Json::object();
    for (const Cause& cause : point.attribution.causes) {
        causes[std::string(cause.name)] = cause.ms;
    }
    Json json{
        {"predicted_step_ms", point.predicted_ms},
        {"measured_step_ms", point.measured_ms},
        {"measured_interval_ms", {point.measured_interval_ms.low, point.measured_interval_ms.high}},
        {"samples", point.samples},
        {"error", point.error()}};
    add_setting(point.measured, json);
    json["is_default"] = point.measured.is_default;
    json[point.measured.sharding ? "collectives" : "buckets"] = point.measured.messages();
    json["predicted_exposed_ms"] = to_ms(point.predicted.exposed);
    json["measured_exposed_ms"] = point.measured.exposed_us / 1e3;
    json["causes_ms"] = std::move(causes);
    if (point.predicted.confidence) {
        const StepConfidence& confidence = *point.predicted.confidence;
        add_optional(json, "predicted_interval_ms", confidence.interval,
                     [](const StepInterval& of) {
                         return Json{to_ms(of.low), to_ms(of.high)};
                     });
        json["expected_regret"] = confidence.regret.expected;
        json["expected_regret_95"] = confidence.regret.most;
    }
    if (const auto& bucket = point.attribution.bucket) {
        json["deviating_bucket"] = {{"number", bucket->index + 1},
                                    {"bytes", point.measured.bucket_bytes.at(bucket->index).count},
                                    {"predicted_ms", bucket->predicted_ms},
                                    {"measured_ms", bucket->measured_ms}};
    }
    return json;
}

Json picture_json(const StepPicture& picture) {
    const auto json = [](const PictureSpan& span) {
        return Json{{"what", span.what}, {"begin_ms", span.begin_ms}, {"end_ms", span.end_ms}};
    };
    return {{"step_ms", picture.step_ms},
            {"computing", json_list(picture.computing, json)},
            {"communicating", json_list(picture.communicating, json)}};
}

std::string marked(const Comparison& comparison, std::size_t i) {
    const std::string marks = marks_of(comparison, i);
    return marks.empty() ? "" : "  " + marks;
}

// At least so wide that every setting's name fits.
std::size_t name_width(const Comparison& comparison, std::size_t least) {
    std::size_t width = least;
    for (std::size_t i = 0; i < comparison.points.size(); ++i) {
        width = std::max(width, point_name(comparison, i).size());
    }
    return width;
}

std::string table(const Comparison& comparison, bool full) {
    const std::size_t width = name_width(comparison, 12);
    std::string text = fmt::format("{:>{}} {:>8} {:>13} {:>12} {:>15} {:>8}\n",
                                   comparison.sharded ? "setting" : "bucket cap", width,
                                   comparison.sharded ? "sent" : "buckets", "predicted, ms",
                                   "measured, ms", "95 % interval", "error");
    std::vector<std::size_t> points = deciding_points(comparison);
    if (full || comparison.sharded) {  // settings of sharding are few
        points.resize(comparison.points.size());
        std::iota(points.begin(), points.end(), 0);
    }
    for (const std::size_t i : points) {
        const SettingComparison& point = comparison.points[i];
        text +=
            fmt::format("{:>{}} {:>8} {:>13} {:>12} {:>15} {:>6.1f} %{}\n",
                        point_name(comparison, i), width, point.measured.messages(),
                        three_digits(point.predicted_ms), three_digits(point.measured_ms),
                        measured_interval_text(point), 100 * point.error(), marked(comparison, i));
    }
    return text;
}

// Columns for causes; rows for settings.
std::string causes_text(const Comparison& comparison) {
    std::string text =
        "\n  Where the error comes from: measured minus predicted, in ms, part by part\n";
    const std::size_t width = name_width(comparison, 14);
    text += fmt::format("  {:>{}} {:>8}", comparison.sharded ? "setting" : "bucket cap", width,
                        "in all");
    const std::vector<Cause>& names = comparison.points.front().attribution.causes;
    for (std::size_t i = 0; i < names.size(); ++i) {
        text += fmt::format(" {:>7}", fmt::format("({})", i + 1));
    }
    text += "\n";
    std::size_t at = 0;
    for (const SettingComparison& point : comparison.points) {
        text += fmt::format("  {:>{}} {:>8.2f}", point_name(comparison, at++), width,
                            point.measured_ms - point.predicted_ms);
        for (const Cause& cause : point.attribution.causes) {
            text += fmt::format(" {:>7.2f}", cause.ms);
        }
        text += "\n";
    }
    text += "  ";
    for (std::size_t i = 0; i < names.size(); ++i) {
        text += fmt::format("{}({}) {}",
                            i == 0   ? ""
                            : i == 5 ? ",\n  "
                                     : ", ",
                            i + 1, names[i].name);
    }
    text += "\n";
    const SettingComparison& chosen = comparison.points[comparison.chosen];
    if (const auto& bucket = chosen.attribution.bucket) {
        text += fmt::format(
            "  At {}, bucket {} of {} deviates most: predicted {:.2f} ms, measured {:.2f} ms.\n",
            setting_name(chosen.measured), bucket->index + 1, chosen.measured.bucket_bytes.size(),
            bucket->predicted_ms, bucket->measured_ms);
    }
    return text;
}

std::string what_if_text(const Comparison& comparison) {
    std::string text = fmt::format("\n  What would help, each at its own best of these {}s\n",
                                   setting_word(comparison));
    const double now_ms = comparison.what_if.front().step_ms;
    for (const ChangedMachine& what : comparison.what_if) {
        text += fmt::format("  {:>22}  {:>8} ms  {:>6.1f} %  {}\n", what.change,
                            three_digits(what.step_ms), 100 * (what.step_ms / now_ms - 1),
                            setting_name(comparison.points[what.point].measured));
    }
    return text;
}

// As shares.
Json interval_json(const SlowerBy& interval) {
    return Json{interval.low, interval.high};
}

Json verdict_json(const Comparison& comparison) {
    Json json{{"text", verdict_text(comparison)},
              {"error", name_of(error_verdict(comparison))},
              {"decision", has_decision(comparison) ? Json(name_of(decision_verdict(comparison)))
                                                    : Json(nullptr)}};
    if (has_decision(comparison)) {
        add_optional(json, "regret_95", comparison.decision.regret, interval_json);
        add_optional(json, "gain_over_default_95", comparison.decision.gain, interval_json);
        json["settled"] = comparison.decision.settled;
    }
    return json;
}

}  // namespace

Json to_json(const Comparison& comparison) {
    const auto setting_at = [&](std::size_t point) -> const MeasuredSetting& {
        return comparison.points[point].measured;
    };
    const auto change_json = [&](const ChangedMachine& what) {
        Json json{{"change", what.change}, {"step_ms", what.step_ms}};
        add_setting(setting_at(what.point), json);
        return json;
    };
    Json json{{"format", comparison_format},
              {"scenario", comparison.scenario},
              {"strategy", strategy_name(comparison)},
              {"ranks", comparison.ranks},
              {"machine", comparison.machine},
              {"command", comparison.command},
              {"verdict", verdict_json(comparison)},
              {"mape", comparison.mape},
              {"max_error", comparison.max_error},
              {"rank_correlation", comparison.rank_correlation},
              {"regret", comparison.regret},
              {"noise_floor", comparison.noise_floor},
              {"points", json_list(comparison.points, point_json)},
              {"notes", comparison.notes}};
    const MeasuredSetting& chosen = setting_at(comparison.chosen);
    const MeasuredSetting& fastest = setting_at(comparison.fastest);
    if (comparison.sharded) {
        json["sharded"] = true;
        json["predicted_best"] = sharding_json(*chosen.sharding);
        json["measured_best"] = sharding_json(*fastest.sharding);
    } else {
        json["predicted_best_mib"] = mib_or_null(chosen.cap);
        json["measured_best_mib"] = mib_or_null(fastest.cap);
    }
    json["predicted_best_is_default"] = chosen.is_default;
    json["advised_was_measured"] = comparison.advised_was_measured;
    json["gain_over_default"] =
        comparison.default_point ? Json(comparison.gain_over_default) : Json(nullptr);
    json["what_if"] = json_list(comparison.what_if, change_json);
    Json& pictures = json["pictures"];
    pictures = {{"predicted", picture_json(comparison.predicted_picture)},
                {"measured", picture_json(comparison.measured_picture)}};
    add_setting(chosen, pictures);
    add_if(comparison.shared_gpu, json, "shared_gpu", true);
    return json;
}

TraceProcess measured_process(const Comparison& comparison) {
    const auto track = [](const char* name, const std::vector<PictureSpan>& spans) {
        TraceTrack result{name, {}};
        for (const PictureSpan& span : spans) {
            result.slices.push_back(
                {span.what, duration_from_ms(span.begin_ms), duration_from_ms(span.end_ms)});
        }
        std::stable_sort(result.slices.begin(), result.slices.end(),
                         [](const auto& a, const auto& b) { return a.begin < b.begin; });
        return result;
    };
    return {fmt::format("measured: rank 0 of {}, medians", comparison.ranks),
            {track("computing", comparison.measured_picture.computing),
             track("communication", comparison.measured_picture.communicating)}};
}

std::string_view strategy_name(const Comparison& comparison) {
    return comparison.sharded ? name_of(*comparison.sharded) : name_of(comparison.strategy);
}

std::string_view setting_word(const Comparison& comparison) {
    return comparison.sharded ? "setting" : "cap";
}

std::string measured_interval_text(const ComparedStep& step) {
    return step.samples < 2 ? "one step"
                            : fmt::format("{} to {}", three_digits(step.measured_interval_ms.low),
                                          three_digits(step.measured_interval_ms.high));
}

std::vector<std::size_t> deciding_points(const Comparison& comparison) {
    std::set<std::size_t> points{0, comparison.chosen, comparison.fastest, comparison.decision.best,
                                 comparison.points.size() - 1};
    if (comparison.default_point) {
        points.insert(*comparison.default_point);
    }
    return {points.begin(), points.end()};
}

std::string point_name(const Comparison& comparison, std::size_t i) {
    const MeasuredSetting& measured = comparison.points[i].measured;
    return measured.sharding     ? setting_name(measured)
           : measured.is_default ? "default"
                                 : rounded_cap_text(measured.cap);
}

std::string marks_of(const Comparison& comparison, std::size_t i) {
    const bool decided = has_decision(comparison);
    const bool is_own = comparison.sharded && i == comparison.default_point;
    return marks_text({{is_own, "yours"},
                       {decided && i == comparison.chosen, "advised"},
                       {decided && i == comparison.fastest, "measured best"}});
}

std::string comparison_report(const Comparison& comparison, bool full) {
    std::string text = fmt::format("{}\n\n{}: {}, {}, predicted beside measured\n  {}\n\n{}\n",
                                   wrapped(verdict_text(comparison)), comparison.scenario,
                                   strategy_name(comparison), counted(comparison.ranks, "rank"),
                                   comparison.machine, table(comparison, full));
    for (const std::string& line : findings(comparison)) {
        text += fmt::format("  {}\n", line);
    }
    text += full ? causes_text(comparison) + what_if_text(comparison) : "";
    for (const std::string& note : comparison.notes) {
        text += fmt::format("  Note: {}.\n", note);
    }
    return text;
}

}  // namespace bucketwise
