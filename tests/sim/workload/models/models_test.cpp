// The models that ship, against PyTorch's own (tests/data/pytorch, written by real torchvision and
// transformers) and against published counts.
#include "sim/workload/models/models.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace bucketwise {
namespace {

const std::filesystem::path pytorch_data =
    std::filesystem::path(BUCKETWISE_TEST_DATA_DIR) / "pytorch";

// Images of 224 pixels: a vision transformer has as many learned positions as patches.
const ModelInput usual_input{.batch = 2, .sequence_length = 16};
const ModelInput small_input{.batch = 2, .sequence_length = 16, .image_size = 64};

Model make_small(std::string_view name) {
    return make_model(name, small_input);
}

const Operation& operation_of(const Model& model, const std::string& name) {
    const auto found =
        std::find_if(model.operations.begin(), model.operations.end(),
                     [&](const Operation& operation) { return operation.name == name; });
    INFO(model.name << " has no operation " << name);
    REQUIRE(found != model.operations.end());
    return *found;
}

std::int64_t forward_flops(const Model& model) {
    std::int64_t sum = 0;
    for (const Operation& operation : model.operations) {
        sum += operation.forward.flops;
    }
    return sum;
}

std::string describe(const Parameter& parameter) {
    std::string line = parameter.name;
    for (const std::int64_t extent : parameter.shape) {
        line += " " + std::to_string(extent);
    }
    return line;
}

std::vector<std::string> golden_parameters(std::string_view model) {
    const std::filesystem::path path = pytorch_data / "parameters" / (std::string(model) + ".txt");
    std::ifstream file(path);
    INFO(path);
    REQUIRE(file.is_open());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
        if (!line.empty() && line.front() != '#') {
            lines.push_back(line);
        }
    }
    return lines;
}

// A gradient is ready when backward, the reverse of forward, has left the last operation that
// contributes to it.
std::vector<std::string> readiness(const Model& model) {
    std::vector<int> uses(model.parameters.size());
    for (const Operation& operation : model.operations) {
        for (const std::int32_t index : operation.parameters) {
            ++uses[static_cast<std::size_t>(index)];
        }
    }
    std::vector<std::string> names;
    for (auto operation = model.operations.rbegin(); operation != model.operations.rend();
         ++operation) {
        for (const std::int32_t index : operation->parameters) {
            if (--uses[static_cast<std::size_t>(index)] == 0) {
                names.push_back(model.parameters[static_cast<std::size_t>(index)].name);
            }
        }
    }
    return names;
}

// The golden backward passes ran small transformers; vision models at full depth.
Model model_of_golden_readiness(const std::string& name) {
    const std::string suffix = "-2-layers";
    if (name.size() < suffix.size() || name.substr(name.size() - suffix.size()) != suffix) {
        return make_small(name);
    }
    for (const TransformerFamily family : {TransformerFamily::gpt2, TransformerFamily::bert,
                                           TransformerFamily::llama, TransformerFamily::cs336}) {
        if (name == std::string(name_of(family)) + suffix) {
            return make_transformer(name, {family, 2, 64, 256, 4, 128, 512}, small_input);
        }
    }
    FAIL("no model for " << name);
    return {};
}

}  // namespace

TEST_CASE("Model names are sorted, and each makes a model of that name") {
    const std::vector<std::string_view> expected{
        "bert-base",        "bert-large",      "cs336-xl-2025", "cs336-xl-2026", "gpt2",
        "gpt2-large",       "gpt2-medium",     "gpt2-xl",       "llama-3-8b",    "llama-7b",
        "resnet101",        "resnet152",       "resnet18",      "resnet50",      "resnext101_32x4d",
        "resnext101_32x8d", "resnext50_32x4d", "vgg16",         "vit_b_16"};
    CHECK(model_names() == expected);
    CHECK(std::is_sorted(model_names().begin(), model_names().end()));
    for (const std::string_view name : model_names()) {
        CHECK(make_small(name).name == name);
    }
}

TEST_CASE("Only transformers have a transformer shape") {
    TransformerShape published{TransformerFamily::gpt2, 48, 1600, 6400, 25, 50257, 1024};
    published.hugging_face = true;
    CHECK(transformer_shape("gpt2-xl") == published);
    CHECK_FALSE(transformer_shape("resnet50").has_value());
    CHECK_FALSE(transformer_shape("gpt5").has_value());
}

TEST_CASE("A named transformer is the model of its shape") {
    for (const std::string_view name : model_names()) {
        if (const auto shape = transformer_shape(name)) {
            CHECK(make_transformer(std::string(name), *shape, small_input) == make_small(name));
        }
    }
}

TEST_CASE("Parameters have PyTorch's names, shapes and order") {
    for (const std::string_view name : model_names()) {
        const std::vector<std::string> expected = golden_parameters(name);
        const Model model = make_model(name, usual_input);
        CAPTURE(name);
        REQUIRE(model.parameters.size() == expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            REQUIRE(describe(model.parameters[i]) == expected[i]);
        }
    }
}

TEST_CASE("Parameter counts are the published ones") {
    struct Count {
        std::string_view model;
        std::size_t tensors;
        std::int64_t numel;
    };
    // Tensors of the transformers: gpt2 2 + 12 a layer + 2; bert 5 + 16 a layer + 2; llama and
    // cs336 9 a layer + 3; vit 4 + 12 a layer + 4. ResNet-50 and CS336:
    // shared/facts/pytorch-ddp.md.
    const std::vector<Count> counts{
        {"resnet18", 62, 11'689'512},          {"resnet50", 161, 25'557'032},
        {"resnet101", 314, 44'549'160},        {"vgg16", 32, 138'357'544},
        {"resnet152", 467, 60'192'808},        {"resnext50_32x4d", 161, 25'028'904},
        {"resnext101_32x4d", 314, 44'177'704}, {"resnext101_32x8d", 314, 88'791'336},
        {"vit_b_16", 152, 86'567'656},         {"gpt2", 148, 124'439'808},
        {"gpt2-medium", 292, 354'823'168},     {"gpt2-large", 436, 774'030'080},
        {"gpt2-xl", 580, 1'557'611'200},       {"bert-base", 199, 109'482'240},
        {"bert-large", 391, 335'141'888},      {"llama-7b", 291, 6'738'415'616},
        {"llama-3-8b", 291, 8'030'261'248},    {"cs336-xl-2025", 435, 1'998'235'200},
        {"cs336-xl-2026", 291, 3'406'809'600}};
    CHECK(counts.size() == model_names().size());
    for (const Count& count : counts) {
        CAPTURE(count.model);
        const Model model = make_model(count.model, usual_input);
        CHECK(model.parameters.size() == count.tensors);
        CHECK(model.numel() == count.numel);
    }
}

TEST_CASE("Gradients become ready in the order of a real PyTorch backward") {
    std::ifstream file(pytorch_data / "readiness.json");
    REQUIRE(file.is_open());
    const nlohmann::json golden = nlohmann::json::parse(file);
    REQUIRE_FALSE(golden.at("models").empty());
    for (const nlohmann::json& record : golden.at("models")) {
        const auto name = record.at("model").get<std::string>();
        CAPTURE(name);
        CHECK(readiness(model_of_golden_readiness(name)) ==
              record.at("ready").get<std::vector<std::string>>());
    }
}

TEST_CASE("Vision models take the multiply-adds that torchvision documents") {
    struct Documented {
        std::string_view model;
        double giga_multiply_adds;  // "GFLOPS" of torchvision's model pages, one 224-pixel image
        double precision;           // half a unit of the last digit there
    };
    for (const Documented& documented : {Documented{"resnet18", 1.81, 0.005},
                                         {"resnet50", 4.09, 0.005},
                                         {"resnet101", 7.80, 0.005},
                                         {"resnet152", 11.51, 0.005},
                                         {"resnext50_32x4d", 4.23, 0.005},
                                         {"resnext101_32x8d", 16.41, 0.005},
                                         {"vit_b_16", 17.56, 0.005},
                                         {"vgg16", 15.47, 0.005}}) {
        CAPTURE(documented.model);
        const std::int64_t one = forward_flops(make_model(documented.model, {.batch = 1}));
        CHECK(std::abs(static_cast<double>(one) / 2e9 - documented.giga_multiply_adds) <=
              documented.precision);
        // Work is linear in the batch.
        CHECK(forward_flops(make_model(documented.model, {.batch = 32})) == 32 * one);
    }
}

// Every weight matrix multiplies every token once (2 flops a weight), the embedding's lookup none.
// Attention's two products take 2 * seq * seq * hidden each a layer and sequence: the full square,
// not the half that a causal mask leaves.
TEST_CASE("Transformers take 2 flops a weight and token, plus the squares of attention") {
    const ModelInput input{.batch = 3, .sequence_length = 40};
    const std::int64_t length = input.sequence_length;
    const std::int64_t tokens = input.batch * length;
    for (const std::string_view name : model_names()) {
        const auto shape = transformer_shape(name);
        if (!shape) {
            continue;
        }
        CAPTURE(name);
        const std::int64_t h = shape->hidden;
        const bool gated =
            shape->family == TransformerFamily::llama || shape->family == TransformerFamily::cs336;
        const bool is_bert = shape->family == TransformerFamily::bert;
        const std::int64_t layer = 2 * h * h + 2 * h * shape->key_value_width() +
                                   (gated ? 3 : 2) * h * shape->feed_forward;
        // BERT has no head over the vocabulary, but pools one token of each sequence.
        const std::int64_t head = is_bert ? 0 : shape->vocabulary * h;
        const std::int64_t pooler = is_bert ? 2 * input.batch * h * h : 0;
        const std::int64_t attention = 4 * input.batch * shape->layers * length * length * h;
        CHECK(forward_flops(make_model(name, input)) ==
              2 * (shape->layers * layer + head) * tokens + pooler + attention);
    }
}

TEST_CASE("Backward repeats a product for each operand that needs a gradient") {
    for (const std::string_view name : model_names()) {
        CAPTURE(name);
        const Model model = make_small(name);
        for (std::size_t i = 0; i < model.operations.size(); ++i) {
            const Operation& operation = model.operations[i];
            CAPTURE(operation.name);
            const MatrixProduct product = operation.product.value_or(MatrixProduct{});
            CHECK(operation.forward.flops == 2 * product.count * product.m * product.n * product.k);
            CHECK(operation.weight_gradient.flops == operation.forward.flops);
            // The first operation of a vision model reads the images.
            CHECK(operation.input_gradient.flops == (i == 0 ? 0 : operation.forward.flops));
        }
        CHECK(model.operations.front().input_gradient == Work{});
    }
}

TEST_CASE("Operations have names of their own and together use every parameter") {
    for (const std::string_view name : model_names()) {
        CAPTURE(name);
        const Model model = make_small(name);
        std::set<std::string> names;
        std::set<std::int32_t> used;
        for (const Operation& operation : model.operations) {
            CAPTURE(operation.name);
            CHECK(names.insert(operation.name).second);
            CHECK((operation.weight_gradient != Work{}) ==
                  (!operation.parameters.empty() || operation.product.has_value()));
            used.insert(operation.parameters.begin(), operation.parameters.end());
        }
        CHECK(used.size() == model.parameters.size());
        CHECK(*used.begin() == 0);
        CHECK(*used.rbegin() + 1 == static_cast<std::int32_t>(model.parameters.size()));
    }
}

TEST_CASE("GPT-2's head is its token embedding") {
    const Model model = make_small("gpt2");
    CHECK(operation_of(model, "transformer.wte").parameters == std::vector<std::int32_t>{0});
    CHECK(operation_of(model, "lm_head").parameters == std::vector<std::int32_t>{0});
    CHECK(model.parameters.front().name == "transformer.wte.weight");
}

TEST_CASE("ResNet-50 has 53,120 floats and 53 counters to broadcast") {
    const Model model = make_small("resnet50");
    std::int64_t floats = 0;
    std::int64_t counters = 0;
    for (const Buffer& buffer : model.buffers) {
        (buffer.element == Bytes{4} ? floats : counters) += buffer.numel;
    }
    CHECK(floats == 53'120);
    CHECK(counters == 53);
    CHECK(std::vector<Buffer>(model.buffers.begin(), model.buffers.begin() + 4) ==
          std::vector<Buffer>{{"bn1.running_mean", 64, {4}},
                              {"bn1.running_var", 64, {4}},
                              {"bn1.num_batches_tracked", 1, {8}},
                              {"layer1.0.bn1.running_mean", 64, {4}}});
    CHECK(make_small("vgg16").buffers.empty());
}

// Batch 2, 64 pixels: see the sizes of the tensors below.
TEST_CASE("The traffic of ResNet-18's operations is that of their tensors") {
    const Model model = make_small("resnet18");
    const std::int64_t images = 24'576;     // 2 * 3 * 64 * 64
    const std::int64_t weights = 9'408;     // 64 * 3 * 7 * 7
    const std::int64_t features = 131'072;  // 2 * 64 * 32 * 32
    const std::int64_t pooled = 32'768;     // 2 * 64 * 16 * 16
    const std::int64_t halved = 16'384;     // 2 * 128 * 8 * 8
    const Operation& convolution = operation_of(model, "conv1");
    // 2 * 32 * 32 output pixels, 3 * 7 * 7 taps.
    CHECK(convolution.product == MatrixProduct{2048, 64, 147, 1});
    CHECK(convolution.forward.elements == images + weights + features);
    CHECK(convolution.weight_gradient.elements == images + weights + features);
    const Operation& norm = operation_of(model, "bn1");
    CHECK(norm.forward.elements == 3 * features);
    CHECK(norm.input_gradient.elements == 3 * features);
    CHECK(norm.weight_gradient.elements == 2 * features);
    CHECK(operation_of(model, "relu").input_gradient.elements == 3 * features);
    CHECK(operation_of(model, "maxpool").forward.elements == features + pooled);
    CHECK(operation_of(model, "maxpool").input_gradient.elements == 2 * pooled + features);
    // The first block of layer2 starts from `pooled` elements and ends with `halved`.
    CHECK(operation_of(model, "layer2.0.add").forward.elements == 3 * halved);
    CHECK(operation_of(model, "layer2.0.add").input_gradient.elements == 3 * pooled);
    // 2 rows, 512 features to 1000 classes, with a bias.
    const Operation& head = operation_of(model, "fc");
    CHECK(head.forward.elements == 1'024 + 512'000 + 1'000 + 2'000);
    CHECK(head.input_gradient.elements == 1'024 + 512'000 + 2'000);
    CHECK(head.weight_gradient.elements == 1'024 + 512'000 + 1'000 + 2'000);
    CHECK(operation_of(model, "loss").forward.elements == 4'000);
}

// Batch 2, 16 tokens, 12 heads of width 64.
TEST_CASE("The traffic of GPT-2's operations is that of their tensors") {
    const Model model = make_small("gpt2");
    const std::int64_t activations = 24'576;  // 2 * 16 * 768
    const std::int64_t scores = 6'144;        // 2 * 12 * 16 * 16
    const std::int64_t table = 38'597'376;    // 50257 * 768
    const std::string block = "transformer.h.0.";
    const Operation& score = operation_of(model, block + "attn.scores");
    CHECK(score.product == MatrixProduct{16, 16, 64, 24});
    CHECK(score.forward.elements == 2 * activations + scores);
    const Operation& value = operation_of(model, block + "attn.values");
    CHECK(value.product == MatrixProduct{16, 64, 16, 24});
    CHECK(value.forward.elements == 2 * activations + scores);
    CHECK(operation_of(model, block + "attn.softmax").forward.elements == 2 * scores);
    CHECK(operation_of(model, block + "ln_1").forward.elements == 2 * activations);
    CHECK(operation_of(model, block + "attn.add").input_gradient.elements == 3 * activations);
    // Zeros of the table, the rows read and added, and the sum with the head's gradient.
    const Operation& embedding = operation_of(model, "transformer.wte");
    CHECK(embedding.forward.elements == 2 * activations);
    CHECK(embedding.weight_gradient.elements == table + 2 * activations + 3 * table);
    // A table of 1024 * 768 = 786,432, and a row of 768 for each of 16 positions, read and added.
    CHECK(operation_of(model, "transformer.wpe").weight_gradient.elements == 786'432 + 24'576);
}

// Batch 2, 64 pixels. The first block's 3x3 convolution has 32 groups of 4 channels, which read and
// write 2 * 16 * 16 pixels.
TEST_CASE("A grouped convolution is a product per group") {
    const Model model = make_small("resnext50_32x4d");
    const Operation& convolution = operation_of(model, "layer1.0.conv2");
    CHECK(convolution.product == MatrixProduct{.m = 512, .n = 4, .k = 36, .count = 32});
    CHECK(convolution.forward.elements == 2 * 512 * 128 + 128 * 4 * 9);
}

// Batch 2, 4 x 4 patches and the class token: 17 tokens of 768.
TEST_CASE("A vision transformer's learned tensors join every image") {
    const Model model = make_small("vit_b_16");
    const std::int64_t positions_of_one = std::int64_t{17} * 768;
    const std::int64_t activations = 2 * positions_of_one;
    CHECK(operation_of(model, "conv_proj").product == MatrixProduct{32, 768, 768});
    const Operation& token = operation_of(model, "class_token");
    CHECK(token.forward.elements == 2 * activations + 768);
    CHECK(token.weight_gradient.elements == 2 * 768 + 768);
    const Operation& positions = operation_of(model, "encoder.pos_embedding");
    CHECK(positions.forward.elements == 2 * activations + positions_of_one);
    CHECK(positions.weight_gradient.elements == activations + positions_of_one);
    CHECK(image_patch("vit_b_16") == 16);
    CHECK(image_patch("resnet50") == 1);
}

// nanoGPT with bias=False, and with an untied head: 2*16384*768 + 1024*768 + 8*(4*768*768 +
// 2*768*3072), and 17 norms of 768, with biases of 768 or without.
TEST_CASE("GPT-2's linear layers and norms may have no biases") {
    TransformerShape shape{TransformerFamily::gpt2, 8, 768, 3072, 12, 16384, 1024};
    shape.tied_embeddings = false;
    shape.linear_bias = false;
    CHECK(make_transformer("mine", shape, small_input).numel() == 82'601'472);
    shape.norm_bias = false;
    const Model model = make_transformer("mine", shape, small_input);
    CHECK(model.numel() == 82'601'472 - 17 * 768);
    for (const Parameter& parameter : model.parameters) {
        CHECK(parameter.name.find("bias") == std::string::npos);
    }
}

// Query, key and value read one tensor, so two of the three add a sum of gradients: two read, one
// written. Gate and up share another.
TEST_CASE("Autograd sums the gradients of a tensor that several projections read") {
    const Model model = make_small("llama-7b");
    const std::string layer = "model.layers.0.";
    const std::int64_t activations = 131'072;  // 2 * 16 * 4096
    const std::int64_t weights = 16'777'216;   // 4096 * 4096
    const auto backward = [&](const char* projection) {
        return operation_of(model, layer + projection).input_gradient.elements;
    };
    CHECK(backward("self_attn.v_proj") == 2 * activations + weights);
    CHECK(backward("self_attn.k_proj") == 2 * activations + weights + 3 * activations);
    CHECK(backward("self_attn.q_proj") == 2 * activations + weights + 3 * activations);
    CHECK(backward("mlp.gate_proj") == backward("mlp.up_proj") + 3 * activations);
}

TEST_CASE("A shape of one's own works in every family") {
    // 3 layers, hidden 24, feed-forward 40, vocabulary 101, 9 positions:
    //  gpt2: 101*24 + 9*24 + 3*(4*24*24 + 4*24 + 2*24*40 + 40 + 24 + 4*24) + 2*24 = 16,128
    //  bert: (101+9+2)*24 + 2*24 + 3*(the same layer) + 24*24 + 24 = 16,776
    //  llama, cs336: 2*101*24 + 3*(4*24*24 + 3*24*40 + 2*24) + 24 = 20,568
    const auto make = [](TransformerFamily family, std::int64_t context) {
        return make_transformer("mine", {family, 3, 24, 40, 6, 101, context},
                                {.batch = 1, .sequence_length = 5});
    };
    CHECK(make(TransformerFamily::gpt2, 9).numel() == 16'128);
    CHECK(make(TransformerFamily::bert, 9).numel() == 16'776);
    CHECK(make(TransformerFamily::llama, 9).numel() == 20'568);
    CHECK(make(TransformerFamily::cs336, 9).numel() == 20'568);
    // A longer context means more learned positions, and nothing to rotary ones.
    CHECK(make(TransformerFamily::gpt2, 10).numel() == 16'128 + 24);
    CHECK(make(TransformerFamily::bert, 10).numel() == 16'776 + 24);
    CHECK(make(TransformerFamily::llama, 10) == make(TransformerFamily::llama, 9));
    CHECK(make(TransformerFamily::cs336, 10) == make(TransformerFamily::cs336, 9));
}

}  // namespace bucketwise
