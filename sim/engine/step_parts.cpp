#include "sim/engine/step_parts.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/base/error.h"

namespace bucketwise {
void check_length(double longest_possible_seconds) {
    constexpr double longest_s = std::chrono::duration<double>(longest_duration).count();
    constexpr double seconds_per_day = 86400;
    if (!(longest_possible_seconds < longest_s)) {
        throw InputError(
            "scenario", "", "a step shorter than ten days",
            fmt::format("one of up to {:.3g} days", longest_possible_seconds / seconds_per_day));
    }
}

namespace {

// Whether every moment that counts has moved by the same time, so that it will again.
bool moved_alike(const std::vector<RankProgress>& before, const std::vector<RankProgress>& after) {
    const Duration by = after.front().device - before.front().device;
    for (std::size_t i = 0; i < after.size(); ++i) {
        const RankProgress& a = before[i];
        const RankProgress& b = after[i];
        const std::size_t count = a.queue.ends.size();
        bool alike = a.host + by == b.host && a.device + by == b.device &&
                     a.sides.ends.size() == b.sides.ends.size();
        for (std::size_t stream = 1; alike && stream <= a.sides.ends.size(); ++stream) {
            alike = std::max(a.sides.end_of(stream), a.host) + by ==
                    std::max(b.sides.end_of(stream), b.host);
        }
        for (std::size_t k = 0; alike && k < count; ++k) {
            alike = a.queue.ends[(a.queue.next + k) % count] + by ==
                    b.queue.ends[(b.queue.next + k) % count];
        }
        if (!alike) {
            return false;
        }
    }
    return true;
}

// Repeats the move from `before` so many times.
void move_on(const std::vector<RankProgress>& before, std::int64_t times,
             std::vector<RankProgress>& progress) {
    for (std::size_t i = 0; i < progress.size(); ++i) {
        RankProgress& rank = progress[i];
        const Duration by = times * (rank.device - before[i].device);
        rank.host += by;
        rank.device += by;
        for (std::vector<Duration>* ends : {&rank.queue.ends, &rank.sides.ends}) {
            for (Duration& end : *ends) {
                end += by;
            }
        }
        StepTimes passed = rank.times;
        passed.add(before[i].times, -1);
        rank.times.add(passed, times);
    }
}

}  // namespace

void run_classes(const Program& program, const std::vector<RankClass>& classes, std::int64_t times,
                 std::vector<RankProgress>& progress) {
    const std::vector<Program> of_classes =
        classes.empty() ? std::vector<Program>{} : programs_of_classes(program, classes);
    const std::span<const Program> programs =
        classes.empty() ? std::span(&program, 1) : std::span(of_classes);
    for (std::int64_t left = times; left > 0; --left) {
        const std::vector<RankProgress> before = left > 2 ? progress : std::vector<RankProgress>{};
        run_programs(programs, progress);
        if (!before.empty() && moved_alike(before, progress)) {
            move_on(before, left - 1, progress);
            return;
        }
    }
}

Duration time_on_wire(const Program& program) {
    Duration sum{0};
    for (const Collective& collective : program.collectives) {
        sum += collective.time;
    }
    return sum;
}

StepBeforeClosing::StepBeforeClosing(const StepInput& input, const SyncSettings& sync,
                                     const BucketPlan& plan)
    : opening_(build_opening(input, sync)),
      first_micro_step_(build_micro_step(input, sync, 0, plan)),
      last_forward_(build_last_forward(input, sync, plan)),
      accumulation_(input.step.accumulation),
      graph_launch_seconds_(
          std::chrono::duration<double>(input.step.graph_launch.value_or(Duration{0})).count()),
      classes_(input.classes),
      loop_(loop_of(input, sync)) {
    if (accumulation_ > 2) {
        micro_step_ = build_micro_step(input, sync, 1, plan);
    }
    check_parts();
}

StepBeforeClosing::StepBeforeClosing(const StepLoop& loop, std::vector<RankClass> classes,
                                     Program first, Program following, std::int64_t micro_steps)
    : first_micro_step_(std::move(first)),
      micro_step_(std::move(following)),
      accumulation_(micro_steps + 1),
      classes_(std::move(classes)),
      loop_(loop) {
    check_parts();
}

void StepBeforeClosing::check_parts() {
    instruction_seconds_ = sum_over_parts([](const Program& program) {
        return bucketwise::longest_possible_seconds(with_free_communication(program));
    });
    check_length(longest_possible_seconds());
}

double StepBeforeClosing::sum_over_parts(double (*seconds_of)(const Program&)) const {
    double seconds = 0;
    for_each_part([&](const Program& program, std::int64_t times) {
        seconds += static_cast<double>(times) * seconds_of(program);
    });
    return seconds;
}

void StepBeforeClosing::set_costs(const StepInput& input) {
    for (Program* part : {&opening_, &first_micro_step_, &micro_step_, &last_forward_}) {
        set_collective_costs(*part, input);
    }
    check_length(longest_possible_seconds());
}

template <typename Parts, typename Use>
void StepBeforeClosing::each_part(Parts& parts, const Use& use) {
    const auto part = [&](auto& program, std::int64_t times) {
        if (!program.instructions.empty() && times > 0) {
            use(program, times);
        }
    };
    part(parts.opening_, 1);
    part(parts.first_micro_step_, parts.accumulation_ > 1 ? 1 : 0);
    part(parts.micro_step_, parts.accumulation_ - 2);
    part(parts.last_forward_, 1);
}

StepBeforeClosing StepBeforeClosing::changed(const ProgramChange& change,
                                             const std::vector<RankClass>& classes) const {
    StepBeforeClosing other = *this;
    other.classes_ = classes;
    each_part(other, [&](Program& program, std::int64_t) { program = change(std::move(program)); });
    return other;
}

void StepBeforeClosing::for_each_part(
    const std::function<void(const Program&, std::int64_t)>& use) const {
    each_part(*this, use);
}

void StepBeforeClosing::run(std::vector<RankProgress>& progress) const {
    for_each_part([&](const Program& program, std::int64_t times) {
        run_classes(program, classes_, times, progress);
    });
}

std::vector<RankProgress> StepBeforeClosing::simulate(const RankProgress& start) const {
    std::vector<RankProgress> progress(std::max<std::size_t>(classes_.size(), 1), start);
    run(progress);
    return progress;
}

std::int64_t StepBeforeClosing::instructions() const {
    std::int64_t count = 0;
    for_each_part([&](const Program& program, std::int64_t times) {
        count += times * std::ssize(program.instructions);
    });
    return count;
}

bool StepBeforeClosing::disturbs() const {
    return bucketwise::disturbs(opening_) || bucketwise::disturbs(first_micro_step_) ||
           bucketwise::disturbs(last_forward_);
}

double StepBeforeClosing::longest_possible_seconds() const {
    const double collectives_and_instructions =
        disturbs() ? sum_over_parts(bucketwise::longest_possible_seconds)
                   : instruction_seconds_ + std::chrono::duration<double>(communication()).count();
    return largest_slowdown(classes_) * (graph_launch_seconds_ + collectives_and_instructions);
}

Duration StepBeforeClosing::communication() const {
    // Statistics of BatchNorm are exchanged in every micro-step.
    Duration sum{0};
    for_each_part(
        [&](const Program& program, std::int64_t times) { sum += times * time_on_wire(program); });
    return sum;
}

const StepTimes& slowest_of(std::span<const RankProgress> progress) {
    const auto step_of = [](const RankProgress& one) { return one.times.step(); };
    return std::ranges::max_element(progress, {}, step_of)->times;
}

}  // namespace bucketwise
