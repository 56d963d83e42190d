#include "sim/base/units.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("bytes over a bandwidth round to the nearest picosecond") {
    // 1 byte at 3 GB/s = 333.33 ps; 2 bytes = 666.67 ps.
    CHECK(transfer_time({1}, {3'000'000'000}) == Duration{333});
    CHECK(transfer_time({2}, {3'000'000'000}) == Duration{667});
    // 1 byte at 2 TB/s = 0.5 ps: halves go up.
    CHECK(transfer_time({1}, {2'000'000'000'000}) == Duration{1});
    CHECK(transfer_time({0}, {1}) == Duration{0});
}

TEST_CASE("a share of the bytes is not rounded before it is used") {
    // 2(p-1)/p = 4/3 of 10 bytes at 1 GB/s = 13.333 ns; rounding to 13 bytes would give 13,000 ps.
    CHECK(transfer_time({10}, {1'000'000'000}, {4, 3}) == Duration{13'333});
}

TEST_CASE("the largest messages and shares that are accepted do not overflow") {
    // 2^47 bytes times (3 x 10^12 + 7) / 2 x 10^12 at 1 PB/s: 2^47 x 1.5000000000035 / 10^15 s.
    CHECK(to_us(transfer_time({std::int64_t{1} << 47}, {1'000'000'000'000'000},
                              {3'000'000'000'007, 2'000'000'000'000})) == Approx(211'106.2325));
    CHECK(transfer_time({std::int64_t{1} << 60}, {1'000'000'000'000'000},
                        {4'000'000'000'000, 1'000'000'000'000}) == Duration{4'611'686'018'427'388});
}

TEST_CASE("a transfer too long for any step saturates instead of overflowing") {
    CHECK(transfer_time({std::int64_t{1} << 50}, {1'000}) == longest_duration);
    CHECK(transfer_time({std::int64_t{1} << 50}, {1'000}, {1'999'998, 1'000'000}) ==
          longest_duration);
}

TEST_CASE("stretched work never ends early, and work done never exceeds what fits") {
    // 1000 ps at 1.5 times slower = 1500 ps; 1 ps = 1.5 ps, up to 2.
    CHECK(stretched(Duration{1000}, 1'500'000) == Duration{1500});
    CHECK(stretched(Duration{1}, 1'500'000) == Duration{2});
    CHECK(work_done(Duration{1500}, 1'500'000) == Duration{1000});
    CHECK(work_done(Duration{1}, 1'500'000) == Duration{0});
    for (std::int64_t work = 0; work < 1000; ++work) {
        for (const std::int64_t ppm : {1'000'000, 1'000'001, 1'333'333, 7'000'000}) {
            CHECK(work_done(stretched(Duration{work}, ppm), ppm) >= Duration{work});
        }
    }
}

TEST_CASE("stretched work is exact on both sides of 64 bits") {
    // 2 n take 3 n at 1.5: 2 n x 1,500,000 passes 2^63 at n = 3,074,457,345,619, and 3 n x 10^6 at
    // the same.
    constexpr std::int64_t passes = 3'074'457'345'619;
    for (std::int64_t n = passes - 5; n < passes + 5; ++n) {
        CHECK(stretched(Duration{2 * n}, 1'500'000) == Duration{3 * n});
        CHECK(stretched(Duration{2 * n + 1}, 1'500'000) == Duration{3 * n + 2});
        CHECK(work_done(Duration{3 * n}, 1'500'000) == Duration{2 * n});
        CHECK(work_done(Duration{3 * n + 2}, 1'500'000) == Duration{2 * n + 1});
    }
}

TEST_CASE("milliseconds and microseconds convert to picoseconds and back") {
    CHECK(duration_from_ms(1.5) == Duration{1'500'000'000});
    CHECK(duration_from_us(0.0000005) == Duration{1});  // half a picosecond, away from zero
    CHECK(to_ms(duration_from_ms(482.125)) == 482.125);
    CHECK(bandwidth_from_gb_per_s(1.04) == BytesPerSecond{1'040'000'000});
    CHECK(to_mib(Bytes{26'214'400}) == 25.0);
}

}  // namespace
}  // namespace bucketwise
