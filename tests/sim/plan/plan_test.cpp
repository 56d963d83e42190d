#include "sim/plan/plan.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>

#include <nlohmann/json.hpp>

#include "sim/plan/strategy.h"
#include "sim/workload/models/models.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

using Groups = std::vector<std::vector<std::int32_t>>;

Groups groups_of(const BucketPlan& plan) {
    Groups groups;
    for (const Bucket& bucket : plan.buckets) {
        groups.push_back(bucket.gradients);
    }
    return groups;
}

std::vector<std::int64_t> sizes_of(const BucketPlan& plan) {
    std::vector<std::int64_t> sizes;
    for (const Bucket& bucket : plan.buckets) {
        sizes.push_back(bucket.size.count);
    }
    return sizes;
}

std::vector<std::int32_t> identity(std::size_t count) {
    std::vector<std::int32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    return order;
}

// PyTorch's function sorts its result when no readiness order is given; reversed_after_sort also
// reverses it.
Groups pytorch_without_order(const std::vector<Gradient>& gradients,
                             const std::vector<Bytes>& limits) {
    PlanPolicy policy;
    policy.order = Order::forward;
    policy.limits.list = limits;
    policy.reversed_after_sort = true;
    Groups groups = groups_of(make_plan(gradients, identity(gradients.size()), policy));
    std::reverse(groups.begin(), groups.end());
    return groups;
}

Gradient f32(std::int64_t numel) {
    return {"", numel, DType::float32, false};
}
Gradient f64(std::int64_t numel) {
    return {"", numel, DType::float64, false};
}

TEST_CASE("bucket assignment equals the vectors of PyTorch's own unit tests") {
    // torch/test/distributed/test_c10d_common.py, ComputeBucketAssignmentTest.
    CHECK(pytorch_without_order({f32(10), f32(10), f32(10), f32(10)}, {{40}, {80}}) ==
          Groups{{0}, {1, 2}, {3}});
    const std::vector<Gradient> alternating{f32(50), f64(25), f32(50), f64(25), f32(50), f64(25)};
    CHECK(pytorch_without_order(alternating, {{400}}) == Groups{{0, 2}, {1, 3}, {4}, {5}});
    CHECK(pytorch_without_order(alternating, {{200}, {400}}) == Groups{{0}, {1}, {2, 4}, {3, 5}});
}

Workload workload_of(const char* model) {
    const ModelTiming timing{*device_preset("A100"), Arithmetic::float32, std::nullopt,
                             std::nullopt};
    return workload_from_model(make_model(model, {2, 0, 64}), DType::float32, timing);
}

BucketPlan ddp_plan(const Workload& workload, const SyncRequest& request) {
    return make_plan(workload.gradients, workload.readiness, settings_for(request).policy);
}

TEST_CASE("ResNet-18 gives the all-reduce sizes of PyTorch issue 48880") {
    const Workload workload = workload_of("resnet18");
    SyncRequest request;
    request.explicit_cap_sets_first = false;  // the issue is of 2020
    request.bucket_cap = Bytes{25 * bytes_per_mib};
    CHECK(sizes_of(ddp_plan(workload, request)) ==
          std::vector<std::int64_t>{2052000, 28852224, 15853824});
    request.bucket_cap = Bytes{35 * bytes_per_mib};
    CHECK(sizes_of(ddp_plan(workload, request)) ==
          std::vector<std::int64_t>{2052000, 38297600, 6408448});
}

TEST_CASE("ResNet-50 gives the all-reduces of a traced run on two A100") {
    const BucketPlan plan = ddp_plan(workload_of("resnet50"), {});
    CHECK(sizes_of(plan) ==
          std::vector<std::int64_t>{8196000, 31502336, 26255360, 26550272, 9724160});
    std::vector<std::size_t> finished;
    for (const Bucket& bucket : plan.buckets) {
        finished.push_back((finished.empty() ? 0 : finished.back()) + bucket.gradients.size());
    }
    CHECK(finished == std::vector<std::size_t>{2, 17, 29, 80, 161});
}

TEST_CASE("Python reduction of ResNet-50 makes as many buckets as published, without overshoot") {
    const Workload workload = workload_of("resnet50");
    // Buffer sizes are N x 2^20 elements of 4 bytes. The whole model has 24.373 x 2^20 elements, so
    // 12 cannot do with two buckets.
    for (const auto& [n, buckets] : std::vector<std::pair<std::int64_t, std::size_t>>{
             {3, 11}, {8, 4}, {12, 3}, {13, 2}, {24, 2}, {25, 1}}) {
        SyncRequest request;
        request.strategy = Strategy::python_async;
        request.bucket_cap = Bytes{n * 4 * bytes_per_mib};
        const BucketPlan plan = ddp_plan(workload, request);
        CHECK(plan.buckets.size() == buckets);
        for (const Bucket& bucket : plan.buckets) {
            CHECK(bucket.size <= *request.bucket_cap.named());
        }
    }
}

nlohmann::json golden(const char* file) {
    std::ifstream stream(std::filesystem::path(BUCKETWISE_TEST_DATA_DIR) / "pytorch" / file);
    REQUIRE(stream);
    return nlohmann::json::parse(stream);
}

DType dtype_named(const std::string& name) {
    for (const DType dtype : every<DType>) {
        if (name_of(dtype) == name) {
            return dtype;
        }
    }
    FAIL("unknown dtype " << name);
    return DType::float32;
}

TEST_CASE("bucket assignment equals PyTorch's own function on 400 random inputs") {
    const nlohmann::json document = golden("bucket_assignment.json");
    REQUIRE(document["cases"].size() == 400);
    for (const nlohmann::json& entry : document["cases"]) {
        std::vector<Gradient> gradients;
        for (std::size_t i = 0; i < entry["numel"].size(); ++i) {
            const bool sparse = !entry["sparse"].is_null() && entry["sparse"][i].get<bool>();
            gradients.push_back({"", entry["numel"][i].get<std::int64_t>(),
                                 dtype_named(entry["dtype"][i].get<std::string>()), sparse});
        }
        std::vector<Bytes> limits;
        for (const nlohmann::json& limit : entry["limits_bytes"]) {
            limits.push_back({limit.get<std::int64_t>()});
        }
        Groups ours;
        if (entry["order"].is_null()) {
            ours = pytorch_without_order(gradients, limits);
        } else {
            PlanPolicy policy;
            policy.limits.list = limits;
            ours = groups_of(
                make_plan(gradients, entry["order"].get<std::vector<std::int32_t>>(), policy));
        }
        CHECK(ours == entry["buckets"].get<Groups>());
    }
}

TEST_CASE("rebuilt plans equal those of real DistributedDataParallel") {
    const nlohmann::json document = golden("rebuilt_buckets.json");
    REQUIRE(document["plans"].size() == 12);
    for (const nlohmann::json& entry : document["plans"]) {
        const nlohmann::json& options = entry["options"];
        INFO(entry["model"] << " " << options);
        const Workload workload = workload_of(entry["model"].get<std::string>().c_str());
        SyncRequest request;
        if (options.contains("bucket_cap_mb")) {
            request.bucket_cap =
                Bytes{options["bucket_cap_mb"].get<std::int64_t>() * bytes_per_mib};
        }
        if (options.contains("bucket_cap_mb_list")) {
            for (const nlohmann::json& cap : options["bucket_cap_mb_list"]) {
                request.bucket_cap_list.push_back({cap.get<std::int64_t>() * bytes_per_mib});
            }
        }
        request.find_unused_parameters = options.value("find_unused_parameters", false);
        const BucketPlan plan = ddp_plan(workload, request);
        CHECK(sizes_of(plan) == entry["bucket_bytes"].get<std::vector<std::int64_t>>());
        CHECK(groups_of(plan) == entry["bucket_parameters"].get<Groups>());
        request.strategy = Strategy::ddp_first_iteration;
        CHECK(sizes_of(ddp_plan(workload, request)) ==
              entry["first_iteration_bytes"].get<std::vector<std::int64_t>>());
    }
}

// ---- Properties, on random lists of gradients -------------------------------------------------

class RandomLists {
  public:
    explicit RandomLists(unsigned seed) : random_(seed) {}

    std::int64_t between(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
    }

    std::vector<Gradient> gradients() {
        std::vector<Gradient> list;
        const std::int64_t dtypes = between(1, 4);
        for (std::int64_t i = between(1, 60); i > 0; --i) {
            const std::int64_t largest = std::int64_t{1} << between(0, 30);  // tiny to huge
            list.push_back({"", between(1, largest),
                            every<DType>[static_cast<std::size_t>(between(0, dtypes - 1))],
                            between(0, 30) == 0});
        }
        return list;
    }

    std::vector<std::int32_t> order(std::size_t count) {
        std::vector<std::int32_t> shuffled = identity(count);
        std::shuffle(shuffled.begin(), shuffled.end(), random_);
        return shuffled;
    }

    PlanPolicy policy() {
        PlanPolicy policy;
        policy.closing = between(0, 1) == 0 ? Closing::overshoot : Closing::strict;
        policy.order = std::vector{Order::forward, Order::reverse,
                                   Order::readiness}[static_cast<std::size_t>(between(0, 2))];
        policy.limits.cap = limit();
        if (between(0, 1) == 0) {
            policy.limits.first = limit();
        }
        for (std::int64_t i = between(-4, 4); i > 0; --i) {
            policy.limits.list.push_back(limit());
        }
        return policy;
    }

    Bytes limit() { return {between(1, std::int64_t{1} << between(1, 34))}; }

  private:
    std::mt19937 random_;
};

std::vector<std::int32_t> visiting_order(const PlanPolicy& policy,
                                         const std::vector<std::int32_t>& readiness) {
    std::vector<std::int32_t> order =
        policy.order == Order::readiness ? readiness : identity(readiness.size());
    if (policy.order == Order::reverse) {
        std::reverse(order.begin(), order.end());
    }
    return order;
}

Bytes limit_at(const BucketLimits& limits, std::size_t k) {
    if (!limits.list.empty()) {
        return limits.list[std::min(k, limits.list.size() - 1)];
    }
    return k == 0 && limits.first ? *limits.first : limits.cap;
}

// Checks every rule on the buckets of one dtype, in the order they closed; the last may be open.
void check_buckets_of_dtype(const std::vector<Gradient>& gradients, const PlanPolicy& policy,
                            const std::vector<const Bucket*>& buckets) {
    for (std::size_t k = 0; k < buckets.size(); ++k) {
        const Bytes limit = limit_at(policy.limits, k);
        const auto size_of = [&](std::int32_t i) {
            return gradients[static_cast<std::size_t>(i)].size();
        };
        const Bytes last = size_of(buckets[k]->gradients.back());
        const bool may_be_open = k + 1 == buckets.size();
        if (policy.closing == Closing::overshoot) {
            CHECK((may_be_open || buckets[k]->size >= limit));
            CHECK(buckets[k]->size - last < limit);  // it overshoots by at most its last gradient
        } else {
            CHECK((buckets[k]->size <= limit || buckets[k]->gradients.size() == 1));
            if (!may_be_open) {
                CHECK(buckets[k]->size + size_of(buckets[k + 1]->gradients.front()) > limit);
            }
        }
    }
}

TEST_CASE("every plan obeys its policy, on 5,000 random lists") {
    RandomLists random(20261121);
    for (int round = 0; round < 5000; ++round) {
        const std::vector<Gradient> gradients = random.gradients();
        const std::vector<std::int32_t> readiness = random.order(gradients.size());
        const PlanPolicy policy = random.policy();
        const BucketPlan plan = make_plan(gradients, readiness, policy);

        // Nothing is lost or doubled, and sizes add up.
        std::multiset<std::int32_t> seen;
        for (const Bucket& bucket : plan.buckets) {
            REQUIRE_FALSE(bucket.gradients.empty());
            Bytes sum;
            for (const std::int32_t i : bucket.gradients) {
                const Gradient& gradient = gradients[static_cast<std::size_t>(i)];
                seen.insert(i);
                sum += gradient.size();
                CHECK(gradient.dtype == bucket.dtype);
                CHECK((!gradient.sparse || bucket.gradients.size() == 1));
            }
            CHECK(sum == bucket.size);
        }
        const std::vector<std::int32_t> all = identity(gradients.size());
        REQUIRE(seen == std::multiset<std::int32_t>(all.begin(), all.end()));

        // Within a dtype, concatenating the buckets gives back the visiting order.
        for (const DType dtype : every<DType>) {
            const auto belongs = [&](std::int32_t i) {
                const Gradient& gradient = gradients[static_cast<std::size_t>(i)];
                return gradient.dtype == dtype && !gradient.sparse;
            };
            std::vector<std::int32_t> expected;
            for (const std::int32_t i : visiting_order(policy, readiness)) {
                if (belongs(i)) {
                    expected.push_back(i);
                }
            }
            std::vector<std::int32_t> concatenated;
            std::vector<const Bucket*> buckets;
            for (const Bucket& bucket : plan.buckets) {
                if (belongs(bucket.gradients.front())) {
                    concatenated.insert(concatenated.end(), bucket.gradients.begin(),
                                        bucket.gradients.end());
                    buckets.push_back(&bucket);
                }
            }
            CHECK(concatenated == expected);
            check_buckets_of_dtype(gradients, policy, buckets);
        }
    }
}

TEST_CASE("buckets go out in the order they close, on 1,000 random lists") {
    RandomLists random(7);
    for (int round = 0; round < 1000; ++round) {
        const std::vector<Gradient> gradients = random.gradients();
        const std::vector<std::int32_t> readiness = random.order(gradients.size());
        PlanPolicy policy = random.policy();
        policy.closing = Closing::overshoot;
        const BucketPlan plan = make_plan(gradients, readiness, policy);
        const std::vector<std::int32_t> order = visiting_order(policy, readiness);
        const auto position = [&](std::int32_t i) {
            return std::find(order.begin(), order.end(), i) - order.begin();
        };
        std::size_t open = 0;  // how many buckets at the end never filled: at most one per dtype
        std::ptrdiff_t last_closed = -1;
        for (const Bucket& bucket : plan.buckets) {
            const std::ptrdiff_t closed = position(bucket.gradients.back());
            if (closed > last_closed && open == 0) {
                last_closed = closed;
            } else {
                ++open;
            }
        }
        CHECK(open <= every<DType>.size());
    }
}

TEST_CASE("the range of caps with the same plan is exact at both ends, on 3,000 random lists") {
    RandomLists random(99);
    for (int round = 0; round < 3000; ++round) {
        const std::vector<Gradient> gradients = random.gradients();
        const std::vector<std::int32_t> readiness = random.order(gradients.size());
        PlanPolicy policy = random.policy();
        policy.limits.list.clear();
        const BucketPlan plan = make_plan(gradients, readiness, policy);
        const auto with_cap = [&](Bytes cap) {
            PlanPolicy other = policy;
            other.limits.cap = cap;
            return make_plan(gradients, readiness, other);
        };
        CHECK(plan.same_plan.lowest <= policy.limits.cap);
        CHECK(with_cap(plan.same_plan.lowest) == plan);
        if (plan.same_plan.lowest > Bytes{1}) {
            CHECK(with_cap(plan.same_plan.lowest - Bytes{1}).same_plan != plan.same_plan);
        }
        if (plan.same_plan.highest) {
            CHECK(policy.limits.cap <= *plan.same_plan.highest);
            CHECK(with_cap(*plan.same_plan.highest) == plan);
            CHECK(with_cap(*plan.same_plan.highest + Bytes{1}).same_plan != plan.same_plan);
        } else {
            CHECK(with_cap(Bytes{std::int64_t{1} << 60}) == plan);
        }
    }
}

}  // namespace
}  // namespace bucketwise
