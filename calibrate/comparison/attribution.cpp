#include "calibrate/comparison/attribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "sim/base/statistics.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/link/collective.h"
#include "sim/program/step_programs.h"

namespace bucketwise {
namespace {

double us_of(const Program& program, const StepLoop& loop) {
    return to_us(settled_times(program, loop).step());
}

void scale(std::span<Instruction> instructions, double factor) {
    for (Instruction& instruction : instructions) {
        if (!instruction.order.is_beside()) {
            instruction.device = scaled(instruction.device, factor);
        }
    }
}

double device_us(std::span<const Instruction> instructions) {
    Duration sum{0};
    for (const Instruction& instruction : instructions) {
        sum += instruction.order.is_beside() ? Duration{0} : instruction.device;
    }
    return to_us(sum);
}

double compute_only_us(const StepInput& input, std::int64_t updating_ranks) {
    SyncRequest none;
    none.strategy = Strategy::none;
    SyncSettings sync = settings_of_replay(none);
    sync.framework.updating_ranks = updating_ranks;
    return us_of(build_program(input, sync, {}), loop_of(input, sync));
}

struct Simulated {
    double computing_us = 0;
    std::vector<double> begin_us;  // by collective
    std::vector<double> end_us;
};

Simulated look_into(const Program& program, const StepLoop& loop) {
    Simulated simulated;
    simulated.begin_us.resize(program.collectives.size());
    simulated.end_us.resize(program.collectives.size());
    const Simulation simulation = settled_simulation(program, loop);
    for (const Span& span : simulation.timeline.spans) {
        if (span.track == Track::communication) {
            simulated.begin_us[static_cast<std::size_t>(span.subject)] = to_us(span.start);
            simulated.end_us[static_cast<std::size_t>(span.subject)] = to_us(span.end);
        } else if (span.track == Track::compute) {
            simulated.computing_us += to_us(span.end - span.start);
        }
    }
    return simulated;
}

std::optional<std::size_t> first_bucket(const Program& program) {
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        if (program.collectives[i].has_bucket()) {
            return i;
        }
    }
    return std::nullopt;
}

// Computing before the first bucket's launch takes longer, and computing after it as much less.
void shift_first_bucket(Program& program, const StepLoop& loop, const MeasuredSetting& measured) {
    const std::optional<std::size_t> first = first_bucket(program);
    if (!first) {
        return;
    }
    const auto launch = std::find_if(program.instructions.begin(), program.instructions.end(),
                                     [&](const Instruction& i) {
                                         return i.kind == InstructionKind::launch &&
                                                static_cast<std::size_t>(i.subject) == *first;
                                     });
    const std::span before(program.instructions.begin(), launch);
    const std::span after(launch, program.instructions.end());
    const double before_us = device_us(before);
    const double after_us = device_us(after);
    const double later_us =
        measured.last_begin_us[*first] - look_into(program, loop).begin_us[*first];
    const double shift_us = std::clamp(later_us, -before_us, after_us);
    if (before_us > 0 && after_us > 0) {
        scale(before, 1 + shift_us / before_us);
        scale(after, 1 - shift_us / after_us);
    }
}

// Isolated time of a message, between the sizes that were measured in proportion on logarithmic
// scales; nothing beyond them.
std::optional<double> isolated_us(const std::vector<LinkPoint>& points, Bytes size) {
    const auto above =
        std::ranges::find_if(points, [&](const LinkPoint& point) { return point.size >= size; });
    if (above == points.end() || (above == points.begin() && above->size != size)) {
        return std::nullopt;
    }
    if (above->size == size) {
        return above->median_us;
    }
    const LinkPoint& below = *std::prev(above);
    const double share =
        std::log(static_cast<double>(size.count) / static_cast<double>(below.size.count)) /
        std::log(static_cast<double>(above->size.count) / static_cast<double>(below.size.count));
    return below.median_us * std::pow(above->median_us / below.median_us, share);
}

bool is_latency_bound(const StepInput& input, const Collective& collective) {
    const LinkParameters& link = input.link_of(collective.among);
    if (link.segments.empty()) {
        return false;
    }
    const Segment& segment = segment_for(collective.kind, link, collective.bytes);
    const WireCost cost =
        wire_cost(collective.kind, link.algorithm, input.group_of(collective.among).ranks);
    return launch_for(collective.kind, link) + link.meeting + cost.steps * segment.latency +
               cost.messages * link.message >
           transfer_time(collective.bytes, segment.bandwidth, cost.wire);
}

// Among as many ranks as a message was measured on.
std::optional<double> isolated_us(const IsolatedMeasurements& isolated, const StepInput& input,
                                  const Collective& collective) {
    const auto of_kind = isolated.messages.find(collective.kind);
    if (of_kind == isolated.messages.end() || of_kind->second.empty() ||
        of_kind->second.front().ranks != input.group_of(collective.among).ranks) {
        return std::nullopt;
    }
    return isolated_us(of_kind->second, collective.bytes);
}

void replace_isolated(Program& program, const StepInput& input,
                      const IsolatedMeasurements& isolated, bool latency_bound) {
    for (Collective& collective : program.collectives) {
        const auto us = isolated_us(isolated, input, collective);
        if (us && is_latency_bound(input, collective) == latency_bound) {
            collective.time = duration_from_us(*us) + collective.copying;
        }
    }
}

// The one slowdown of computing with which rank 0 computes as long as it did. Where too little
// overlaps for that, nothing changes.
void replace_compute_slowdown(Program& program, const StepLoop& loop, double computing_us) {
    const Program before = program;
    const auto set = [&](double slowdown) {
        for (Collective& collective : program.collectives) {
            collective.interference.compute_slowdown_ppm = std::llround(1e6 * slowdown);
        }
    };
    double low = 1;
    double high = 10;
    constexpr int halvings = 24;
    for (int i = 0; i < halvings; ++i) {
        const double middle = (low + high) / 2;
        set(middle);
        (look_into(program, loop).computing_us < computing_us ? low : high) = middle;
    }
    constexpr double out_of_reach = 9.9;
    if (low > out_of_reach) {
        program = before;
    } else {
        set((low + high) / 2);
    }
}

// Each collective from when the last rank began it until it ended.
void replace_collectives(Program& program, const MeasuredSetting& measured) {
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        const double us = std::max(measured.end_us[i] - measured.last_begin_us[i], 0.0);
        program.collectives[i].time = duration_from_us(us);
        program.collectives[i].interference.communication_slowdown_ppm = undisturbed_ppm;
    }
}

// The first bucket is exempt: its readiness is that of the last rank.
void add_waiting_for_peers(Program& program, const MeasuredSetting& measured) {
    const std::optional<std::size_t> first = first_bucket(program);
    const std::size_t after = first ? *first + 1 : 0;
    for (std::size_t i = after; i < program.collectives.size(); ++i) {
        const double us = std::max(measured.last_begin_us[i] - measured.begin_us[i], 0.0);
        program.collectives[i].time += duration_from_us(us);
    }
}

std::optional<DeviatingBucket> most_deviating(const Program& program, const StepLoop& loop,
                                              const MeasuredSetting& measured) {
    const Simulated simulated = look_into(program, loop);
    std::optional<DeviatingBucket> most;
    std::size_t bucket = 0;
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        if (!program.collectives[i].has_bucket()) {
            continue;
        }
        const DeviatingBucket here{
            .index = bucket++,
            .predicted_ms = (simulated.end_us[i] - simulated.begin_us[i]) / 1e3,
            .measured_ms = (measured.end_us[i] - measured.begin_us[i]) / 1e3};
        if (!most || std::abs(here.measured_ms - here.predicted_ms) >
                         std::abs(most->measured_ms - most->predicted_ms)) {
            most = here;
        }
    }
    return most;
}

// The causes by name, in the order of their replacement.
constexpr std::array<std::string_view, 9> bucketed_causes{"computing",
                                                          "drift, copies and launches",
                                                          "readiness",
                                                          "all-reduce latency",
                                                          "all-reduce bandwidth",
                                                          "interference on computing",
                                                          "interference on all-reduces",
                                                          "waiting for peers",
                                                          "not explained"};
constexpr std::array<std::string_view, 9> sharded_causes{"computing",
                                                         "drift, copies and launches",
                                                         "readiness",
                                                         "collective latency",
                                                         "collective bandwidth",
                                                         "interference on computing",
                                                         "interference on collectives",
                                                         "waiting for peers",
                                                         "not explained"};

}  // namespace

Attribution attribute(const StepInput& input, Program program, const StepLoop& loop,
                      const MeasuredSetting& measured, const IsolatedMeasurements& isolated) {
    const auto& names = measured.sharding ? sharded_causes : bucketed_causes;
    Attribution attribution;
    attribution.bucket = most_deviating(program, loop, measured);
    double before_us = us_of(program, loop);
    const auto conclude = [&](double now_us) {
        attribution.causes.push_back(
            {names.at(attribution.causes.size()), (now_us - before_us) / 1e3});
        before_us = now_us;
    };
    if (const double predicted_us = compute_only_us(input, isolated.updating_ranks);
        isolated.compute_step_us && predicted_us > 0) {
        scale(program.instructions, *isolated.compute_step_us / predicted_us);
    }
    conclude(us_of(program, loop));
    const double free_us = us_of(with_free_communication(program), loop);
    if (free_us > 0) {
        scale(program.instructions, median(measured.free_communication_us) / free_us);
    }
    conclude(us_of(program, loop));
    shift_first_bucket(program, loop, measured);
    conclude(us_of(program, loop));
    for (const bool latency_bound : {true, false}) {
        replace_isolated(program, input, isolated, latency_bound);
        conclude(us_of(program, loop));
    }
    replace_compute_slowdown(program, loop, measured.computing_us);
    conclude(us_of(program, loop));
    replace_collectives(program, measured);
    conclude(us_of(program, loop));
    add_waiting_for_peers(program, measured);
    conclude(us_of(program, loop));
    conclude(median(measured.step_us));
    return attribution;
}

}  // namespace bucketwise
