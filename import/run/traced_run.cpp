#include "import/run/traced_run.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "import/trace/raw_step.h"
#include "sim/base/error.h"
#include "sim/base/invariant.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

std::vector<MarkKind> kinds_of(const TracedStep& step) {
    std::vector<MarkKind> kinds;
    for (const std::vector<StepMark>* pass : {&step.forward, &step.backward}) {
        for (const StepMark& mark : *pass) {
            kinds.push_back(mark.kind);
        }
        kinds.push_back(MarkKind::collective);  // where forward ends
    }
    return kinds;
}

// The steps with the most common value; of several as common, the one met first.
template <typename Value>
Steps with_most_common(const Steps& steps, Value value) {
    std::map<decltype(value(*steps.front())), Steps> by_value;
    for (const TracedStep* step : steps) {
        by_value[value(*step)].push_back(step);
    }
    const Steps* best = &by_value[value(*steps.front())];
    for (const TracedStep* step : steps) {
        const Steps& same = by_value[value(*step)];
        best = same.size() > best->size() ? &same : best;
    }
    return *best;
}

Steps alike(const TracedRank& rank) {
    Steps steps = with_most_common(
        transformed(rank.steps, [](const TracedStep& step) { return &step; }), gradients_of);
    Steps same = with_most_common(steps, kinds_of);
    if (same.size() > 1) {
        return same;
    }
    // No two steps do the same: the one of median length stands for all.
    std::ranges::sort(steps, {}, &TracedStep::length);
    return {steps[steps.size() / 2]};
}

void report_steps(const TracedRun& run, Findings& findings) {
    const Steps& steps = run.alike();
    const auto [shortest, longest] = std::ranges::minmax_element(steps, {}, &TracedStep::length);
    findings.found("steps", "{} ({} to {}) in {} events; median {:.3f} ms, {:.3f} to {:.3f} ms",
                   steps.size(), steps.front()->name, steps.back()->name, run.rank().events_read,
                   to_ms(run.typical(&TracedStep::length)), to_ms((*shortest)->length),
                   to_ms((*longest)->length));
    if (steps.size() < run.rank().steps.size()) {
        findings.found("steps", "{} others are left out, as their operations differ",
                       run.rank().steps.size() - steps.size());
    }
    if (run.first().micro_steps > 1) {
        findings.found("accumulation",
                       "{} forwards a step; the last one and its backward stand for all",
                       run.first().micro_steps);
    }
    findings.found("passes",
                   "forward until {:.3f} ms, backward until {:.3f} ms, then the optimizer (on the "
                   "host)",
                   to_ms(run.typical(&TracedStep::backward_begin)),
                   to_ms(run.typical(&TracedStep::backward_end)));
}

// Equal on all ranks of a run: they reduce the same buckets, or gather and reduce the same groups.
std::vector<std::int64_t> reduced_elements(const TracedRank& rank) {
    std::vector<std::int64_t> elements;
    for (const TracedCollective& collective : rank.steps.back().collectives) {
        if (collective.reduces_gradients() || collective.module != no_module) {
            elements.push_back(collective.elements);
        }
    }
    return elements;
}

const char* collectives_of(const TracedRank& rank) {
    return rank.steps.back().is_fully_sharded() ? "collectives" : "all-reduces";
}

void check_same_run(const TracedRank& rank, const TracedRank& first) {
    if (rank.world_size != first.world_size) {
        const auto text = [](const std::optional<std::int64_t>& world) {
            return world ? std::to_string(*world) : "none";
        };
        throw InputError(rank.file, "/distributedInfo/world_size",
                         fmt::format("{}, as in {}", text(first.world_size), first.file),
                         text(rank.world_size));
    }
    if (rank.has_device != first.has_device) {
        throw InputError(rank.file, "", "kernels in all traces or in none",
                         "some with and some without");
    }
    const std::vector<std::int64_t> expected = reduced_elements(first);
    const std::vector<std::int64_t> got = reduced_elements(rank);
    if (got != expected) {
        throw InputError(rank.file, "/traceEvents",
                         fmt::format("the {} of one run: of {} elements, as in {}",
                                     collectives_of(first), fmt::join(expected, ", "), first.file),
                         got.empty() ? "none" : fmt::format("{}", fmt::join(got, ", ")));
    }
}

}  // namespace

Duration time_in_collectives(const Steps& steps) {
    return median_of(steps, [](const TracedStep* step) {
        Duration sum{0};
        for (const TracedCollective& collective : step->collectives) {
            const bool blocks = collective.in_backward || collective.module != no_module;
            if (blocks && collective.begin) {
                sum += *collective.end - *collective.begin;
            }
        }
        return sum;
    });
}

TracedRank traced_rank(const ProfilerTrace& trace) {
    const bool uses_fp8 = std::ranges::any_of(trace.names, [](std::string_view name) {
        return name.find("_scaled_mm") != std::string_view::npos ||
               name.find("fp8") != std::string_view::npos ||
               name.find("e4m3") != std::string_view::npos;
    });
    return {trace, traced_steps(trace), uses_fp8};
}

bool same_steps(const TracedRun& run) {
    return std::ranges::all_of(run.steps, [&](const Steps& steps) {
        return std::ranges::equal(steps, run.alike(), {}, &TracedStep::name, &TracedStep::name);
    });
}

std::size_t gradients_of(const TracedStep& step) {
    return static_cast<std::size_t>(
        std::ranges::count(step.backward, MarkKind::ready, &StepMark::kind));
}

void check_ranks(const std::vector<TracedRank>& ranks) {
    invariant(!ranks.empty(), "there is a trace");
    std::map<std::int64_t, std::string> files;
    for (const TracedRank& rank : ranks) {
        if (rank.rank) {
            const auto [other, is_new] = files.emplace(*rank.rank, rank.file);
            if (!is_new) {
                throw InputError(rank.file, "/distributedInfo/rank",
                                 "another rank than that of " + other->second,
                                 std::to_string(*rank.rank));
            }
        }
        check_same_run(rank, ranks.front());
    }
}

void choose_steps(TracedRun& run, Findings& findings) {
    std::vector<Duration> times;
    for (const TracedRank& rank : run.ranks) {
        run.steps.push_back(alike(rank));
        times.push_back(time_in_collectives(run.steps.back()));
    }
    const auto [least, most] = std::ranges::minmax_element(times);
    run.primary = static_cast<std::size_t>(least - times.begin());
    report_steps(run, findings);
    if (run.ranks.size() > 1) {
        findings.found("ranks",
                       "{} traces; the scenario is made of {}, for which the others wait: "
                       "{} take it {:.3f} ms a step, and up to {:.3f} ms elsewhere",
                       run.ranks.size(), run.rank().file, collectives_of(run.rank()), to_ms(*least),
                       to_ms(*most));
    }
}

}  // namespace bucketwise
