#include "import/kineto/traced_gradients.h"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

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
    std::vector<std::int64_t> back_bytes;
    for (const StepMark& mark : run.first().backward) {
        if (mark.kind == MarkKind::copy_in) {
            in.push_back(mark.elements);
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
        return {in, "sizes from the shapes of DDP's copies"};
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

// Numbered against the order of readiness.
std::vector<Gradient> numbered(const TracedRun& run, const TracedSizes& sizes) {
    const std::size_t count = gradients_of(run.first());
    if (sizes.elements.empty()) {
        throw InputError(run.rank().file, "/traceEvents",
                         "shapes (record_shapes=True), DDP's copies out of its buckets, or --model",
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

std::vector<Gradient> traced_gradients(const TracedRun& run, const Workload& model,
                                       Findings& findings) {
    TracedSizes sizes = traced_sizes(run);
    const bool without_names = model.readiness.empty();
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
        findings.assumed("all-reduces",
                         "no event tells their bytes: each is taken to hold the gradients that "
                         "were ready since the one before");
    }
    for (Gradient& gradient : gradients) {
        gradient.dtype = gradient_dtype(run);
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
        findings.missing("gradients",
                         "all-reduces move {} elements, the gradients have {}: another all-reduce "
                         "is among them, or gradients are that were never ready",
                         reduced, sum);
    }
}

}  // namespace bucketwise
