#include "sim/workload/device.h"

#include "tests/catch.h"

namespace bucketwise {
namespace {

TEST_CASE("a pass takes its arithmetic or its memory traffic, whichever is longer") {
    Device device;
    device.peak_tflop_per_s = {10, 0, 20, 0, 0};
    device.memory_bandwidth = {1'000'000'000'000};
    device.compute_efficiency = 0.5;
    device.memory_efficiency = 0.8;
    // 10^12 flop at 5 TFLOP/s = 0.2 s against 10^9 x 4 B at 800 GB/s = 5 ms.
    CHECK(roofline_seconds({1'000'000'000'000, 1'000'000'000}, device, Arithmetic::float32) ==
          Approx(0.2));
    // 10^9 flop = 0.2 ms against 5 ms; half the bytes in float16.
    CHECK(roofline_seconds({1'000'000'000, 1'000'000'000}, device, Arithmetic::float32) ==
          Approx(0.005));
    CHECK(roofline_seconds({1'000'000'000, 1'000'000'000}, device, Arithmetic::float16) ==
          Approx(0.0025));
    // A copied byte is read and written: half of 800 GB/s.
    CHECK(copy_bandwidth(device) == BytesPerSecond{400'000'000'000});
}

TEST_CASE("every preset is found by its name and supports float32") {
    for (const std::string_view name : device_preset_names()) {
        const std::optional<Device> device = device_preset(name);
        REQUIRE(device);
        CHECK(device->name == name);
        CHECK(device->peak(Arithmetic::float32) > 0);
        CHECK(device->memory_bandwidth.count > 0);
        CHECK(device->launch > Duration{0});
        CHECK(device->graph_launch == duration_from_us(10));
    }
    CHECK_FALSE(device_preset("H1000"));
    CHECK(device_preset("V100")->peak(Arithmetic::bfloat16) == 0);
}

}  // namespace
}  // namespace bucketwise
