#include "sim/perfetto.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "sim/json_input.h"

namespace bucketwise {
namespace {

class TraceWriter {
  public:
    TraceWriter(const StepInput& input, const Program& program)
        : workload_(input.workload),
          is_graph_(input.step.graph_launch.has_value()),
          program_(program) {}

    std::string write(const std::string& name, const Simulation& simulation) {
        for (const Span& span : simulation.timeline.spans) {
            ranks_.insert(span.rank);
            add_slice(span);
            remember(span);
        }
        for (const std::int32_t rank : ranks_) {
            add_names(name, rank);
        }
        add_flows();
        return Json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}}.dump(
            -1, ' ', false, Json::error_handler_t::replace);
    }

  private:
    static int track_id(Track track) { return static_cast<int>(track); }

    Json event(const char* phase, const std::string& name, std::int32_t rank, Track track) const {
        return {{"ph", phase}, {"name", name}, {"pid", rank}, {"tid", track_id(track)}};
    }

    void add_names(const std::string& name, std::int32_t rank) {
        Json process = event("M", "process_name", rank, Track::host);
        process["args"] = {{"name", fmt::format("{}, rank {}", name, rank)}};
        events_.push_back(std::move(process));
        for (const auto& [track, label] :
             {std::pair(Track::host, "host"), std::pair(Track::compute, "compute stream"),
              std::pair(Track::communication, "communication stream")}) {
            Json thread = event("M", "thread_name", rank, track);
            thread["args"] = {{"name", label}};
            events_.push_back(std::move(thread));
            Json order = event("M", "thread_sort_index", rank, track);
            order["args"] = {{"sort_index", track_id(track)}};
            events_.push_back(std::move(order));
        }
    }

    void add_slice(const Span& span) {
        const auto subject = static_cast<std::size_t>(span.subject);
        const bool communicates = span.track == Track::communication;
        const bool launches_graph = is_graph_ && span.track == Track::host;
        Json slice = event("X",
                           communicates     ? collective_name(subject)
                           : launches_graph ? "launch CUDA graph"
                                            : instruction_name(subject),
                           span.rank, span.track);
        slice["cat"] = communicates                ? "communication"
                       : span.track == Track::host ? "host"
                                                   : "compute";
        slice["ts"] = to_us(span.start);
        slice["dur"] = to_us(span.end - span.start);
        if (communicates) {
            const Collective& collective = program_.collectives[subject];
            slice["args"] = {{"bytes", collective.bytes.count},
                             {"alone_us", to_us(collective.time)}};
        }
        events_.push_back(std::move(slice));
    }

    [[nodiscard]] std::string collective_name(std::size_t index) const {
        const Collective& collective = program_.collectives[index];
        const std::string subject = collective.bucket ? fmt::format("bucket {}", *collective.bucket)
                                    : collective.statistics ? after(*collective.statistics)
                                    : collective.kind == CollectiveKind::broadcast
                                        ? "buffers"
                                        : "unused parameters";
        return fmt::format("{} {} ({:.2f} MiB)", name_of(collective.kind), subject,
                           to_mib(collective.bytes));
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
            case InstructionKind::copy_buffers:
                return "copy buffers";
            case InstructionKind::forward:
                return workload_.forward[subject].name;
            case InstructionKind::backward:
                return workload_.backward[subject].name;
            case InstructionKind::copy_in:
                return "into bucket: " + workload_.gradients[subject].name;
            case InstructionKind::pack:
                return fmt::format("pack bucket {}", subject);
            case InstructionKind::cast_down:
                return fmt::format("compress bucket {}", subject);
            case InstructionKind::launch:
                return "launch " + collective_name(subject);
            case InstructionKind::wait:
                return "wait for " + collective_name(subject);
            case InstructionKind::cast_up:
                return fmt::format("decompress bucket {}", subject);
            case InstructionKind::unpack:
                return fmt::format("unpack bucket {}", subject);
            case InstructionKind::copy_back:
                return "out of bucket: " + workload_.gradients[subject].name;
            case InstructionKind::optimizer:
                return "optimizer";
        }
        return {};
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
                !program_.collectives[static_cast<std::size_t>(instruction.subject)].bucket) {
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
        const Duration leaves =
            from.end - std::min<Duration>(std::chrono::nanoseconds{1}, (from.end - from.start) / 2);
        for (const auto& [phase, track, time] : {std::tuple("s", Track::compute, leaves),
                                                 std::tuple("f", Track::communication, to.start)}) {
            Json flow = event(phase, "bucket complete", 0, track);
            flow["cat"] = "bucket";
            flow["id"] = to.subject;
            flow["ts"] = to_us(time);
            if (track == Track::communication) {
                flow["bp"] = "e";
            }
            events_.push_back(std::move(flow));
        }
    }

    const Workload& workload_;
    bool is_graph_;  // the host issues the step at once
    const Program& program_;
    Json events_ = Json::array();
    std::set<std::int32_t> ranks_;
    std::map<std::int32_t, Span> compute_spans_;     // of rank 0, by instruction
    std::map<std::int32_t, Span> collective_spans_;  // by collective
};

}  // namespace

std::string perfetto_trace(const std::string& name, const StepInput& input, const Program& program,
                           const Simulation& simulation) {
    return TraceWriter(input, program).write(name, simulation);
}

}  // namespace bucketwise
