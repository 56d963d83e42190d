#include "import/replay/undisturbed.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "import/run/traced_collectives.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/text/passed_on.h"
#include "sim/workload/model.h"

namespace bucketwise {
namespace {

// --- kernels beside all-reduces ---

// An all-reduce moves data at the end of its kernel, after the wait for other ranks.
struct Window {
    Duration begin{0};
    Duration end{0};
    Bytes bytes;
};

// By rising begin, apart from one another.
std::vector<Window> windows_of(const TracedRun& run, const TracedStep& step,
                               const std::vector<TypicalCollective>& all_reduces) {
    std::vector<Window> windows;
    const std::vector<const TracedCollective*> found = reductions(run, step);
    for (std::size_t k = 0; k < std::min(found.size(), all_reduces.size()); ++k) {
        const std::vector<double>& wire_us = all_reduces[k].wire_us;
        if (!found[k]->begin || wire_us.empty()) {
            continue;
        }
        const Duration wire{std::llround(upper_median(wire_us) * 1e6)};
        const Duration end = *found[k]->end;
        const Duration free = windows.empty() ? *found[k]->begin : windows.back().end;
        const Duration begin = std::max({*found[k]->begin, end - wire, free});
        if (begin < end) {
            windows.push_back({begin, end, found[k]->bytes});
        }
    }
    return windows;
}

// An operation that computes, and its times beside all-reduces of so many bytes.
struct Computing {
    StepMark* mark = nullptr;
    std::vector<std::pair<Bytes, Duration>> overlaps = {};
    Duration beside{0};  // all of these
};

std::vector<StepMark*> computing_marks(TracedStep& step) {
    std::vector<StepMark*> marks;
    for (auto* pass : {&step.forward, &step.backward}) {
        for (StepMark& mark : *pass) {
            if (mark.kind != MarkKind::collective && mark.device > Duration{0}) {
                marks.push_back(&mark);
            }
        }
    }
    return marks;
}

// By step, of those that are used.
std::vector<std::vector<Computing>> computing_of(
    TracedRun& run, const std::vector<TypicalCollective>& all_reduces) {
    std::vector<TracedStep>& all = run.ranks[run.primary].steps;
    return transformed(run.alike(), [&](const TracedStep* used) {
        TracedStep& step = all[static_cast<std::size_t>(used - all.data())];
        const std::vector<Window> windows = windows_of(run, step, all_reduces);
        return transformed(computing_marks(step), [&](StepMark* mark) {
            Computing computing{mark};
            const Duration begin = mark->device_begin;
            const Duration end = begin + mark->device;
            auto window = std::ranges::upper_bound(windows, begin, {}, &Window::end);
            for (; window != windows.end() && window->begin < end; ++window) {
                const Duration overlap =
                    std::min(window->end, end) - std::max(window->begin, begin);
                computing.overlaps.emplace_back(window->bytes, overlap);
                computing.beside += overlap;
            }
            return computing;
        });
    });
}

Overlap overlap_of(const std::vector<std::vector<Computing>>& steps) {
    const auto sum_of = [](const std::vector<Computing>& step, auto part) {
        Duration sum{0};
        for (const Computing& computing : step) {
            sum += part(computing);
        }
        return sum;
    };
    return {median_of(steps,
                      [&](const auto& step) {
                          return sum_of(step, [](const auto& one) { return one.mark->device; });
                      }),
            median_of(steps, [&](const auto& step) {
                return sum_of(step, [](const auto& one) { return one.beside; });
            })};
}

// --- the same kernels alone ---

using TimesByName = std::map<std::string, std::vector<Duration>, std::less<>>;

// Medians over the steps, place by place. All steps do the same.
TimesByName plain_times(const std::vector<std::vector<PlainOperation>>& steps) {
    TimesByName times;
    for (std::size_t i = 0; i < steps.front().size(); ++i) {
        times[steps.front()[i].name].push_back(median_of(steps, [&](const auto& step) {
            return i < step.size() ? step[i].device : Duration{0};
        }));
    }
    return times;
}

void check_plain(const TracedRun& run, const PlainRun& plain) {
    const auto fail = [&](const std::string& expected, const std::string& got) {
        throw InputError(plain.file, "/traceEvents", expected, got);
    };
    if (!plain.has_device) {
        fail("kernels, as in " + run.rank().file, "none");
    }
    const std::size_t count = gradients_of(run.first());
    if (plain.gradients != count) {
        fail(fmt::format("the {} gradients of {}", count, run.rank().file),
             std::to_string(plain.gradients));
    }
    if (plain.all_reduces > 0) {
        fail("steps without all-reduces in backward (no_sync, or one rank)",
             fmt::format("{} a step", plain.all_reduces));
    }
}

// A kernel of the typical step, disturbed and alone.
struct Pair {
    Duration disturbed{0};
    Duration beside{0};  // its part beside all-reduces
    Duration alone{0};
    bool product = false;
};

// By the kernel's place. Kernels of one name are matched in order, where there are equally many.
std::map<std::size_t, Pair> matched(const std::vector<std::vector<Computing>>& steps,
                                    const TimesByName& plain) {
    std::map<std::string, std::vector<std::size_t>, std::less<>> kernels;  // places, by name
    for (std::size_t at = 0; at < steps.front().size(); ++at) {
        const StepMark& mark = *steps.front()[at].mark;
        if (mark.kind == MarkKind::operation) {
            kernels[mark.name].push_back(at);
        }
    }
    std::map<std::size_t, Pair> pairs;
    for (const auto& [name, places] : kernels) {
        const auto alone = plain.find(name);
        if (alone == plain.end() || alone->second.size() != places.size()) {
            continue;
        }
        for (std::size_t i = 0; i < places.size(); ++i) {
            std::vector<Duration> disturbed;
            std::vector<Duration> beside;
            for (const std::vector<Computing>& step : steps) {
                if (places[i] < step.size()) {
                    disturbed.push_back(step[places[i]].mark->device);
                    beside.push_back(step[places[i]].beside);
                }
            }
            pairs[places[i]] = {median(disturbed), median(beside), alone->second[i],
                                names_matrix_product(name)};
        }
    }
    return pairs;
}

// The ratio of the two traces' clocks, by kernels that overlap nothing.
double clock_ratio(const std::map<std::size_t, Pair>& pairs) {
    constexpr double enough = 0.1;  // of all kernels' time
    Duration all{0};
    Duration disturbed{0};
    Duration alone{0};
    for (const auto& [place, pair] : pairs) {
        all += pair.disturbed;
        if (pair.beside == Duration{0}) {
            disturbed += pair.disturbed;
            alone += pair.alone;
        }
    }
    return to_us(disturbed) > enough * to_us(all) && alone > Duration{0}
               ? to_us(disturbed) / to_us(alone)
               : 1;
}

// The ratio of sums, so that short kernels count little.
template <typename Counts>
KernelSlowdown slowdown_of(const std::map<std::size_t, Pair>& pairs, const Counts& counts) {
    constexpr double most = 100;  // of a link
    double beside = 0;
    double alone = 0;
    double weights = 0;
    double weighted = 0;
    double squares = 0;
    double weights_squared = 0;
    KernelSlowdown result;
    for (const auto& [place, pair] : pairs) {
        if (!counts(pair) || pair.beside == Duration{0}) {
            continue;
        }
        const double took = to_us(pair.beside);
        const double took_alone = to_us(pair.alone) - to_us(pair.disturbed - pair.beside);
        beside += took;
        alone += took_alone;
        if (2 * pair.beside >= pair.disturbed && most * took_alone > took) {
            const double slowdown = took / took_alone;
            ++result.kernels;
            weights += took;
            weights_squared += took * took;
            weighted += took * slowdown;
            squares += took * slowdown * slowdown;
        }
    }
    if (result.kernels == 0 || alone <= 0) {
        return {};
    }
    result.factor = std::clamp(beside / alone, 1.0, most);
    const double mean = weighted / weights;
    const double variance = std::max(squares / weights - mean * mean, 0.0);
    result.error = std::sqrt(variance * weights_squared) / weights;
    return result;
}

std::string text_of(const KernelSlowdown& slowdown, const char* what) {
    return slowdown.kernels == 0 ? fmt::format("{} not measured", what)
                                 : fmt::format("{} {:.2f} times as long ({} kernels)", what,
                                               slowdown.factor, slowdown.kernels);
}

void give_times_alone(const std::vector<std::vector<Computing>>& steps,
                      const std::map<std::size_t, Pair>& pairs, const KernelSlowdowns& slowdowns) {
    for (const std::vector<Computing>& step : steps) {
        for (std::size_t at = 0; at < step.size(); ++at) {
            const Duration overlap = step[at].beside;
            if (overlap == Duration{0}) {
                continue;
            }
            StepMark& mark = *step[at].mark;
            const auto pair = pairs.find(at);
            const KernelSlowdown& slowdown =
                names_matrix_product(mark.name) ? slowdowns.products : slowdowns.rest;
            mark.device = pair != pairs.end() && pair->second.beside > Duration{0}
                              ? pair->second.alone
                              : mark.device - overlap + scaled(overlap, 1 / slowdown.factor);
        }
    }
}

}  // namespace

PlainRun plain_run(TracedRank rank) {
    TracedRun run;
    run.ranks.push_back(std::move(rank));
    Findings nothing;
    choose_steps(run, nothing);
    const TracedStep& first = run.first();
    PlainRun plain{.file = run.rank().file,
                   .has_device = run.rank().has_device,
                   .gradients = gradients_of(first)};
    for (const TracedCollective& collective : first.collectives) {
        const bool alone = collective.group_size == 1 || run.rank().world_size == 1;
        plain.all_reduces += collective.reduces_gradients() && !alone ? 1 : 0;
    }
    plain.times = plain_times(transformed(computing_of(run, {}), [](const auto& step) {
        std::vector<PlainOperation> operations;
        for (const Computing& computing : step) {
            if (computing.mark->kind == MarkKind::operation) {
                operations.push_back({computing.mark->name, computing.mark->device});
            }
        }
        return operations;
    }));
    return plain;
}

Overlap overlap_of(TracedRun& run, const std::vector<TypicalCollective>& all_reduces) {
    return overlap_of(computing_of(run, all_reduces));
}

std::optional<KernelSlowdowns> take_plain_times(TracedRun& run,
                                                const std::vector<TypicalCollective>& all_reduces,
                                                const std::optional<PlainRun>& plain,
                                                Findings& findings) {
    if (plain && !run.rank().has_device) {
        throw InputError(run.rank().file, "/traceEvents",
                         "kernels of a device, which --undisturbed is about", "none");
    }
    if (!run.rank().has_device || (!plain && run.first().before.empty())) {
        return std::nullopt;
    }
    if (plain) {
        check_plain(run, *plain);
    }
    const std::string from = plain ? file_name(plain->file) : "the micro-steps without all-reduces";
    const std::vector<std::vector<Computing>> steps = computing_of(run, all_reduces);
    std::map<std::size_t, Pair> pairs = matched(
        steps, plain ? plain->times : plain_times(transformed(run.alike(), &TracedStep::before)));
    const double ratio = clock_ratio(pairs);
    for (auto& [place, pair] : pairs) {
        pair.alone = scaled(pair.alone, ratio);
    }
    KernelSlowdowns slowdowns{
        .products = slowdown_of(pairs, [](const Pair& pair) { return pair.product; }),
        .rest = slowdown_of(pairs, [](const Pair& pair) { return !pair.product; }),
        .all = slowdown_of(pairs, [](const Pair&) { return true; })};
    if (slowdowns.all.kernels == 0) {
        findings
            .missing("undisturbed", "no kernel that ran mostly beside an all-reduce is also in {}",
                     from)
            .weakens = Weakens::scenario;
        return std::nullopt;
    }
    const Overlap whole = overlap_of(steps);
    findings.found("undisturbed",
                   "{:.3f} of {:.3f} ms of computing ran beside all-reduces, where {}, {}; by {}",
                   to_ms(whole.beside), to_ms(whole.computing),
                   text_of(slowdowns.products, "matrix products take"),
                   text_of(slowdowns.rest, "the rest takes"), from);
    if (std::abs(ratio - 1) > 0.01) {
        findings.assumed("undisturbed",
                         "kernels beside nothing took {:.3f} times as long as in {}: taken for "
                         "another clock, and all times are scaled by it",
                         ratio, from);
    }
    for (KernelSlowdown* kind : {&slowdowns.products, &slowdowns.rest}) {
        if (kind->kernels == 0) {
            *kind = {.factor = slowdowns.all.factor, .error = slowdowns.all.error};
        }
    }
    give_times_alone(steps, pairs, slowdowns);
    return slowdowns;
}

void take_out_of_computing(TracedRun& run, const std::vector<TypicalCollective>& all_reduces,
                           const LinkParameters& link) {
    for (const std::vector<Computing>& step : computing_of(run, all_reduces)) {
        for (const Computing& computing : step) {
            for (const auto& [bytes, overlap] : computing.overlaps) {
                const double factor =
                    static_cast<double>(interference_for(CollectiveKind::all_reduce, link, bytes)
                                            .compute_slowdown_ppm) /
                    static_cast<double>(undisturbed_ppm);
                computing.mark->device -= overlap - scaled(overlap, 1 / factor);
            }
        }
    }
}

}  // namespace bucketwise
