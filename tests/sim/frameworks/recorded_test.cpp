// Steps of real frameworks with small models, recorded event by event on Gloo ranks
// (tests/frameworks/record.py), against the program of the simulated step.
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "sim/base/json.h"
#include "sim/frameworks/framework_step.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Json recorded(const std::string& file) {
    std::ifstream in(std::string(BUCKETWISE_TEST_DATA_DIR) + "/frameworks/" + file);
    REQUIRE(in);
    return Json::parse(in);
}

DType dtype_named(const std::string& name) {
    return *std::ranges::find(every<DType>, name, [](DType dtype) { return name_of(dtype); });
}

// The model's gradients, each ready 1 ms after the one before, on a CPU.
StepInput input_of(const Json& model, std::int64_t ranks, std::int64_t micro_steps,
                   const std::optional<DType>& dtype) {
    StepInput input;
    std::vector<std::int32_t> index;  // by parameter
    for (std::size_t i = 0; i < model["numel"].size(); ++i) {
        index.push_back(static_cast<std::int32_t>(input.workload.gradients.size()));
        if (model["requires_grad"][i] == true) {
            input.workload.gradients.push_back({std::to_string(i), model["numel"][i],
                                                dtype ? *dtype : dtype_named(model["dtype"][i])});
        }
    }
    input.workload.forward = {{"forward", std::chrono::milliseconds{1}}};
    for (const Json& parameter : model["readiness"]) {
        input.workload.readiness.push_back(index[parameter.get<std::size_t>()]);
        input.workload.backward.push_back(
            {.name = "backward", .device = std::chrono::milliseconds{1}, .ready_count = 1});
    }
    input.workload.host_is_device = true;
    input.group = {ranks, ranks};
    input.link.segments = {{std::nullopt, Duration{0}, {1'000'000'000}}};
    input.step.accumulation = micro_steps;
    return input;
}

// Gradients that become ready, and collectives, as in the recording; a number is of gradients in a
// row.
struct Walk {
    Json events = Json::array();

    void ready() {
        if (!events.empty() && events.back().is_number()) {
            events.back() = events.back().get<int>() + 1;
        } else {
            events.push_back(1);
        }
    }
    void collective(std::string_view kind, std::int64_t elements, std::string_view dtype) {
        events.push_back({kind, elements, dtype});
    }
};

// Elements of gradients are of `reduced`, of parameters of `held`.
Json walk_of(const Program& program, DType reduced, DType held) {
    Walk walk;
    for (const Instruction& instruction : program.instructions) {
        if (instruction.kind == InstructionKind::backward) {
            walk.ready();
        } else if (instruction.kind == InstructionKind::launch) {
            const Collective& collective =
                program.collectives[static_cast<std::size_t>(instruction.subject)];
            const DType dtype = collective.kind == CollectiveKind::all_gather ? held : reduced;
            walk.collective(name_of(collective.kind),
                            collective.bytes.count / element_size(dtype).count, name_of(dtype));
        }
    }
    return walk.events;
}

// The recording's, without what agrees on norms and overflows, and without the all-reduce of no
// elements that 0.14.2 sends before a first gradient that is too large.
Json walk_of(const Json& events) {
    Walk walk;
    bool between_steps = false;
    for (const Json& event : events) {
        if (event.is_number()) {
            for (int i = 0; i < event.get<int>(); ++i) {
                walk.ready();
            }
        } else if (event.is_string()) {
            between_steps = event == "backward";
        } else if (event.is_array() && event[1] != 0 && !(between_steps && event[1] == 1)) {
            const std::string kind = event[0];
            walk.collective(kind == "all_gather_into_tensor"  ? "all-gather"
                            : kind == "reduce_scatter_tensor" ? "reduce-scatter"
                            : kind == "all_reduce"            ? "all-reduce"
                                                              : kind,
                            event[1], event[2].get<std::string>());
        }
    }
    return walk.events;
}

TEST_CASE("DeepSpeed's collectives are those recorded, after the same gradients") {
    const Json file = recorded("deepspeed.json");
    int checked = 0;
    std::map<std::string, int> left_out;
    for (const Json& one : file["cases"]) {
        const Json& settings = one["settings"];
        const Json zero = settings.value("zero_optimization", Json::object());
        const int stage = zero.value("stage", 0);
        const std::string why = stage == 0                                   ? "stage 0"
                                : zero.value("round_robin_gradients", false) ? "round robin"
                                : !zero.value("use_multi_rank_bucket_allreduce", true) ? "reduce"
                                : one.contains("groups")                               ? "groups"
                                : stage == 1 && settings.contains("data_types") ? "BF16_Optimizer"
                                                                                : "";
        if (!why.empty()) {
            ++left_out[why];
            continue;
        }
        const auto is_enabled = [&](const char* key) {
            return settings.contains(key) && settings[key].value("enabled", false);
        };
        const DType held = is_enabled("bf16")   ? DType::bfloat16
                           : is_enabled("fp16") ? DType::float16
                                                : DType::float32;
        DType reduced = held;
        if (settings.contains("communication_data_type")) {
            const std::string text = settings["communication_data_type"];
            reduced = text == "fp32"   ? DType::float32
                      : text == "fp16" ? DType::float16
                                       : DType::bfloat16;
        }
        FrameworkUse use{.framework =
                             stage == 1 ? Framework::deepspeed_zero1 : Framework::deepspeed_zero2};
        use.reduced_as = reduced;
        use.reduce_scatter = zero.value("reduce_scatter", true);
        use.contiguous_gradients = zero.value("contiguous_gradients", true);
        use.overlaps = zero.value("overlap_comm", false);
        const StepInput input =
            input_of(file["models"][one["model"].get<std::string>()], one["ranks"],
                     settings.value("gradient_accumulation_steps", 1), held);
        const Bytes limit{zero.value("reduce_bucket_size", std::int64_t{500'000'000})};
        const FrameworkStep step(input, {}, use);
        const Json simulated = walk_of(step.program(step.plan(limit)), reduced, held);
        INFO(one.dump() << "\n" << walk_of(one["events"]).dump() << "\n" << simulated.dump());
        CHECK(walk_of(one["events"]) == simulated);
        checked += static_cast<int>(one["versions"].size());
    }
    // Not simulated: one collective for each rank's share, several parameter groups, shares dealt
    // out in turn, and stage 1 with gradients accumulated in float32, another optimizer.
    const std::map<std::string, int> not_simulated{{"BF16_Optimizer", 18},
                                                   {"groups", 16},
                                                   {"reduce", 94},
                                                   {"round robin", 4},
                                                   {"stage 0", 20}};
    CHECK(left_out == not_simulated);
    CHECK(checked == 1335);  // of three versions
}

// Gradients that become ready, and collectives with their bytes. Before a mark "forward" are
// modules, and between "finalize" and "step" what agrees on norms.
Json megatron_walk_of(const Json& events) {
    Walk walk;
    Walk part;
    Walk collectives;  // of the part
    for (const Json& event : events) {
        if (event.is_string()) {
            for (const Json& one : (event == "forward" ? collectives : part).events) {
                for (int i = one.is_number() ? one.get<int>() : 0; i > 0; --i) {
                    walk.ready();
                }
                if (one.is_array()) {
                    walk.events.push_back(one);
                }
            }
            part = collectives = {};
        } else if (event.is_number()) {
            for (int i = 0; i < event.get<int>(); ++i) {
                part.ready();
            }
        } else if (event[0] != "wait" && event[1] != 1) {
            const std::string kind = event[0];
            const Bytes bytes = event[1].get<std::int64_t>() * element_size(dtype_named(event[2]));
            for (Walk* const each : {&part, &collectives}) {
                each->collective(kind == "all_gather_into_tensor"  ? "all-gather"
                                 : kind == "reduce_scatter_tensor" ? "reduce-scatter"
                                                                   : "all-reduce",
                                 bytes.count, "bytes");
            }
        }
    }
    return walk.events;
}

TEST_CASE("Megatron-LM's buckets and collectives are those recorded, after the same gradients") {
    const Json file = recorded("megatron.json");
    int checked = 0;
    std::map<std::string, int> left_out;
    for (const Json& one : file["cases"]) {
        const Json& settings = one["settings"];
        std::string why = one.contains("shared_embedding") ? "shared_embedding" : "";
        for (const auto& [key, value] : settings.items()) {
            const std::set<std::string> known{"bucket_size",
                                              "overlap_grad_reduce",
                                              "overlap_param_gather",
                                              "use_distributed_optimizer",
                                              "grad_reduce_in_fp32",
                                              "average_in_collective",
                                              "pad_buckets_for_high_nccl_busbw"};
            why = known.count(key) == 0 ? key : why;
        }
        // The encoder's forward reads first what backward does not finish last: no mirror.
        if (one["model"] == "encoder" && settings.value("overlap_param_gather", false)) {
            why = "no mirror";
        }
        if (!why.empty()) {
            ++left_out[why];
            continue;
        }
        const auto is_set = [&](const char* key) { return settings.value(key, false); };
        const FrameworkUse use{.framework = is_set("use_distributed_optimizer")
                                                ? Framework::megatron_distributed_optimizer
                                                : Framework::megatron_lm,
                               .overlaps = is_set("overlap_grad_reduce"),
                               .gathers_in_forward = is_set("overlap_param_gather"),
                               .averages_in_collective = is_set("average_in_collective"),
                               .reduces_in_bfloat16 = !is_set("grad_reduce_in_fp32"),
                               .pads_for_bandwidth = is_set("pad_buckets_for_high_nccl_busbw")};
        const Json& model = file["models"][one["model"].get<std::string>()];
        const auto dtype = one.contains("dtype")
                               ? std::optional(dtype_named(one["dtype"].get<std::string>()))
                               : std::nullopt;
        const FrameworkStep step(input_of(model, one["ranks"], one.value("micro_steps", 1), dtype),
                                 {}, use);
        std::optional<Bytes> limit;
        if (settings.contains("bucket_size") && settings["bucket_size"].is_number()) {
            limit = Bytes{settings["bucket_size"].get<std::int64_t>()};
        }
        const Program program = step.program(step.plan(limit));
        Walk simulated;
        for (const Instruction& instruction : program.instructions) {
            if (instruction.kind == InstructionKind::backward) {
                simulated.ready();
            } else if (instruction.kind == InstructionKind::launch) {
                const Collective& collective =
                    program.collectives[static_cast<std::size_t>(instruction.subject)];
                simulated.collective(name_of(collective.kind), collective.bytes.count, "bytes");
            }
        }
        INFO(one.dump() << "\n"
                        << megatron_walk_of(one["events"]).dump() << "\n"
                        << simulated.events.dump());
        CHECK(megatron_walk_of(one["events"]) == simulated.events);
        ++checked;
    }
    const std::map<std::string, int> not_simulated{
        {"no mirror", 18},
        {"param_name_patterns_for_fp32_local_accumulation", 2},
        {"reduce_scatter_with_fp32_accumulation", 8},
        {"shared_embedding", 33}};
    CHECK(left_out == not_simulated);
    CHECK(checked == 309);
}

// Horovod's background thread, in one cycle (tests/frameworks/record_horovod.py).
TEST_CASE("Horovod fuses what it was recorded to fuse") {
    const Json file = recorded("horovod.json");
    int checked = 0;
    for (const Json& one : file["cases"]) {
        const Json& model = file["models"][one["model"].get<std::string>()];
        std::vector<Gradient> gradients;
        for (std::size_t i = 0; i < model["numel"].size(); ++i) {
            gradients.push_back(
                {std::to_string(i), model["numel"][i], dtype_named(model["dtype"][i])});
        }
        // All handed over, and ready, before the thread looks.
        const FusedPlan fused =
            fuse_in_cycles(gradients, model["readiness"].get<std::vector<std::int32_t>>(),
                           std::vector<GradientMoments>(gradients.size()),
                           horovod_threshold(Bytes{one["threshold"]}, 2), {});
        Json groups = Json::array();
        for (const Bucket& bucket : fused.plan.buckets) {
            groups.push_back(bucket.gradients);
        }
        INFO(one.dump() << "\n" << groups.dump());
        CHECK(groups == one["fused"]);
        ++checked;
    }
    CHECK(checked == 77);
}

}  // namespace
}  // namespace bucketwise
