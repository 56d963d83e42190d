#include "import/replay/trace_caveats.h"

#include <cmath>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// Medians of fewer steps may be off by as much as a step is.
constexpr std::size_t few_steps = 3;
// Of the typical step: by so much the median of few may be off, and caps by less.
constexpr double wide_spread = 0.2;

void state_steps(const TraceImport& imported, Json& scenario) {
    const std::size_t steps = imported.run->alike().size();
    if (steps < few_steps) {
        add_caveat(scenario,
                   {.text = fmt::format("steps: only {} traced, so how far {} from others "
                                        "is not known",
                                        steps == 1 ? "one was" : "two were",
                                        steps == 1 ? "it is" : "they are")});
    }
    const double spread = to_ms(imported.longest - imported.shortest) / to_ms(imported.step);
    if (spread > wide_spread) {
        add_caveat(scenario,
                   {.text = fmt::format("steps: those traced differ, {:.3f} to {:.3f} ms",
                                        to_ms(imported.shortest), to_ms(imported.longest))});
    }
}

}  // namespace

std::optional<Caveat> replay_caveat(Duration predicted, Duration shown, std::string_view source) {
    const double error =
        static_cast<double>(predicted.count()) / static_cast<double>(shown.count()) - 1;
    if (std::abs(error) <= noticeable_replay_error) {
        return std::nullopt;
    }
    return Caveat{
        .text = fmt::format("{} replays {:.1f} % off: {:.3f} ms per step for {:.3f} ms", source,
                            100 * std::abs(error), to_ms(predicted), to_ms(shown)),
        .withholds = std::abs(error) > poor_replay_error};
}

void state_caveats(const Replay& replayed, TraceImport& imported) {
    Json& scenario = imported.scenario;
    if (const auto caveat = replay_caveat(replayed.step, replayed.traced_step, "the trace")) {
        add_caveat(scenario, *caveat);
    }
    if (!replayed.all_reduces.empty() && !replayed.same_buckets) {
        add_caveat(scenario,
                   {.text = replayed.sharded ? "the simulated collectives are not the traced ones"
                                             : "the simulated buckets are not the traced ones"});
    }
    state_steps(imported, scenario);
    for (const Caveat& caveat : caveats_of(imported.findings, Weakens::scenario)) {
        add_caveat(scenario, caveat);
    }
}

}  // namespace bucketwise
