#include "sim/report/local_steps_report.h"

#include <fmt/format.h>

#include "sim/base/json_output.h"
#include "sim/report/number_text.h"

namespace bucketwise {
namespace {

Json local_row(const LocalStepsRow& row) {
    return {
        {"steps", row.period}, {"step_ms", to_ms(row.step)}, {"communication_share", row.share}};
}

}  // namespace

std::string local_steps_text(const LocalSteps& local) {
    std::string text = fmt::format(
        "\n  Steps of {} ms apart, then an average of {} MiB at a time, each {} ms:\n"
        "    steps apart  step (ms)  communication costs\n",
        three_digits(to_ms(local.alone)), three_digits(to_mib(local.fragment)),
        three_digits(to_ms(local.all_reduce)));
    for (const LocalStepsRow& row : local.rows) {
        text += fmt::format("    {:>11} {:>10} {:>20}{}\n", row.period,
                            three_digits(to_ms(row.step)), percent_text(row.share),
                            local.smallest && row == *local.smallest ? "  enough" : "");
    }
    return text + (local.smallest
                       ? fmt::format("  Averaging every {} is enough. What it does to convergence "
                                     "is not judged.\n",
                                     counted(local.smallest->period, "step"))
                       : "  No period of up to 1,000,000 steps is enough.\n");
}

Json to_json(const LocalSteps& local) {
    Json json{{"alone_ms", to_ms(local.alone)},
              {"fragment_bytes", local.fragment.count},
              {"all_reduce_ms", to_ms(local.all_reduce)},
              {"rows", json_list(local.rows, local_row)},
              {"judges_convergence", false}};
    add_optional(json, "smallest", local.smallest, local_row);
    return json;
}

}  // namespace bucketwise
