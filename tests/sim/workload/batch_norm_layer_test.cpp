#include "sim/workload/batch_norm_layer.h"

#include <algorithm>
#include <array>

#include "tests/catch.h"

namespace bucketwise {
namespace {

BatchNormLayer layer_of(BatchNormSystem system, std::int64_t rows, std::int64_t channels,
                        std::int64_t ranks = 2) {
    const bool real = real_layer_of(system).has_value();
    return {.system = system,
            .passes = real ? BatchNormPasses::both : BatchNormPasses::forward,
            .rows = rows,
            .channels = channels,
            .ranks = ranks};
}

std::int64_t peak_of(const BatchNormLayer& layer) {
    return memory_peak(events_of(layer)).size.count;
}

TEST_CASE("what BatchNorm exchanges is two values per channel and a count") {
    // 2 x 64 + 1 float32 from each rank, 516 bytes; the gathered buffer of 4 ranks is 4 times that.
    const Exchange gather = forward_exchange(BatchNormSync::gather, 64);
    CHECK(gather == Exchange{CollectiveKind::all_gather, {516}, DType::float32});
    CHECK(gather.buffer(4) == Bytes{2064});
    // Sums of squares travel in float64: 129 x 8 bytes.
    const Exchange fused = forward_exchange(BatchNormSync::fused, 64);
    CHECK(fused == Exchange{CollectiveKind::all_reduce, {1032}, DType::float64});
    CHECK(fused.buffer(4) == Bytes{1032});
    for (const BatchNormSync sync : {BatchNormSync::gather, BatchNormSync::fused}) {
        CHECK(backward_exchange(sync, 64) ==
              Exchange{CollectiveKind::all_reduce, {512}, DType::float32});
    }
}

// The published peaks of 2 ranks at batch 32. pytorch, with a = 32 x width x 4 bytes of an
// activation and v = width x 4 of a vector, is 2a + 12v + 6 blocks of 512 bytes: 2 x 16,384 + 12 x
// 512 + 3,072 = 41,984 at width 128. selfmade is 6a + 6v + 1 block: 98,304 + 3,072 + 512 = 101,888.
TEST_CASE("what the published systems have live at their peak is what was measured, to the byte") {
    struct Published {
        std::int64_t width;
        std::int64_t pytorch;
        std::int64_t selfmade;
    };
    constexpr std::array<Published, 4> table{{{128, 41'984, 101'888},
                                              {256, 80'896, 203'264},
                                              {512, 158'720, 406'016},
                                              {1024, 314'368, 811'520}}};
    for (const Published& row : table) {
        CHECK(peak_of(layer_of(BatchNormSystem::pytorch, 32, row.width)) == row.pytorch);
        CHECK(peak_of(layer_of(BatchNormSystem::selfmade, 32, row.width)) == row.selfmade);
    }
}

// With one row the two activations are no larger than vectors, and the gathering takes more than
// the output: before it is made, the local mean and deviation are still there.
TEST_CASE("where batches are tiny the peak is where statistics meet") {
    const MemoryPeak peak = memory_peak(events_of(layer_of(BatchNormSystem::pytorch, 1, 128)));
    const auto has = [&](const char* name) {
        return std::any_of(peak.live.begin(), peak.live.end(),
                           [&](const LiveTensor& tensor) { return tensor.name == name; });
    };
    CHECK(has("local mean"));
    CHECK_FALSE(has("output"));
}

// a = 16,384, v = 512. Both passes: input, output, their gradients (4a); weight, bias, running mean
// and variance, mean, deviation, two gradients, two sums (10v); rows (1 block).
TEST_CASE("our own layers' peak is in backward, the same for both, and in forward without it") {
    for (const BatchNormSystem system : {BatchNormSystem::gather, BatchNormSystem::fused}) {
        BatchNormLayer layer = layer_of(system, 32, 128);
        CHECK(peak_of(layer) == 4 * 16'384 + 10 * 512 + 512);
        layer.passes = BatchNormPasses::forward;
        // Input, output (2a); all of the above but gradients and sums (6v); rows.
        CHECK(peak_of(layer) == 2 * 16'384 + 6 * 512 + 512);
    }
    // One row: a = v = 512. In gather's forward, after the all-gather of 257 floats from 8 ranks
    // (8,224 bytes, 17 blocks): input; 4 parameters, mean, deviation, rows; the own 257 floats (3
    // blocks) and all: 1 + 7 + 3 + 17 blocks.
    BatchNormLayer small = layer_of(BatchNormSystem::gather, 1, 128, 8);
    small.passes = BatchNormPasses::forward;
    CHECK(peak_of(small) == 14'336);
}

Device device_of(double launch_us, bool host_is_device = false) {
    Device device;
    device.peak_tflop_per_s.fill(1);
    device.memory_bandwidth = {4'000'000'000};  // a float32 per ns
    device.launch = duration_from_us(launch_us);
    device.host_is_device = host_is_device;
    return device;
}

LinkParameters link_of(double launch_us, double host_issue_us) {
    LinkParameters link;
    link.segments = {{std::nullopt, Duration{0}, {1'000'000'000'000'000}}};
    link.launch = duration_from_us(launch_us);
    link.host_issue = duration_from_us(host_issue_us);
    return link;
}

// fused, forward, 1,000 rows of 1,000 channels: a pass over the input moves 10^6 elements in 1 ms
// on the device above. local sums: 10^6 + 2 x 2,001; statistics: 2 x 2,001 + 6,000; normalise: 2 x
// 10^6 + 4,000: together 3.018004 ms. The collective takes 100 us, and its wire next to nothing.
TEST_CASE("a layer's time is its passes, its collectives, and what the host is late") {
    BatchNormLayer layer = layer_of(BatchNormSystem::fused, 1000, 1000);
    layer.passes = BatchNormPasses::forward;
    const std::vector<LayerEvent> events = events_of(layer);
    const auto us = [&](const Device& device, const LinkParameters& link) {
        return to_us(time_of(events, device, {2, 2}, link));
    };
    CHECK(us(device_of(0), link_of(0, 0)) == Approx(3018.004).margin(0.01));
    CHECK(us(device_of(0), link_of(100, 0)) == Approx(3118.004).margin(0.01));
    // Launching takes 20 us each, all but the first while the device is busy.
    CHECK(us(device_of(20), link_of(100, 20)) == Approx(3138.004).margin(0.01));
    // On a CPU nothing is launched ahead: 3 launches and the collective's issue add up.
    CHECK(us(device_of(20, true), link_of(100, 20)) == Approx(3198.004).margin(0.01));
    // Launch-bound: 5 ms each. The last of four things issued is issued at 20 ms, and normalise
    // then takes 2.004 ms.
    CHECK(us(device_of(5000), link_of(100, 5000)) == Approx(22'004).margin(0.01));
}

// pytorch launches 23 kernels of 10 us each and asks three times how many counts are not zero, a
// copy of 10 us that it waits for.
TEST_CASE("a host that waits for the device pays for the collective that came before") {
    const std::vector<LayerEvent> events = events_of(layer_of(BatchNormSystem::pytorch, 32, 128));
    const auto us = [&](double collective_us) {
        return to_us(time_of(events, device_of(10), {2, 2}, link_of(collective_us, 0)));
    };
    // Everything but the last pass (8,448 elements, 8.448 us) ends before the next is launched.
    CHECK(us(0) == Approx(26 * 10 + 8.448).margin(0.001));
    // The collective starts at 40.514 us, after cat (514 elements), the host's fourth launch, and
    // ends at 140.514; ge and count (2 elements each) follow, and the copy, launched at 70 us, is
    // there at 140.518: the host goes on 70.518 us later than before.
    CHECK(us(100) == Approx(26 * 10 + 8.448 + 70.518).margin(0.001));
}

}  // namespace
}  // namespace bucketwise
