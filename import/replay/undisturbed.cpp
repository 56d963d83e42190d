#include "import/replay/undisturbed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/base/transformed.h"
#include "sim/text/passed_on.h"
#include "sim/workload/model.h"

namespace bucketwise {
namespace {

// --- who ran beside whom ---

// When an all-reduce moves data: at the end of what its kernel lasts, as it first waits for other
// ranks.
struct Window {
    Duration begin{0};
    Duration end{0};
    Bytes bytes;
};

// By rising begin, apart from one another.
std::vector<Window> windows_of(const TracedRun& run, const TracedStep& step,
                               const std::vector<TracedAllReduce>& all_reduces) {
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

// Visits what of a mark's computing lies in which window.
template <typename Visit>
void for_each_overlap(const StepMark& mark, const std::vector<Window>& windows, Visit visit) {
    const Duration begin = mark.device_begin;
    const Duration end = begin + mark.device;
    auto window = std::ranges::upper_bound(windows, begin, {}, &Window::end);
    for (; window != windows.end() && window->begin < end; ++window) {
        visit(*window, std::min(window->end, end) - std::max(window->begin, begin));
    }
}

Duration beside(const StepMark& mark, const std::vector<Window>& windows) {
    Duration sum{0};
    for_each_overlap(mark, windows, [&](const Window&, Duration overlap) { sum += overlap; });
    return sum;
}

constexpr std::array passes{&TracedStep::forward, &TracedStep::backward};

bool computes(const StepMark& mark) {
    return mark.kind != MarkKind::collective && mark.device > Duration{0};
}

// All that computes in the step's passes.
template <typename Step, typename Visit>
void for_each_computing(Step& step, Visit visit) {
    for (const auto pass : passes) {
        for (auto& mark : step.*pass) {
            if (computes(mark)) {
                visit(mark);
            }
        }
    }
}

// The steps that are taken, to be changed.
std::vector<TracedStep*> taken_steps(TracedRun& run) {
    const std::set<const TracedStep*> taken(run.alike().begin(), run.alike().end());
    std::vector<TracedStep*> steps;
    for (TracedStep& step : run.ranks[run.primary].steps) {
        if (taken.contains(&step)) {
            steps.push_back(&step);
        }
    }
    return steps;
}

double factor_of(std::int64_t ppm) {
    return static_cast<double>(ppm) / static_cast<double>(undisturbed_ppm);
}

// --- the same kernels alone ---

using Times = std::vector<Duration>;

// What each of a pass's kernels takes, by name in the order they run.
using TimesByName = std::map<std::string, Times, std::less<>>;

// The steps' medians, place by place. The steps do the same.
template <typename Steps, typename List>
TimesByName plain_times(const Steps& steps, const List& list) {
    TimesByName times;
    const auto lists = transformed(steps, list);
    for (std::size_t i = 0; i < lists.front().size(); ++i) {
        const auto time = [&](const auto& one) {
            return i < one.size() ? one[i].device : Duration{0};
        };
        times[lists.front()[i].name].push_back(median_of(lists, time));
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

TimesByName times_of_micro_steps(const TracedRun& run) {
    return plain_times(run.alike(), [](const TracedStep* step) { return step->before; });
}

// A kernel of the steps that stand for all, disturbed and alone.
struct Pair {
    Duration disturbed{0};
    Duration beside{0};  // of that, beside all-reduces
    Duration alone{0};
    bool product = false;
};

// Kernels of one name are matched in their order, where there are as many.
std::map<std::size_t, Pair> matched(const TracedRun& run,
                                    const std::vector<TracedAllReduce>& all_reduces,
                                    const TimesByName& plain) {
    std::map<std::string, std::vector<std::size_t>, std::less<>> kernels;  // places, by name
    std::size_t place = 0;
    for_each_computing(run.first(), [&](const StepMark& mark) {
        if (mark.kind == MarkKind::operation) {
            kernels[mark.name].push_back(place);
        }
        ++place;
    });
    // By place: what it takes in each step, and beside all-reduces.
    std::vector<Times> disturbed(place);
    std::vector<Times> overlapped(place);
    for (const TracedStep* step : run.alike()) {
        const std::vector<Window> windows = windows_of(run, *step, all_reduces);
        std::size_t at = 0;
        for_each_computing(*step, [&](const StepMark& mark) {
            if (at < place) {
                disturbed[at].push_back(mark.device);
                overlapped[at].push_back(beside(mark, windows));
            }
            ++at;
        });
    }
    std::map<std::size_t, Pair> pairs;
    for (const auto& [name, found] : kernels) {
        const auto alone = plain.find(name);
        if (alone == plain.end() || alone->second.size() != found.size()) {
            continue;
        }
        for (std::size_t i = 0; i < found.size(); ++i) {
            const std::size_t at = found[i];
            pairs[at] = {median(disturbed[at]), median(overlapped[at]), alone->second[i],
                         names_matrix_product(name)};
        }
    }
    return pairs;
}

// Clocks may have run differently in the two: kernels that overlap nothing tell.
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

// Of sums, so that short kernels count little.
template <typename Counts>
KernelSlowdown slowdown_of(const std::map<std::size_t, Pair>& pairs, const Counts& counts) {
    constexpr double most = 100;  // as links have
    double beside = 0;
    double alone = 0;
    double weights = 0;
    double weighted = 0;
    double squares = 0;
    double weights_squared = 0;
    KernelSlowdown result{.lowest = most, .highest = 0};
    for (const auto& [place, pair] : pairs) {
        if (!counts(pair) || pair.beside == Duration{0}) {
            continue;
        }
        const double of_it = to_us(pair.beside);
        const double took_alone = to_us(pair.alone) - to_us(pair.disturbed - pair.beside);
        beside += of_it;
        alone += took_alone;
        if (2 * pair.beside >= pair.disturbed && most * took_alone > of_it) {
            const double slowdown = of_it / took_alone;
            ++result.kernels;
            weights += of_it;
            weights_squared += of_it * of_it;
            weighted += of_it * slowdown;
            squares += of_it * slowdown * slowdown;
            result.lowest = std::min(result.lowest, slowdown);
            result.highest = std::max(result.highest, slowdown);
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
    return slowdown.kernels == 0
               ? fmt::format("{} not measured", what)
               : fmt::format("{} {:.2f} times as long ({} kernels, {:.2f} to {:.2f})", what,
                             slowdown.factor, slowdown.kernels, slowdown.lowest, slowdown.highest);
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
    plain.times = plain_times(run.alike(), [](const TracedStep* step) {
        std::vector<PlainOperation> operations;
        for_each_computing(*step, [&](const StepMark& mark) {
            if (mark.kind == MarkKind::operation) {
                operations.push_back({mark.name, mark.device});
            }
        });
        return operations;
    });
    return plain;
}

Overlap overlap_of(const TracedRun& run, const std::vector<TracedAllReduce>& all_reduces) {
    std::vector<Duration> computing;
    std::vector<Duration> besides;
    for (const TracedStep* step : run.alike()) {
        const std::vector<Window> windows = windows_of(run, *step, all_reduces);
        computing.emplace_back();
        besides.emplace_back();
        for_each_computing(*step, [&](const StepMark& mark) {
            computing.back() += mark.device;
            besides.back() += beside(mark, windows);
        });
    }
    return {median(computing), median(besides)};
}

std::optional<KernelSlowdowns> take_plain_times(TracedRun& run,
                                                const std::vector<TracedAllReduce>& all_reduces,
                                                const std::optional<PlainRun>& plain,
                                                Findings& findings) {
    if (plain && !run.rank().has_device) {
        throw InputError(run.rank().file, "/traceEvents",
                         "kernels of a device, as what --undisturbed tells is about them", "none");
    }
    if (!run.rank().has_device || (!plain && run.first().before.empty())) {
        return std::nullopt;
    }
    if (plain) {
        check_plain(run, *plain);
    }
    const std::string from = plain ? file_name(plain->file) : "the micro-steps without all-reduces";
    std::map<std::size_t, Pair> pairs =
        matched(run, all_reduces, plain ? plain->times : times_of_micro_steps(run));
    const double ratio = clock_ratio(pairs);
    for (auto& [place, pair] : pairs) {
        pair.alone = scaled(pair.alone, ratio);
    }
    const KernelSlowdown all = slowdown_of(pairs, [](const Pair&) { return true; });
    if (all.kernels == 0) {
        findings
            .missing("undisturbed", "no kernel that ran mostly beside an all-reduce is also in {}",
                     from)
            .weakens = Weakens::scenario;
        return std::nullopt;
    }
    KernelSlowdowns slowdowns{
        .products = slowdown_of(pairs, [](const Pair& pair) { return pair.product; }),
        .rest = slowdown_of(pairs, [](const Pair& pair) { return !pair.product; }),
        .all = all};
    const Overlap whole = overlap_of(run, all_reduces);
    findings.found("undisturbed",
                   "{:.3f} of {:.3f} ms of computing ran beside all-reduces, where {}, {}; by {}",
                   to_ms(whole.beside), to_ms(whole.computing),
                   text_of(slowdowns.products, "matrix products take"),
                   text_of(slowdowns.rest, "the rest takes"), from);
    if (std::abs(ratio - 1) > 0.01) {
        findings.assumed("undisturbed",
                         "kernels beside nothing took {:.3f} times as long as in {}: taken for "
                         "another clock, and so all are",
                         ratio, from);
    }
    for (KernelSlowdown* kind : {&slowdowns.products, &slowdowns.rest}) {
        kind->factor = kind->kernels > 0 ? kind->factor : all.factor;
        kind->error = kind->kernels > 0 ? kind->error : all.error;
    }
    for (TracedStep* step : taken_steps(run)) {
        const std::vector<Window> windows = windows_of(run, *step, all_reduces);
        std::size_t at = 0;
        for_each_computing(*step, [&](StepMark& mark) {
            const Duration overlap = beside(mark, windows);
            const auto pair = pairs.find(at++);
            if (overlap == Duration{0}) {
                return;
            }
            const double factor =
                names_matrix_product(mark.name) ? slowdowns.products.factor : slowdowns.rest.factor;
            mark.device = pair != pairs.end() && pair->second.beside > Duration{0}
                              ? pair->second.alone
                              : mark.device - overlap + scaled(overlap, 1 / factor);
        });
    }
    return slowdowns;
}

void take_out_of_computing(TracedRun& run, const std::vector<TracedAllReduce>& all_reduces,
                           const LinkParameters& link) {
    for (TracedStep* step : taken_steps(run)) {
        const std::vector<Window> windows = windows_of(run, *step, all_reduces);
        for_each_computing(*step, [&](StepMark& mark) {
            Duration slowed{0};
            for_each_overlap(mark, windows, [&](const Window& window, Duration overlap) {
                const double factor =
                    factor_of(interference_for(CollectiveKind::all_reduce, link, window.bytes)
                                  .compute_slowdown_ppm);
                slowed += overlap - scaled(overlap, 1 / factor);
            });
            mark.device -= slowed;
        });
    }
}

}  // namespace bucketwise
