#include "bench/steps/step_variants.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "hw/measure/measurer.h"
#include "sim/base/transformed.h"
#include "sim/engine/bucket_planner.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// Each rank's own measurements of a sample.
constexpr std::array sample_parts{&StepSample::forward_us, &StepSample::backward_us,
                                  &StepSample::optimizer_us, &StepSample::finishing_us,
                                  &StepSample::finishing_host_us};

// `times`: of the engine or of a rank.
template <typename Times>
StepSample sample_of(const Times& times) {
    return {.forward_us = to_us(times.forward),
            .backward_us = to_us(times.backward),
            .optimizer_us = to_us(times.optimizer),
            .finishing_us = to_us(times.finishing),
            .finishing_host_us = to_us(times.finishing_host)};
}

// The step's parts, then how long each of its gradients' collectives was in flight on this rank.
std::vector<double> numbers_of(const Program& program, const StepTrace& trace) {
    const StepSample sample = sample_of(summarize(program, trace));
    std::vector<double> numbers =
        transformed(sample_parts, [&](const auto part) { return sample.*part; });
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        if (program.collectives[i].has_bucket()) {
            numbers.push_back(to_us(trace.collectives[i].length()));
        }
    }
    return numbers;
}

// The slowest rank's step. A collective counts with the shortest of all ranks' times: on the other
// ranks it waited for its peers.
StepSample slowest(const std::vector<std::vector<double>>& by_rank) {
    constexpr std::size_t parts = sample_parts.size();
    StepSample result;
    std::vector<double> wire(by_rank.front().begin() + parts, by_rank.front().end());
    for (const std::vector<double>& numbers : by_rank) {
        StepSample sample;
        for (std::size_t i = 0; i < parts; ++i) {
            sample.*sample_parts[i] = numbers[i];
        }
        if (sample.step_us() > result.step_us()) {
            result = sample;
        }
        for (std::size_t i = 0; i < wire.size(); ++i) {
            wire[i] = std::min(wire[i], numbers[parts + i]);
        }
    }
    result.wire_us = std::accumulate(wire.begin(), wire.end(), 0.0);
    return result;
}

}  // namespace

StepSamples simulate_steps(const StepVariant& variant, std::int64_t steps) {
    const StepInput input = step_input(variant.scenario);
    const SyncSettings sync =
        settings_of_replay(with_cap(variant.scenario.sync, variant.cap), input);
    VariedSteps varied(input, sync, plan_of(input, sync));
    StepSamples samples;
    for (std::int64_t step = 0; step < (input.variation ? steps : 1); ++step) {
        const Program program = varied.next();
        check_length(longest_possible_seconds(program));
        const Simulation simulation = settled_simulation(program, loop_of(input, sync));
        StepSample& sample = samples.emplace_back(sample_of(simulation.ranks.front()));
        for (const Span& span : simulation.timeline.spans) {
            if (span.track == Track::communication &&
                program.collectives[static_cast<std::size_t>(span.subject)].has_bucket()) {
                sample.wire_us += to_us(span.end - span.start);
            }
        }
    }
    return samples;
}

std::vector<StepSamples> measure_steps(const std::vector<StepVariant>& variants, std::int64_t steps,
                                       const MeasuringOrder& order, RankSession& session) {
    std::vector<StepSamples> by_variant(variants.size());
    std::int64_t next_step = 0;
    const auto measure = [&](std::int64_t /*round*/, std::size_t item) {
        const StepVariant& variant = variants[item];
        const StepInput input = replay_input(variant.scenario);
        const ReplayedStep replayed = replayed_step(variant.scenario, input, variant.cap, plan_of);
        const std::unique_ptr<RankDevice> device =
            session.connection().device(variant.scenario, input.workload, replayed.sync);
        session.control().barrier();
        device->calibrate();
        for (std::int64_t step = -1; step < steps; ++step) {
            session.control().barrier();
            const StepTrace trace = device->run(replayed, next_step++, Communicate::yes);
            const auto by_rank = session.gather(numbers_of(replayed.program, trace));
            if (step >= 0 && session.is_first()) {
                by_variant[item].push_back(slowest(by_rank));
            }
        }
        const StepCheck check = device->check();
        if (replayed.sync.communicates && !check.wrong.empty()) {
            throw WrongSum(fmt::format("{}: {}", variant.label, check.wrong));
        }
    };
    session.expect(std::ssize(variants) * order.rounds);
    session.take_rounds(
        order, variants.size(), [&](std::size_t item) { return variants[item].label; }, measure);
    return by_variant;
}

}  // namespace bucketwise
