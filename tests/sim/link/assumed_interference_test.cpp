#include "sim/link/assumed_interference.h"

#include "sim/link/link_presets.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr RankGroup eight{8, 8};

LinkParameters ring_of_gpus(double gb_per_s) {
    LinkParameters link;
    link.segments = {{.bandwidth = bandwidth_from_gb_per_s(gb_per_s)}};
    link.provenance.backend = "nccl";
    return link;
}

double compute_slowdown(const LinkParameters& link, const ComputingBeside& computing) {
    return static_cast<double>(
               assumed_interference(link, eight, computing).back().slowdown.compute_slowdown_ppm) *
           1e-6;
}

TEST_CASE("interference is assumed of links between GPUs, where nobody says what it is") {
    CHECK(lacks_interference(preset_link(*find_preset("nvlink-h100-8"), PresetEnd::typical)));
    CHECK(lacks_interference(preset_link(*find_preset("ib-ndr-400"), PresetEnd::slow)));
    CHECK_FALSE(lacks_interference(preset_link(*find_preset("eth-10g"), PresetEnd::typical)));
    LinkParameters link = ring_of_gpus(100);
    CHECK(lacks_interference(link));
    link.interference = constant_interference({});  // "none"
    CHECK_FALSE(lacks_interference(link));
    link = ring_of_gpus(100);
    link.provenance.backend = "gloo";
    CHECK_FALSE(lacks_interference(link));
}

TEST_CASE("computing has the multiprocessors that thread blocks leave") {
    // 24 of NVLink's on an H100, 4 of PCIe's on an A40; of small messages fewer: one for 32 KiB.
    CHECK(compute_slowdown(ring_of_gpus(300), {.multiprocessors = 132}) ==
          Approx(132.0 / 108).epsilon(1e-6));
    CHECK(compute_slowdown(ring_of_gpus(20), {.multiprocessors = 84}) ==
          Approx(84.0 / 80).epsilon(1e-6));
    LinkParameters link = ring_of_gpus(20);
    link.ctas = 8;
    link.interference = assumed_interference(link, eight, {.multiprocessors = 108});
    CHECK(interference_for(CollectiveKind::all_reduce, link, {1000}).compute_slowdown_ppm ==
          1'009'346);  // 108 / 107
    CHECK(interference_for(CollectiveKind::all_reduce, link, {65'536}).compute_slowdown_ppm ==
          1'009'346);  // below 2 blocks'
    CHECK(interference_for(CollectiveKind::all_reduce, link, {1 << 30}).compute_slowdown_ppm ==
          1'080'000);  // 108 / 100
    CHECK(
        interference_for(CollectiveKind::all_reduce, link, {1 << 30}).communication_slowdown_ppm ==
        1'300'000);
}

TEST_CASE("a link by NCCL takes the thread blocks of the way that NCCL chooses") {
    const auto slowdown = [](std::string_view preset, std::int64_t ranks) {
        const LinkParameters link = preset_link(*find_preset(preset), PresetEnd::typical);
        const auto segments = assumed_interference(link, {ranks, 1}, {.multiprocessors = 132});
        return static_cast<double>(segments.back().slowdown.compute_slowdown_ppm) * 1e-6;
    };
    // NVLS has 16 on H100, whatever channels there are; a ring of two GPUs all 24.
    CHECK(slowdown("nvlink-h100-8", 8) == Approx(132.0 / 116).epsilon(1e-6));
    CHECK(slowdown("nvlink-h100-8", 2) == Approx(132.0 / 108).epsilon(1e-6));
    // On one node of Blackwell it has 24.
    CHECK(slowdown("nvlink-b200-8", 8) == Approx(132.0 / 108).epsilon(1e-6));
}

TEST_CASE("what products and memory traffic add is in proportion to their share of the time") {
    const LinkParameters link = ring_of_gpus(20);  // 4 thread blocks
    const double blocks = 84.0 / 80;
    // Half a wave, 12 us, of products of 60 us.
    CHECK(compute_slowdown(link, {.multiprocessors = 84,
                                  .product_share = 1,
                                  .product = std::chrono::microseconds(60)}) ==
          Approx(blocks + 0.2).epsilon(1e-6));
    CHECK(compute_slowdown(link, {.multiprocessors = 84,
                                  .product_share = 0.25,
                                  .product = std::chrono::microseconds(60)}) ==
          Approx(blocks + 0.05).epsilon(1e-6));
    // Three passes over memory for each of 20 GB/s on the wire, of 600 GB/s.
    CHECK(compute_slowdown(link, {.multiprocessors = 84,
                                  .memory_bandwidth = bandwidth_from_gb_per_s(600),
                                  .product_share = 0.5}) ==
          Approx(blocks + 0.5 * 0.1).epsilon(1e-4));
    // A product of a single wave takes two, and no more.
    CHECK(compute_slowdown(link, {.multiprocessors = 84,
                                  .product_share = 1,
                                  .product = std::chrono::microseconds(1)}) ==
          Approx(blocks + 1).epsilon(1e-6));
}

TEST_CASE("a collective waits until the last rank's operation is over") {
    const auto segments = assumed_interference(ring_of_gpus(20), {4, 4},
                                               {.operation = std::chrono::microseconds(500)});
    for (const InterferenceSegment& segment : segments) {
        CHECK(segment.slowdown.start_delay == std::chrono::microseconds(400));  // 4 / 5 of it
        REQUIRE(segment.errors);
        CHECK(segment.errors->start_delay_us == Approx(200));
        CHECK(segment.errors->compute_slowdown > 0);
    }
}

}  // namespace
}  // namespace bucketwise
