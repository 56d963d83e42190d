// The parts of a trace that all its steps share: the stream that computes, and the work by launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "import/trace/trace.h"
#include "sim/base/statistics.h"
#include "sim/base/units.h"

namespace bucketwise {

// A device that has work queued takes about a microsecond from one kernel to the next; what is
// longer is waiting.
constexpr std::int64_t longest_gap_ns = 20'000;
// The clocks of host and device may differ by this much.
constexpr std::int64_t clocks_differ_ns = 2'000;

constexpr Duration from_ns(std::int64_t ns) {
    return Duration{ns * 1000};
}

// The name of an operation: its function, without arguments.
inline std::string short_name(const std::string& name) {
    constexpr std::size_t longest = 100;
    std::string text;
    for (const char c : name.substr(0, name.find('('))) {
        if (static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f) {
            text += c;
        }
    }
    return text.empty() ? "operation" : text.substr(0, longest);
}

class TraceIndex {
    // Projects an index of an event.
    [[nodiscard]] auto correlation() const {
        return [this](std::uint32_t event) { return trace_.events[event].correlation; };
    }

  public:
    explicit TraceIndex(const ProfilerTrace& trace) : trace_(trace) {
        choose_compute_stream();
        for (std::size_t i = 0; i < trace.events.size(); ++i) {
            const TraceEvent& event = trace.events[i];
            if (is_on_device(event.kind) && event.correlation >= 0) {
                launched_.push_back(static_cast<std::uint32_t>(i));
            }
            if (event.kind == TraceEventKind::accumulate_grad ||
                event.kind == TraceEventKind::step) {
                threads_.insert(event.thread);
            }
            shards_ |= event.kind == TraceEventKind::sharding;
            if (event.kind == TraceEventKind::collective_op ||
                event.kind == TraceEventKind::collective_call) {
                collective_root_ = std::min(collective_root_, event.kind);
            }
        }
        std::ranges::stable_sort(launched_, {}, correlation());
        measure_device_times();
        find_busy_times();
        find_other_streams();
        find_side_streams();
        find_typical_launch();
    }

    // The time between two moments while neither the compute stream nor all-reduces run.
    [[nodiscard]] std::int64_t idle_ns(std::int64_t begin_ns, std::int64_t end_ns) const {
        std::int64_t idle = std::max<std::int64_t>(end_ns - begin_ns, 0);
        auto busy = std::ranges::upper_bound(busy_, begin_ns, {}, &Span::end_ns);
        for (; busy != busy_.end() && busy->begin_ns < end_ns; ++busy) {
            idle -= std::min(busy->end_ns, end_ns) - std::max(busy->begin_ns, begin_ns);
        }
        return idle;
    }

    // How long a launch takes the host, its median.
    [[nodiscard]] std::int64_t typical_launch_ns() const { return typical_launch_ns_; }

    // The work that the compute stream waited for between two moments: the last on other streams to
    // end by then. Null: none did.
    [[nodiscard]] const TraceEvent* awaited(std::int64_t begin_ns, std::int64_t end_ns) const {
        const auto after =
            std::ranges::upper_bound(others_, end_ns + clocks_differ_ns, {}, &Ending::end_ns);
        return after == others_.begin() || std::prev(after)->end_ns <= begin_ns
                   ? nullptr
                   : &trace_.events[std::prev(after)->event];
    }

    // The number, from 1 on, of an event's side stream: one that the compute stream waited for; 0:
    // it is on none. Collectives are no side work, as they wait for other ranks.
    [[nodiscard]] std::int32_t side_stream_of(const TraceEvent& event) const {
        if (event.kind == TraceEventKind::collective_kernel) {
            return 0;
        }
        const auto found = std::ranges::find(side_streams_, event.thread);
        return found == side_streams_.end()
                   ? 0
                   : static_cast<std::int32_t>(found - side_streams_.begin()) + 1;
    }
    [[nodiscard]] const std::vector<std::string>& side_stream_names() const {
        return side_stream_names_;
    }

    [[nodiscard]] const ProfilerTrace& trace() const { return trace_; }
    // Events that begin between two times. Clang 14 does not compile std::ranges::subrange of GCC
    // 12's library.
    struct Events {
        std::deque<TraceEvent>::const_iterator first, last;
        [[nodiscard]] auto begin() const { return first; }
        [[nodiscard]] auto end() const { return last; }
    };
    [[nodiscard]] Events events_in(std::int64_t begin_ns, std::int64_t end_ns) const {
        const auto at = [&](std::int64_t ns) {
            return std::ranges::lower_bound(trace_.events, ns, {}, &TraceEvent::begin_ns);
        };
        return {at(begin_ns), at(std::max(begin_ns, end_ns))};
    }
    [[nodiscard]] bool is_training_thread(std::int32_t thread) const {
        return threads_.count(thread) != 0;
    }
    [[nodiscard]] bool is_compute(const TraceEvent& event) const {
        return event.thread == compute_stream_ && event.kind != TraceEventKind::collective_kernel;
    }
    // How long an event ran on the device, with the gap before it where the device had work queued.
    [[nodiscard]] Duration device_time(std::size_t event) const {
        return from_ns(trace_.events[event].duration_ns() + gaps_ns_[event]);
    }
    // Indices of events.
    [[nodiscard]] std::span<const std::uint32_t> launched_by(const TraceEvent& launch) const {
        if (launch.correlation < 0) {
            return {};
        }
        return {std::ranges::lower_bound(launched_, launch.correlation, {}, correlation()),
                std::ranges::upper_bound(launched_, launch.correlation, {}, correlation())};
    }
    // The outermost of what a trace has of a collective.
    [[nodiscard]] bool is_collective_root(TraceEventKind kind) const {
        return kind == collective_root_;
    }

  private:
    struct Span {
        std::int64_t begin_ns = 0;
        std::int64_t end_ns = 0;
    };

    using DeviceWait = Span;

    struct Ending {
        std::int64_t end_ns = 0;
        std::uint32_t event = 0;
    };

    void find_typical_launch() {
        std::vector<std::int64_t> durations;
        for (const TraceEvent& event : trace_.events) {
            if (event.kind == TraceEventKind::launch) {
                durations.push_back(event.duration_ns());
            }
        }
        typical_launch_ns_ = durations.empty() ? 0 : upper_median(std::move(durations));
    }

    void find_other_streams() {
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (is_on_device(event.kind) && !is_compute(event)) {
                others_.push_back({event.end_ns, static_cast<std::uint32_t>(i)});
            }
        }
        std::ranges::stable_sort(others_, {}, &Ending::end_ns);
    }

    // Finds the streams that explain most of the compute stream's waiting, if training threads
    // issue their work.
    void find_side_streams() {
        std::map<std::int32_t, std::int64_t> awaited_ns;
        std::set<std::int32_t> not_training;
        for (const DeviceWait& wait : waits_) {
            const TraceEvent* const event = awaited(wait.begin_ns, wait.end_ns);
            if (event != nullptr && event->kind != TraceEventKind::collective_kernel &&
                wait.end_ns - event->end_ns <= longest_gap_ns) {
                awaited_ns[event->thread] += wait.end_ns - wait.begin_ns;
                if (const TraceEvent* const launch = launch_of(*event);
                    launch == nullptr || !is_training_thread(launch->thread)) {
                    not_training.insert(event->thread);
                }
            }
        }
        std::vector<std::pair<std::int64_t, std::int32_t>> streams;
        for (const auto& [stream, time_ns] : awaited_ns) {
            if (not_training.count(stream) == 0) {
                streams.emplace_back(-time_ns, stream);
            }
        }
        std::ranges::sort(streams);
        constexpr std::size_t most_streams = 6;  // and one of what nothing explains
        for (const auto& [time_ns, stream] : streams) {
            if (side_streams_.size() < most_streams) {
                side_streams_.push_back(stream);
                side_stream_names_.push_back(side_stream_name(stream));
            }
        }
        waits_ = {};
        launches_ = {};
    }

    // The stream itself goes by a number that says nothing.
    [[nodiscard]] std::string side_stream_name(std::int32_t stream) const {
        const bool computes = std::ranges::any_of(trace_.events, [&](const TraceEvent& event) {
            return event.kind == TraceEventKind::kernel && event.thread == stream;
        });
        const std::string kind = computes ? "kernels" : "copies";
        std::string name = kind;
        for (int i = 2; std::ranges::count(side_stream_names_, name) > 0; ++i) {
            name = kind + " " + std::to_string(i);
        }
        return name;
    }

    // Whether it is, or may be, a collective that is simulated. RCCL's kernels are all of one name.
    [[nodiscard]] bool may_reduce(const TraceEvent& event) const {
        const std::string& name = trace_.name_of(event);
        const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
        return event.kind == TraceEventKind::collective_kernel &&
               (has("AllReduce") || has("Broadcast") || has("Generic") ||
                (shards_ && (has("AllGather") || has("ReduceScatter"))));
    }

    // Apart from one another, by time.
    void find_busy_times() {
        for (const TraceEvent& event : trace_.events) {
            if (!is_on_device(event.kind) || !(is_compute(event) || may_reduce(event))) {
                continue;
            }
            if (busy_.empty() || event.begin_ns > busy_.back().end_ns) {
                busy_.push_back({event.begin_ns, event.end_ns});
            } else {
                busy_.back().end_ns = std::max(busy_.back().end_ns, event.end_ns);
            }
        }
    }

    void choose_compute_stream() {
        std::map<std::int32_t, std::int64_t> busy_ns;
        for (const TraceEvent& event : trace_.events) {
            if (event.kind == TraceEventKind::kernel) {
                busy_ns[event.thread] += event.duration_ns();
            }
        }
        const auto busiest =
            std::ranges::max_element(busy_ns, {}, [](const auto& stream) { return stream.second; });
        compute_stream_ = busiest == busy_ns.end() ? -1 : busiest->first;
    }

    // The last one of its correlation; null: none.
    [[nodiscard]] const TraceEvent* launch_of(const TraceEvent& event) const {
        const auto after =
            std::ranges::upper_bound(launches_, event.correlation, {}, correlation());
        const bool found = after != launches_.begin() &&
                           trace_.events[*std::prev(after)].correlation == event.correlation;
        return found ? &trace_.events[*std::prev(after)] : nullptr;
    }

    void measure_device_times() {
        gaps_ns_.resize(trace_.events.size());
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (event.kind == TraceEventKind::launch && event.correlation >= 0) {
                launches_.push_back(static_cast<std::uint32_t>(i));
            }
        }
        std::ranges::stable_sort(launches_, {}, correlation());
        std::int64_t last_end = 0;
        bool any = false;
        for (std::size_t i = 0; i < trace_.events.size(); ++i) {
            const TraceEvent& event = trace_.events[i];
            if (!is_on_device(event.kind) || !is_compute(event)) {
                continue;
            }
            const TraceEvent* const launch = launch_of(event);
            const std::int64_t gap = event.begin_ns - last_end;
            if (any && launch != nullptr && launch->end_ns <= last_end && gap > 0 &&
                gap <= longest_gap_ns) {
                gaps_ns_[i] = static_cast<std::uint16_t>(gap);
            }
            if (any && launch != nullptr) {
                const std::int64_t from = std::max(last_end, launch->end_ns);
                if (event.begin_ns - from > longest_gap_ns) {
                    waits_.push_back({from, event.begin_ns});
                }
            }
            last_end = any ? std::max(last_end, event.end_ns) : event.end_ns;
            any = true;
        }
    }

    const ProfilerTrace& trace_;
    std::int32_t compute_stream_ = -1;
    bool shards_ = false;
    std::vector<std::uint32_t> launched_;  // indices of events, by correlation
    std::vector<std::uint16_t> gaps_ns_;   // before each event; up to longest_gap_ns
    std::set<std::int32_t> threads_;
    std::vector<Span> busy_;
    std::int64_t typical_launch_ns_ = 0;
    std::vector<Ending> others_;  // of what other streams ran, by rising end
    std::vector<std::int32_t> side_streams_;
    std::vector<std::string> side_stream_names_;
    // Until side streams are found: launches by correlation, and when the compute stream waited
    // though something was launched on it.
    std::vector<std::uint32_t> launches_;
    std::vector<DeviceWait> waits_;
    TraceEventKind collective_root_ = TraceEventKind::annotation;
};

}  // namespace bucketwise
