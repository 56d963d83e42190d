#include "sim/report/perfetto.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include <fmt/format.h>

#include "sim/base/json_input.h"

namespace bucketwise {
namespace {

class TraceWriter {
  public:
    TraceWriter(const StepInput& input, const Program& program,
                const std::vector<std::string>& groups)
        : workload_(input.workload),
          is_graph_(input.step.graph_launch.has_value()),
          program_(program),
          groups_(groups) {}

    std::string write(const std::string& name, const Simulation& simulation,
                      const std::vector<TraceProcess>& beside) {
        for (const RankProgress& rank : simulation.progress) {
            step_ = std::max(step_, rank.device);
        }
        for (const Span& span : simulation.timeline.spans) {
            ranks_.insert(span.rank);
            const bool runs_ahead = span.track == Track::host || span.track == Track::side;
            if (runs_ahead && step_ > Duration{0}) {
                add_folded(span);
            } else {
                add_slice(span);
            }
            remember(span);
        }
        for (const std::int32_t rank : ranks_) {
            add_names(name, rank);
        }
        add_flows();
        for (const TraceProcess& process : beside) {
            add_process(process);
        }
        return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}.dump(
            -1, ' ', false, Json::error_handler_t::replace);
    }

  private:
    static std::int64_t process_id(std::int32_t rank) { return std::int64_t{rank} + 1; }
    static int track_id(Track track) { return static_cast<int>(track); }
    // A track for each side stream, from 1 on.
    static std::int64_t side_track_id(std::size_t stream) {
        return track_id(Track::side) + static_cast<std::int64_t>(stream) - 1;
    }
    [[nodiscard]] std::int64_t track_of(const Span& span) const {
        const auto subject = static_cast<std::size_t>(span.subject);
        if (span.track == Track::side) {
            return side_track_id(program_.instructions[subject].order.stream);
        }
        const bool is_second = span.track == Track::communication &&
                               program_.collectives[subject].stream == CommunicationStream::second;
        return is_second ? second_stream : track_id(span.track);
    }
    // Threads are numbered through all processes.
    static std::int64_t thread_id(std::int64_t process, std::int64_t track) {
        return process * most_tracks + track;
    }

    // Viewers count in nanoseconds: consecutive slices must stay consecutive there.
    static constexpr double ns_per_us = 1e3;
    static std::int64_t to_ns(Duration time) {
        return std::chrono::round<std::chrono::nanoseconds>(time).count();
    }
    static void set_times(Duration begin, Duration end, Json& slice) {
        slice["ts"] = static_cast<double>(to_ns(begin)) / ns_per_us;
        slice["dur"] = static_cast<double>(to_ns(end) - to_ns(begin)) / ns_per_us;
    }

    static Json event_of(const char* phase, const std::string& name, std::int64_t process,
                         std::int64_t track) {
        return {
            {"ph", phase}, {"name", name}, {"pid", process}, {"tid", thread_id(process, track)}};
    }

    void describe(const char* what, std::int64_t process, std::int64_t track, const Json& text) {
        events_.push_back(event_of("M", what, process, track));
        events_.back()["args"] = text;
    }
    void name_process(const std::string& name, std::int64_t process) {
        describe("process_name", process, 0, {{"name", name}});
        describe("process_sort_index", process, 0, {{"sort_index", process}});
    }
    void name_track(const std::string& name, std::int64_t process, std::int64_t track) {
        describe("thread_name", process, track, {{"name", name}});
        describe("thread_sort_index", process, track, {{"sort_index", track}});
    }

    void add_names(const std::string& name, std::int32_t rank) {
        const std::int64_t process = process_id(rank);
        name_process(fmt::format("{}, rank {}", name, rank), process);
        for (const auto& [track, label] :
             {std::pair(Track::host, "host"), std::pair(Track::compute, "compute stream"),
              std::pair(Track::communication, "communication stream")}) {
            name_track(label, process, track_id(track));
        }
        if (std::ranges::any_of(program_.collectives, [](const Collective& collective) {
                return collective.stream == CommunicationStream::second;
            })) {
            name_track("communication between replicas", process, second_stream);
        }
        for (std::size_t i = 0; i < workload_.side_streams.size(); ++i) {
            name_track("stream " + workload_.side_streams[i], process, side_track_id(i + 1));
        }
    }

    void add_process(const TraceProcess& process) {
        const std::int64_t of_ranks = ranks_.empty() ? 0 : process_id(*ranks_.rbegin());
        const std::int64_t id = of_ranks + 1 + others_;
        ++others_;
        name_process(process.name, id);
        std::int64_t number = 0;
        for (const TraceTrack& track : process.tracks) {
            name_track(track.name, id, number);
            Duration now = track.slices.empty() ? Duration{0} : track.slices.front().begin;
            for (const TraceSlice& seen : track.slices) {
                const Duration begin = std::max(seen.begin, now);
                now = std::max(seen.end, begin);
                Json slice = event_of("X", seen.name, id, number);
                slice["cat"] = "measured";
                set_times(begin, now, slice);
                events_.push_back(std::move(slice));
            }
            ++number;
        }
    }

    // A host that runs ahead issues a later step during this one. The trace shows that, as a
    // profiler would.
    void add_folded(const Span& span) {
        std::int64_t ahead = std::max<std::int64_t>(0, (step_ - span.start - Duration{1}) / step_);
        Span shown = span;
        for (shown.start += ahead * step_; ahead >= 0; --ahead, shown.start = Duration{0}) {
            const Duration end = span.end + ahead * step_;
            shown.end = ahead > 0 ? std::min(end, step_) : end;
            add_slice(shown);
            if (ahead > 0) {
                events_.back()["args"] = {{"steps_ahead", ahead}};
            }
            if (end <= step_) {
                return;
            }
        }
    }

    void add_slice(const Span& span) {
        const auto subject = static_cast<std::size_t>(span.subject);
        const bool communicates = span.track == Track::communication;
        const bool launches_graph = is_graph_ && span.track == Track::host;
        Json slice = event_of("X",
                              communicates     ? collective_name(subject)
                              : launches_graph ? "launch CUDA graph"
                                               : instruction_name(subject),
                              process_id(span.rank), track_of(span));
        slice["cat"] = communicates                ? "communication"
                       : span.track == Track::host ? "host"
                       : span.track == Track::side ? "stream"
                                                   : "compute";
        set_times(span.start, span.end, slice);
        if (communicates) {
            const Collective& collective = program_.collectives[subject];
            slice["args"] = {{"bytes", collective.bytes.count},
                             {"alone_us", to_us(collective.time)}};
        }
        events_.push_back(std::move(slice));
    }

    [[nodiscard]] std::string collective_name(std::size_t index) const {
        const Collective& collective = program_.collectives[index];
        const Cargo& cargo = collective.cargo;
        const ShardsOf* shards = collective.shards();
        const std::string subject =
            shards != nullptr && shards->group >= 0 && !groups_.empty()
                ? groups_[static_cast<std::size_t>(shards->group)]
            : collective.has_bucket()            ? fmt::format("bucket {}", *collective.bucket())
            : collective.statistics() != nullptr ? after(*collective.statistics())
            : std::holds_alternative<BuffersOf>(cargo) ? "buffers"
            : std::holds_alternative<UnusedMap>(cargo) ? "unused parameters"
            : std::holds_alternative<NumbersOf>(cargo) ? text_of(std::get<NumbersOf>(cargo))
            : collective.kind == CollectiveKind::reduce_scatter ? "gradients"
                                                                : "parameters";
        return fmt::format("{} {} ({:.2f} MiB)", name_of(collective.kind), subject,
                           to_mib(collective.bytes));
    }

    static std::string text_of(const NumbersOf& numbers) {
        return numbers.what == SharedNumbers::gradient_norm ? "norm of gradients"
                                                            : "scales of weights";
    }

    [[nodiscard]] std::string after(const StatisticsOf& place) const {
        const auto& operations =
            place.phase == Phase::forward ? workload_.forward : workload_.backward;
        return "after " + operations[static_cast<std::size_t>(place.operation)].name;
    }

    [[nodiscard]] std::string instruction_name(std::size_t index) const {
        const Instruction& instruction = program_.instructions[index];
        const auto subject = static_cast<std::size_t>(instruction.subject);
        switch (instruction.kind) {
            case InstructionKind::forward:
                return workload_.forward[subject].name;
            case InstructionKind::backward:
                return workload_.backward[subject].name;
            case InstructionKind::copy:
                return copy_name(instruction.copy.route, subject);
            case InstructionKind::launch:
                return "launch " + collective_name(subject);
            case InstructionKind::wait:
                return "wait for " + collective_name(subject);
            case InstructionKind::clip:
                return subject == 0 ? "norm of gradients" : "clip gradients";
            case InstructionKind::optimizer:
                return "optimizer";
        }
        return {};
    }

    [[nodiscard]] std::string copy_name(CopyRoute route, std::size_t subject) const {
        constexpr auto texts =
            names("", "copy buffers", "into bucket: ", "out of bucket: ", "pack", "pack", "unpack",
                  "unpack", "compress", "decompress", "scale", "scale", "check", "take share of",
                  "copy in: ", "copy out: ", "copy in: ", "copy out: ", "copy in: ",
                  "gradients in place: ", "gradients in place: ", "gradients in place: ");
        const std::string text(texts[static_cast<std::size_t>(route)]);
        return route <= CopyRoute::received_to_buffers  ? text
               : route <= CopyRoute::bucket_to_gradient ? text + workload_.gradients[subject].name
               : route <= CopyRoute::bucket_to_share    ? fmt::format("{} bucket {}", text, subject)
               : groups_.empty()                        ? text + std::to_string(subject)
                                                        : text + groups_[subject];
    }

    void remember(const Span& span) {
        if (span.rank != 0) {
            return;
        }
        if (span.track == Track::communication) {
            collective_spans_[span.subject] = span;
        } else if (span.track == Track::compute && span.end > span.start) {
            compute_spans_[span.subject] = span;
        }
    }

    // From the last slice of the compute stream before the launch to the all-reduce it releases.
    void add_flows() {
        for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
            const Instruction& instruction = program_.instructions[i];
            const auto collective = collective_spans_.find(instruction.subject);
            if (instruction.kind != InstructionKind::launch ||
                collective == collective_spans_.end() ||
                !program_.collectives[static_cast<std::size_t>(instruction.subject)].has_bucket()) {
                continue;
            }
            const auto after = compute_spans_.lower_bound(static_cast<std::int32_t>(i));
            if (after != compute_spans_.begin()) {
                add_flow(std::prev(after)->second, collective->second);
            }
        }
    }

    void add_flow(const Span& from, const Span& to) {
        // A flow binds to the slice that encloses its time, so it leaves just before the slice
        // ends.
        const std::int64_t leaves = std::max(to_ns(from.end) - 1, to_ns(from.start));
        for (const auto& [phase, track, time] :
             {std::tuple("s", Track::compute, leaves),
              std::tuple("f", Track::communication, to_ns(to.start))}) {
            Json flow = event_of(phase, "bucket complete", process_id(0), track_id(track));
            flow["cat"] = "bucket";
            flow["id"] = to.subject;
            flow["ts"] = static_cast<double>(time) / ns_per_us;
            if (track == Track::communication) {
                flow["bp"] = "e";
            }
            events_.push_back(std::move(flow));
        }
    }

    const Workload& workload_;
    bool is_graph_;  // the host issues the step at once
    const Program& program_;
    const std::vector<std::string>& groups_;
    Duration step_{0};  // until the last device has run it
    Json events_ = Json::array();
    static constexpr std::int64_t most_tracks = 16;
    static constexpr std::int64_t second_stream = most_tracks - 1;
    std::set<std::int32_t> ranks_;
    std::int64_t others_ = 0;                        // processes
    std::map<std::int32_t, Span> compute_spans_;     // of rank 0, by instruction
    std::map<std::int32_t, Span> collective_spans_;  // by collective
};

}  // namespace

std::string perfetto_trace(const std::string& name, const StepInput& input, const Program& program,
                           const Simulation& simulation, const std::vector<TraceProcess>& beside,
                           const std::vector<std::string>& groups) {
    return TraceWriter(input, program, groups).write(name, simulation, beside);
}

}  // namespace bucketwise
