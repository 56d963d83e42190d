#include "calibrate/comparison/step_picture.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "sim/engine/engine.h"

namespace bucketwise {
namespace {

std::string label_of(const Collective& collective) {
    return collective.has_bucket()   ? fmt::format("bucket {}", *collective.bucket() + 1)
           : collective.statistics() ? std::string("statistics")
                                     : std::string(name_of(collective.kind));
}

// Whether rank 0 computes nothing while such a collective is under way.
bool blocks(const Collective& collective, const MeasuredSetting& measured, const Program& program) {
    const bool gathers_beside = measured.sharding &&
                                collective.kind == CollectiveKind::all_gather &&
                                (measured.sharding->asynchronous_unshard ||
                                 measured.sharding->strategy == ShardedStrategy::zero3);
    return measured.sharding && program.host_is_device && !gathers_beside;
}

// `span` without the times of `others`, which follow one another.
std::vector<PictureSpan> between(PictureSpan span, const std::vector<PictureSpan>& others) {
    std::vector<PictureSpan> parts;
    for (const PictureSpan& other : others) {
        if (other.end_ms <= span.begin_ms || other.begin_ms >= span.end_ms) {
            continue;
        }
        if (other.begin_ms > span.begin_ms) {
            parts.push_back({span.what, span.begin_ms, other.begin_ms});
        }
        span.begin_ms = std::min(other.end_ms, span.end_ms);
    }
    if (span.begin_ms < span.end_ms) {
        parts.push_back(span);
    }
    return parts;
}

}  // namespace

StepPicture predicted_picture(const Program& program, const StepLoop& loop) {
    const Simulation simulation = settled_simulation(program, loop);
    StepPicture picture;
    picture.step_ms = to_ms(simulation.ranks.front().step());
    std::vector<PictureSpan>& phases = picture.computing;
    for (const Span& span : simulation.timeline.spans) {
        const auto subject = static_cast<std::size_t>(span.subject);
        if (span.track == Track::communication) {
            picture.communicating.push_back(
                {label_of(program.collectives[subject]), to_ms(span.start), to_ms(span.end)});
            continue;
        }
        if (span.track != Track::compute) {
            continue;
        }
        const Phase phase = program.instructions[subject].phase;
        const std::string what = phase == Phase::forward    ? "forward"
                                 : phase == Phase::backward ? "backward"
                                                            : "optimizer";
        // One span per phase, interrupted only by gaps that can be seen, or a picture would be
        // thousands of slivers.
        constexpr double visible = 0.003;  // of the step
        if (!phases.empty() && phases.back().what == what &&
            phases.back().end_ms + visible * picture.step_ms >= to_ms(span.start)) {
            phases.back().end_ms = to_ms(span.end);
        } else {
            phases.push_back({what, to_ms(span.start), to_ms(span.end)});
        }
    }
    return picture;
}

StepPicture measured_picture(const MeasuredSetting& measured, const Program& program) {
    StepPicture picture;
    const double step_us = measured.forward_us + measured.backward_us + measured.optimizer_us;
    std::vector<PictureSpan> blocking;
    for (std::size_t i = 0; i < measured.begin_us.size(); ++i) {
        const Collective& collective = program.collectives[i];
        picture.communicating.push_back(
            {label_of(collective), measured.begin_us[i] / 1e3, measured.end_us[i] / 1e3});
        if (blocks(collective, measured, program)) {
            blocking.push_back(picture.communicating.back());
        }
    }
    const double waiting_us =
        blocking.empty() ? std::max(step_us - measured.computing_us, 0.0) : 0.0;
    const double backward_end_us =
        std::max(measured.forward_us + measured.backward_us - waiting_us, measured.forward_us);
    picture.step_ms = step_us / 1e3;
    for (const PictureSpan& phase : std::vector<PictureSpan>{
             {"forward", 0, measured.forward_us / 1e3},
             {"backward", measured.forward_us / 1e3, backward_end_us / 1e3},
             {"optimizer", (step_us - measured.optimizer_us) / 1e3, step_us / 1e3}}) {
        const std::vector<PictureSpan> parts =
            blocking.empty() ? std::vector{phase} : between(phase, blocking);
        picture.computing.insert(picture.computing.end(), parts.begin(), parts.end());
    }
    return picture;
}

}  // namespace bucketwise
