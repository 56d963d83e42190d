#include "sim/engine/step_loop.h"

#include <algorithm>
#include <utility>

namespace bucketwise {
namespace {

constexpr int most_steps = 64;
// A longer lead of the host would change nothing but the number of steps until they settle, which
// doubles.
constexpr std::int64_t most_steps_ahead = 16;
constexpr std::int64_t most_instructions_to_keep = 1 << 13;
constexpr std::int64_t longest_queue = 1 << 20;

// The step delayed by its own order only: a lower bound.
Program without_waiting(Program program) {
    const bool beside = std::ranges::any_of(
        program.instructions, [](const Instruction& one) { return one.order != StreamOrder{}; });
    program = without_host_waits(std::move(program));
    if (!beside) {
        return program;
    }
    // Waiting can leave a collective alone, which may make it and the computing end earlier.
    for (Collective& collective : program.collectives) {
        collective.interference = {};
    }
    return without_side_streams(std::move(program));
}

Duration last_end(const std::vector<RankProgress>& progress) {
    return std::ranges::max_element(progress, {}, &RankProgress::device)->device;
}

Duration earlier_by(Duration moment, Duration by) {
    return std::max(moment - by, far_ahead);
}

// Time counts from the end of the last device's step.
void begin_step(std::vector<RankProgress>& progress) {
    const Duration end = last_end(progress);
    for (RankProgress& rank : progress) {
        rank.times = {};
        rank.sides.forget_before(rank.host);
        for (Duration& moment : rank.sides.ends) {
            moment = earlier_by(moment, end);
        }
        rank.host = earlier_by(rank.host, end);
        rank.device = earlier_by(rank.device, end);
        std::vector<Duration>& ends = rank.queue.ends;
        std::rotate(ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(rank.queue.next),
                    ends.end());
        rank.queue.next = 0;
        for (Duration& moment : ends) {
            moment = earlier_by(moment, end);
        }
    }
}

// Adds the work of each side stream, from stream 1 on.
void add_work_beside(const Program& program, std::int64_t times, std::vector<Duration>& work) {
    work.resize(most_side_streams, Duration{0});
    for (const Instruction& instruction : program.instructions) {
        if (instruction.order.is_beside()) {
            work[instruction.order.stream - std::size_t{1}] += times * instruction.device;
        }
    }
}

StepTimes divided(const StepTimes& sum, int by) {
    return {sum.forward / by, sum.backward / by, sum.optimizer / by, sum.finishing / by,
            sum.finishing_host / by};
}

// The queue at the start of a step, of a host that has always been ahead. `step` has the ends of
// one step of this period.
LaunchQueue periodic_queue(const LaunchQueue& step, Duration period, std::int64_t length) {
    LaunchQueue queue;
    const std::int64_t count = std::ssize(step.ends);
    for (std::int64_t back = length; back > 0; --back) {
        const std::int64_t steps = (back + count - 1) / count;
        const Duration end = step.ends[static_cast<std::size_t>(steps * count - back)];
        const bool long_ago = steps > longest_duration / std::max(period, Duration{1});
        queue.ends.push_back(long_ago ? far_ahead : earlier_by(end, steps * period));
    }
    return queue;
}

}  // namespace

StepToClose::StepToClose(const StepBeforeClosing& before)
    : before_(before), longest_seconds_(before.longest_possible_seconds()) {
    const StepLoop& loop = before.loop();
    const std::int64_t instructions = before.instructions();
    RankProgress start{.host = loop.starts_idle ? Duration{0} : far_ahead};
    const bool keeps =
        !loop.starts_idle && before.classes().empty() && instructions <= most_instructions_to_keep;
    if (keeps) {
        start.queue.ends.assign(static_cast<std::size_t>(instructions), far_ahead);
    }
    progress_ =
        is_coupled() ? before.changed(without_waiting).simulate(start) : before.simulate(start);
    if (keeps) {
        for (const Duration end : std::exchange(progress_.front().queue, {}).ends) {
            issued_.push_back({.end = end});
        }
        auto next = issued_.begin();
        before.for_each_part([&](const Program& program, std::int64_t times) {
            for (; times > 0; --times) {
                for (const Instruction& instruction : program.instructions) {
                    (next++)->host = instruction.host;
                }
            }
        });
    }
}

void StepToClose::run_step(const Program& closing, std::vector<RankProgress>& progress) const {
    before_.run(progress);
    run_classes(closing, before_.classes(), 1, progress);
}

StepToClose::Device StepToClose::device(const Program& closing) const {
    std::vector<RankProgress> progress = progress_;
    const bool keeps = queue_may_fill(closing) && before_.classes().empty() &&
                       std::ssize(issued_) == before_.instructions();
    if (keeps) {
        progress.front().queue.ends.assign(closing.instructions.size(), far_ahead);
    }
    run_classes(closing, before_.classes(), 1, progress);
    Device device{.times = slowest_of(progress),
                  .issuing = progress.front().host - far_ahead,
                  .queue = queue_length(closing)};
    if (keeps) {
        device.step.reserve(issued_.size() + closing.instructions.size());
        device.step.assign(issued_.begin(), issued_.end());
        auto end = progress.front().queue.ends.begin();
        for (const Instruction& instruction : closing.instructions) {
            device.step.push_back({instruction.host, *end++});
        }
    }
    return device;
}

// Whether a host that waits for room in its queue still issues everything before the device gets to
// it. If the host takes no longer than the device, steps before the last cannot matter.
bool StepToClose::stays_ahead(const Device& device) {
    const std::int64_t count = std::ssize(device.step);
    if (count == 0 || device.queue > count || device.waits_for_host()) {
        return false;
    }
    const Duration period = device.times.step();
    const auto end_of = [&](std::int64_t i) {
        return i < 0 ? device.step[static_cast<std::size_t>(i + count)].end - period
                     : device.step[static_cast<std::size_t>(i)].end;
    };
    Duration host = far_ahead;
    for (const bool second : {false, true}) {
        for (std::int64_t i = 0; i < count; ++i) {
            host = std::max(host, end_of(i - device.queue)) +
                   device.step[static_cast<std::size_t>(i)].host;
            if (second && host > end_of(i - 1)) {
                return false;
            }
        }
        host -= period;
    }
    return true;
}

bool StepToClose::is_coupled() const {
    const StepLoop& loop = before_.loop();
    return (loop.host_waits || loop.side_streams) && !loop.starts_idle;
}

bool StepToClose::something_may_wait(const Program& closing) const {
    return before_.loop().host_waits || before_.loop().side_streams || queue_may_fill(closing);
}

bool StepToClose::queue_may_fill(const Program& closing) const {
    const StepLoop& loop = before_.loop();
    return !loop.starts_idle && instructions_with(closing) >= queue_length(closing);
}

std::int64_t StepToClose::instructions_with(const Program& closing) const {
    return before_.instructions() + std::ssize(closing.instructions);
}

// A lead of many steps over side streams delays the host like a lead of a few.
std::int64_t StepToClose::kept_queue(const Program& closing) const {
    const std::int64_t length = queue_length(closing);
    return before_.loop().side_streams
               ? std::min(length, most_steps_ahead * instructions_with(closing))
               : length;
}

// In instructions. A graph is one launch and ends with its last instruction.
std::int64_t StepToClose::queue_length(const Program& closing) const {
    const StepLoop& loop = before_.loop();
    const std::int64_t step = instructions_with(closing);
    return loop.one_launch ? std::min(longest_queue, (loop.launch_queue - 1) * step + 1)
                           : loop.launch_queue;
}

// Ranks that differ begin their steps at different moments, which matters with interference.
bool StepToClose::must_be_run(const Program& closing, const Device& device) const {
    const bool ranks_drift =
        before_.classes().size() > 1 && (before_.disturbs() || disturbs(closing));
    return ranks_drift || (queue_may_fill(closing) && !stays_ahead(device));
}

void StepToClose::check(const Program& closing) const {
    check_length(longest_seconds_ +
                 largest_slowdown(before_.classes()) * longest_possible_seconds(closing));
}

StepTimes StepToClose::closed_by(const Program& closing) const {
    check(closing);
    return settled(closing);
}

Duration StepToClose::step_closed_by(const Program& closing) const {
    check(closing);
    return settled(closing, Wanted::length_only).step();
}

bool StepToClose::is_paced_by_one(const Program& closing) const {
    return !is_coupled() && !must_be_run(closing, device(closing));
}

Duration StepToClose::paced_step(const Program& closing) const {
    check(closing);
    std::vector<RankProgress> progress = progress_;
    run_classes(closing, before_.classes(), 1, progress);
    const Duration device = slowest_of(progress).step();
    return before_.loop().starts_idle ? device
                                      : std::max(device, progress.front().host - far_ahead);
}

StepTimes StepToClose::settled(const Program& closing) const {
    return settled(closing, Wanted::times);
}

StepTimes StepToClose::settled(const Program& closing, Wanted wanted) const {
    if (is_coupled()) {
        return settle_coupled(closing).times;
    }
    const Device device = this->device(closing);
    if (before_.loop().starts_idle) {
        return device.times;
    }
    if (must_be_run(closing, device) || (device.waits_for_host() && wanted == Wanted::times)) {
        return settle(closing, device.waits_for_host()).times;
    }
    return device.waits_for_host() ? StepTimes{.backward = device.issuing} : device.times;
}

StepToClose::Settled StepToClose::settle_coupled(const Program& closing) const {
    if (!before_.loop().side_streams) {
        return settle(closing, true);
    }
    Settled settled = settle(closing, before_.loop().host_waits);
    if (issuing(closing) > settled.times.step()) {
        settled = settle(closing, true);
    }
    // A side stream with more work than the step delays only the host, once its launch queue is
    // full. Start as far behind as that takes.
    SideStreams behind{work_beside(closing)};
    const std::int64_t steps = 2 + kept_queue(closing) / instructions_with(closing);
    bool any_behind = false;
    for (Duration& work : behind.ends) {
        const bool is_behind = work > settled.times.step();
        any_behind = any_behind || is_behind;
        work = is_behind ? std::min(work, longest_duration / steps) * steps : far_ahead;
    }
    return any_behind ? settle(closing, false, std::move(behind)) : settled;
}

Duration StepToClose::issuing(const Program& closing) const {
    Duration sum{0};
    const auto add = [&](const Program& program, std::int64_t times) {
        for (const Instruction& instruction : program.instructions) {
            sum += times * instruction.host;
        }
    };
    before_.for_each_part(add);
    add(closing, 1);
    return sum;
}

std::vector<Duration> StepToClose::work_beside(const Program& closing) const {
    std::vector<Duration> work;
    const auto add = [&](const Program& program, std::int64_t times) {
        add_work_beside(program, times, work);
    };
    before_.for_each_part(add);
    add(closing, 1);
    return work;
}

StepToClose::Settled StepToClose::settle(const Program& closing, bool from_idle,
                                         SideStreams behind) const {
    RankProgress start{.host = from_idle ? Duration{0} : far_ahead, .sides = std::move(behind)};
    if (queue_may_fill(closing) || before_.loop().side_streams) {
        start.queue.ends.assign(static_cast<std::size_t>(kept_queue(closing)), far_ahead);
    }
    Settled settled{.start = std::vector<RankProgress>(progress_.size(), start)};
    StepTimes sum;
    for (int step = 0; step < most_steps; ++step) {
        std::vector<RankProgress> progress = settled.start;
        run_step(closing, progress);
        settled.times = std::ranges::max_element(progress, {}, &RankProgress::device)->times;
        begin_step(progress);
        if (progress == settled.start) {
            return settled;
        }
        settled.start = std::move(progress);
        if (step >= most_steps / 2) {
            sum.add(settled.times);
        }
    }
    settled.times = divided(sum, most_steps / 2);
    return settled;
}

std::vector<RankProgress> StepToClose::start_of(const Program& closing) const {
    const StepLoop& loop = before_.loop();
    if (loop.starts_idle) {
        return std::vector<RankProgress>(progress_.size());
    }
    if (is_coupled()) {
        return settle_coupled(closing).start;
    }
    const Device device = this->device(closing);
    if (device.waits_for_host() || queue_may_fill(closing)) {
        return settle(closing, device.waits_for_host()).start;
    }
    const std::int64_t instructions = instructions_with(closing);
    if (instructions == 0) {
        return std::vector<RankProgress>(progress_.size());
    }
    // The host is as far ahead as its queue allows.
    RankProgress start{.host = far_ahead};
    start.queue.ends.assign(static_cast<std::size_t>(instructions), far_ahead);
    std::vector<RankProgress> progress(progress_.size(), start);
    run_step(closing, progress);
    for (RankProgress& rank : progress) {
        rank = {.host = far_ahead,
                .queue = periodic_queue(rank.queue, device.times.step(), device.queue)};
    }
    run_step(closing, progress);
    begin_step(progress);
    return progress;
}

RunningLoop::RunningLoop(const StepBeforeClosing& before, const Program& closing)
    : progress_(StepToClose(before).start_of(closing)) {}

Duration RunningLoop::next(const StepBeforeClosing& before, const Program& closing) {
    // Ranks are alike until their variation is drawn.
    progress_.resize(std::max<std::size_t>(before.classes().size(), 1), progress_.front());
    before.run(progress_);
    run_classes(closing, before.classes(), 1, progress_);
    const Duration step = last_end(progress_);
    begin_step(progress_);
    return step;
}

Duration closed_step(const Program& closing, const std::vector<RankClass>& classes,
                     std::vector<RankProgress> progress) {
    run_classes(closing, classes, 1, progress);
    return slowest_of(progress).step();
}

StepTimes settled_times(const Program& program, const StepLoop& loop) {
    const StepBeforeClosing nothing(loop);
    return StepToClose(nothing).closed_by(program);
}

RankProgress settled_start(const Program& program, const StepLoop& loop) {
    const StepBeforeClosing nothing(loop);
    return StepToClose(nothing).start_of(program).front();
}

Simulation settled_simulation(const Program& program, const StepLoop& loop) {
    return simulate({&program, 1}, Record::timeline, settled_start(program, loop));
}

}  // namespace bucketwise
