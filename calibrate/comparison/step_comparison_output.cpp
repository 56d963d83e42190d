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

namespace bucketwise {
namespace {

Json point_json(const CapComparison& point) {
    Json causes = Json::object();
    for (const Cause& cause : point.attribution.causes) {
        causes[std::string(cause.name)] = cause.ms;
    }
    Json json = step_json(point);
    json["bucket_cap_mib"] = mib_or_null(point.measured.cap);
    json["is_default"] = point.measured.is_default;
    json["buckets"] = point.measured.bucket_bytes.size();
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

std::string table(const Comparison& comparison, bool full) {
    std::string text =
        fmt::format("{:>12} {:>8} {:>13} {:>12} {:>15} {:>8}\n", "bucket cap", "buckets",
                    "predicted, ms", "measured, ms", "95 % interval", "error");
    std::vector<std::size_t> points = deciding_points(comparison);
    if (full) {
        points.resize(comparison.points.size());
        std::iota(points.begin(), points.end(), 0);
    }
    for (const std::size_t i : points) {
        const CapComparison& point = comparison.points[i];
        text +=
            fmt::format("{:>12} {:>8} {:>13} {:>12} {:>15} {:>6.1f} %{}\n",
                        point_name(comparison, i), point.measured.bucket_bytes.size(),
                        three_digits(point.predicted_ms), three_digits(point.measured_ms),
                        measured_interval_text(point), 100 * point.error(), marked(comparison, i));
    }
    return text;
}

// Columns for causes; rows for caps.
std::string causes_text(const Comparison& comparison) {
    std::string text =
        "\n  Where the error comes from: measured minus predicted, in ms, part by part\n";
    text += fmt::format("  {:>14} {:>8}", "bucket cap", "in all");
    const std::vector<Cause>& names = comparison.points.front().attribution.causes;
    for (std::size_t i = 0; i < names.size(); ++i) {
        text += fmt::format(" {:>7}", fmt::format("({})", i + 1));
    }
    text += "\n";
    std::size_t at = 0;
    for (const CapComparison& point : comparison.points) {
        text += fmt::format("  {:>14} {:>8.2f}", point_name(comparison, at++),
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
    const CapComparison& chosen = comparison.points[comparison.chosen];
    if (const auto& bucket = chosen.attribution.bucket) {
        text += fmt::format(
            "  At {}, bucket {} of {} deviates most: predicted {:.2f} ms, measured {:.2f} ms.\n",
            cap_text(chosen.measured.cap), bucket->index + 1, chosen.measured.bucket_bytes.size(),
            bucket->predicted_ms, bucket->measured_ms);
    }
    return text;
}

std::string what_if_text(const Comparison& comparison) {
    std::string text = "\n  What would help, each at its own best of these caps\n";
    const double now_ms = comparison.what_if.front().step_ms;
    for (const ChangedMachine& what : comparison.what_if) {
        text += fmt::format("  {:>22}  {:>8} ms  {:>6.1f} %  {}\n", what.change,
                            three_digits(what.step_ms), 100 * (what.step_ms / now_ms - 1),
                            cap_text(what.cap));
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
    const auto change_json = [](const ChangedMachine& what) {
        return Json{{"change", what.change},
                    {"step_ms", what.step_ms},
                    {"bucket_cap_mib", mib_or_null(what.cap)}};
    };
    const auto cap_of = [&](std::size_t i) {
        return mib_or_null(comparison.points[i].measured.cap);
    };
    Json json = head_json(comparison);
    json["format"] = comparison_format;
    json["verdict"] = verdict_json(comparison);
    json["strategy"] = name_of(comparison.strategy);
    json["command"] = comparison.command;
    json["points"] = json_list(comparison.points, point_json);
    json["predicted_best_mib"] = cap_of(comparison.chosen);
    json["predicted_best_is_default"] = comparison.points[comparison.chosen].measured.is_default;
    json["advised_was_measured"] = comparison.advised_was_measured;
    json["measured_best_mib"] = cap_of(comparison.fastest);
    json["gain_over_default"] =
        comparison.default_cap ? Json(comparison.gain_over_default) : Json(nullptr);
    json["what_if"] = json_list(comparison.what_if, change_json);
    json["pictures"] = {{"bucket_cap_mib", cap_of(comparison.chosen)},
                        {"predicted", picture_json(comparison.predicted_picture)},
                        {"measured", picture_json(comparison.measured_picture)}};
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

std::string cap_text(const std::optional<Bytes>& cap) {
    return cap ? fmt::format("{} MiB", typed_mib(*cap)) : "-";
}

std::vector<std::size_t> deciding_points(const Comparison& comparison) {
    std::set<std::size_t> points{0, comparison.chosen, comparison.fastest, comparison.decision.best,
                                 comparison.points.size() - 1};
    if (comparison.default_cap) {
        points.insert(*comparison.default_cap);
    }
    return {points.begin(), points.end()};
}

std::string point_name(const Comparison& comparison, std::size_t i) {
    const MeasuredCap& measured = comparison.points[i].measured;
    return measured.is_default ? "default" : rounded_cap_text(measured.cap);
}

std::string marks_of(const Comparison& comparison, std::size_t i) {
    const bool decided = has_decision(comparison);
    return marks_text({{decided && i == comparison.chosen, "advised"},
                       {decided && i == comparison.fastest, "measured best"}});
}

std::string comparison_report(const Comparison& comparison, bool full) {
    std::string body = table(comparison, full) + '\n';
    for (const std::string& line : findings(comparison)) {
        body += fmt::format("  {}\n", line);
    }
    body += full ? causes_text(comparison) + what_if_text(comparison) : "";
    return comparison_text(comparison, name_of(comparison.strategy), verdict_text(comparison),
                           body);
}

}  // namespace bucketwise
