#include "import/run/traced_collectives.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "import/source/dtype_names.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// The k-th one's share of the wire: Gloo runs some side by side, which slows each, while the
// simulator runs one after the other. While several run, each has an equal part of the time.
Duration time_alone(const std::vector<const TracedCollective*>& found, std::size_t k) {
    const Duration begin = *found[k]->begin;
    const Duration end = *found[k]->end;
    std::vector<std::pair<Duration, int>> changes{{begin, 0}, {end, 0}};
    for (std::size_t i = 0; i < found.size(); ++i) {
        if (i == k || !found[i]->begin) {
            continue;
        }
        const Duration from = std::max(*found[i]->begin, begin);
        const Duration to = std::min(*found[i]->end, end);
        if (from < to) {
            changes.emplace_back(from, 1);
            changes.emplace_back(to, -1);
        }
    }
    std::ranges::sort(changes);
    Duration alone{0};
    int running = 1;
    for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
        running += changes[i].second;
        alone += (changes[i + 1].first - changes[i].first) / running;
    }
    return alone;
}

// Whether the k-th one begins as another ends, on all ranks: none comes late to it, and what ranks
// wait for each other then is part of how fast they follow one another.
bool is_queued(const TracedRun& run, std::size_t k, std::size_t s) {
    constexpr Duration at_once = std::chrono::microseconds{200};
    return std::ranges::all_of(run.steps, [&](const Steps& steps) {
        const std::vector<const TracedCollective*> found = reductions(run, *steps[s]);
        return k < found.size() && found[k]->begin &&
               std::ranges::any_of(found, [&](const TracedCollective* other) {
                   return other->end && *other->end <= *found[k]->begin &&
                          *found[k]->begin - *other->end <= at_once;
               });
    });
}

Duration mean_of(const std::vector<Duration>& times) {
    return std::accumulate(times.begin(), times.end(), Duration{0}) /
           static_cast<std::int64_t>(times.size());
}

}  // namespace

void find_group(TracedRun& run, Findings& findings) {
    const TracedStep& step = run.first();
    // Hooks issue the gradients' all-reduces. Those of tensor parallel layers, within a layer's
    // backward, may move more.
    using Rank = std::pair<bool, std::int64_t>;  // from a hook, bytes
    std::map<std::string, Rank> groups;
    for (const TracedCollective& collective : step.collectives) {
        if (collective.reduces_gradients() || collective.of_layers) {
            Rank& rank = groups[collective.group];
            rank.first = rank.first || collective.in_hook;
            rank.second += collective.bytes.count;
            run.unused_map = run.unused_map || is_unused_map(step, collective);
        }
    }
    const auto most = std::ranges::max_element(
        groups, {}, [](const auto& group) -> const Rank& { return group.second; });
    if (most != groups.end()) {
        run.group = most->first;
    }
    if (groups.size() > 1) {
        findings.found("process groups",
                       "all-reduces of {} groups in backward; those of group {} are taken for the "
                       "gradients', as they are issued where gradients become ready, or move most",
                       groups.size(), run.group);
    }
    if (run.unused_map) {
        findings.found("unused parameters",
                       "an all-reduce of one number per gradient: find_unused_parameters, which "
                       "keeps the buckets of the first iteration");
    }
}

bool is_unused_map(const TracedStep& step, const TracedCollective& collective) {
    // Unused parameters have no gradient, but a place in the map.
    const auto gradients = static_cast<std::int64_t>(gradients_of(step));
    return std::cmp_equal(collective.ready_before, gradients) &&
           &collective != &step.collectives.front() &&
           ((collective.dtype.empty() && collective.elements == gradients) ||
            (collective.dtype == "Int" && collective.elements >= gradients));
}

bool is_reduction(const TracedRun& run, const TracedStep& step,
                  const TracedCollective& collective) {
    return collective.reduces_gradients() && collective.group == run.group &&
           collective.elements != 0 && !is_unused_map(step, collective) &&
           dtype_named(collective.dtype);
}

std::vector<const TracedCollective*> reductions(const TracedRun& run, const TracedStep& step) {
    std::vector<const TracedCollective*> found;
    for (const TracedCollective& collective : step.collectives) {
        if (is_reduction(run, step, collective)) {
            found.push_back(&collective);
        }
    }
    return found;
}

std::vector<TypicalCollective> all_reduces_of(const TracedRun& run) {
    const std::vector<const TracedCollective*> first = reductions(run, run.first());
    std::vector<std::vector<Duration>> starts(first.size());
    for (const TracedStep* step : run.alike()) {
        const std::vector<const TracedCollective*> found = reductions(run, *step);
        for (std::size_t k = 0; k < first.size(); ++k) {
            if (found.size() != first.size() || found[k]->bytes != first[k]->bytes) {
                throw InputError(
                    run.rank().file, "/traceEvents", "the same all-reduces in every step",
                    fmt::format("others in {} than in {}", step->name, run.first().name));
            }
            starts[k].push_back(found[k]->begin.value_or(found[k]->issued));
        }
    }
    std::vector<TypicalCollective> all_reduces;
    for (std::size_t k = 0; k < first.size(); ++k) {
        all_reduces.push_back({.bytes = first[k]->bytes,
                               .elements = first[k]->elements,
                               .dtype = *dtype_named(first[k]->dtype),
                               .start = median(starts[k]),
                               .blocks = first[k]->blocks});
    }
    return all_reduces;
}

void check_requested_ranks(std::int64_t ranks, std::optional<std::int64_t> requested) {
    if (requested && *requested != ranks) {
        throw InputError("--ranks", "",
                         fmt::format("{}, as the trace says, or nothing (predict takes --set "
                                     "/cluster/ranks=N)",
                                     ranks),
                         std::to_string(*requested));
    }
}

std::int64_t number_of_ranks(const TracedRun& run, std::optional<std::int64_t> requested,
                             Findings& findings) {
    const std::vector<const TracedCollective*> reduced = reductions(run, run.first());
    const bool of_group = !reduced.empty() && reduced.front()->group_size > 0;
    std::optional<std::int64_t> ranks;
    if (of_group) {
        ranks = reduced.front()->group_size;
    } else if (run.rank().world_size) {
        ranks = run.rank().world_size;
    } else if (run.ranks.size() > 1) {
        // Some ranks may not have been traced.
        ranks = std::max<std::int64_t>(std::ssize(run.ranks), requested.value_or(0));
    }
    // Where layers or stages have groups of their own, fewer ranks share the gradients.
    const bool other_groups = std::ranges::any_of(run.first().collectives, [](const auto& other) {
        return other.of_layers || other.name.starts_with("send") || other.name.starts_with("recv");
    });
    if (ranks && requested && !of_group && other_groups && *requested > 0 &&
        *ranks % *requested == 0) {
        ranks = requested;
    }
    if (ranks) {
        check_requested_ranks(*ranks, requested);
    }
    ranks = ranks ? ranks : requested;
    if (!ranks) {
        // The link is fitted for this number, so the replay is the same for any.
        ranks = reduced.empty() ? 1 : 2;
        findings
            .assumed("ranks",
                     "{}, as nothing tells how many there are; give --ranks before asking about "
                     "other numbers of ranks",
                     *ranks)
            .weakens = Weakens::scenario;
    }
    if (*ranks < 1) {
        throw InputError(run.rank().file, "/distributedInfo/world_size", "at least one rank",
                         std::to_string(*ranks));
    }
    return *ranks;
}

std::vector<Duration> times_of(const TracedRun& run, std::size_t k, std::size_t s, bool all_ranks) {
    std::vector<Duration> times;
    for (const Steps& steps : run.steps) {
        if (&steps != &run.alike() && !all_ranks) {
            continue;
        }
        const std::vector<const TracedCollective*> found = reductions(run, *steps[s]);
        if (k < found.size() && found[k]->begin) {
            times.push_back(time_alone(found, k));
        }
    }
    return times;
}

std::vector<double> wire_estimates(const std::vector<std::vector<Duration>>& times_by_step,
                                   bool all_ranks) {
    std::vector<double> by_step;
    for (const std::vector<Duration>& times : times_by_step) {
        if (!times.empty()) {
            by_step.push_back(to_us(std::ranges::min(times)));
        }
    }
    if (!by_step.empty() && !all_ranks) {
        by_step = {std::ranges::min(by_step)};
    }
    return by_step;
}

void report_wire_times(const TracedRun& run, std::int64_t ranks, bool any, bool all_ranks,
                       const char* collective, Findings& findings) {
    if (ranks == 1) {
        findings.assumed("link",
                         "a run of one rank, whose {}s move nothing (for several: predict "
                         "--set /cluster/ranks=8 --link PRESET)",
                         collective);
    } else if (!any) {
        findings.missing("link", "no event tells when an {} ran; give a link with --link",
                         collective);
    } else if (all_ranks) {
        findings.assumed("link", "an {} takes what it takes the rank that comes last", collective);
    } else {
        findings
            .assumed("link",
                     "of {} ranks {} traced, so waiting for the others cannot be told from the "
                     "wire: the shortest of {} steps is taken for the wire",
                     ranks, run.ranks.size() == 1 ? "one was" : "not all were", run.alike().size())
            .weakens = Weakens::link;
    }
}

void find_wire_times(const TracedRun& run, std::int64_t ranks,
                     std::vector<TypicalCollective>& all_reduces, Findings& findings) {
    const bool all_ranks = std::ssize(run.ranks) >= ranks && same_steps(run);
    for (std::size_t k = 0; k < all_reduces.size(); ++k) {
        std::vector<std::vector<Duration>> by_step;
        for (std::size_t s = 0; s < run.alike().size(); ++s) {
            std::vector<Duration> times = times_of(run, k, s, all_ranks);
            if (all_ranks && !times.empty() && is_queued(run, k, s)) {
                times = {mean_of(times)};
            }
            by_step.push_back(std::move(times));
        }
        all_reduces[k].wire_us = wire_estimates(by_step, all_ranks);
    }
    report_wire_times(run, ranks, !all_reduces.front().wire_us.empty(), all_ranks, "all-reduce",
                      findings);
}

}  // namespace bucketwise
