#include "import/run/traced_gradients.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "import/run/traced_collectives.h"
#include "import/source/dtype_names.h"
#include "sim/base/error.h"
#include "sim/base/transformed.h"

namespace bucketwise {
namespace {

using Sizes = std::vector<std::int64_t>;

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
