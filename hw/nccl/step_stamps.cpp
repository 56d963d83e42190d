#include "hw/nccl/step_stamps.h"

#include <algorithm>
#include <chrono>
#include <optional>

namespace bucketwise {
namespace {

using Clock = std::chrono::steady_clock;

// The instructions that issue() stamps: those before and at a wait, the last of each phase, and the
// last before synchronisation is finished.
std::vector<bool> stamped(const Program& program) {
    const std::vector<Instruction>& all = program.instructions;
    std::vector<bool> result(all.size(), false);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool is_last = i + 1 == all.size() || all[i + 1].phase != all[i].phase ||
                             all[i + 1].finishing != all[i].finishing;
        const bool is_wait = all[i].kind == InstructionKind::wait;
        result[i] = is_last || is_wait;
        if (is_wait && i > 0) {
            result[i - 1] = true;
        }
    }
    return result;
}

// At most, with the stamp behind it.
std::size_t launches_of(const Instruction& instruction, const KernelPlan& plan) {
    constexpr std::size_t operation_and_stamp = 4;
    if (instruction.kind != InstructionKind::backward) {
        return operation_and_stamp;
    }
    return operation_and_stamp +
           plan.backward[static_cast<std::size_t>(instruction.subject)].gradients.size();
}

// So many instructions from `begin` on as may be launched ahead at once.
std::size_t end_of_batch(const std::vector<Instruction>& all, std::size_t begin,
                         const KernelPlan& plan) {
    std::size_t launches = 0;
    std::size_t end = begin;
    while (end < all.size()) {
        launches += launches_of(all[end], plan);
        if (end > begin && launches > HeadStart::most_launches) {
            break;
        }
        ++end;
    }
    return end;
}

}  // namespace

int steps_leading_in(const Scenario& scenario) {
    constexpr int lead_in = 2;
    return scenario.step.sync_each_step ? 0 : lead_in;
}

void StepStamps::calibrate() {
    stamp_time_ = time_of_a_stamp(compute_, head_start_, scratch_);
}

void StepStamps::reserve(const Program& program) {
    while (stamps_.size() < program.instructions.size()) {
        stamps_.emplace_back(Timing::on);
    }
    while (collectives_.size() < program.collectives.size()) {
        collectives_.emplace_back();
    }
}

void StepStamps::stamp(const GpuEvent& event, const GpuStream& stream, bool is_captured) const {
    if (is_captured) {
        event.record_in_graph(stream);
    } else {
        event.record(stream);
    }
}

std::vector<Interval> StepStamps::issue(const Program& program,
                                        const std::function<void(std::size_t)>& execute,
                                        bool is_captured) const {
    const std::vector<bool> is_stamped = stamped(program);
    std::vector<Interval> host;
    const Clock::time_point start = Clock::now();
    const auto now = [start] { return std::chrono::duration_cast<Duration>(Clock::now() - start); };
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Duration begin = now();
        execute(i);
        host.push_back({begin, now()});
        if (is_stamped[i]) {
            stamp(stamps_[i], compute_, is_captured);
        }
    }
    return host;
}

void StepStamps::finish(const Program& program, NcclCommunicator& communicator, std::size_t steps,
                        const std::function<bool()>& is_idle) const {
    PatientWait(communicator, (1 + steps) * (program.collectives.size() + 1))
        .until([&] { return start_.has_happened(); }, "steps that lead in");
    PatientWait wait(communicator);
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        wait.until([&] { return end_.has_happened() || collectives_[i].end.has_happened(); },
                   "a collective of a step");
    }
    wait.until([&] { return end_.has_happened() && is_idle(); }, "a step");
}

void StepStamps::finish_graph(const Program& program, NcclCommunicator& communicator,
                              std::size_t steps, const std::function<bool()>& is_idle) const {
    PatientWait(communicator, (1 + steps) * (program.collectives.size() + 1))
        .until([&] { return end_.has_happened() && is_idle(); }, "a step");
}

void StepStamps::read(const Program& program, StepTrace& trace) const {
    const std::vector<bool> is_stamped = stamped(program);
    Duration now{0};
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        const Duration before = now;
        if (is_stamped[i]) {
            now = std::max(now, between(start_, stamps_[i]));
        }
        trace.instructions.push_back({before, now});
    }
    for (std::size_t i = 0; i < program.collectives.size(); ++i) {
        trace.collectives.push_back(
            {between(start_, collectives_[i].begin), between(start_, collectives_[i].end)});
    }
}

StepTrace StepStamps::run_each(const Program& program,
                               const std::function<void(std::size_t)>& execute,
                               const KernelPlan& plan, NcclCommunicator& communicator) {
    StepTrace trace;
    trace.collectives.resize(program.collectives.size());
    Duration now{0};
    const std::vector<Instruction>& all = program.instructions;
    for (std::size_t begin = 0; begin < all.size();) {
        const std::size_t end = end_of_batch(all, begin, plan);
        {
            // More than the GPU's queue holds could not be launched ahead.
            constexpr std::size_t most = std::size_t{3} * HeadStart::most_launches;
            std::optional<HeadStart::Hold> hold;
            if (launches_of(all[begin], plan) <= most) {
                hold.emplace(head_start_, compute_);
            }
            start_.record(compute_);
            for (std::size_t i = begin; i < end; ++i) {
                const Clock::time_point issued = Clock::now();
                if (is_compute(all[i].kind)) {
                    execute(i);
                }
                trace.launches.push_back(
                    std::chrono::duration_cast<Duration>(Clock::now() - issued));
                if (is_compute(all[i].kind)) {
                    stamps_[i].record(compute_);
                }
            }
        }
        PatientWait(communicator).until([&] { return compute_.is_idle(); }, "a step");
        head_start_.check();
        const GpuEvent* before = &start_;
        for (std::size_t i = begin; i < end; ++i) {
            const Duration begun = now;
            if (is_compute(all[i].kind)) {
                now += std::max(Duration{1}, between(*before, stamps_[i]) - stamp_time_);
                before = &stamps_[i];
            }
            trace.instructions.push_back({begun, now});
        }
        begin = end;
    }
    return trace;
}

}  // namespace bucketwise
