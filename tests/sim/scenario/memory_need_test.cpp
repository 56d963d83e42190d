#include "sim/scenario/memory_need.h"

#include "sim/base/json_input.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

Json with_workload(const Json& workload) {
    return {{"name", "memory"},
            {"workload", workload},
            {"cluster",
             {{"ranks", 8},
              {"link",
               {{"name", "l"},
                {"algorithm", "ring"},
                {"segments", {{{"latency_us", 1}, {"bandwidth_gb_per_s", 1}}}}}}}},
            {"sync", {{"strategy", "ddp"}}},
            {"step", {{"optimizer", "adam"}}}};
}

Scenario scenario_of(const Json& document) {
    return parse_scenario(document, "test", {});
}

MemoryNeed need_of(const Json& document) {
    return memory_need(scenario_of(document));
}

// Its shape, without what Hugging Face's adds: dropout, and GELU in many operations.
Json gpt2_xl(const char* device) {
    return with_workload({{"model",
                           {{"family", "gpt2"},
                            {"layers", 48},
                            {"hidden", 1600},
                            {"feed_forward", 6400},
                            {"heads", 25},
                            {"vocabulary", 50257},
                            {"context", 1024}}},
                          {"batch", 8},
                          {"sequence_length", 1024},
                          {"device", device}});
}

// One layer of a width of 8 and 2 heads on 16 tokens.
Json small_gpt2() {
    return with_workload({{"model",
                           {{"family", "gpt2"},
                            {"layers", 1},
                            {"hidden", 8},
                            {"feed_forward", 32},
                            {"heads", 2},
                            {"vocabulary", 100},
                            {"context", 16}}},
                          {"batch", 1},
                          {"sequence_length", 16},
                          {"arithmetic", "bfloat16"},
                          {"device", "A100"}});
}

TEST_CASE("a perceptron needs what a hand counts") {
    const MemoryNeed need = need_of(with_workload(
        {{"model", {{"family", "mlp"}, {"layers", {4, 3, 2}}}}, {"batch", 5}, {"device", "A100"}}));
    // 4 x 3 + 3 and 3 x 2 + 2 parameters are 23, of 4 bytes.
    CHECK(need.parameters == Bytes{92});
    CHECK(need.gradients == Bytes{92});
    CHECK(need.buckets == Bytes{92});
    CHECK(need.optimizer_state == Bytes{184});
    // ReLU's result, logits and log-softmax, 5 x (3 + 2 + 2) elements; ReLU keeps nothing it reads.
    CHECK(need.activations == Bytes{140});
    CHECK(need.at_begin() == Bytes{92 + 92 + 184 + 140});
    CHECK(need.at_end() == Bytes{92 + 92 + 184 + 92});
    CHECK(need.most() == need.at_begin());
    CHECK(need.device == Bytes{80 * (std::int64_t{1} << 30)});
}

TEST_CASE("gpt2-xl in float32 needs what Korthikanti et al. count, and its head") {
    const MemoryNeed need = need_of(gpt2_xl("A40"));
    // 1,557,611,200 parameters.
    CHECK(need.parameters == Bytes{4 * 1'557'611'200LL});
    CHECK(need.optimizer_state == Bytes{8 * 1'557'611'200LL});
    // Their table without dropout's masks and scores: 32 bytes of 16 bits for each token, layer and
    // element of the width, so 16 elements. 8 x 1,024 tokens of a width of 1,600 are 13,107,200.
    // Besides the embedding and the last norm, positions of one sequence, logits and log-softmax.
    const std::int64_t elements =
        (48LL * 16 + 2) * 13'107'200 + 1024LL * 1600 + 2LL * 8 * 1024 * 50'257;
    CHECK(need.activations == Bytes{4 * elements});
}

TEST_CASE("autocast keeps a transformer's stream in float32 and weights in 16 bits besides") {
    // 128 elements are 16 tokens by the width of 8. In 16 bits: three norms, query, key and value,
    // attention's sum, 4 + 4 of feed-forward, that is 15 x 128, and 16 x 100 logits. In 32: the
    // embedding, its positions, two sums, and log-softmax. Weights of products: 8 x 24 + 8 x 8 + 2
    // x 8 x 32 + 8 x 100 = 1,568.
    const std::int64_t automatic =
        2LL * (15LL * 128 + 1600) + 4LL * (4LL * 128 + 1600) + 2LL * 1568;
    CHECK(need_of(small_gpt2()).activations == Bytes{automatic});

    Json eager = small_gpt2();
    eager["workload"]["attention"] = "eager";
    // Softmax of 2 heads, 16 x 16 scores each.
    CHECK(need_of(eager).activations == Bytes{automatic + 2LL * 512});

    Json compiled = small_gpt2();
    compiled["workload"]["execution"] = "compiled";
    // Three norms and the GELU, 7 x 128 elements, are computed again.
    CHECK(need_of(compiled).activations == Bytes{automatic - 2LL * 7 * 128});
}

TEST_CASE("resnet50 keeps each convolution's and each ReLU's result") {
    Json document = with_workload({{"model", "resnet50"}, {"batch", 2}, {"device", "A100"}});
    // Convolutions of torchvision's: 802,816 in the stem; in the stages 3,612,672, 2,709,504,
    // 1,956,864 and 526,848, and shortcuts of 802,816, 401,408, 200,704 and 100,352: 11,113,984;
    // all but the shortcuts' 1,505,280 have a ReLU after them or, the last of a block, after its
    // sum. Pooling keeps 64 x 56 x 56 with int64 places, and 2,048; the head 2 x 1,000.
    const std::int64_t elements = 11'113'984 + 11'113'984 - 1'505'280 + 200'704 + 2'048 + 2'000;
    CHECK(need_of(document).activations == Bytes{2 * (4 * elements + 8LL * 200'704)});
    // Running statistics are with the parameters: 26,560 channels twice in float32, and 53 counts.
    CHECK(need_of(document).parameters.count ==
          need_of(document).gradients.count + 2LL * 4 * 26'560 + 8LL * 53);
}

// Four layers as Hugging Face's Llama has them, of a width of 256, on 512 tokens.
Json small_llama(const Json& checkpointing) {
    return with_workload({{"model",
                           {{"family", "llama"},
                            {"layers", 4},
                            {"hidden", 256},
                            {"feed_forward", 688},
                            {"heads", 8},
                            {"vocabulary", 1000},
                            {"context", 256}}},
                          {"batch", 2},
                          {"sequence_length", 256},
                          {"activation_checkpointing", checkpointing},
                          {"device", "A100"}});
}

TEST_CASE("a checkpointed block keeps its input, or what it is told to keep") {
    // In elements of 4 bytes, of 512 tokens: a block's norms keep 2 x 256 each, its projections,
    // attention's sum and the two shortcuts' sums 256 each, gate, up, SiLU and product 688 each:
    // 1,024 + 3 x 256 + 256 + 2 x 256 + 4 x 688 = 5,312. Outside of blocks: the embedding 256, the
    // last norm 512, logits and log-softmax 2 x 1,000.
    const std::int64_t outside = 256 + 512 + 2000;
    const MemoryNeed none = need_of(small_llama("none"));
    CHECK(none.activations == Bytes{4LL * 512 * (outside + 4LL * 5312)});
    CHECK_FALSE(none.recomputed);

    // Each block leaves its last sum, the next one's input; the first one's is the embedding.
    const MemoryNeed full = need_of(small_llama("full"));
    CHECK(full.activations == Bytes{4LL * 512 * (outside + 4LL * 256)});
    // The first block is the last to be computed again, beside the embedding, when all gradients
    // but the embedding's 256,000 are there.
    REQUIRE(full.recomputed);
    CHECK(full.recomputed->activations == Bytes{4LL * 512 * (256 + 5312)});
    CHECK(full.recomputed->gradients == full.gradients - Bytes{4LL * 256'000});
    CHECK(full.most() == std::max(full.at_begin(), full.while_recomputing()));

    // Queries, values, the gate, the last product and attention's sum stay, and the block's own.
    const MemoryNeed operators = need_of(small_llama("operators"));
    CHECK(operators.activations == Bytes{4LL * 512 * (outside + 4LL * (256 + 4 * 256 + 688))});

    // PyTorch 2.15 and Transformers 5.24 on a CPU, tensors alive after forward: 47.29, 5.79 and
    // 19.88 MB (tests/pytorch/check_recompute.py). They free the logits, 2.05 MB, before backward.
    constexpr double logits = 4.0 * 512 * 1000;
    CHECK(static_cast<double>(none.activations->count) - logits == Approx(47.29e6).epsilon(0.03));
    CHECK(static_cast<double>(full.activations->count) - logits == Approx(5.79e6).epsilon(0.03));
    CHECK(static_cast<double>(operators.activations->count) - logits ==
          Approx(19.88e6).epsilon(0.03));
}

TEST_CASE("autocast caches 16-bit weights of checkpointed blocks until forward ends") {
    // Without checkpointing autograd keeps the same copies, so that they make no difference.
    Json one = small_llama({{"blocks", 1}});
    one["workload"]["arithmetic"] = "bfloat16";
    Json none = small_llama("none");
    none["workload"]["arithmetic"] = "bfloat16";
    // The block's tensors but its last sum go: norms 4 x 256, projections and attention's sum
    // 4 x 256, and 4 x 688 elements of 2 bytes for each token; the first sum's 256 have 4.
    const std::int64_t dropped = 512LL * (2 * (4 * 256 + 4 * 256 + 4 * 688) + 4 * 256);
    CHECK(need_of(one).activations == Bytes{need_of(none).activations->count - dropped});
}

TEST_CASE("every other block, and the first ones, keep less than none and more than all") {
    const std::int64_t dropped = 4LL * 512 * (5312 - 256);  // of a block
    const Bytes none = *need_of(small_llama("none")).activations;
    CHECK(need_of(small_llama({{"every", 2}})).activations == Bytes{none.count - 2 * dropped});
    CHECK(need_of(small_llama({{"blocks", 3}})).activations == Bytes{none.count - 3 * dropped});
    const MemoryNeed third = need_of(small_llama({{"every", 3}}));
    CHECK(third.activations == Bytes{none.count - dropped});
    // The third block's, beside two whole ones and the embedding.
    CHECK(third.recomputed->activations == Bytes{4LL * 512 * (256 + 3 * 5312)});
}

TEST_CASE("views are the buckets, a hook's casts come besides, and accumulated gradients stay") {
    Json document = with_workload(
        {{"forward_ms", 1},
         {"backward_ms", 2},
         {"gradients", {{{"name", "a"}, {"numel", 1000}, {"dtype", "float32"}, {"ready_ms", 1}}}}});
    document["step"] = {{"optimizer_ms", 1}};
    MemoryNeed need = need_of(document);
    CHECK(need.gradients == Bytes{4000});
    CHECK(need.buckets == Bytes{4000});
    CHECK_FALSE(need.gradients_stay);
    CHECK_FALSE(need.optimizer_state);  // it has a time, not a name
    CHECK_FALSE(need.activations);
    CHECK(need.at_begin() == Bytes{8000});
    CHECK(need.at_end() == Bytes{12000});
    CHECK(need.fits());  // for all that is known

    document["sync"]["views"] = true;
    document["sync"]["comm_hook"] = "bf16";
    need = need_of(document);
    CHECK(need.buckets == Bytes{0});
    CHECK(need.gradients_stay);
    CHECK(need.hook_copies == Bytes{2000});  // half of them
    CHECK(need.at_begin() == Bytes{8000});
    CHECK(need.at_end() == Bytes{10000});

    document["sync"] = {{"strategy", "naive"}};
    document["step"]["accumulation"] = 2;
    need = need_of(document);
    CHECK(need.buckets == Bytes{0});
    CHECK(need.gradients_stay);
}

TEST_CASE("what does not fit is a note with its parts, and withholds nothing") {
    // 5.80 of parameters, as much of buckets, 11.6 of Adam's moments, 40.7 of activations, in GiB.
    const Scenario small = scenario_of(gpt2_xl("A40"));
    const std::string warning =
        "a rank needs about 64 GiB of memory when backward begins, and A40 has 48: parameters "
        "5.8, buckets 5.8, the optimizer's state 12, activations about 41";
    CHECK(memory_warning(small) == warning);
    CHECK(caveats(small) == std::vector{warning});
    CHECK(reasons_to_withhold(small).empty());
    CHECK_FALSE(memory_warning(scenario_of(gpt2_xl("A100"))));

    Json own = gpt2_xl("A40");
    own["workload"]["device"] = {{"preset", "A40"}, {"memory_gib", 64}};
    CHECK_FALSE(memory_warning(scenario_of(own)));
    own["workload"]["device"]["memory_gib"] = 63.5;
    CHECK(memory_warning(scenario_of(own)).value().find("has 64") != std::string::npos);
}

}  // namespace
}  // namespace bucketwise
