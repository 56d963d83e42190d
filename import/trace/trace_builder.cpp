#include "import/trace/trace_builder.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
namespace {

// An event, with its places in indices by correlation; an entry of a map by a text, and it.
constexpr std::size_t event_bytes = 100;
constexpr std::size_t entry_bytes = 120;

}  // namespace

void TraceBuilder::add(Category category, RawEvent& raw, std::int64_t place) {
    const std::optional<TraceEventKind> kind = kind_of(category, raw.name);
    if (!kind) {
        return;
    }
    if (category == Category::operation && raw.event.external_id >= 0) {
        hold(sizeof(OperationName));
        const auto order = static_cast<std::int32_t>(trace_.operation_names.size());
        trace_.operation_names.push_back({raw.event.external_id, interned(raw.name), order});
    }
    keep(*kind, raw, place);
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

void TraceBuilder::keep(TraceEventKind kind, RawEvent& raw, std::int64_t place) {
    check_times(raw, place);
    TraceEvent& event = raw.event;
    event.kind = kind;
    event.name = interned(raw.name);
    event.begin_ns = std::llround((raw.begin_us - *origin_us_) * 1e3);
    event.end_ns = event.begin_ns + std::llround(std::max(raw.duration_us, 0.0) * 1e3);
    event.type = raw.type.empty() ? -1 : interned(raw.type);
    const bool on_stream = is_on_device(kind) && !raw.stream.empty();
    event.thread = thread_number(raw.process, on_stream ? raw.stream : raw.thread);
    if (is_on_device(kind) && !trace_.has_device) {
        trace_.has_device = true;
        held_bytes_ -= event_bytes * std::erase_if(trace_.events, [](const TraceEvent& other) {
                           return other.kind == TraceEventKind::operation;
                       });
    }
    if (trace_.has_device && kind == TraceEventKind::operation) {
        return;
    }
    if (raw.has_call) {
        event.call = static_cast<std::int32_t>(trace_.calls.size());
        hold(sizeof(CollectiveCall) + raw.call.name.capacity() + raw.call.dtype.capacity() +
             raw.call.group.capacity());
        trace_.calls.push_back(std::move(raw.call));
    }
    hold(event_bytes);
    event.order = order_++;
    trace_.events.push_back(event);
}

// Counts what is kept in memory.
void TraceBuilder::hold(std::size_t bytes) {
    held_bytes_ += bytes;
    if (held_bytes_ > most_trace_bytes) {
        throw InputError(trace_.file, "/traceEvents",
                         fmt::format("events of training steps that take at most {} MB (profile "
                                     "fewer steps: schedule(wait=1, warmup=1, active=3))",
                                     most_trace_bytes / 1'000'000),
                         "more");
    }
}

// Of those with the same External id.
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

// A run lasts seconds: so little that no sum of picoseconds overflows.
void TraceBuilder::check_times(const RawEvent& raw, std::int64_t place) {
    constexpr double most_us = 1e12;
    const double origin_us = origin_us_.value_or(raw.begin_us);
    sum_us_ += std::max(raw.duration_us, 0.0);
    if (!(std::abs(raw.begin_us - origin_us) <= most_us) || !(sum_us_ <= most_us)) {
        throw InputError(trace_.file, fmt::format("/traceEvents/{}", place),
                         "times of one run, in microseconds", "one of weeks");
    }
    origin_us_ = origin_us;
}

std::int32_t TraceBuilder::interned(const std::string& name) {
    if (const auto found = name_numbers_.find(name); found != name_numbers_.end()) {
        return found->second;
    }
    const auto number = static_cast<std::int32_t>(trace_.names.size());
    hold(entry_bytes + name.size());
    trace_.names.push_back(name);
    name_numbers_.emplace(trace_.names.back(), number);
    return number;
}

std::int32_t TraceBuilder::thread_number(const std::string& process, const std::string& thread) {
    const auto number = static_cast<std::int32_t>(threads_.size());
    const auto [found, is_new] = threads_.emplace(std::pair(process, thread), number);
    if (is_new) {
        hold(2 * entry_bytes + process.size() + thread.size());
    }
    return found->second;
}

}  // namespace bucketwise
