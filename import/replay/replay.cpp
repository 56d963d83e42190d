#include "import/replay/replay.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/engine/engine.h"
#include "sim/predict/prediction.h"
#include "sim/predict/sharded_prediction.h"
#include "sim/program/program.h"
#include "sim/text/passed_on.h"

namespace bucketwise {

Duration Replay::largest_difference() const {
    Duration largest{0};
    for (const ReplayedAllReduce& all_reduce : all_reduces) {
        const Duration difference = all_reduce.start - all_reduce.traced_start;
        largest = std::max(largest, std::max(difference, -difference));
    }
    return largest;
}

namespace {

Replay replayed(const TraceImport& imported, const Program& program, const Simulation& simulation) {
    Replay result{.traced_step = imported.step, .step = simulation.ranks.front().step()};
    result.ranks = imported.ranks;
    result.traced_account = imported.account;
    result.shortest_step = imported.shortest;
    result.longest_step = imported.longest;
    result.simulated = simulated_account(program, simulation);
    return result;
}

// Those on a communication stream of which that holds, as they are issued.
template <typename Holds>
std::vector<const Span*> collective_spans(const Program& program, const Simulation& simulation,
                                          Holds holds) {
    std::vector<const Span*> spans;
    for (const Span& span : simulation.timeline.spans) {
        if (span.track == Track::communication &&
            holds(program.collectives[static_cast<std::size_t>(span.subject)])) {
            spans.push_back(&span);
        }
    }
    std::ranges::sort(spans, {}, &Span::subject);
    return spans;
}

// Side by side, as far as both go.
template <typename Traced>
void add_collectives(const Program& program, const std::vector<const Span*>& spans,
                     const std::vector<Traced>& all_traced, Replay& result) {
    result.same_buckets = spans.size() == all_traced.size();
    for (std::size_t i = 0; i < std::min(spans.size(), all_traced.size()); ++i) {
        const Collective& collective =
            program.collectives[static_cast<std::size_t>(spans[i]->subject)];
        const Traced& traced = all_traced[i];
        result.all_reduces.push_back(
            {traced.kind, traced.bytes, collective.bytes, traced.start, spans[i]->start});
        result.same_buckets = result.same_buckets && traced.kind == collective.kind &&
                              traced.bytes == collective.bytes;
    }
}

Replay replay_sharded(const TraceImport& imported, const Scenario& scenario) {
    const ShardedInput input = sharded_input(scenario);
    const Program program = sharded_program(input);
    const Simulation simulation = sharded_simulation(input, program);
    Replay result = replayed(imported, program, simulation);
    result.sharded = true;
    result.simulated.account.computing -= imported.late;
    result.simulated.account.communicating += imported.late;
    add_collectives(program,
                    collective_spans(program, simulation, [](const auto&) { return true; }),
                    imported.sharding->collectives, result);
    return result;
}

}  // namespace

Replay replay(const TraceImport& imported, const Scenario& scenario) {
    if (imported.sharding) {
        return replay_sharded(imported, scenario);
    }
    const StepInput input = step_input(scenario);
    // A list of caps is the request's own, whatever the cap.
    const Evaluator evaluator(input, scenario.sync);
    const Program program = evaluator.program(scenario.sync.bucket_cap);
    const Simulation simulation = evaluator.simulation(program);
    Replay result = replayed(imported, program, simulation);
    add_collectives(program,
                    collective_spans(program, simulation,
                                     [](const Collective& one) { return one.bucket.has_value(); }),
                    imported.all_reduces, result);
    return result;
}

namespace {

// Which parts of the step are off, the largest first.
std::string difference_text(const Replay& replay) {
    const auto over = [&](Duration StepAccount::*part) {
        return replay.simulated.account.*part - replay.traced_account.*part;
    };
    std::vector<std::pair<const char*, Duration>> parts{
        {"computing", over(&StepAccount::computing)},
        {"waiting for launches", over(&StepAccount::launching)},
        {replay.sharded ? "waiting for collectives and the ranks that are late for them"
                        : "waiting for all-reduces and the ranks that are late for them",
         over(&StepAccount::communicating)},
        {"waiting for other streams", over(&StepAccount::others)}};
    const auto size = [](const auto& part) { return std::max(part.second, -part.second); };
    std::ranges::stable_sort(parts, std::ranges::greater{}, size);
    std::vector<std::string> texts;
    for (const auto& part : parts) {
        constexpr double worth_saying = 0.005;
        const double of_step = to_ms(size(part)) / to_ms(replay.traced_step);
        if (of_step >= worth_saying) {
            texts.push_back(fmt::format("{:+.3f} ms in {}", to_ms(part.second), part.first));
        }
    }
    std::string text;
    if (!texts.empty()) {
        text += fmt::format("  It differs by {}.\n", fmt::join(texts, ", "));
    }
    if (replay.longest_step - replay.shortest_step >
        std::max(replay.step - replay.traced_step, replay.traced_step - replay.step)) {
        text += fmt::format("  The traced steps differ more than that: {:.3f} to {:.3f} ms.\n",
                            to_ms(replay.shortest_step), to_ms(replay.longest_step));
    }
    return text;
}

}  // namespace

std::string text_of(const Replay& replay) {
    std::string text =
        fmt::format("\n  Replayed: {:.3f} ms per step, traced {:.3f} ms ({:+.2f} %).\n",
                    to_ms(replay.step), to_ms(replay.traced_step), 100 * replay.error());
    constexpr double noticeable = 0.02;
    constexpr double poor = 0.05;
    if (std::abs(replay.error()) > noticeable) {
        text += difference_text(replay);
    }
    if (std::abs(replay.error()) > poor) {
        text += "  That is too far off to decide by.\n";
    }
    if (replay.all_reduces.empty() || replay.ranks == 1) {
        return text;
    }
    const auto before_step = [](const ReplayedAllReduce& one) {
        return one.traced_start < Duration{0};
    };
    if (std::ranges::any_of(replay.all_reduces, before_step)) {
        return text +
               "  No event tells when the device ran the all-reduces; the host issued them before "
               "the step began.\n";
    }
    text += fmt::format("\n  {:>14} {:>16} {:>19} {:>15}\n",
                        replay.sharded ? "collective (B)" : "all-reduce (B)", "traced start (ms)",
                        "simulated start (ms)", "difference (ms)");
    constexpr std::size_t most_listed = 40;  // of sharded ones, of which there are hundreds
    const std::size_t listed = replay.sharded ? std::min(most_listed, replay.all_reduces.size())
                                              : replay.all_reduces.size();
    for (std::size_t i = 0; i < listed; ++i) {
        const ReplayedAllReduce& all_reduce = replay.all_reduces[i];
        text += replay.sharded ? fmt::format("  {:<14}", name_of(all_reduce.kind)) : "";
        text +=
            fmt::format("  {:>14} {:>17.3f} {:>20.3f} {:>+15.3f}{}\n",
                        all_reduce.traced_bytes.count, to_ms(all_reduce.traced_start),
                        to_ms(all_reduce.start), to_ms(all_reduce.start - all_reduce.traced_start),
                        all_reduce.bytes == all_reduce.traced_bytes
                            ? ""
                            : fmt::format("  (simulated: {} B)", all_reduce.bytes.count));
    }
    if (listed < replay.all_reduces.size()) {
        text += fmt::format("  and {} more\n", replay.all_reduces.size() - listed);
    }
    if (!replay.same_buckets) {
        text += fmt::format("\n  The simulated {} are not the traced ones.\n",
                            replay.sharded ? "collectives" : "buckets");
    }
    return text;
}

TraceProcess traced_process(const TracedStep& step, const std::string& file) {
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
    for (const TracedCollective& collective : step.collectives) {
        if (collective.begin) {
            communication.slices.push_back(
                {fmt::format("{} ({:.2f} MiB)", collective.name, to_mib(collective.bytes)),
                 *collective.begin, *collective.end});
        }
    }
    for (TraceTrack* track : {&host, &compute, &communication}) {
        std::ranges::stable_sort(track->slices, {}, &TraceSlice::begin);
    }
    TraceProcess process{fmt::format("traced: {} of {}", step.name, file_name(file)), {}};
    for (TraceTrack* track : {&host, &compute, &communication}) {
        if (!track->slices.empty()) {
            process.tracks.push_back(std::move(*track));
        }
    }
    return process;
}

}  // namespace bucketwise
