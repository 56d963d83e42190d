// The link of logs, and the scenario that it completes.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "import/collectives/log_import.h"
#include "import/replay/replay.h"
#include "import/replay/step_document.h"
#include "import/replay/trace_link.h"
#include "import/run/traced_link.h"
#include "sim/base/error.h"
#include "sim/predict/prediction.h"

namespace bucketwise {
namespace {

LinkParameters fitted_link(const LogImport& imported) {
    auto link = link_through(imported.buckets, {.ranks = imported.ranks}, imported.file);
    if (!link) {
        throw InputError(imported.file, "",
                         "a link (--link), or how long collectives took (a flight recorder knows "
                         "with TORCH_NCCL_ENABLE_TIMING)",
                         "neither");
    }
    name_fitted(*link, imported.backend, "logged", imported.findings);
    link->provenance.versions = imported.version;
    link->provenance.source = "durations of a log of collectives, least times";
    return *link;
}

Duration step_of(const Scenario& scenario) {
    const StepInput input = step_input(scenario);
    const Evaluator evaluator(input, scenario.sync);
    return evaluator.simulation(evaluator.program(scenario.sync.bucket_cap)).ranks.front().step();
}

}  // namespace

Scenario connect(LogImport& imported, const std::optional<std::string>& link,
                 const FileReader& read_file) {
    put_link(
        imported.scenario, link, imported.ranks, [&] { return fitted_link(imported); }, read_file);
    const auto parsed = [&] {
        return parse_scenario(imported.scenario, imported.file + " as a scenario", read_file);
    };
    Scenario scenario = parsed();
    if (!imported.period) {
        return scenario;
    }
    // The simulator adds the wait for communication, which the pause includes.
    const Duration waiting =
        imported.waiting.value_or(std::max(step_of(scenario) - *imported.period, Duration{0}));
    const Duration forward = std::max(imported.pause - waiting, Duration{0});
    imported.scenario["workload"]["forward_ms"] = rounded_ms(forward);
    if (imported.waiting) {
        imported.findings.found("waiting",
                                "the last all-reduces end {:.3f} ms after the last is issued, by "
                                "their durations: taken out of forward, which leaves {:.3f} ms",
                                to_ms(waiting), to_ms(forward));
    } else {
        imported.findings.assumed(
            "waiting",
            "no duration tells how long the host waits for the last all-reduces: {:.3f} ms, as the "
            "link has it, are taken out of forward, which leaves {:.3f} ms",
            to_ms(waiting), to_ms(forward));
    }
    return parsed();
}

void state_caveats(const Scenario& scenario, LogImport& imported) {
    if (!imported.period) {
        add_caveat(imported.scenario, {.text = "the log does not tell how long a step took, so "
                                               "nothing says how far its replay is off"});
    } else if (const auto caveat = replay_caveat(step_of(scenario), *imported.period, "the log")) {
        add_caveat(imported.scenario, *caveat);
    } else if (!imported.waiting) {
        add_caveat(imported.scenario,
                   {.text = "no duration tells how long all-reduces took: only the link says how "
                            "long the host waits for them"});
    }
    for (const Caveat& caveat : caveats_of(imported.findings, Weakens::scenario)) {
        add_caveat(imported.scenario, caveat);
    }
}

std::string replay_text(const LogImport& imported, const Scenario& scenario) {
    const Duration step = step_of(scenario);
    if (!imported.period) {
        return fmt::format(
            "\n  Predicted: {:.3f} ms per step; the log does not tell how long one took.\n",
            to_ms(step));
    }
    const double error =
        static_cast<double>(step.count()) / static_cast<double>(imported.period->count()) - 1;
    std::string text =
        fmt::format("\n  Predicted: {:.3f} ms per step, logged {:.3f} ms ({:+.2f} %).\n",
                    to_ms(step), to_ms(*imported.period), 100 * error);
    constexpr double noticeable = 0.02;
    if (std::abs(error) > noticeable && imported.waiting) {
        text += fmt::format(
            "  The link takes {} for the last all-reduces than their logged durations say.\n",
            error > 0 ? "longer" : "less long");
    } else if (std::abs(error) > noticeable) {
        text +=
            "  The link takes longer for the all-reduces than the logged steps leave them: it is "
            "another link, or hosts ran ahead.\n";
    } else if (!imported.waiting) {
        text +=
            "  This agreement proves nothing: the wait that was taken out is the same link's.\n";
    }
    return text;
}

}  // namespace bucketwise
