#include "sim/program/program.h"
#include "sim/program/step_programs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "sim/engine/engine.h"
#include "sim/engine/varied_steps.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Duration ms(double count) {
    return duration_from_ms(count);
}

// Three gradients of 1 MB (250,000 floats), parameters a, b, c; backward finishes c, a, b at 1, 2,
// 3 ms. One all-reduce of n bytes takes n / (1 GB/s): 1 ms for each.
StepInput three_gradients() {
    StepInput input;
    input.workload = workload_from_readiness({{{"a", 250'000, DType::float32, false}, ms(2)},
                                              {{"b", 250'000, DType::float32, false}, ms(3)},
                                              {{"c", 250'000, DType::float32, false}, ms(1)}},
                                             ms(1), ms(4));
    input.group = {2, 2};
    input.link.segments = {{std::nullopt, Duration{0}, {1'000'000'000}}};
    return input;
}

SyncRequest request_of(Strategy strategy, std::int64_t cap_bytes) {
    SyncRequest request;
    request.strategy = strategy;
    request.bucket_cap = Bytes{cap_bytes};
    return request;
}

Program program_of(const StepInput& input, const SyncRequest& request) {
    const SyncSettings sync = settings_for(request);
    return build_program(
        input, sync, make_plan(input.workload.gradients, input.workload.readiness, sync.policy));
}

double step_ms(const StepInput& input, const SyncRequest& request) {
    return to_ms(simulate_times(program_of(input, request)).step());
}

std::vector<std::int32_t> launched_buckets(const Program& program) {
    std::vector<std::int32_t> buckets;
    for (const Collective& collective : program.collectives) {
        buckets.push_back(collective.bucket().value_or(-1));
    }
    return buckets;
}

TEST_CASE("each strategy launches when it should") {
    const StepInput input = three_gradients();
    // Without communication: forward 1 + backward 4.
    CHECK(step_ms(input, request_of(Strategy::none, 1)) == 5.0);
    // Naive and flat: 3 MB after backward.
    CHECK(step_ms(input, request_of(Strategy::naive, 1)) == 8.0);
    CHECK(step_ms(input, request_of(Strategy::flat, 1)) == 8.0);
    // Overlap: 1 ms each from 2, 3 and 4 ms on, all hidden: the last ends at 5 ms, with backward.
    CHECK(step_ms(input, request_of(Strategy::overlap, 1)) == 5.0);
    // DDP with a cap of 1 MB: one bucket per gradient, the same.
    CHECK(step_ms(input, request_of(Strategy::ddp, 1'000'000)) == 5.0);
    // DDP with one bucket: 3 MB from 4 ms on, when b is ready.
    CHECK(step_ms(input, request_of(Strategy::ddp, 3'000'000)) == 7.0);
    // Bucketed by 2 MB in reverse order: [c, b] is full at 4 ms; [a] has been since 3 ms and goes
    // first.
    CHECK(launched_buckets(program_of(input, request_of(Strategy::bucketed, 2'000'000))) ==
          std::vector<std::int32_t>{1, 0});
    CHECK(step_ms(input, request_of(Strategy::bucketed, 2'000'000)) == 6.0);
    // Python buckets by 2 MB in forward order: [a, b] and [c]. c fills first.
    CHECK(launched_buckets(program_of(input, request_of(Strategy::python_async, 2'000'000))) ==
          std::vector<std::int32_t>{1, 0});
    // Synchronous: both after backward, in bucket order.
    CHECK(launched_buckets(program_of(input, request_of(Strategy::python_sync, 2'000'000))) ==
          std::vector<std::int32_t>{0, 1});
    CHECK(step_ms(input, request_of(Strategy::python_sync, 2'000'000)) == 8.0);
}

TEST_CASE("in order, one late gradient holds back every later bucket") {
    SyncRequest request = request_of(Strategy::ddp, 1'000'000);
    request.order =
        Order::forward;  // buckets [a], [b], [c]; c is ready at 2 ms but must wait for b
    const StepInput input = three_gradients();
    // a from 3 to 4 ms, b from 4 to 5, c after it from 5 to 6.
    CHECK(step_ms(input, request) == 6.0);
    request.launch = LaunchRule::as_filled;
    CHECK(step_ms(input, request) == 5.0);
}

TEST_CASE("copies cost where a copied byte has a cost, and views save the copy back") {
    StepInput input = three_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};  // 0.1 ms per gradient
    SyncRequest request = request_of(Strategy::ddp, 3'000'000);
    // Into the bucket after each gradient: backward finishes at 1 + 4 + 0.3; the bucket is full
    // after the third copy at 1 + 3 + 0.3 = 4.3, its all-reduce ends at 7.3, then three copies
    // back: 7.6 ms.
    CHECK(step_ms(input, request) == Approx(7.6));
    request.views = true;
    CHECK(step_ms(input, request) == Approx(7.3));
}

TEST_CASE("a compression hook halves the bytes and adds two casts") {
    StepInput input = three_gradients();
    SyncRequest request = request_of(Strategy::ddp, 3'000'000);
    request.comm_hook = CommHook::fp16;
    // 1.5 MB from 4 ms on.
    CHECK(step_ms(input, request) == 5.5);
    // A cast reads 3 MB and writes 1.5 MB: as much traffic as copying 2.25 MB, 0.225 ms each way.
    // With views and what goes into them (0.3 ms), and the division of what was cast, 0.15 ms:
    // 4.3 + 0.225 + 0.15 + 1.5 + 0.225.
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};
    request.views = true;
    CHECK(step_ms(input, request) == Approx(6.4));
}

TEST_CASE("what a hook cast is cast back beside computing, once it is reduced") {
    StepInput input = three_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};
    SyncRequest request = request_of(Strategy::ddp, 1'500'000);
    request.comm_hook = CommHook::fp16;
    request.views = true;
    // Operations of 1 ms from 1 ms on; the first three make a gradient ready; 0.1 ms to
    // divide each. The first two fill a bucket at 3.2 ms, which is cast (0.15) and divided (0.1):
    // 3.45; 1 MB travels until 4.45 and is there at 4.6. The third operation ends at 4.45, its
    // bucket goes out 0.1 + 0.075 + 0.05 later, at 4.675, is reduced at 5.175 and there at 5.25.
    // The fourth ends at 5.675, and nothing is left to do.
    CHECK(step_ms(input, request) == Approx(5.675));
    // On a CPU both are cast back then: 0.15 + 0.075.
    input.workload.host_is_device = true;
    CHECK(step_ms(input, request) == Approx(5.9));
    // As on ranks that replay a step.
    input.workload.host_is_device = false;
    const SyncSettings replayed = settings_of_replay(request);
    const Program program =
        build_program(input, replayed, make_plan(input.workload, replayed.policy));
    CHECK(to_ms(simulate_times(program).step()) == Approx(5.9));
}

using CopyRoutes = std::map<CopyRoute, int>;

CopyRoutes routes_of(const Program& program) {
    CopyRoutes routes;
    for (const Instruction& instruction : program.instructions) {
        if (is_copy(instruction.kind)) {
            ++routes[instruction.copy.route];
        }
    }
    return routes;
}

TEST_CASE("fused copies are one launch each way for every bucket, with the hook's casts in them") {
    // Buckets of 2 and 1 gradients: 3 copies in, 3 back and 2 casts each way become 2 and 2.
    StepInput input = three_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};
    const auto routes_with = [&](CommHook hook, bool views, bool fused) {
        SyncRequest request = request_of(Strategy::ddp, 1'500'000);
        request.comm_hook = hook;
        request.views = views;
        request.fused_copies = fused;
        return routes_of(program_of(input, request));
    };
    CHECK(routes_with(CommHook::none, false, false) ==
          CopyRoutes{{CopyRoute::gradient_to_bucket, 3}, {CopyRoute::bucket_to_gradient, 3}});
    CHECK(routes_with(CommHook::none, false, true) ==
          CopyRoutes{{CopyRoute::gradients_to_bucket, 2}, {CopyRoute::bucket_to_gradients, 2}});
    CHECK(routes_with(CommHook::bf16, false, true) ==
          CopyRoutes{{CopyRoute::gradients_to_wire, 2}, {CopyRoute::wire_to_gradients, 2}});
    CHECK(routes_with(CommHook::none, true, true) ==
          CopyRoutes{{CopyRoute::gradients_to_bucket, 2}});
    // Views need no copy back, but the cast back stays.
    CHECK(routes_with(CommHook::bf16, true, true) ==
          CopyRoutes{{CopyRoute::gradients_to_wire, 2}, {CopyRoute::wire_to_bucket, 2}});
    // All gradients in one bucket: it is packed at 4 ms, not copied as each is ready, so 4 + 0.3,
    // 3 ms of all-reduce, 0.3 to unpack; backward's fourth ms is over by then.
    SyncRequest request = request_of(Strategy::ddp, 3'000'000);
    request.fused_copies = true;
    CHECK(step_ms(input, request) == Approx(7.6));
}

TEST_CASE("PyTorch's batched copies are one launch into a bucket, one to divide, and one back") {
    StepInput input = three_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};
    SyncRequest request = request_of(Strategy::ddp, 1'500'000);
    request.batched_grad_copy = true;
    CHECK(routes_of(program_of(input, request)) == CopyRoutes{{CopyRoute::gradients_to_bucket, 2},
                                                              {CopyRoute::within_bucket, 2},
                                                              {CopyRoute::bucket_to_gradients, 2}});
    // One bucket: packed and divided at 4 ms, 4 + 0.3 + 0.3, 3 ms of all-reduce, 0.3 back.
    request.bucket_cap = Bytes{3'000'000};
    CHECK(step_ms(input, request) == Approx(7.9));
    // Not where another strategy copies.
    CHECK_FALSE(settings_for([&] {
                    SyncRequest flat = request;
                    flat.strategy = Strategy::flat;
                    return flat;
                }())
                    .batched_copies);
}

TEST_CASE("gradients of two bytes are not compressed any further") {
    StepInput input = three_gradients();
    for (Gradient& gradient : input.workload.gradients) {
        gradient.dtype = DType::bfloat16;
    }
    SyncRequest request = request_of(Strategy::ddp, 1'500'000);
    const double uncompressed = step_ms(input, request);
    request.comm_hook = CommHook::bf16;
    CHECK(step_ms(input, request) == uncompressed);
}

TEST_CASE("accumulation repeats forward and backward and synchronises once") {
    StepInput input = three_gradients();
    input.step.accumulation = 4;
    input.step.optimizer = ms(2);
    const Program program = program_of(input, request_of(Strategy::ddp, 3'000'000));
    CHECK(program.collectives.size() == 1);
    const StepTimes times = simulate_times(program);
    // 4 x 1 forward; 3 x 4 backward, then 3 + 3 ms of the last; optimizer 2.
    CHECK(times.forward == ms(4));
    CHECK(times.backward == ms(18));
    CHECK(times.optimizer == ms(2));
}

TEST_CASE("DDP broadcasts buffers once, in the first forward, and copies each back") {
    StepInput input = three_gradients();
    input.workload.buffer_groups = {{{1'000'000}, 100}};
    input.workload.copy_launch = ms(0.01);
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};
    input.step.accumulation = 2;
    SyncRequest request = request_of(Strategy::ddp, 3'000'000);
    // Broadcast 1 ms, then 100 copies: the host needs 1 ms to launch them (at the start of the
    // step, while the broadcast runs), the device 0.1 ms. Forward = 1.1 + 2 x 1.
    CHECK(to_ms(simulate_times(program_of(input, request)).forward) == Approx(3.1));
    request.broadcast_buffers = false;
    CHECK(to_ms(simulate_times(program_of(input, request)).forward) == Approx(2.0));
    request.broadcast_buffers = true;
    request.strategy = Strategy::python_async;
    CHECK(to_ms(simulate_times(program_of(input, request)).forward) == Approx(2.0));
}

TEST_CASE("finding unused parameters adds an all-reduce of one int32 per parameter at the end") {
    const StepInput input = three_gradients();
    SyncRequest request = request_of(Strategy::ddp, 1'000'000);
    request.find_unused_parameters = true;
    const Program program = program_of(input, request);
    CHECK(program.collectives.back().bytes == Bytes{12});
    CHECK(program.collectives.back().cargo == Cargo{UnusedMap{}});
}

TEST_CASE("an optimizer is launched update by update, and the slower of host and device decides") {
    StepInput input = three_gradients();
    const SyncRequest none = request_of(Strategy::none, 1);
    input.step.optimizer = ms(3);
    // The host launches three updates within the 5 ms of forward and backward: 5 + 3.
    input.step.optimizer_launch = ms(1.5);
    CHECK(step_ms(input, none) == Approx(8.0));
    // Launches at 4, 8 and 12 ms: the last update of 1 ms runs from 12 ms on.
    input.step.optimizer_launch = ms(12);
    CHECK(step_ms(input, none) == Approx(13.0));
    CHECK(to_ms(simulate_times(with_free_launches(program_of(input, none))).step()) == 8.0);
}

TEST_CASE("the call that finishes synchronisation is timed on the host and on the device") {
    StepInput input = three_gradients();
    input.link.host_issue = ms(0.02);
    input.link.host_wait = ms(0.005);
    // Naive: three launches and three waits on the host; 3 MB exposed after backward on the device.
    StepTimes times = simulate_times(program_of(input, request_of(Strategy::naive, 1)));
    CHECK(to_ms(times.finishing_host) == Approx(3 * 0.025));
    CHECK(to_ms(times.finishing) == Approx(3.0));
    // Overlap: launches belong to backward's hooks, and all is hidden; see above.
    times = simulate_times(program_of(input, request_of(Strategy::overlap, 1)));
    CHECK(to_ms(times.finishing_host) == Approx(3 * 0.005));
    CHECK(to_ms(times.finishing) == Approx(0.0));
    // Where the host is the device, both are one.
    input.workload.host_is_device = true;
    input.link.host_issue = input.link.host_wait = {};
    times = simulate_times(program_of(input, request_of(Strategy::naive, 1)));
    CHECK(times.finishing_host == times.finishing);
    CHECK(to_ms(times.finishing) == Approx(3.0));
}

TEST_CASE("flat and bucketed concatenate gradients when a bucket goes out, others one by one") {
    StepInput input = three_gradients();
    input.copy_bandwidth = BytesPerSecond{10'000'000'000};  // 0.1 ms for each gradient
    const auto kinds = [&](const SyncRequest& request) {
        std::string text;
        for (const Instruction& instruction : program_of(input, request).instructions) {
            switch (instruction.kind) {
                case InstructionKind::backward:
                    text += 'b';
                    break;
                case InstructionKind::copy:
                    if (instruction.copy.route == CopyRoute::gradient_to_bucket) {
                        text += instruction.finishing ? 'C' : 'c';
                    }
                    break;
                case InstructionKind::launch:
                    text += instruction.finishing ? 'L' : 'l';
                    break;
                default:
                    break;
            }
        }
        return text;
    };
    // Backward's fourth operation finishes no gradient.
    CHECK(kinds(request_of(Strategy::flat, 1)) == "bbbbCCCL");
    CHECK(kinds(request_of(Strategy::bucketed, 2'000'000)) == "bbclbcclb");
    CHECK(kinds(request_of(Strategy::python_sync, 2'000'000)) == "bcbcbcbLL");
}

TEST_CASE("steps vary as their scenario says, and repeat with its seed") {
    StepInput input = three_gradients();
    const SyncSettings sync = settings_for(request_of(Strategy::naive, 1));
    const BucketPlan plan =
        make_plan(input.workload.gradients, input.workload.readiness, sync.policy);
    const auto steps = [&] {
        VariedSteps varied(input, sync, plan);
        std::vector<Duration> times;
        for (int i = 0; i < 400; ++i) {
            times.push_back(simulate_times(varied.next()).step());
        }
        return times;
    };
    CHECK(steps() == std::vector<Duration>(400, ms(8)));
    input.variation = Variation{.seed = 7, .compute_spread = 0.01};
    const std::vector<Duration> times = steps();
    CHECK(times == steps());
    double squares = 0;
    for (const Duration time : times) {
        squares += std::pow(to_ms(time) - 8, 2);
    }
    // 1 % of the 5 ms of computing; 400 draws tell a deviation to within 3.5 %, here 3 of them.
    CHECK(std::sqrt(squares / 400) == Approx(0.05).epsilon(0.11));
}

TEST_CASE("free communication leaves compute, free launches leave the device") {
    StepInput input = three_gradients();
    input.link.interference = constant_interference({2'000'000, 2'000'000});
    input.link.host_issue = ms(10);
    const Program program = program_of(input, request_of(Strategy::ddp, 1'000'000));
    // Issuing three collectives takes 30 ms of host time; the last millisecond of backward is
    // issued after them.
    CHECK(to_ms(simulate_times(with_free_communication(program)).step()) == Approx(31.0));
    CHECK(to_ms(simulate_times(with_free_launches(with_free_communication(program))).step()) ==
          5.0);
    CHECK(longest_possible_seconds(program) >= to_ms(simulate_times(program).step()) / 1e3);
}

}  // namespace
}  // namespace bucketwise
