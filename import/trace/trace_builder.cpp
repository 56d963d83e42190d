#include "import/trace/trace_builder.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <tuple>
#include <utility>

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

void HostWork::add(const TraceEvent& operation) {
    constexpr std::int64_t no_operation_ns = 60'000'000'000;
    if (operation.duration_ns() > no_operation_ns) {
        return;
    }
    const auto size = static_cast<std::int64_t>(bins);
    const auto floor_of = [](std::int64_t value, std::int64_t by) {
        return value / by - (value % by < 0 ? 1 : 0);
    };
    const std::int64_t last = floor_of(operation.end_ns, bin_ns);
    for (std::int64_t bin = floor_of(operation.begin_ns, bin_ns); bin <= last; ++bin) {
        const auto [chunk, is_new] = chunks_.try_emplace({operation.thread, floor_of(bin, size)});
        if (is_new) {
            kept_.hold(sizeof(std::bitset<bins>) + entry_bytes);
        }
        chunk->second.set(static_cast<std::size_t>(bin - chunk->first.second * size));
    }
}

std::vector<TraceEvent> HostWork::events() const {
    std::vector<TraceEvent> found;
    for (const auto& [place, chunk] : chunks_) {
        const std::int64_t begin_ns = place.second * static_cast<std::int64_t>(bins) * bin_ns;
        for (std::size_t bin = 0; bin < bins; ++bin) {
            if (!chunk.test(bin)) {
                continue;
            }
            const std::int64_t at_ns = begin_ns + static_cast<std::int64_t>(bin) * bin_ns;
            const bool goes_on = !found.empty() && found.back().thread == place.first &&
                                 found.back().end_ns == at_ns &&
                                 found.back().duration_ns() < longest_ns;
            if (!goes_on) {
                TraceEvent& event = found.emplace_back();
                event.kind = TraceEventKind::operation;
                event.thread = place.first;
                event.begin_ns = at_ns;
            }
            found.back().end_ns = at_ns + bin_ns;
        }
    }
    return found;
}

ProfilerTrace TraceBuilder::take() {
    for (TraceEvent& event : host_.events()) {
        event.name = interned("host::operations");
        event.order = order_++;
        kept_.hold(event_bytes);
        trace_.events.push_back(event);
    }
    std::ranges::sort(trace_.events, {}, [](const TraceEvent& event) {
        return std::tuple(event.begin_ns, -event.end_ns, event.order);
    });
    keep_last_names();
    find_recomputed();
    const std::int64_t first = trace_.events.empty() ? 0 : trace_.events.front().begin_ns;
    for (TraceEvent& event : trace_.events) {
        event.begin_ns -= first;
        event.end_ns -= first;
    }
    for (HostSpan& span : trace_.recomputed) {
        span.begin_ns -= first;
        span.end_ns -= first;
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
    if (raw.is_forward && is_library_call(raw.name)) {
        kept_.keep(forward_, {event.begin_ns, event.end_ns, event.thread});
    }
    if (is_on_device(kind) && !trace_.has_device) {
        trace_.has_device = true;
        const auto is_operation = [](const TraceEvent& other) {
            return other.kind == TraceEventKind::operation;
        };
        for (const TraceEvent& other : trace_.events) {
            if (is_operation(other)) {
                note_host(other);
            }
        }
        kept_.release(event_bytes * std::erase_if(trace_.events, is_operation));
    }
    if (trace_.has_device && kind == TraceEventKind::operation) {
        note_host(event);
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

void TraceBuilder::note_host(const TraceEvent& operation) {
    if (is_library_call(trace_.name_of(operation))) {
        host_.add(operation);
    }
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

// Autograd records operations of forward, and in backward only those of a forward that runs again:
// when a node first asks for what was not saved, or in a reentrant checkpoint's node. The node's
// own operations follow. Backward that is itself differentiated is recorded to its end.
void TraceBuilder::find_recomputed() {
    struct Node {
        std::int64_t end_ns = 0;
        HostSpan again;  // until the last operation of forward that no inner node has
    };
    std::map<std::int32_t, std::vector<const TraceEvent*>> nodes;  // by thread
    for (const TraceEvent& event : trace_.events) {
        if (event.kind == TraceEventKind::backward_node) {
            nodes[event.thread].push_back(&event);
        }
    }
    const auto goes_on = [&](const Node& node) {
        auto next =
            std::ranges::lower_bound(trace_.events, node.again.end_ns, {}, &TraceEvent::begin_ns);
        while (next != trace_.events.end() && next->begin_ns < node.end_ns &&
               next->thread != node.again.thread) {
            ++next;
        }
        return next != trace_.events.end() && next->begin_ns < node.end_ns;
    };
    std::ranges::sort(forward_, {},
                      [](const HostSpan& one) { return std::pair(one.thread, one.begin_ns); });
    auto operation = forward_.begin();
    for (const auto& [thread, of_thread] : nodes) {
        std::vector<Node> open;  // each within the one before
        const auto end_before = [&](std::int64_t ns) {
            while (!open.empty() && open.back().end_ns <= ns) {
                if (open.back().again.end_ns > open.back().again.begin_ns && goes_on(open.back())) {
                    trace_.recomputed.push_back(open.back().again);
                }
                open.pop_back();
            }
        };
        const auto visit_until = [&, thread = thread](std::int64_t ns) {
            for (; operation != forward_.end() &&
                   std::pair(operation->thread, operation->begin_ns) < std::pair(thread, ns);
                 ++operation) {
                end_before(operation->begin_ns);
                if (!open.empty() && operation->thread == thread) {
                    HostSpan& again = open.back().again;
                    again.end_ns = std::max(again.end_ns, operation->end_ns);
                }
            }
        };
        for (const TraceEvent* node : of_thread) {
            visit_until(node->begin_ns);
            end_before(node->begin_ns);
            open.push_back({node->end_ns, {node->begin_ns, node->begin_ns, thread}});
        }
        visit_until(std::numeric_limits<std::int64_t>::max());
        end_before(std::numeric_limits<std::int64_t>::max());
    }
    kept_.release(sizeof(HostSpan) * forward_.size());
    forward_ = {};
    std::ranges::sort(trace_.recomputed, {}, &HostSpan::begin_ns);
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
