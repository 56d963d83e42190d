#include "calibrate/comparison/attribution.h"

#include <algorithm>
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
void shift_first_bucket(Program& program, const StepLoop& loop, const MeasuredCap& measured) {
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

bool is_latency_bound(const StepInput& input, Bytes size) {
    if (input.link.segments.empty()) {
        return false;
    }
    const Segment& segment = segment_for(CollectiveKind::all_reduce, input.link, size);
    const WireCost cost =
        wire_cost(CollectiveKind::all_reduce, input.link.algorithm, input.group.ranks);
    return input.link.launch + input.link.meeting + cost.steps * segment.latency +
               cost.messages * input.link.message >
           transfer_time(size, segment.bandwidth, cost.wire);
}

void replace_isolated(Program& program, const StepInput& input,
                      const std::vector<LinkPoint>& points, bool latency_bound) {
    for (Collective& collective : program.collectives) {
        const auto us = isolated_us(points, collective.bytes);
        if (collective.kind == CollectiveKind::all_reduce && us &&
            is_latency_bound(input, collective.bytes) == latency_bound) {
            collective.time = duration_from_us(*us);
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
void replace_collectives(Program& program, const MeasuredCap& measured) {
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        const double us = std::max(measured.end_us[i] - measured.last_begin_us[i], 0.0);
        program.collectives[i].time = duration_from_us(us);
        program.collectives[i].interference.communication_slowdown_ppm = undisturbed_ppm;
    }
}

// The first bucket is exempt: its readiness is that of the last rank.
void add_waiting_for_peers(Program& program, const MeasuredCap& measured) {
    const std::size_t after = first_bucket(program).value_or(0) + 1;
    for (std::size_t i = after; i < program.collectives.size(); ++i) {
        const double us = std::max(measured.last_begin_us[i] - measured.begin_us[i], 0.0);
        program.collectives[i].time += duration_from_us(us);
    }
}

std::optional<DeviatingBucket> most_deviating(const Program& program, const StepLoop& loop,
                                              const MeasuredCap& measured) {
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

}  // namespace

Attribution attribute(const StepInput& input, const SyncSettings& sync, const BucketPlan& plan,
                      const MeasuredCap& measured, const IsolatedMeasurements& isolated) {
    Program program = build_program(input, sync, plan);
    const StepLoop loop = loop_of(input, sync);
    Attribution attribution;
    attribution.bucket = most_deviating(program, loop, measured);
    double before_us = us_of(program, loop);
    const auto conclude = [&](std::string_view cause) {
        const double now_us = us_of(program, loop);
        attribution.causes.push_back({cause, (now_us - before_us) / 1e3});
        before_us = now_us;
    };
    if (const double predicted_us = compute_only_us(input, sync.framework.updating_ranks);
        isolated.compute_step_us && predicted_us > 0) {
        scale(program.instructions, *isolated.compute_step_us / predicted_us);
    }
    conclude("computing");
    const double free_us = us_of(with_free_communication(program), loop);
    if (free_us > 0) {
        scale(program.instructions, median(measured.free_communication_us) / free_us);
    }
    conclude("drift, copies and launches");
    shift_first_bucket(program, loop, measured);
    conclude("readiness");
    replace_isolated(program, input, isolated.all_reduces, true);
    conclude("all-reduce latency");
    replace_isolated(program, input, isolated.all_reduces, false);
    conclude("all-reduce bandwidth");
    replace_compute_slowdown(program, loop, measured.computing_us);
    conclude("interference on computing");
    replace_collectives(program, measured);
    conclude("interference on all-reduces");
    add_waiting_for_peers(program, measured);
    conclude("waiting for peers");
    attribution.causes.push_back({"not explained", (median(measured.step_us) - before_us) / 1e3});
    return attribution;
}

}  // namespace bucketwise
