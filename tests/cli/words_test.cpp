// Typing errors, and files given to the wrong command: the message names the right word or command.
// Foreign text in files, names and arguments steers no terminal and forges no line, and files to
// pass on name no folder of this machine.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/catch.h"
#include "tests/cli/process.h"
#include "tests/contains.h"
#include "tests/import/nccl_tests/nccl_tests_log.h"

namespace bucketwise {
namespace {

using testing::contains;
using Json = nlohmann::json;

// The one line of a refusal, with exit code 2.
std::string refused(const Words& arguments) {
    return check_fails(2, bucketwise(arguments));
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
    write_file(folder.file("baseline.json"),
               R"({"cases": [{"name": "a", "runs": [{"file": "t", "step_ms": [1]}]}]})");
    write_file(folder.file("link.json"), R"({"name": "l", "algorithm": "ring", "segments": []})");
    write_file(folder.file("dump.pickle"), "\x80\x02}q\x01.");
    write_file(folder.file("scenario.json"), text_of_file(two_buckets));
}

// --- text that somebody else wrote ---

// ESC and U+009B begin commands to a terminal, U+202E turns round what follows.
const std::string steering = "a\x1b[31m\xc2\x9b\xe2\x80\xaez";
// As JSON documents may have it: names refuse control characters.
const std::string steering_name = "a\xc2\x9b\xe2\x80\xaez";

// Runs a line of the shell; "$0" is the program and "$1" the folder.
Outcome in_shell(const std::string& line, const TestFolder& folder) {
    return run({"/bin/sh", "-c", line, BUCKETWISE_BINARY, folder.path()});
}

void check_shows_no_steering(const std::string& text) {
    for (const char* raw : {"\x1b", "\xc2\x9b", "\xe2\x80\xae", "\r", "\xff"}) {
        INFO(text);
        CHECK_FALSE(contains(text, raw));
    }
}

Json changed_two_buckets(const std::string& name) {
    Json scenario = Json::parse(text_of_file(two_buckets));
    scenario["name"] = name;
    scenario["cluster"]["link"]["name"] = name;
    return scenario;
}

// Measurements that ship, as if of a machine that calls itself so; their file.
std::string measured_by(const TestFolder& folder, const std::string& machine) {
    const std::string shipped = BUCKETWISE_TEST_DATA_DIR "/validation/resnet_1gbit_2/";
    std::istringstream lines(text_of_file(shipped + "measurements.jsonl"));
    std::string all;
    for (std::string line; std::getline(lines, line);) {
        Json record = Json::parse(line);
        if (record["kind"] == "environment") {
            for (const char* key : {"cpu", "kernel", "libraries", "link_rate"}) {
                record[key] = machine;
            }
            record["command"] = {"bucketwise", "measure", "/home/somebody/scenario.json", machine};
        }
        all += record.dump() + "\n";
    }
    std::string file = folder.file("m.jsonl");
    write_file(file, all);
    return file;
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
    // Shipped files may be named without folder or ending.
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
    const std::string help = bucketwise({"predict", "--help"}).output;
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
        return check_ends_well(
            bucketwise({"predict", scenario, "--set", "/workload/device=" + device, "--set",
                        "/workload/arithmetic=" + arithmetic, "--json", "-"}));
    };
    const std::string as_written = predicted("H100", "bfloat16");
    for (const char* device : {"h100", "NVIDIA H100 80GB HBM3", "h-100", "H100_SXM"}) {
        CHECK(predicted(device, "bf16") == as_written);
    }
    CHECK(predicted("rtx4090", "half") == predicted("RTX 4090", "float16"));
    CHECK(predicted("a100-80gb", "tf32") == predicted("A100", "tfloat32"));
    CHECK(predicted("NVIDIA A100-SXM4-40GB", "tf32") == predicted("a100 40gb", "tfloat32"));
    // Another board of that chip is not taken for it.
    for (const char* device : {"a100-pcie-40gb", "h100-pcie", "H100 NVL"}) {
        CHECK(bucketwise({"predict", scenario, "--set", std::string("/workload/device=") + device})
                  .exit_code == 2);
    }
    // Written files have the names.
    write_kinds(folder);
    write_file(folder.file("config.json"),
               R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 2,
                   "n_positions": 64, "vocab_size": 100})");
    const std::string imported =
        check_ends_well(bucketwise({"import", "hf", folder.path(), "-o", "-", "--device",
                                    "rtx-4090", "--dtype", "fp32", "--arithmetic", "bf16"}));
    const auto workload = nlohmann::json::parse(imported)["workload"];
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
        {"baseline.json", "bucketwise check ", {}},
        {"train.py", "from bucketwise.torch import capture", {}}};
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
            check_contains(message, {folder.file(given.file) + ": expected ", given.way_out});
            CHECK_FALSE(std::filesystem::exists(folder.file("out")));
        }
    }
    // Compressed ones, too, and a model's folder.
    CHECK(contains(refused({"predict", BUCKETWISE_TEST_DATA_DIR "/traces/ddp.json.gz"}),
                   "bucketwise import kineto "));
    CHECK(contains(refused({"predict", folder.path()}), "bucketwise import hf "));
}

// --- text that somebody else wrote ---

TEST_CASE("names of a scenario reach the terminal without what steers it", "[words]") {
    const TestFolder folder;
    write_file(folder.file("s.json"), changed_two_buckets(steering_name).dump());
    const std::string text = check_ends_well(bucketwise({"predict", folder.file("s.json")}));
    check_shows_no_steering(text);
    CHECK(contains(text, R"(a\u009b\u202ez: ddp, 2 ranks)"));
    // To a program it is what it was.
    const Outcome json = bucketwise({"predict", folder.file("s.json"), "--json", "-"});
    check_shows_no_steering(json.output);
    CHECK(Json::parse(json.output)["scenario"] == steering_name);
}

TEST_CASE("a message is one line of bounded length, whatever it quotes", "[words]") {
    const TestFolder folder;
    const std::string long_text(1 << 20, 'x');
    write_file(folder.file("cell.csv"), "1," + long_text + "\n");
    write_file(folder.file("columns.csv"), long_text + "," + long_text + "y\n1,2\n");
    write_file(folder.file("key.json"), Json{{steering + long_text, 1}}.dump());
    const std::string scenario = std::string(BUCKETWISE_SCENARIO_DIR) + "/compare_ddp_core.json";
    for (const Words& arguments :
         std::vector<Words>{{"predict", folder.file("no\nsuch" + steering + "\xff.json")},
                            {"predict", folder.file("key.json")},
                            {"predict", two_buckets, "--set", "/no\nsuch" + steering + "=1"},
                            {"predict", two_buckets, "--no\nsuch" + steering},
                            {"predict", two_buckets, "--strategy", steering + "\n\xff"},
                            {steering + "\n"},
                            {"calibrate", "--steps", folder.file("cell.csv"), "--scenario",
                             scenario, "-o", folder.file("never.json")},
                            {"bench", "compare-ddp", scenario, "--simulate", "--published",
                             folder.file("columns.csv")}}) {
        const Outcome outcome = bucketwise(arguments);
        CHECK(outcome.exit_code == 2);
        check_one_line(outcome.errors);
        check_shows_no_steering(outcome.errors);
        CHECK(outcome.errors.size() < 4100);
    }
}

TEST_CASE("what measurements say of a machine stays within its line of a report", "[words]") {
    const TestFolder folder;
    const std::string file =
        measured_by(folder, steering + "\nNote: forged\n" + std::string(100'000, 'x'));
    const std::string calibrated =
        check_ends_well(bucketwise({"calibrate", file, "-o", folder.file("link.json"),
                                    "--scenario-output", folder.file("scenario.json")}));
    const std::string compared = check_ends_well(
        bucketwise({"compare", folder.file("scenario.json"), "--measurements", file, "--details"}));
    for (const std::string& text : {calibrated, compared}) {
        check_shows_no_steering(text);
        CHECK_FALSE(contains(text, "\nNote: forged"));
        CHECK(text.size() < 30'000);
    }
}

TEST_CASE("what is passed on names no folder of the machine it was made on", "[words]") {
    const TestFolder folder;
    const std::string file = measured_by(folder, "a machine");
    REQUIRE(bucketwise({"calibrate", file, "-o", folder.file("link.json"), "--scenario-output",
                        folder.file("scenario.json"), "--fit", folder.file("fit.json")})
                .exit_code == 0);
    REQUIRE(bucketwise({"compare", folder.file("scenario.json"), "--measurements", file, "-o",
                        folder.file("comparison.json"), "--trace", folder.file("trace.json")})
                .exit_code == 0);
    for (const char* name :
         {"link.json", "scenario.json", "fit.json", "comparison.json", "trace.json"}) {
        INFO(name);
        const std::string text = text_of_file(folder.file(name));
        CHECK_FALSE(contains(text, folder.path()));
        CHECK_FALSE(contains(text, "/home/somebody"));
    }
    CHECK(Json::parse(text_of_file(folder.file("link.json")))["provenance"]["source"] ==
          "bucketwise calibrate m.jsonl");
    CHECK(Json::parse(text_of_file(folder.file("comparison.json")))["command"] ==
          "bucketwise measure scenario.json 'a machine'");

    // Scenarios of importers, and what they draw.
    const std::string trace = BUCKETWISE_TEST_DATA_DIR "/traces/ddp.json.gz";
    REQUIRE(bucketwise({"import", "kineto", trace, "-o", folder.file("imported.json"), "--trace",
                        folder.file("replay.json")})
                .exit_code == 0);
    for (const char* name : {"imported.json", "replay.json"}) {
        CHECK_FALSE(contains(text_of_file(folder.file(name)), BUCKETWISE_TEST_DATA_DIR));
    }
    write_file(folder.file("log.txt"), log_text(usual_times(), 8, {}));
    const std::string log =
        check_ends_well(bucketwise({"import", "nccl-tests", folder.file("log.txt"), "-o", "-"}));
    CHECK_FALSE(contains(log, folder.path()));
    // Tables of benches.
    const std::string bench = check_ends_well(
        bucketwise({"bench", "allreduce", "--simulate", "--link", folder.file("link.json"),
                    "--ranks", "2", "--bytes", "1KiB", "--format", "json"}));
    CHECK_FALSE(contains(bench, folder.path()));
}

TEST_CASE("every command that prints fails where nothing can be printed, and says so", "[words]") {
    const TestFolder folder;
    for (const char* arguments :
         {"--version", "--help", "predict --help", "import --help", "completion bash", "man",
          "device list", "link list", "link show eth-10g --ranks 2"}) {
        const Outcome outcome = in_shell(fmt::format("\"$0\" {} >/dev/full", arguments), folder);
        INFO(arguments);
        CHECK(outcome.exit_code == 1);
        check_one_line(outcome.errors);
        CHECK(contains(outcome.errors, "standard output: cannot write: No space left on device"));
    }
}

TEST_CASE("a scenario and a link may come through a pipe, also to ranks", "[words]") {
    const TestFolder folder;
    write_file(folder.file("s.json"), text_of_file(two_buckets));
    write_file(folder.file("l.json"),
               Json::parse(text_of_file(two_buckets))["cluster"]["link"].dump());
    Json naming = Json::parse(text_of_file(two_buckets));
    naming["cluster"]["link"] = "l.json";  // beside no pipe, but in the current folder
    write_file(folder.file("naming.json"), naming.dump());
    const std::string measured =
        R"(-o "$1/m.jsonl" --rounds 1 --protocols steps --strategy flat && rm "$1/m.jsonl")";
    for (const std::string& line : std::vector<std::string>{
             R"(cat "$1/s.json" | "$0" predict /dev/stdin)",
             R"(cat "$1/l.json" | "$0" predict "$1/s.json" --link /dev/stdin)",
             R"(cat "$1/l.json" | "$0" sweep "$1/s.json" --link /dev/stdin)",
             R"(cd "$1" && cat naming.json | "$0" predict /dev/stdin)",
             R"(cat "$1/s.json" | "$0" measure /dev/stdin )" + measured,
             R"("$0" measure /dev/stdin <"$1/s.json" )" + measured,
             R"(cat "$1/l.json" | "$0" measure "$1/s.json" --link /dev/stdin )" + measured}) {
        const Outcome outcome = in_shell(line, folder);
        INFO(line << "\n" << outcome.errors);
        CHECK(outcome.exit_code == 0);
        CHECK(outcome.errors.empty());
    }
    // A file that is read more than once says so.
    check_contains(
        check_fails(
            2,
            in_shell(
                R"(cat "$1/l.json" | "$0" bench allreduce --simulate --ranks 2 --link /dev/stdin)",
                folder)),
        {"/dev/stdin: expected a file, which every rank reads"});
}

TEST_CASE("files and folders may have names that are no UTF-8", "[words]") {
    const TestFolder folder;
    const std::string place = folder.file("\xff");
    REQUIRE(std::filesystem::create_directory(place));
    write_file(place + "/s.json", text_of_file(two_buckets));
    check_ends_well(
        bucketwise({"measure", place + "/s.json", "-o", place + "/\xfem.jsonl", "--rounds", "1",
                    "--protocols", "allreduce", "--bytes", "1KiB,1MiB"}));
    CHECK(contains(text_of_file(place + "/\xfem.jsonl"), "\xEF\xBF\xBDm.jsonl"));
    check_ends_well(bucketwise({"calibrate", place + "/\xfem.jsonl", "-o", place + "/l.json"}));
    CHECK(bucketwise({"predict", place + "/s.json", "--link", place + "/l.json"}).exit_code == 0);
    check_ends_well(bucketwise(
        {"bench", "ddp-strategies", std::string(BUCKETWISE_SCENARIO_DIR) + "/cs336_ddp.json",
         "--simulate", "--ranks", "2", "--rounds", "1", "--link", place + "/l.json"}));
}

TEST_CASE("a byte-order mark before a file changes nothing", "[words]") {
    const TestFolder folder;
    const std::string mark = "\xef\xbb\xbf";
    const std::string core = std::string(BUCKETWISE_SCENARIO_DIR) + "/compare_ddp_core.json";
    const std::string async = std::string(BUCKETWISE_SCENARIO_DIR) + "/compare_ddp_async.json";
    const auto both = [&](const char* name, const std::string& text, const Words& before,
                          const Words& after = {}) {
        INFO(name);
        write_file(folder.file(name), text);
        const Words words = before + Words{folder.file(name)} + after;
        const std::string plain = check_ends_well(bucketwise(words));
        write_file(folder.file(name), mark + text);
        const std::string marked = check_ends_well(bucketwise(words));
        CHECK(marked == plain);
    };
    both("s.json", text_of_file(two_buckets), {"predict"});
    both("l.json", Json::parse(text_of_file(two_buckets))["cluster"]["link"].dump(),
         {"predict", two_buckets, "--link"});
    both("m.jsonl", text_of_file(measured_by(folder, "a machine")), {"calibrate", "-o", "-"});
    both("steps.csv", "bucket_cap_mib,backward_ms\n12,483.565\n36,505.944\n108,572.485\n",
         {"calibrate", "--scenario", async, "-o", "/dev/null", "--steps"});
    both("allreduce.csv", "world_size,bytes,algorithm,time_s\n2,1024,library,0.0026\n",
         {"bench", "allreduce", "--simulate", "--link", folder.file("l.json"), "--format", "csv",
          "--published"});
    both("compare.csv",
         "buffer_m,phase,option,mean_ms,p50_ms,p90_ms,p95_ms,p99_ms\n"
         "3,forward,DDP_CPP_CORE,210.1,210.0,210.6,210.7,212.8\n",
         {"bench", "compare-ddp", core, "--simulate", "--format", "csv", "--published"});
    both("ds.json", R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e8}})",
         {"settings", "check"});
}

TEST_CASE("published numbers without their time, or out of range, are refused by name", "[words]") {
    const TestFolder folder;
    const std::string core = std::string(BUCKETWISE_SCENARIO_DIR) + "/compare_ddp_core.json";
    const std::string syncbn = std::string(BUCKETWISE_SCENARIO_DIR) + "/syncbn_a4000.json";
    const auto refused = [&](const Words& words, const std::string& table) {
        write_file(folder.file("t.csv"), table);
        const Outcome outcome = bucketwise(words + Words{"--published", folder.file("t.csv")});
        CHECK(outcome.exit_code == 2);
        check_one_line(outcome.errors);
        return outcome.errors;
    };
    const Words allreduce{"bench", "allreduce"};
    CHECK(contains(refused(allreduce, "world_size,bytes,algorithm\n2,1024,ring\n"),
                   "expected a column \"time_s\", got world_size, bytes, algorithm"));
    CHECK(contains(refused(allreduce, "world_size,algorithm,time_s\n2,ring,1\n"),
                   "expected a column \"tensor_elements\""));
    CHECK(contains(refused({"bench", "compare-ddp", core, "--simulate"},
                           "buffer_m,phase,option,p50_ms\n3,forward,DDP_CPP_CORE,210\n"),
                   "expected a column \"mean_ms\""));
    CHECK(contains(refused({"bench", "syncbn", syncbn, "--simulate"},
                           "implementation,batch_size,hidden_dim,max_memory_bytes\n"),
                   "expected a column \"median_s\""));
    CHECK(contains(
        refused(allreduce, "world_size,bytes,algorithm,time_s\n1e308,1024,ring,1\n"),
        "t.csv:2: expected a whole number of world_size from 1 to 1000000, got \"1e308\""));
    CHECK(contains(refused(allreduce, "world_size,bytes,algorithm,time_s\n2,1024,ring,-1\n"),
                   "t.csv:2: expected a number of time_s above 0, got \"-1\""));
    CHECK(contains(
        refused(allreduce, "world_size,bytes,algorithm,time_s\n2,1e308,ring,1\n"),
        "t.csv:2: expected a whole number of bytes from 1 to 1000000000000000, got \"1e308\""));
    const Outcome size = bucketwise({"predict", two_buckets, "--bucket-cap", "1e308GiB"});
    CHECK(contains(size.errors, "expected a size from 1 B to 2^50 B"));
}

}  // namespace bucketwise
