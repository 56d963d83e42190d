#include "bench/steps/step_variants.h"

#include <algorithm>
#include <array>
#include <memory>

#include <fmt/format.h>

#include "cli/ranks/rank_bench.h"
#include "hw/measure/measurer.h"
#include "sim/base/transformed.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/program/step_programs.h"

namespace bucketwise {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(StepSample, forward_us, backward_us, optimizer_us, finishing_us,
                                   finishing_host_us, wire_us)

namespace {

// What each rank measures of a sample.
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

// --- simulated -----------------------------------------------------------------------------------

StepSample simulated_sample(const Program& program, const StepLoop& loop) {
    const Simulation simulation = settled_simulation(program, loop);
    StepSample sample = sample_of(simulation.ranks.front());
    for (const Span& span : simulation.timeline.spans) {
        const auto subject = static_cast<std::size_t>(span.subject);
        if (span.track == Track::communication && program.collectives[subject].bucket) {
            sample.wire_us += to_us(span.end - span.start);
        }
    }
    return sample;
}

// --- measured ------------------------------------------------------------------------------------

class VariantRank {
  public:
    VariantRank(const std::vector<StepVariant>& variants, const VariantRun& run,
                RankSession& session)
        : variants_(variants), run_(run), session_(session), by_variant_(variants.size()) {
        session.expect(std::ssize(variants) * run.rounds);
    }

    std::vector<StepSamples> measure(const MeasuringOrder& order) {
        session_.take_rounds(
            order, variants_.size(), [&](std::size_t item) { return variants_[item].label; },
            [&](std::int64_t, std::size_t item) {
                measure_once(variants_[item], by_variant_[item]);
            });
        return std::move(by_variant_);
    }

  private:
    void measure_once(const StepVariant& variant, StepSamples& samples) {
        const StepInput input = replay_input(variant.scenario);
        const ReplayedStep replayed = replayed_step(variant.scenario, input, variant.cap);
        const std::unique_ptr<RankDevice> device =
            session_.connection().device(variant.scenario, input.workload, replayed.sync);
        session_.control().barrier();
        device->calibrate();
        for (std::int64_t step = -1; step < run_.steps_per_round; ++step) {
            session_.control().barrier();
            const StepTrace trace = device->run(replayed.program, replayed.sync, replayed.plan,
                                                next_step_++, Communicate::yes);
            const std::vector<std::vector<double>> by_rank =
                session_.gather(numbers_of(replayed.program, trace));
            if (step >= 0 && session_.is_first()) {
                samples.push_back(slowest(by_rank));
            }
        }
        const StepCheck check = device->check();
        if (replayed.sync.communicates && !check.wrong.empty()) {
            throw WrongSum(fmt::format("{}: {}", variant.label, check.wrong));
        }
    }

    // The step's parts, then how long each of its gradients' collectives was in flight here.
    static std::vector<double> numbers_of(const Program& program, const StepTrace& trace) {
        const StepSample sample = sample_of(summarize(program, trace));
        std::vector<double> numbers =
            transformed(sample_parts, [&](const auto part) { return sample.*part; });
        for (std::size_t i = 0; i < program.collectives.size(); ++i) {
            if (program.collectives[i].bucket) {
                numbers.push_back(to_us(trace.collectives[i].length()));
            }
        }
        return numbers;
    }

    // The shortest of all ranks' times of a collective counts: others waited for their peers.
    static StepSample slowest(const std::vector<std::vector<double>>& by_rank) {
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
        for (const double time : wire) {
            result.wire_us += time;
        }
        return result;
    }

    const std::vector<StepVariant>& variants_;
    const VariantRun& run_;
    RankSession& session_;
    std::vector<StepSamples> by_variant_;
    std::int64_t next_step_ = 0;
};

}  // namespace

StepSamples simulate_steps(const StepVariant& variant, std::int64_t steps) {
    const StepInput input = step_input(variant.scenario);
    const SyncSettings sync = settings_of_replay(with_cap(variant.scenario.sync, variant.cap));
    VariedSteps varied(input, sync, make_plan(input.workload, sync.policy));
    StepSamples samples;
    for (std::int64_t step = 0; step < (input.variation ? steps : 1); ++step) {
        const Program program = varied.next();
        check_length(longest_possible_seconds(program));
        samples.push_back(simulated_sample(program, loop_of(input, sync)));
    }
    return samples;
}

int run_variants(const std::vector<StepVariant>& variants, const VariantRun& run,
                 const std::optional<RankIdentity>& identity, const PrintVariants& print) {
    const RankJob job = job_of(run, variants.front().scenario.group.ranks);
    return run_rank_bench<std::vector<StepSamples>>(
        job, identity,
        [&](RankSession& session) {
            return VariantRank(variants, run, session).measure(job.order);
        },
        print);
}

}  // namespace bucketwise
