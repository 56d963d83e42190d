#include "import/kineto/typical_step.h"

#include <cmath>

#include <fmt/format.h>

namespace bucketwise {
namespace {

// Every mark at its median over the steps, scaled so that the whole is as long as the median step:
// medians of many parts sum to less.
std::vector<StepMark> typical_marks(const Steps& steps, std::vector<StepMark> TracedStep::*pass) {
    std::vector<StepMark> marks = steps.front()->*pass;
    const auto settle = [&](Duration StepMark::*part) {
        const Duration whole = median_of(steps, [&](const TracedStep* step) {
            Duration total{0};
            for (const StepMark& mark : step->*pass) {
                total += mark.*part;
            }
            return total;
        });
        Duration sum{0};
        for (std::size_t i = 0; i < marks.size(); ++i) {
            marks[i].*part =
                median_of(steps, [&](const TracedStep* step) { return (step->*pass)[i].*part; });
            sum += marks[i].*part;
        }
        if (sum > Duration{0}) {
            const double factor =
                static_cast<double>(whole.count()) / static_cast<double>(sum.count());
            for (StepMark& mark : marks) {
                mark.*part =
                    Duration{std::llround(static_cast<double>((mark.*part).count()) * factor)};
            }
        }
    };
    settle(&StepMark::host);
    settle(&StepMark::device);
    return marks;
}

void find_copy_rate(const TracedRun& run, const std::vector<NamedGradient>& gradients,
                    TypicalStep& typical, Findings& findings) {
    const std::int64_t element_bytes = element_size(gradient_dtype(run)).count;
    Duration time{0};
    std::int64_t bytes = 0;
    std::size_t in = 0;
    std::size_t back = 0;
    for (const StepMark& mark : typical.backward) {
        std::size_t* const next = mark.kind == MarkKind::copy_in     ? &in
                                  : mark.kind == MarkKind::copy_back ? &back
                                                                     : nullptr;
        if (next != nullptr && *next < gradients.size()) {
            bytes += gradients[(*next)++].numel * element_bytes;
            time += mark.device;
        }
    }
    if (time > Duration{0} && bytes > 0) {
        typical.copy_gb_per_s = static_cast<double>(bytes) / to_us(time) / 1e3;
        findings.found("copies", fmt::format("{} into buckets, {} out of them; {:.1f} GB/s{}", in,
                                             back, *typical.copy_gb_per_s,
                                             run.rank().has_device
                                                 ? fmt::format(", {:.1f} us of the host each",
                                                               to_us(typical.copy_launch))
                                                 : ""));
    }
    typical.views = run.first().is_ddp && back == 0;
    if (typical.views) {
        findings.found("views", "nothing is copied out of buckets: gradient_as_bucket_view");
    }
}

}  // namespace

bool is_copy(const StepMark& mark) {
    return mark.kind == MarkKind::copy_in || mark.kind == MarkKind::copy_back ||
           mark.kind == MarkKind::copy_buffer;
}

TypicalStep typical_step(const TracedRun& run, const std::vector<NamedGradient>& gradients,
                         Findings& findings) {
    TypicalStep typical;
    typical.forward = typical_marks(run.alike(), &TracedStep::forward);
    typical.backward = typical_marks(run.alike(), &TracedStep::backward);
    std::vector<Duration> copies;
    std::vector<Duration> issues;
    for (const std::vector<StepMark>* pass : {&typical.forward, &typical.backward}) {
        for (const StepMark& mark : *pass) {
            if (is_copy(mark)) {
                copies.push_back(mark.host);
            } else if (mark.kind == MarkKind::collective) {
                issues.push_back(run.rank().has_device ? mark.host : mark.device);
            }
        }
    }
    if (!copies.empty()) {
        typical.copy_launch = median(copies);
    }
    if (!issues.empty()) {
        typical.host_issue = median(issues);
    }
    find_copy_rate(run, gradients, typical, findings);
    return typical;
}

}  // namespace bucketwise
