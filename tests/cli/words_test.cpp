// What a user typed a little wrong, and files given to a command that does not read them: the
// message says what was meant, or which command does.
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/contains.h"
#include "tests/import/nccl_tests/nccl_tests_log.h"

namespace bucketwise {
namespace {

using testing::contains;

Outcome typed(const Words& arguments) {
    return run(Words{BUCKETWISE_BINARY} + arguments);
}

// What is refused, with exit code 2, in one line.
std::string refused(const Words& arguments) {
    const Outcome outcome = typed(arguments);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.output.empty());
    check_one_line(outcome.errors);
    return outcome.errors;
}

// A folder with a file of every kind that some command reads, by name.
void write_kinds(const TestFolder& folder) {
    write_file(folder.file("trace.json"), R"({"schemaVersion": 1, "traceEvents": []})");
    write_file(
        folder.file("et.json"),
        R"({"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "ctrl_deps": 1}]})");
    write_file(folder.file("config.json"), R"({"model_type": "gpt2", "architectures": []})");
    write_file(folder.file("log.txt"), log_text(usual_times(), 8, {}));
    write_file(folder.file("train.py"), "import torch\n");
    write_file(folder.file("report.sqlite"), std::string("SQLite format 3\0", 16));
    write_file(folder.file("report.nsys-rep"), "whatever");
    write_file(folder.file("m.jsonl"), R"({"kind": "environment", "backend": "gloo"})"
                                       "\n");
    write_file(folder.file("link.json"), R"({"name": "l", "algorithm": "ring", "segments": []})");
    write_file(folder.file("dump.pickle"), "\x80\x02}q\x01.");
    write_file(folder.file("scenario.json"), text_of_file(two_buckets));
}

}  // namespace

TEST_CASE("a command that there is not is refused with the one that was meant", "[words]") {
    CHECK(refused({"predct", "x"}) ==
          "bucketwise: expected a command, got \"predct\"; did you mean predict?\n");
    CHECK(refused({"import", "knieto"}) ==
          "bucketwise: import: expected what to import, got \"knieto\"; did you mean import "
          "kineto?\n");
    CHECK(contains(refused({"bench", "allredce"}), "; did you mean bench allreduce?"));
    CHECK(contains(refused({"link", "shwo"}), "; did you mean link show?"));
    CHECK(contains(refused({"kineto", "trace.json"}), "; did you mean import kineto?"));
    CHECK(refused({"excel"}) ==
          "bucketwise: expected a command, got \"excel\"; see bucketwise --help\n");
}

TEST_CASE("an option that there is not is refused with the one that was meant", "[words]") {
    CHECK(refused({"predict", "--hlp"}) ==
          "bucketwise: unrecognised option '--hlp'; did you mean --help?\n");
    CHECK(contains(refused({"predict", two_buckets, "--bucketcap", "1MiB"}),
                   "; did you mean --bucket-cap?"));
    CHECK(contains(refused({"import", "kineto", "--modle", "x"}), "; did you mean --model?"));
    CHECK(contains(refused({"predict", "--fortran"}), "; see bucketwise predict --help"));
}

TEST_CASE("a value that there is not is refused with the one that was meant", "[words]") {
    CHECK(contains(refused({"device", "show", "H1000"}), "(did you mean H100?)"));
    CHECK(contains(refused({"predict", two_buckets, "--strategy", "ovrlap"}),
                   "\"ovrlap\" (did you mean overlap?)"));
    CHECK(contains(refused({"device", "list", "--format", "jsn"}), "\"jsn\" (did you mean json?)"));
}

TEST_CASE("a file that is not there is refused with the one that was meant", "[words]") {
    const TestFolder folder;
    write_kinds(folder);
    CHECK(contains(refused({"predict", folder.file("scenaro.json")}),
                   "(did you mean " + folder.file("scenario.json") + "?)"));
    // What ships may be named without its folder, or its ending.
    for (const char* name :
         {"resnet50_8xh100", "resnet50_8xh100.json", "scenarios/resnet50_8h100.json"}) {
        CHECK(
            contains(refused({"predict", name}), "(did you mean scenarios/resnet50_8xh100.json?)"));
    }
    CHECK_FALSE(contains(refused({"predict", folder.file("something else")}), "did you mean"));
}

TEST_CASE(
    "a model may be named by its configuration or its folder, and one that is none is suggested",
    "[words]") {
    const TestFolder folder;
    write_file(folder.file("config.json"),
               R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2,
                   "n_positions": 64, "vocab_size": 100})");
    const Words import_trace{
        "import", "kineto",           BUCKETWISE_TEST_DATA_DIR "/traces/ddp.json.gz",
        "-o",     folder.file("out"), "--model"};
    // The model is read, and is not the one that was traced: 2 + 2 x 12 + 2 parameters.
    for (const std::string& model : {folder.file("config.json"), folder.path()}) {
        CHECK(contains(refused(import_trace + Words{model}), "the model's 28 gradients"));
    }
    CHECK(
        contains(refused(import_trace + Words{"resnt50"}), "\"resnt50\" (did you mean resnet50?)"));
}

TEST_CASE("predict lists the strategies, and how one is set", "[words]") {
    const std::string help = typed({"predict", "--help"}).output;
    CHECK(contains(help, "--set /sync/strategy="));
    for (const char* strategy : {"none", "naive", "flat", "overlap", "bucketed", "ddp",
                                 "ddp_first_iteration", "python_sync", "python_async"}) {
        CHECK(contains(help, "\n  " + std::string(strategy) + " "));
    }
}

TEST_CASE("devices and number types are understood however they are spelt", "[words]") {
    const TestFolder folder;
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/gpt2_h200.json";
    const auto predicted = [&](const std::string& device, const std::string& arithmetic) {
        const Outcome outcome =
            typed({"predict", scenario, "--set", "/workload/device=" + device, "--set",
                   "/workload/arithmetic=" + arithmetic, "--json", "-"});
        INFO(outcome.errors);
        REQUIRE(outcome.exit_code == 0);
        return outcome.output;
    };
    const std::string as_written = predicted("H100", "bfloat16");
    for (const char* device : {"h100", "NVIDIA H100 80GB HBM3", "h-100", "H100_SXM"}) {
        CHECK(predicted(device, "bf16") == as_written);
    }
    CHECK(predicted("rtx4090", "half") == predicted("RTX 4090", "float16"));
    CHECK(predicted("a100-80gb", "tf32") == predicted("A100", "tfloat32"));
    // Another board of that chip is not taken for it.
    for (const char* device : {"a100-40gb", "h100-pcie", "H100 NVL"}) {
        CHECK(typed({"predict", scenario, "--set", std::string("/workload/device=") + device})
                  .exit_code == 2);
    }
    // What is written has the names.
    write_kinds(folder);
    write_file(folder.file("config.json"),
               R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2,
                   "n_positions": 64, "vocab_size": 100})");
    const Outcome imported = typed({"import", "hf", folder.path(), "-o", "-", "--device",
                                    "rtx-4090", "--dtype", "fp32", "--arithmetic", "bf16"});
    INFO(imported.errors);
    REQUIRE(imported.exit_code == 0);
    const auto workload = nlohmann::json::parse(imported.output)["workload"];
    CHECK(workload["device"] == "RTX 4090");
    CHECK(workload["dtype"] == "float32");
    CHECK(workload["arithmetic"] == "bfloat16");
}

TEST_CASE("a file that another command reads is refused with that command", "[words]") {
    const TestFolder folder;
    write_kinds(folder);
    struct Kind {
        const char* file;
        const char* way_out;
        Words reader;  // the command that takes it
    };
    const std::vector<Kind> kinds{
        {"trace.json", "bucketwise import kineto ", {"import", "kineto"}},
        {"et.json", "bucketwise import chakra ", {"import", "chakra"}},
        {"config.json", "bucketwise import hf ", {"import", "hf"}},
        {"log.txt", "bucketwise import nccl-tests ", {"import", "nccl-tests"}},
        {"report.sqlite", "bucketwise import nsys ", {"import", "nsys"}},
        {"dump.pickle", "bucketwise import flight-recorder ", {"import", "flight-recorder"}},
        {"scenario.json", "bucketwise predict ", {"predict"}},
        {"report.nsys-rep", "nsys export --type sqlite", {}},
        {"m.jsonl", "bucketwise calibrate ", {}},
        {"link.json", "bucketwise link show ", {}},
        {"train.py", "scenarios/capture_pytorch.py", {}}};
    for (const Kind& given : kinds) {
        for (const Kind& command : kinds) {
            if (command.reader.empty() || command.reader == given.reader) {
                continue;
            }
            Words words = command.reader + Words{folder.file(given.file)};
            if (words.front() == "import") {
                words = words + Words{"-o", folder.file("out")};
            }
            const std::string message = refused(words);
            INFO(message);
            CHECK(contains(message, folder.file(given.file) + ": expected "));
            CHECK(contains(message, given.way_out));
            CHECK_FALSE(std::filesystem::exists(folder.file("out")));
        }
    }
    // Compressed ones, too, and a model's folder.
    CHECK(contains(refused({"predict", BUCKETWISE_TEST_DATA_DIR "/traces/ddp.json.gz"}),
                   "bucketwise import kineto "));
    CHECK(contains(refused({"predict", folder.path()}), "bucketwise import hf "));
}

}  // namespace bucketwise
