#include "sim/workload/compiled.h"

#include <map>
#include <string>
#include <vector>

#include "sim/workload/models/models.h"
#include "sim/workload/workload.h"
#include "tests/catch.h"
#include "tests/sim/workload/slow_memory.h"

namespace bucketwise {
namespace {

// 32 tokens of width 64, 4 heads of queries and 2 of keys and values, 128 within, 100 words.
constexpr std::int64_t stream = 32LL * 64;
constexpr std::int64_t inner = 32LL * 128;
constexpr std::int64_t narrow = 32LL * 32;  // keys, or values
constexpr std::int64_t logits = 32LL * 100;

ModelTiming compiled(bool by_block) {
    return {.device = slow_memory(),
            .arithmetic = Arithmetic::bfloat16,
            .run = {.execution = Execution::compiled},
            .joint = {.compiles_blocks = by_block}};
}

// Elements of two bytes that a pass moves, as a byte takes a nanosecond; by name.
using Moved = std::map<std::string, std::int64_t>;
Moved moved_by(const std::vector<TimedOperation>& operations) {
    Moved moved;
    for (const TimedOperation& operation : operations) {
        moved[operation.name] += (operation.device.count() + 1000) / 2000;
    }
    return moved;
}

const TimedOperation& of_name(const std::vector<TimedOperation>& operations,
                              const std::string& name) {
    const auto found = std::ranges::find(operations, name, &TimedOperation::name);
    REQUIRE(found != operations.end());
    return *found;
}

TEST_CASE("passes share kernels within a compiled block, and none over its end") {
    const Workload blocks = workload_from_model(two_layer_llama(), DType::bfloat16, compiled(true));
    Moved forward = moved_by(blocks.forward);
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
        INFO(layer);
        // A norm reads and writes; behind the sum it need not read.
        CHECK(forward[layer + "input_layernorm"] == 2 * stream);
        CHECK(forward[layer + "self_attn.add"] == 3 * stream);
        CHECK(forward[layer + "post_attention_layernorm"] == stream);
        // The multiplication reads gate and up, and writes.
        CHECK(forward[layer + "mlp.gate_proj.silu"] == 0);
        CHECK(forward[layer + "mlp.up_proj.multiply"] == 3 * inner);
        CHECK(forward[layer + "mlp.down_proj.add"] == 3 * stream);
        CHECK(forward[layer + "self_attn.rotate_query"] == 2 * stream);
    }
    // Eager beside the blocks, in float32: seven passes of an RMS norm in Python, two of the loss,
    // each behind a cast of 6 bytes.
    CHECK(forward["model.norm"] == (2 * 7 + 3) * stream);
    CHECK(forward["loss"] == (2 * 2 + 3) * logits);
    // As one graph, the sum that ends a block and the norm that begins the next are one kernel.
    Moved whole =
        moved_by(workload_from_model(two_layer_llama(), DType::bfloat16, compiled(false)).forward);
    CHECK(whole["model.layers.0.input_layernorm"] == stream);  // behind the embedding
    CHECK(whole["model.layers.1.input_layernorm"] == stream);
    CHECK(whole["model.norm"] == stream);
}

TEST_CASE("compiled, sums of gradients join the norm's backward, and the norm has two kernels") {
    const Workload blocks = workload_from_model(two_layer_llama(), DType::bfloat16, compiled(true));
    Moved backward = moved_by(blocks.backward);
    const std::string layer = "model.layers.0.";
    // One more tensor is read for each sum: of the residual, and of two of three projections.
    CHECK(backward[layer + "self_attn.add input gradient"] == stream);
    CHECK(backward[layer + "mlp.down_proj.add input gradient"] == stream);
    CHECK(backward[layer + "self_attn.q_proj input gradient"] ==
          (stream + 64LL * 64 + stream) + stream);
    CHECK(backward[layer + "self_attn.v_proj input gradient"] == narrow + 32LL * 64 + stream);
    CHECK(backward[layer + "post_attention_layernorm input gradient"] == 3 * stream);
    CHECK(backward[layer + "post_attention_layernorm weight gradient"] == 2 * stream);
    CHECK(backward[layer + "mlp.up_proj.multiply input gradient"] == 6 * inner);
    CHECK(backward[layer + "mlp.gate_proj.silu input gradient"] == 0);
    CHECK(backward["loss input gradient"] == (2 * 4 + 3) * logits);
}

TEST_CASE("the host enters a graph once, and launches its kernels from generated code") {
    const Workload blocks = workload_from_model(two_layer_llama(), DType::bfloat16, compiled(true));
    const auto us = [](const std::vector<TimedOperation>& operations, const std::string& name) {
        return to_us(of_name(operations, name).host);
    };
    const std::string layer = "model.layers.1.";
    CHECK(us(blocks.forward, layer + "input_layernorm") == 50 + 7);
    CHECK(us(blocks.forward, layer + "self_attn.q_proj") == 7);
    CHECK(us(blocks.forward, layer + "post_attention_layernorm") == 0);
    CHECK(us(blocks.forward, layer + "mlp.gate_proj.silu") == 0);
    CHECK(us(blocks.backward, layer + "self_attn.q_proj input gradient") == 7);
    CHECK(us(blocks.forward, "model.norm") == 23 + 7 * 15);  // eager: seven kernels
    Duration entered{0};
    for (const TimedOperation& operation : blocks.backward) {
        if (operation.name.starts_with(layer)) {
            entered += operation.host;
        }
    }
    // Entering takes 50. Kernels: two products of each of seven linear layers, two of attention,
    // one for both rotations, the multiplication, two of each norm. Nine gradients take 3 each.
    CHECK(to_us(entered) == 50 + 7 * (14 + 2 + 1 + 1 + 4) + 3 * 9);
}

TEST_CASE("a compiled block hands out all its gradients when its backward ends") {
    const ModelTiming timing = compiled(true);
    const Workload blocks = workload_from_model(two_layer_llama(), DType::bfloat16, timing);
    ModelTiming one_by_one = timing;
    one_by_one.run.execution = Execution::eager;
    const Workload eager = workload_from_model(two_layer_llama(), DType::bfloat16, one_by_one);
    CHECK(blocks.readiness == eager.readiness);
    std::map<std::string, std::int32_t> ready;
    for (const TimedOperation& operation : blocks.backward) {
        if (operation.ready_count > 0) {
            ready[operation.name] = operation.ready_count;
        }
    }
    // Seven weights and two norms each.
    CHECK(ready ==
          std::map<std::string, std::int32_t>{{"lm_head weight gradient", 1},
                                              {"model.norm weight gradient", 1},
                                              {"model.layers.1.input_layernorm weight gradient", 9},
                                              {"model.layers.0.input_layernorm weight gradient", 9},
                                              {"model.embed_tokens weight gradient", 1}});
    // Compiled as a whole, plans decide about it (DDP's graph pieces).
    CHECK(of_name(workload_from_model(two_layer_llama(), DType::bfloat16, compiled(false)).backward,
                  "model.layers.1.mlp.down_proj weight gradient")
              .ready_count == 1);
}

TEST_CASE("a compiled block that is computed again is one graph with its backward") {
    ModelTiming timing = compiled(true);
    timing.recompute = Recompute{};
    const Workload blocks = workload_from_model(two_layer_llama(), DType::bfloat16, timing);
    Moved backward = moved_by(blocks.backward);
    const std::string layer = "model.layers.0.";
    CHECK(backward[layer + "input_layernorm recomputed"] == 2 * stream);
    CHECK(backward[layer + "post_attention_layernorm recomputed"] == stream);
    CHECK(backward[layer + "mlp.up_proj.multiply recomputed"] == 3 * inner);
    std::int64_t entered = 0;
    for (const TimedOperation& operation : blocks.backward) {
        entered += operation.name.starts_with(layer) && to_us(operation.host) >= 50 ? 1 : 0;
    }
    CHECK(entered == 1);
    CHECK(to_us(of_name(blocks.backward, layer + "input_layernorm recomputed").host) == 57);
    CHECK(of_name(blocks.backward, layer + "input_layernorm weight gradient").ready_count == 9);
}

TEST_CASE("a model without repeated blocks is compiled as one graph under fully_shard") {
    Model bare;
    bare.parameters = {{"head.weight", {4, 4}}};
    bare.operations.resize(2);
    const CompiledGraphs graphs(bare, Execution::compiled, true);
    CHECK(graphs.graph_of(0) == std::optional<std::size_t>(0));
    CHECK(graphs.graph_of(1) == std::optional<std::size_t>(0));
    CHECK(!CompiledGraphs(bare, Execution::eager, true).graph_of(0));
}

}  // namespace
}  // namespace bucketwise
