// Exports of Nsight Systems, written from the same steps as Kineto's traces.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "import/kineto/kineto_trace.h"
#include "import/nsys/nsys_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_import.h"
#include "import/run/traced_run.h"
#include "sim/base/error.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/import/nsys/opened_export.h"
#include "tests/import/nsys/written_export.h"
#include "tests/import/replay/written_trace.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

std::vector<ProfilerTrace> read(const std::string& bytes, const NsysRequest& request = {}) {
    ExportDatabase database = opened_export(bytes, "trace.json");
    return read_nsys_export(database, request);
}

std::vector<TracedRank> traced(const std::string& bytes, const NsysRequest& request = {}) {
    std::vector<TracedRank> ranks;
    for (const ProfilerTrace& trace : read(bytes, request)) {
        ranks.push_back(traced_rank(trace));
    }
    return ranks;
}

std::string written(const TraceShape& shape, const ExportForm& form = {}) {
    WrittenExport file(form);
    file.add(SyntheticTrace(shape).events(), 1000 + shape.rank, shape.rank);
    return file.bytes();
}

TraceImport import_export(const TraceShape& shape, const ExportForm& form = {},
                          const TraceImportRequest& request = {}) {
    return import_trace(traced(written(shape, form)), request);
}

TraceImport import_kineto(TraceShape shape) {
    return import_trace(
        {traced_rank(read_kineto_trace(
            text_source(SyntheticTrace(std::move(shape)).document().dump(), 4096), "trace.json"))},
        {});
}

std::string refusal(const std::string& bytes, const NsysRequest& request = {}) {
    try {
        import_trace(traced(bytes, request), {});
    } catch (const InputError& error) {
        return error.what();
    }
    return "nothing refused";
}

std::string text_of(const TraceImport& imported, FindingKind kind, const std::string& item) {
    std::string text;
    for (const Finding& finding : imported.findings.all) {
        text += finding.kind == kind && finding.item == item ? finding.text + "\n" : "";
    }
    return text;
}

// Kineto calls an operation by the number that its launch has, Nsight Systems by the range around
// it.
void drop_operation_names(Json& value) {
    if (value.is_object() && value.contains("host_us")) {
        value.erase("name");
    }
    if (value.is_structured()) {
        for (Json& member : value) {
            drop_operation_names(member);
        }
    }
}

void check_same(const TraceImport& imported, const TraceImport& expected) {
    Json got = imported.scenario;
    Json wanted = expected.scenario;
    drop_operation_names(got);
    drop_operation_names(wanted);
    INFO(Json::diff(wanted, got).dump(2).substr(0, 3000));
    CHECK(got == wanted);
    CHECK(imported.ranks == expected.ranks);
    CHECK(imported.summary.step == expected.summary.step);
    CHECK(imported.summary.account.computing == expected.summary.account.computing);
    CHECK(imported.all_reduces == expected.all_reduces);
}

}  // namespace

TEST_CASE("an export of a step is imported as Kineto's trace of it is", "[nsys]") {
    TraceShape shape;
    ExportForm form;
    SECTION("as nsys writes it") {}
    SECTION("texts by number") {
        form.text_ids = true;
    }
    SECTION("binary payloads") {
        form.payloads = Payloads::binary;
    }
    SECTION("years after the clock began") {
        form.shift_ns = 1'700'000'000'000'000'000;
    }
    SECTION("buffers") {
        shape.buffers = 4;
    }
    SECTION("views") {
        shape.copies_back = false;
    }
    SECTION("accumulation") {
        shape.backwards = 3;
    }
    SECTION("a stray gradient") {
        shape.stray_gradient = true;
    }
    SECTION("all-reduces of another group") {
        shape.other_group = true;
    }
    SECTION("layers in parallel") {
        shape.tensor_parallel = true;
        shape.layer_us = 300;
        shape.host_us = 6;
        shape.kernel_us = 400;
    }
    SECTION("a graph") {
        shape.graph_kernels = 20;
    }
    SECTION("the host waits for the loss") {
        shape.reads_loss = true;
    }
    SECTION("the host waits for a norm, in calls that copy") {
        shape.reads_norm = true;
        shape.copies_wait = true;
    }
    SECTION("computing waits for others") {
        shape.stall_us = 700;
    }
    SECTION("the host waits for others") {
        shape.others_us = 900;
    }
    SECTION("shapes of AccumulateGrad") {
        shape.shapes = false;
        shape.copies_back = false;
        shape.accumulated_shapes = true;
    }
    SECTION("batched copies") {
        shape.batched_copies = true;
        shape.accumulated_shapes = true;
    }
    SECTION("compiled pieces") {
        shape.compiled_pieces = 2;
    }
    SECTION("launch-bound") {
        shape.host_us = 300;
    }
    SECTION("bound by the device") {
        shape.host_us = 6;
        shape.kernel_us = 400;
    }
    check_same(import_export(shape, form), import_kineto(shape));
}

TEST_CASE("an old schema tells as much but for NCCL's payloads", "[nsys]") {
    // Without globalPid, eventClass and jsonText; and so without the number of ranks.
    ExportForm form;
    form.old_schema = true;
    TraceImport imported = import_export({}, form, {.ranks = 2});
    check_same(imported, import_kineto({}));
}

TEST_CASE("without shapes the sizes are of what NCCL says it moves", "[nsys]") {
    TraceShape shape;
    shape.shapes = false;
    ExportForm form;
    form.shapes = false;
    const TraceImport imported = import_export(shape, form);
    CHECK(text_of(imported, FindingKind::found, "all-reduces").find("1204000, 802000 float32") !=
          std::string::npos);
    check_same(imported, import_kineto(shape));
}

TEST_CASE("the processes of an export are the ranks of a run", "[nsys]") {
    WrittenExport file;
    std::vector<TracedRank> expected;
    for (const std::int64_t rank : {1, 0}) {
        TraceShape shape;
        shape.rank = rank;
        shape.arrives_us = rank == 1 ? 20 : 0;
        const Json events = SyntheticTrace(shape).events();
        file.add(events, 1000 + rank, rank);
    }
    for (const std::int64_t rank : {0, 1}) {
        TraceShape shape;
        shape.rank = rank;
        shape.arrives_us = rank == 1 ? 20 : 0;
        expected.push_back(traced_rank(read_kineto_trace(
            text_source(SyntheticTrace(shape).document().dump(), 4096), "trace.json")));
    }
    const std::vector<TracedRank> ranks = traced(file.bytes());
    REQUIRE(ranks.size() == 2);
    CHECK(ranks[0].file == "trace.json (process 1000, GPU 0)");
    CHECK(ranks[0].rank == 0);
    CHECK(ranks[0].world_size == 2);
    CHECK(ranks[1].file == "trace.json (process 1001, GPU 1)");
    CHECK(ranks[1].device == "NVIDIA Test");
    TraceImport imported = import_trace(ranks, {});
    const TraceImport wanted = import_trace(expected, {});
    CHECK(text_of(imported, FindingKind::found, "arrival") ==
          text_of(wanted, FindingKind::found, "arrival"));
    imported.scenario["name"] = wanted.scenario["name"];
    check_same(imported, wanted);
}

TEST_CASE("more ranks than were traced are asked for", "[nsys]") {
    ExportForm form;
    form.payloads = Payloads::none;
    WrittenExport file(form);
    for (const std::int64_t rank : {0, 1}) {
        file.add(SyntheticTrace({}).events(), 1000 + rank, rank);
    }
    const std::vector<TracedRank> ranks = traced(file.bytes());
    CHECK(import_trace(ranks, {}).ranks == 2);
    CHECK(import_trace(ranks, {.ranks = 16}).ranks == 16);
}

TEST_CASE("a process that reduces nothing is no rank", "[nsys]") {
    WrittenExport file;
    file.add(SyntheticTrace({}).events(), 1000, 0);
    TraceShape other;
    other.gradients.clear();
    other.bucket_ends.clear();
    file.add(SyntheticTrace(other).events(), 1001, 0);
    CHECK(traced(file.bytes()).size() == 1);
}

TEST_CASE("steps are what the user's ranges mark", "[nsys]") {
    ExportForm form;
    NsysRequest request;
    std::string first = "ProfilerStep#4";
    TraceShape shape;
    SECTION("ProfilerStep") {}
    SECTION("step N") {
        form.step_name = "step #";
        first = "step 4";
    }
    SECTION("an unchanged name") {
        form.step_name = "train_step";
        first = "train_step 1";
    }
    SECTION("a name that is asked for") {
        form.step_name = "my loop";
        request.step_range = "my loop";
        first = "my loop 1";
    }
    SECTION("a name with a number that is asked for") {
        form.step_name = "[rank0] turn #/100";
        request.step_range = "[rank0] turn 1/100";
        first = "[rank0] turn 4/100";
    }
    SECTION("optimizer steps") {
        form.steps = false;
        shape.steps = 4;
        first = "step 1";
    }
    SECTION("not a range around the forward alone") {
        form.steps = false;
        form.forward_name = "Strategy.training_step";
        shape.steps = 4;
        first = "step 1";
    }
    const std::vector<TracedRank> ranks = traced(written(shape, form), request);
    REQUIRE(ranks.size() == 1);
    REQUIRE(ranks[0].steps.size() == 3);
    CHECK(ranks[0].steps[0].name == first);
    const TraceImport imported = import_trace(ranks, {});
    const TraceImport expected = import_kineto({});
    CHECK(imported.summary.step == expected.summary.step);
    CHECK(imported.scenario["workload"]["gradients"] == expected.scenario["workload"]["gradients"]);
}

TEST_CASE("steps that nothing marks are told by kernels that repeat themselves", "[nsys]") {
    ExportForm form;
    form.steps = false;
    form.optimizer_ranges = false;
    TraceShape shape;
    shape.steps = 6;
    const std::vector<TracedRank> ranks = traced(written(shape, form));
    REQUIRE(ranks.size() == 1);
    REQUIRE(ranks[0].notes.size() == 1);
    CHECK(ranks[0].notes[0].item == "steps");
    // From the end of an optimizer's kernels to that of the next one's.
    CHECK(ranks[0].steps.size() == 5);
    const TraceImport imported = import_trace(ranks, {});
    CHECK(imported.summary.step == import_kineto({}).summary.step);
    CHECK(text_of(imported, FindingKind::assumed, "steps").find("repeat themselves") !=
          std::string::npos);

    shape.steps = 2;
    CHECK(refusal(written(shape, form)).find("expected training steps: NVTX ranges") !=
          std::string::npos);
}

TEST_CASE("of many steps the last are read", "[nsys]") {
    TraceShape shape;
    shape.steps = 120;
    const TraceImport imported = import_export(shape);
    CHECK(text_of(imported, FindingKind::assumed, "steps") ==
          "of 120 steps the last 50 stand for all\n");
    CHECK(imported.summary.step == import_kineto({}).summary.step);
}

TEST_CASE("without operations all-reduces stand for gradients", "[nsys]") {
    ExportForm form;
    form.autograd = false;
    TraceShape shape;
    shape.steps = 5;
    NsysRequest request;
    SECTION("with payloads") {}
    SECTION("with sizes that are asked for") {
        form.payloads = Payloads::none;
        request.all_reduce_bytes = {1'204'000, 802'000};
    }
    SECTION("and steps that nothing marks") {
        form.steps = false;
        form.optimizer_ranges = false;
    }
    const TraceImport imported = import_trace(traced(written(shape, form), request), {.ranks = 2});
    const Json& gradients = imported.scenario["workload"]["gradients"];
    REQUIRE(gradients.size() == 2);
    // Parameters are listed against the order of readiness.
    CHECK(gradients[0]["numel"] == 200'500);
    CHECK(gradients[1]["numel"] == 301'000);
    CHECK(imported.all_reduces.size() == 2);
    CHECK(imported.all_reduces[0].bytes.count == 1'204'000);
    CHECK(imported.all_reduces[0].wire_us[0] == Approx(100));
    CHECK(text_of(imported, FindingKind::assumed, "gradients").find("can only join buckets") !=
          std::string::npos);
    CHECK(imported.summary.step == import_kineto({}).summary.step);
    Json document = imported.scenario;
    document["cluster"]["link"] = {
        {"name", "constant"},
        {"algorithm", "ring"},
        {"segments", {{{"latency_us", 50}, {"bandwidth_gb_per_s", 1e6}}}}};
    const Scenario scenario =
        parse_scenario(document, "imported", [](const std::string&) { return std::string(); });
    const Replay replayed = replay(imported, scenario);
    CHECK(replayed.same_buckets);
    CHECK(replayed.error() == Approx(0).margin(0.02));
}

TEST_CASE("sizes that nothing tells are asked for", "[nsys]") {
    ExportForm form;
    form.autograd = false;
    form.payloads = Payloads::none;
    CHECK(refusal(written({}, form)) ==
          "trace.json: /NVTX_EVENTS: expected the sizes of all-reduces: ranges of PyTorch's "
          "operations (nsys profile -t cuda,nvtx --pytorch=autograd-shapes-nvtx), NCCL's payloads "
          "(nsys export --include-blobs=true), or --all-reduce-bytes, got all-reduces of unknown "
          "size in ProfilerStep#4");
    CHECK(refusal(written({}, form), {.all_reduce_bytes = {4}}) ==
          "--all-reduce-bytes: expected the bytes of each all-reduce of a step, of which "
          "ProfilerStep#4 has more, got 1");
}

}  // namespace bucketwise
