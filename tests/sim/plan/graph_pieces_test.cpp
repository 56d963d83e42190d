// Pieces of a graph under torch.compile: where they are cut, and what a cap changes.
#include <algorithm>
#include <numeric>
#include <random>

#include "sim/engine/engine.h"
#include "sim/plan/graph_pieces.h"
#include "sim/plan/plan.h"
#include "sim/plan/strategy.h"
#include "sim/program/step_programs.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

// Operations of backward, the elements that each makes ready in one gradient of float32; 0: none.
Workload in_operations(const std::vector<std::int64_t>& numels) {
    Workload workload;
    const auto with_gradient = std::ranges::count_if(numels, [](auto numel) { return numel > 0; });
    auto parameter = static_cast<std::int32_t>(with_gradient);
    workload.gradients.resize(static_cast<std::size_t>(with_gradient));
    for (const std::int64_t numel : numels) {
        workload.backward.push_back({.name = "operation", .device = Duration{1000}});
        if (numel > 0) {
            workload.backward.back().ready_count = 1;
            workload.readiness.push_back(--parameter);
            workload.gradients[static_cast<std::size_t>(parameter)] = {"g", numel};
        }
    }
    return workload;
}

// The number of gradients that each operation makes ready, with pieces of these sizes.
std::vector<std::int32_t> counts(const Workload& workload, std::int64_t first, std::int64_t cap) {
    return ready_in_pieces(workload, {Bytes{first}, Bytes{cap}}).readiness.counts;
}

TEST_CASE("A piece ends with the operation whose parameters fill it, the first one earlier") {
    // Bytes 4, 8, none, 12, 4, 4. First limit 8: 4 + 8 reach it. Then 16: 12 + 4. The rest is
    // left open, and ends with backward.
    CHECK(counts(in_operations({1, 2, 0, 3, 1, 1, 0}), 8, 16) ==
          std::vector<std::int32_t>{0, 2, 0, 0, 2, 0, 1});
    // A first limit that a single operation exceeds, and a cap that all the rest does not reach.
    CHECK(counts(in_operations({5, 1, 1}), 8, 100) == std::vector<std::int32_t>{1, 0, 2});
}

TEST_CASE("What needs no parameters before the first that does belongs to the last piece") {
    // 8 bytes fill the last piece, too, but nothing follows that could begin another.
    CHECK(counts(in_operations({2, 2, 0, 0}), 8, 8) == std::vector<std::int32_t>{1, 0, 0, 1});
    CHECK(ready_in_pieces(in_operations({2, 2, 0, 0}), {Bytes{8}, Bytes{8}}).readiness.pieces == 2);
}

TEST_CASE("A parameter that is used twice counts in both pieces and is ready with the last") {
    // A head that shares its 12 bytes with the embedding, which finishes them.
    Workload workload = in_operations({0, 1, 1, 3});
    workload.backward[0].used_before = Bytes{12};
    // The head alone fills the first piece, which makes nothing ready.
    const PieceReadiness shared = ready_in_pieces(workload, {Bytes{12}, Bytes{100}}).readiness;
    CHECK(shared.pieces == 2);
    CHECK(shared.counts == std::vector<std::int32_t>{0, 0, 0, 3});
    workload.backward[0].used_before = {};
    CHECK(ready_in_pieces(workload, {Bytes{12}, Bytes{100}}).readiness.pieces == 1);
}

TEST_CASE(
    "Gradients of one module are handed in as they are registered, modules as they are used") {
    // As eager autograd finishes them: of a linear layer the bias first. One piece, without a next
    // one. libstdc++'s heap of four equal entries a b c d gives a, then d moves to the top and down
    // again: its larger child is b or c, equal, so the right one: a c d b? Told by the algorithm of
    // std::pop_heap, written down from its standard description: the hole goes down to the right
    // child wherever the left is not larger, then the last entry is put in and moved up while its
    // parent is smaller, which an equal one is not.
    //   a b c d: out a; hole 0 -> right child c up, hole 2; d into 2: c b d.
    //   c b d:   out c; of children b and none left (d is the entry put in): b up, d into 1: b d.
    //   b d:     out b; then d.
    Workload workload = in_operations({1, 1, 1, 1});
    workload.readiness = {3, 2, 1, 0};
    workload.gradients[0].name = "0.weight";
    workload.gradients[1].name = "0.bias";
    workload.gradients[2].name = "1.weight";
    workload.gradients[3].name = "1.bias";
    const PieceReadiness whole = ready_in_pieces(workload, {Bytes{100}, Bytes{100}}).readiness;
    CHECK(whole.order == std::vector<std::int32_t>{0, 2, 1, 3});
}

TEST_CASE("No cap between those of a walk gives another plan") {
    std::mt19937 random(7);
    const auto below = [&](std::size_t n) { return static_cast<std::int64_t>(random() % n); };
    for (int trial = 0; trial < 300; ++trial) {
        std::vector<std::int64_t> numels(1 + random() % 12);
        std::ranges::generate(numels, [&] { return below(6); });
        Workload workload = in_operations(numels);
        for (TimedOperation& operation : workload.backward) {
            operation.used_before = Bytes{4 * (below(4) / 3) * below(5)};
        }
        const auto plan_of = [&](Bytes cap) {
            PlanPolicy policy{.limits = {.first = {}, .cap = cap, .list = {}}};
            policy.pieces = PieceLimits{Bytes{12}, cap};
            return make_plan(workload, policy);
        };
        const std::int64_t most =
            4 * std::accumulate(numels.begin(), numels.end(), std::int64_t{}) + 200;
        std::vector<BucketPlan> walked;
        walk_plans(Bytes{12}, 1.0, [&](Bytes cap) {
            walked.push_back(plan_of(cap));
            return walked.back().same_plan;
        });
        std::size_t at = 0;
        for (std::int64_t cap = 12; cap <= most; ++cap) {
            const CapRange* same = &walked[at].same_plan;
            if (same->highest && cap > same->highest->count) {
                same = &walked[++at].same_plan;
            }
            INFO("trial " << trial << ", cap " << cap);
            REQUIRE(same->lowest.count <= cap);
            REQUIRE(plan_of(Bytes{cap}).is_same_step(walked[at]));
        }
    }
}

TEST_CASE("A compiled step is the recurrence of buckets over pieces") {
    // Operations of 1 ns, all-reduces of a byte a nanosecond: start = max(ready, end before). Here
    // written with its own walk over the operations.
    std::mt19937 random(11);
    for (int trial = 0; trial < 100; ++trial) {
        std::vector<std::int64_t> numels(2 + random() % 20);
        std::ranges::generate(numels,
                              [&] { return static_cast<std::int64_t>(1 + random() % 400'000); });
        StepInput input;
        input.workload = in_operations(numels);
        input.workload.host_is_device = true;
        input.group = {2, 2};
        input.link.segments = {{std::nullopt, Duration{0}, {1'000'000'000}}};
        SyncRequest request;
        request.compiled = true;
        request.bucket_cap = Bytes{bytes_per_mib * static_cast<std::int64_t>(1 + random() % 6)};
        const SyncSettings sync = settings_for(request);
        const BucketPlan plan = make_plan(input.workload, sync.policy);

        const std::int64_t cap = request.bucket_cap.size()->count;
        std::vector<std::int64_t> ready_ps(numels.size());  // by operation
        std::size_t begin = 0;
        std::int64_t bytes = 0;
        for (std::size_t i = 0; i < numels.size(); ++i) {
            bytes += 4 * numels[i];
            const bool full = bytes >= (begin == 0 ? std::min(cap, bytes_per_mib) : cap);
            if (full || i + 1 == numels.size()) {
                for (; begin <= i; ++begin) {
                    ready_ps[begin] = 1000 * (static_cast<std::int64_t>(i) + 1);
                }
                bytes = 0;
            }
        }
        std::int64_t network_ps = 0;
        for (const Bucket& bucket : plan.buckets) {
            std::int64_t full_ps = 0;
            for (const std::int32_t gradient : bucket.gradients) {
                const std::size_t operation =
                    numels.size() - 1 - static_cast<std::size_t>(gradient);
                full_ps = std::max(full_ps, ready_ps[operation]);
            }
            network_ps = std::max(full_ps, network_ps) + 1000 * bucket.size.count;
        }
        const Program program = build_program(input, sync, plan);
        const Duration step = simulate_times(program).step();
        CHECK(step == std::max(Duration{network_ps},
                               Duration{1000 * static_cast<std::int64_t>(numels.size())}));
    }
}

}  // namespace
}  // namespace bucketwise
