#include "bench/steps/step_variants.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/shell/files.h"
#include "hw/measure/measurer.h"
#include "hw/measure/measuring_order.h"
#include "sim/base/json_input.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/program.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

// Every number of a sample, in one order for who writes and who reads.
constexpr std::array sample_numbers{&StepSample::forward_us,        &StepSample::backward_us,
                                    &StepSample::optimizer_us,      &StepSample::finishing_us,
                                    &StepSample::finishing_host_us, &StepSample::wire_us};

// --- simulated -----------------------------------------------------------------------------------

StepSample simulated_sample(const Program& program) {
    const Simulation simulation = simulate({&program, 1}, Record::timeline);
    const StepTimes& times = simulation.ranks.front();
    StepSample sample{.forward_us = to_us(times.forward),
                      .backward_us = to_us(times.backward),
                      .optimizer_us = to_us(times.optimizer),
                      .finishing_us = to_us(times.finishing),
                      .finishing_host_us = to_us(times.finishing_host)};
    for (const Span& span : simulation.timeline.spans) {
        const auto subject = static_cast<std::size_t>(span.subject);
        if (span.track == Track::communication && program.collectives[subject].bucket) {
            sample.wire_us += to_us(span.end - span.start);
        }
    }
    return sample;
}

// --- measured ------------------------------------------------------------------------------------

// A variant as real ranks replay it.
struct Replay {
    const StepVariant& variant;
    StepInput input;
    SyncSettings sync;
    BucketPlan plan;
    Program program;

    explicit Replay(const StepVariant& replayed)
        : variant(replayed),
          input(replay_input(replayed.scenario)),
          sync(settings_for(request_with_cap(replayed.scenario.sync, replayed.cap))),
          plan(make_plan(input.workload.gradients, input.workload.readiness, sync.policy)),
          program(build_program(input, sync, plan)) {}
};

class VariantRank {
  public:
    VariantRank(const std::vector<StepVariant>& variants, const VariantRun& run,
                const RankIdentity& identity,
                const std::function<void(const std::string&)>& show_progress)
        : run_(run),
          show_progress_(show_progress),
          connection_(
              run.backend->connect(meeting_point(run.network, identity), identity, run.request)) {
        for (const StepVariant& variant : variants) {
            replays_.emplace_back(variant);
        }
        measured_.by_variant.resize(variants.size());
        measured_.environment = machine_record(identity, run.network);
        measured_.environment.libraries = run.backend->libraries();
        measured_.environment.gpu = connection_->gpu();
        measured_.environment.transport = run.backend->transport(run.request, identity.ranks);
        measured_.environment.seed = run.seed;
        measured_.environment.rounds = run.rounds;
    }

    MeasuredVariants measure() {
        Schedule schedule;
        schedule.rounds = run_.rounds;
        schedule.seed = run_.seed;
        schedule.items.resize(replays_.size());
        for (std::int64_t round = 0; round < run_.rounds; ++round) {
            for (const std::int32_t item : order_of_round(schedule, round)) {
                show_progress_(fmt::format("{} {} {}, round {} of {}", done_++,
                                           std::ssize(replays_) * run_.rounds,
                                           replays_[static_cast<std::size_t>(item)].variant.label,
                                           round + 1, run_.rounds));
                measure_once(static_cast<std::size_t>(item));
            }
        }
        // Nobody leaves while others may still need what it sent last.
        connection_->control().barrier();
        return std::move(measured_);
    }

  private:
    void measure_once(std::size_t index) {
        const Replay& replay = replays_[index];
        const std::unique_ptr<RankDevice> device =
            connection_->device(replay.variant.scenario, replay.input.workload, replay.sync);
        ControlGroup& control = connection_->control();
        control.barrier();
        device->calibrate();
        for (std::int64_t step = -1; step < run_.steps_per_round; ++step) {
            control.barrier();
            const StepTrace trace = device->run(replay.program, replay.sync, replay.plan,
                                                next_step_++, Communicate::yes);
            const std::vector<double> own = numbers_of(replay.program, trace);
            const std::vector<double> all = control.gather_to_first(own);
            if (step >= 0 && control.rank() == 0) {
                measured_.by_variant[index].push_back(slowest(all, own.size()));
            }
        }
        const StepCheck check = device->check();
        if (replay.sync.communicates && !check.wrong.empty()) {
            throw WrongSum(fmt::format("{}: {}", replay.variant.label, check.wrong));
        }
    }

    // The step's parts, then how long each of its gradients' collectives was in flight here.
    static std::vector<double> numbers_of(const Program& program, const StepTrace& trace) {
        const MeasuredStep step = summarize(program, trace);
        std::vector<double> numbers{to_us(step.forward), to_us(step.backward),
                                    to_us(step.optimizer), to_us(step.finishing),
                                    to_us(step.finishing_host)};
        for (std::size_t i = 0; i < program.collectives.size(); ++i) {
            if (program.collectives[i].bucket) {
                numbers.push_back(to_us(trace.collectives[i].length()));
            }
        }
        return numbers;
    }

    // Of a collective the shortest of all ranks' times counts: others waited for their peers.
    static StepSample slowest(const std::vector<double>& all, std::size_t per_rank) {
        constexpr std::size_t parts = sample_numbers.size() - 1;
        StepSample result;
        std::vector<double> wire(per_rank - parts, std::numeric_limits<double>::infinity());
        for (std::size_t rank = 0; rank < all.size(); rank += per_rank) {
            StepSample sample;
            for (std::size_t i = 0; i < parts; ++i) {
                sample.*sample_numbers[i] = all[rank + i];
            }
            if (sample.step_us() > result.step_us()) {
                result = sample;
            }
            for (std::size_t i = 0; i < wire.size(); ++i) {
                wire[i] = std::min(wire[i], all[rank + parts + i]);
            }
        }
        for (const double time : wire) {
            result.wire_us += time;
        }
        return result;
    }

    const VariantRun& run_;
    const std::function<void(const std::string&)>& show_progress_;
    std::unique_ptr<RankConnection> connection_;
    std::vector<Replay> replays_;
    MeasuredVariants measured_;
    std::int64_t done_ = 0;
    std::int64_t next_step_ = 0;
};

}  // namespace

StepSamples simulate_steps(const StepVariant& variant, std::int64_t steps) {
    const StepInput input = step_input(variant.scenario);
    const SyncSettings sync = settings_for(request_with_cap(variant.scenario.sync, variant.cap));
    VariedSteps varied(input, sync,
                       make_plan(input.workload.gradients, input.workload.readiness, sync.policy));
    StepSamples samples;
    for (std::int64_t step = 0; step < (input.variation ? steps : 1); ++step) {
        const Program program = varied.next();
        check_length(longest_possible_seconds(program));
        samples.push_back(simulated_sample(program));
    }
    return samples;
}

MeasuredVariants measure_variants(const std::vector<StepVariant>& variants, const VariantRun& run,
                                  const RankIdentity& identity,
                                  const std::function<void(const std::string&)>& show_progress) {
    return VariantRank(variants, run, identity, show_progress).measure();
}

std::string serialize(const MeasuredVariants& measured) {
    Json variants = Json::array();
    for (const StepSamples& samples : measured.by_variant) {
        Json list = Json::array();
        for (const StepSample& sample : samples) {
            Json numbers = Json::array();
            for (const auto number : sample_numbers) {
                numbers.push_back(sample.*number);
            }
            list.push_back(std::move(numbers));
        }
        variants.push_back(std::move(list));
    }
    return Json{{"environment", to_json(measured.environment)}, {"variants", variants}}.dump() +
           "\n";
}

MeasuredVariants read_measured_variants(const std::string& file) {
    const Json document = parse_json(read_text_file(file), file);
    MeasuredVariants measured;
    measured.environment =
        std::get<EnvironmentRecord>(read_measurement(document.at("environment"), file, 1));
    for (const Json& list : document.at("variants")) {
        StepSamples& samples = measured.by_variant.emplace_back();
        for (const Json& numbers : list) {
            StepSample& sample = samples.emplace_back();
            for (std::size_t i = 0; i < sample_numbers.size(); ++i) {
                sample.*sample_numbers[i] = numbers.at(i).get<double>();
            }
        }
    }
    return measured;
}

}  // namespace bucketwise
