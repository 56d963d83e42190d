// The preset that measured all-reduces resemble most.
#include "sim/link/nearest_preset.h"

#include "sim/link/collective.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

MeasuredTimes as_measured(const LinkPreset& preset, PresetEnd end, std::int64_t ranks,
                          std::int64_t nodes, double times) {
    MeasuredTimes measured{.ranks = ranks, .nodes = nodes};
    const LinkParameters link = preset_link(preset, end);
    for (std::int64_t bytes = 1024; bytes <= 1 << 30; bytes *= 4) {
        const Duration time =
            collective_time(CollectiveKind::all_reduce, {bytes}, {ranks, 1}, link);
        measured.times.push_back({{bytes}, to_us(time) * times});
    }
    return measured;
}

TEST_CASE("what a preset says is nearest to it, and within its range") {
    for (const LinkPreset& preset : link_presets()) {
        CAPTURE(std::string(preset.name));
        const auto* nodes = std::get_if<PresetNodes>(&preset.hardware);
        const std::int64_t ranks = shown_ranks(preset);
        const std::int64_t gpus = nodes != nullptr ? nodes->gpus : (ranks == 8 ? 8 : 1);
        const auto found = nearest_preset(
            as_measured(preset, PresetEnd::typical, ranks, divided(ranks, gpus), 1.05));
        REQUIRE(found);
        // H200's link is H100's, which is listed first; one socket differs in its slow end alone.
        const bool alike =
            (preset.name == "nvlink-h200-8" && found->preset->name == "nvlink-h100-8") ||
            preset.name == std::string(found->preset->name) + "-one-socket";
        CHECK((found->preset->name == preset.name || alike));
        CHECK(found->mean_error == Approx(1 - 1 / 1.05));
        CHECK(found->sizes == 8);
        CHECK(found->inside == 8);
    }
}

TEST_CASE("only presets with a place for the ranks, and of the GPU that is named, are compared") {
    const LinkPreset& b200 = *find_preset("nvlink-b200-8");
    MeasuredTimes measured = as_measured(b200, PresetEnd::typical, 8, 1, 1);
    CHECK(nearest_preset(measured)->preset->name == "nvlink-b200-8");
    measured.gpu = "NVIDIA H100 80GB HBM3";
    CHECK(nearest_preset(measured)->preset->name == "nvlink-h100-8");
    measured.gpu = "NVIDIA RTX PRO 4500 Blackwell";
    CHECK(nearest_preset(measured)->preset->name.starts_with("pcie"));
    measured.gpu = "NVIDIA Graphics Device";
    CHECK(nearest_preset(measured)->preset->name == "nvlink-b200-8");
    measured.gpu = "";
    measured.ranks = 100;
    CHECK_FALSE(nearest_preset(measured));  // on one node
    measured.nodes = 13;
    CHECK(std::get<PresetNodes>(nearest_preset(measured)->preset->hardware).nics.per_node > 0);
}

TEST_CASE("small sizes count only where there are no others, and nothing is near nothing") {
    const LinkPreset& preset = *find_preset("nvlink-h100-8");
    MeasuredTimes measured = as_measured(preset, PresetEnd::typical, 8, 1, 1);
    std::erase_if(measured.times, [](const MeasuredTime& time) { return time.bytes.count > 4096; });
    CHECK(nearest_preset(measured)->sizes == 2);
    measured.times = {{{1 << 20}, 0}};
    CHECK_FALSE(nearest_preset(measured));
    measured.times.clear();
    CHECK_FALSE(nearest_preset(measured));
    CHECK_FALSE(nearest_preset({.times = {{{1 << 20}, 10}}, .ranks = 1, .nodes = 1}));
}

}  // namespace
}  // namespace bucketwise
