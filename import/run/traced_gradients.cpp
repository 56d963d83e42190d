#include "import/run/traced_gradients.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "import/source/dtype_names.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

using Sizes = std::vector<std::int64_t>;

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

// The type of the first all-reduce, unless a hook casts.
DType gradient_dtype(const TracedRun& run) {
    const auto found = reductions(run, run.first());
    return found.empty() || run.first().hook_casts ? DType::float32
                                                   : *dtype_named(found.front()->dtype);
}

bool all_positive(const Sizes& sizes) {
    return std::ranges::all_of(sizes, [](auto size) { return size > 0; });
}

// The elements of all gradients, and a text about their source; empty: unknown.
struct TracedSizes {
    Sizes elements;
    std::string how;
};

TracedSizes traced_sizes(const TracedRun& run) {
    Sizes in;
    Sizes accumulated;
    Sizes back;
    const std::int64_t element = element_size(gradient_dtype(run)).count;
    for (const StepMark& mark : run.first().backward) {
        if (mark.kind == MarkKind::ready) {
            accumulated.push_back(mark.elements);
        } else if (run.first().batched_copies) {
            continue;  // copies are of whole buckets
        } else if (mark.kind == MarkKind::copy_in) {
            in.push_back(mark.elements);
        } else if (mark.kind == MarkKind::copy_back) {
            back.push_back(mark.elements >= 0 ? mark.elements : mark.bytes / element);
        }
    }
    const auto all_known = [&](const Sizes& sizes) {
        return sizes.size() == gradients_of(run.first()) && all_positive(sizes);
    };
    if (all_known(in)) {
        return {in, run.first().is_ddp ? "sizes from the shapes of DDP's copies"
                                       : "sizes from the shapes that hooks divide"};
    }
    if (all_known(accumulated)) {
        return {accumulated, "sizes from the shapes that AccumulateGrad took"};
    }
    return all_known(back) ? TracedSizes{back,
                                         "sizes from the bytes that DDP copies out of its buckets, "
                                         "which it does in the order of readiness"}
                           : TracedSizes{};
}

// Sizes from one all-reduce per gradient: as each becomes ready, or after backward in the order of
// parameters, assumed to be the reverse of readiness.
TracedSizes separate_sizes(const TracedRun& run) {
    const std::vector<const TracedCollective*> found = reductions(run, run.first());
    const std::size_t count = gradients_of(run.first());
    TracedSizes sizes{transformed(found, &TracedCollective::elements),
                      "sizes from the all-reduces, one for each"};
    bool as_ready = true;
    bool after = true;
    for (std::size_t k = 0; k < found.size(); ++k) {
        as_ready = as_ready && found[k]->ready_before == k + 1;
        after = after && found[k]->ready_before == count;
    }
    if (after) {
        std::ranges::reverse(sizes.elements);
    }
    const bool told = found.size() == count && all_positive(sizes.elements);
    return told && (as_ready || after) ? sizes : TracedSizes{};
}

// Shares what an all-reduce moves equally among the gradients that became ready since the one
// before. Empty where a gradient is in no all-reduce, or one has fewer elements than gradients.
TracedSizes shared_sizes(const TracedRun& run) {
    TracedSizes sizes{{}, "sizes from the all-reduces alone"};
    for (const TracedCollective* reduction : reductions(run, run.first())) {
        const std::int64_t count =
            static_cast<std::int64_t>(reduction->ready_before) - std::ssize(sizes.elements);
        if (count < 1 || reduction->elements < count) {
            return {};
        }
        for (std::int64_t i = 0; i < count; ++i) {
            sizes.elements.push_back(reduction->elements / count +
                                     (i < reduction->elements % count ? 1 : 0));
        }
    }
    return sizes.elements.size() == gradients_of(run.first()) ? sizes : TracedSizes{};
}

// Gradients without names, numbered against the order of readiness.
std::vector<Gradient> numbered(const TracedRun& run, const TracedSizes& sizes) {
    const std::size_t count = gradients_of(run.first());
    if (sizes.elements.empty()) {
        const bool kineto = run.rank().profile == TraceHead{}.profile;
        throw InputError(
            run.rank().file, "/traceEvents",
            fmt::format("DDP's copies out of its buckets, --model, or shapes, which {} records",
                        kineto ? "profile(record_shapes=True, activities=[ProfilerActivity.CPU, "
                                 "ProfilerActivity.CUDA])"
                               : "nsys profile -t cuda,nvtx --pytorch=autograd-shapes-nvtx"),
            fmt::format("{} gradients whose sizes nothing tells", count));
    }
    std::vector<Gradient> gradients;
    for (std::size_t i = 0; i < count; ++i) {
        gradients.push_back(
            {.name = fmt::format("parameter {}", count - 1 - i), .numel = sizes.elements[i]});
    }
    return gradients;
}

std::vector<Gradient> named_by(const Workload& model, const TracedRun& run, TracedSizes& sizes) {
    const auto fail = [&](const std::string& expected, const std::string& got) {
        throw InputError(run.rank().file, "/traceEvents", expected, got);
    };
    const std::size_t count = gradients_of(run.first());
    if (model.readiness.size() != count) {
        fail(fmt::format("the model's {} gradients", model.readiness.size()),
             fmt::format("{} (AccumulateGrad)", count));
    }
    std::vector<Gradient> gradients;
    for (const std::int32_t index : model.readiness) {
        const Gradient& gradient = model.gradients[static_cast<std::size_t>(index)];
        gradients.push_back({.name = gradient.name, .numel = gradient.numel});
    }
    if (sizes.elements.empty()) {
        sizes.how = "sizes from the model";
    }
    for (std::size_t i = 0; i < sizes.elements.size(); ++i) {
        if (sizes.elements[i] != gradients[i].numel) {
            fail(fmt::format("{} elements of {} as gradient {} by readiness", gradients[i].numel,
                             gradients[i].name, i + 1),
                 std::to_string(sizes.elements[i]));
        }
    }
    return gradients;
}

}  // namespace

std::int64_t elements_of(const std::vector<Gradient>& gradients) {
    std::int64_t sum = 0;
    for (const Gradient& gradient : gradients) {
        sum += gradient.numel;
    }
    return sum;
}

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

namespace {

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

std::vector<Gradient> traced_gradients(const TracedRun& run, const Workload& model,
                                       Findings& findings) {
    TracedSizes sizes = traced_sizes(run);
    const bool without_names = model.readiness.empty();
    if (sizes.elements.empty()) {
        sizes = separate_sizes(run);
    }
    if (sizes.elements.empty() && without_names) {
        sizes = shared_sizes(run);
        if (!sizes.elements.empty()) {
            findings
                .assumed("sizes",
                         "no event has a gradient's size: those of one all-reduce are taken to "
                         "be equal, so that buckets other than the traced ones are a guess; "
                         "--model, or record_shapes=True, tells them")
                .weakens = Weakens::scenario;
        }
    }
    std::vector<Gradient> gradients =
        without_names ? numbered(run, sizes) : named_by(model, run, sizes);
    if (without_names) {
        findings.assumed("names",
                         "a trace has none: gradients are numbered against the order of readiness, "
                         "as parameters mostly are; --model names them");
    }
    findings.found("gradients", "{} (AccumulateGrad), {} elements; {}", gradients.size(),
                   elements_of(gradients), sizes.how);
    return gradients;
}

void complete_sizes(TracedRun& run, std::vector<Gradient>& gradients, Findings& findings) {
    bool any = false;
    for (TracedRank& rank : run.ranks) {
        for (TracedStep& step : rank.steps) {
            std::size_t from = 0;
            for (TracedCollective& collective : step.collectives) {
                if (!collective.reduces_gradients()) {
                    continue;
                }
                if (collective.elements < 0) {
                    const std::size_t until = std::min(collective.ready_before, gradients.size());
                    collective.elements = 0;
                    for (std::size_t i = from; i < until; ++i) {
                        collective.elements += gradients[i].numel;
                    }
                    collective.bytes = collective.elements * element_size(gradient_dtype(run));
                    any = true;
                }
                from = std::max(from, collective.ready_before);
            }
        }
    }
    if (any) {
        findings
            .assumed("all-reduces",
                     "no event tells their bytes: each is taken to hold the gradients that "
                     "were ready since the one before")
            .weakens = Weakens::scenario;
    }
    for (Gradient& gradient : gradients) {
        gradient.dtype = gradient_dtype(run);
    }
}

void add_unused(const TracedRun& run, std::vector<Gradient>& gradients, Findings& findings) {
    const std::vector<const TracedCollective*> found = reductions(run, run.first());
    std::int64_t unused = -elements_of(gradients);
    for (const TracedCollective* reduction : found) {
        unused += reduction->elements;
    }
    if (!run.unused_map || unused <= 0) {
        return;
    }
    std::vector<Gradient> filled = gradients;
    std::size_t next = 0;
    for (const TracedCollective* reduction : found) {
        // A bucket goes out when its last gradient is ready, or later.
        const std::size_t until = std::min(reduction->ready_before, gradients.size());
        std::int64_t left = reduction->elements;
        const std::size_t from = next;
        while (next < until && gradients[next].numel <= left) {
            left -= gradients[next++].numel;
        }
        if (next == from) {
            return;  // a bucket of unused parameters only: which gradients are beside them?
        }
        filled[next - 1].numel += left;
    }
    if (next == gradients.size()) {
        gradients = std::move(filled);
        findings.assumed("unused parameters",
                         "{} elements of the buckets are of parameters without a gradient: counted "
                         "to the gradients beside them",
                         unused);
    }
}

void check_sums(const TracedRun& run, const std::vector<Gradient>& gradients, Findings& findings) {
    std::int64_t reduced = 0;
    std::vector<std::size_t> ready;
    for (const TracedCollective* collective : reductions(run, run.first())) {
        reduced += collective->elements;
        ready.push_back(collective->ready_before);
    }
    findings.found("launches", "all-reduces were issued when {} gradients were ready",
                   fmt::join(ready, ", "));
    if (const std::int64_t sum = elements_of(gradients); reduced != sum) {
        findings
            .missing("gradients",
                     "all-reduces move {} elements, the gradients have {}: another all-reduce "
                     "is among them, or gradients are that were never ready",
                     reduced, sum)
            .weakens = Weakens::scenario;
    }
}

}  // namespace bucketwise
