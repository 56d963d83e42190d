#include "import/run/traced_gradients.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

// What the k-th of these took, once those before it were done: Gloo runs some side by side, each of
// which takes longer for it, and the simulator one after the other.
Duration time_alone(const std::vector<const TracedCollective*>& found, std::size_t k) {
    Duration begin = *found[k]->begin;
    for (std::size_t i = 0; i < k; ++i) {
        begin = std::max(begin, found[i]->end.value_or(begin));
    }
    return std::max(*found[k]->end - begin, Duration{0});
}

// DDP holds gradients as its hook's collectives do, but for what it casts.
DType gradient_dtype(const TracedRun& run) {
    const auto found = reductions(run, run.first());
    return found.empty() || run.first().hook_casts ? DType::float32
                                                   : *travelling_dtype(*found.front());
}

std::int64_t elements_of(const std::vector<Gradient>& gradients) {
    std::int64_t sum = 0;
    for (const Gradient& gradient : gradients) {
        sum += gradient.numel;
    }
    return sum;
}

std::int64_t gradient_bytes(const TracedRun& run) {
    return element_size(gradient_dtype(run)).count;
}

// The elements of the gradients of which something tells them all; `how` is what.
struct TracedSizes {
    std::vector<std::int64_t> elements;
    std::string how;
};

TracedSizes traced_sizes(const TracedRun& run) {
    std::vector<std::int64_t> in;
    std::vector<std::int64_t> accumulated;
    std::vector<std::int64_t> back_bytes;
    for (const StepMark& mark : run.first().backward) {
        if (run.first().batched_copies && mark.is_copy()) {
            continue;  // of a whole bucket
        }
        if (mark.kind == MarkKind::copy_in) {
            in.push_back(mark.elements);
        } else if (mark.kind == MarkKind::ready) {
            accumulated.push_back(mark.elements);
        } else if (mark.kind == MarkKind::copy_back) {
            back_bytes.push_back(mark.elements >= 0 ? mark.elements * gradient_bytes(run)
                                                    : mark.bytes);
        }
    }
    const auto all_known = [&](const std::vector<std::int64_t>& sizes) {
        return sizes.size() == gradients_of(run.first()) &&
               std::ranges::all_of(sizes, [](auto size) { return size > 0; });
    };
    if (all_known(in)) {
        return {in, run.first().is_ddp ? "sizes from the shapes of DDP's copies"
                                       : "sizes from the shapes that hooks divide"};
    }
    if (all_known(accumulated)) {
        return {accumulated, "sizes from the shapes that AccumulateGrad took"};
    }
    if (!all_known(back_bytes)) {
        return {};
    }
    for (std::int64_t& size : back_bytes) {
        size /= gradient_bytes(run);
    }
    return {back_bytes,
            "sizes from the bytes that DDP copies out of its buckets, which it does in the order "
            "of readiness"};
}

// One all-reduce for each gradient: as each becomes ready, or after backward in the order of
// parameters, which is taken to be the reverse of readiness. Empty: they are not.
TracedSizes separate_sizes(const TracedRun& run) {
    const std::vector<const TracedCollective*> found = reductions(run, run.first());
    const std::size_t count = gradients_of(run.first());
    if (found.size() != count) {
        return {};
    }
    TracedSizes sizes{{}, "sizes from the all-reduces, one for each"};
    bool as_ready = true;
    bool after = true;
    for (const TracedCollective* reduction : found) {
        sizes.elements.push_back(reduction->elements);
        as_ready = as_ready && reduction->ready_before == sizes.elements.size();
        after = after && reduction->ready_before == count;
    }
    if (after) {
        std::ranges::reverse(sizes.elements);
    }
    const bool known = std::ranges::all_of(sizes.elements, [](auto size) { return size > 0; });
    return known && (as_ready || after) ? sizes : TracedSizes{};
}

// Where only all-reduces tell anything: the gradients that became ready since the one before share
// what it moves. Empty: not all are in one, or one holds fewer elements than gradients.
TracedSizes shared_sizes(const TracedRun& run) {
    TracedSizes sizes;
    for (const TracedCollective* reduction : reductions(run, run.first())) {
        const auto from = sizes.elements.size();
        const std::int64_t count =
            static_cast<std::int64_t>(reduction->ready_before) - static_cast<std::int64_t>(from);
        if (count < 1 || reduction->elements < count) {
            return {};
        }
        for (std::int64_t i = 0; i < count; ++i) {
            sizes.elements.push_back(reduction->elements / count +
                                     (i < reduction->elements % count ? 1 : 0));
        }
    }
    if (sizes.elements.size() != gradients_of(run.first())) {
        return {};
    }
    sizes.how = "sizes from the all-reduces alone";
    return sizes;
}

// What to type so that a trace has shapes.
const char* shape_recorder(const TracedRun& run) {
    return run.rank().profile == TraceHead{}.profile
               ? "profile(record_shapes=True, activities=[ProfilerActivity.CPU, "
                 "ProfilerActivity.CUDA])"
               : "nsys profile -t cuda,nvtx --pytorch=autograd-shapes-nvtx";
}

// Numbered against the order of readiness.
std::vector<Gradient> numbered(const TracedRun& run, const TracedSizes& sizes) {
    const std::size_t count = gradients_of(run.first());
    if (sizes.elements.empty()) {
        throw InputError(
            run.rank().file, "/traceEvents",
            fmt::format("DDP's copies out of its buckets, --model, or shapes, which {} "
                        "records",
                        shape_recorder(run)),
            fmt::format("{} gradients whose sizes nothing tells", count));
    }
    std::vector<Gradient> gradients;
    for (std::size_t i = 0; i < count; ++i) {
        gradients.push_back(
            {.name = fmt::format("parameter {}", count - 1 - i), .numel = sizes.elements[i]});
    }
    return gradients;
}

std::vector<Gradient> named_so(const TracedRun& run, const Workload& model, TracedSizes& sizes) {
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
        return gradients;
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (sizes.elements[i] != gradients[i].numel) {
            fail(fmt::format("{} elements of {} as gradient {} by readiness", gradients[i].numel,
                             gradients[i].name, i + 1),
                 std::to_string(sizes.elements[i]));
        }
    }
    return gradients;
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
    // Tensor parallel layers reduce within a layer's backward, maybe more; gradients are reduced by
    // hooks. The first of two groups that are alike in both.
    using Rank = std::pair<bool, std::int64_t>;
    std::map<std::string, Rank> bytes;
    for (const TracedCollective& collective : step.collectives) {
        if (collective.reduces_gradients() || collective.of_layers) {
            Rank& of_group = bytes[collective.group];
            of_group.first = of_group.first || collective.in_hook;
            of_group.second += collective.bytes.count;
            run.unused_map = run.unused_map || is_unused_map(step, collective);
        }
    }
    const auto most = std::ranges::max_element(
        bytes, {}, [](const auto& of_group) -> const Rank& { return of_group.second; });
    if (most != bytes.end()) {
        run.group = most->first;
    }
    if (bytes.size() > 1) {
        findings.found("process groups",
                       "all-reduces of {} groups in backward; those of group {} are taken for the "
                       "gradients', as they are issued where gradients become ready, or move most",
                       bytes.size(), run.group);
    }
    if (run.unused_map) {
        findings.found("unused parameters",
                       "an all-reduce of one number per gradient: find_unused_parameters, which "
                       "keeps the buckets of the first iteration");
    }
}

bool is_unused_map(const TracedStep& step, const TracedCollective& collective) {
    // Parameters that are unused have no gradient, but a place in the map.
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
           travelling_dtype(collective);
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

std::vector<TracedAllReduce> all_reduces_of(const TracedRun& run) {
    const std::vector<const TracedCollective*> first = reductions(run, run.first());
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
        all_reduces.push_back({.bytes = first[k]->bytes,
                               .start = median_of(run.alike(), start),
                               .blocks = first[k]->blocks});
    }
    return all_reduces;
}

std::int64_t number_of_ranks(const TracedRun& run, std::optional<std::int64_t> requested,
                             Findings& findings) {
    const std::vector<const TracedCollective*> reduced = reductions(run, run.first());
    std::optional<std::int64_t> ranks;
    if (!reduced.empty() && reduced.front()->group_size > 0) {
        ranks = reduced.front()->group_size;
    } else if (run.rank().world_size) {
        ranks = run.rank().world_size;
    } else if (run.ranks.size() > 1) {
        // Maybe not all were traced.
        ranks = std::max<std::int64_t>(std::ssize(run.ranks), requested.value_or(0));
    }
    // Where layers or stages have groups of their own, fewer ranks share the gradients.
    const bool of_group = !reduced.empty() && reduced.front()->group_size > 0;
    const bool other_groups = std::ranges::any_of(run.first().collectives, [](const auto& other) {
        return other.of_layers || other.name.starts_with("send") || other.name.starts_with("recv");
    });
    if (ranks && requested && !of_group && other_groups && *requested > 0 &&
        *ranks % *requested == 0) {
        ranks = requested;
    }
    if (ranks && requested && *ranks != *requested) {
        throw InputError("--ranks", "",
                         fmt::format("{}, as the trace says, or nothing (predict takes --set "
                                     "/cluster/ranks=N)",
                                     *ranks),
                         std::to_string(*requested));
    }
    ranks = ranks ? ranks : requested;
    if (!ranks) {
        // What all-reduces took is fitted for as many, so that the replay is the same for any.
        ranks = reduced.empty() ? 1 : 2;
        findings
            .assumed("ranks",
                     "{}, as nothing tells how many there are: --ranks says it, before other "
                     "numbers of ranks are asked about",
                     *ranks)
            .weakens = Weakens::scenario;
    }
    if (*ranks < 1) {
        throw InputError(run.rank().file, "/distributedInfo/world_size", "at least one rank",
                         std::to_string(*ranks));
    }
    return *ranks;
}

bool same_steps(const TracedRun& run) {
    return std::ranges::all_of(run.steps, [&](const Steps& steps) {
        return std::ranges::equal(steps, run.alike(), {}, &TracedStep::name, &TracedStep::name);
    });
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
                         "a run of one rank, whose {}s move nothing (of several: predict "
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
                     std::vector<TracedAllReduce>& all_reduces, Findings& findings) {
    const bool all_ranks = std::ssize(run.ranks) >= ranks && same_steps(run);
    for (std::size_t k = 0; k < all_reduces.size(); ++k) {
        std::vector<std::vector<Duration>> by_step;
        for (std::size_t s = 0; s < run.alike().size(); ++s) {
            by_step.push_back(times_of(run, k, s, all_ranks));
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
        without_names ? numbered(run, sizes) : named_so(run, model, sizes);
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
                const bool reduces = collective.reduces_gradients();
                if (reduces && collective.elements < 0) {
                    const std::size_t until = std::min(collective.ready_before, gradients.size());
                    collective.elements = 0;
                    for (std::size_t i = from; i < until; ++i) {
                        collective.elements += gradients[i].numel;
                    }
                    collective.bytes = Bytes{collective.elements * gradient_bytes(run)};
                    any = true;
                }
                from = reduces ? std::max(from, collective.ready_before) : from;
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
    const auto elements = transformed(found, &TracedCollective::elements);
    const std::int64_t unused =
        std::accumulate(elements.begin(), elements.end(), -elements_of(gradients));
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
            return;  // of unused parameters only: which gradients are beside them is not told
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
