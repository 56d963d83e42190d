// bucketwise import, as its users meet it.
#include <cstdint>
#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/contains.h"
#include "tests/import/nccl_tests/nccl_tests_log.h"
#include "tests/import/nsys/written_export.h"
#include "tests/import/replay/written_trace.h"

namespace bucketwise {
namespace {

using testing::contains;

Outcome import_log(const Words& arguments) {
    return bucketwise(Words{"import", "nccl-tests"} + arguments);
}

constexpr const char* gpt2_config = R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})";

}  // namespace

// Public files, made anonymous, which are not part of the project.
TEST_CASE("Logs that people brought are read as what they are", "[import]") {
    const std::string logs = std::string(BUCKETWISE_SCENARIO_DIR) + "/../../shared/cases/logs/";
    if (!std::filesystem::exists(logs)) {
        WARN("skipped: no shared/cases beside the project");
        return;
    }
    const TestFolder folder;
    for (const auto& [log, says] :
         {std::pair("n1453_bracket0.txt", "11 all-reduces of 24 ranks, 11 sizes: make a link"),
          std::pair("t44_allgather_old.txt", "13 all-gathers of 2 ranks, 13 sizes"),
          std::pair("n1184_wrong.txt", "2 all-reduces of 2 ranks, 2 sizes"),
          std::pair("rccl30_mi300x_one.txt", "1 all-reduce of 8 ranks, 1 size"),
          std::pair("t194_h100pcie_nvlbridge.txt", "3 all-reduces of 2 ranks, 3 sizes"),
          std::pair("t232_noheader_2x1_4nic.txt", "5 all-reduces of 2 ranks, 5 sizes")}) {
        CAPTURE(log);
        const std::string text =
            check_ends_well(import_log({logs + log, "-o", folder.file("m.jsonl")}));
        CAPTURE(text);
        CHECK(text.starts_with(says));
    }
    // Its first row: the time counts, whatever algbw is.
    const Outcome gathered =
        import_log({logs + "t44_allgather_old.txt", "-o", folder.file("m.jsonl")});
    CHECK(gathered.exit_code == 0);
    CHECK(contains(text_of_file(folder.file("m.jsonl")), "\"samples_us\":[13.39,11.85]"));
    const Outcome singles = import_log({logs + "t107_two_singles.txt", "-o", folder.file("x")});
    CHECK(singles.exit_code == 2);
    CHECK(contains(singles.errors,
                   "each process saw one rank: start it with -g 2 or more, or under mpirun"));
}

TEST_CASE("Configurations that people brought have the parameters published", "[import]") {
    const std::string configs = std::string(BUCKETWISE_SCENARIO_DIR) + "/../../shared/cases/hf/";
    if (!std::filesystem::exists(configs)) {
        WARN("skipped: no shared/cases beside the project");
        return;
    }
    const TestFolder folder;
    // Those that need no PyTorch; tests/pytorch/check_describe.py has the others.
    for (const auto& [config, parameters] :
         {std::pair("bert_base", "109514298 "),
          std::pair("falcon_7b", "6921720704 "),
          std::pair("deepseek_r1_distill_qwen_1p5b", "1777088000 "),
          std::pair("flan_t5_base", "247577856 "),
          std::pair("gemma2_2b", "2614341888 "),
          std::pair("gpt2_real", "124439808 "),
          std::pair("llama31_8b", "8030261248 "),
          std::pair("llama32_1b", "1235814400 "),
          std::pair("llama32_3b", "3212749824 "),
          std::pair("mistral_7b_v03", "7248023552 "),
          std::pair("mistral_nemo_12b", "12247782400 "),
          std::pair("mt5_small", "300176768 "),
          std::pair("no_arch_llama", "no architectures are named: taken as LlamaForCausalLM"),
          std::pair("old_llama_dtype", "6738415616 "),
          std::pair("olmo2_1b", "1484916736 "),
          std::pair("phi3_mini", "3821079552 "),
          std::pair("qwen25_05b", "494032768 "),
          std::pair("qwen3_06b", "596049920 "),
          std::pair("qwen3_8b", "8190735360 "),
          std::pair("smollm2_135m", "134515008 "),
          std::pair("smollm2_1p7b", "1711376384 "),
          std::pair("v5_dtype_llama", "1235814400 ")}) {
        CAPTURE(config);
        const std::string text = check_ends_well(
            bucketwise({"import", "hf", configs + config + ".json", "-o", folder.file("s.json")}));
        CAPTURE(text);
        CHECK(contains(text, parameters));
    }
    const Outcome quantised =
        bucketwise({"import", "hf", configs + "llama_peft_bnb.json", "-o", folder.file("x")});
    CHECK(quantised.exit_code == 2);
    CHECK(contains(quantised.errors, "quantised weights are not trained"));
}

TEST_CASE("Logs of three programs become one link with all kinds", "[import]") {
    const TestFolder folder;
    const auto log = [&](const char* program, CollectiveKind kind) {
        std::vector<LoggedTimes> times = usual_times();
        std::erase_if(times, [](const LoggedTimes& one) { return one.bytes < 1024; });
        write_file(folder.file(program), "# Collective test starting: " + std::string(program) +
                                             "\n" + log_text(times, 8, {.kind = kind}));
        return folder.file(program);
    };
    const std::string imported =
        check_ends_well(import_log({log("all_reduce_perf", CollectiveKind::all_reduce),
                                    log("all_gather_perf", CollectiveKind::all_gather),
                                    log("reduce_scatter_perf", CollectiveKind::reduce_scatter),
                                    "-o", folder.file("m.jsonl")}));
    CHECK(imported.starts_with(
        "10 all-reduces of 8 ranks, 10 sizes; 10 all-gathers of 8 ranks, 10 sizes; 10 "
        "reduce-scatters of 8 ranks, 10 sizes: make a link of them"));
    REQUIRE(
        bucketwise({"calibrate", folder.file("m.jsonl"), "-o", folder.file("l.json")}).exit_code ==
        0);
    const auto link = nlohmann::json::parse(text_of_file(folder.file("l.json")));
    // The same times of half of the bytes on the wire, 7/8 of the message: half of the bandwidth,
    // and of half as many steps: twice the latency.
    for (const char* kind : {"all_gather", "reduce_scatter"}) {
        const auto& own = link[kind]["segments"].back();
        const auto& all = link["segments"].back();
        CHECK(2 * own["bandwidth_gb_per_s"].get<double>() ==
              Approx(all["bandwidth_gb_per_s"].get<double>()).epsilon(0.01));
        CHECK(own["latency_us"].get<double>() ==
              Approx(2 * all["latency_us"].get<double>()).epsilon(0.05));
    }
}

TEST_CASE("A log becomes measurements, a link and a prediction", "[import]") {
    const TestFolder folder;
    write_file(folder.file("log.txt"), log_text(usual_times(), 8, {}));
    const std::string measurements = folder.file("m.jsonl");
    const std::string imported =
        check_ends_well(import_log({folder.file("log.txt"), "-o", measurements}));
    CHECK(
        imported.starts_with("14 all-reduces of 8 ranks, 14 sizes: make a link of them with "
                             "bucketwise calibrate " +
                             measurements + " -o link.json\n"));
    check_contains(imported,
                   {"ranks  8 (busbw / algbw of", "nodes  1 (assumed, as the log names no hosts"});
    // -o - prints the file, but for the command and the time.
    const Outcome printed = import_log({folder.file("log.txt"), "-o", "-"});
    const std::string file = text_of_file(measurements);
    CHECK(printed.output.substr(printed.output.find('\n')) == file.substr(file.find('\n')));

    const std::string link = folder.file("link.json");
    const std::string calibrated =
        check_ends_well(bucketwise({"calibrate", measurements, "-o", link}));
    check_contains(calibrated, {"residual", "on average", "Note: only all-reduces were measured"});
    // 100 GB/s by the log; a ring on 8 ranks puts 1.75 of each byte on the wire. In place is 3 %
    // faster, and the median of the two is half of that.
    const auto document = nlohmann::json::parse(text_of_file(link));
    CHECK(document["segments"].back()["bandwidth_gb_per_s"].get<double>() ==
          Approx(175 / 0.985).epsilon(0.02));
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/gpt2_h200.json";
    CHECK(bucketwise({"predict", scenario, "--link", link}).exit_code == 0);
}

TEST_CASE("A captured step takes the link of a log, and what communication cost it is taken out",
          "[import]") {
    const TestFolder folder;
    write_file(folder.file("log.txt"), log_text(usual_times(), 8, {}));
    const std::string measurements = folder.file("m.jsonl");
    REQUIRE(import_log({folder.file("log.txt"), "-o", measurements}).exit_code == 0);
    const std::string captured = folder.file("captured.json");
    const std::string scenarios = BUCKETWISE_SCENARIO_DIR;
    write_file(captured, text_of_file(scenarios + "/two_buckets.json"));
    const std::string written = folder.file("scenario.json");
    const auto calibrate = [&](std::vector<std::string> words) {
        words.insert(words.begin(), {"calibrate", measurements, "-o", folder.file("link.json")});
        return bucketwise(words);
    };
    const std::string done =
        check_ends_well(calibrate({"--captured", captured, "--scenario-output", written}));
    CHECK(contains(done, "captured backward of"));
    const auto scenario = nlohmann::json::parse(text_of_file(written));
    CHECK(scenario["cluster"]["link"] ==
          nlohmann::json::parse(text_of_file(folder.file("link.json"))));
    CHECK(bucketwise({"predict", written}).exit_code == 0);

    const auto check_refused = [&](const std::vector<std::string>& words, const std::string& why) {
        check_contains(check_fails(2, calibrate(words)), {why});
    };
    check_refused({"--captured", captured}, "--scenario-output beside it");
    check_refused({"--captured", scenarios + "/resnet50_8xh100.json", "--scenario-output", written},
                  "/workload: expected gradients with ready_ms");
    check_refused({"--captured", folder.file("none.json"), "--scenario-output", written},
                  "none.json");
    check_refused({"--captured", captured, "--scenario-output", captured}, "captured.json");
    CHECK(text_of_file(captured) == text_of_file(scenarios + "/two_buckets.json"));
}

TEST_CASE("Exports of Nsight Systems become a scenario, a replay and a prediction", "[import]") {
    const TestFolder folder;
    WrittenExport file;
    for (const std::int64_t rank : {0, 1}) {
        TraceShape shape;
        shape.rank = rank;
        file.add(SyntheticTrace(shape).events(), 1000 + rank, rank);
    }
    const std::string recorded = folder.file("report.sqlite");
    write_file(recorded, file.bytes());
    const std::string scenario = folder.file("scenario.json");
    const std::string imported =
        check_ends_well(bucketwise({"import", "nsys", recorded, "-o", scenario}));
    check_contains(imported,
                   {"2 traces; the scenario is made of " + recorded + " (process", "Replayed: "});
    CHECK(contains(text_of_file(scenario), "all-reduces of an Nsight Systems trace, least times"));
    const std::string predicted = check_ends_well(bucketwise({"predict", scenario}));
    CHECK(contains(predicted, "as traced: only 2 different sizes"));

    check_fails(2, bucketwise({"import", "nsys", recorded, "-o", recorded}));
    check_contains(check_fails(2, bucketwise({"import", "nsys", recorded, "--step-range", "my step",
                                              "-o", folder.file("s.json")})),
                   {"--step-range: expected the name of ranges that mark steps, got \"my step\""});
    check_contains(
        check_fails(2, bucketwise({"import", "nsys", scenario, "-o", folder.file("s.json")})),
        {"expected an export of Nsight Systems, got a scenario"});
}

TEST_CASE("Traces of fully_shard become a scenario, a replay and a prediction", "[import]") {
    const TestFolder folder;
    const std::string scenario = folder.file("scenario.json");
    const std::string trace = BUCKETWISE_TEST_DATA_DIR "/fsdp2/traces/wide_one_layer_per_group.";
    const std::string imported =
        check_ends_well(bucketwise({"import", "kineto", trace + "0.json.gz", trace + "1.json.gz",
                                    "-o", scenario, "--trace", folder.file("replay.json")}));
    CHECK(imported.starts_with("Change first: a group for each layer, "));
    CHECK(contains(imported, "Replayed: "));
    CHECK(contains(text_of_file(folder.file("replay.json")), "traced: ProfilerStep#"));
    const std::string predicted = check_ends_well(bucketwise({"predict", scenario}));
    check_contains(predicted, {"for block in model.layers:", "%  yours\n"});
    const std::string compared = check_ends_well(
        bucketwise({"import", "kineto", trace + "0.json.gz", "--compare",
                    BUCKETWISE_TEST_DATA_DIR "/fsdp2/traces/wide_kept_after_forward.0.json.gz"}));
    // Kept parameters are gathered once: nine all-gathers, and five, beside five reduce-scatters.
    CHECK(contains(compared, "collectives                                14           10"));
}

TEST_CASE("Dumps of a flight recorder and an execution trace become scenarios that predict takes",
          "[import]") {
    const TestFolder folder;
    const std::string scenario = folder.file("scenario.json");
    const std::string logs = BUCKETWISE_TEST_DATA_DIR "/traces/";
    const std::string dumps = check_ends_well(
        bucketwise({"import", "flight-recorder", logs + "fr_ddp_rank0.pickle.gz",
                    logs + "fr_ddp_rank1.pickle.gz", "--link", "eth-10g", "-o", scenario}));
    check_contains(dumps, {"7 whole ones of 2 all-reduces", "  Predicted: "});
    CHECK(bucketwise({"predict", scenario}).exit_code == 0);

    const Words trace{"import", "chakra", logs + "execution_trace.json.gz"};
    const std::string plan =
        check_ends_well(bucketwise(trace + Words{"--link", "eth-10g", "--forward-ms", "10",
                                                 "--backward-ms", "20", "-o", scenario}));
    CHECK(contains(plan, "2 with the same 2 all-reduces"));
    CHECK(bucketwise({"predict", scenario}).exit_code == 0);

    // Without a link or times they are asked for; half of the times is a mistake.
    check_contains(check_fails(2, bucketwise({"import", "flight-recorder",
                                              logs + "fr_ddp_rank0.pickle.gz", "-o", scenario})),
                   {"--link"});
    check_contains(check_fails(2, bucketwise(trace + Words{"--link", "eth-10g", "-o", scenario})),
                   {"--forward-ms"});
    check_fails(
        2, bucketwise(trace + Words{"--link", "eth-10g", "--forward-ms", "1", "-o", scenario}));
    for (const char* what : {"flight-recorder", "chakra"}) {
        check_fails(2, bucketwise({"import", what, folder.file("none"), "-o", scenario}));
    }
}

TEST_CASE("A model of Hugging Face becomes a scenario that predict takes at once", "[import]") {
    const TestFolder folder;
    write_file(folder.file("config.json"), gpt2_config);
    const std::string scenario = folder.file("scenario.json");
    const std::string imported = check_ends_well(
        bucketwise({"import", "hf", folder.file("config.json"), "-o", scenario, "--ranks", "4"}));
    CHECK(imported.starts_with("Ready to predict: bucketwise predict " + scenario + "\n"));
    check_contains(imported, {"as nobody gave --link, --device, --batch.\n",
                              "124439808 parameters in 148 tensors", "batch            8"});
    CHECK_FALSE(contains(imported, "  ranks  "));
    // Nothing but the model's name tells it from the shipped one.
    auto own = nlohmann::json::parse(text_of_file(scenario));
    const auto predict = [&](const nlohmann::json& document) {
        write_file(folder.file("case.json"), document.dump());
        const std::string predicted =
            check_ends_well(bucketwise({"predict", folder.file("case.json"), "--json", "-"}));
        return nlohmann::json::parse(predicted)["best"];
    };
    const auto best = predict(own);
    CHECK(contains(own["caveats"].dump(), "as no option said it: batch 8, sequence-length 1024"));
    CHECK(contains(own["cluster"]["link"]["caveats"].dump(), "nobody named a link"));
    own["workload"]["model"] = "gpt2";
    CHECK(predict(own) == best);
    const Outcome changed = bucketwise({"import", "hf", folder.file("config.json"), "-o", "-",
                                        "--set", "/step/accumulation=4", "--device", "A100"});
    CHECK(nlohmann::json::parse(changed.output)["step"]["accumulation"] == 4);
}

TEST_CASE("A vision transformer of Hugging Face becomes a scenario that predict takes",
          "[import]") {
    const TestFolder folder;
    write_file(folder.file("config.json"), R"({"model_type": "vit",
        "architectures": ["ViTForImageClassification"], "num_hidden_layers": 12, "hidden_size": 768,
        "intermediate_size": 3072, "num_attention_heads": 12, "num_labels": 10})");
    const std::string scenario = folder.file("scenario.json");
    const Words import{"import", "hf", folder.file("config.json"), "-o", scenario};
    const std::string imported = check_ends_well(
        bucketwise(import + Words{"--link", "eth-10g", "--device", "A100", "--batch", "4"}));
    CHECK(imported.starts_with("Ready to predict: bucketwise predict "));
    CHECK(contains(imported, "85806346 parameters in 200 tensors"));
    CHECK(bucketwise({"predict", scenario}).exit_code == 0);
    check_contains(check_fails(2, bucketwise(import + Words{"--sequence-length", "128"})),
                   {"expected a model of sequences, got ViTForImage"});
}

TEST_CASE("What cannot be imported is refused in one line, and nothing is written", "[import]") {
    const TestFolder folder;
    const std::string output = folder.file("out");
    std::filesystem::create_directory(folder.file("no model"));
    write_file(folder.file("good"), log_text(usual_times(), 8, {}));
    write_file(folder.file("empty"), "");
    write_file(folder.file("config.json"), gpt2_config);
    write_file(folder.file("deep.json"), std::string(1'000'000, '['));
    const std::string folder_of_traces = BUCKETWISE_TEST_DATA_DIR "/traces/";
    const std::string sharded = BUCKETWISE_TEST_DATA_DIR "/fsdp2/traces/wide_";
    write_file(folder.file("cut.json.gz"),
               text_of_file(sharded + "kept_after_forward.0.json.gz").substr(0, 9000));
    const std::vector<Words> bad{
        {"import"},
        {"import", "excel"},
        {"import", "nccl-tests"},
        {"import", "nccl-tests", folder.file("good")},
        {"import", "nccl-tests", "-o", output},
        {"import", "nccl-tests", folder.file("empty"), "-o", output},
        {"import", "nccl-tests", folder.file("none"), "-o", output},
        {"import", "nccl-tests", folder.path(), "-o", output},
        {"import", "nccl-tests", folder.file("config.json"), "-o", output},
        {"import", "nccl-tests", folder.file("deep.json"), "-o", output},
        {"import", "nccl-tests", folder.file("good"), "-o", folder.file("good")},
        {"import", "nccl-tests", folder.file("good"), "-o", output, "--ranks", "16"},
        {"import", "nccl-tests", folder.file("good"), "-o", output, "--ranks", "8,8"},
        {"import", "nccl-tests", folder.file("good"), "-o", output, "--ranks", "1"},
        {"import", "nccl-tests", folder.file("good"), "-o", output, "--ranks",
         "99999999999999999999"},
        {"import", "nccl-tests", folder.file("good"), "-o", output, "--ranks-per-node", "3"},
        {"import", "nccl-tests", folder.file("good"), "-o", output, "--dtype", "int8"},
        {"import", "nccl-tests", folder.file("good"), "-o", output, "--dtype", "float16"},
        {"import", "kineto", folder_of_traces + "fsdp1.json.gz", "-o", output},
        {"import", "kineto", folder_of_traces + "fsdp2_no_shapes.json.gz", "-o", output},
        {"import", "kineto", folder.file("cut.json.gz"), "-o", output},
        {"import", "kineto", sharded + "kept_after_forward.0.json.gz",
         sharded + "one_layer_per_group.1.json.gz", "-o", output},
        {"import", "kineto", sharded + "kept_after_forward.0.json.gz", "-o", output, "--ranks",
         "4"},
        {"import", "kineto", sharded + "kept_after_forward.0.json.gz", "-o", output,
         "--undisturbed", folder_of_traces + "ddp.json.gz"},
        {"import", "hf", folder.file("good"), "-o", output},
        {"import", "hf", folder.file("deep.json"), "-o", output},
        {"import", "hf", folder.file("no model"), "-o", output},
        {"import", "hf", folder.file("config.json"), "-o", folder.file("config.json")},
        {"import", "hf", folder.file("config.json"), "-o", output, "--batch", "0"},
        {"import", "hf", folder.file("config.json"), "-o", output, "--sequence-length", "2048"},
        {"import", "hf", folder.file("config.json"), "-o", output, "--device", "TPU"},
        {"import", "hf", folder.file("config.json"), "-o", output, "--arithmetic", "int3"},
        {"import", "hf", folder.file("config.json"), "-o", output, "--link", folder.file("none")},
        {"import", "hf", folder.file("config.json"), "-o", output, "--set", "/nowhere=1"},
    };
    for (const Words& words : bad) {
        const Outcome outcome = bucketwise(words);
        INFO(words.back());
        CHECK(outcome.exit_code == 2);
        CHECK(outcome.output.empty());
        check_one_line(outcome.errors);
        CHECK_FALSE(std::filesystem::exists(output));
    }
    check_fails(1, import_log({folder.file("good"), "-o", folder.file("no folder/out")}));
}

}  // namespace bucketwise
