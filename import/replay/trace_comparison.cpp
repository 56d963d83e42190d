#include "import/replay/trace_comparison.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "import/source/plain_text.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

constexpr std::array all_passes{&TracedStep::forward, &TracedStep::backward,
                                &TracedStep::optimizer};

template <typename Visit>
void for_each_operation(const TracedStep& step, Visit visit) {
    for (const auto pass : all_passes) {
        for (const StepMark& mark : step.*pass) {
            if (mark.kind != MarkKind::collective && mark.device > Duration{0}) {
                visit(mark);
            }
        }
    }
}

// Copies by what they are for, as their kernels are of many names.
const std::string& name_of(const StepMark& mark) {
    static const std::string in = "DDP: gradients into buckets";
    static const std::string back = "DDP: gradients out of buckets";
    static const std::string buffer = "DDP: buffers after their broadcast";
    return mark.kind == MarkKind::copy_in       ? in
           : mark.kind == MarkKind::copy_back   ? back
           : mark.kind == MarkKind::copy_buffer ? buffer
                                                : mark.name;
}

std::map<std::string, OperationTotal> totals_of(const Steps& steps) {
    std::map<std::string, std::vector<Duration>> times;
    for (std::size_t s = 0; s < steps.size(); ++s) {
        for_each_operation(*steps[s], [&](const StepMark& mark) {
            std::vector<Duration>& of_name = times[name_of(mark)];
            of_name.resize(steps.size());
            of_name[s] += mark.device;
        });
    }
    std::map<std::string, OperationTotal> totals;
    for (const auto& [name, of_steps] : times) {
        totals[name].device = median(of_steps);
    }
    for_each_operation(*steps.front(),
                       [&](const StepMark& mark) { ++totals[name_of(mark)].count; });
    return totals;
}

Duration host_time(const TracedStep& step) {
    Duration sum = step.optimizer_host;
    for (const auto pass : {&TracedStep::forward, &TracedStep::backward}) {
        for (const StepMark& mark : step.*pass) {
            sum += mark.host + mark.until_wait;
        }
    }
    return sum;
}

// --- text ---

// Of two steps, of which each varies: by how much the second may be said to differ.
bool within_noise(const StepSummary& before, const StepSummary& after) {
    return before.shortest <= after.longest && after.shortest <= before.longest;
}

struct Row {
    const char* what;
    Duration before{0};
    Duration after{0};
    [[nodiscard]] Duration change() const { return after - before; }
};

std::vector<Row> parts_of(const StepSummary& before, const StepSummary& after) {
    const auto row = [&](const char* what, Duration StepAccount::*part) {
        return Row{what, before.account.*part, after.account.*part};
    };
    return {
        row("computing", &StepAccount::computing),
        row("waiting for launches", &StepAccount::launching),
        row(before.sharded || after.sharded ? "waiting for collectives" : "waiting for all-reduces",
            &StepAccount::communicating),
        row("waiting for other streams", &StepAccount::others)};
}

std::string verdict(const StepSummary& before, const StepSummary& after) {
    const Duration change = after.step - before.step;
    if (change == Duration{0}) {
        return "  A step takes as long in both.\n";
    }
    std::string text = fmt::format(
        "  A step takes {:.4g} ms {} ({:+.1f} %)", to_ms(change < Duration{0} ? -change : change),
        change < Duration{0} ? "less" : "more", 100 * (to_ms(after.step) / to_ms(before.step) - 1));
    if (within_noise(before, after)) {
        return text +
               ", which is no more than the steps of each trace differ: it cannot be told "
               "whether anything changed.\n";
    }
    std::vector<Row> parts = parts_of(before, after);
    const auto size = [](const Row& row) { return std::max(row.change(), -row.change()); };
    std::ranges::stable_sort(parts, std::ranges::greater{}, size);
    std::vector<std::string> texts;
    for (const Row& part : parts) {
        constexpr double worth_naming = 0.1;  // of the change
        if (to_ms(size(part)) >= worth_naming * to_ms(change < Duration{0} ? -change : change)) {
            texts.push_back(fmt::format("{:+.4g} ms {}", to_ms(part.change()), part.what));
        }
    }
    return text + (texts.empty() ? "" : fmt::format(": {}", fmt::join(texts, ", "))) + ".\n";
}

std::string row_text(const Row& row) {
    return fmt::format("  {:<32} {:>12.3f} {:>12.3f} {:>+12.3f}\n", row.what, to_ms(row.before),
                       to_ms(row.after), to_ms(row.change()));
}

std::string count_text(const char* what, std::int64_t before, std::int64_t after) {
    return fmt::format("  {:<32} {:>12} {:>12} {:>+12}\n", what, before, after, after - before);
}

struct Changed {
    std::string name;
    OperationTotal before;
    OperationTotal after;
    [[nodiscard]] Duration size() const {
        const Duration change = after.device - before.device;
        return std::max(change, -change);
    }
};

std::vector<Changed> changes_of(const StepSummary& before, const StepSummary& after) {
    std::map<std::string, Changed> by_name;
    for (const auto& [name, total] : before.by_name) {
        by_name[name].before = total;
    }
    for (const auto& [name, total] : after.by_name) {
        by_name[name].after = total;
    }
    std::vector<Changed> changes;
    for (auto& [name, change] : by_name) {
        change.name = name;
        changes.push_back(std::move(change));
    }
    std::ranges::stable_sort(changes, std::ranges::greater{}, &Changed::size);
    return changes;
}

std::string operations_text(const StepSummary& before, const StepSummary& after) {
    constexpr std::size_t most_listed = 10;
    constexpr double worth_listing = 0.001;  // of a step
    std::string text;
    std::size_t listed = 0;
    for (const Changed& change : changes_of(before, after)) {
        if (listed++ == most_listed || to_ms(change.size()) < worth_listing * to_ms(before.step)) {
            break;
        }
        text += fmt::format("  {:<44} {:>5} {:>5} {:>12.3f} {:>12.3f} {:>+12.3f}\n",
                            plain_text(change.name, 44), change.before.count, change.after.count,
                            to_ms(change.before.device), to_ms(change.after.device),
                            to_ms(change.after.device - change.before.device));
    }
    return text.empty() ? text
                        : fmt::format("\n  {:<44} {:>11} {:>12} {:>12} {:>12}\n",
                                      "Operations that changed most", "times", "before (ms)",
                                      "after (ms)", "change") +
                              text;
}

template <typename Collective>
StepSummary summary_with(const TracedRun& run, const std::vector<Collective>& collectives) {
    StepSummary summary{.step = run.typical(&TracedStep::length)};
    const auto [shortest, longest] =
        std::ranges::minmax_element(run.alike(), {}, &TracedStep::length);
    summary.shortest = (*shortest)->length;
    summary.longest = (*longest)->length;
    summary.account = traced_account(run);
    summary.launching =
        median_of(run.alike(), [](const TracedStep* step) { return host_time(*step); });
    for_each_operation(run.first(), [&](const StepMark&) { ++summary.operations; });
    summary.all_reduces = std::ssize(collectives);
    for (const Collective& collective : collectives) {
        summary.all_reduced += collective.bytes;
        if (!collective.wire_us.empty()) {
            summary.wire += duration_from_us(upper_median(collective.wire_us));
        }
    }
    summary.by_name = totals_of(run.alike());
    return summary;
}

}  // namespace

StepSummary summary_of(const TracedRun& run, const std::vector<TracedAllReduce>& all_reduces) {
    return summary_with(run, all_reduces);
}

StepSummary summary_of(const TracedRun& run, const TracedSharding& sharding) {
    StepSummary summary = summary_with(run, sharding.collectives);
    summary.sharded = true;
    return summary;
}

std::string comparison_text(const StepSummary& before, const std::string& before_name,
                            const StepSummary& after, const std::string& after_name) {
    std::string text = fmt::format("{}\n  and after: {}\n\n", plain_text(before_name, 150),
                                   plain_text(after_name, 150)) +
                       verdict(before, after);
    text += fmt::format("\n  {:<32} {:>12} {:>12} {:>12}\n", "Medians of a step, in ms", "before",
                        "after", "change");
    text += row_text({"step", before.step, after.step});
    for (const Row& part : parts_of(before, after)) {
        text += row_text(part);
    }
    text += row_text({"the host issues for", before.launching, after.launching});
    const bool sharded = before.sharded || after.sharded;
    text += row_text(
        {sharded ? "collectives on the wire" : "all-reduces on the wire", before.wire, after.wire});
    text += count_text("operations", before.operations, after.operations);
    text +=
        count_text(sharded ? "collectives" : "all-reduces", before.all_reduces, after.all_reduces);
    text += count_text(sharded ? "bytes of collectives" : "all-reduced bytes",
                       before.all_reduced.count, after.all_reduced.count);
    text += fmt::format("  {:<32} {:>12} {:>12}\n", "steps of each: from",
                        fmt::format("{:.3f}", to_ms(before.shortest)),
                        fmt::format("{:.3f}", to_ms(after.shortest)));
    text +=
        fmt::format("  {:<32} {:>12} {:>12}\n", "to", fmt::format("{:.3f}", to_ms(before.longest)),
                    fmt::format("{:.3f}", to_ms(after.longest)));
    return text + operations_text(before, after);
}

}  // namespace bucketwise
