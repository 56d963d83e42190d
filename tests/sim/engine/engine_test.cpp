#include "sim/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "sim/engine/step_loop.h"
#include "sim/engine/step_parts.h"
#include "sim/program/step_programs.h"
#include "tests/catch.h"
#include "tests/oracle/recurrence.h"
#include "tests/sim/engine/random_step.h"

namespace bucketwise {
namespace {

Instruction compute(std::int64_t us, Duration host = Duration{0}, Phase phase = Phase::backward) {
    return {
        InstructionKind::backward, phase, {}, 0, host, duration_from_us(static_cast<double>(us))};
}
Instruction launch(std::int32_t collective, Duration host = Duration{0}) {
    return {InstructionKind::launch, Phase::backward, {}, collective, host, Duration{0}};
}
Instruction wait(std::int32_t collective) {
    return {InstructionKind::wait, Phase::backward, {}, collective, Duration{0}, Duration{0}};
}
Collective all_reduce(std::int64_t us) {
    return {
        CollectiveKind::all_reduce, GradientsOf{}, {1}, duration_from_us(static_cast<double>(us))};
}
Duration us(std::int64_t count) {
    return std::chrono::microseconds{count};
}

std::vector<Span> spans_on(const Simulation& simulation, Track track) {
    std::vector<Span> spans;
    for (const Span& span : simulation.timeline.spans) {
        if (span.track == track) {
            spans.push_back(span);
        }
    }
    return spans;
}

Simulation run(const Program& program) {
    return simulate({&program, 1}, Record::timeline);
}

TEST_CASE("collectives queue on one stream, first in, first out") {
    Program program;
    program.instructions = {compute(10), launch(0), compute(10), launch(1), wait(0), wait(1)};
    program.collectives = {all_reduce(30), all_reduce(5)};
    // 0 runs 10-40 under the second operation (10-20); 1 is ready at 20, starts at 40, ends at 45.
    const Simulation simulation = run(program);
    const std::vector<Span> communication = spans_on(simulation, Track::communication);
    REQUIRE(communication.size() == 2);
    CHECK(communication[0].start == us(10));
    CHECK(communication[0].end == us(40));
    CHECK(communication[1].start == us(40));
    CHECK(communication[1].end == us(45));
    CHECK(simulation.ranks.front().step() == us(45));
}

TEST_CASE("a host that launches slower than the device runs makes the step launch-bound") {
    Program program;
    // 10 operations of 2 us, each 5 us to launch: the last is issued at 50 and ends at 52.
    program.instructions.assign(10, compute(2, us(5)));
    CHECK(simulate_times(program).step() == us(52));
    // Launching 1 us each: the first starts at 1, and the device is the limit: 1 + 20 = 21.
    program.instructions.assign(10, compute(2, us(1)));
    CHECK(simulate_times(program).step() == us(21));
    // Where the host is the device, both add up: 10 x 3 = 30.
    program.host_is_device = true;
    CHECK(simulate_times(program).step() == us(30));
}

TEST_CASE("a collective waits for the host to issue it") {
    Program program;
    program.instructions = {compute(10), launch(0, us(25)), wait(0)};
    program.collectives = {all_reduce(5)};
    // Issued at 25 although its gradient is ready at 10: 25 + 5 = 30.
    CHECK(simulate_times(program).step() == us(30));
}

void disturb(Program& program, const Interference& interference) {
    for (Collective& collective : program.collectives) {
        collective.interference = interference;
    }
}

TEST_CASE("interference slows both sides while both are active, and only then") {
    Program program;
    program.instructions = {compute(10), launch(0), compute(30), compute(8), wait(0)};
    program.collectives = {all_reduce(20)};
    disturb(program, {1'500'000, 2'000'000});
    // Until 10 alone. Then compute at 1/1.5 and communication at 1/2: the 20 us of communication
    // would take 40 us, the 38 us of compute 57 us. At 50 communication ends; compute has done
    // 40/1.5 = 26.67 and has 11.33 left at full speed: 61.33 us.
    const Simulation simulation = run(program);
    CHECK(spans_on(simulation, Track::communication).front().end == us(50));
    CHECK(to_us(simulation.ranks.front().step()) == Approx(10 + 40 + (38 - 40 / 1.5)));
}

TEST_CASE("communication speeds up again when computing ends first") {
    Program program;
    program.instructions = {compute(10), launch(0), compute(10), wait(0)};
    program.collectives = {all_reduce(30)};
    disturb(program, {2'000'000, 4'000'000});
    // 10-30: compute's 10 us at half speed; communication does 20/4 = 5 of its 30. Then 25 alone:
    // 55 us.
    CHECK(simulate_times(program).step() == us(55));
}

TEST_CASE("computing runs as slow as the collective in flight makes it") {
    Program program;
    program.instructions = {launch(0), launch(1), compute(20), wait(0), wait(1)};
    program.collectives = {all_reduce(10), all_reduce(10)};
    program.collectives[0].interference.compute_slowdown_ppm = 2'000'000;
    program.collectives[1].interference.compute_slowdown_ppm = 4'000'000;
    // 10 us at half speed do 5, 10 us at a quarter do 2.5, the other 12.5 alone: 32.5 us.
    CHECK(to_us(simulate_times(program).step()) == Approx(32.5));
}

// When each collective begins and ends, in order. One rank without a queue of events agrees.
std::vector<std::pair<Duration, Duration>> moments_on_stream(const Program& program) {
    const Simulation simulation = run(program);
    CHECK(simulate_times(program) == simulation.ranks.front());
    std::vector<std::pair<Duration, Duration>> moments;
    for (const Span& span : spans_on(simulation, Track::communication)) {
        moments.emplace_back(span.start, span.end);
    }
    return moments;
}

using Moments = std::vector<std::pair<Duration, Duration>>;

TEST_CASE("a collective that could start beside computing waits for its start delay") {
    Program program;
    program.instructions = {compute(10), launch(0), compute(30), wait(0)};
    program.collectives = {all_reduce(20)};
    disturb(program, {.start_delay = us(5)});
    // Could start at 10, when the next operation does: 10 + 5, and 20 on the wire. Computing ends
    // at 40.
    CHECK(moments_on_stream(program) == Moments{{us(15), us(35)}});
    CHECK(simulate_times(program).step() == us(40));
    // Until 15 nothing is in flight to slow the operation: 5 of its 30 are done. While the
    // collective is, 15-35, it does 20 / 2 = 10; the other 15 alone: 35 + 15 = 50.
    disturb(program, {.compute_slowdown_ppm = 2'000'000, .start_delay = us(5)});
    CHECK(moments_on_stream(program) == Moments{{us(15), us(35)}});
    CHECK(simulate_times(program).step() == us(50));
    // Ten operations of 3 without a gap are no other computing than one of 30.
    program.instructions.assign(10, compute(3));
    program.instructions.insert(program.instructions.begin(), {compute(10), launch(0)});
    program.instructions.push_back(wait(0));
    CHECK(moments_on_stream(program) == Moments{{us(15), us(35)}});
    CHECK(simulate_times(program).step() == us(50));
}

TEST_CASE("a collective that waits for room starts as soon as computing ends") {
    Program program;
    program.instructions = {compute(10), launch(0), compute(3), wait(0)};
    program.collectives = {all_reduce(20)};
    disturb(program, {.communication_slowdown_ppm = 2'000'000, .start_delay = us(5)});
    // At 10 + 3, before 10 + 5; and then alone: 13 + 20 = 33.
    CHECK(moments_on_stream(program) == Moments{{us(13), us(33)}});
    CHECK(simulate_times(program).step() == us(33));
    // Computing ends when the delay does: at 15 either way.
    program.instructions[2] = compute(5);
    CHECK(moments_on_stream(program) == Moments{{us(15), us(35)}});
    // A gap of the host's is an end too: the operation after it is issued at 20.
    program.instructions = {compute(10), launch(0), compute(3), compute(30, us(20)), wait(0)};
    // From 13 to 20 alone: 7 of 20. The other 13 beside computing: 26, until 46.
    CHECK(moments_on_stream(program) == Moments{{us(13), us(46)}});
}

TEST_CASE("a collective starts without delay where nothing computes") {
    Program program;
    program.instructions = {compute(10), launch(0), wait(0), compute(30)};
    program.collectives = {all_reduce(20)};
    disturb(program, {.start_delay = us(5)});
    CHECK(moments_on_stream(program) == Moments{{us(10), us(30)}});
    CHECK(simulate_times(program).step() == us(60));
    // The next operation is issued at 11 only: nothing computes at 10, and from 11 on the
    // collective is in flight already.
    program.instructions = {compute(10), launch(0), compute(30, us(11)), wait(0)};
    CHECK(moments_on_stream(program) == Moments{{us(10), us(30)}});
    CHECK(simulate_times(program).step() == us(41));
}

TEST_CASE("a collective that queued waits for its own start delay after the one before") {
    Program program;
    program.instructions = {launch(0), launch(1), launch(2), compute(35),
                            wait(0),   wait(1),   wait(2)};
    program.collectives = {all_reduce(10), all_reduce(10), all_reduce(10)};
    disturb(program, {.start_delay = us(3)});
    program.collectives[1].interference.start_delay = us(4);
    // 0 + 3, and 10 on the wire: until 13. 13 + 4, until 27. 27 + 3, until 40.
    CHECK(moments_on_stream(program) ==
          Moments{{us(3), us(13)}, {us(17), us(27)}, {us(30), us(40)}});
    CHECK(simulate_times(program).step() == us(40));
    // Computing ends at 15: the second begins there, and the third at once after it.
    program.instructions[3] = compute(15);
    CHECK(moments_on_stream(program) ==
          Moments{{us(3), us(13)}, {us(15), us(25)}, {us(25), us(35)}});
    // A rank that waits for the first and continues at once computes when the second could start:
    // 0-10 alone, 10 + 4, until 24; 24 + 3, until 37.
    program.instructions = {launch(0), launch(1), launch(2), wait(0), compute(50)};
    CHECK(moments_on_stream(program) ==
          Moments{{us(0), us(10)}, {us(14), us(24)}, {us(27), us(37)}});
}

TEST_CASE("a collective waits for room while any rank computes") {
    Program r0;
    r0.instructions = {compute(10), launch(0), wait(0)};
    r0.collectives = {all_reduce(20)};
    disturb(r0, {.start_delay = us(5)});
    Program r1 = r0;
    r1.instructions = {compute(8), launch(0), compute(30), wait(0)};
    // Both have launched at 10, r1 computes 8-38: 10 + 5, until 35.
    const std::vector<Program> ranks{r0, r1};
    const Simulation simulation = simulate(ranks, Record::times_only);
    CHECK(simulation.ranks[0].step() == us(35));
    CHECK(simulation.ranks[1].step() == us(38));
}

TEST_CASE("a straggler holds everybody") {
    Program fast;
    fast.instructions = {compute(10), launch(0), wait(0)};
    fast.collectives = {all_reduce(5)};
    Program slow = fast;
    slow.instructions[0] = compute(100);
    const std::vector<Program> ranks{fast, slow, fast};
    const Simulation simulation = simulate(ranks, Record::timeline);
    for (const StepTimes& times : simulation.ranks) {
        CHECK(times.step() == us(105));
    }
    CHECK(spans_on(simulation, Track::communication).front().start == us(100));
}

TEST_CASE("equal ranks simulated one by one equal the one that stands for all") {
    Program program;
    program.instructions = {compute(7), launch(0), compute(11), launch(1),
                            compute(3), wait(0),   wait(1)};
    program.collectives = {all_reduce(9), all_reduce(13)};
    disturb(program, {1'300'000, 1'700'000});
    const std::vector<Program> ranks(8, program);
    const Simulation all = simulate(ranks, Record::times_only);
    for (const StepTimes& times : all.ranks) {
        CHECK(times == simulate_times(program));
    }
}

TEST_CASE("rates are right whatever the order of ranks, when one collective follows another") {
    // r0 computes after A while r1 only then issues B: compute starts and B starts in the same
    // event.
    Program r0;
    r0.instructions = {launch(0), launch(1), wait(0), compute(100)};
    r0.collectives = {all_reduce(100), all_reduce(1000)};
    disturb(r0, {2'000'000, 1'000'000});
    Program r1 = r0;
    r1.instructions = {launch(0), wait(0), launch(1), wait(1)};
    // A until 100 us, B from then on; r0's 100 us take 200: until 300.
    const std::vector<Program> one_order{r0, r1};
    const std::vector<Program> other_order{r1, r0};
    CHECK(simulate(one_order, Record::times_only).ranks[0].step() == us(300));
    CHECK(simulate(other_order, Record::times_only).ranks[1].step() == us(300));
}

// ---- Random steps against the oracle ------------------------------------------------------------

// When each bucket may launch, from its gradients' readiness and the launch rule alone, in launch
// order.
std::vector<std::pair<std::int64_t, std::int64_t>> ready_and_bytes(const RandomStep& step,
                                                                   Duration backward) {
    std::vector<std::pair<std::int64_t, std::int64_t>> buckets;
    std::vector<std::ptrdiff_t> filled_at;
    const std::vector<std::int32_t>& order = step.input.workload.readiness;
    for (const Bucket& bucket : step.plan.buckets) {
        std::int64_t ready = 0;
        std::ptrdiff_t position = 0;
        for (const std::int32_t i : bucket.gradients) {
            ready = std::max(ready, step.gradients[static_cast<std::size_t>(i)].ready.count());
            position = std::max(position, std::find(order.begin(), order.end(), i) - order.begin());
        }
        if (step.sync.policy.launch == LaunchRule::after_backward) {
            ready = backward.count();
        }
        buckets.emplace_back(ready, bucket.size.count);
        filled_at.push_back(position);
    }
    if (step.sync.policy.launch == LaunchRule::as_filled) {
        std::vector<std::size_t> by_filling(buckets.size());
        for (std::size_t i = 0; i < by_filling.size(); ++i) {
            by_filling[i] = i;
        }
        std::sort(by_filling.begin(), by_filling.end(),
                  [&](std::size_t a, std::size_t b) { return filled_at[a] < filled_at[b]; });
        std::vector<std::pair<std::int64_t, std::int64_t>> reordered;
        for (const std::size_t i : by_filling) {
            reordered.push_back(buckets[i]);
        }
        return reordered;
    }
    // In order: a bucket launches when it and every earlier one are full.
    for (std::size_t i = 1; i < buckets.size(); ++i) {
        buckets[i].first = std::max(buckets[i].first, buckets[i - 1].first);
    }
    return buckets;
}

TEST_CASE("without interference the engine equals the recurrence, on 2,000 random steps") {
    std::mt19937 random(42);
    for (int round = 0; round < 2000; ++round) {
        const RandomStep step = random_step(random);
        const Program program = build_program(step.input, step.sync, step.plan);
        const Simulation simulation = run(program);

        const Duration forward = step.input.workload.forward.front().device;
        Duration backward{0};
        for (const TimedOperation& operation : step.input.workload.backward) {
            backward += operation.device;
        }
        std::vector<std::int64_t> ready;
        std::vector<std::int64_t> cost;
        for (const auto& [at, bytes] : ready_and_bytes(step, backward)) {
            ready.push_back(forward.count() + at);
            cost.push_back(std::llround(oracle::ring_all_reduce_ps(
                bytes, step.input.group.ranks, step.launch_us, step.latency_us, step.gb_per_s)));
            if (step.input.group.ranks == 1) {
                cost.back() = std::llround(step.launch_us * 1e6);
            }
        }
        const oracle::BucketTimes expected = oracle::recurrence(ready, cost);
        const std::vector<Span> actual = spans_on(simulation, Track::communication);
        REQUIRE(actual.size() == expected.start_ps.size());
        // The oracle computes each cost in floating point: it may differ by a picosecond a bucket.
        const auto tolerance = static_cast<std::int64_t>(actual.size());
        for (std::size_t b = 0; b < actual.size(); ++b) {
            CHECK(std::abs(actual[b].start.count() - expected.start_ps[b]) <= tolerance);
            CHECK(std::abs(actual[b].end.count() - expected.end_ps[b]) <= tolerance);
        }
        const std::int64_t end = std::max((forward + backward).count(), expected.end_ps.back());
        CHECK(std::abs(simulation.ranks.front().step().count() - end) <= tolerance);
        CHECK(simulation.ranks.front().forward == forward);
    }
}

// The time within [start, end) during which any of the sorted, disjoint spans is active.
Duration overlap(Duration start, Duration end, const std::vector<Span>& spans) {
    Duration sum{0};
    for (const Span& span : spans) {
        sum += std::max(std::min(end, span.end) - std::max(start, span.start), Duration{0});
    }
    return sum;
}

// Work that is not done in `overlapped` of disturbed time.
double work_lost(Duration overlapped, std::int64_t slowdown_ppm) {
    return static_cast<double>(overlapped.count()) * (1 - 1e6 / static_cast<double>(slowdown_ppm));
}

const Interference& slowdown_of(const Program& program, const Span& collective) {
    return program.collectives[static_cast<std::size_t>(collective.subject)].interference;
}

double length_of(const Span& span) {
    return static_cast<double>((span.end - span.start).count());
}

TEST_CASE("a step simulated in parts equals the step simulated whole, on 500 random steps") {
    std::mt19937 random(77);
    for (int round = 0; round < 500; ++round) {
        RandomStep step = random_step(random);
        step.input.link.interference = constant_interference({1'100'000, 1'200'000});
        step.input.link.host_issue = us(round % 50);
        step.input.copy_bandwidth = BytesPerSecond{1'000'000'000};
        step.input.workload.copy_launch = us(round % 7);
        if (round % 2 == 0) {
            step.input.workload.buffer_groups = {{{4096}, 3}, {{64}, 2}};
        }
        if (round % 7 == 0) {
            step.input.workload.forward.clear();
        }
        step.input.workload.host_is_device = round % 3 == 0;
        step.input.step = {1 + round % 4, us(5)};
        if (round % 5 < 2) {  // begins in each of the parts, whichever is the first
            step.input.step.graph_launch = us(13);
        }
        for (TimedOperation& operation : step.input.workload.backward) {
            operation.host = us(round % 11);
        }
        RankProgress progress;
        const auto run_part = [&](const Program& part) {
            progress = simulate({&part, 1}, Record::times_only, progress).progress.front();
        };
        run_part(build_opening(step.input, step.sync));
        for (std::int64_t i = 0; i + 1 < step.input.step.accumulation; ++i) {
            run_part(build_micro_step(step.input, step.sync, i));
        }
        run_part(build_last_forward(step.input, step.sync));
        Program closing;
        build_closing(step.input, step.sync, step.plan, closing);
        const StepTimes whole = simulate_times(build_program(step.input, step.sync, step.plan));
        CHECK(simulate_times(closing, progress) == whole);
        step.input.step.sync_each_step = true;
        const StepBeforeClosing before(step.input, step.sync);
        CHECK(StepToClose(before).closed_by(closing) == whole);
    }
}

TEST_CASE("a CUDA graph is one launch, after which nothing costs the host, on 500 random steps") {
    std::mt19937 random(78);
    for (int round = 0; round < 500; ++round) {
        RandomStep step = random_step(random);
        step.input.link.interference = constant_interference({1'100'000, 1'200'000});
        step.input.link.host_issue = us(round % 50);
        step.input.copy_bandwidth = BytesPerSecond{1'000'000'000};
        step.input.workload.copy_launch = us(round % 7);
        if (round % 2 == 0) {
            step.input.workload.buffer_groups = {{{4096}, 3}};
        }
        step.input.step = {1 + round % 3, us(5)};
        for (TimedOperation& operation : step.input.workload.forward) {
            operation.host = us(round % 11);
        }
        const Program launched_for_free =
            with_free_launches(build_program(step.input, step.sync, step.plan));
        step.input.step.graph_launch = us(17);
        const Program graph = build_program(step.input, step.sync, step.plan);
        Program expected = launched_for_free;
        expected.instructions.front().host = us(17);
        CHECK(graph == expected);
        // Nothing can start before the launch, and all is as without it from there.
        CHECK(simulate_times(graph).step() == simulate_times(launched_for_free).step() + us(17));
    }
}

// For one rank.
void check_work_and_causality(const Program& program, const Simulation& simulation) {
    const std::vector<Span> computing = spans_on(simulation, Track::compute);
    const std::vector<Span> communicating = spans_on(simulation, Track::communication);

    // Work: each rate change may round by a picosecond, and there is one per start and end.
    const auto tolerance = static_cast<double>(2 * (computing.size() + communicating.size()));
    for (const Span& span : computing) {
        const double expected = static_cast<double>(
            program.instructions[static_cast<std::size_t>(span.subject)].device.count());
        double work = length_of(span);
        for (const Span& other : communicating) {
            work -= work_lost(overlap(span.start, span.end, {other}),
                              slowdown_of(program, other).compute_slowdown_ppm);
        }
        CHECK(std::abs(work - expected) <= tolerance);
    }
    for (const Span& span : communicating) {
        const double expected = static_cast<double>(
            program.collectives[static_cast<std::size_t>(span.subject)].time.count());
        const double work =
            length_of(span) - work_lost(overlap(span.start, span.end, computing),
                                        slowdown_of(program, span).communication_slowdown_ppm);
        CHECK(std::abs(work - expected) <= tolerance);
    }

    // Causality: one thing at a time per stream, in order; no all-reduce before its last
    // gradient.
    for (const std::vector<Span>* stream : {&computing, &communicating}) {
        for (std::size_t i = 1; i < stream->size(); ++i) {
            CHECK((*stream)[i].start >= (*stream)[i - 1].end);
            CHECK((*stream)[i].subject > (*stream)[i - 1].subject);
        }
    }
    std::map<std::int32_t, Duration> compute_end;
    for (const Span& span : computing) {
        compute_end[span.subject] = span.end;
    }
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
        if (program.instructions[i].kind != InstructionKind::launch) {
            continue;
        }
        const auto before = compute_end.lower_bound(static_cast<std::int32_t>(i));
        const Duration start =
            communicating[static_cast<std::size_t>(program.instructions[i].subject)].start;
        CHECK((before == compute_end.begin() || start >= std::prev(before)->second));
    }
}

TEST_CASE("interference conserves work and keeps causality, on 1,000 random steps") {
    std::mt19937 random(4242);
    for (int round = 0; round < 1000; ++round) {
        RandomStep step = random_step(random);
        const auto ppm = [&] {
            return std::uniform_int_distribution<std::int64_t>(1'000'000, 5'000'000)(random);
        };
        step.input.link.interference = {{.up_to = Bytes{1 << 20}, .slowdown = {ppm(), ppm()}},
                                        {.slowdown = {ppm(), ppm()}}};
        step.input.copy_bandwidth = BytesPerSecond{10'000'000'000};
        step.input.workload.copy_launch = us(1);
        const Program program = build_program(step.input, step.sync, step.plan);
        const Simulation simulation = run(program);
        check_work_and_causality(program, simulation);
    }
}

TEST_CASE("so it does beside side streams, which it neither slows nor is slowed by") {
    std::mt19937 random(4243);
    for (int round = 0; round < 500; ++round) {
        RandomStep step = random_step(random);
        const auto between = [&](std::int64_t low, std::int64_t high) {
            return std::uniform_int_distribution<std::int64_t>(low, high)(random);
        };
        step.input.link.interference =
            constant_interference({between(1'000'000, 5'000'000), between(1'000'000, 5'000'000)});
        std::vector<TimedOperation> backward;
        for (TimedOperation& one : step.input.workload.backward) {
            one.order.after = static_cast<std::uint8_t>(between(0, 3) == 0 ? 2 : 0);
            backward.push_back(one);
            if (between(0, 2) == 0) {
                backward.push_back({.name = "beside",
                                    .device = us(between(0, 500)),
                                    .host = us(between(0, 20)),
                                    .order = {1, static_cast<std::uint8_t>(between(0, 1))}});
            }
        }
        step.input.workload.backward = backward;
        step.input.workload.side_streams = {"other"};
        const Program program = build_program(step.input, step.sync, step.plan);
        const Simulation simulation = run(program);
        check_work_and_causality(program, simulation);
        Duration end{0};
        std::map<std::int32_t, Duration> begins;
        for (const Span& span : spans_on(simulation, Track::compute)) {
            begins[span.subject] = span.start;
        }
        for (const Span& span : spans_on(simulation, Track::side)) {
            const auto subject = static_cast<std::size_t>(span.subject);
            CHECK(span.end - span.start == program.instructions[subject].device);
            CHECK(span.start >= end);
            end = span.end;
            for (std::size_t i = subject; i < program.instructions.size(); ++i) {
                if (program.instructions[i].order == StreamOrder{0, 2}) {
                    CHECK(begins.at(static_cast<std::int32_t>(i)) >= end);
                    break;
                }
            }
        }
    }
}

TEST_CASE("the same input gives the same timeline at every optimisation level") {
    // The hash is a constant that unoptimised, sanitised and optimised builds must all reproduce.
    // When the model changes on purpose, put the new value here and say old and new in the commit.
    std::mt19937 random(1);
    std::uint64_t combined = 0;
    for (int round = 0; round < 50; ++round) {
        RandomStep step = random_step(random);
        step.input.link.interference = constant_interference({1'234'567, 1'765'432});
        step.input.copy_bandwidth = BytesPerSecond{12'345'678'901};
        const Program program = build_program(step.input, step.sync, step.plan);
        const Simulation first = run(program);
        CHECK(first == run(program));
        combined = combined * 31 + hash_of(first.timeline);
    }
    CHECK(combined == 0xcce595a5651191dfU);
}

}  // namespace
}  // namespace bucketwise
