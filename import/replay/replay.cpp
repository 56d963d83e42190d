#include "import/replay/replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/engine/engine.h"
#include "sim/predict/prediction.h"
#include "sim/program/program.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

constexpr double noticeable_error = 0.02;

// Pairs the simulated collectives for which `holds`, as issued, with the traced ones.
template <typename Holds>
Replay replayed(const TraceImport& imported, const Program& program, const Simulation& simulation,
                Holds holds) {
    Replay result{.traced = imported.summary,
                  .step = simulation.ranks.front().step(),
                  .ranks = imported.ranks,
                  .simulated = simulated_account(program, simulation)};
    const auto collective_of = [&](const Span* span) -> const Collective& {
        return program.collectives[static_cast<std::size_t>(span->subject)];
    };
    std::vector<const Span*> spans;
    for (const Span& span : simulation.timeline.spans) {
        if (span.track == Track::communication && holds(collective_of(&span))) {
            spans.push_back(&span);
        }
    }
    std::ranges::sort(spans, {}, &Span::subject);
    const std::vector<TypicalCollective>& all_traced = imported.collectives();
    result.same_buckets = spans.size() == all_traced.size();
    for (std::size_t i = 0; i < std::min(spans.size(), all_traced.size()); ++i) {
        const Collective& collective = collective_of(spans[i]);
        const TypicalCollective& traced = all_traced[i];
        result.collectives.push_back(
            {traced.kind, traced.bytes, collective.bytes, traced.start, spans[i]->start});
        result.same_buckets = result.same_buckets && traced.kind == collective.kind &&
                              traced.bytes == collective.bytes;
    }
    return result;
}

// The parts of the step that are off, the largest first.
std::string difference_text(const Replay& replay) {
    const std::string late = fmt::format("waiting for {} and the ranks that are late for them",
                                         replay.traced.sharded ? "collectives" : "all-reduces");
    const std::vector<std::string> names{"computing", "waiting for launches", late,
                                         "waiting for other streams"};
    std::vector<std::pair<std::string, Duration>> parts;
    for (std::size_t i = 0; i < names.size(); ++i) {
        const auto part = account_parts[i];
        parts.emplace_back(names[i], replay.simulated.account.*part - replay.traced.account.*part);
    }
    const auto size = [](const auto& part) { return std::chrono::abs(part.second); };
    std::ranges::stable_sort(parts, std::ranges::greater{}, size);
    std::vector<std::string> texts;
    for (const auto& part : parts) {
        constexpr double worth_saying = 0.005;
        if (to_ms(size(part)) / to_ms(replay.traced.step) >= worth_saying) {
            texts.push_back(fmt::format("{:+.3f} ms in {}", to_ms(part.second), part.first));
        }
    }
    std::string text;
    if (!texts.empty()) {
        text += fmt::format("  It differs by {}.\n", fmt::join(texts, ", "));
    }
    if (replay.traced.longest - replay.traced.shortest >
        std::chrono::abs(replay.step - replay.traced.step)) {
        text += fmt::format("  The traced steps differ more than that: {:.3f} to {:.3f} ms.\n",
                            to_ms(replay.traced.shortest), to_ms(replay.traced.longest));
    }
    return text;
}

// Medians of fewer steps than three may be off by as much as single steps are.
void state_steps(const StepSummary& traced, std::size_t steps, Json& scenario) {
    if (steps < 3) {
        add_caveat(scenario,
                   {.text = fmt::format("steps: only {} traced, so how far {} from others "
                                        "is not known",
                                        steps == 1 ? "one was" : "two were",
                                        steps == 1 ? "it is" : "they are")});
    }
    constexpr double wide_spread = 0.2;  // of the median step
    if (to_ms(traced.longest - traced.shortest) / to_ms(traced.step) > wide_spread) {
        add_caveat(scenario, {.text = fmt::format("steps: those traced differ, {:.3f} to {:.3f} ms",
                                                  to_ms(traced.shortest), to_ms(traced.longest))});
    }
}

}  // namespace

Duration Replay::largest_difference() const {
    Duration largest{0};
    for (const ReplayedCollective& one : collectives) {
        largest = std::max(largest, std::chrono::abs(one.start - one.traced_start));
    }
    return largest;
}

Replay replay(const TraceImport& imported, const Scenario& scenario) {
    if (imported.sharding) {
        const ShardedInput input = sharded_input(scenario);
        const Program program = sharded_program(input);
        Replay result = replayed(imported, program, sharded_simulation(input, program),
                                 [](const Collective&) { return true; });
        result.simulated.account.computing -= imported.late;
        result.simulated.account.communicating += imported.late;
        return result;
    }
    const StepInput input = step_input(scenario);
    // A list of caps is the request's own, whatever the cap.
    const Evaluator evaluator(input, scenario.sync);
    const Program program = evaluator.program(scenario.sync.bucket_cap);
    return replayed(imported, program, evaluator.simulation(program),
                    [](const Collective& one) { return one.has_bucket(); });
}

std::string text_of(const Replay& replay) {
    const bool sharded = replay.traced.sharded;
    std::string text =
        fmt::format("\n  Replayed: {:.3f} ms per step, traced {:.3f} ms ({:+.2f} %).\n",
                    to_ms(replay.step), to_ms(replay.traced.step), 100 * replay.error());
    constexpr double poor = 0.05;
    if (std::abs(replay.error()) > noticeable_error) {
        text += difference_text(replay);
    }
    if (std::abs(replay.error()) > poor) {
        text += "  That is too far off to decide by.\n";
    }
    if (replay.collectives.empty() || replay.ranks == 1) {
        return text;
    }
    if (std::ranges::any_of(replay.collectives,
                            [](const auto& one) { return one.traced_start < Duration{0}; })) {
        return text +
               "  No event tells when the device ran the all-reduces; the host issued them before "
               "the step began.\n";
    }
    text += fmt::format("\n  {:>14} {:>16} {:>19} {:>15}\n",
                        sharded ? "collective (B)" : "all-reduce (B)", "traced start (ms)",
                        "simulated start (ms)", "difference (ms)");
    constexpr std::size_t most_listed = 40;  // FSDP2 has hundreds
    const std::size_t listed =
        sharded ? std::min(most_listed, replay.collectives.size()) : replay.collectives.size();
    for (std::size_t i = 0; i < listed; ++i) {
        const ReplayedCollective& one = replay.collectives[i];
        text += sharded ? fmt::format("  {:<14}", name_of(one.kind)) : "";
        text += fmt::format(
            "  {:>14} {:>17.3f} {:>20.3f} {:>+15.3f}{}\n", one.traced_bytes.count,
            to_ms(one.traced_start), to_ms(one.start), to_ms(one.start - one.traced_start),
            one.bytes == one.traced_bytes ? ""
                                          : fmt::format("  (simulated: {} B)", one.bytes.count));
    }
    if (listed < replay.collectives.size()) {
        text += fmt::format("  and {} more\n", replay.collectives.size() - listed);
    }
    if (!replay.same_buckets) {
        text += fmt::format("\n  The simulated {} are not the traced ones.\n",
                            sharded ? "collectives" : "buckets");
    }
    return text;
}

std::optional<Caveat> replay_caveat(Duration predicted, Duration shown, std::string_view source) {
    constexpr double poor_error = 0.1;
    const double error =
        std::abs(static_cast<double>(predicted.count()) / static_cast<double>(shown.count()) - 1);
    if (error <= noticeable_error) {
        return std::nullopt;
    }
    return Caveat{.text = fmt::format("{} replays {:.1f} % off: {:.3f} ms per step for {:.3f} ms",
                                      source, 100 * error, to_ms(predicted), to_ms(shown)),
                  .withholds = error > poor_error};
}

void state_caveats(const Replay& replayed, TraceImport& imported) {
    Json& scenario = imported.scenario;
    if (const auto caveat = replay_caveat(replayed.step, replayed.traced.step, "the trace")) {
        add_caveat(scenario, *caveat);
    }
    if (!replayed.collectives.empty() && !replayed.same_buckets) {
        add_caveat(scenario,
                   {.text = fmt::format("the simulated {} are not the traced ones",
                                        replayed.traced.sharded ? "collectives" : "buckets"),
                    .withholds = true});
    }
    state_steps(imported.summary, imported.run->alike().size(), scenario);
    for (const Caveat& caveat : caveats_of(imported.findings, Weakens::scenario)) {
        add_caveat(scenario, caveat);
    }
}

TraceProcess traced_process(const TraceImport& imported) {
    const TracedStep& step = imported.typical;
    TraceTrack idle{"host does nothing", {}};
    TraceTrack host{"host", {}};
    TraceTrack compute{"compute stream", {}};
    TraceTrack communication{"communication stream", {}};
    for (const std::vector<StepMark>* pass : {&step.forward, &step.backward}) {
        for (const StepMark& mark : *pass) {
            if (mark.host > Duration{0}) {
                host.slices.push_back({mark.name, mark.at - mark.host, mark.at});
            }
            if (mark.device > Duration{0}) {
                compute.slices.push_back(
                    {mark.name, mark.device_begin, mark.device_begin + mark.device});
            }
        }
    }
    for (const HostGap& gap : step.gaps) {
        idle.slices.push_back({"before " + gap.before, gap.at, gap.at + gap.length});
    }
    for (const TracedCollective& collective : step.collectives) {
        if (collective.begin) {
            communication.slices.push_back(
                {fmt::format("{} ({:.2f} MiB)", collective.name, to_mib(collective.bytes)),
                 *collective.begin, *collective.end});
        }
    }
    TraceProcess process{
        fmt::format("traced: {} of {}", step.name, file_name(imported.summary.file)), {}};
    for (TraceTrack* track : {&idle, &host, &compute, &communication}) {
        std::ranges::stable_sort(track->slices, {}, &TraceSlice::begin);
        if (!track->slices.empty()) {
            process.tracks.push_back(std::move(*track));
        }
    }
    return process;
}

}  // namespace bucketwise
