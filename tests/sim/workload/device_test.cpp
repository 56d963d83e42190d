#include "sim/workload/device.h"

#include <map>

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

TEST_CASE(
    "data sheets agree with themselves: lanes, multiprocessors and boost clock make float32") {
    // In MHz, from the same data sheets. Each lane adds and multiplies in one cycle; AMD's take two
    // numbers at once. Rates are rounded to three digits.
    const std::map<std::string_view, double> boost_mhz{
        {"A100", 1410},      {"A100 40GB", 1410}, {"A10G", 1710},     {"A40", 1740},
        {"A4000", 1560},     {"B200", 1980},      {"GB200", 2062},    {"H100", 1980},
        {"H100 96GB", 1980}, {"H200", 1980},      {"L4", 2040},       {"L40S", 2520},
        {"MI300X", 2100},    {"RTX 3090", 1695},  {"RTX 4090", 2520}, {"RTX PRO 6000", 2617},
        {"T4", 1590},        {"V100", 1530}};
    CHECK(boost_mhz.size() == device_presets().size());
    for (const auto& [name, mhz] : boost_mhz) {
        INFO(name);
        const Device device = device_preset(name).value();
        const double lanes = device.wide || name == "MI300X" ? 128 : 64;
        CHECK(device.peak(Arithmetic::float32) ==
              Approx(2 * lanes * static_cast<double>(*device.multiprocessors) * mhz * 1e-6)
                  .epsilon(0.01));
    }
}

TEST_CASE("GPUs for graphics do a 64th of float32 in float64") {
    for (const std::string_view name :
         {"A10G", "A40", "A4000", "L4", "L40S", "RTX 3090", "RTX 4090", "RTX PRO 6000"}) {
        INFO(name);
        const Device device = device_preset(name).value();
        CHECK(device.peak(Arithmetic::float64) ==
              Approx(device.peak(Arithmetic::float32) / 64).epsilon(0.03));
    }
}

}  // namespace
}  // namespace bucketwise
