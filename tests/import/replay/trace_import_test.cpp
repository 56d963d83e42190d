#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>
#include <nlohmann/json.hpp>

#include "import/replay/replay.h"
#include "import/source/inflate.h"
#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/base/transformed.h"
#include "sim/engine/engine.h"
#include "sim/predict/prediction.h"
#include "sim/report/perfetto.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/import/replay/imported_trace.h"
#include "tests/import/source/text_source.h"
#include "tests/trace_rules.h"

namespace bucketwise {
namespace {

using testing::contains;

std::string refusal_of(const std::function<TraceImport()>& import) {
    try {
        import();
    } catch (const InputError& error) {
        return error.what();
    }
    return "nothing refused";
}

std::string refusal_of(const std::string& text) {
    return refusal_of([&] { return import_trace({rank_of_text(text)}, {}); });
}

std::string refusal_of(const std::vector<TracedRank>& ranks,
                       const TraceImportRequest& request = {}) {
    return refusal_of([&] { return import_trace(ranks, request); });
}

std::string text_of(const TraceImport& imported, FindingKind kind, const std::string& item) {
    std::string text;
    for (const Finding& finding : imported.findings.all) {
        text += finding.kind == kind && finding.item == item ? finding.text + "\n" : "";
    }
    return text;
}

bool says(const TraceImport& imported, FindingKind kind, const std::string& item,
          const std::string& part) {
    return contains(text_of(imported, kind, item), part);
}

// With a link on which an all-reduce of any size takes the traced time.
Scenario scenario_of(const TraceImport& imported, double wire_us) {
    Json document = imported.scenario;
    document["cluster"]["link"] = {
        {"name", "constant"},
        {"algorithm", "ring"},
        {"segments", {{{"latency_us", wire_us / 2}, {"bandwidth_gb_per_s", 1e6}}}}};
    return parse_scenario(document, "imported", no_file);
}

std::vector<std::int64_t> bytes_of(const TraceImport& imported) {
    return transformed(imported.all_reduces, [](const auto& one) { return one.bytes.count; });
}

}  // namespace

TEST_CASE("a traced step becomes a scenario that takes as long and communicates as it did",
          "[kineto]") {
    const bool launch_bound = GENERATE(true, false);
    TraceShape shape;
    shape.host_us = launch_bound ? 50 : 6;
    shape.kernel_us = launch_bound ? 10 : 400;
    shape.buffers = 3;
    SyntheticTrace trace(shape);
    const TraceImport imported = import_trace({rank_of_text(trace.document().dump())}, {});
    CHECK(imported.ranks == 2);
    CHECK(imported.scenario["workload"]["gradients"].size() == 4);
    // By readiness 1000, 300000, 200000, 500: parameters are numbered against it.
    CHECK(imported.scenario["workload"]["gradients"][0]["numel"] == 500);
    CHECK(imported.scenario["workload"]["gradients"][3]["numel"] == 1000);
    // 4 bytes each: (1000 + 300000), (200000 + 500).
    CHECK(bytes_of(imported) == std::vector<std::int64_t>{1'204'000, 802'000});
    CHECK(imported.scenario["workload"]["buffers"] ==
          Json::array({{{"bytes", 192}, {"tensors", 3}}}));
    for (const TypicalCollective& all_reduce : imported.all_reduces) {
        CHECK(all_reduce.wire_us == std::vector<double>{100});
    }
    const Replay replayed = replay(imported, scenario_of(imported, 100));
    CHECK(replayed.same_buckets);
    CHECK(replayed.error() == Approx(0).margin(0.02));
    CHECK(to_us(replayed.largest_difference()) < 100);
    const std::string launching = text_of(imported, FindingKind::found, "launching");
    CHECK((launching.find("launch-bound") != std::string::npos) == launch_bound);
    if (launch_bound) {
        CHECK(to_us(replayed.traced.step) == Approx(trace.step_us()).margin(20));
    } else {
        // 4 + 4 + 1 kernels of 400 us, 4 + 4 copies of 4 us, 3 of 2 us; the device also waits
        // for the last all-reduce.
        CHECK(to_us(imported.summary.account.computing) == Approx(9 * 400 + 8 * 4 + 3 * 2));
        CHECK(to_us(replayed.traced.step) == Approx(9 * 400 + 8 * 4 + 3 * 2 + 100).margin(20));
    }
}

TEST_CASE("the replayed and the traced step share one trace", "[kineto]") {
    TraceShape shape;
    shape.device = GENERATE(true, false);
    const TraceImport imported = import_of(shape);
    const Scenario scenario = scenario_of(imported, 100);
    const StepInput input = step_input(scenario);
    const Program program = Evaluator(input, scenario.sync).program(std::nullopt);
    const TraceProcess real = traced_process(imported);
    const Json trace = Json::parse(perfetto_trace(
        "replayed", input, program, simulate({&program, 1}, Record::timeline), {real}));
    check_trace_rules(trace);
    REQUIRE(real.tracks.size() == (shape.device ? 3 : 2));
    CHECK(real.tracks.back().slices.size() == 2);
    CHECK(real.tracks.back().slices[0].name == "allreduce (1.15 MiB)");
}

TEST_CASE("whatever Kineto's format has been, the same step is read", "[kineto]") {
    const TraceImport usual = import_of({});
    TraceShape shape;
    std::string text;
    SECTION("a bare list of events") {
        text = SyntheticTrace(shape).events().dump();
        TraceImportRequest request;
        request.ranks = 2;
        CHECK(import_trace({rank_of_text(text)}, request).scenario["workload"] ==
              usual.scenario["workload"]);
        return;
    }
    SECTION("absolute times without baseTimeNanoseconds, in nanoseconds to the display") {
        shape.clock_us = 1.7e15;
        Json document = SyntheticTrace(shape).document();
        document.erase("baseTimeNanoseconds");
        document["displayTimeUnit"] = "ns";
        text = document.dump();
    }
    SECTION("capital categories") {
        shape.old_categories = true;
        text = SyntheticTrace(shape).document().dump();
    }
    SECTION("no shapes: sizes from the copies out of the buckets") {
        shape.shapes = false;
        text = SyntheticTrace(shape).document().dump();
    }
    SECTION("no arguments on record_param_comms, but on the kernels") {
        shape.collective_args = false;
        shape.kernel_collective_args = true;
        text = SyntheticTrace(shape).document().dump();
    }
    SECTION("no c10d operations around record_param_comms") {
        shape.collective_ops = false;
        text = SyntheticTrace(shape).document().dump();
    }
    SECTION("RCCL, whose kernels are all of one name, with waits for all-to-alls") {
        for (const double others_us : {0.0, 700.0}) {
            shape.others_us = others_us;
            shape.reads_loss = true;
            shape.kernel_us = 100;
            TraceShape generic = shape;
            generic.generic_kernels = true;
            const Json nccl = import_of(shape).scenario;
            CHECK(import_of(generic).scenario["workload"] == nccl["workload"]);
        }
        text = SyntheticTrace({}).document().dump();
    }
    SECTION("no ProfilerStep, but optimizer steps") {
        shape.profiler_steps = false;
        shape.steps = 4;
        text = SyntheticTrace(shape).document().dump();
    }
    SECTION("several process groups") {
        const TraceImport imported = import_of({.other_group = true});
        CHECK(bytes_of(imported) == bytes_of(usual));
        CHECK(says(imported, FindingKind::found, "process groups", "2 groups"));
        CHECK(says(imported, FindingKind::missing, "other collectives",
                   "2 x allreduce in backward of 28 bytes"));
        return;
    }
    SECTION("flows, counters, metadata and Python's stack in between, in any order") {
        Json document = SyntheticTrace(shape).document();
        Json& events = document["traceEvents"];
        events.push_back({{"ph", "s"},
                          {"id", 1},
                          {"pid", 1},
                          {"tid", 1},
                          {"ts", 5},
                          {"cat", "async_cpu_to_gpu"},
                          {"name", "async_cpu_to_gpu"}});
        events.push_back({{"ph", "M"},
                          {"name", "process_name"},
                          {"pid", 1},
                          {"tid", 1},
                          {"ts", 5},
                          {"args", {{"name", "python"}}}});
        events.push_back({{"ph", "X"},
                          {"cat", "python_function"},
                          {"name", "train.py(3): step"},
                          {"pid", 1},
                          {"tid", 100},
                          {"ts", 1},
                          {"dur", 1e5},
                          {"args", {{"Python id", 1}}}});
        events.push_back(
            {{"ph", "C"}, {"name", "[memory]"}, {"ts", 1}, {"pid", 0}, {"args", {{"Bytes", 12}}}});
        // As Kineto does, which writes one thread after the other: the first is not the
        // earliest.
        std::reverse(events.begin(), events.end());
        text = document.dump();
    }
    const TraceImport imported = import_trace({rank_of_text(text)}, {});
    CHECK(bytes_of(imported) == bytes_of(usual));
    CHECK(imported.scenario["workload"]["gradients"] == usual.scenario["workload"]["gradients"]);
    CHECK(std::abs(to_us(imported.summary.step) - to_us(usual.summary.step)) < 1);
    CHECK(imported.scenario["workload"]["backward_operations"].size() ==
          usual.scenario["workload"]["backward_operations"].size());
}

TEST_CASE("gradients that are views, cast by a hook or accumulated are found to be", "[kineto]") {
    SECTION("views") {
        const TraceImport imported = import_of({.copies_back = false});
        CHECK(imported.scenario["sync"]["views"] == true);
        CHECK(imported.scenario["workload"]["gradients"][0]["numel"] == 500);
    }
    SECTION("a hook") {
        const TraceImport imported = import_of({.dtype = "BFloat16", .hook = true});
        CHECK(imported.scenario["sync"]["comm_hook"] == "bf16");
        CHECK(imported.scenario["workload"]["gradients"][0]["dtype"] == "float32");
        // Half of the gradients' 4 bytes each.
        CHECK(bytes_of(imported) == std::vector<std::int64_t>{602'000, 401'000});
    }
    SECTION("a model in half precision") {
        const TraceImport imported = import_of({.dtype = "Half"});
        CHECK_FALSE(imported.scenario["sync"].contains("comm_hook"));
        CHECK(imported.scenario["workload"]["gradients"][0]["dtype"] == "float16");
    }
    SECTION("accumulation") {
        const TraceImport imported = import_of({.backwards = 3});
        CHECK(imported.scenario["step"]["accumulation"] == 3);
        CHECK(imported.scenario["workload"]["backward_operations"].size() ==
              import_of({}).scenario["workload"]["backward_operations"].size());
        const Replay replayed = replay(imported, scenario_of(imported, 100));
        CHECK(replayed.error() == Approx(0).margin(0.03));
    }
}

TEST_CASE("what older and larger programs write is understood", "[kineto]") {
    TraceShape shape;
    const std::vector<std::int64_t> buckets{1'204'000, 802'000};
    SECTION("gradients' sizes from AccumulateGrad, where no copy has shapes") {
        const TraceImport imported =
            import_of({.shapes = false, .copies_back = false, .accumulated_shapes = true});
        CHECK(imported.scenario["workload"]["gradients"][0]["numel"] == 500);
        CHECK(says(imported, FindingKind::found, "gradients", "AccumulateGrad took"));
    }
    SECTION("sizes shared by the gradients of an all-reduce, where nothing else tells") {
        const TraceImport imported = import_of({.shapes = false, .copies_back = false});
        const Json& gradients = imported.scenario["workload"]["gradients"];
        // 200500 and 301000 elements, by readiness the latter first.
        CHECK(gradients[0]["numel"] == 100'250);
        CHECK(gradients[3]["numel"] == 150'500);
        CHECK(bytes_of(imported) == buckets);
        CHECK(says(imported, FindingKind::assumed, "sizes", "a guess"));
        CHECK(replay(imported, scenario_of(imported, 100)).same_buckets);
    }
    SECTION("copies by a reducer that does not name them") {
        const TraceImport imported = import_of({.copies_back = false, .unnamed_reducer = true});
        CHECK(imported.scenario["workload"]["gradients"][0]["numel"] == 500);
        CHECK(imported.scenario["sync"]["views"] == true);
        CHECK(bytes_of(imported) == buckets);
    }
    SECTION("a list of tensors has no shape: the annotation tells it") {
        const TraceImport imported = import_of({.collective_args = false, .list_shapes = true});
        CHECK(bytes_of(imported) == buckets);
        CHECK(text_of(imported, FindingKind::assumed, "all-reduces").empty());
    }
    SECTION("a wrapped module within another is no accumulation") {
        const TraceImport imported = import_of({.inner_module = true});
        CHECK_FALSE(imported.scenario["step"].contains("accumulation"));
        CHECK(bytes_of(imported) == buckets);
    }
    SECTION("forward that checkpointing runs again in backward is no accumulation") {
        const TraceImport imported = import_of({.checkpointing = true});
        CHECK_FALSE(imported.scenario["step"].contains("accumulation"));
        CHECK(bytes_of(imported) == buckets);
        CHECK(replay(imported, scenario_of(imported, 100)).error() == Approx(0).margin(0.02));
    }
    SECTION("an all-reduce for each gradient tells its size") {
        const TraceImport imported =
            import_of({.bucket_ends = {1, 2, 3, 4}, .shapes = false, .copies_back = false});
        CHECK(imported.scenario["workload"]["gradients"][3]["numel"] == 1000);
        CHECK(says(imported, FindingKind::found, "gradients",
                   "sizes from the all-reduces, one for each"));
        CHECK(text_of(imported, FindingKind::assumed, "sizes").empty());
    }
    SECTION("what comes out of an all-reduce has gone into it") {
        shape.shapes = shape.copies_back = false;
        Json document = SyntheticTrace(shape).document();
        for (Json& event : document["traceEvents"]) {
            event["args"].erase("In msg nelems");
        }
        CHECK(bytes_of(import_trace({rank_of_text(document.dump())}, {})) == buckets);
    }
    SECTION("a gradient that is copied into no bucket is none of DDP's") {
        const TraceImport imported = import_of({.stray_gradient = true});
        CHECK(imported.scenario["workload"]["gradients"].size() == 4);
        CHECK(text_of(imported, FindingKind::missing, "unreduced gradients").find("1 became") == 0);
        CHECK(bytes_of(imported) == buckets);
    }
    SECTION("several tensors at once, as Megatron reduces them") {
        CHECK(bytes_of(import_of({.coalesced = true})) == buckets);
    }
    SECTION("the group that reduces where gradients become ready, though another moves more") {
        const TraceImport imported = import_of({.tensor_parallel = true});
        CHECK(bytes_of(imported) == buckets);
        CHECK(says(imported, FindingKind::found, "process groups", "2 groups"));
    }
    SECTION("a wait for what is not simulated is kept in place") {
        shape.others_us = 5000;
        SyntheticTrace trace(shape);
        const TraceImport imported = import_trace({rank_of_text(trace.document().dump())}, {});
        CHECK(text_of(imported, FindingKind::assumed, "waits in place").find("for 5.0") == 0);
        const Replay replayed = replay(imported, scenario_of(imported, 100));
        CHECK(to_us(replayed.traced.step) == Approx(trace.step_us()).margin(20));
        CHECK(replayed.error() == Approx(0).margin(0.02));
    }
}

namespace {

struct Imported {
    TraceImport import;
    Replay replay;
};

Imported imported_from(TraceShape shape) {
    const double wire_us = shape.wire_us;
    Imported imported{import_trace({traced(std::move(shape))}, {}), {}};
    imported.replay = replay(imported.import, scenario_of(imported.import, wire_us));
    return imported;
}

}  // namespace

// With and without what the device or the host waits for, on a device that is busy and on one that
// is not. The traced step is the device's, the last of three.
TEST_CASE("what is waited for in a step is waited for in its place", "[kineto]") {
    const auto replayed = [](TraceShape shape) {
        shape.steps = 6;
        SyntheticTrace trace(shape);
        trace.document();
        Imported imported = imported_from(shape);
        INFO(text_of(imported.import.findings));
        INFO(text_of(imported.replay));
        CHECK(to_us(imported.replay.step) == Approx(trace.device_step_us()).epsilon(0.01));
        CHECK(to_us(imported.import.summary.step) == Approx(trace.device_step_us()).epsilon(0.01));
        return imported;
    };
    const auto waits = [](const Imported& imported, const char* pass) {
        std::size_t count = 0;
        const Json& workload = imported.import.scenario["workload"];
        for (const Json& operation : workload.value(pass, Json::array())) {
            count += operation.contains("host_waits") ? 1U : 0U;
        }
        return count;
    };
    for (const double kernel_us : {10.0, 400.0}) {
        CAPTURE(kernel_us);
        TraceShape shape;
        shape.copies_wait = GENERATE(false, true);
        CAPTURE(shape.copies_wait);
        // A call that finds the device idle does not show that it would have waited.
        const std::size_t shown = shape.copies_wait && kernel_us == 10 ? 0 : 1;
        shape.kernel_us = kernel_us;
        shape.host_us = 30;
        const double plain_us = to_us(replayed(shape).replay.step);

        TraceShape stalls = shape;
        stalls.stall_us = 700;
        const Imported stalled = replayed(stalls);
        CHECK(text_of(stalled.import.findings).find("ncclDevKernel_AllGather_RING_LL") !=
              std::string::npos);
        // The host is far ahead, so that the kernel after it waits for all of it.
        CHECK(to_us(stalled.import.summary.account.others) == Approx(700).margin(1));

        TraceShape loss = shape;
        loss.reads_loss = true;
        const Imported read = replayed(loss);
        CHECK(waits(read, "forward_operations") == shown);
        CHECK(waits(read, "backward_operations") == 0);
        CHECK_FALSE(read.import.scenario["workload"].contains("optimizer_operations"));

        TraceShape norm = shape;
        norm.reads_norm = true;
        const Imported clipped = replayed(norm);
        CHECK(waits(clipped, "optimizer_operations") == shown);
        CHECK(clipped.import.scenario["step"].contains("optimizer_ms") == (shown == 0));
        CHECK(to_us(clipped.replay.step) > plain_us);
    }
}

TEST_CASE("what computing waits for on other streams is simulated there", "[kineto]") {
    struct Expected {
        TraceShape shape = {};
        std::string stream = {};
        double device_us = 0;
        bool after_compute = false;
    };
    std::vector<Expected> cases(3);
    // The host is ahead: what runs beside begins when the first kernel has ended, and is one
    // operation, as it was launched at once.
    cases[0] = {.stream = "kernels", .device_us = 1350, .after_compute = true};
    cases[0].shape.host_us = 8;
    cases[0].shape.kernel_us = 200;
    cases[0].shape.beside_us = 450;
    // The device waits for launches: nothing shows what it begins after.
    cases[1] = {.stream = "kernels", .device_us = 450};
    cases[1].shape.kernel_us = 55;
    cases[1].shape.beside_us = 150;
    cases[2] = {.stream = "copies", .device_us = 900};
    cases[2].shape.input_us = 900;
    for (Expected& expected : cases) {
        CAPTURE(expected.shape.kernel_us);
        expected.shape.steps = 6;
        const Imported imported = imported_from(expected.shape);
        INFO(text_of(imported.import.findings));
        INFO(text_of(imported.replay));
        CHECK(imported.replay.error() == Approx(0).margin(0.01));
        const StepAccount& traced_account = imported.import.summary.account;
        CHECK(traced_account.others > Duration{0});
        CHECK(to_us(imported.replay.simulated.account.others) ==
              Approx(to_us(traced_account.others)).margin(20));
        std::vector<Json> beside;
        std::vector<Json> after;
        for (const Json& operation : imported.import.scenario["workload"]["forward_operations"]) {
            if (operation.contains("stream")) {
                beside.push_back(operation);
            } else if (operation.contains("after")) {
                after.push_back(operation["after"]);
            }
        }
        REQUIRE(beside.size() == 1);
        CHECK(beside[0]["stream"] == expected.stream);
        CHECK(beside[0]["device_us"].get<double>() == Approx(expected.device_us).margin(1));
        CHECK(beside[0].contains("after") == expected.after_compute);
        CHECK(after == std::vector<Json>{Json::array({expected.stream})});
    }
}

TEST_CASE("other collectives of parallel training are told from the gradients'", "[kineto]") {
    const std::vector<std::int64_t> buckets{1'204'000, 802'000};
    SECTION("all-reduces of tensor parallel layers, on a stream of their own") {
        const TraceImport imported = import_of({.tensor_parallel = true, .layer_us = 30});
        CHECK(bytes_of(imported) == buckets);
        // One for each of 4 gradients, of 5 million floats; in forward one for each of 4 kernels.
        CHECK(text_of(imported, FindingKind::found, "parallel layers")
                  .find("4 all-reduces a step of 80000000 bytes in all over 2 ranks in backward") ==
              0);
        CHECK(says(imported, FindingKind::missing, "other collectives",
                   "4 x allreduce in forward of 20000000 bytes"));
    }
    SECTION("reduce-scatters of sequence parallel layers are no sharded gradients") {
        CHECK(bytes_of(import_of({.tensor_parallel = true,
                                  .layer_collective = "_reduce_scatter_base"})) == buckets);
    }
    SECTION("stages of a pipeline send and receive") {
        const TraceImport imported = import_of({.transfer_us = 200});
        CHECK(bytes_of(imported) == buckets);
        // Before and after each pass: 4 of 100,000 floats.
        CHECK(text_of(imported, FindingKind::found, "pipeline")
                  .find("4 transfers a step of 1600000 bytes in all over 2 ranks (send, recv)") ==
              0);
    }
}

TEST_CASE("what compiling, CUDA graphs and batched copies hide of single gradients is said",
          "[kineto]") {
    TraceShape shape;
    const std::vector<std::int64_t> buckets{1'204'000, 802'000};
    SECTION("compiled pieces: all gradients of one become ready at its end") {
        shape.compiled_pieces = 2;
        const TraceImport imported = import_of(shape);
        CHECK(bytes_of(imported) == buckets);
        CHECK(says(imported, FindingKind::found, "compiled", "backward is 2 compiled pieces"));
        CHECK(says(imported, FindingKind::assumed, "compiled", "DDPOptimizer"));
        // Two kernels of a piece before the first gradient, and none before the second.
        std::size_t kernels = 0;
        std::vector<std::size_t> before;
        for (const Json& operation : imported.scenario["workload"]["backward_operations"]) {
            if (operation.contains("ready")) {
                before.push_back(kernels);
            }
            kernels += operation["device_us"] == shape.kernel_us ? 1U : 0U;
        }
        CHECK(before == std::vector<std::size_t>{2, 2, 4, 4});
        CHECK(replay(imported, scenario_of(imported, 100)).error() == Approx(0).margin(0.02));
    }
    SECTION("a CUDA graph: one launch of many kernels") {
        const TraceImport imported = import_of({.graph_kernels = 50});
        CHECK(text_of(imported, FindingKind::found, "CUDA graph")
                  .find("50 kernels of 1 graph launch a step") == 0);
        // All but the first are launched together with it.
        std::size_t without_host = 0;
        for (const Json& operation : imported.scenario["workload"]["forward_operations"]) {
            without_host += operation["host_us"] == 0 ? 1U : 0U;
        }
        CHECK(without_host == 49);
        CHECK(replay(imported, scenario_of(imported, 100)).error() == Approx(0).margin(0.02));
    }
    SECTION("a step in a CUDA graph") {
        shape.graph_kernels = 50;
        shape.accumulates = false;
        CHECK(refusal_of(SyntheticTrace(shape).document().dump()) ==
              "trace.json: /traceEvents: expected a training step, got 3 steps in which no "
              "gradient became ready: CUDA graphs hold it (cudaGraphLaunch), within which the host "
              "does nothing; trace the same loop without them");
    }
    SECTION("matrix products in FP8, whose scales another group reduces") {
        const TraceImport imported = import_of({.other_group = true, .fp8 = true});
        CHECK(bytes_of(imported) == buckets);
        CHECK(says(imported, FindingKind::found, "FP8", "amax"));
    }
    SECTION("batched copies, of all gradients of a bucket") {
        const TraceImport imported =
            import_of({.accumulated_shapes = true, .batched_copies = true});
        CHECK(imported.scenario["workload"]["gradients"].size() == 4);
        CHECK(bytes_of(imported) == buckets);
        CHECK(imported.scenario["sync"]["fused_copies"] == true);
        CHECK_FALSE(imported.scenario["sync"].contains("views"));
        // 2 buckets: a copy of 4 us in and one back, for all 501,500 floats in and out.
        CHECK(imported.scenario["workload"]["copy_gb_per_s"].get<double>() ==
              Approx(2 * 4 * 501'500 / (2 * 2 * 4.0) / 1e3).epsilon(0.01));
        const Replay replayed = replay(imported, scenario_of(imported, 100));
        CHECK(replayed.same_buckets);
        CHECK(replayed.error() == Approx(0).margin(0.02));
    }
}

// The compute stream waits for work of other streams, in the order of their events.
TEST_CASE("computing that waits for other collectives replays", "[kineto]") {
    TraceShape shape;
    shape.host_us = 6;
    shape.kernel_us = 400;
    SECTION("of tensor parallel layers") {
        shape.tensor_parallel = true;
        shape.layer_us = 300;
    }
    SECTION("of a pipeline") {
        shape.transfer_us = 1000;
    }
    const TraceImport imported = import_of(shape);
    const Replay replayed = replay(imported, scenario_of(imported, 100));
    CHECK(replayed.same_buckets);
    CHECK(replayed.error() == Approx(0).margin(0.02));
}

TEST_CASE("sharded gradients are refused, with what was seen of them", "[kineto]") {
    TraceShape shape;
    shape.scatters = true;
    const std::string expected =
        "trace.json: /traceEvents: expected all-reduces of whole gradients "
        "(DistributedDataParallel), or PyTorch's fully_shard (FSDP2), got ";
    // 4 · (1000 + 300000 + 200000 + 500); each of two ranks keeps half.
    const std::string scatters = "2 reduce-scatters a step of 2006000 bytes in all over 2 ranks";
    const std::string reduces = ", and 2 all-reduces a step of 1003000 bytes in all over 2 ranks";
    const std::string end =
        "; of sharded runs only FSDP2's are read, by its annotations (FSDP::...)";
    CHECK(refusal_of({traced(shape)}) ==
          expected + "FSDP, ZeRO or a distributed optimizer: " + scatters + end);
    shape.sharding = "FSDP::pre_forward (layers.0)";
    CHECK(refusal_of({traced(shape)}) == expected + "FSDP2: " + scatters + end);
    shape.replicas = true;
    CHECK(refusal_of({traced(shape)}) ==
          expected + "HSDP (FSDP2 with a hybrid mesh): " + scatters + reduces + " of shards" + end);
    shape.sharding = "FullyShardedDataParallel.forward";
    CHECK(refusal_of({traced(shape)}) ==
          expected + "HSDP (FSDP1 with a hybrid mesh): " + scatters + reduces + " of shards" + end);
    shape.sharding.clear();
    CHECK(refusal_of({traced(shape)}) ==
          expected + "HSDP, or ZeRO in groups: " + scatters + reduces + " of shards" + end);
    // The mark of DeepSpeed's module hooks in backward.
    shape.replicas = false;
    std::string text = SyntheticTrace(shape).document().dump();
    const std::string node = "LossBackward0";
    for (std::size_t at = text.find(node); at != std::string::npos; at = text.find(node, at)) {
        text.replace(at, node.size(), "PreBackwardFunctionForModuleBackward");
    }
    CHECK(refusal_of(text) == expected + "DeepSpeed's ZeRO-3: " + scatters + end);
}

TEST_CASE("the caps are those that form the buckets that were seen", "[kineto]") {
    // 4 MB each: one cap for all.
    const std::vector<std::int64_t> even(6, 1'000'000);
    TraceShape shape;
    shape.gradients = even;
    SECTION("the default: 1 MiB closes at one, 25 MiB holds the rest") {
        shape.bucket_ends = {1, 6};
        CHECK(import_of(shape).scenario["sync"] ==
              Json({{"strategy", "ddp"}, {"broadcast_buffers", false}}));
    }
    SECTION("one cap") {
        shape.bucket_ends = {2, 4, 6};
        // Above 4,000,000 bytes, at most 8,000,000: 3.9 to 7.6 MiB.
        CHECK(import_of(shape).scenario["sync"]["bucket_cap_mib"] == 5);
    }
    SECTION("a first bucket of 1 MiB and a cap") {
        shape.bucket_ends = {1, 3, 5, 6};
        const Json sync = import_of(shape).scenario["sync"];
        CHECK(sync["bucket_cap_mib"] == 5);
        CHECK(sync["pytorch_version"] == "1.13");
    }
    SECTION("a list") {
        shape.bucket_ends = {3, 4, 6};
        CHECK(import_of(shape).scenario["sync"]["bucket_cap_mib_list"].size() == 3);
    }
    const TraceImport imported = import_of(shape);
    const Replay replayed = replay(imported, scenario_of(imported, 100));
    CHECK(replayed.same_buckets);
}

TEST_CASE("where nothing tells the number of ranks, two are assumed, and --ranks says it",
          "[kineto]") {
    TraceShape shape;
    shape.distributed_info = shape.collective_args = false;
    shape.list_shapes = true;  // the all-reduces' sizes, without their groups'
    const TraceImport imported = import_of(shape);
    CHECK(imported.ranks == 2);
    CHECK(text_of(imported, FindingKind::assumed, "ranks").find("2, as nothing tells") == 0);
    CHECK(import_of(shape, {.ranks = 8}).ranks == 8);
}

TEST_CASE("with all ranks' traces, waiting is told from the wire", "[kineto]") {
    TraceShape early;
    TraceShape late;
    late.rank = 1;
    late.arrives_us = 60;
    late.clock_us = 12345;
    const std::vector<TracedRank> ranks{traced(early, "0.json"), traced(late, "1.json")};
    const TraceImport imported = import_trace(ranks, {});
    for (const TypicalCollective& all_reduce : imported.all_reduces) {
        // 100 us on the rank that waits, 40 us on the one that comes 60 us later, in 3 steps.
        REQUIRE(all_reduce.wire_us.size() == 3);
        CHECK(all_reduce.wire_us[0] == Approx(40));
    }
    CHECK(says(imported, FindingKind::found, "arrival", "comes 0.060, 0.060 ms before the last"));
    CHECK_FALSE(imported.scenario.contains("variation"));  // as late in every step
    CHECK(says(imported, FindingKind::found, "ranks", "1.json, for which the others wait"));
    CHECK(contains(refusal_of({ranks[0], ranks[0]}), "another rank than that of 0.json, got 0"));
    TraceShape stranger = late;
    stranger.bucket_ends = {3, 4};
    CHECK(refusal_of({ranks[0], traced(stranger, "other.json")}) ==
          "other.json: /traceEvents: expected the all-reduces of one run: of 301000, 200500 "
          "elements, as in "
          "0.json, got 501000, 500");
    TraceShape other = late;
    other.ranks = 4;
    CHECK(refusal_of({ranks[0], traced(other, "4.json")}) ==
          "4.json: /distributedInfo/world_size: expected 2, as in 0.json, got 4");
}

// Two ranks' traces, whose all-reduces begin and end at these microseconds in every step.
using TimesUs = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::vector<TypicalCollective> all_reduces_at(const TimesUs& first, const TimesUs& second) {
    std::vector<TracedRank> ranks;
    for (const TimesUs* times : {&first, &second}) {
        ranks.push_back(traced({.rank = std::ssize(ranks), .device = false},
                               fmt::format("{}.json", ranks.size())));
        for (TracedStep& step : ranks.back().steps) {
            REQUIRE(step.collectives.size() == times->size());
            for (std::size_t k = 0; k < times->size(); ++k) {
                step.collectives[k].begin = std::chrono::microseconds{(*times)[k].first};
                step.collectives[k].end = std::chrono::microseconds{(*times)[k].second};
            }
        }
    }
    return import_trace(ranks, {}).all_reduces;
}

TEST_CASE("all-reduces that run side by side have the wire for a part of their time", "[trace]") {
    const TimesUs times{{1000, 3000}, {2000, 4000}};
    for (const TypicalCollective& all_reduce : all_reduces_at(times, times)) {
        CHECK(all_reduce.wire_us.at(0) == Approx(1500));  // a millisecond alone, half of another
    }
}

TEST_CASE("no rank comes late to an all-reduce that begins as another ends", "[trace]") {
    const auto second_us = [](std::int64_t begin) {
        return all_reduces_at({{1000, 2000}, {begin, begin + 300}},
                              {{1000, 2000}, {begin, begin + 100}})
            .at(1)
            .wire_us.at(0);
    };
    CHECK(second_us(2000) == Approx(200));  // the ranks' mean
    CHECK(second_us(3000) == Approx(100));  // the last rank sees the wire alone
}

TEST_CASE("where only a host computes, its times are the operations'", "[kineto]") {
    const TraceImport imported = import_of({.device = false});
    CHECK(imported.scenario["workload"]["host_is_device"] == true);
    CHECK(bytes_of(imported) == std::vector<std::int64_t>{1'204'000, 802'000});
    double backward_us = 0;
    for (const Json& operation : imported.scenario["workload"]["backward_operations"]) {
        CHECK(operation["host_us"] == 0);
        backward_us += operation["device_us"].get<double>();
    }
    // Four times: 50 us until the node, and 5 us until AccumulateGrad ends; but for the first,
    // from the end of the copy or all-reduce before on.
    CHECK(backward_us == Approx(4 * 55).margin(25));
    CHECK(imported.all_reduces[0].wire_us == std::vector<double>{100});
}

TEST_CASE("an accelerator whose kernels are not read is named", "[kineto]") {
    Json document = SyntheticTrace({.device = false}).document();
    document["traceEvents"].push_back({{"ph", "X"},
                                       {"cat", "mtia_ccp_events"},
                                       {"name", "kernel"},
                                       {"pid", 0},
                                       {"tid", 7},
                                       {"ts", 1},
                                       {"dur", 1}});
    const TraceImport imported = import_trace({rank_of_text(document.dump())}, {});
    CHECK(says(imported, FindingKind::missing, "device", "an accelerator, mtia, whose kernels"));
}

TEST_CASE("what is no step of data-parallel training is refused by name", "[kineto]") {
    for (const char* text : {"", "{}"}) {
        CHECK(refusal_of(text) ==
              "trace.json: expected a trace: an object with traceEvents, or a list, got neither");
    }
    CHECK(refusal_of("7") == "trace.json: expected JSON objects, got something else at byte 0");
    CHECK(refusal_of("[]") ==
          "trace.json: /traceEvents: expected a training step, got 0 events, "
          "none of them of PyTorch's profiler");
    const std::string whole = SyntheticTrace({}).document().dump();
    for (std::size_t cut = 0; cut < 600; ++cut) {  // within texts, numbers and between
        CHECK(refusal_of(whole.substr(0, whole.size() / 2 + cut)).find("as if it was cut off") !=
              std::string::npos);
    }
    CHECK(contains(refusal_of(whole.substr(0, 500) + "}" + whole.substr(500)), "something else"));
    TraceShape shape;
    SECTION("no steps") {
        shape.profiler_steps = shape.optimizer_annotations = false;
        CHECK(contains(refusal_of({SyntheticTrace(shape).document().dump()}),
                       "no ProfilerStep and fewer than two Optimizer.step"));
    }
    SECTION("inference") {
        shape.gradients = {};
        CHECK(contains(refusal_of({SyntheticTrace(shape).document().dump()}),
                       "3 steps in which no gradient became ready"));
    }
    SECTION("a profile without the host's operations") {
        shape.accumulates = false;
        CHECK(contains(refusal_of({SyntheticTrace(shape).document().dump()}),
                       "collectives and an optimizer are there, but no AccumulateGrad; record the "
                       "host's operations, too (profile(activities=[ProfilerActivity.CPU, "));
    }
    SECTION("sizes that nothing tells") {
        shape.shapes = shape.copies_back = false;
        shape.collective_args = false;
        CHECK(
            contains(refusal_of({traced(shape)}),
                     "expected DDP's copies out of its buckets, --model, or shapes, which "
                     "profile(record_shapes=True, activities=[ProfilerActivity.CPU, "
                     "ProfilerActivity.CUDA]) records, got 4 gradients whose sizes nothing tells"));
    }
    SECTION("another number of ranks") {
        TraceImportRequest request;
        request.ranks = 3;
        CHECK(contains(refusal_of({traced(shape)}, request),
                       "--ranks: expected 2, as the trace says"));
    }
    SECTION("another model") {
        TraceImportRequest request;
        request.model.gradients = {{"a", 500}, {"b", 200'000}, {"c", 300'001}, {"d", 1000}};
        request.model.readiness = {3, 2, 1, 0};
        CHECK(refusal_of({traced(shape)}, request) ==
              "trace.json: /traceEvents: expected 300001 elements of c as gradient 2 by "
              "readiness, "
              "got 300000");
        request.model.gradients[2].numel = 300'000;
        const Json gradients = import_of(shape, request).scenario["workload"]["gradients"];
        CHECK(gradients[2]["name"] == "c");
        request.model.readiness.pop_back();
        request.model.gradients.pop_back();
        CHECK(contains(refusal_of({traced(shape)}, request), "the model's 3 gradients, got 4"));
    }
}

TEST_CASE("what is made to fill memory is refused in bounded memory", "[kineto]") {
    SECTION("a million arrays in one another") {
        CHECK(refusal_of("[{\"a\": " + std::string(1'000'000, '[')) ==
              "trace.json: expected JSON objects, got a file that ends after byte 1000007, as if "
              "it was cut off");
        CHECK(refusal_of("[{\"a\": " + std::string(1'000'000, '[') + std::string(1'000'000, ']') +
                         "}]") == "trace.json: expected nesting of at most 100, got a deeper one");
    }
    SECTION("a name without an end") {
        std::int64_t left = std::int64_t{1} << 40;
        const ByteSource endless = [&, first = true](char* buffer, std::size_t size) mutable {
            std::fill_n(buffer, size, 'a');
            buffer[0] = first ? '"' : 'a';
            first = false;
            left -= static_cast<std::int64_t>(size);
            return size;
        };
        CHECK_THROWS_AS(read_kineto_trace(endless, "endless.json"), InputError);
        CHECK(left > (std::int64_t{1} << 40) - (std::int64_t{1} << 24));  // 16 MB were read
    }
}

namespace {

std::string compressed(const std::string& text) {
    z_stream stream{};
    REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
    std::string result(deflateBound(&stream, text.size()) + 64, '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(result.data());
    stream.avail_out = static_cast<uInt>(result.size());
    REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    result.resize(stream.total_out);
    deflateEnd(&stream);
    return result;
}

std::string all_of(const ByteSource& source) {
    std::string text;
    std::string block(1000, '\0');
    while (const std::size_t count = source(block.data(), block.size())) {
        text.append(block, 0, count);
    }
    return text;
}

std::string inflated_text(const std::string& bytes, std::size_t block = 7) {
    return all_of(inflated(text_source(bytes, block), "t.gz"));
}

}  // namespace

TEST_CASE("a compressed file reads as if it were not", "[inflate]") {
    const std::string text(100'000, 'x');
    const std::string packed = compressed(text);
    CHECK(inflated_text(packed) == text);
    CHECK(inflated_text(packed, 1) == text);
    CHECK(inflated_text(packed + compressed("more")) == text + "more");
    CHECK(inflated_text(packed + std::string(1000, '\0')) == text);
    CHECK(inflated_text("plain") == "plain");
    CHECK(inflated_text("\x1f") == "\x1f");
    CHECK(inflated_text("").empty());
    for (std::size_t block = 1; block < 5; ++block) {
        CHECK(inflated_text("\xef\xbb\xbfplain", block) == "plain");
        CHECK(inflated_text(compressed("\xef\xbb\xbfplain"), block) == "plain");
        CHECK(inflated_text("\xef\xbb", block) == "\xef\xbb");
    }
    CHECK_THROWS_WITH(inflated_text(packed.substr(0, packed.size() - 3)),
                      "t.gz: expected a whole gzip file, got one that ends after " +
                          std::to_string(packed.size() - 3) + " bytes");
    CHECK_THROWS_WITH(inflated_text("\x1f\x8b" + std::string(100, 'x')),
                      "t.gz: expected a whole gzip file, got damage at byte 4");
    CHECK_THROWS_WITH(inflated_text(packed + "rubbish"), Catch::Contains("got damage at byte"));
}

TEST_CASE("a decompression bomb is refused before it goes off", "[inflate]") {
    // 1 MiB of zeros takes a kilobyte; a thousand of them are a gigabyte.
    const std::string kilobyte = compressed(std::string(std::size_t{1} << 20, '\0'));
    std::string bomb;
    for (int i = 0; i < 1000; ++i) {
        bomb += kilobyte;
    }
    std::uint64_t unfolded = 0;
    const ByteSource source = inflated(text_source(bomb, 4096), "bomb.gz");
    std::string block(std::size_t{1} << 16, '\0');
    CHECK_THROWS_WITH(
        [&] {
            while (const std::size_t count = source(block.data(), block.size())) {
                unfolded += count;
            }
        }(),
        "bomb.gz: expected a file that unfolds to at most 200 times its size, got a "
        "decompression bomb");
    CHECK(unfolded < std::uint64_t{80} << 20);
}

namespace {

// A file of the folder beside the checkout, or of BUCKETWISE_SHARED_DIR; empty where there is none.
std::string shared_bytes(const std::string& name) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing else runs.
    const char* const folder = std::getenv("BUCKETWISE_SHARED_DIR");
    const std::filesystem::path file =
        (folder != nullptr ? std::filesystem::path(folder)
                           : std::filesystem::path(BUCKETWISE_SCENARIO_DIR) / "../../shared") /
        name;
    if (!std::filesystem::exists(file)) {
        WARN("skipped: there is no " << file);
        return {};
    }
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::string unpacked(const std::string& bytes) {
    const ByteSource source = inflated(text_source(bytes, 1 << 16), "test data");
    std::string text(1 << 16, '\0');
    std::string all;
    while (const std::size_t count = source(text.data(), text.size())) {
        all.append(text, 0, count);
    }
    return all;
}

// The regular files of a tar archive (POSIX ustar: a header of 512 bytes before each file, its size
// in octal digits from byte 124 on, its type at 156).
std::vector<std::string> files_of_tar(const std::string& tar) {
    constexpr std::size_t block = 512;
    std::vector<std::string> files;
    for (std::size_t at = 0; at + block <= tar.size() && tar[at] != '\0';) {
        const std::size_t size = std::stoul(tar.substr(at + 124, 11), nullptr, 8);
        if (tar[at + 156] == '0' || tar[at + 156] == '\0') {
            files.push_back(tar.substr(at + block, size));
        }
        at += block + (size + block - 1) / block * block;
    }
    return files;
}

}  // namespace

TEST_CASE("a real trace of ResNet-50 on two A100s is replayed within 2 %", "[kineto][shared]") {
    const std::string bytes = shared_bytes("traces/resnet50-2xa100.json.gz");
    if (bytes.empty()) {
        return;
    }
    const TracedRank rank = traced_rank(
        read_kineto_trace(inflated(text_source(bytes, 1 << 16), "resnet50"), "resnet50"));
    TraceImportRequest request;
    const TraceImport imported = import_trace({rank}, request);
    REQUIRE(rank.steps.size() == 3);
    CHECK(imported.scenario["workload"]["gradients"].size() == 161);
    CHECK(bytes_of(imported) ==
          std::vector<std::int64_t>{8'196'000, 31'502'336, 26'255'360, 26'550'272, 9'724'160});
    CHECK(imported.scenario["workload"]["buffers"] ==
          Json::array({{{"bytes", 212'480}, {"tensors", 106}}, {{"bytes", 424}, {"tensors", 53}}}));
    for (const TracedStep& step : rank.steps) {
        std::vector<std::size_t> ready;
        for (const TracedCollective& collective : step.collectives) {
            if (collective.in_backward) {
                ready.push_back(collective.ready_before);
            }
        }
        CHECK(ready == std::vector<std::size_t>{2, 17, 29, 80, 161});
    }
    CHECK(imported.scenario["sync"] == Json({{"strategy", "ddp"}}));
    CHECK(says(imported, FindingKind::found, "launching", "launch-bound"));
    // About 0.7 ms and 13 GB/s; what it takes matters little, as everything is hidden.
    const Replay replayed = replay(imported, scenario_of(imported, 2000));
    CHECK(replayed.same_buckets);
    CHECK(std::abs(replayed.error()) < 0.02);
    CHECK(to_ms(replayed.largest_difference()) < 3);
}

TEST_CASE("a real trace of a host that runs a whole step ahead is replayed within 2 %",
          "[kineto][shared]") {
    const std::string bytes =
        shared_bytes("gpu/traces/v100x1_ddp_world1_hta_ns_resolution.pt.trace.json.gz");
    if (bytes.empty()) {
        return;
    }
    const TraceImport imported = import_trace({rank_of_text(unpacked(bytes))}, {.ranks = 1});
    const Replay replayed = replay(imported, scenario_of(imported, 1));
    CHECK(std::abs(replayed.error()) < 0.02);
    CHECK(imported.summary.account.launching < imported.summary.step / 100);
    // The launch queue is full most of the time; the first traced step took the host 35 ms, as its
    // queue was empty.
    Duration host{0};
    const StepInput input = step_input(scenario_of(imported, 1));
    for (const auto* pass : {&input.workload.forward, &input.workload.backward}) {
        for (const TimedOperation& operation : *pass) {
            host += operation.host;
        }
    }
    CHECK(to_ms(host) < 35);
}

// Most of such a step is waiting for all-to-alls, on the host and on the device.
TEST_CASE("real traces of eight ranks of DLRM are replayed within 2 %", "[kineto][shared]") {
    const std::string bytes =
        shared_bytes("gpu/traces/v100x8_dlrm_8ranks_param_dlrm_kineto.tar.gz");
    if (bytes.empty()) {
        return;
    }
    std::vector<TracedRank> ranks;
    for (const std::string& file : files_of_tar(unpacked(bytes))) {
        ranks.push_back(rank_of_text(file, fmt::format("rank {}", ranks.size())));
        const TraceImport one = import_trace({ranks.back()}, {});
        CHECK(std::abs(replay(one, scenario_of(one, 50)).error()) < 0.02);
    }
    REQUIRE(ranks.size() == 8);
    const TraceImport imported = import_trace(ranks, {});
    CHECK(bytes_of(imported) == std::vector<std::int64_t>{1'576'964, 448, 907'840});
    CHECK(text_of(imported, FindingKind::found, "arrival").find("the first of 8 ranks") == 0);
    CHECK(says(imported, FindingKind::assumed, "stalls", "SendRecv"));
    const Replay replayed = replay(imported, scenario_of(imported, 50));
    CHECK(std::abs(replayed.error()) < 0.02);
    CHECK(replayed.same_buckets);  // of two modules, one of them a single gradient
}

}  // namespace bucketwise
