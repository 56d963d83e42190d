// The operations that activation checkpointing runs again, against hand counts. On Hugging Face's
// Llama PyTorch counts the same products (tests/pytorch/check_recompute.py).
#include "sim/workload/recompute.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sim/workload/models/models.h"
#include "sim/workload/workload.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

TransformerShape small_shape(TransformerFamily family) {
    TransformerShape shape;
    shape.family = family;
    shape.layers = 4;
    shape.hidden = 64;
    shape.feed_forward = 128;
    shape.heads = 4;
    shape.vocabulary = 100;
    shape.context = 16;
    return shape;
}

Model small_model(TransformerFamily family) {
    return make_transformer("small", small_shape(family), {.batch = 2, .sequence_length = 16});
}

std::vector<std::string> names(const Model& model, const std::vector<std::size_t>& operations) {
    std::vector<std::string> found;
    for (const std::size_t i : operations) {
        found.push_back(model.operations[i].name);
    }
    return found;
}

std::vector<std::string> products_again(const Model& model, const RecomputedBlock& block) {
    std::vector<std::size_t> linear;
    std::ranges::copy_if(block.again, std::back_inserter(linear), [&](std::size_t i) {
        return model.operations[i].kind == OperationKind::linear;
    });
    return names(model, linear);
}

TEST_CASE("a block of Llama computes all but its last product again") {
    const Model llama = small_model(TransformerFamily::llama);
    const auto blocks = recomputed_blocks(llama, {}, true);
    REQUIRE(blocks.size() == 4);
    CHECK(blocks[1].name == "model.layers.1");
    CHECK(products_again(llama, blocks[1]) ==
          std::vector<std::string>{
              "model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.k_proj",
              "model.layers.1.self_attn.v_proj", "model.layers.1.self_attn.o_proj",
              "model.layers.1.mlp.gate_proj", "model.layers.1.mlp.up_proj"});
    // down_proj saves its input before it runs, and the sum after it saves nothing.
    CHECK(names(llama, {blocks[1].again.back()}).front() == "model.layers.1.mlp.up_proj.multiply");
    CHECK(blocks[1].kept.empty());
}

TEST_CASE("with operators kept every other product and attention are not computed again") {
    const Model llama = small_model(TransformerFamily::llama);
    const Recompute operators{.keeps = CheckpointKeeps::operators};
    const RecomputedBlock block = recomputed_blocks(llama, operators, true).front();
    CHECK(products_again(llama, block) ==
          std::vector<std::string>{"model.layers.0.self_attn.k_proj",
                                   "model.layers.0.self_attn.o_proj",
                                   "model.layers.0.mlp.up_proj"});
    const auto attends = [&](std::size_t i) { return is_attention(llama.operations[i].kind); };
    CHECK(std::ranges::none_of(block.again, attends));
    CHECK(std::ranges::any_of(block.kept, attends));
    // Attention in single operations is computed again: its products are no linear layers'.
    CHECK(std::ranges::any_of(recomputed_blocks(llama, operators, false).front().again, attends));
}

TEST_CASE("a reentrant block runs whole") {
    const Model llama = small_model(TransformerFamily::llama);
    for (const RecomputedBlock& block : recomputed_blocks(llama, {.reentrant = true}, true)) {
        CHECK(block.again.size() == block.end - block.first);
    }
}

TEST_CASE("a dropout's mask is saved, so that the product before it runs again") {
    TransformerShape shape = small_shape(TransformerFamily::gpt2);
    const auto last_again = [&] {
        const Model gpt2 = make_transformer("gpt2", shape, {.batch = 2, .sequence_length = 16});
        return gpt2.operations[recomputed_blocks(gpt2, {}, true).front().again.back()].name;
    };
    CHECK(last_again() == "transformer.h.0.mlp.act");
    shape.hugging_face = true;
    CHECK(last_again() == "transformer.h.0.mlp.c_proj");
}

TEST_CASE("blocks are counted from one, and the first ones may be enough") {
    const Model llama = small_model(TransformerFamily::llama);
    const auto chosen = [&](const Recompute& recompute) {
        std::string text;
        for (const RecomputedBlock& block : recomputed_blocks(llama, recompute, true)) {
            text += block.name.back();
        }
        return text;
    };
    CHECK(chosen({.every = 2}) == "13");
    CHECK(chosen({.every = 3}) == "2");
    CHECK(chosen({.blocks = 2}) == "01");
    CHECK(chosen({.every = 2, .blocks = 3}) == "1");
    CHECK(chosen({.every = 5}).empty());
}

TEST_CASE("backward runs a block's forward again, in its order and at its cost, before its own") {
    const Model llama = small_model(TransformerFamily::llama);
    ModelTiming timing{.device = device_preset("H100").value(), .arithmetic = Arithmetic::bfloat16};
    const Workload without = workload_from_model(llama, DType::bfloat16, timing);
    timing.recompute = Recompute{};
    const Workload with = workload_from_model(llama, DType::bfloat16, timing);
    CHECK(with.forward == without.forward);
    CHECK(with.readiness == without.readiness);

    std::vector<TimedOperation> own;
    std::vector<std::string> again;
    Duration again_time{0};
    for (const TimedOperation& operation : with.backward) {
        if (is_forward(operation.source->pass)) {
            again.push_back(operation.name);
            again_time += operation.device;
            CHECK(operation.ready_count == 0);
        } else {
            own.push_back(operation);
        }
    }
    CHECK(own == without.backward);
    Duration forward_time{0};
    std::vector<std::string> expected;
    const auto blocks = recomputed_blocks(llama, {}, true);
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
        for (const std::size_t i : block->again) {
            expected.push_back(llama.operations[i].name + " recomputed");
            const auto timed = std::ranges::find_if(with.forward, [&](const TimedOperation& one) {
                return one.source->operation == static_cast<std::int32_t>(i);
            });
            forward_time += timed->device;
        }
    }
    CHECK(again == expected);
    CHECK(again_time == forward_time);
    // The last block's first operation comes after the head's backward and before its own.
    const auto first = std::ranges::find(with.backward, expected.front(), &TimedOperation::name);
    CHECK((first - 1)->name.starts_with("model.norm"));
}

}  // namespace
}  // namespace bucketwise
