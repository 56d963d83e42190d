#include "import/nsys/export_steps.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "import/source/plain_text.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

// --- marked ---

// Drops ranges within others of the same group, such as PyTorch's in a user's. False where two
// overlap otherwise: they are no parts of one loop.
bool keep_outer(std::vector<LoopRange>& ranges) {
    std::ranges::stable_sort(ranges, {}, [](const LoopRange& range) {
        return std::pair(range.begin_ns, -range.end_ns);
    });
    std::size_t kept = 0;
    for (const LoopRange& range : ranges) {
        if (kept > 0 && range.begin_ns < ranges[kept - 1].end_ns) {
            if (range.end_ns > ranges[kept - 1].end_ns) {
                return false;
            }
            continue;
        }
        ranges[kept++] = range;
    }
    ranges.resize(kept);
    return true;
}

std::vector<StepSpan> spans_of(const std::vector<LoopRange>& ranges, const ExportNames& names) {
    std::vector<StepSpan> spans;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        const std::string& name = names[ranges[i].name].text;
        const bool alike = i > 0 ? ranges[i - 1].name == ranges[i].name
                                 : ranges.size() > 1 && ranges[1].name == ranges[0].name;
        spans.push_back({alike ? fmt::format("{} {}", name, i + 1) : name, ranges[i].begin_ns,
                         ranges[i].end_ns, ranges[i].thread});
    }
    return spans;
}

// Whether at least half of the times lie within ranges, which are by time.
bool hold_most(const std::vector<LoopRange>& ranges, const std::vector<std::int64_t>& times) {
    std::size_t within = 0;
    for (const std::int64_t time : times) {
        const auto after = std::ranges::upper_bound(ranges, time, {}, &LoopRange::begin_ns);
        within += after != ranges.begin() && time <= std::prev(after)->end_ns ? 1U : 0U;
    }
    return 2 * within >= times.size();
}

// A step has gradients and an optimizer: a range around the forward alone, such as Lightning's
// training_step, is none.
bool are_whole(const std::vector<LoopRange>& ranges, const ExportProcess& process) {
    std::vector<std::int64_t> optimizers;
    for (const LoopRange& range : process.loop_ranges) {
        if (range.is_optimizer) {
            optimizers.push_back(range.begin_ns);
        }
    }
    return hold_most(ranges, process.ready_ns.empty() ? process.reduced_ns : process.ready_ns) &&
           hold_most(ranges, optimizers);
}

std::vector<StepSpan> between_optimizers(const std::vector<LoopRange>& ranges) {
    std::vector<StepSpan> spans;
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
        spans.push_back({fmt::format("step {}", i + 1), ranges[i].end_ns, ranges[i + 1].end_ns,
                         ranges[i].thread});
    }
    return spans;
}

// --- repeated ---

struct Repeated {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::size_t period = 0;

    [[nodiscard]] std::size_t length() const { return end - begin; }
};

// The longest part that ends at `end` and repeats itself three times. Knuth, Morris and
// Pratt's prefix function, from the end to the begin: a part of n works whose longest border is b
// long has the period n - b.
std::optional<Repeated> repeated_until(std::span<const DeviceWork> work, std::size_t end) {
    constexpr std::size_t least_repeats = 3;
    const auto name = [&](std::size_t from_end) { return work[end - 1 - from_end].name; };
    std::vector<std::uint32_t> border(end);
    std::optional<Repeated> found;
    std::size_t matched = 0;
    for (std::size_t i = 1; i < end; ++i) {
        while (matched > 0 && name(i) != name(matched)) {
            matched = border[matched - 1];
        }
        matched += name(i) == name(matched) ? 1U : 0U;
        border[i] = static_cast<std::uint32_t>(matched);
        const std::size_t period = i + 1 - matched;
        if (i + 1 >= least_repeats * period) {
            found = Repeated{end - 1 - i, end, period};
        }
    }
    return found;
}

bool reduces(std::span<const DeviceWork> work, const Repeated& repeated) {
    return std::ranges::any_of(work.subspan(repeated.begin, repeated.period),
                               &DeviceWork::is_all_reduce);
}

// A run begins and ends with other work, so it is looked for from several places on.
std::optional<Repeated> longest_repeated(std::span<const DeviceWork> work) {
    std::size_t last_reduce = work.size();
    while (last_reduce > 0 && !work[last_reduce - 1].is_all_reduce) {
        --last_reduce;
    }
    std::optional<Repeated> longest;
    for (const std::size_t end : {work.size(), last_reduce, work.size() / 4 * 3, work.size() / 2}) {
        const std::optional<Repeated> found = repeated_until(work, end);
        if (found && reduces(work, *found) && (!longest || found->length() > longest->length())) {
            longest = found;
        }
    }
    return longest;
}

// By its name; not every "lamb", which begins "lambda".
bool is_of_optimizer(std::string_view kernel) {
    constexpr std::array<std::string_view, 8> words{
        "multi_tensor", "adam", "Adam", "sgd_", "SGD", "LAMB", "optimizer", "Optimizer"};
    return std::ranges::any_of(
        words, [&](std::string_view word) { return kernel.find(word) != std::string_view::npos; });
}

// The last work of a step that begins in the first period.
std::size_t last_of_step(std::span<const DeviceWork> work, const Repeated& repeated,
                         const ExportNames& names) {
    std::vector<std::size_t> reduces_at;
    for (std::size_t i = repeated.begin; i < repeated.begin + 2 * repeated.period; ++i) {
        if (work[i].is_all_reduce) {
            reduces_at.push_back(i);
        }
    }
    // Between the last all-reduce of a step and the first of the next the host takes longest.
    std::size_t last = reduces_at.front();
    std::size_t next = last + repeated.period;
    std::int64_t longest_ns = -1;
    for (std::size_t i = 0; i + 1 < reduces_at.size(); ++i) {
        const std::int64_t ns = work[reduces_at[i + 1]].begin_ns - work[reduces_at[i]].begin_ns;
        if (reduces_at[i] < repeated.begin + repeated.period && ns > longest_ns) {
            longest_ns = ns;
            last = reduces_at[i];
            next = reduces_at[i + 1];
        }
    }
    std::size_t end_of_backward = last;
    std::size_t end_of_optimizer = last;
    for (std::size_t i = last + 1; i < next; ++i) {
        if (is_of_optimizer(names[work[i].name].text)) {
            end_of_optimizer = i;
        }
        if (work[i].thread == work[last].thread && end_of_backward + 1 == i) {
            end_of_backward = i;
        }
    }
    // On one thread nothing ends backward but the all-reduce.
    return end_of_optimizer > last      ? end_of_optimizer
           : end_of_backward + 1 < next ? end_of_backward
                                        : last;
}

std::vector<StepSpan> repeated_steps(const std::vector<DeviceWork>& work,
                                     const ExportNames& names) {
    const std::optional<Repeated> repeated = longest_repeated(work);
    if (!repeated) {
        return {};
    }
    std::vector<StepSpan> spans;
    const std::size_t last = last_of_step(work, *repeated, names);
    for (std::size_t i = last; i + repeated->period < repeated->end; i += repeated->period) {
        spans.push_back({fmt::format("step {}", spans.size() + 1), work[i].end_ns,
                         work[i + repeated->period].end_ns, work[i + 1].thread});
    }
    return spans;
}

void drop_first_steps(std::vector<StepSpan>& steps) {
    if (steps.size() > most_steps_read) {
        steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(most_steps_read));
    }
}

}  // namespace

std::vector<StepSpan> marked_steps(const ExportProcess& process, const ExportNames& names) {
    std::map<std::tuple<LoopMark, std::int32_t, std::string>, std::vector<LoopRange>> loops;
    for (const LoopRange& range : process.loop_ranges) {
        const ExportName& name = names[range.name];
        // Optimizers of several names take turns.
        const std::string& repeated =
            name.loop == LoopMark::optimizer ? std::string() : name.repeated;
        loops[{name.loop, range.thread, repeated}].push_back(range);
    }
    const std::vector<LoopRange>* best = nullptr;
    LoopMark best_mark = LoopMark::none;
    std::int64_t best_ns = -1;
    for (auto& [key, ranges] : loops) {
        const LoopMark mark = std::get<0>(key);
        if (!keep_outer(ranges)) {
            continue;
        }
        std::int64_t ns = 0;
        for (const LoopRange& range : ranges) {
            ns += range.end_ns - range.begin_ns;
        }
        const bool enough = ranges.size() > 1 || mark == LoopMark::profiler_step;
        if (mark == LoopMark::optimizer && names.are_steps_named()) {
            continue;
        }
        const bool surer = best == nullptr || (mark == best_mark && ns > best_ns);
        const bool is_said = mark == LoopMark::profiler_step || mark == LoopMark::optimizer;
        if (enough && surer && (is_said || are_whole(ranges, process))) {
            best = &ranges;
            best_mark = mark;
            best_ns = ns;
        }
    }
    if (best == nullptr) {
        return {};
    }
    return best_mark == LoopMark::optimizer ? between_optimizers(*best) : spans_of(*best, names);
}

// The first ones warm up.
void keep_last_steps(ExportProcess& process) {
    if (process.steps.size() <= most_steps_read) {
        return;
    }
    process.builder.head().notes.push_back(
        {"steps", fmt::format("of {} steps the last {} stand for all", process.steps.size(),
                              most_steps_read)});
    drop_first_steps(process.steps);
    process.all_steps = false;
    process.window_begin_ns = process.steps.front().begin_ns;
    process.window_end_ns = process.steps.back().end_ns;
}

void find_repeated_steps(const std::string& step_range, const ExportNames& names,
                         ExportProcess& process) {
    TraceHead& head = process.builder.head();
    if (!step_range.empty()) {
        throw InputError("--step-range", "", "the name of ranges that mark steps",
                         fmt::format("\"{}\", of which there are none in {}",
                                     plain_text(step_range), head.file));
    }
    std::ranges::stable_sort(process.work, {}, &DeviceWork::begin_ns);
    process.steps = repeated_steps(process.work, names);
    if (process.steps.empty()) {
        throw InputError(
            head.file, "",
            "training steps: NVTX ranges (torch.cuda.nvtx.range(\"step\") around each, or "
            "--step-range NAME), the optimizer's (nsys profile --pytorch=autograd-shapes-nvtx), or "
            "kernels and all-reduces that repeat themselves",
            fmt::format("{} kernels, copies and fills that do not, and no such range",
                        process.work.size()));
    }
    head.notes.push_back({"steps",
                          "no range marks them: told by kernels that repeat themselves with the "
                          "all-reduces among them"});
    drop_first_steps(process.steps);
}

}  // namespace bucketwise
