// No command writes over what it has read, however it came to read it, nor reads what never ends:
// refused with 2, and nothing is written.
#include <map>

#include <nlohmann/json.hpp>

#include "tests/cli/process.h"
#include "tests/import/nccl_tests/nccl_tests_log.h"

namespace bucketwise {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

// A scenario in `s.json`, whose link is in `outer.json`, whose tiers are in `intra.json` and
// `inter.json`; and what else commands read.
class Inputs {
  public:
    Inputs() {
        const std::string scenarios = BUCKETWISE_SCENARIO_DIR;
        for (const auto& [name, shipped] : std::map<std::string, std::string>{
                 {"intra.json", "efa_h100_intra.json"}, {"inter.json", "efa_h100.json"}}) {
            std::filesystem::copy(scenarios + "/links/" + shipped, file(name));
        }
        Json outer = Json::parse(text_of_file(scenarios + "/links/hierarchical_h100_efa.json"));
        outer["intra"] = "intra.json";
        outer["inter"] = "inter.json";
        write_file(file("outer.json"), outer.dump());
        Json scenario = Json::parse(text_of_file(two_buckets));
        scenario["cluster"] = {{"ranks", 16}, {"ranks_per_node", 8}, {"link", "outer.json"}};
        write_file(file("s.json"), scenario.dump());
        write_file(file("log.txt"), log_text(usual_times(), 8, {}));
        write_file(file("config.json"),
                   R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2,
                       "n_embd": 64, "n_head": 2, "n_positions": 64, "vocab_size": 512})");
        write_file(file("ds.json"), R"({"zero_optimization": {"stage": 1}})");
        write_file(file("steps.csv"), "bucket_cap_mib,step_ms\n1,5.1\n2,5.2\n3,5.4\n25,5.5\n");
        const std::string validation = BUCKETWISE_TEST_DATA_DIR "/validation/resnet_1gbit_2/";
        for (const char* name : {"measurements.jsonl", "link.json", "scenario.json"}) {
            std::filesystem::copy(validation + name, file(std::string("v.") + name));
        }
        for (const std::string rank : {"0", "1"}) {
            std::filesystem::copy(
                BUCKETWISE_TEST_DATA_DIR "/traces/fr_ddp_rank" + rank + ".pickle.gz",
                file(rank + ".pickle.gz"));
        }
        before_ = texts();
    }

    [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }

    // `words` with each file by its place here.
    void check_refused(const Words& words, const std::string& read) const {
        Words command{BUCKETWISE_BINARY};
        command.insert(command.end(), words.begin(), words.end());
        const Outcome outcome = run(command, {.folder = folder_.path()});
        INFO(Json(words).dump());
        CHECK(outcome.exit_code == 2);
        CHECK(outcome.output.empty());
        check_one_line(outcome.errors);
        CHECK_THAT(outcome.errors, Contains(read + ": expected a file of its own to write to"));
        CHECK(texts() == before_);
    }

  private:
    [[nodiscard]] std::map<std::string, std::string> texts() const {
        std::map<std::string, std::string> all;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
            all[entry.path()] = entry.is_regular_file() ? text_of_file(entry.path()) : "";
        }
        return all;
    }

    TestFolder folder_;
    std::map<std::string, std::string> before_;
};

TEST_CASE("a scenario's link, its link's links and every link that is named are not written to") {
    const Inputs inputs;
    for (const char* read : {"s.json", "outer.json", "intra.json", "inter.json"}) {
        inputs.check_refused({"predict", "s.json", "--json", read}, read);
        inputs.check_refused({"predict", "s.json", "--json", "new.json", "--trace", read}, read);
        inputs.check_refused({"sweep", "s.json", "--vary", "/cluster/ranks=16,32", "-o", read},
                             read);
        inputs.check_refused({"measure", "s.json", "--ranks", "2", "-o", read}, read);
        inputs.check_refused({"calibrate", "--steps", "steps.csv", "--scenario", "s.json", "-o",
                              "new.json", "--scenario-output", read},
                             read);
        inputs.check_refused({"settings", "check", "ds.json", "s.json", "--json", read}, read);
    }
    inputs.check_refused(
        {"predict", "s.json", "--set", "/cluster/link=v.link.json", "--json", "v.link.json"},
        "v.link.json");
    inputs.check_refused({"predict", "s.json", "--link", "v.link.json", "--json", "v.link.json"},
                         "v.link.json");
    inputs.check_refused(
        {"sweep", "s.json", "--vary", R"(/cluster/link=eth-10g,"v.link.json","inter.json")", "-o",
         "inter.json"},
        "inter.json");
}

TEST_CASE("what other commands read is not written to") {
    const Inputs inputs;
    inputs.check_refused(
        {"calibrate", "v.measurements.jsonl", "-o", "new.json", "--fit", "v.measurements.jsonl"},
        "v.measurements.jsonl");
    inputs.check_refused(
        {"calibrate", "--steps", "steps.csv", "--scenario", "s.json", "-o", "steps.csv"},
        "steps.csv");
    for (const char* read : {"v.scenario.json", "v.link.json", "v.measurements.jsonl"}) {
        inputs.check_refused({"compare", "v.scenario.json", "--link", "v.link.json",
                              "--measurements", "v.measurements.jsonl", "-o", read},
                             read);
    }
    inputs.check_refused({"import", "nccl-tests", "log.txt", "-o", "log.txt"}, "log.txt");
    for (const char* read : {"config.json", "v.link.json"}) {
        inputs.check_refused({"import", "hf", "config.json", "--link", "v.link.json", "-o", read},
                             read);
    }
    inputs.check_refused({"settings", "check", "ds.json", "--json", "ds.json"}, "ds.json");
    inputs.check_refused({"import", "flight-recorder", "0.pickle.gz", "1.pickle.gz", "--link",
                          "v.link.json", "-o", "1.pickle.gz"},
                         "1.pickle.gz");
}

TEST_CASE("a validation writes over nothing that it was asked with, and says so first") {
    const Inputs inputs;
    const TestFolder folder;
    for (const char* name : {"link.json", "report.md", "step_time.svg"}) {
        const std::string read = folder.file(name);
        std::filesystem::copy(inputs.file("v.link.json"), read);
        CHECK_THAT(check_fails(2, run({BUCKETWISE_BINARY, "validate", two_buckets, "--link", read,
                                       "-o", folder.path(), "--resume"})),
                   Contains(read + ": expected a file of its own to write to"));
        CHECK(text_of_file(read) == text_of_file(inputs.file("v.link.json")));
    }
    CHECK_FALSE(std::filesystem::exists(folder.file("measurements.jsonl")));
}

// The error of a command that reads /dev/zero in 2 GiB of address space; sanitizers need more.
std::string said_of_zeros(const Words& words) {
    const TestFolder folder;
    const char* limited =
        BUCKETWISE_TEST_SHARE == 1 ? "ulimit -v 2097152; exec \"$@\"" : "exec \"$@\"";
    Words command{"/bin/sh", "-c", limited, "sh", BUCKETWISE_BINARY};
    command.insert(command.end(), words.begin(), words.end());
    const Outcome outcome = run(command, {.folder = folder.path()});
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.output.empty());
    CHECK(std::filesystem::is_empty(folder.path()));
    return outcome.errors;
}

TEST_CASE("what never ends is refused, whoever reads it") {
    const std::string endless = "/dev/zero";
    const std::string line = "bucketwise: /dev/zero:1: expected a line of at most ";
    CHECK(said_of_zeros({"calibrate", endless, "-o", "l.json"}) ==
          line + "64 MiB, got a longer one\n");
    CHECK(said_of_zeros({"compare", two_buckets, "--measurements", endless}) ==
          line + "64 MiB, got a longer one\n");
    CHECK(said_of_zeros({"import", "nccl-tests", endless, "-o", "m.jsonl"}) ==
          line + "256 MiB, got a longer one\n");
    CHECK(said_of_zeros({"predict", endless}) ==
          "bucketwise: /dev/zero: expected a file of at most 256 MiB, got a larger one\n");
}

}  // namespace
}  // namespace bucketwise
