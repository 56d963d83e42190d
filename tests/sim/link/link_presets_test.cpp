// Presets: that they are links like any other, that their ends are ends, and that a scenario can
// name them.
#include "sim/link/link_presets.h"

#include "sim/base/json_input.h"
#include "sim/link/collective.h"
#include "sim/link/link_input.h"
#include "sim/predict/prediction.h"
#include "sim/predict/preset_ends.h"
#include "sim/report/prediction_json.h"
#include "sim/report/report.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

std::string no_file(const std::string& path) {
    throw InputError(path, "", "a file that exists", "none");
}

Json document_with(const Json& link, int ranks) {
    return {{"name", "ResNet"},
            {"workload", {{"model", "resnet50"}, {"batch", 32}, {"device", "H100"}}},
            {"cluster", {{"ranks", ranks}, {"link", link}}},
            {"sync", {{"strategy", "ddp"}}}};
}

std::string refusal(const Json& document) {
    try {
        parse_scenario(document, "s.json", no_file);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST_CASE("every preset is a link file, and its ends are no faster and no slower than it is") {
    for (const LinkPreset& preset : link_presets()) {
        CAPTURE(std::string(preset.name));
        const Json document = preset_document(preset);
        const std::string text = document.dump();
        const Json again = parse_json(text, "saved.json");
        LinkParameters saved = read_link({&again, "saved.json", ""}, no_file);
        const LinkParameters typical = preset_link(preset, PresetEnd::typical);
        CHECK(saved.preset.empty());  // a file that may have been changed
        saved.preset = typical.preset;
        CHECK(saved == typical);
        const LinkParameters slow = preset_link(preset, PresetEnd::slow);
        const LinkParameters fast = preset_link(preset, PresetEnd::fast);
        for (const std::int64_t ranks : {std::int64_t{2}, shown_ranks(preset)}) {
            for (const std::int64_t bytes : {8LL, 1LL << 16, 1LL << 20, 1LL << 24, 1LL << 30}) {
                const auto time = [&](const LinkParameters& link) {
                    return collective_time(CollectiveKind::all_reduce, {bytes}, {ranks, ranks},
                                           link);
                };
                CAPTURE(ranks, bytes);
                CHECK(time(fast) < time(typical));
                CHECK(time(typical) < time(slow));
            }
        }
    }
}

TEST_CASE("PCIe whose paths nobody looked at holds one socket and two, and asks") {
    const auto time = [](std::string_view name, PresetEnd end) {
        constexpr Bytes large{1LL << 30};
        return to_us(collective_time(CollectiveKind::all_reduce, large, {8, 8},
                                     preset_link(*find_preset(name), end)));
    };
    for (const std::string name : {"pcie-gen3", "pcie-gen4"}) {
        CAPTURE(name);
        CHECK(time(name, PresetEnd::typical) == time(name + "-one-socket", PresetEnd::typical));
        CHECK(time(name, PresetEnd::fast) <= time(name + "-one-socket", PresetEnd::fast));
        // QPI's 6 GB/s, less a sixth for 64-byte packets, shared by four flows: 1.25 GB/s. A ring
        // of eight sends 7/4 of the bytes.
        CHECK(time(name, PresetEnd::slow) ==
              Approx(1e6 * 7 / 4 * (1LL << 30) / 1.25e9).epsilon(0.05));
        const LinkParameters link = preset_link(*find_preset(name), PresetEnd::typical);
        REQUIRE(link.caveats.size() == 1);
        CHECK(link.caveats.front().text.find("nvidia-smi topo -m") != std::string::npos);
        CHECK_FALSE(link.caveats.front().withholds);
    }
    CHECK(time("pcie-sys", PresetEnd::typical) > time("pcie-gen3-one-socket", PresetEnd::typical));
    CHECK(preset_link(*find_preset("pcie-sys"), PresetEnd::typical).caveats.empty());
}

TEST_CASE("a scenario names a preset where a file may stand, and the preset wins") {
    const Scenario scenario =
        parse_scenario(document_with("nvlink-h100-8", 8), "folder/s.json", no_file);
    CHECK(scenario.link.preset == "nvlink-h100-8");
    CHECK(scenario.link.name == "nvlink-h100-8");
    CHECK(scenario.link.provenance.source.find("prior") == 0);
    // A path is a file.
    CHECK(refusal(document_with("./nvlink-h100-8", 8)).find("a link file that can be read") !=
          std::string::npos);
    // Put in place to be changed, it is a link of one's own.
    Json document = document_with("eth-10g", 4);
    inline_link(document, "s.json", no_file);
    document["cluster"]["link"]["segments"][0]["latency_us"] = 1;
    const Scenario changed = parse_scenario(document, "s.json", no_file);
    CHECK(changed.link.preset.empty());
    CHECK(changed.link.segments.front().latency == std::chrono::microseconds{1});
    // Changed numbers are no longer the preset's; under another name the preset's numbers still
    // are.
    CHECK(changed.link.provenance.source ==
          "made from the preset eth-10g, with other numbers than its own");
    CHECK(changed.link.provenance.hardware.empty());
    // Words of one's own are no other number, and stay beside one.
    document["cluster"]["link"]["provenance"]["hardware"] = "ours";
    CHECK(parse_scenario(document, "s.json", no_file).link.provenance.hardware == "ours");
    document["cluster"]["link"]["segments"][0]["latency_us"] = 30;
    const Scenario ours = parse_scenario(document, "s.json", no_file);
    CHECK(ours.link.provenance.source.find("prior") == 0);
    CHECK(ours.link.provenance.hardware == "ours");
    for (const LinkPreset& preset : link_presets()) {
        Json renamed = document_with(preset_document(preset), 2);
        renamed["cluster"]["link"]["name"] = "ours";
        const Scenario same = parse_scenario(renamed, "s.json", no_file);
        CHECK(same.link.provenance.source.find(preset.source) != std::string::npos);
    }
}

TEST_CASE(
    "names that are nearly a preset's and ranks that do not fit are refused with what is near") {
    const std::string misspelt = refusal(document_with("nvlink-h100", 8));
    CAPTURE(misspelt);
    CHECK(misspelt.find("s.json: /cluster/link: expected a link file that can be read") == 0);
    CHECK(misspelt.find("a preset such as nvlink-h100-8") != std::string::npos);
    const std::string many = refusal(document_with("nvlink-h100-8", 16));
    CHECK(many ==
          "s.json: /cluster/ranks: expected at most 8 ranks on one node with the preset "
          "nvlink-h100-8; of several nodes are ib-ndr-400, efa-p5, gcp-tcpxo, slingshot-gh200, "
          "got 16");
    CHECK(refusal(document_with("mi300x-8", 16)).find("at most 8 ranks on one node") !=
          std::string::npos);
    CHECK(refusal(document_with("mi300x-8", 8)).empty());
    CHECK(refusal(document_with("nvlink-a100-8", 9)).find("ib-hdr-200") != std::string::npos);
    CHECK(refusal(document_with("ib-ndr-400", 16)).empty());
    // The preset's own number of ranks a node is no contradiction.
    Json per_node = document_with("ib-ndr-400", 16);
    per_node["cluster"]["ranks_per_node"] = 8;
    CHECK(refusal(per_node).empty());
    per_node["cluster"]["ranks_per_node"] = 4;
    CHECK(refusal(per_node).find("no ranks_per_node beside a topology") != std::string::npos);
    CHECK(refusal(document_with("", 2)).find("expected") != std::string::npos);
    CHECK(nearest_presets("wan").front() == "wan-1gbit-20ms");
    CHECK(nearest_presets("eth-10q").front() == "eth-10g");
    CHECK(nearest_presets(std::string(100'000, 'x')).size() == 3);
}

TEST_CASE("a prediction with a preset says what its ends would change") {
    const Scenario scenario = parse_scenario(document_with("roce-100g", 16), "s.json", no_file);
    const StepInput input = step_input(scenario);
    const Prediction prediction = predict(input, scenario.sync, {}, [](double) {});
    const LinkPreset& preset = *find_preset(scenario.link.preset);
    const std::vector<PriorEnd> ends = preset_ends(scenario, input, prediction).link;
    REQUIRE(ends.size() == 2);
    const PriorEnd& slow = ends[0];
    const PriorEnd& fast = ends[1];
    const Duration typical = prediction.chosen().times.step();
    CHECK(fast.best.times.step() < typical);
    CHECK(typical < slow.best.times.step());
    for (const PriorEnd& end : ends) {
        // The advised plan on the link of that end, computed the long way.
        StepInput there = input;
        there.link = preset_link(preset, end.end);
        there.link.interference = input.link.interference;
        const Cap cap = prediction.keep_default ? Cap() : prediction.sweep[prediction.best].cap;
        CHECK(end.with_choice == Evaluator(there, scenario.sync).evaluate(cap).times.step());
        CHECK(end.regret() >= 0);
        const Prediction all = predict(there, scenario.sync, {}, [](double) {});
        const Duration least =
            std::min(all.default_cap.step(),
                     std::ranges::min_element(all.sweep, {}, &Evaluation::step)->step());
        CHECK(end.best.step() == least);
    }
    const std::string text = text_report(scenario, prediction, {}, {.link = ends});
    CHECK(text.find("roce-100g is a preset, not a measurement") != std::string::npos);
    CHECK(text.find("at its slow end") != std::string::npos);
    const Json json = to_json(scenario, prediction, {}, {.link = ends});
    CHECK(json["link_preset"]["name"] == "roce-100g");
    CHECK(json["link_preset"]["ends"][0]["end"] == "slow");
    CHECK(json["link_preset"]["ends"][1]["best"]["step_ms"] == to_ms(fast.best.times.step()));
}

}  // namespace
}  // namespace bucketwise
