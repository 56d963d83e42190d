#include "sim/report/percentile_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json_output.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"

namespace bucketwise {
namespace {

// What a row is besides a row.
std::string percentile_marks(const PercentileTable& table, std::size_t row) {
    return marks_text({{row == table.fastest, "fastest"},
                       {row == table.default_row(), "default"},
                       {row == table.best_p50, "best p50"},
                       {row == table.best_p99, "best p99"}});
}

Json json_of(const PercentileRow& row) {
    return {{"bucket_cap_mib", mib_or_null(row.cap.size())},
            {"p50_ms", to_ms(row.steps.p50)},
            {"p90_ms", to_ms(row.steps.p90)},
            {"p95_ms", to_ms(row.steps.p95)},
            {"p99_ms", to_ms(row.steps.p99)}};
}

}  // namespace

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

Json to_json(const PercentileTable& table) {
    return {{"draws", table.draws},
            {"fastest", json_of(table.rows[table.fastest])},
            {"default", json_of(table.rows[table.default_row()])},
            {"best_p50", json_of(table.rows[table.best_p50])},
            {"best_p99", json_of(table.rows[table.best_p99])},
            {"caps", json_list(table.rows, json_of)}};
}

}  // namespace bucketwise
