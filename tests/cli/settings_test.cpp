// Settings to type, and typed settings, as users ask for them.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/settings/settings_file.h"
#include "sim/base/error.h"
#include "sim/base/json.h"
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

// Random values in files of every kind, as their readers get them from Python.
TEST_CASE("whatever settings hold, they are read or refused") {
    const std::vector<const char*> seeds{
        R"({"document": {"zero_optimization": {"stage": 2, "overlap_comm": true,
            "reduce_bucket_size": 5e7}, "bf16": {"enabled": true}}})",
        R"({"document": {"ddp_bucket_cap_mb": 25, "gradient_checkpointing": true,
            "torch_compile": true, "fsdp": "full_shard", "fsdp_config": {"version": 2}}})",
        R"({"document": {"parallelism": {"tensor_parallel_degree": 2}}})",
        R"({"document": {"distributed_type": "FSDP", "fsdp_config":
            {"fsdp_sharding_strategy": 4, "fsdp_min_num_params": 1000}}})",
        R"({"document": {"ddp_bucket_cap_mb": 12.5, "output_dir": "out"}})",
        R"({"script": [{"name": "DDPStrategy", "line": 1, "positional": [],
            "spread": [], "arguments": {"bucket_cap_mb": 25, "static_graph": true,
            "find_unused_parameters": {"expression": "x"}}}]})"};
    const std::vector<Json> values{nullptr, true, -1, 0, 1e300, 4, "", "auto", "x", "5e8"};
    std::mt19937 random(20261127);
    const auto below = [&](std::size_t count) {
        return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
    };
    int read = 0;
    for (int i = 0; i < 4'000; ++i) {
        Json flat = Json::parse(seeds[below(seeds.size())]).flatten();
        for (std::size_t edits = below(4); edits > 0; --edits) {
            const auto at =
                std::next(flat.begin(), static_cast<std::ptrdiff_t>(below(flat.size())));
            // Names, lines and expressions are the script's own, and always there.
            const bool is_free = at.key().starts_with("/document") ||
                                 (at.key().find("/arguments/") != std::string::npos &&
                                  !at.key().ends_with("/expression"));
            if (is_free) {
                at.value() = values[below(values.size())];
            }
        }
        try {
            const TypedSettings typed = read_typed_settings(flat.unflatten(), "settings");
            ++read;
            CHECK(std::isfinite(typed.value.value_or(0)));
            CHECK(typed.value.value_or(0) >= 0);
        } catch (const InputError& error) {
            CHECK(std::string(error.what()).rfind("settings: ", 0) == 0);
        }
    }
    CHECK(read > 400);
}

// Public files, made anonymous, which are not part of the project.
TEST_CASE("files that people brought are read as what they are") {
    const std::string folder = std::string(BUCKETWISE_SCENARIO_DIR) + "/../../shared/cases/";
    if (!std::ifstream(folder + "settings/nanogpt_ddp.py")) {
        WARN("skipped: no shared/cases beside the project");
        return;
    }
    struct Case {
        std::string file;
        std::vector<std::string> says;
    };
    const std::vector<Case> cases{
        {"settings/accelerate_fsdp.yaml", {"accelerate, FSDP1", "a group for each BertLayer"}},
        {"settings/alpaca_cmd.sh", {"FSDP1", "each LlamaDecoderLayer", "4 micro-steps"}},
        {"settings/ddp_alias_cap.py", {"pytorch_ddp, bucket_cap_mb 128"}},
        {"settings/ddp_args_cap.py", {"comes from args.bucket_cap_mb", "--value"}},
        {"settings/ddp_commented.py", {"left at its default", "views of their buckets"}},
        {"settings/ddp_wildcard_old.py", {"bucket_cap_mb 32", "static_graph: buckets are"}},
        {"settings/ds226_stage1.json", {"deepspeed_zero1, reduce_bucket_size left"}},
        {"settings/ds4599_like.json", {"size 10000", "counts elements, not MiB"}},
        {"settings/ds6685_stage1.json", {"deepspeed_zero1, reduce_bucket_size 536870912"}},
        {"settings/ds6685_trailing_comma.json", {"zero1, reduce_bucket_size 536870912"}},
        {"settings/ds_hf_zero2_offload.json", {"size 200000000", "offload_optimizer"}},
        {"settings/ds_hjson_comments.json", {"deepspeed_zero2, reduce_bucket_size 500000000"}},
        {"settings/ds_zero3_auto.json", {"deepspeed_zero3", "\"auto\" is filled in"}},
        {"settings/lightning_obj.py", {"lightning, bucket_cap_mb left", "static_graph"}},
        {"settings/megatron_llama8b_cp2.sh",
         {"megatron_distributed_optimizer", "(context 2): all ranks share each gradient"}},
        {"settings/megatron_llama_ali.sh", {"OverlappedDistributedOptimizer", "2e8 elements"}},
        {"settings/megatron_torchddp144.sh", {"--DDP-impl torch", "left at its default"}},
        {"settings/megatron_tp8pp4.sh", {"about 1/32 of the model"}},
        {"settings/nanogpt_ddp.py", {"pytorch_ddp", "compiled in line 5"}},
        {"settings/ta_fsdp.json", {"FSDP1", "a group for each LlamaDecoderLayer"}},
        {"settings/ta_fsdp_script.py", {"FSDP1", "computes blocks again: recompute full"}},
        {"settings/torchtitan_llama3_8b.toml", {"torchtitan, FSDP2", "every other block"}},
        {"reports/set_hook.py", {"bucket_cap_mb 100", "bf16_compress_hook"}},
        {"reports/set_m_torchfsdp2.sh", {"FSDP2 (--use-torch-fsdp2)"}}};
    for (const Case& one : cases) {
        const auto outcome = asked("settings check " + folder + one.file);
        CAPTURE(one.file, outcome.output);
        CHECK(outcome.exit_code == 0);
        for (const std::string& part : one.says) {
            CAPTURE(part);
            CHECK(outcome_says(outcome, part));
        }
    }
}

TEST_CASE("settings that shard are compared with the best sharding; a missing cap is asked for") {
    const TestFolder folder;
    write_file(folder.file("fsdp.json"),
               R"({"output_dir": "out", "fsdp": "full_shard auto_wrap", "bf16": true})");
    write_file(folder.file("train.py"), "m = DistributedDataParallel(m, bucket_cap_mb=a.cap)\n");
    const auto fsdp = nlohmann::json::parse(
        asked("settings check '" + folder.file("fsdp.json") + "' " + resnet_on_8 + " --json -",
              "2>/dev/null")
            .output);
    CHECK(fsdp["sharding"]["parameter_dtype"] == "bfloat16");
    CHECK(fsdp["checked"]["cost"] >= 0.0);
    CHECK(fsdp["checked"]["step_ms"] >= fsdp["checked"]["best"]["step_ms"]);
    // Recomputing is simulated: a pass of forward more, of three in all.
    write_file(folder.file("again.json"),
               R"({"output_dir": "out", "fsdp": "full_shard auto_wrap", "bf16": true,
                   "gradient_checkpointing": true})");
    const std::string llama =
        std::string(" ") + BUCKETWISE_SCENARIO_DIR + "/llama7b_fsdp_64xh100.json";
    const auto step_ms = [&](const char* file) {
        return nlohmann::json::parse(
                   asked("settings check '" + folder.file(file) + "'" + llama + " --json -",
                         "2>/dev/null")
                       .output)["checked"]["step_ms"]
            .get<double>();
    };
    const double longer = step_ms("again.json") / step_ms("fsdp.json");
    CHECK(longer > 1.2);
    CHECK(longer < 1.4);
    const std::string script = "settings check '" + folder.file("train.py") + "' ";
    CHECK(outcome_says(asked(script), "give it with --value"));
    CHECK(outcome_says(asked(script + "--value 50"), "bucket_cap_mb 50"));
    CHECK(asked(script + "--value no").exit_code == 2);
    CHECK(asked("settings check '" + folder.file("fsdp.json") + "' --value 50").exit_code == 2);
}

}  // namespace
}  // namespace bucketwise
