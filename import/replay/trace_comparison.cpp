#include "import/replay/trace_comparison.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "import/source/plain_text.h"
#include "sim/base/statistics.h"

namespace bucketwise {
namespace {

template <typename Visit>
void for_each_operation(const TracedStep& step, Visit visit) {
    for (const auto* pass : {&step.forward, &step.backward, &step.optimizer}) {
        for (const StepMark& mark : *pass) {
            if (mark.kind != MarkKind::collective && mark.device > Duration{0}) {
                visit(mark);
            }
        }
    }
}

// Kernels of copies have many names: the purpose stands for them.
std::string name_of(const StepMark& mark) {
    return mark.kind == MarkKind::copy_in       ? "DDP: gradients into buckets"
           : mark.kind == MarkKind::copy_back   ? "DDP: gradients out of buckets"
           : mark.kind == MarkKind::copy_buffer ? "DDP: buffers after their broadcast"
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

// --- text ---

using Rows = std::vector<std::pair<const char*, Duration StepAccount::*>>;

Rows parts_of(bool sharded) {
    return {{"computing", &StepAccount::computing},
            {"waiting for launches", &StepAccount::launching},
            {sharded ? "waiting for collectives" : "waiting for all-reduces",
             &StepAccount::communicating},
            {"waiting for other streams", &StepAccount::others}};
}

std::string verdict(const StepSummary& before, const StepSummary& after) {
    const Duration change = after.step - before.step;
    if (change == Duration{0}) {
        return "  A step takes as long in both.\n";
    }
    std::string text = fmt::format(
        "  A step takes {:.4g} ms {} ({:+.1f} %)", to_ms(std::chrono::abs(change)),
        change < Duration{0} ? "less" : "more", 100 * (to_ms(after.step) / to_ms(before.step) - 1));
    if (before.shortest <= after.longest && after.shortest <= before.longest) {
        return text +
               ", no more than the steps of each trace differ: whether anything changed cannot be "
               "told.\n";
    }
    const auto change_of = [&](const Rows::value_type& part) {
        return after.account.*part.second - before.account.*part.second;
    };
    Rows parts = parts_of(before.sharded || after.sharded);
    std::ranges::stable_sort(parts, std::ranges::greater{},
                             [&](const auto& part) { return std::chrono::abs(change_of(part)); });
    std::vector<std::string> texts;
    for (const auto& part : parts) {
        constexpr double worth_naming = 0.1;  // of the change
        if (to_ms(std::chrono::abs(change_of(part))) >=
            worth_naming * to_ms(std::chrono::abs(change))) {
            texts.push_back(fmt::format("{:+.4g} ms {}", to_ms(change_of(part)), part.first));
        }
    }
    return text + (texts.empty() ? "" : fmt::format(": {}", fmt::join(texts, ", "))) + ".\n";
}

std::string row_text(const char* name, Duration before, Duration after) {
    return fmt::format("  {:<32} {:>12.3f} {:>12.3f} {:>+12.3f}\n", name, to_ms(before),
                       to_ms(after), to_ms(after - before));
}

std::string count_text(const char* name, std::int64_t before, std::int64_t after) {
    return fmt::format("  {:<32} {:>12} {:>12} {:>+12}\n", name, before, after, after - before);
}

std::string operations_text(const StepSummary& before, const StepSummary& after) {
    using Change = std::pair<OperationTotal, OperationTotal>;
    std::map<std::string, Change> by_name;
    for (const auto& [name, total] : before.by_name) {
        by_name[name].first = total;
    }
    for (const auto& [name, total] : after.by_name) {
        by_name[name].second = total;
    }
    std::vector<std::pair<std::string, Change>> changes(by_name.begin(), by_name.end());
    const auto change_of = [](const auto& change) {
        return change.second.second.device - change.second.first.device;
    };
    std::ranges::stable_sort(changes, std::ranges::greater{}, [&](const auto& change) {
        return std::chrono::abs(change_of(change));
    });
    constexpr std::size_t most_listed = 10;
    constexpr double worth_listing = 0.001;  // of a step
    changes.resize(std::min(changes.size(), most_listed));
    std::string text;
    for (const auto& change : changes) {
        if (to_ms(std::chrono::abs(change_of(change))) < worth_listing * to_ms(before.step)) {
            break;
        }
        const auto& [was, is] = change.second;
        text += fmt::format("  {:<44} {:>5} {:>5} {:>12.3f} {:>12.3f} {:>+12.3f}\n",
                            plain_text(change.first, 44), was.count, is.count, to_ms(was.device),
                            to_ms(is.device), to_ms(change_of(change)));
    }
    return text.empty() ? text
                        : fmt::format("\n  {:<44} {:>11} {:>12} {:>12} {:>12}\n",
                                      "Operations that changed most", "times", "before (ms)",
                                      "after (ms)", "change") +
                              text;
}

}  // namespace

StepSummary summary_of(const TracedRun& run, const std::vector<TypicalCollective>& collectives,
                       bool sharded) {
    const auto [shortest, longest] =
        std::ranges::minmax_element(run.alike(), {}, &TracedStep::length);
    StepSummary summary{.file = run.rank().file,
                        .step = run.typical(&TracedStep::length),
                        .shortest = (*shortest)->length,
                        .longest = (*longest)->length,
                        .account = traced_account(run),
                        .collectives = std::ssize(collectives),
                        .sharded = sharded,
                        .by_name = totals_of(run.alike())};
    summary.launching = median_of(run.alike(), [](const TracedStep* step) {
        Duration sum = step->optimizer_host;
        for (const auto* pass : {&step->forward, &step->backward}) {
            for (const StepMark& mark : *pass) {
                sum += mark.host + mark.until_wait;
            }
        }
        return sum;
    });
    for_each_operation(run.first(), [&](const StepMark&) { ++summary.operations; });
    for (const TypicalCollective& collective : collectives) {
        summary.communicated += collective.bytes;
        if (!collective.wire_us.empty()) {
            summary.wire += duration_from_us(upper_median(collective.wire_us));
        }
    }
    return summary;
}

std::string comparison_text(const StepSummary& before, const StepSummary& after) {
    const bool sharded = before.sharded || after.sharded;
    std::string text = fmt::format("{}\n  and after: {}\n\n{}\n  {:<32} {:>12} {:>12} {:>12}\n",
                                   plain_text(before.file, 150), plain_text(after.file, 150),
                                   verdict(before, after), "Medians of a step, in ms", "before",
                                   "after", "change");
    text += row_text("step", before.step, after.step);
    for (const auto& [name, part] : parts_of(sharded)) {
        text += row_text(name, before.account.*part, after.account.*part);
    }
    text += row_text("the host issues for", before.launching, after.launching);
    text += row_text(sharded ? "collectives on the wire" : "all-reduces on the wire", before.wire,
                     after.wire);
    text += count_text("operations", before.operations, after.operations);
    text +=
        count_text(sharded ? "collectives" : "all-reduces", before.collectives, after.collectives);
    text += count_text(sharded ? "bytes of collectives" : "all-reduced bytes",
                       before.communicated.count, after.communicated.count);
    for (const auto& [name, end] : {std::pair("steps of each: from", &StepSummary::shortest),
                                    std::pair("to", &StepSummary::longest)}) {
        text += fmt::format("  {:<32} {:>12.3f} {:>12.3f}\n", name, to_ms(before.*end),
                            to_ms(after.*end));
    }
    return text + operations_text(before, after);
}

}  // namespace bucketwise
