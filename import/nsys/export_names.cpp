#include "import/nsys/export_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "import/source/plain_text.h"
#include "import/trace/shape_text.h"
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

// One name for all ranges that a loop marks: in lower case, without numbers. "Step 3" and "step_4"
// are "step", "ProfilerStep#7" is "profilerstep".
std::string repeated_name(std::string_view name) {
    std::string plain;
    for (const char c : name) {
        if (std::string_view("0123456789#:=()[]/ _-").find(c) == std::string_view::npos) {
            plain += lower_letter(c);
        } else if (!plain.empty() && plain.back() != ' ') {
            plain += ' ';
        }
    }
    if (plain.ends_with(' ')) {
        plain.pop_back();
    }
    return plain;
}

}  // namespace

ExportNames::ExportNames(ExportDatabase& database, const std::string& step_range, KeptBytes& kept)
    : kept_(kept), requested_(repeated_name(step_range)) {
    constexpr std::array<const char*, 2> columns{"id", "value"};
    constexpr std::size_t entry_bytes = 60;
    ExportRows rows = database.rows("StringIds", columns);
    while (rows.next()) {
        if (const std::optional<std::int64_t> id = rows.number(0)) {
            kept_.hold(entry_bytes);
            texts_.emplace(*id, text_of(rows.text(1)));
        }
    }
}

NamedText ExportNames::text_of(std::optional<std::int64_t> id) const {
    const auto found = id ? texts_.find(*id) : texts_.end();
    return found == texts_.end() ? NamedText{} : found->second;
}

// PyTorch's emit_nvtx appends to the name of an operation: "aten::mul, seq = 12, op_id = 340, sizes
// =
// [[64, 3], []]" (getNvtxStr() in torch/csrc/profiler/util.cpp).
NamedText ExportNames::text_of(std::string_view text) {
    constexpr std::size_t longest_name = 1'000;
    constexpr std::string_view sizes = ", sizes = [";
    NamedText named;
    std::size_t end = std::min(text.find(sizes), text.size());
    ShapeElements elements;
    if (end < text.size()) {
        elements = elements_of_shapes(text.substr(end + sizes.size() - 1));
    }
    for (const std::string_view appended : {", seq = ", ", op_id = "}) {
        const std::size_t at = text.find(appended);
        end = std::min(end, at);
        named.of_operation |= at != std::string_view::npos;
    }
    const std::string_view name = text.substr(0, std::min(end, longest_name));
    named.name = interned(name);
    // Several tensors at once, whose sizes count together.
    named.elements = name.starts_with("c10d::allreduce") ? elements.all : elements.first;
    return named;
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
