// Dumps of real training steps: tests/data/traces/make_logs.py made them, on a CPU over Gloo.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/chakra/chakra_trace.h"
#include "import/collectives/log_import.h"
#include "import/flight_recorder/flight_recorder.h"
#include "import/source/inflate.h"
#include "sim/base/error.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/source/text_source.h"
#include "tests/shell_line.h"

namespace bucketwise {
namespace {

using testing::contains;
using Numbers = std::vector<std::int64_t>;

// A layer of 512 x 512 weights and 512 biases.
constexpr std::int64_t layer = 512 * 512 + 512;

// A pickle as the JSON that the shipped script makes of it.
ByteSource real_log(const std::string& name) {
    const std::string path = BUCKETWISE_TEST_DATA_DIR "/traces/" + name;
    if (name.find(".pickle") != std::string::npos) {
        const std::string script =
            BUCKETWISE_TEST_DATA_DIR "/../../import/flight_recorder/pickle_to_json.py";
        return text_source(
            testing::run_in_shell("gzip -dc '" + path + "' > /tmp/$PPID.pickle; python3 '" +
                                  script + "' /tmp/$PPID.pickle; rm -f /tmp/$PPID.pickle")
                .output,
            1 << 16);
    }
    std::ifstream stream(path, std::ios::binary);
    REQUIRE(stream);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    return inflated(text_source(bytes, 1 << 16), name);
}

std::vector<CollectiveLog> real_logs(const std::string& form, int ranks,
                                     const std::string& kind = "pickle") {
    std::vector<CollectiveLog> logs;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::string name = "fr_" + form + "_rank" + std::to_string(rank) + "." + kind + ".gz";
        logs.push_back(read_flight_recorder(real_log(name), name));
    }
    return logs;
}

Numbers buckets_of(const LogImport& imported) {
    Numbers found;
    for (const TypicalCollective& bucket : imported.buckets) {
        found.push_back(bucket.elements);
    }
    return found;
}

}  // namespace

TEST_CASE("Two real ranks' dumps are their buckets, as a pickle, with frames, and as JSON",
          "[import]") {
    for (const auto& [form, kind] : {std::pair("ddp", "pickle"), std::pair("ddp_frames", "pickle"),
                                     std::pair("ddp_json", "json"), std::pair("ring", "pickle")}) {
        CAPTURE(form);
        const std::vector<CollectiveLog> logs = real_logs(form, 2, kind);
        CHECK(logs[0].backend == "gloo");
        const LogImport imported = import_logs(logs, {});
        CHECK(imported.ranks == 2);
        // 4 layers by a cap of 2 MiB: two buckets of two.
        CHECK(buckets_of(imported) == Numbers{2 * layer, 2 * layer});
        CHECK(imported.period > imported.pause);
        CHECK(contains(text_of(imported.findings), "the first of 2 ranks waits"));
    }
    const LogImport four = import_logs(real_logs("ddp_4", 4), {});
    CHECK(four.ranks == 4);
    CHECK(buckets_of(four) == Numbers{2 * layer, 2 * layer});
}

TEST_CASE("Real dumps tell the default caps, unused parameters, a hook and metrics", "[import]") {
    const LogImport plain = import_logs(real_logs("default_caps", 2), {});
    CHECK(buckets_of(plain) == Numbers{layer, 2 * layer});
    CHECK_FALSE(plain.scenario["sync"].contains("bucket_cap_mib"));
    CHECK_FALSE(plain.scenario["sync"].contains("find_unused_parameters"));

    const LogImport unused = import_logs(real_logs("unused", 2), {});
    // Formed in the order of parameters: two weights and three biases last, a weight first.
    CHECK(buckets_of(unused) == Numbers{2 * layer + 512, layer - 512});
    CHECK(unused.scenario["sync"]["find_unused_parameters"] == true);

    const LogImport hook = import_logs(real_logs("fp16_hook", 2), {});
    CHECK(buckets_of(hook) == Numbers{layer, 2 * layer});
    CHECK(hook.scenario["sync"]["comm_hook"] == "fp16");

    const LogImport metrics = import_logs(real_logs("metrics", 2), {});
    CHECK(buckets_of(metrics) == Numbers{layer, 2 * layer});
    CHECK(contains(text_of(metrics.findings), "8 x all_reduce of 1 Float"));
}

TEST_CASE("A real ring buffer that begins in mid-step has its whole steps", "[import]") {
    // Second bucket, loss; then three steps of two buckets and a loss, one of them with a count.
    const LogImport imported = import_logs(real_logs("ring_metrics", 2), {});
    CHECK(buckets_of(imported) == Numbers{layer, 2 * layer});
    CHECK(contains(text_of(imported.findings), "3 whole ones of 2 all-reduces"));
}

TEST_CASE("With the model's gradients a real dump tells the cap it was run with", "[import]") {
    std::vector<GradientReadiness> gradients;
    for (int i = 0; i < 4; ++i) {
        gradients.push_back({{std::to_string(i) + ".weight", std::int64_t{512} * 512}, {}});
        gradients.push_back({{std::to_string(i) + ".bias", 512}, {}});
    }
    LogImportRequest request;
    request.model = workload_from_readiness(gradients, {}, {});
    const LogImport imported = import_logs(real_logs("ring", 2), request);
    CHECK(imported.scenario["sync"]["bucket_cap_mib"] == 2);
    CHECK(imported.scenario["workload"]["gradients"].size() == 8);
}

TEST_CASE("Of real tensor parallel ranks the replicas' group is the gradients'", "[import]") {
    const LogImport imported = import_logs(real_logs("tensor_parallel", 4), {});
    CHECK(buckets_of(imported) == Numbers{layer, 2 * layer});
    CHECK(imported.ranks == 2);
    CHECK(contains(text_of(imported.findings), "(mesh_tp) (48 all-reduces"));
}

TEST_CASE("Real FSDP over Gloo is refused, though it records all-reduces", "[import]") {
    try {
        import_logs(real_logs("fsdp2", 2), {});
        FAIL("taken");
    } catch (const InputError& error) {
        CHECK(contains(error.what(), "FSDP or ZeRO: 48 all-gathers over 2 ranks"));
    }
}

TEST_CASE("A real execution trace is its buckets, by the steps that its optimizer ends",
          "[import]") {
    const CollectiveLog log = read_chakra(real_log("execution_trace.json.gz"), "trace");
    CHECK(log.clock == LogClock::none);
    LogImportRequest request;
    CHECK_THROWS_AS(import_logs({log}, request), InputError);  // it has no times
    request.forward = duration_from_ms(10);
    request.backward = duration_from_ms(30);
    const LogImport imported = import_logs({log}, request);
    CHECK(buckets_of(imported) == Numbers{layer, 2 * layer});
    CHECK(imported.ranks == 2);
    // A third of the elements, a third of backward.
    CHECK(imported.buckets[0].start == duration_from_ms(10));
    CHECK(imported.buckets[1].start == duration_from_ms(30));
    CHECK(
        contains(text_of(imported.findings), "2 with the same 2 all-reduces, as the trace marks"));
}

}  // namespace bucketwise
