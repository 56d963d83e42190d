#include "sim/workload/eager_cost.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

// Ten multiprocessors of 1 TFLOP/s each whose tensor cores reach their peak; memory is no limit.
Device ten_multiprocessors() {
    Device device = *device_preset("A100");
    device.peak_tflop_per_s = {5, 10, 10, 10, 5};
    device.memory_bandwidth = {1'000'000'000'000'000};
    device.multiprocessors = 10;
    for (const GpuFactor factor : {GpuFactor::tensor_efficiency, GpuFactor::vector_efficiency,
                                   GpuFactor::convolution_efficiency}) {
        device.prior->given[static_cast<std::size_t>(factor)] = 1;
    }
    return device;
}

TEST_CASE("a product takes as long as its waves of tiles over the multiprocessors") {
    // 5 tiles of 256 x 128 by 2: ten blocks, one wave. Each 2 x 256 x 128 x (1024 + 96) flop of
    // its multiprocessor's 10^12 per s; a share of 85.3 / (85.3 + 12) is not spent on feeding it.
    const double wave = 2.0 * 256 * 128 * (1024 + 96) / 1e12 * (1 + 12 / (256.0 * 128 / 384));
    CHECK(product_seconds({{1280, 256, 1024, 1}}, ten_multiprocessors(), Arithmetic::bfloat16) ==
          Approx(wave));
    // Two such products are 20 blocks: two waves.
    CHECK(product_seconds({{1280, 256, 1024, 2}}, ten_multiprocessors(), Arithmetic::bfloat16) ==
          Approx(2 * wave));
}

TEST_CASE("small, shallow and misaligned products reach less of the peak") {
    const Device device = *device_preset("H100");
    const auto share = [&](std::int64_t m, std::int64_t n, std::int64_t k, Arithmetic arithmetic) {
        return 2.0 * static_cast<double>(m * n * k) /
               product_seconds({{m, n, k, 1}}, device, arithmetic) /
               product_rate(device, arithmetic);
    };
    const double large = share(16384, 8192, 8192, Arithmetic::bfloat16);
    CHECK(large > 0.8);
    CHECK(large < 1);
    CHECK(share(16384, 8192, 64, Arithmetic::bfloat16) < 0.5 * large);
    CHECK(share(512, 512, 512, Arithmetic::bfloat16) < 0.7 * large);
    CHECK(share(16384, 8191, 8192, Arithmetic::bfloat16) < 0.6 * large);
    CHECK(share(16384, 8191, 8192, Arithmetic::tfloat32) > 0.9 * large);
    // Few tiles of a deep product are split by depth, so it is not left to a few multiprocessors.
    CHECK(share(512, 512, 65536, Arithmetic::bfloat16) > 0.5 * large);
}

TEST_CASE("a product is no faster than its operands move") {
    Device device = ten_multiprocessors();
    device.memory_bandwidth = {1'000'000'000};
    device.prior->given[static_cast<std::size_t>(GpuFactor::pass_efficiency)] = 0.5;
    // 10^9 bytes at half of 10^9 bytes per s.
    CHECK(product_seconds({{128, 128, 128, 1}, 1e9}, device, Arithmetic::bfloat16) == Approx(2));
}

TEST_CASE("power and wide multiprocessors take their share of the rate") {
    Device device = ten_multiprocessors();
    CHECK(product_rate(device, Arithmetic::float32) == Approx(5e12));
    device.wide = true;
    CHECK(product_rate(device, Arithmetic::float32) == Approx(0.75 * 5e12));
    CHECK(product_rate(device, Arithmetic::bfloat16) == Approx(10e12));
    device.sustained = 0.5;
    CHECK(product_rate(device, Arithmetic::bfloat16) == Approx(5e12));
}

}  // namespace
}  // namespace bucketwise
