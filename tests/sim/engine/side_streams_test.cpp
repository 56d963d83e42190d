// Operations beside the compute stream, and what waits for what: against an oracle and by hand.
#include "tests/oracle/streams.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/engine/varied_steps.h"
#include "sim/program/step_programs.h"
#include "tests/catch.h"
#include "tests/sim/engine/random_program.h"
#include "tests/sim/engine/random_step.h"

namespace bucketwise {
namespace {

Duration stream_us(std::int64_t count) {
    return std::chrono::microseconds{count};
}

constexpr std::uint8_t after_compute = 1;
constexpr std::uint8_t after_first = 2;

Instruction on_stream(std::int64_t host_us, std::int64_t device_us, StreamOrder order = {}) {
    Instruction instruction{InstructionKind::backward, Phase::backward,     {}, 0,
                            stream_us(host_us),        stream_us(device_us)};
    instruction.order = order;
    return instruction;
}

Program program_of_streams(std::vector<Instruction> operations) {
    Program program;
    program.instructions = std::move(operations);
    return program;
}

Duration step_from_idle(const Program& program) {
    return simulate_times(program).step();
}

Duration settled_step(const Program& program, std::int64_t queue = 1024, bool host_waits = false) {
    return settled_times(program, {.starts_idle = false,
                                   .launch_queue = queue,
                                   .host_waits = host_waits,
                                   .side_streams = true})
        .step();
}

TEST_CASE("what nobody waits for takes nothing of a step but its launch", "[streams]") {
    // Issued at 1, 2 and 3; the compute stream runs from 1 to 11 and, at once, to 21.
    const Program program =
        program_of_streams({on_stream(1, 10), on_stream(1, 500, {1}), on_stream(1, 10)});
    CHECK(step_from_idle(program) == stream_us(21));
    CHECK(step_from_idle(with_free_launches(program)) == stream_us(20));
}

TEST_CASE("an operation begins when all has ended that it is after", "[streams]") {
    // On the side stream from 2 to 52: what is after it begins there.
    CHECK(step_from_idle(program_of_streams(
              {on_stream(1, 10), on_stream(1, 50, {1}), on_stream(1, 10, {0, after_first})})) ==
          stream_us(62));
    // After computing from 11 to 61.
    CHECK(step_from_idle(program_of_streams({on_stream(1, 10), on_stream(1, 50, {1, after_compute}),
                                             on_stream(1, 10, {0, after_first})})) ==
          stream_us(71));
    // Two on one side stream run one after the other: until 102.
    CHECK(step_from_idle(
              program_of_streams({on_stream(1, 10), on_stream(1, 50, {1}), on_stream(0, 50, {1}),
                                  on_stream(1, 10, {0, after_first})})) == stream_us(112));
    // On two streams: the second waits for nothing, the third for both.
    CHECK(step_from_idle(program_of_streams({on_stream(1, 10), on_stream(1, 50, {1}),
                                             on_stream(0, 70, {2}), on_stream(0, 5, {3, 2 + 4}),
                                             on_stream(1, 10, {0, 8})})) == stream_us(87));
    // Only what was issued before is waited for.
    CHECK(step_from_idle(program_of_streams({on_stream(1, 10), on_stream(1, 10, {0, after_first}),
                                             on_stream(1, 50, {1})})) == stream_us(21));
}

TEST_CASE("the host waits for what runs on a side stream", "[streams]") {
    Program program =
        program_of_streams({on_stream(1, 10), on_stream(1, 50, {1}), on_stream(1, 10)});
    program.instructions[1].host_waits = true;
    // Until 52; the next is issued at 53.
    CHECK(step_from_idle(program) == stream_us(63));
    CHECK(step_from_idle(without_host_waits(program)) == stream_us(21));
}

TEST_CASE("a queue of launches is full of what runs on side streams, too", "[streams]") {
    // The third is issued when the first has run, at 51, until 52.
    Program program = program_of_streams({on_stream(1, 50, {1}), on_stream(1, 1), on_stream(1, 1)});
    RankProgress start;
    start.queue.ends.assign(2, Duration{0});
    CHECK(simulate_times(program, start).step() == stream_us(53));
}

TEST_CASE("what runs on a side stream is no computing", "[streams]") {
    Program program = program_of_streams({on_stream(0, 10), on_stream(0, 50, {1, after_compute}),
                                          on_stream(0, 10, {0, after_first})});
    CHECK(step_from_idle(with_slower_computing(program, 2)) == stream_us(90));
    CHECK(step_from_idle(without_side_streams(program)) == stream_us(20));
    // A collective of 30 from 10 on: beside the side stream neither slows the other. Twice as slow
    // if it were computing.
    program.collectives.push_back({CollectiveKind::all_reduce, GradientsOf{}, {1}, stream_us(30)});
    program.collectives.front().interference = {2'000'000, 2'000'000};
    program.instructions.insert(program.instructions.begin() + 1,
                                {.kind = InstructionKind::launch, .phase = Phase::backward});
    const Simulation simulation = simulate({&program, 1}, Record::timeline);
    CHECK(simulation.ranks.front().step() == stream_us(70));
    for (const Span& span : simulation.timeline.spans) {
        if (span.track == Track::communication) {
            CHECK(span.end == stream_us(40));
        } else if (span.track == Track::side) {
            CHECK(span.start == stream_us(10));
            CHECK(span.end == stream_us(60));
        }
    }
    StepInput input;
    input.workload.forward = {{.name = "a", .device = stream_us(4)},
                              {.name = "b", .device = stream_us(4), .order = {1}}};
    scale_computing(input, 2);
    CHECK(input.workload.forward[0].device == stream_us(8));
    CHECK(input.workload.forward[1].device == stream_us(4));
}

TEST_CASE("what is left on side streams goes on into the next step", "[streams]") {
    // The last one begins when the second has ended, runs for 50, and then the next step's second,
    // which takes 5.
    const Program program = program_of_streams({on_stream(0, 15), on_stream(0, 5, {0, after_first}),
                                                on_stream(0, 50, {1, after_compute})});
    CHECK(step_from_idle(program) == stream_us(20));
    CHECK(settled_step(program) == stream_us(55));
    // Within the 15 it costs nothing.
    CHECK(settled_step(program_of_streams({on_stream(0, 15), on_stream(0, 5, {0, after_first}),
                                           on_stream(0, 12, {1, after_compute})})) ==
          stream_us(20));
    // A step that starts idle ends when it has ended.
    StepInput input;
    input.workload.side_streams = {"other"};
    input.step.optimizer_operations = {
        {.name = "a", .device = stream_us(15)},
        {.name = "b", .device = stream_us(50), .order = {1, after_compute}}};
    input.step.sync_each_step = true;
    CHECK(step_from_idle(build_program(input, {}, {})) == stream_us(65));
    input.step.sync_each_step = false;
    CHECK(step_from_idle(build_program(input, {}, {})) == stream_us(15));
}

TEST_CASE("a side stream with more to do than the step is long sets the pace", "[streams]") {
    // Nothing waits for it but the host, once its queue is full.
    for (const std::int64_t queue : {4, 5, 16, 1024, 1'000'000}) {
        const Program program =
            program_of_streams({on_stream(1, 10), on_stream(1, 50, {1}), on_stream(1, 10)});
        CHECK(settled_step(program, queue) == stream_us(50));
        Program waits = program;
        waits.instructions[2].host_waits = true;
        CHECK(settled_step(waits, queue, true) == stream_us(50));
    }
    // The host's launches do.
    CHECK(settled_step(program_of_streams({on_stream(30, 10), on_stream(30, 50, {1})})) ==
          stream_us(60));
}

// ---- The oracle ---------------------------------------------------------------------------------

std::vector<oracle::StreamItem> items_of(const Program& program) {
    std::vector<oracle::StreamItem> items;
    for (const Instruction& instruction : program.instructions) {
        oracle::StreamItem item;
        item.host_ps = instruction.host.count();
        item.device_ps = instruction.device.count();
        item.stream = instruction.order.stream;
        item.host_waits = instruction.host_waits;
        for (int stream = 0; stream < 16; ++stream) {
            if ((instruction.order.after & (1 << stream)) != 0) {
                item.after.insert(stream);
            }
        }
        if (instruction.kind == InstructionKind::launch) {
            item.kind = oracle::StreamItem::Kind::launch;
            const Collective& collective =
                program.collectives[static_cast<std::size_t>(instruction.subject)];
            item.device_ps = collective.time.count();
            item.placing_ps = collective.placing.count();
        } else if (instruction.kind == InstructionKind::wait) {
            item.kind = oracle::StreamItem::Kind::wait;
            item.collective = static_cast<std::size_t>(instruction.subject);
        }
        items.push_back(item);
    }
    return items;
}

TEST_CASE("streams equal the recurrence, to the picosecond, on 1,000 random programs",
          "[streams]") {
    std::mt19937 random(31);
    for (int round = 0; round < 1000; ++round) {
        const Program program =
            with_random_times(with_side_streams(random_outline(random), random), random);
        const std::size_t queue = round % 3 == 0 ? 1U + static_cast<std::size_t>(round) % 20 : 1024;
        const std::vector<std::int64_t> expected =
            oracle::ends_of_steps(items_of(program), 5, queue);
        RankProgress start;
        start.queue.ends.assign(queue, far_ahead);
        std::vector<RankProgress> by_events{start};
        std::vector<RankProgress> at_once{start};
        RankProgress one = start;
        for (const std::int64_t end : expected) {
            by_events = simulate({&program, 1}, Record::times_only, by_events).progress;
            REQUIRE(by_events.front().device.count() == end);
            run_undisturbed({&program, 1}, at_once);
            REQUIRE(at_once.front().device.count() == end);
            run_disturbed(program, one);
            REQUIRE(one.device.count() == end);
        }
    }
}

// A step with side streams, as a GPU's, and what the oracle says of 50 of them.
struct SideStep {
    RandomStep step;
    std::int64_t queue = 1024;
    std::vector<std::int64_t> ends;

    explicit SideStep(std::mt19937& random, std::int64_t launch_queue) : queue(launch_queue) {
        const auto between = [&](std::int64_t low, std::int64_t high) {
            return std::uniform_int_distribution<std::int64_t>(low, high)(random);
        };
        step = random_step(random);
        StepInput& input = step.input;
        input.link.host_issue = stream_us(between(0, 40));
        input.step.accumulation = between(1, 3);
        input.step.launch_queue = queue;
        input.workload.side_streams = {"a", "b"};
        const std::int64_t slowest_launch = between(0, 1) == 0 ? 1000 : 20;
        const auto order = [&] {
            return StreamOrder{
                static_cast<std::uint8_t>(std::max<std::int64_t>(between(-4, 2), 0)),
                static_cast<std::uint8_t>(std::max<std::int64_t>(between(-7, 7), 0))};
        };
        for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
            std::vector<TimedOperation> with_others;
            for (TimedOperation& one : *pass) {
                one.host = stream_us(between(0, slowest_launch));
                one.order.after = order().after;
                with_others.push_back(one);
                if (between(0, 2) == 0) {
                    with_others.push_back({.name = "beside",
                                           .device = stream_us(between(0, 600)),
                                           .host = stream_us(between(0, 10)),
                                           .order = order()});
                    with_others.back().host_waits = between(0, 20) == 0;
                }
            }
            *pass = with_others;
        }
        input.step.optimizer_operations = {
            {.name = "update", .device = stream_us(between(0, 100)), .host = stream_us(7)},
            {.name = "prefetch",
             .device = stream_us(between(0, 3000)),
             .host = stream_us(3),
             .order = {2, static_cast<std::uint8_t>(between(0, 1))}}};
        ends = oracle::ends_of_steps(items_of(build_program(input, step.sync, step.plan)), 50,
                                     static_cast<std::size_t>(queue));
    }
    [[nodiscard]] std::int64_t length(std::size_t i) const { return ends[i] - ends[i - 1]; }
    [[nodiscard]] bool has_settled() const {
        for (std::size_t i = ends.size() - 10; i < ends.size(); ++i) {
            if (length(i) != length(ends.size() - 1)) {
                return false;
            }
        }
        return true;
    }
    [[nodiscard]] StepTimes settled() const {
        const StepBeforeClosing before(step.input, step.sync);
        Program closing;
        build_closing(step.input, step.sync, step.plan, closing);
        return StepToClose(before).closed_by(closing);
    }
    // The most that any side stream has to do in a step.
    [[nodiscard]] Duration most_beside() const {
        std::vector<Duration> work(most_side_streams + 1);
        for (const Instruction& one :
             build_program(step.input, step.sync, step.plan).instructions) {
            work[one.order.stream] += one.device;
        }
        return std::max(work[1], work[2]);
    }
};

TEST_CASE("a settled step with side streams is the oracle's 50th, on 1,000 random programs",
          "[streams][loop]") {
    std::mt19937 random(37);
    int settled = 0;
    int behind = 0;
    for (int round = 0; round < 1000; ++round) {
        const SideStep step(random, round % 2 == 0 ? 1024 : 30 + round % 60);
        const Duration found = step.settled().step();
        REQUIRE(found >= step.most_beside());
        if (!step.has_settled()) {
            continue;
        }
        if (step.length(49) < step.most_beside().count()) {
            ++behind;  // its queue is not full yet
            continue;
        }
        INFO(round);
        REQUIRE(found.count() == step.length(49));
        ++settled;
    }
    CHECK(settled > 700);
    CHECK(behind < 100);
}

TEST_CASE("executions with side streams that repeat are counted, not run", "[streams][loop]") {
    std::mt19937 random(41);
    for (int round = 0; round < 300; ++round) {
        const Program program =
            with_random_times(with_side_streams(random_outline(random), random), random);
        RankProgress start;
        start.queue.ends.assign(1 + static_cast<std::size_t>(round) % 20, Duration{0});
        std::vector<RankProgress> one_by_one{start};
        std::vector<RankProgress> at_once{start};
        for (int i = 0; i < 100; ++i) {
            run_classes(program, {}, 1, one_by_one);
        }
        run_classes(program, {}, 100, at_once);
        for (std::vector<RankProgress>* progress : {&one_by_one, &at_once}) {
            RankProgress& one = progress->front();
            std::rotate(one.queue.ends.begin(),
                        one.queue.ends.begin() + static_cast<std::ptrdiff_t>(one.queue.next),
                        one.queue.ends.end());
            one.queue.next = 0;
            one.sides.forget_before(one.host);
        }
        REQUIRE(at_once == one_by_one);
    }
}

TEST_CASE("a settled step with side streams begins where it ends", "[streams][loop]") {
    std::mt19937 random(43);
    for (int round = 0; round < 200; ++round) {
        const SideStep step(random, 30 + round % 60);
        const Program whole = build_program(step.step.input, step.step.sync, step.step.plan);
        const StepLoop loop = loop_of(step.step.input, step.step.sync);
        const RankProgress start = settled_start(whole, loop);
        CHECK(start.device == Duration{0});
        const Simulation simulation = simulate({&whole, 1}, Record::timeline, start);
        if (step.has_settled()) {
            CHECK(simulation.ranks.front() == settled_times(whole, loop));
        }
    }
}

}  // namespace
}  // namespace bucketwise
