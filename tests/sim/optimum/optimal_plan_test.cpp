#include "sim/optimum/optimal_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sim/base/error.h"
#include "sim/optimum/cap_list.h"
#include "sim/optimum/cut_search.h"
#include "sim/plan/gradient_line.h"
#include "sim/predict/prediction.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

void no_progress(double /*done*/) {}

// ---- Random steps -------------------------------------------------------------------------------

class RandomPlanning {
  public:
    explicit RandomPlanning(unsigned seed) : random_(seed) {}

    std::int64_t number(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }
    bool once_in(std::int64_t n) { return number(1, n) == 1; }
    // In microseconds and some picoseconds, often zero.
    Duration time(std::int64_t most_us) {
        return once_in(4) ? Duration{0} : Duration{number(0, most_us * 1'000'000)};
    }

    StepInput input(std::int64_t gradients, bool disturbed, bool mixed) {
        StepInput input;
        input.workload = workload(gradients, mixed);
        input.group.ranks = number(1, 4) == 1 ? 1 : number(2, 9);
        input.link = link(disturbed);
        if (!once_in(3)) {
            input.copy_bandwidth = BytesPerSecond{number(100'000'000, 20'000'000'000)};
        }
        input.step.accumulation = once_in(4) ? number(2, 3) : 1;
        input.step.optimizer = time(200);
        input.step.optimizer_launch = once_in(2) ? time(100) : Duration{0};
        if (once_in(6)) {
            input.step.graph_launch = time(30);
        }
        return input;
    }

    SyncRequest request(bool any_order) {
        constexpr std::array<Strategy, 7> strategies{
            Strategy::ddp,     Strategy::ddp,      Strategy::ddp_first_iteration, Strategy::flat,
            Strategy::overlap, Strategy::bucketed, Strategy::python_async};
        SyncRequest request;
        request.strategy = strategies[static_cast<std::size_t>(number(0, 6))];
        request.views = once_in(2);
        request.fused_copies = once_in(3);
        request.comm_hook = once_in(3) ? CommHook::fp16 : CommHook::none;
        request.find_unused_parameters = once_in(4);
        request.broadcast_buffers = once_in(2);
        request.closing = once_in(2) ? Closing::overshoot : Closing::strict;
        request.order = static_cast<Order>(number(0, 2));
        request.launch = static_cast<LaunchRule>(number(0, 2));
        const bool line_is_readiness = request.order == Order::readiness;
        if (settings_for(request).policy.reversed_after_sort && line_is_readiness) {
            request.order = Order::forward;
        }
        if (request.launch == LaunchRule::as_filled && !any_order) {
            request.find_unused_parameters = false;
            request.strategy = Strategy::bucketed;
            request.order = Order::readiness;
        }
        request.batched_grad_copy = !request.fused_copies && once_in(3);
        if (once_in(4)) {  // which may change more than the caps
            for (std::int64_t caps = number(1, 3); caps > 0; --caps) {
                request.bucket_cap_list.push_back({number(1, 2'000'000)});
            }
            const PlanPolicy policy = settings_for(request).policy;
            if (policy.reversed_after_sort && policy.order == Order::readiness) {
                request.order = Order::forward;
            }
        }
        return request;
    }

  private:
    Workload workload(std::int64_t count, bool mixed) {
        Workload w;
        for (std::int64_t i = 0; i < count; ++i) {
            const auto dtype = mixed && once_in(3) ? DType::float16 : DType::float32;
            w.gradients.push_back(
                {std::to_string(i), number(1, 400'000), dtype, mixed && once_in(6)});
        }
        w.readiness.resize(w.gradients.size());
        std::iota(w.readiness.rbegin(), w.readiness.rend(), 0);
        if (!once_in(3)) {
            std::shuffle(w.readiness.begin(), w.readiness.end(), random_);
        }
        for (std::int64_t i = number(0, 3); i > 0; --i) {
            w.forward.push_back(operation(0));
        }
        std::int64_t left = count;
        while (left > 0) {
            const std::int64_t ready = std::min(left, number(0, 3));
            w.backward.push_back(operation(ready));
            left -= ready;
        }
        if (once_in(2)) {
            w.backward.push_back(operation(0));
        }
        if (once_in(3)) {
            w.buffer_groups.push_back({Bytes{number(1, 100'000)}, 3});
        }
        w.host_is_device = once_in(4);
        w.copy_launch = time(20);
        return w;
    }

    TimedOperation operation(std::int64_t ready) {
        TimedOperation operation;
        operation.device = time(300);
        operation.host = once_in(2) ? time(300) : Duration{0};
        operation.ready_count = static_cast<std::int32_t>(ready);
        if (once_in(8)) {
            operation.exchange = Exchange{};
            operation.exchange->kind =
                once_in(2) ? CollectiveKind::all_reduce : CollectiveKind::all_gather;
            operation.exchange->own = Bytes{number(8, 10'000)};
        }
        return operation;
    }

    LinkParameters link(bool disturbed) {
        LinkParameters link;
        link.algorithm = once_in(2) ? Algorithm::ring : Algorithm::double_binary_tree;
        // Not concave: a longer message may have less latency and more bandwidth, or the reverse.
        for (std::int64_t limit = number(1'000, 500'000); !once_in(3); limit *= 3) {
            link.segments.push_back({Bytes{limit}, time(60), bandwidth()});
        }
        link.segments.push_back({std::nullopt, time(60), bandwidth()});
        link.launch = time(50);
        link.meeting = time(30);
        link.host_issue = time(100);
        link.host_wait = time(100);
        if (disturbed) {
            link.interference = {{Bytes{number(1'000, 2'000'000)}, slowdown()},
                                 {std::nullopt, slowdown()}};
        }
        return link;
    }

    BytesPerSecond bandwidth() { return {number(200'000'000, 20'000'000'000)}; }
    Interference slowdown() {
        return {number(1'000'000, once_in(3) ? 4'000'000 : 1'400'000),
                number(1'000'000, once_in(3) ? 4'000'000 : 1'400'000)};
    }

    std::mt19937 random_;
};

// ---- Every plan ---------------------------------------------------------------------------------

// The gradients in the order they join buckets, by the rules and not by GradientLine.
std::vector<std::int32_t> joining(const StepInput& input, const PlanPolicy& policy) {
    std::vector<std::int32_t> order = input.workload.readiness;
    if (policy.order != Order::readiness) {
        std::sort(order.begin(), order.end());
    }
    if (policy.order == Order::reverse) {
        std::reverse(order.begin(), order.end());
    }
    return order;
}

// Where PyTorch keeps the buckets of construction, the one with the latest parameters goes first.
void sort_as_constructed(BucketPlan& plan) {
    const auto smallest = [](const Bucket& b) {
        return *std::min_element(b.gradients.begin(), b.gradients.end());
    };
    std::sort(plan.buckets.begin(), plan.buckets.end(),
              [&](const Bucket& a, const Bucket& b) { return smallest(a) > smallest(b); });
}

// The plan that is formed when the gradients of these bits are the last of their buckets: each
// dtype has an open bucket, sparse gradients go alone, a strict bucket closes when the next
// gradient of its dtype comes, and what is left open goes last, the dtype first that came last.
BucketPlan closed_after(const StepInput& input, const PlanPolicy& policy, std::uint32_t last) {
    BucketPlan plan;
    std::vector<Bucket> open;  // by dtype, as they came
    std::vector<bool> ended;
    for (const std::int32_t index : joining(input, policy)) {
        const Gradient& g = input.workload.gradients[static_cast<std::size_t>(index)];
        if (g.sparse) {
            plan.buckets.push_back({{index}, g.dtype, g.size()});
            continue;
        }
        const auto found = std::find_if(open.begin(), open.end(),
                                        [&](const Bucket& b) { return b.dtype == g.dtype; });
        const auto at = static_cast<std::size_t>(found - open.begin());
        if (found == open.end()) {
            open.push_back({{}, g.dtype, {}});
            ended.push_back(false);
        }
        Bucket& bucket = open[at];
        const auto close = [&] {
            if (!bucket.gradients.empty()) {
                plan.buckets.push_back(bucket);
            }
            bucket = {{}, g.dtype, {}};
            ended[at] = false;
        };
        if (ended[at]) {
            close();
        }
        bucket.gradients.push_back(index);
        bucket.size += g.size();
        ended[at] = ((last >> index) & 1U) != 0;
        if (ended[at] && policy.closing != Closing::strict) {
            close();
        }
    }
    for (; !open.empty(); open.pop_back()) {
        if (!open.back().gradients.empty()) {
            plan.buckets.push_back(open.back());
        }
    }
    if (policy.reversed_after_sort) {
        sort_as_constructed(plan);
    }
    return plan;
}

// The shortest step of all 2^n ways to close buckets, each simulated by the engine.
Duration shortest_of_all(const StepInput& input, const SyncRequest& request) {
    const PlanPolicy policy = settings_for(request).policy;
    Evaluator evaluator(input, request);
    Duration shortest = longest_duration;
    for (std::uint32_t last = 0; last < (1U << input.workload.gradients.size()); ++last) {
        const BucketPlan plan = closed_after(input, policy, last);
        shortest = std::min(shortest, evaluator.evaluate(std::nullopt, plan).times.step());
    }
    return shortest;
}

// A list of caps says the same plan again, and its step is the optimum's.
void check_lists(const StepInput& input, SyncRequest request, const OptimalPlan& optimum) {
    request = without_caps(request);
    const auto replanned = [&](const std::vector<Bytes>& list) {
        request.bucket_cap_list.clear();
        for (const Bytes cap : list) {  // as typed and parsed
            request.bucket_cap_list.push_back(Bytes{
                static_cast<std::int64_t>(typed_mib(cap) * static_cast<double>(bytes_per_mib))});
        }
        Evaluator evaluator(input, request);
        return std::pair(evaluator.plan(std::nullopt), evaluator.evaluate(std::nullopt));
    };
    if (!optimum.cap_list.empty()) {
        const auto [plan, evaluation] = replanned(optimum.cap_list);
        CHECK(plan.buckets == optimum.plan.buckets);
        CHECK(evaluation.times == optimum.evaluation.times);
    }
    for (const ExpressiblePlan& other : optimum.others) {
        if (other.kind == PlanKind::list_of_two) {
            CHECK(other.caps.size() <= 2);
            // A single cap is a list of two as well.
            const auto uniform =
                std::find_if(optimum.others.begin(), optimum.others.end(),
                             [](const auto& o) { return o.kind == PlanKind::uniform; });
            CHECK((uniform == optimum.others.end() || other.step <= uniform->step));
            CHECK(replanned(other.caps).second.times.step() == other.step);
        }
    }
}

void check_against_all(const StepInput& input, const SyncRequest& request) {
    const OptimalPlan optimum = optimal_plan(input, request, no_progress);
    const Duration shortest = shortest_of_all(input, request);
    if (optimum.proved) {
        CHECK(optimum.evaluation.times.step() == shortest);
        CHECK(optimum.bound == shortest);
    } else {  // without its list the strategy is another, whose default is faster here
        CHECK(!request.bucket_cap_list.empty());
        CHECK(optimum.evaluation.times.step() < shortest);
        CHECK(optimum.bound <= optimum.evaluation.times.step());
    }
    for (const ExpressiblePlan& other : optimum.others) {
        CHECK(other.step >= optimum.evaluation.times.step());
    }
    check_lists(input, request, optimum);
}

// Gradients of a million bytes that become ready at these milliseconds of a backward of 10 ms, in a
// group of two ranks whose ring takes 1 ms of latency and 1 ms per million bytes: 2 steps of 0.5
// ms, and 2 (2 - 1) / 2 = 1 byte on the wire per byte, at 1 GB/s.
StepInput by_hand(const std::vector<double>& ready_ms) {
    std::vector<GradientReadiness> gradients;
    for (auto it = ready_ms.rbegin(); it != ready_ms.rend(); ++it) {  // parameter order
        gradients.push_back({{std::to_string(gradients.size()), 250'000, DType::float32, false},
                             duration_from_ms(*it)});
    }
    StepInput input;
    input.workload = workload_from_readiness(gradients, duration_from_ms(0), duration_from_ms(10));
    input.group.ranks = 2;
    input.link.segments = {{std::nullopt, duration_from_us(500), BytesPerSecond{1'000'000'000}}};
    return input;
}

std::vector<std::int64_t> sizes_of(const OptimalPlan& optimum) {
    std::vector<std::int64_t> sizes;
    for (const Bytes size : optimum.evaluation.bucket_bytes) {
        sizes.push_back(size.count);
    }
    return sizes;
}

// ---- Tests --------------------------------------------------------------------------------------

TEST_CASE("without interference the optimal plan is the best of all plans, on 10,000 random steps",
          "[optimal]") {
    RandomPlanning random(1909);
    for (int i = 0; i < 10000 / BUCKETWISE_TEST_SHARE; ++i) {
        const StepInput input = random.input(random.number(1, 8), false, random.once_in(5));
        CAPTURE(i);
        check_against_all(input, random.request(false));
    }
}

TEST_CASE("with interference and few gradients it is, on 2,000 random steps", "[optimal]") {
    RandomPlanning random(1910);
    for (int i = 0; i < 2000 / BUCKETWISE_TEST_SHARE; ++i) {
        const StepInput input = random.input(random.number(1, 7), true, random.once_in(5));
        CAPTURE(i);
        check_against_all(input, random.request(false));
    }
}

TEST_CASE("where the host waits for operations it is, on 2,000 random steps", "[optimal]") {
    RandomPlanning random(1914);
    for (int i = 0; i < 2000 / BUCKETWISE_TEST_SHARE; ++i) {
        StepInput input = random.input(random.number(1, 7), random.once_in(3), random.once_in(5));
        if (input.workload.host_is_device || input.step.graph_launch) {
            continue;
        }
        for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
            for (TimedOperation& operation : *pass) {
                operation.host_waits = random.once_in(3);
            }
        }
        CAPTURE(i);
        check_against_all(input, random.request(false));
    }
}

TEST_CASE("where streams wait for one another it is, on 2,000 random steps", "[optimal]") {
    RandomPlanning random(1915);
    for (int i = 0; i < 2000 / BUCKETWISE_TEST_SHARE; ++i) {
        StepInput input = random.input(random.number(1, 6), random.once_in(3), random.once_in(5));
        if (input.workload.host_is_device || input.step.graph_launch) {
            continue;
        }
        input.workload.side_streams = {"a", "b"};
        input.step.sync_each_step = random.once_in(4);
        for (auto* pass : {&input.workload.forward, &input.workload.backward}) {
            for (TimedOperation& operation : *pass) {
                const bool beside = operation.ready_count == 0 && !operation.exchange;
                operation.host_waits = random.once_in(8);
                operation.order = {static_cast<std::uint8_t>(beside ? random.number(0, 2) : 0),
                                   static_cast<std::uint8_t>(random.number(0, 7))};
            }
        }
        for (std::int64_t k = random.number(0, 3); k > 0; --k) {
            input.step.optimizer_operations.push_back(
                {.name = "update",
                 .device = random.time(300),
                 .host = random.time(50),
                 .order = {static_cast<std::uint8_t>(random.number(0, 2)),
                           static_cast<std::uint8_t>(random.number(0, 7))}});
        }
        CAPTURE(i);
        check_against_all(input, random.request(false));
    }
}

TEST_CASE("where buckets may fill in another order it is, on 2,000 random steps", "[optimal]") {
    RandomPlanning random(1911);
    for (int i = 0; i < 2000 / BUCKETWISE_TEST_SHARE; ++i) {
        const StepInput input =
            random.input(random.number(2, 7), random.once_in(3), random.once_in(3));
        CAPTURE(i);
        SyncRequest request = random.request(true);
        request.launch = LaunchRule::as_filled;
        check_against_all(input, request);
    }
}

// Every dtype that a gradient may have, some of them sparse.
StepInput of_several_dtypes(RandomPlanning& random, std::int64_t gradients, bool disturbed) {
    StepInput input = random.input(gradients, disturbed, true);
    constexpr std::array<DType, 3> dtypes{DType::float32, DType::float16, DType::bfloat16};
    const std::int64_t last = random.once_in(3) ? 2 : 1;
    for (Gradient& gradient : input.workload.gradients) {
        gradient.dtype = dtypes[static_cast<std::size_t>(random.number(0, last))];
    }
    return input;
}

TEST_CASE("with gradients of several dtypes it is, on 2,000 random steps", "[optimal]") {
    RandomPlanning random(1916);
    for (int i = 0; i < 2000 / BUCKETWISE_TEST_SHARE; ++i) {
        const StepInput input = of_several_dtypes(random, random.number(2, 7), random.once_in(3));
        CAPTURE(i);
        check_against_all(input, random.request(random.once_in(4)));
    }
}

// Every list that closes buckets otherwise: its caps are sizes of neighbours of one dtype, as they
// join, or a byte more.
std::vector<Bytes> deciding_caps(const StepInput& input, const PlanPolicy& policy) {
    std::vector<Bytes> caps{Bytes{1}};
    const std::vector<std::int32_t> order = joining(input, policy);
    const auto& gradients = input.workload.gradients;
    for (std::size_t begin = 0; begin < order.size(); ++begin) {
        const Gradient& first = gradients[static_cast<std::size_t>(order[begin])];
        Bytes size{0};
        for (std::size_t end = begin; end < order.size(); ++end) {
            const Gradient& g = gradients[static_cast<std::size_t>(order[end])];
            if (g.dtype == first.dtype && !g.sparse) {
                size += g.size();
                caps.insert(caps.end(), {size, size + Bytes{1}});
            }
        }
    }
    std::sort(caps.begin(), caps.end());
    caps.erase(std::unique(caps.begin(), caps.end()), caps.end());
    return caps;
}

TEST_CASE(
    "no list of caps is faster than the optimum of several dtypes, and none gives it where "
    "none is named",
    "[optimal]") {
    RandomPlanning random(1917);
    std::size_t named = 0;
    std::size_t unnamed = 0;
    for (int i = 0; i < 600 / BUCKETWISE_TEST_SHARE; ++i) {
        const StepInput input = of_several_dtypes(random, random.number(2, 6), random.once_in(3));
        SyncRequest request = without_caps(random.request(false));
        request.strategy = Strategy::ddp;
        request.find_unused_parameters = false;  // whose buckets have another order
        CAPTURE(i);
        const OptimalPlan optimum = optimal_plan(input, request, no_progress);
        const std::vector<Bytes> caps = deciding_caps(input, settings_for(request).policy);
        Evaluator evaluator(input, request);
        std::size_t shortest = 0;  // list that gives the optimum
        const auto try_out = [&](const std::vector<Bytes>& list) {
            SyncRequest with_list = request;
            with_list.bucket_cap_list = list;
            const BucketPlan plan = make_plan(input.workload, settings_for(with_list).policy);
            CHECK(evaluator.evaluate(std::nullopt, plan).times.step() >= optimum.bound);
            const bool same = plan.buckets == optimum.plan.buckets;
            shortest = same && shortest == 0 ? list.size() : shortest;
        };
        for (const Bytes first : caps) {
            try_out({first});
        }
        for (const Bytes first : caps) {
            for (const Bytes second : caps) {
                try_out({first, second});
            }
        }
        CHECK((shortest == 0 ? optimum.cap_list.empty() || optimum.cap_list.size() > 2
                             : optimum.cap_list.size() == shortest));
        (optimum.cap_list.empty() ? unnamed : named) += 1;
    }
    CHECK(named > 200 / BUCKETWISE_TEST_SHARE);
    CHECK(unnamed > 0);
}

TEST_CASE("where ranks differ nothing that is shown beats the bound", "[optimal]") {
    RandomPlanning random(1919);
    for (int i = 0; i < 1000 / BUCKETWISE_TEST_SHARE; ++i) {
        StepInput input = random.input(random.number(2, 12), random.once_in(3), random.once_in(3));
        input.group.ranks = 8;
        input.classes = {{7, 1.0}, {1, 1.0 + static_cast<double>(random.number(0, 1000)) / 997}};
        CAPTURE(i);
        const SyncRequest request = random.request(random.once_in(4));
        const OptimalPlan optimum = optimal_plan(input, request, no_progress);
        const Prediction prediction = predict(input, request, {}, no_progress);
        for (const Evaluation& row : prediction.sweep) {
            CHECK(row.times.step() >= optimum.bound);
        }
        CHECK(prediction.default_cap.times.step() >= optimum.bound);
    }
}

TEST_CASE("a dtype's bucket may hold gradients that those of another lie between", "[optimal]") {
    // Six of a million bytes, all ready after 1 ms, float32 and float16 in turn; backward takes
    // 10 ms. A bucket of n million bytes takes 1 + n ms. One bucket for each dtype: both are sent
    // between 1 and 9 ms. Buckets of neighbours hold one gradient each and take until 1 + 6 * 2.
    StepInput input = by_hand({1, 1, 1, 1, 1, 1});
    for (std::size_t i = 0; i < 6; i += 2) {
        input.workload.gradients[i].dtype = DType::float16;
        input.workload.gradients[i].numel = 500'000;
    }
    const OptimalPlan optimum = optimal_plan(input, {}, no_progress);
    CHECK(optimum.evaluation.times.step() == duration_from_ms(10));
    CHECK(optimum.proved);
    CHECK(optimum.bound == duration_from_ms(10));
    CHECK(sizes_of(optimum).size() <= 4);
    CHECK(!optimum.cap_list.empty());
}

TEST_CASE("of many gradients nothing that is tried is faster than the bound", "[optimal]") {
    RandomPlanning random(1918);
    for (int i = 0; i < 80 / BUCKETWISE_TEST_SHARE; ++i) {
        const std::int64_t gradients = random.number(16, 60);
        const StepInput input = random.once_in(2)
                                    ? random.input(gradients, true, false)
                                    : of_several_dtypes(random, gradients, random.once_in(3));
        SyncRequest request = without_caps(random.request(random.once_in(4)));
        CAPTURE(i);
        std::vector<double> shares;
        const OptimalPlan optimum =
            optimal_plan(input, request, [&](double done) { shares.push_back(done); });
        CHECK(std::is_sorted(shares.begin(), shares.end()));
        CHECK(shares.back() == 1);
        const PlanPolicy policy = settings_for(request).policy;
        Evaluator evaluator(input, request);
        for (int k = 0; k < 200; ++k) {
            std::vector<bool> last(input.workload.gradients.size());
            const std::int64_t length = random.number(1, 20);
            std::generate(last.begin(), last.end(), [&] { return random.once_in(length); });
            const BucketPlan plan = make_plan_closing_after(input.workload.gradients,
                                                            input.workload.readiness, policy, last);
            const Duration step = evaluator.evaluate(std::nullopt, plan).times.step();
            CHECK(step >= optimum.bound);
            CHECK((!optimum.proved || step >= optimum.evaluation.times.step()));
        }
    }
}

TEST_CASE("of 14 gradients it is, with and without interference", "[optimal]") {
    RandomPlanning random(1912);
    for (int i = 0; i < 4; ++i) {
        const StepInput input = random.input(14, i % 2 == 1, false);
        CAPTURE(i);
        check_against_all(input, random.request(false));
    }
}

TEST_CASE("no single change of an optimal plan of many gradients is faster", "[optimal]") {
    RandomPlanning random(1913);
    for (int i = 0; i < 12; ++i) {
        const StepInput input = random.input(random.number(30, 120), false, false);
        const SyncRequest request = random.request(false);
        CAPTURE(i);
        const OptimalPlan optimum = optimal_plan(input, request, no_progress);
        const Duration least = optimum.evaluation.times.step();
        // Too many labels leave a millionth open; copies of full buckets that wait, more.
        CHECK((request.batched_grad_copy || optimum.proved ||
               1'000'000 * (least - optimum.bound) <= 2 * least));
        const SyncSettings sync = settings_for(request);
        const GradientLine line(input.workload.gradients, input.workload.readiness, sync.policy);
        Evaluator evaluator(input, request);
        const Cuts cuts = *line.cuts_of(optimum.plan);
        for (std::size_t cut = 1; cut < line.size(); ++cut) {
            Cuts changed = cuts;
            const auto at = std::lower_bound(changed.begin(), changed.end(), cut);
            if (*at == cut) {
                changed.erase(at);
            } else {
                changed.insert(at, cut);
            }
            const Duration step = evaluator.evaluate(std::nullopt, line.plan(changed)).times.step();
            CHECK(step >= optimum.bound);
            // As fast with one bucket less would have been preferred.
            CHECK((!optimum.proved || step > least || changed.size() >= cuts.size()));
        }
    }
}

// ---- By hand ------------------------------------------------------------------------------------

TEST_CASE("the optimal plan of four gradients is the one a hand finds", "[optimal]") {
    // Ready at 1, 5, 9 and 10 ms. The last all-reduce of k gradients takes 1 + k ms and starts at
    // 10 ms at the earliest. Alone it ends at 12 ms if the network is free at 10 ms: the first
    // three in one bucket would take until 9 + 4 = 13 ms, the third alone until 11, then the last
    // until 13. The last two together end at 10 + 3 = 13 ms. Nothing ends at 12, as the third
    // cannot be sent before 9 + 2 = 11. So 13 ms, with as few buckets as that takes: the first two
    // until 5 + 3 = 8 ms, then two together from 10 to 13. All in one takes 10 + 5.
    const OptimalPlan optimum = optimal_plan(by_hand({1, 5, 9, 10}), {}, no_progress);
    CHECK(optimum.evaluation.times.step() == duration_from_ms(13));
    CHECK(sizes_of(optimum) == std::vector<std::int64_t>{2'000'000, 2'000'000});
    CHECK(optimum.proved);
    CHECK(optimum.bound == duration_from_ms(13));
    // Two equal buckets: a cap above one gradient, up to two. 1.25 MB are 1.19 MiB.
    REQUIRE(optimum.cap_list.size() == 1);
    CHECK(optimum.cap_list[0].count > 1'000'000);
    CHECK(optimum.cap_list[0].count <= 2'000'000);
}

TEST_CASE("an optimum that no single cap gives is typed as a list", "[optimal]") {
    // Ready at 1, 1, 1, 6 and 10 ms. The last alone ends at 12 ms if all others have ended at 10:
    // three together from 1 to 5, the fourth from 6 to 8. Other caps that send the last alone:
    // every one alone, 2 ms each: 3, 5, 7, 9 and, from 10, 12 ms too. With fewest buckets: four
    // from 6 to 11, then the last until 13, so two are too few; three it is. Two and one and two
    // end at 13.
    const OptimalPlan optimum = optimal_plan(by_hand({1, 1, 1, 6, 10}), {}, no_progress);
    CHECK(optimum.evaluation.times.step() == duration_from_ms(12));
    CHECK(optimum.plan.buckets.size() == 3);
    CHECK(optimum.plan.buckets.back().gradients.size() == 1);
    CHECK(!optimum.cap_list.empty());
}

TEST_CASE("MG-WFBP merges a gradient into the next that is ready before its start-up is over",
          "[optimal]") {
    const auto merged = [](const std::vector<double>& ready_ms) {
        const StepInput input = by_hand(ready_ms);
        const GradientLine line(input.workload.gradients, input.workload.readiness, {});
        return greedy_merge(
            line, [&](std::size_t cut) { return duration_from_ms(ready_ms[cut - 1]); },
            [&](std::size_t begin, std::size_t end) {
                return duration_from_ms(1.0 + static_cast<double>(end - begin));
            });
    };
    // Start-up is 1 ms. The first starts at 1 ms, the second is ready at 1.5 < 2: merged; together
    // they start at 1.5, the third is ready at 5, not before 2.5. They end at 4.5. The third starts
    // at 5, the fourth is ready at 6, not before 6: alone.
    CHECK(merged({1, 1.5, 5, 6}) == Cuts{2, 3, 4});
    // The network is busy until 3 ms, so the second starts then, and the third is ready at 3.5 < 4.
    CHECK(merged({1, 2.5, 3.5}) == Cuts{1, 3});
}

TEST_CASE("the shortest list of caps that gives the cuts", "[optimal]") {
    // Gradients of a million bytes each, 0.95 MiB. Overshoot closes at one once the cap is at most
    // a million bytes, at two from there to two million.
    const StepInput input = by_hand({1, 2, 3, 4, 5, 6});
    const Workload& workload = input.workload;
    const auto list_for = [&](const Cuts& cuts, Closing closing) {
        SyncRequest request;
        request.closing = closing;
        const GradientLine line = GradientLine::of_accumulators(
            workload.gradients, workload.readiness, settings_for(request).policy);
        const BucketPlan plan = line.plan(cuts);
        return cap_list_for(
            line, workload.gradients, plan, closing, [&](const std::vector<Bytes>& list) {
                request.bucket_cap_list = list;
                CHECK(make_plan(workload, settings_for(request).policy).buckets == plan.buckets);
                return true;
            });
    };
    CHECK(list_for({1, 3, 5, 6}, Closing::overshoot).size() == 2);
    CHECK(!list_for({1, 3, 6}, Closing::strict).empty());
    // The second bucket of strict closes at three, so a cap of three million bytes, which the
    // first must not have.
    CHECK(list_for({2, 5, 6}, Closing::strict).size() == 2);
    CHECK(list_for({2, 5, 6}, Closing::per_gradient).empty());
}

TEST_CASE("what has no plan to choose is refused by name", "[optimal]") {
    const StepInput input = by_hand({1, 2});
    SyncRequest request;
    request.strategy = Strategy::none;
    CHECK_THROWS_AS(optimal_plan(input, request, no_progress), InputError);
    StepInput empty = input;
    empty.workload.gradients.clear();
    empty.workload.readiness.clear();
    CHECK_THROWS_AS(optimal_plan(empty, {}, no_progress), InputError);
    // PyTorch sorts the buckets of construction by parameter; gradients 1 and 0 in this order give
    // buckets in the order of no line.
    StepInput forward_ready = by_hand({1, 2, 3});
    std::swap(forward_ready.workload.readiness[0], forward_ready.workload.readiness[1]);
    request = {};
    request.find_unused_parameters = true;
    request.order = Order::readiness;
    CHECK_THROWS_AS(optimal_plan(forward_ready, request, no_progress), InputError);
}

}  // namespace
}  // namespace bucketwise
