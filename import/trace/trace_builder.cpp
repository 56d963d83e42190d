#include "import/trace/trace_builder.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

// An event with its places in indices by correlation; an entry of a map by a text.
constexpr std::size_t event_bytes = 100;
constexpr std::size_t entry_bytes = 120;

}  // namespace

void KeptBytes::hold(std::size_t bytes) {
    held_ += bytes;
    if (held_ > most_trace_bytes) {
        throw InputError(file_, place_,
                         fmt::format("events of training steps that take at most {} MB ({})",
                                     most_trace_bytes / 1'000'000, advice_),
                         "more");
    }
}

ProfilerTrace TraceBuilder::take() {
    std::ranges::sort(trace_.events, {}, [](const TraceEvent& event) {
        return std::tuple(event.begin_ns, -event.end_ns, event.order);
    });
    keep_last_names();
    const std::int64_t first = trace_.events.empty() ? 0 : trace_.events.front().begin_ns;
    for (TraceEvent& event : trace_.events) {
        event.begin_ns -= first;
        event.end_ns -= first;
    }
    return std::move(trace_);
}

void TraceBuilder::add(TraceEventKind kind, RawEvent& raw, std::int64_t place) {
    TraceEvent& event = raw.event;
    if (raw.names_work && event.external_id >= 0) {
        kept_.hold(sizeof(OperationName));
        const auto order = static_cast<std::int32_t>(trace_.operation_names.size());
        trace_.operation_names.push_back({event.external_id, interned(raw.name), order});
    }
    check_times(event, place);
    event.kind = kind;
    event.name = interned(raw.name);
    event.type = raw.type.empty() ? -1 : interned(raw.type);
    const bool on_stream = is_on_device(kind) && !raw.stream.empty();
    event.thread = thread_number(raw.process, on_stream ? raw.stream : raw.thread);
    if (is_on_device(kind) && !trace_.has_device) {
        trace_.has_device = true;
        kept_.release(event_bytes * std::erase_if(trace_.events, [](const TraceEvent& other) {
                          return other.kind == TraceEventKind::operation;
                      }));
    }
    if (trace_.has_device && kind == TraceEventKind::operation) {
        return;
    }
    if (raw.has_call) {
        event.call = static_cast<std::int32_t>(trace_.calls.size());
        kept_.hold(sizeof(CollectiveCall) + raw.call.name.capacity() + raw.call.dtype.capacity() +
                   raw.call.group.capacity());
        trace_.calls.push_back(std::move(raw.call));
    }
    kept_.hold(event_bytes);
    event.order = order_++;
    trace_.events.push_back(event);
}

// Keeps the last of the names with the same External id.
void TraceBuilder::keep_last_names() {
    std::deque<OperationName>& names = trace_.operation_names;
    std::ranges::sort(names, {}, [](const OperationName& name) {
        return std::pair(name.external_id, -name.order);
    });
    names.erase(std::unique(names.begin(), names.end(),
                            [](const OperationName& one, const OperationName& other) {
                                return one.external_id == other.external_id;
                            }),
                names.end());
}

// A run lasts seconds, so no sum of picoseconds overflows.
void TraceBuilder::check_times(const TraceEvent& event, std::int64_t place) {
    constexpr std::int64_t most_ns = 1'000'000'000'000'000;
    sum_ns_ += event.duration_ns();
    first_ns_ = first_ns_.value_or(event.begin_ns);
    if (std::abs(event.begin_ns - *first_ns_) > most_ns || sum_ns_ > most_ns) {
        throw InputError(trace_.file, fmt::format("/traceEvents/{}", place),
                         "times of one run, in microseconds", "one of weeks");
    }
}

std::int32_t TraceBuilder::interned(std::string_view name) {
    if (const auto found = name_numbers_.find(name); found != name_numbers_.end()) {
        return found->second;
    }
    const auto number = static_cast<std::int32_t>(trace_.names.size());
    kept_.hold(entry_bytes + name.size());
    trace_.names.emplace_back(name);
    name_numbers_.emplace(trace_.names.back(), number);
    return number;
}

std::int32_t TraceBuilder::thread_number(std::string_view process, std::string_view thread) {
    const auto number = static_cast<std::int32_t>(threads_.size());
    const auto [found, is_new] = threads_.emplace(fmt::format("{}\n{}", process, thread), number);
    if (is_new) {
        kept_.hold(2 * entry_bytes + process.size() + thread.size());
    }
    return found->second;
}

}  // namespace bucketwise
