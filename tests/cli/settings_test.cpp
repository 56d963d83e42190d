// Settings to type, and typed settings, as users ask for them.
#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/settings/settings_file.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

testing::ShellOutcome asked(const std::string& arguments, const std::string& redirect = "2>&1") {
    return testing::run_in_shell(std::string(BUCKETWISE_BINARY) + " " + arguments + " " + redirect);
}

const std::string resnet_on_8 = std::string(BUCKETWISE_SCENARIO_DIR) + "/resnet50_8xh100.json";

bool outcome_says(const testing::ShellOutcome& outcome, std::string_view part) {
    return outcome.output.find(part) != std::string::npos;
}

TEST_CASE(
    "what to type is said of PyTorch, of where the scenario comes from, and of all if asked") {
    const auto plain = asked("predict " + resnet_on_8);
    CHECK(plain.exit_code == 0);
    CHECK(outcome_says(plain, "pytorch_ddp"));
    CHECK_FALSE(outcome_says(plain, "deepspeed"));
    const auto from = asked("predict " + resnet_on_8 + " --set /sync/framework=deepspeed");
    CHECK(outcome_says(from, "deepspeed_zero2"));
    CHECK_FALSE(outcome_says(from, "megatron"));
    CHECK(outcome_says(asked("predict " + resnet_on_8 + " --set /sync/framework=lightning"),
                       "    lightning\n"));
    const auto all = asked("predict " + resnet_on_8 + " --for all");
    for (const char* place :
         {"megatron_lm", "megatron_distributed_optimizer", "deepspeed_zero1", "deepspeed_zero2",
          "horovod", "accelerate", "axolotl", "composer", "detectron2", "fairseq", "lightning",
          "mmengine", "ray_train", "torchtitan", "transformers"}) {
        CAPTURE(place);
        CHECK(outcome_says(all, std::string("    ") + place));
    }
    const auto json = nlohmann::json::parse(
        asked("predict " + resnet_on_8 + " --for accelerate,lightning --json -", "2>/dev/null")
            .output);
    CHECK(json["settings"].size() == 6);
    CHECK(json["wrappers"].size() == 2);
}

TEST_CASE("a version is that of the newest rule, and an older one than its first is refused") {
    const auto typed = [](const std::string& version) {
        return nlohmann::json::parse(
            asked("predict " + resnet_on_8 + " --framework deepspeed_zero2" + version + " --json -",
                  "2>/dev/null")
                .output)["settings"]["deepspeed_zero2"];
    };
    const auto newest = typed("");
    CHECK(typed("=0.14.3") == newest);
    CHECK(newest["versions"] == nlohmann::json({"0.14.3", "0.19.8"}));
}

TEST_CASE("a place that there is not, and a version that is none, are refused in one line") {
    for (const auto& [options, message] : std::vector<std::pair<std::string, std::string>>{
             {"--for lightnin", "bucketwise: --for: expected one of pytorch_ddp, "},
             {"--for lightning,", "bucketwise: --for: expected "},
             {"--framework lightning", "bucketwise: --framework: expected one of pytorch_ddp, "},
             {"--framework deepspeed=x", "bucketwise: --framework: expected 0.14.3, or a later "},
             {"--framework horovod=0.22.1", "expected 0.23.0, or a later version, after horovod="},
             {"--set /sync/framework=deepspeed_zero1 --set /sync/framework_version=0.14.2",
              "/sync/framework_version: expected deepspeed_zero1 0.14.3 or later, got "},
             {"--framework deepspeed_zero1=0.1",
              "or a later version, after deepspeed_zero1=, got "},
             {"--for accelerate=1.0", "bucketwise: --for: expected accelerate without a version"},
             {"--set /sync/framework=lightnin", "/sync/framework: expected one of "},
             {"--set /sync/framework_version=new",
              "/sync/framework_version: expected a version "}}) {
        CAPTURE(options);
        const auto outcome = asked("predict " + resnet_on_8 + " " + options);
        CHECK(outcome.exit_code == 2);
        CHECK(outcome_says(outcome, message));
        CHECK(std::ranges::count(outcome.output, '\n') == 1);
    }
}

TEST_CASE("settings check says what is typed, what it costs, and what is suspicious") {
    const TestFolder folder;
    write_file(folder.file("ds.json"),
               R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 5e4}})");
    const std::string file = "'" + folder.file("ds.json") + "'";
    const auto alone = asked("settings check " + file);
    CHECK(alone.exit_code == 0);
    CHECK(outcome_says(alone, "deepspeed_zero2, reduce_bucket_size 50000"));
    CHECK(outcome_says(alone, "overlap_comm is off"));
    const auto json = nlohmann::json::parse(
        asked("settings check " + file + " " + resnet_on_8 + " --json -", "2>/dev/null").output);
    CHECK(json["place"] == "deepspeed_zero2");
    CHECK(json["checked"]["cost"] > 0.0);
    CHECK(json["checked"]["best"]["typed"].get<std::string>().find("reduce_bucket_size") !=
          std::string::npos);
    CHECK(asked("settings check").exit_code == 2);
    CHECK(asked("settings check /nowhere").exit_code == 2);
    CHECK(asked("settings check " + file + " " + resnet_on_8 + " third").exit_code == 2);
    CHECK(asked("settings check " + file + " --json " + file).exit_code == 2);
    CHECK(
        nlohmann::json::parse(text_of_file(folder.file("ds.json"))).contains("zero_optimization"));
}

TEST_CASE("a cap that torch.compile refuses is no step to predict") {
    const TestFolder folder;
    write_file(folder.file("small.json"), R"({"ddp_bucket_cap_mb": 0.5, "torch_compile": true})");
    write_file(folder.file("whole.json"), R"({"ddp_bucket_cap_mb": 2, "torch_compile": true})");
    const auto check = [&](const std::string& name) {
        return asked("settings check '" + folder.file(name) + "' " + resnet_on_8);
    };
    CHECK(check("small.json").exit_code == 0);
    CHECK(outcome_says(check("small.json"), "refuses a cap below 1 MiB: no step"));
    CHECK(outcome_says(check("whole.json"), "a step"));
    CHECK(asked("predict " + resnet_on_8 + " --set /sync/compiled=true --bucket-cap 0.5MiB")
              .exit_code == 2);
    CHECK(asked("predict " + resnet_on_8 +
                " --set /sync/compiled=true --set /sync/bucket_cap_mib=0.5")
              .exit_code == 2);
    CHECK(asked("predict " + resnet_on_8 + " --set /sync/compiled=true --plan optimal").exit_code ==
          2);
}

TEST_CASE("whatever settings hold, they are read or refused") {
    const std::vector<std::string> seeds{
        R"({"zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e7}})",
        R"({"ddp_bucket_cap_mb": 25, "gradient_checkpointing": true, "torch_compile": true})",
        "pretrain.py --bf16 --overlap-grad-reduce --ddp-bucket-size 40000000 --ddp-num-buckets 3",
        "Trainer(strategy=DDPStrategy(bucket_cap_mb=25, gradient_as_bucket_view=True))",
        "m = DistributedDataParallel(m, bucket_cap_mb_list=[1, 4.5], find_unused_parameters=False)",
        "prepare_model(m, parallel_strategy_kwargs={\"bucket_cap_mb\": 1e3})"};
    const std::string characters = "()[]{}\"'=,: -._\\\n019etruefalsNoe";
    std::mt19937 random(20261125);
    const auto below = [&](std::size_t count) {
        return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
    };
    int read = 0;
    for (int i = 0; i < 4'000; ++i) {
        std::string text = seeds[below(seeds.size())];
        for (std::size_t edits = below(6); edits > 0 && !text.empty(); --edits) {
            const std::size_t at = below(text.size());
            const std::size_t what = below(3);
            if (what == 0) {
                text[at] = characters[below(characters.size())];
            } else if (what == 1) {
                text.erase(at, below(8) + 1);
            } else {
                text.insert(at, text.substr(below(text.size()), below(12)));
            }
        }
        try {
            const TypedSettings typed = read_typed_settings(text, "settings");
            ++read;
            CHECK(std::isfinite(typed.value.value_or(0)));
            CHECK(typed.value.value_or(0) >= 0);
        } catch (const InputError& error) {
            CHECK(std::string(error.what()).rfind("settings: ", 0) == 0);
        }
    }
    CHECK(read > 400);
}

}  // namespace
}  // namespace bucketwise
