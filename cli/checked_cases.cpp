#include "cli/check.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "calibrate/gate/measured_cases.h"
#include "cli/import_traces.h"
#include "cli/measured_files.h"
#include "cli/prediction.h"
#include "cli/shell/file_kind.h"
#include "cli/shell/files.h"
#include "cli/shell/scenario_document.h"
#include "import/replay/step_account.h"
#include "import/run/traced_collectives.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/predict/prediction.h"
#include "sim/report/misfit.h"
#include "sim/scenario/scenario.h"
#include "sim/text/foreign_text.h"
#include "sim/text/passed_on.h"

namespace bucketwise {
namespace {

constexpr std::size_t longest_name = 200;

// --- traces ---

// Times at which gradients became ready, rising, from the start of backward.
std::vector<double> ready_ms_of(const TracedStep& step, bool has_device) {
    std::optional<Duration> begin;
    Duration done{0};
    std::vector<double> ready;
    for (const StepMark& mark : step.backward) {
        const Duration started = has_device ? mark.device_begin : mark.at - mark.host;
        if (!begin && (mark.device > Duration{0} || !has_device)) {
            begin = started;
        }
        done = std::max(done, has_device ? mark.device_begin + mark.device : mark.at);
        if (mark.kind == MarkKind::ready) {
            ready.push_back(to_ms(done - begin.value_or(done)));
        }
    }
    return ready;
}

double copying_ms_of(const TracedStep& step, bool has_device) {
    Duration sum{0};
    for (const auto* pass : {&step.forward, &step.backward}) {
        for (const StepMark& mark : *pass) {
            sum += !mark.is_copy() ? Duration{0} : has_device ? mark.device : mark.host;
        }
    }
    return to_ms(sum);
}

void add_parts(const TracedStep& step, bool has_device, GateRun& run) {
    const StepAccount account = account_of(step, has_device);
    const double copying = copying_ms_of(step, has_device);
    run.part(StepPart::step).push_back(to_ms(step.length));
    run.part(StepPart::exposed).push_back(to_ms(account.communicating));
    run.part(StepPart::computing).push_back(std::max(to_ms(account.computing) - copying, 0.0));
    run.part(StepPart::copying).push_back(copying);
    run.part(StepPart::launching).push_back(to_ms(account.launching));
    run.part(StepPart::others).push_back(to_ms(account.others));
}

// Traces have no names of gradients.
std::string gradient_name(std::size_t i, std::size_t count) {
    return fmt::format("number {} of {} by readiness", i + 1, count);
}

void add_buckets(const TracedRun& traced, GateRun& run) {
    const TracedStep& first = traced.first();
    const bool has_device = traced.rank().has_device;
    for (const TracedCollective* reduction : reductions(traced, first)) {
        GateBucket bucket{.bytes = std::max(reduction->bytes, Bytes{0})};
        if (reduction->ready_before > 0) {
            bucket.last_gradient = gradient_name(reduction->ready_before - 1, gradients_of(first));
        }
        run.buckets.push_back(std::move(bucket));
    }
    const bool all_ranks =
        same_steps(traced) && traced.rank().world_size == std::ssize(traced.ranks);
    run.collectives_wait = !all_ranks;
    std::vector<std::vector<double>> ready;
    for (std::size_t s = 0; s < traced.alike().size(); ++s) {
        const TracedStep& step = *traced.alike()[s];
        const std::vector<const TracedCollective*> found = reductions(traced, step);
        ready.push_back(ready_ms_of(step, has_device));
        for (std::size_t k = 0; k < std::min(found.size(), run.buckets.size()); ++k) {
            const std::size_t last = found[k]->ready_before;
            if (last > 0 && last <= ready.back().size()) {
                run.buckets[k].ready_ms.push_back(ready.back()[last - 1]);
            }
            const std::vector<Duration> times = times_of(traced, k, s, all_ranks);
            if (!times.empty()) {
                run.buckets[k].collective_ms.push_back(to_ms(std::ranges::min(times)));
            }
        }
    }
    for (std::size_t i = 0; i < ready.front().size(); ++i) {
        run.gradients.push_back(
            {.name = gradient_name(i, ready.front().size()),
             .ready_ms = median_of(ready, [i](const auto& of_step) { return of_step[i]; })});
    }
}

GateRun run_of(std::vector<TracedRank> ranks) {
    check_ranks(ranks);
    TracedRun traced{std::move(ranks)};
    Findings findings;
    choose_steps(traced, findings);
    find_group(traced, findings);
    GateRun run{.file = file_name(traced.rank().file)};
    for (const TracedStep* step : traced.alike()) {
        add_parts(*step, traced.rank().has_device, run);
    }
    add_buckets(traced, run);
    return run;
}

// The k-th trace of a rank belongs to the k-th run.
GateCase traced_case(std::vector<TracedRank> traces) {
    std::map<std::int64_t, std::size_t> seen;
    std::vector<std::vector<TracedRank>> runs;
    for (TracedRank& trace : traces) {
        const std::size_t run = seen[trace.rank.value_or(0)]++;
        runs.resize(std::max(runs.size(), run + 1));
        runs[run].push_back(std::move(trace));
    }
    GateCase traced{.name = "traced steps", .source = GateSource::trace};
    for (std::vector<TracedRank>& ranks : runs) {
        traced.runs.push_back(run_of(std::move(ranks)));
    }
    return traced;
}

// --- scenarios ---

// Details from the timeline of one settled step.
class PredictedStep {
  public:
    PredictedStep(const StepInput& input, const Evaluator& evaluator, Cap cap)
        : workload_(input.workload),
          plan_(evaluator.plan(cap)),
          program_(evaluator.program(cap)),
          simulation_(evaluator.simulation(program_)) {}

    // Without buckets.
    explicit PredictedStep(const ShardedInput& input)
        : workload_(input.step.workload),
          program_(sharded_program(input)),
          simulation_(sharded_simulation(input, program_)) {}

    void add_to(GateRun& run) {
        find_gradients(run);
        const SimulatedAccount account = simulated_account(program_, simulation_);
        run.part(StepPart::computing) = {
            std::max(to_ms(account.account.computing - copying_), 0.0)};
        run.part(StepPart::copying) = {to_ms(copying_)};
        run.part(StepPart::launching) = {to_ms(account.account.launching)};
        run.part(StepPart::others) = {to_ms(account.account.others)};
        std::size_t launched = 0;
        Duration free{0};
        for (const Collective& collective : program_.collectives) {
            if (!collective.has_bucket() || launched == account.buckets.size()) {
                continue;
            }
            const BucketWait& bucket = account.buckets[launched++];
            run.buckets.push_back(
                {.bytes = collective.bytes,
                 .last_gradient = last_gradient(static_cast<std::size_t>(*collective.bucket())),
                 .ready_ms = {to_ms(bucket.issued - backward_)},
                 .collective_ms = {to_ms(bucket.end - std::max(bucket.begin, free))}});
            free = bucket.end;
        }
    }

  private:
    // From the last micro-step, whose spans are the last.
    void find_gradients(GateRun& run) {
        std::size_t ready = 0;
        const std::vector<std::int32_t>& order = plan_.order_of(workload_);
        bool was_forward = true;
        std::vector<const Span*> spans =
            transformed(simulation_.timeline.spans, [](const Span& span) { return &span; });
        std::erase_if(spans, [](const Span* span) {
            return span->track != Track::compute || span->rank != 0;
        });
        std::ranges::stable_sort(spans, {}, &Span::start);
        for (const Span* span : spans) {
            const Instruction& instruction =
                program_.instructions[static_cast<std::size_t>(span->subject)];
            copying_ += is_copy(instruction.kind) ? span->end - span->start : Duration{0};
            if (instruction.kind == InstructionKind::forward) {
                was_forward = true;
            } else if (instruction.kind == InstructionKind::backward) {
                if (std::exchange(was_forward, false)) {
                    backward_ = span->start;
                    run.gradients.clear();
                    ready = 0;
                }
                const auto operation = static_cast<std::size_t>(instruction.subject);
                for (std::int32_t i = 0; i < plan_.ready_count(workload_, operation); ++i) {
                    const auto gradient = static_cast<std::size_t>(order[ready++]);
                    run.gradients.push_back({.name = workload_.gradients[gradient].name,
                                             .ready_ms = to_ms(span->end - backward_)});
                }
            }
        }
    }

    [[nodiscard]] std::string last_gradient(std::size_t bucket) const {
        const std::vector<std::int32_t>& held = plan_.buckets[bucket].gradients;
        std::string last;
        for (const std::int32_t gradient : plan_.order_of(workload_)) {
            if (std::ranges::find(held, gradient) != held.end()) {
                last = workload_.gradients[static_cast<std::size_t>(gradient)].name;
            }
        }
        return last;
    }

    const Workload& workload_;
    BucketPlan plan_;
    Program program_;
    Simulation simulation_;
    Duration backward_{0};
    Duration copying_{0};
};

GateCase predicted_case(const ScenarioOptions& options, const std::string& file) {
    const Scenario scenario = parse_scenario(read_simulated_document(options, file), file,
                                             read_text_file, StrategyKinds::all);
    const StepInput input = simulated_input(scenario);
    GateRun run{.file = file_name(file)};
    const auto add = [&](const Evaluation& evaluation, const auto& predicted_step) {
        run.part(StepPart::step) = {to_ms(evaluation.step())};
        run.part(StepPart::exposed) = {to_ms(evaluation.exposed)};
        if (can_be_traced(input)) {
            predicted_step().add_to(run);
        }
    };
    if (scenario.sharding) {
        const ShardedInput sharded{input, *scenario.sharding};
        add(evaluate_sharded(scenario, sharded), [&] { return PredictedStep(sharded); });
    } else {
        Evaluator evaluator(input, scenario.sync);
        const Cap cap = cap_of(scenario.sync);
        add(evaluator.evaluate(cap), [&] { return PredictedStep(input, evaluator, cap); });
    }
    return {.name = cut_text(scenario.name, longest_name),
            .source = GateSource::prediction,
            .runs = {std::move(run)},
            .misfit = misfit_text(scenario)};
}

void refuse_same_name(const GateCase& one, const std::string& file,
                      const std::vector<GateCase>& cases) {
    const bool is_taken = std::ranges::any_of(cases, [&](const GateCase& other) {
        return other.source == one.source && other.name == one.name;
    });
    if (is_taken) {
        throw InputError(file, "/name", "a name that no other scenario that is checked has",
                         "\"" + one.name + "\"");
    }
}

// Shares of a step need one.
void refuse_no_time(const std::vector<GateCase>& cases) {
    for (const GateCase& one : cases) {
        for (const GateRun& run : one.runs) {
            if (std::ranges::min(run.part(StepPart::step)) <= 0) {
                throw InputError(run.file, "", "steps that take time", "one of 0 ms");
            }
        }
    }
}

}  // namespace

std::vector<GateCase> cases_of_files(const ScenarioOptions& options,
                                     const std::vector<std::string>& files) {
    std::vector<TracedRank> traces;
    std::vector<std::string> measured;
    std::vector<GateCase> cases;
    for (const std::string& file : files) {
        const FileKind kind = kind_of_file(file);
        if (kind == FileKind::profiler_trace || kind == FileKind::nsys_export) {
            std::ranges::move(read_trace_file(file, kind), std::back_inserter(traces));
        } else if (kind == FileKind::measurements) {
            measured.push_back(file);
        } else {
            GateCase predicted = predicted_case(options, file);
            refuse_same_name(predicted, file, cases);
            cases.push_back(std::move(predicted));
        }
    }
    if (!measured.empty()) {
        std::ranges::move(measured_cases(read_runs(measured)), std::back_inserter(cases));
    }
    if (!traces.empty()) {
        cases.push_back(traced_case(std::move(traces)));
    }
    refuse_no_time(cases);
    return cases;
}

}  // namespace bucketwise
