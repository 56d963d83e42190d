#include "import/kineto/all_reduces.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

void refuse_sharded(const TracedRun& run) {
    std::map<std::string, std::size_t> counts;
    for (const TracedCollective& collective : run.first().collectives) {
        ++counts[collective.name];
    }
    for (const auto& [name, count] : counts) {
        if (name.find("reducescatter") != std::string::npos) {
            throw InputError(
                run.rank().file, "/traceEvents",
                "all-reduces of gradients (DistributedDataParallel)",
                fmt::format("{} reduce-scatters a step: FSDP or ZeRO, which shard what "
                            "this tool takes as whole",
                            count));
        }
    }
}

// Whether the ranks' traces are of the same steps.
bool same_steps(const TracedRun& run) {
    return std::ranges::all_of(run.steps, [&](const Steps& steps) {
        return std::ranges::equal(steps, run.alike(), {}, &TracedStep::name, &TracedStep::name);
    });
}

// The k-th all-reduce of the s-th step.
std::optional<Duration> shortest(const TracedRun& run, std::size_t k, std::size_t s,
                                 bool all_ranks) {
    std::optional<Duration> least;
    for (const Steps& steps : run.steps) {
        if (&steps != &run.alike() && !all_ranks) {
            continue;
        }
        const std::vector<const TracedCollective*> found = reductions(run, *steps[s]);
        if (k < found.size() && found[k]->begin) {
            const Duration time = *found[k]->end - *found[k]->begin;
            least = std::min(least.value_or(time), time);
        }
    }
    return least;
}

}  // namespace

std::optional<DType> travelling_dtype(const TracedCollective& collective) {
    constexpr std::array<std::pair<std::string_view, DType>, 5> dtypes{
        {{"", DType::float32},
         {"Float", DType::float32},
         {"Half", DType::float16},
         {"BFloat16", DType::bfloat16},
         {"Double", DType::float64}}};
    const auto* const found = std::ranges::find(dtypes, std::string_view(collective.dtype),
                                                [](const auto& named) { return named.first; });
    return found == dtypes.end() ? std::nullopt : std::optional(found->second);
}

void find_group(TracedRun& run, Findings& findings) {
    const TracedStep& step = run.first();
    std::map<std::string, std::int64_t> bytes;
    for (const TracedCollective& collective : step.collectives) {
        if (collective.reduces_gradients()) {
            bytes[collective.group] += collective.bytes.count;
            run.unused_map = run.unused_map || is_unused_map(step, collective);
        }
    }
    for (const auto& [group, sum] : bytes) {
        if (sum > bytes[run.group]) {
            run.group = group;
        }
    }
    if (bytes.size() > (bytes.count("") != 0 && bytes.at("") == 0 ? 2U : 1U)) {
        findings.found("process groups",
                       "all-reduces of {} groups in backward; those of group {} are taken for the "
                       "gradients', as they move most",
                       bytes.size(), run.group);
    }
    if (run.unused_map) {
        findings.found("unused parameters",
                       "an all-reduce of one number per gradient: find_unused_parameters, which "
                       "keeps the buckets of the first iteration");
    }
}

bool is_unused_map(const TracedStep& step, const TracedCollective& collective) {
    const std::size_t gradients = gradients_of(step);
    return collective.ready_before == gradients && &collective != &step.collectives.front() &&
           collective.elements == static_cast<std::int64_t>(gradients) &&
           (collective.dtype.empty() || collective.dtype == "Int");
}

std::vector<const TracedCollective*> reductions(const TracedRun& run, const TracedStep& step) {
    std::vector<const TracedCollective*> found;
    for (const TracedCollective& collective : step.collectives) {
        if (collective.reduces_gradients() && collective.group == run.group &&
            collective.elements != 0 && !is_unused_map(step, collective) &&
            travelling_dtype(collective)) {
            found.push_back(&collective);
        }
    }
    return found;
}

DType gradient_dtype(const TracedRun& run) {
    const auto found = reductions(run, run.first());
    return found.empty() || run.first().hook_casts ? DType::float32
                                                   : *travelling_dtype(*found.front());
}

std::vector<TracedAllReduce> all_reduces_of(const TracedRun& run) {
    const std::vector<const TracedCollective*> first = reductions(run, run.first());
    if (first.empty()) {
        refuse_sharded(run);
    }
    std::vector<TracedAllReduce> all_reduces;
    for (std::size_t k = 0; k < first.size(); ++k) {
        const auto start = [&](const TracedStep* step) {
            const std::vector<const TracedCollective*> found = reductions(run, *step);
            if (found.size() != first.size() || found[k]->bytes != first[k]->bytes) {
                throw InputError(
                    run.rank().file, "/traceEvents", "the same all-reduces in every step",
                    fmt::format("others in {} than in {}", step->name, run.first().name));
            }
            return found[k]->begin.value_or(found[k]->issued);
        };
        all_reduces.push_back({first[k]->bytes, median_of(run.alike(), start)});
    }
    return all_reduces;
}

std::int64_t number_of_ranks(const TracedRun& run, std::optional<std::int64_t> requested) {
    const std::vector<const TracedCollective*> reduced = reductions(run, run.first());
    std::optional<std::int64_t> ranks;
    if (!reduced.empty() && reduced.front()->group_size > 0) {
        ranks = reduced.front()->group_size;
    } else if (run.rank().world_size) {
        ranks = run.rank().world_size;
    } else if (run.ranks.size() > 1) {
        ranks = std::ssize(run.ranks);
    }
    if (ranks && requested && *ranks != *requested) {
        throw InputError("--ranks", "",
                         fmt::format("{}, as the trace says, or nothing (predict takes --set "
                                     "/cluster/ranks=N)",
                                     *ranks),
                         std::to_string(*requested));
    }
    ranks = ranks ? ranks : requested;
    if (!ranks || *ranks < 1) {
        throw InputError(
            run.rank().file, "/distributedInfo/world_size",
            ranks ? "at least one rank" : "the number of ranks, in the trace or as --ranks",
            ranks ? std::to_string(*ranks) : "neither");
    }
    return *ranks;
}

// Once all ranks are there, the last to arrive sees nothing but the wire: so the shortest of the
// ranks' times, and where not all ranks were traced, of all steps.
void find_wire_times(const TracedRun& run, std::int64_t ranks,
                     std::vector<TracedAllReduce>& all_reduces, Findings& findings) {
    const bool all_ranks = std::ssize(run.ranks) >= ranks && same_steps(run);
    for (std::size_t k = 0; k < all_reduces.size(); ++k) {
        std::vector<double>& by_step = all_reduces[k].wire_us;
        for (std::size_t s = 0; s < run.alike().size(); ++s) {
            if (const auto time = shortest(run, k, s, all_ranks)) {
                by_step.push_back(to_us(*time));
            }
        }
        if (!by_step.empty() && !all_ranks) {
            by_step = {std::ranges::min(by_step)};
        }
    }
    if (all_reduces.front().wire_us.empty()) {
        findings.missing("link", "no event tells when an all-reduce ran; give a link with --link");
    } else if (all_ranks) {
        findings.assumed("link", "an all-reduce takes what it takes the rank that comes last");
    } else {
        findings.assumed("link",
                         "of {} ranks {} traced, so waiting for the others cannot be told from the "
                         "wire: the shortest of {} steps is taken for the wire",
                         ranks, run.ranks.size() == 1 ? "one was" : "not all were",
                         run.alike().size());
    }
}

}  // namespace bucketwise
