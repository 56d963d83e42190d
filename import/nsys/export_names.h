// The texts of an export, each kept once and without its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "import/nsys/export_database.h"
#include "import/trace/event_kind.h"
#include "import/trace/trace_builder.h"

namespace bucketwise {

// The part of a loop that a range of the user's marks, by its name alone: the surest first.
enum class LoopMark : std::uint8_t {
    none,
    profiler_step,  // ProfilerStep#N
    step,           // "step 3", "train_step", "iteration"
    like_step,      // another name with such a word
    optimizer       // "Optimizer.step#SGD.step", "optimizer"
};

struct ExportName {
    std::string text;
    std::optional<TraceEventKind> kind = {};     // as a range of the host
    std::optional<TraceEventKind> runtime = {};  // as a call of CUDA
    LoopMark loop = LoopMark::none;
    std::string repeated = {};  // of marks of steps, sure or not
    bool is_function = false;   // "aten::mm", as PyTorch's operations are called
    bool is_collective_kernel = false;
    bool is_backward = false;  // a range of the user's around it
};

// A name with what a range's text says of sizes.
struct NamedText {
    std::int32_t name = -1;
    std::int64_t elements = -1;
    bool of_operation = false;
};

class ExportNames {
  public:
    // Reads the texts that rows refer to by number. A range whose repeated name is that of
    // `step_range` marks steps, and no other does; empty: none is asked for.
    ExportNames(ExportDatabase& database, const std::string& step_range, KeptBytes& kept);

    // Nothing for a number that refers to none.
    [[nodiscard]] NamedText text_of(std::optional<std::int64_t> id) const;
    NamedText text_of(std::string_view text);

    [[nodiscard]] const ExportName& operator[](std::int32_t name) const {
        return names_[static_cast<std::size_t>(name)];
    }
    [[nodiscard]] bool are_steps_named() const { return !requested_.empty(); }

  private:
    std::int32_t interned(std::string_view text);
    [[nodiscard]] LoopMark loop_mark(const std::string& name, const std::string& repeated) const;

    KeptBytes& kept_;
    std::string requested_;  // repeated name
    std::deque<ExportName> names_;
    std::unordered_map<std::string_view, std::int32_t> numbers_;
    std::unordered_map<std::int64_t, NamedText> texts_;  // by id
};

}  // namespace bucketwise
