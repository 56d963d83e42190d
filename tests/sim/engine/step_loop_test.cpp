#include "sim/engine/step_loop.h"

#include <algorithm>
#include <random>
#include <vector>

#include "sim/program/step_programs.h"
#include "tests/catch.h"
#include "tests/sim/engine/random_step.h"

namespace bucketwise {
namespace {

Duration micros(std::int64_t count) {
    return std::chrono::microseconds{count};
}

Instruction issued(std::int64_t host_us, std::int64_t device_us) {
    return {InstructionKind::backward, Phase::backward, {}, 0, micros(host_us), micros(device_us)};
}

Program of_operations(std::vector<Instruction> operations) {
    Program program;
    program.instructions = std::move(operations);
    return program;
}

Duration step_of(const Program& program, const StepLoop& loop) {
    return settled_times(program, loop).step();
}

// So many steps as one program, whose host is idle at the start only.
Program repeated(const Program& step, int times) {
    Program program;
    program.host_is_device = step.host_is_device;
    for (int i = 0; i < times; ++i) {
        const auto before = static_cast<std::int32_t>(program.collectives.size());
        for (Instruction instruction : step.instructions) {
            if (!is_compute(instruction.kind)) {
                instruction.subject += before;
            }
            program.instructions.push_back(instruction);
        }
        program.collectives.insert(program.collectives.end(), step.collectives.begin(),
                                   step.collectives.end());
    }
    return program;
}

// When the device has run each of so many steps, one after another, from idle.
std::vector<Duration> ends_of_steps(const Program& step, const StepLoop& loop, int times) {
    std::vector<RankProgress> progress(1);
    // A graph is one launch.
    const std::int64_t queue =
        loop.one_launch
            ? std::min<std::int64_t>(loop.launch_queue - 1, times) * std::ssize(step.instructions) +
                  1
            : loop.launch_queue;
    progress.front().queue.ends.assign(static_cast<std::size_t>(queue), far_ahead);
    const Program all = repeated(step, times);
    const Simulation at_once = simulate({&all, 1}, Record::times_only, progress);
    std::vector<Duration> ends;
    for (int i = 0; i < times; ++i) {
        progress = simulate({&step, 1}, Record::times_only, progress).progress;
        ends.push_back(progress.front().device);
    }
    REQUIRE(at_once.progress.front().device == ends.back());
    return ends;
}

TEST_CASE("in a settled loop the slower one of host and device sets the pace", "[loop]") {
    const StepLoop ahead{.starts_idle = false};
    const StepLoop idle{.starts_idle = true};
    // 10 operations, each 5 us to launch and 2 us to run. From idle the last is issued at 50 and
    // ends at 52; a host that goes on at once issues the next step's from 50 on.
    const Program launch_bound = of_operations(std::vector(10, issued(5, 2)));
    CHECK(step_of(launch_bound, idle) == micros(52));
    CHECK(step_of(launch_bound, ahead) == micros(50));
    // 1 us to launch: from idle the first starts at 1, and 10 x 2 follow; in the loop it is issued
    // while the step before runs.
    const Program device_bound = of_operations(std::vector(10, issued(1, 2)));
    CHECK(step_of(device_bound, idle) == micros(21));
    CHECK(step_of(device_bound, ahead) == micros(20));
}

TEST_CASE("a host that loses time in one part of a step wins it back in another", "[loop]") {
    // Forward: 10 operations of 5 us to launch, 1 us to run; backward: 1 us and 9 us. The host
    // needs 60 us, the device 100 us. From idle the device waits until 50 for the last of forward,
    // runs it to 51 and backward to 141. In the loop forward is issued while backward runs.
    std::vector<Instruction> operations(10, issued(5, 1));
    operations.insert(operations.end(), 10, issued(1, 9));
    const Program step = of_operations(operations);
    CHECK(step_of(step, {.starts_idle = true}) == micros(141));
    CHECK(step_of(step, {.starts_idle = false}) == micros(100));
}

TEST_CASE("a host waits for room in its launch queue", "[loop]") {
    std::vector<Instruction> operations(2, issued(10, 1));
    operations.insert(operations.end(), 2, issued(1, 10));
    const Program step = of_operations(operations);
    // One launch at a time: nothing overlaps, 22 us of launching and 22 us of running.
    CHECK(step_of(step, {.starts_idle = false, .launch_queue = 1}) == micros(44));
    // A queue of two, operations a, b, c and d: one is issued once the one before the last has run.
    // Say a, which the device waited for, is issued at -1 and runs until 0. b is issued at 9 and
    // runs until 10; c is issued at 10 and runs until 20; d is issued at 11, as b has run at 10,
    // and runs until 30; the next a is issued from 20 on, when c has run, until 30, and runs
    // until 31.
    CHECK(step_of(step, {.starts_idle = false, .launch_queue = 2}) == micros(31));
    // Four hold the whole step: 22 us each.
    CHECK(step_of(step, {.starts_idle = false, .launch_queue = 4}) == micros(22));

    // As long as the step, the queue has an operation wait for the same one of the step before: the
    // long one is issued when it has run, 100 us to launch and 100 us to run.
    const Program one_long =
        of_operations({issued(3, 3), issued(3, 3), issued(100, 100), issued(1, 1)});
    CHECK(step_of(one_long, {.starts_idle = false, .launch_queue = 4}) == micros(200));
    CHECK(step_of(one_long, {.starts_idle = false, .launch_queue = 5}) == micros(107));
}

TEST_CASE("a CUDA graph is launched while the one before runs", "[loop]") {
    std::vector<Instruction> operations(10, issued(0, 2));
    operations.front().host = micros(15);
    CHECK(step_of(of_operations(operations), {.starts_idle = true}) == micros(35));
    CHECK(step_of(of_operations(operations), {.starts_idle = false}) == micros(20));
    // It is one launch, whatever is in it.
    const auto with_room_for = [&](std::int64_t graphs) {
        return step_of(of_operations(operations),
                       {.starts_idle = false, .launch_queue = graphs, .one_launch = true});
    };
    CHECK(with_room_for(1) == micros(35));
    CHECK(with_room_for(2) == micros(20));
    CHECK(with_room_for(1'000'000) == micros(20));
}

// A step as a GPU's: what launching costs is of the size of what running does.
RandomStep random_gpu_step(std::mt19937& random) {
    const auto between = [&](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    RandomStep step = random_step(random);
    StepInput& input = step.input;
    input.link.host_issue = micros(between(0, 40));
    input.link.host_wait = micros(between(0, 10));
    input.workload.copy_launch = micros(between(0, 10));
    if (between(0, 1) == 0) {
        input.copy_bandwidth = BytesPerSecond{between(1, 100) * 1'000'000'000};
    }
    if (between(0, 2) == 0) {
        input.workload.buffer_groups = {{{4096}, 3}, {{64}, 2}};
    }
    const bool launches_slowly = between(0, 1) == 0;
    const std::int64_t slowest_launch = launches_slowly ? 1000 : 20;
    if (launches_slowly) {
        input.link.segments.front().bandwidth = BytesPerSecond{100'000'000'000};
    }
    for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (TimedOperation& one : *pass) {
            one.host = micros(between(0, slowest_launch));
        }
    }
    input.step = {.accumulation = between(1, 3),
                  .optimizer = micros(between(0, 100)),
                  .optimizer_launch = micros(between(0, 1) * between(0, 2000)),
                  .launch_queue = 1024};
    if (between(0, 5) == 0) {
        input.step.graph_launch = micros(between(0, 500));
    }
    return step;
}

Program closing_of(const RandomStep& step) {
    Program closing;
    build_closing(step.input, step.sync, step.plan, closing);
    return closing;
}

// 50 steps; the last has settled if any has.
struct DirectRun {
    std::vector<Duration> ends;
    [[nodiscard]] Duration last() const { return ends.back() - ends[ends.size() - 2]; }
    [[nodiscard]] bool has_settled() const {
        for (std::size_t i = ends.size() - 5; i < ends.size(); ++i) {
            if (ends[i] - ends[i - 1] != last()) {
                return false;
            }
        }
        return true;
    }
};

DirectRun direct_run(const RandomStep& step) {
    return {ends_of_steps(build_program(step.input, step.sync, step.plan),
                          loop_of(step.input, step.sync), 50)};
}

// The settled step is the last one, or, where they do not settle, their mean. Whether they do.
bool equals_direct_run(const RandomStep& step) {
    const StepBeforeClosing before(step.input, step.sync);
    const DirectRun direct = direct_run(step);
    const Duration found = StepToClose(before).closed_by(closing_of(step)).step();
    if (direct.has_settled()) {
        REQUIRE(found == direct.last());
        return true;
    }
    const double mean = to_us(direct.ends[49] - direct.ends[24]) / 25;
    REQUIRE(to_us(found) == Approx(mean).epsilon(1e-3));
    return false;
}

TEST_CASE(
    "the settled step is the 50th of 50 one after another, to the picosecond, on 1,000 random "
    "programs",
    "[loop]") {
    std::mt19937 random(16);
    int host_bound = 0;
    for (int round = 0; round < 1000; ++round) {
        const RandomStep step = random_gpu_step(random);
        const StepBeforeClosing before(step.input, step.sync);
        const StepToClose loop(before);
        const Program closing = closing_of(step);
        REQUIRE_FALSE(disturbs(closing));
        const DirectRun direct = direct_run(step);
        REQUIRE(direct.has_settled());
        REQUIRE(loop.closed_by(closing).step() == direct.last());
        REQUIRE(loop.step_closed_by(closing) == direct.last());
        const Program whole = build_program(step.input, step.sync, step.plan);
        REQUIRE(step_of(whole, before.loop()) == direct.last());
        Duration issuing{0};
        for (const Instruction& instruction : whole.instructions) {
            issuing += instruction.host;
        }
        host_bound += issuing == direct.last() ? 1 : 0;
    }
    CHECK(host_bound > 100);
    CHECK(host_bound < 900);
}

TEST_CASE("it is with interference, on 1,000 random programs", "[loop]") {
    std::mt19937 random(17);
    int settled = 0;
    for (int round = 0; round < 1000; ++round) {
        RandomStep step = random_gpu_step(random);
        step.input.link.interference = constant_interference({1'150'000, 1'300'000});
        settled += equals_direct_run(step) ? 1 : 0;
    }
    CHECK(settled > 950);
}

TEST_CASE("it is where the launch queue is shorter than the step, on 1,000 random programs",
          "[loop]") {
    std::mt19937 random(18);
    int settled = 0;
    for (int round = 0; round < 1000; ++round) {
        RandomStep step = random_gpu_step(random);
        const std::int64_t whole =
            std::ssize(build_program(step.input, step.sync, step.plan).instructions);
        // As long as the step, too, or one more or less.
        step.input.step.launch_queue = round % 4 == 3 ? whole - 1 + round % 3 : 1 + round % 20;
        if (round % 2 == 0) {
            step.input.link.interference = constant_interference({1'150'000, 1'300'000});
        }
        settled += equals_direct_run(step) ? 1 : 0;
    }
    CHECK(settled > 950);
}

// Some operations are such that the host waits for them; maybe none.
void let_host_wait(std::mt19937& random, StepInput& input) {
    std::bernoulli_distribution waits(0.1);
    for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (TimedOperation& one : *pass) {
            one.host_waits = waits(random);
        }
    }
    for (std::int64_t i = 0; waits(random) || i < 3; ++i) {
        input.step.optimizer_operations.push_back(
            {.name = "update", .device = micros(10 * i), .host = micros(7)});
        input.step.optimizer_operations.back().host_waits = waits(random);
    }
}

TEST_CASE("it is where the host waits for operations, on 1,000 random programs", "[loop]") {
    std::mt19937 random(23);
    int settled = 0;
    int coupled = 0;
    for (int round = 0; round < 1000; ++round) {
        RandomStep step = random_gpu_step(random);
        step.input.step.graph_launch.reset();
        let_host_wait(random, step.input);
        step.input.step.sync_each_step = round % 7 == 0;
        step.input.step.launch_queue = round % 3 == 0 ? 1 + round % 20 : 1024;
        if (round % 2 == 0) {
            step.input.link.interference = constant_interference({1'150'000, 1'300'000});
        }
        coupled += loop_of(step.input, step.sync).host_waits ? 1 : 0;
        if (!step.input.step.sync_each_step) {
            settled += equals_direct_run(step) ? 1 : 0;
        }
    }
    CHECK(settled > 820);  // of 857
    CHECK(coupled > 500);
    CHECK(coupled < 1000);
}

TEST_CASE("a host that waits within a step has launched nothing ahead there", "[loop]") {
    // Ten operations, 1 us to launch and 9 us to run: the device sets the pace, 90 us.
    std::vector<Instruction> operations(10, issued(1, 9));
    const StepLoop loop{.starts_idle = false};
    CHECK(step_of(of_operations(operations), loop) == micros(90));
    // The host waits for the fourth and issues the fifth 1 us later, which the device waits for.
    operations[3].host_waits = true;
    CHECK(step_of(of_operations(operations), {.starts_idle = false, .host_waits = true}) ==
          micros(91));
    // The fifth takes 40 us to launch: the device, idle for as long, sees the step grow by them.
    operations[4].host = micros(40);
    CHECK(step_of(of_operations(operations), {.starts_idle = false, .host_waits = true}) ==
          micros(130));
    // From idle the first operation is waited for, too.
    CHECK(step_of(of_operations(operations), {.starts_idle = true, .host_waits = true}) ==
          micros(131));
}

TEST_CASE("executions that repeat are counted, not run, and end where all of them would",
          "[loop]") {
    std::mt19937 random(22);
    int repeat = 0;
    for (int round = 0; round < 300; ++round) {
        RandomStep step = random_gpu_step(random);
        if (round % 3 == 0) {
            step.input.link.interference = constant_interference({1'150'000, 1'300'000});
        }
        const std::vector<RankClass> classes =
            round % 2 == 0 ? std::vector<RankClass>{} : std::vector<RankClass>{{3, 1.0}, {1, 1.5}};
        const Program program = build_micro_step(step.input, step.sync, 1);
        const std::size_t count = std::max<std::size_t>(classes.size(), 1);
        RankProgress start{.host = -micros(3)};
        start.queue.ends.assign(1 + static_cast<std::size_t>(round) % 20, -micros(5));
        std::vector<RankProgress> one_by_one(count, start);
        for (int i = 0; i < 200; ++i) {
            run_classes(program, classes, 1, one_by_one);
        }
        std::vector<RankProgress> at_once(count, start);
        run_classes(program, classes, 200, at_once);
        for (std::size_t i = 0; i < count; ++i) {
            // The ring may stand elsewhere.
            for (RankProgress* one : {&one_by_one[i], &at_once[i]}) {
                std::rotate(one->queue.ends.begin(),
                            one->queue.ends.begin() + static_cast<std::ptrdiff_t>(one->queue.next),
                            one->queue.ends.end());
                one->queue.next = 0;
            }
            REQUIRE(at_once[i] == one_by_one[i]);
        }
        repeat += at_once.front().device > micros(0) ? 1 : 0;
    }
    CHECK(repeat > 250);
}

TEST_CASE("ranks may begin before others do, with interference or without", "[loop]") {
    Program program = of_operations({issued(0, 200), issued(0, 10)});
    for (const std::int64_t slowdown : {undisturbed_ppm, undisturbed_ppm + 1}) {
        program.collectives.resize(1);
        program.collectives.front().interference = {slowdown, slowdown};
        program.instructions.resize(2);
        program.instructions.push_back({.kind = InstructionKind::launch});
        program.instructions.push_back({.kind = InstructionKind::wait});
        std::vector<RankProgress> progress(2);
        progress[0].device = progress[0].host = -micros(40);
        program.instructions[0].device = micros(200);
        std::vector<Program> ranks{program, program};
        ranks[1].instructions[0].device = micros(100);
        run_programs(ranks, progress);
        CHECK(progress[0].device == micros(170));
        CHECK(progress[1].device == micros(170));
    }
}

TEST_CASE("a settled step begins where it ends, so that it can be drawn", "[loop]") {
    std::mt19937 random(19);
    for (int round = 0; round < 300; ++round) {
        RandomStep step = random_gpu_step(random);
        step.input.step.launch_queue = round % 3 == 0 ? 5 : 1024;
        const Program whole = build_program(step.input, step.sync, step.plan);
        const StepLoop loop = loop_of(step.input, step.sync);
        const RankProgress start = settled_start(whole, loop);
        CHECK(start.device == Duration{0});
        CHECK(start.host <= Duration{0});
        CHECK((loop.one_launch || std::ssize(start.queue.ends) <= loop.launch_queue));
        const Simulation simulation = simulate({&whole, 1}, Record::timeline, start);
        CHECK(simulation.ranks.front() == settled_times(whole, loop));
        const RankProgress& end = simulation.progress.front();
        CHECK(end.device == simulation.ranks.front().step());
        CHECK(end.host - end.device == start.host);
    }
}

TEST_CASE("a step that reads something back starts from idle", "[loop]") {
    std::mt19937 random(20);
    for (int round = 0; round < 300; ++round) {
        RandomStep step = random_gpu_step(random);
        step.input.step.sync_each_step = true;
        const StepBeforeClosing before(step.input, step.sync);
        const StepTimes times = simulate_times(build_program(step.input, step.sync, step.plan));
        CHECK(StepToClose(before).closed_by(closing_of(step)) == times);
    }
}

TEST_CASE("ranks of which one is slower settle at the pace of the slowest", "[loop]") {
    std::mt19937 random(21);
    for (int round = 0; round < 300; ++round) {
        RandomStep step = random_gpu_step(random);
        step.input.classes = {{3, 1.0}, {1, 1.5}};
        if (round % 2 == 0) {
            step.input.link.interference = constant_interference({1'150'000, 1'300'000});
        }
        const StepBeforeClosing before(step.input, step.sync);
        const Program closing = closing_of(step);
        const std::vector<Program> whole = programs_of_classes(
            repeated(build_program(step.input, step.sync, step.plan), 50), step.input.classes);
        std::vector<RankProgress> progress(whole.size());
        run_programs(whole, progress);
        const std::vector<Program> but_one = programs_of_classes(
            repeated(build_program(step.input, step.sync, step.plan), 49), step.input.classes);
        std::vector<RankProgress> earlier(whole.size());
        run_programs(but_one, earlier);
        const Duration last = std::max(progress[0].device, progress[1].device) -
                              std::max(earlier[0].device, earlier[1].device);
        const Duration found = StepToClose(before).closed_by(closing).step();
        CHECK(to_us(found) == Approx(to_us(last)).epsilon(round % 2 == 0 ? 1e-3 : 1e-12));
    }
}

}  // namespace
}  // namespace bucketwise
