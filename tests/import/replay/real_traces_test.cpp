// Traces of real training steps, one of each form of data-parallel training: imported as what they
// are, or refused by name. tests/data/traces/make_traces.py made them, on a CPU over Gloo.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "import/kineto/kineto_trace.h"
#include "import/replay/replay.h"
#include "import/replay/trace_import.h"
#include "sim/base/error.h"
#include "sim/base/statistics.h"
#include "sim/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/import/replay/imported_trace.h"
#include "tests/import/replay/stored_trace.h"
#include "tests/import/source/text_source.h"

namespace bucketwise {
namespace {

using Numbers = std::vector<std::int64_t>;

TracedRank real_rank(const std::string& name) {
    return traced_rank(read_kineto_trace(stored_trace("traces/" + name), name));
}

Numbers gradients_of(const TraceImport& imported) {
    Numbers gradients;
    for (const Json& gradient : imported.scenario["workload"]["gradients"]) {
        gradients.push_back(gradient["numel"].get<std::int64_t>());
    }
    std::reverse(gradients.begin(), gradients.end());
    return gradients;
}

Numbers buckets_of(const TraceImport& imported) {
    Numbers buckets;
    for (const TypicalCollective& all_reduce : imported.all_reduces) {
        buckets.push_back(all_reduce.bytes.count);
    }
    return buckets;
}

// The ranks that share the gradients: pairs of four ranks do, but a trace over Gloo does not say
// so, and PyTorch without Kineto tells no ranks.
TraceImportRequest request_for(const TracedRank& rank) {
    TraceImportRequest request;
    if (rank.world_size.value_or(4) == 4) {
        request.ranks = 2;
    }
    return request;
}

// On which an all-reduce takes what it took in the trace, on average by size: over two ranks a ring
// has two steps.
Json link_as_traced(const TraceImport& imported) {
    std::map<std::int64_t, std::vector<double>> by_size;
    for (const TypicalCollective& all_reduce : imported.all_reduces) {
        REQUIRE(all_reduce.wire_us.size() == 1);
        by_size[all_reduce.bytes.count].push_back(all_reduce.wire_us.front());
    }
    Json segments = Json::array();
    for (const auto& [bytes, times] : by_size) {
        double sum = 0;
        for (const double time : times) {
            sum += time;
        }
        segments.push_back({{"up_to_bytes", bytes},
                            {"latency_us", sum / static_cast<double>(times.size()) / 2},
                            {"bandwidth_gb_per_s", 1e6}});
    }
    segments.back().erase("up_to_bytes");
    return {{"name", "as traced"}, {"algorithm", "ring"}, {"segments", segments}};
}

// By how much the replay of one step is off, with the times that this step's all-reduces took.
double replay_error(TracedRank rank, const TracedStep& step) {
    rank.steps = {step};
    const TraceImport imported = import_trace({rank}, request_for(rank));
    Json document = imported.scenario;
    document["cluster"]["link"] = link_as_traced(imported);
    const Scenario scenario = parse_scenario(document, "imported", no_file);
    const Replay replayed = replay(imported, scenario);
    CHECK(replayed.same_buckets);
    return std::abs(replayed.error());
}

struct RealTrace {
    std::string name;
    Numbers gradients;  // elements, by readiness
    Numbers buckets;    // bytes, as issued
    std::string sync;   // without broadcast_buffers
    std::vector<std::string> says = {};
    double tolerance = 0.1;  // of the replay, the median of three steps; 0: it is not looked at
};

// Layers of 512 hold a weight of 512² = 262,144 elements, exactly 1 MiB, and a bias of 512. The
// last layer's gradients come first; of each layer the bias, whose gradient is a sum, before the
// weight, which has to be transposed.
const Numbers three_layers{512, 262144, 512, 262144, 512, 262144};
// 65,536 and 256.
const Numbers three_small{256, 65536, 256, 65536, 256, 65536};
const Numbers four_small{256, 65536, 256, 65536, 256, 65536, 256, 65536};
// The first bucket closes at 1 MiB = 1,048,576 bytes: 4 · (512 + 262,144). The others hold 25 MiB.
const Numbers default_buckets{1'050'624, 2'101'248};
// With a cap of 1 MiB each layer is one.
const Numbers by_layer{1'050'624, 1'050'624, 1'050'624};
// 4 · (256 + 65,536).
const Numbers by_small_layer{263'168, 263'168, 263'168};
const std::string plain = R"({"strategy":"ddp"})";
const std::string one_mib = R"({"bucket_cap_mib":1.0,"strategy":"ddp"})";
const std::string half_mib = R"({"bucket_cap_mib":0.5,"strategy":"ddp"})";
const std::string quarter_mib = R"({"bucket_cap_mib":0.25,"strategy":"ddp"})";

std::vector<RealTrace> imported_traces() {
    return {
        {"ddp", three_layers, default_buckets, plain, {"sizes from the shapes of DDP's copies"}},
        {"ddp_views",
         three_layers,
         default_buckets,
         R"({"strategy":"ddp","views":true})",
         {"nothing is copied out of buckets"}},
        // Micro-steps that do not synchronise take less than the last, which stands for all.
        {"ddp_accumulation", three_layers, default_buckets, plain, {"3 forwards a step"}, 0},
        // A hook's casts run on Gloo's threads. Half of the bytes travel.
        {"ddp_bf16_hook",
         three_layers,
         {525'312, 1'050'624},
         R"({"comm_hook":"bf16","strategy":"ddp"})",
         {"gradients travel as bfloat16"},
         0},
        {"ddp_fp16_hook",
         three_layers,
         {525'312, 1'050'624},
         R"({"comm_hook":"fp16","strategy":"ddp"})",
         {"gradients travel as float16"},
         0},
        {"ddp_static_graph", three_layers, by_layer, one_mib},
        // Buckets stay those of parameter order: closing from the first parameter on, weight
        // 262,144 · 4 is 1 MiB by itself; then bias and weight; and last, and so launched first, a
        // bias.
        {"ddp_none_unused",
         three_layers,
         {2048, 1'050'624, 1'050'624, 1'048'576},
         R"({"bucket_cap_mib":1.0,"find_unused_parameters":true,"strategy":"ddp"})",
         {"find_unused_parameters"}},
        // The same with small layers; the one in the middle is unused. Its bias is in a bucket with
        // the last weight, its weight with the first bias: 65,536 + 256 twice. Buckets of one size
        // take very different times here.
        {"ddp_unused",
         {256, 65792, 65792, 65536},
         {1024, 263'168, 263'168, 262'144},
         R"({"bucket_cap_mib":0.25,"find_unused_parameters":true,"strategy":"ddp"})",
         {"65792 elements of the buckets are of parameters without a gradient"},
         0},
        {"ddp_checkpoint", three_layers, default_buckets, plain},
        {"ddp_checkpoint_reentrant", three_layers, default_buckets, plain},
        // Weights are cast before they are multiplied: their gradients come before the biases'. The
        // first weight is a bucket: 1 MiB.
        {"ddp_autocast", {262144, 512, 262144, 512, 262144, 512}, {1'048'576, 2'103'296}, plain},
        {"ddp_scaler_clip", {262144, 512, 262144, 512, 262144, 512}, {1'048'576, 2'103'296}, plain},
        // Two of Linear(256, 256), BatchNorm1d(256): weight and bias of 256 each; all in one. Their
        // buffers: mean and variance of 256, twice, and two counts.
        {"ddp_buffers",
         {256, 256, 256, 65536, 256, 256, 256, 65536},
         {530'432},
         plain,
         {"a broadcast of 1024 Float (4096 bytes)", "a broadcast of 2 Long (16 bytes)"}},
        {"ddp_batched_copy",
         three_layers,
         default_buckets,
         R"({"fused_copies":true,"strategy":"ddp"})",
         {"batched_grad_copy"},
         0.15},  // its steps take 4 to 14 ms, and two all-reduces wait side by side
        // Cut into two pieces, of two layers and of one; within each weights come as they are done.
        {"ddp_compiled",
         {262144, 512, 262144, 262144, 512, 512},
         {3'151'872},
         R"({"bucket_cap_mib":25.0,"strategy":"ddp"})",
         {"backward is 2 compiled pieces", "DDPOptimizer cuts the graph"}},
        // A cap of 2 MiB is two weights and a bias at least: 4 · (2 · 262,144 + 512), then one bias
        // more, and a bias is left.
        {"ddp_compiled_graphs",
         {262144, 512, 262144, 512, 512, 262144, 262144, 512},
         {2'099'200, 2'101'248, 2048},
         R"({"bucket_cap_mib":2.0,"strategy":"ddp"})",
         {"backward is 3 compiled pieces"}},
        {"ddp_two_modules",
         {512, 262144, 512, 262144, 512, 262144, 512, 262144},
         {1'050'624, 1'050'624, 1'050'624, 1'050'624},
         one_mib},
        {"ddp_nested", {512, 262144, 512, 262144}, {1'050'624, 1'050'624}, plain},
        // Each rank has half of 256 · 512 elements of every weight, and of the first bias; two
        // layers, a bucket each: 4 · (2 · 65,536 + 512).
        {"ddp_tensor_parallel",
         four_small,
         {526'336, 526'336},
         half_mib,
         {"1 all-reduce a step in backward are issued by no gradient's hook"}},
        {"ddp_pipeline",
         {256, 65536, 256, 65536},
         {526'336},
         plain,
         {"2 transfers a step (send, recv): stages of a pipeline"}},
        // All buckets of 0.3 MiB hold two layers. Each of 8 parameters is sent to all ranks.
        {"ddp_zero_redundancy",
         four_small,
         {526'336, 526'336},
         half_mib,
         {"8 broadcast or all-gathers a step after backward, as ZeroRedundancyOptimizer"}},
        {"replicate", three_layers, default_buckets, plain},
        // One for each module that is wrapped.
        {"replicate_by_fsdp",
         three_small,
         by_small_layer,
         quarter_mib,
         {"FSDP2 that shards nothing"}},
        {"hsdp_2x1", three_small, by_small_layer, quarter_mib, {"FSDP2 that shards nothing"}, 0.15},
        // Weight and bias of a layer are one flat parameter.
        {"fsdp1_no_shard",
         {65792, 65792, 65792},
         by_small_layer,
         R"({"bucket_cap_mib":0.25,"strategy":"ddp","views":true})",
         {"FSDP1 that shards nothing"}},
        {"per_parameter_hooks",
         three_small,
         {1024, 262'144, 1024, 262'144, 1024, 262'144},
         R"({"strategy":"overlap"})",
         {"for each gradient as it becomes ready", "when 1, 2, 3, 4, 5, 6 gradients were ready"}},
        {"bucketed_hooks",
         three_small,
         by_small_layer,
         quarter_mib,
         {"when 2, 4, 6 gradients were ready"}},
        {"coalesced_hooks",
         four_small,
         {526'336, 526'336},
         half_mib,
         {"when 4, 8 gradients were ready"}},
        // In the order of parameters, the weight first.
        {"naive_after_backward",
         three_small,
         {262'144, 1024, 262'144, 1024, 262'144, 1024},
         R"({"strategy":"naive"})",
         {"for each gradient after backward"}},
        // No event tells the time of flattening.
        {"flat_after_backward",
         three_small,
         {789'504},
         R"({"strategy":"flat"})",
         {"of everything after backward"},
         0},
    };
}

}  // namespace

TEST_CASE("every form of data-parallel training that reduces whole gradients is imported",
          "[kineto]") {
    for (const RealTrace& expected : imported_traces()) {
        DYNAMIC_SECTION(expected.name) {
            const TracedRank rank = real_rank(expected.name);
            REQUIRE(rank.steps.size() == 3);
            const TraceImport imported = import_trace({rank}, request_for(rank));
            CHECK(gradients_of(imported) == expected.gradients);
            CHECK(buckets_of(imported) == expected.buckets);
            Json sync = imported.scenario["sync"];
            sync.erase("broadcast_buffers");
            CHECK(sync.dump() == Json::parse(expected.sync).dump());
            CHECK(imported.scenario["step"].value("accumulation", 1) ==
                  (expected.name == "ddp_accumulation" ? 3 : 1));
            CHECK(imported.scenario["workload"].contains("buffers") ==
                  (expected.name == "ddp_buffers"));
            for (const std::string& text : expected.says) {
                CHECK_THAT(findings_of(imported), Catch::Contains(text));
            }
            std::vector<double> errors;
            for (const TracedStep& step : rank.steps) {
                errors.push_back(replay_error(rank, step));
            }
            if (expected.tolerance > 0) {
                CHECK(median(errors) < expected.tolerance);
            }
        }
    }
}

TEST_CASE("what is not simulated, and what nothing tells, is refused by its name", "[kineto]") {
    const std::string whole =
        ": /traceEvents: expected all-reduces of whole gradients (DistributedDataParallel), or "
        "PyTorch's fully_shard (FSDP2), got ";
    const std::string sizes =
        ": /traceEvents: expected DDP's copies out of its buckets, --model, or shapes, which "
        "profile(record_shapes=True, activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) "
        "records, got 6 gradients whose sizes nothing tells";
    const std::string end =
        "; of sharded runs only FSDP2's are read, by its annotations (FSDP::...)";
    // Three layers, each wrapped: three reduce-scatters, and where there are replicas, as many
    // all-reduces of what they leave.
    const std::vector<std::pair<std::string, std::string>> refusals{
        {"fsdp1", whole + "FSDP1: 3 reduce-scatters a step" + end},
        {"fsdp1_grad_op", whole + "FSDP1: 3 reduce-scatters a step" + end},
        {"fsdp1_hybrid", whole +
                             "HSDP (FSDP1 with a hybrid mesh): 3 reduce-scatters a step, and 3 "
                             "all-reduces a step of shards" +
                             end},
        // Biases are too small to be compressed, and go by themselves: 3 · 512.
        {"ddp_power_sgd",
         ": /traceEvents: expected all-reduces of gradients as they are, or cast to 16 bits by a "
         "hook, got 1536 elements for gradients of 787968: a communication hook that compresses "
         "(PowerSGD), which is not simulated"},
        {"ddp_compiled_reducer",
         ": /traceEvents: expected a training step, got 3 steps in which no gradient became ready: "
         "torch.compile holds all of it (compiled autograd, or DDP's Python reducer); trace the "
         "same loop with DDPOptimizer, or uncompiled"},
        {"ddp_no_shapes", sizes},
        {"ddp_views_no_shapes", sizes},
        {"per_parameter_hooks_no_shapes", sizes},
        {"ddp_torch_1_13", sizes}};
    for (const auto& [name, sentence] : refusals) {
        DYNAMIC_SECTION(name) {
            const auto import = [&, name = name] {
                const TracedRank rank = real_rank(name);
                import_trace({rank}, request_for(rank));
            };
            CHECK_THROWS_WITH(import(), name + sentence);
        }
    }
}

TEST_CASE("a model tells the sizes that a trace without shapes does not have", "[kineto]") {
    const std::string name = GENERATE("ddp_no_shapes", "ddp_views_no_shapes", "ddp_torch_1_13");
    const TracedRank rank = real_rank(name);
    TraceImportRequest request = request_for(rank);
    for (const char* const layer : {"0", "1", "2"}) {
        request.model.gradients.push_back({layer + std::string(".weight"), 262144});
        request.model.gradients.push_back({layer + std::string(".bias"), 512});
    }
    request.model.readiness = {5, 4, 3, 2, 1, 0};
    const TraceImport imported = import_trace({rank}, request);
    CHECK(imported.scenario["workload"]["gradients"][0]["name"] == "0.weight");
    CHECK(buckets_of(imported) == default_buckets);
}

// A layer's forward runs again before its bias' gradient is ready, and its weight's follows.
TEST_CASE("what checkpointed layers compute again is told from their backward", "[kineto]") {
    const std::string name = GENERATE("ddp_checkpoint", "ddp_checkpoint_reentrant");
    const TracedRank rank = real_rank(name);
    const TraceImport imported = import_trace({rank}, request_for(rank));
    std::size_t ready = 0;
    for (const Json& operation : imported.scenario["workload"]["backward_operations"]) {
        const double share = operation.value("recomputed", 0.0);
        CAPTURE(operation.dump());
        if (!operation.contains("ready")) {
            CHECK(share == 0);
        } else if (ready++ % 2 == 0) {
            CHECK(share > 0.2);
            CHECK(share < 0.8);
        } else {
            CHECK(share == 0);
        }
    }
    CHECK(ready == 6);
    const TracedRank kept = real_rank("ddp");
    CHECK(import_trace({kept}, request_for(kept)).scenario.dump().find("recomputed") ==
          std::string::npos);
}

TEST_CASE("all-reduces of single gradients tell their sizes", "[kineto]") {
    const std::string name = GENERATE("naive_after_backward", "per_parameter_hooks");
    std::string text;
    std::string block(1 << 16, '\0');
    const ByteSource source = stored_trace("traces/" + name);
    while (const std::size_t count = source(block.data(), block.size())) {
        text.append(block, 0, count);
    }
    Json document = Json::parse(text);
    for (Json& event : document["traceEvents"]) {
        const std::string operation = event["name"].get<std::string>();
        if (operation.find("reduce") == std::string::npos) {
            event.erase("args");
        }
    }
    const TraceImport imported =
        import_trace({traced_rank(read_kineto_trace(text_source(document.dump()), name))}, {});
    CHECK(gradients_of(imported) == three_small);
    CHECK_THAT(findings_of(imported), Catch::Contains("sizes from the all-reduces, one for each"));
}

}  // namespace bucketwise
