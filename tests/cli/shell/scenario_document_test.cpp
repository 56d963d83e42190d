#include "cli/shell/scenario_document.h"

#include <filesystem>
#include <fstream>

#include <boost/program_options.hpp>

#include "cli/shell/files.h"
#include "sim/base/json_input.h"
#include "sim/link/link_presets.h"
#include "sim/scenario/scenario.h"
#include "sim/workload/device.h"
#include "sim/workload/models/models.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

ScenarioOptions typed(const std::vector<std::string>& arguments) {
    ScenarioOptions options;
    const auto rows = options_of(simulated_rows(options));
    boost::program_options::variables_map values;
    boost::program_options::store(
        boost::program_options::command_line_parser(arguments).options(rows).run(), values);
    fill_fields(rows, values);
    return options;
}

Scenario scenario_of(const std::string& model, const std::vector<std::string>& arguments = {}) {
    return parse_scenario(read_simulated_document(typed(arguments), model), model, read_text_file);
}

const ModelWorkload& workload_of(const Scenario& scenario) {
    return std::get<ModelWorkload>(scenario.workload);
}

std::string assumed_of(const Scenario& scenario) {
    return scenario.caveats.empty() ? "" : scenario.caveats.front().text;
}

TEST_CASE("every model that ships is a scenario by its name") {
    for (const std::string_view name : model_names()) {
        INFO(name);
        const Scenario scenario = scenario_of(std::string(name));
        CHECK(scenario.group.ranks == 8);
        CHECK(scenario.link.preset == "nvlink-h100-8");
        CHECK(workload_of(scenario).device->name == "H100");
        CHECK(assumed_of(scenario).find("device H100, ranks 8, link nvlink-h100-8") !=
              std::string::npos);
    }
}

TEST_CASE("a model's name may be joined as one likes") {
    CHECK(scenario_of("gpt2_xl").name == "gpt2-xl");
    CHECK(scenario_of("vit-b-16").name == "vit_b_16");
    CHECK(scenario_of("ResNet50").name == "resnet50");
}

TEST_CASE("so many ranks as make no whole nodes are refused with what makes some") {
    CHECK_THROWS_WITH(
        scenario_of("resnet50", {"--link=ib-ndr-400", "--ranks=12"}),
        Catch::Matchers::Contains("at most 8 ranks, a node's, or a multiple of 8 with the preset "
                                  "ib-ndr-400, got 12"));
    CHECK(scenario_of("resnet50", {"--link=ib-ndr-400", "--ranks=4"}).group.ranks == 4);
}

TEST_CASE("GPUs of links and devices of presets are the same by name") {
    for (const LinkPreset& preset : link_presets()) {
        INFO(preset.name);
        CHECK((preset.gpu.empty() || device_preset(preset.gpu).has_value()));
    }
    CHECK(preset_of_gpu("A100", 8)->name == "nvlink-a100-8");
    CHECK(preset_of_gpu("A100", 9)->name == "ib-hdr-200");
    CHECK(preset_of_gpu("V100", 9) == nullptr);  // only nodes of 8 are known
}

TEST_CASE("the device is that of the link, and the link that of the device") {
    const Scenario aws = scenario_of("gpt2", {"--link", "efa-p4d"});
    CHECK(workload_of(aws).device->name == "A100");
    CHECK(aws.group.ranks == 16);  // two nodes of 8, as link show has them
    CHECK(scenario_of("gpt2", {"--device", "b200", "--ranks=32"}).link.preset == "ib-ndr-400-b200");
    CHECK(workload_of(scenario_of("gpt2", {"--link", "eth-10g"})).device->name == "H100");
    CHECK_THROWS_AS(scenario_of("gpt2", {"--device", "L4"}), InputError);    // no link of 8 of them
    CHECK_THROWS_AS(scenario_of("gpt2", {"--device", "L400"}), InputError);  // nor such a device
}

TEST_CASE("products are in what the device has, or in what was asked for") {
    CHECK(workload_of(scenario_of("resnet50")).arithmetic == Arithmetic::tfloat32);
    CHECK(workload_of(scenario_of("gpt2")).arithmetic == Arithmetic::bfloat16);
    CHECK(workload_of(scenario_of("gpt2")).dtype == DType::float32);
    // V100 has neither.
    CHECK(workload_of(scenario_of("gpt2", {"--device", "V100"})).arithmetic == Arithmetic::float16);
    CHECK(workload_of(scenario_of("resnet50", {"--dtype", "bf16"})).arithmetic ==
          Arithmetic::bfloat16);
}

TEST_CASE("typed values are not called assumed") {
    const std::string all = assumed_of(scenario_of(
        "resnet50",
        {"--device=H100", "--batch=64", "--dtype=float32", "--ranks=8", "--link=nvlink-h100-8",
         "--set=/workload/arithmetic=float32", "--set=/step/optimizer=adam"}));
    CHECK(all.empty());
    const Scenario scenario =
        scenario_of("resnet50", {"--batch=64", "--set", "/workload/dtype=bfloat16"});
    CHECK(workload_of(scenario).input.batch == 64);
    CHECK(assumed_of(scenario).find("batch") == std::string::npos);
    CHECK(assumed_of(scenario).find("dtype") == std::string::npos);
    CHECK(assumed_of(scenario).find("optimizer sgd_momentum") != std::string::npos);
}

TEST_CASE("a file of a model's name is the file, a folder is not") {
    const std::filesystem::path here = std::filesystem::current_path();
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / "bucketwise model scenario";
    std::filesystem::create_directories(folder / "gpt2");
    std::ofstream(folder / "resnet50") << "{}";
    std::filesystem::current_path(folder);
    CHECK(read_scenario_document(typed({}), "resnet50") == Json::object());
    CHECK(read_scenario_document(typed({}), "gpt2").at("name") == "gpt2");
    CHECK_THROWS_AS(read_scenario_document(typed({}), "./gpt2"), InputError);
    CHECK_THROWS_AS(read_scenario_document(typed({}), "gpt3"), InputError);
    std::filesystem::current_path(here);
    std::filesystem::remove_all(folder);
}

TEST_CASE("--ranks changes a file's ranks, and what a node holds with them") {
    const std::string file = std::string(BUCKETWISE_SCENARIO_DIR) + "/gpt2_xl_32xh100.json";
    CHECK(scenario_of(file, {"--ranks=64"}).group == RankGroup{64, 8});
    CHECK(scenario_of(file, {"--ranks=4"}).group == RankGroup{4, 4});
}

TEST_CASE("a model on a link of nodes has 8 ranks in each") {
    const std::string link =
        std::string(BUCKETWISE_SCENARIO_DIR) + "/links/hierarchical_h100_efa.json";
    const Scenario scenario = scenario_of("resnet50", {"--ranks=32", "--link", link});
    CHECK(scenario.group == RankGroup{32, 8});
    CHECK(assumed_of(scenario).find("ranks_per_node 8") != std::string::npos);
}

}  // namespace
}  // namespace bucketwise
