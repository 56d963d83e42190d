#include "import/nsys/export_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "import/nsys/range_text.h"
#include "import/trace/trace.h"
#include "sim/base/error.h"

namespace bucketwise {
namespace {

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

// "cudaLaunchKernel_v7000" without its version.
std::string_view without_version(std::string_view call) {
    const std::size_t at = call.rfind("_v");
    return at != std::string_view::npos && at + 2 < call.size() &&
                   std::ranges::all_of(call.substr(at + 2),
                                       [](char c) { return c >= '0' && c <= '9'; })
               ? call.substr(0, at)
               : call;
}

// By whole words, as "backward step" is one of a step's parts.
LoopMark loop_mark_of(const std::string& repeated) {
    constexpr std::array<std::string_view, 14> steps{
        "step",           "train step",     "training step", "global step", "iteration",
        "iter",           "train iter",     "train",         "training",    "train iteration",
        "training batch", "train one step", "train batch",   "batch"};
    constexpr std::array<std::string_view, 9> parts{"forward",   "backward", "loss",  "lr",  "zero",
                                                    "scheduler", "load",     "micro", "data"};
    constexpr std::array<std::string_view, 7> optimizers{
        "optimizer", "optimizer.step", "optimizer step", "opt.step",
        "opt step",  "optim step",     "optim.step"};
    if (repeated == "profilerstep") {
        return LoopMark::profiler_step;
    }
    if (repeated.starts_with("optimizer.step") ||
        std::ranges::find(optimizers, repeated) != optimizers.end()) {
        return LoopMark::optimizer;
    }
    if (std::ranges::find(steps, repeated) != steps.end()) {
        return LoopMark::step;
    }
    bool any = false;
    std::string_view rest = repeated;
    while (!rest.empty()) {
        const std::string_view word = rest.substr(0, rest.find(' '));
        rest.remove_prefix(std::min(rest.size(), word.size() + 1));
        if (std::ranges::find(parts, word) != parts.end() || contains(word, "optim")) {
            return LoopMark::none;
        }
        any |= word == "step" || word == "iteration" || word == "iter";
    }
    return any ? LoopMark::like_step : LoopMark::none;
}

}  // namespace

void KeptBytes::hold(std::size_t bytes) {
    held_ += bytes;
    if (held_ > most_trace_bytes) {
        throw InputError(file_, "",
                         fmt::format("events of training steps that take at most {} MB (record "
                                     "fewer steps: nsys profile --capture-range=cudaProfilerApi)",
                                     most_trace_bytes / 1'000'000),
                         "more");
    }
}

ExportNames::ExportNames(ExportDatabase& database, const std::string& step_range, KeptBytes& kept)
    : kept_(kept), requested_(repeated_name(step_range)) {
    constexpr std::array<const char*, 2> columns{"id", "value"};
    ExportRows rows = database.rows("StringIds", columns);
    bool sorted = true;
    while (rows.next()) {
        if (const std::optional<std::int64_t> id = rows.number(0)) {
            const NamedText text = text_of(rows.text(1));
            sorted &= texts_.empty() || texts_.back().id <= *id;
            kept_.hold(sizeof(NumberedText));
            texts_.push_back({*id, text.elements, text.name, text.of_operation});
        }
    }
    if (!sorted) {
        std::ranges::stable_sort(texts_, {}, &NumberedText::id);
    }
}

NamedText ExportNames::text_of(std::optional<std::int64_t> id) const {
    if (!id || texts_.empty()) {
        return {};
    }
    // Mostly they are numbered without gaps.
    const std::int64_t first = texts_.front().id;
    const auto guess = static_cast<std::uint64_t>(*id) - static_cast<std::uint64_t>(first);
    auto found = texts_.begin();
    if (guess < texts_.size() && texts_[guess].id == *id) {
        found += static_cast<std::ptrdiff_t>(guess);
    } else {
        found = std::ranges::lower_bound(texts_, *id, {}, &NumberedText::id);
    }
    return found == texts_.end() || found->id != *id
               ? NamedText{}
               : NamedText{found->name, found->elements, found->of_operation};
}

NamedText ExportNames::text_of(std::string_view text) {
    const RangeText range = range_text(text);
    // Several tensors at once, whose sizes count together.
    const bool of_list = range.name.starts_with("c10d::allreduce");
    return {interned(range.name), of_list ? range.all_elements : range.elements,
            range.of_operation};
}

std::int32_t ExportNames::interned(std::string_view text) {
    if (const auto found = numbers_.find(text); found != numbers_.end()) {
        return found->second;
    }
    const auto number = static_cast<std::int32_t>(names_.size());
    ExportName name{.text = std::string(text)};
    // Some versions print the node of a gradient without its namespace.
    name.kind = text == "AccumulateGrad" ? TraceEventKind::accumulate_grad
                                         : kind_of(Category::annotation, text);
    name.runtime = kind_of(Category::runtime, without_version(text));
    name.is_function = contains(text, "::");
    name.is_collective_kernel =
        kind_of(Category::kernel, text) == TraceEventKind::collective_kernel;
    if (!name.is_function) {
        name.repeated = repeated_name(text);
        name.is_backward = name.repeated == "backward" || name.repeated == "backward pass" ||
                           name.repeated == "bwd" || name.repeated == "loss.backward";
        name.loop = loop_mark(name.text, name.repeated);
        if (name.loop == LoopMark::none) {
            name.repeated.clear();
        }
    }
    constexpr std::size_t entry_bytes = 150;
    kept_.hold(sizeof(ExportName) + entry_bytes + name.text.size() + name.repeated.size());
    names_.push_back(std::move(name));
    numbers_.emplace(names_.back().text, number);
    return number;
}

LoopMark ExportNames::loop_mark(const std::string& name, const std::string& repeated) const {
    if (!requested_.empty()) {
        if (repeated == requested_) {
            return LoopMark::profiler_step;
        }
        const LoopMark mark = loop_mark_of(repeated);
        return mark == LoopMark::optimizer ? mark : LoopMark::none;
    }
    return kind_of(Category::annotation, name) == TraceEventKind::optimizer
               ? LoopMark::optimizer
               : loop_mark_of(repeated);
}

}  // namespace bucketwise
