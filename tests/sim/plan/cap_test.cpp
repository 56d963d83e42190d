#include "sim/plan/cap.h"

#include <algorithm>
#include <random>
#include <vector>

#include "sim/plan/strategy.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("a typed cap means exactly the bytes it stands for") {
    std::mt19937_64 random(14);
    for (int round = 0; round < 10'000; ++round) {
        const std::int64_t bytes =
            std::uniform_int_distribution<std::int64_t>(1, std::int64_t{1} << 40)(random) >>
            std::uniform_int_distribution<int>(0, 39)(random);
        const Bytes cap{std::max<std::int64_t>(bytes, 1)};
        CHECK(static_cast<std::int64_t>(typed_mib(cap) * 1048576.0) == cap.count);
    }
    CHECK(typed_mib({26'214'400}) == 25.0);
    CHECK(typed_mib({52'428}) == 0.05);
}

TEST_CASE("the cap that stands for a range is round, within it, and the default where that fits") {
    CHECK(roundest_cap({Bytes{1}, std::nullopt}) == default_bucket_cap);
    CHECK(roundest_cap({Bytes{27 << 20}, std::nullopt}) == Bytes{std::int64_t{1000} << 20});
    CHECK(roundest_cap({Bytes{27 << 20}, Bytes{34 << 20}}) == Bytes{30 << 20});
    CHECK(roundest_cap({Bytes{(3 << 20) + 1}, Bytes{(4 << 20) - 1}}) ==
          Bytes{(3 << 20) + (1 << 19)});
    CHECK(roundest_cap({Bytes{5}, Bytes{7}}) == Bytes{5});
}

TEST_CASE("a cap is the default until it is named, and a strategy without one has none") {
    CHECK(Cap() == Cap(std::nullopt));
    CHECK(Cap().size() == default_bucket_cap);
    CHECK(!Cap().named());
    // Naming 25 MiB is not the default: DDP's first bucket is then as large as the others.
    CHECK(Cap(default_bucket_cap) != Cap());
    CHECK(Cap(Bytes{7}).named() == Bytes{7});
    CHECK(!Cap::none().size());

    SyncRequest request;
    CHECK(cap_of(request) == Cap());
    CHECK(cap_of(with_cap(request, Bytes{7})) == Bytes{7});
    request.bucket_cap_list = {Bytes{1}, Bytes{2}};
    CHECK(cap_of(request) == Cap::none());
    CHECK(with_cap(request, Bytes{7}) == request);  // a list stays
    CHECK(cap_of(with_cap(without_list(request), Bytes{7})) == Bytes{7});
    request.first_bucket = Bytes{3};
    CHECK(without_caps(request) == SyncRequest{});
    request.strategy = Strategy::naive;
    CHECK(cap_of(without_list(request)) == Cap::none());
}

TEST_CASE("the walk visits the first cap of every plan, and with growth leaves some out") {
    // Plans change at every multiple of 10, up to 40.
    const auto visited = [](Bytes first, double growth) {
        std::vector<std::int64_t> caps;
        walk_plans(first, growth, [&](Bytes cap) {
            caps.push_back(cap.count);
            const std::int64_t lowest = std::max<std::int64_t>(cap.count / 10 * 10, 1);
            return CapRange{Bytes{lowest}, cap.count < 40
                                               ? std::optional(Bytes{lowest / 10 * 10 + 9})
                                               : std::nullopt};
        });
        return caps;
    };
    CHECK(visited(Bytes{1}, 1.0) == std::vector<std::int64_t>{1, 10, 20, 30, 40});
    CHECK(visited(Bytes{15}, 1.0) == std::vector<std::int64_t>{15, 20, 30, 40});
    // At least three times the lowest cap of the plan before: 1, 10, 30, 90.
    CHECK(visited(Bytes{1}, 3.0) == std::vector<std::int64_t>{1, 10, 30, 90});
}

TEST_CASE("round caps are short to type, the default shortest") {
    CHECK(digits_to_type(default_bucket_cap) == 0);
    for (const double mib :
         {1.0, 2.0, 4.0, 5.0, 8.0, 10.0, 0.5, 0.25, 0.1, 50.0, 64.0, 100.0, 1024.0}) {
        CAPTURE(mib);
        CHECK(digits_to_type(Bytes{static_cast<std::int64_t>(mib * bytes_per_mib)}) == 1);
    }
    CHECK(digits_to_type(Bytes{3 * bytes_per_mib}) == 2);
    CHECK(digits_to_type(Bytes{250 * bytes_per_mib}) == 2);
    CHECK(digits_to_type(Bytes{static_cast<std::int64_t>(2.569337 * bytes_per_mib)}) == 7);
    CHECK(digits_to_type(Bytes{1 << 10}) > 1);  // a power of two, but not in MiB
}

}  // namespace
}  // namespace bucketwise
