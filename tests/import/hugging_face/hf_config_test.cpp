#include "import/hugging_face/hf_config.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/error.h"
#include "sim/base/json_input.h"
#include "sim/scenario/model_input.h"
#include "tests/catch.h"

namespace bucketwise {
namespace {

constexpr ModelInput small_input{.batch = 1, .sequence_length = 8};

// As the published config.json, but for keys that nothing here looks at.
Json gpt2_config(std::int64_t layers, std::int64_t width, std::int64_t heads) {
    return {{"model_type", "gpt2"},     {"architectures", {"GPT2LMHeadModel"}},
            {"n_layer", layers},        {"n_embd", width},
            {"n_head", heads},          {"n_inner", nullptr},
            {"n_positions", 1024},      {"n_ctx", 1024},
            {"vocab_size", 50257},      {"attn_pdrop", 0.1},
            {"torch_dtype", "float32"}, {"task_specific_params", Json::object()}};
}

struct LlamaSizes {
    std::int64_t layers;
    std::int64_t hidden;
    std::int64_t feed_forward;
    std::int64_t heads;
    std::int64_t key_value_heads;
    std::int64_t vocabulary;
    bool tied = false;
};

Json llama_config(const LlamaSizes& sizes) {
    return {{"model_type", "llama"},
            {"architectures", {"LlamaForCausalLM"}},
            {"num_hidden_layers", sizes.layers},
            {"hidden_size", sizes.hidden},
            {"intermediate_size", sizes.feed_forward},
            {"num_attention_heads", sizes.heads},
            {"num_key_value_heads", sizes.key_value_heads},
            {"vocab_size", sizes.vocabulary},
            {"max_position_embeddings", 4096},
            {"attention_bias", false},
            {"mlp_bias", false},
            {"rope_scaling", {{"rope_type", "llama3"}}},
            {"tie_word_embeddings", sizes.tied}};
}

Json bert_config(const char* architecture) {
    return {{"model_type", "bert"},
            {"architectures", {architecture}},
            {"num_hidden_layers", 12},
            {"hidden_size", 768},
            {"intermediate_size", 3072},
            {"num_attention_heads", 12},
            {"vocab_size", 30522},
            {"type_vocab_size", 2},
            {"position_embedding_type", "absolute"},
            {"max_position_embeddings", 512}};
}

// Without the keys that say nothing: no biases are a key of these.
Json qwen2_config(const LlamaSizes& sizes) {
    Json config = llama_config(sizes);
    config["model_type"] = "qwen2";
    config["architectures"] = {"Qwen2ForCausalLM"};
    config["use_sliding_window"] = false;
    config["sliding_window"] = 131072;
    config.erase("attention_bias");
    config.erase("mlp_bias");
    return config;
}

Json mixtral_config() {
    Json config = llama_config({32, 4096, 14336, 32, 8, 32000});
    config["model_type"] = "mixtral";
    config["architectures"] = {"MixtralForCausalLM"};
    config["sliding_window"] = nullptr;
    config["num_local_experts"] = 8;
    config["num_experts_per_tok"] = 2;
    return config;
}

struct T5Sizes {
    std::int64_t layers;
    std::int64_t hidden;
    std::int64_t feed_forward;
    std::int64_t heads;
    bool first_version = true;  // else 1.1: gated, and an untied head
};

Json t5_config(const T5Sizes& sizes) {
    return {{"model_type", "t5"},
            {"architectures", {"T5ForConditionalGeneration"}},
            {"num_layers", sizes.layers},
            {"num_decoder_layers", sizes.layers},
            {"d_model", sizes.hidden},
            {"d_ff", sizes.feed_forward},
            {"num_heads", sizes.heads},
            {"d_kv", 64},
            {"vocab_size", 32128},
            {"relative_attention_num_buckets", 32},
            {"feed_forward_proj", sizes.first_version ? "relu" : "gated-gelu"},
            {"tie_word_embeddings", sizes.first_version}};
}

// As published for ViT-B/16, 224 pixels.
Json vit_config() {
    Json labels = Json::object();
    for (int i = 0; i < 1000; ++i) {
        labels[std::to_string(i)] = "a class";
    }
    return {{"model_type", "vit"},       {"architectures", {"ViTForImageClassification"}},
            {"num_hidden_layers", 12},   {"hidden_size", 768},
            {"intermediate_size", 3072}, {"num_attention_heads", 12},
            {"image_size", 224},         {"patch_size", 16},
            {"num_channels", 3},         {"qkv_bias", true},
            {"id2label", labels}};
}

Model model_of_config(const Json& config) {
    const HfModel model = read_hf_config(config, "config.json", HfExperts::left_out);
    if (const TransformerShape* shape = model.transformer()) {
        return make_transformer("imported", *shape, small_input);
    }
    return make_vision_transformer("imported", std::get<VitShape>(model.shape),
                                   {.batch = 1, .image_size = model.image_size});
}

std::int64_t parameters_of(const Json& config) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : model_of_config(config).parameters) {
        elements += parameter.numel();
    }
    return elements;
}

std::vector<std::string> parameter_names(const Model& model) {
    std::vector<std::string> names;
    for (const Parameter& parameter : model.parameters) {
        names.push_back(parameter.name);
    }
    return names;
}

std::string refusal(const Json& config) {
    try {
        static_cast<void>(read_hf_config(config, "config.json"));
    } catch (const InputError& error) {
        return error.what();
    }
    return "nothing was refused";
}

Json changed(Json config, const char* key, const Json& value) {
    config[key] = value;
    return config;
}

}  // namespace

TEST_CASE("The configuration of GPT-2 gives the parameters of the built-in GPT-2", "[import]") {
    struct Published {
        const char* name;
        Json config;
    };
    for (const Published& published : {Published{"gpt2", gpt2_config(12, 768, 12)},
                                       Published{"gpt2-medium", gpt2_config(24, 1024, 16)},
                                       Published{"gpt2-large", gpt2_config(36, 1280, 20)},
                                       Published{"gpt2-xl", gpt2_config(48, 1600, 25)}}) {
        CAPTURE(published.name);
        const Model expected = make_model(published.name, small_input);
        Model got = model_of_config(published.config);
        CHECK(got.parameters == expected.parameters);
        got.name = expected.name;
        CHECK(got == expected);  // the operations too
    }
}

TEST_CASE("Imported models have as many parameters as their authors say", "[import]") {
    CHECK(parameters_of(gpt2_config(12, 768, 12)) == 124'439'808);
    CHECK(parameters_of(gpt2_config(24, 1024, 16)) == 354'823'168);
    CHECK(parameters_of(gpt2_config(36, 1280, 20)) == 774'030'080);
    CHECK(parameters_of(gpt2_config(48, 1600, 25)) == 1'557'611'200);
    // Llama 2 7B, Llama 3 8B and 70B (8 heads of keys and values), Llama 3.2 1B (tied).
    CHECK(parameters_of(llama_config({32, 4096, 11008, 32, 32, 32000})) == 6'738'415'616);
    CHECK(parameters_of(llama_config({32, 4096, 14336, 32, 8, 128256})) == 8'030'261'248);
    CHECK(parameters_of(llama_config({80, 8192, 28672, 64, 8, 128256})) == 70'553'706'496);
    CHECK(parameters_of(llama_config({16, 2048, 8192, 32, 8, 128256, true})) == 1'235'814'400);
    CHECK(parameters_of(bert_config("BertModel")) == 109'482'240);
    CHECK(parameters_of(bert_config("BertForPreTraining")) == 110'106'428);
    // BertModel less its pooler (590,592), and the head: 590,592 + 2 * 768 + 30,522.
    CHECK(parameters_of(bert_config("BertForMaskedLM")) == 109'514'298);
    // The pooler and a classifier of 2 labels: 109,482,240 + 2 x 769. Without the pooler, of every
    // token: 108,891,648 + 2 x 769, and with 9 labels (CoNLL-2003's) + 9 x 769.
    CHECK(parameters_of(bert_config("BertForSequenceClassification")) == 109'483'778);
    CHECK(parameters_of(bert_config("BertForNextSentencePrediction")) == 109'483'778);
    CHECK(parameters_of(bert_config("BertForMultipleChoice")) == 109'483'009);
    CHECK(parameters_of(bert_config("BertForQuestionAnswering")) == 108'893'186);
    CHECK(parameters_of(changed(bert_config("BertForTokenClassification"), "num_labels", 9)) ==
          108'898'569);
    // Qwen2 0.5B (tied) and 7B.
    CHECK(parameters_of(qwen2_config({24, 896, 4864, 14, 2, 151936, true})) == 494'032'768);
    CHECK(parameters_of(qwen2_config({28, 3584, 18944, 28, 4, 152064})) == 7'615'616'512);
    // Mixtral 8x7B has 46,702,792,704; less 32 x 8 experts of three products of 4096 x 14336.
    CHECK(parameters_of(mixtral_config()) ==
          46'702'792'704 - std::int64_t{32} * 8 * 3 * 4096 * 14336);
    // T5 small, base and large; and 1.1, small and base.
    CHECK(parameters_of(t5_config({6, 512, 2048, 8})) == 60'506'624);
    CHECK(parameters_of(t5_config({12, 768, 3072, 12})) == 222'903'552);
    CHECK(parameters_of(t5_config({24, 1024, 4096, 16})) == 737'668'096);
    CHECK(parameters_of(t5_config({8, 512, 1024, 6, false})) == 76'961'152);
    CHECK(parameters_of(t5_config({12, 768, 2048, 12, false})) == 247'577'856);
    // An untied head is another table.
    CHECK(parameters_of(changed(gpt2_config(12, 768, 12), "tie_word_embeddings", false)) ==
          124'439'808 + 50257 * 768);
}

TEST_CASE("Mistral 7B is a Llama with 8 heads of keys and values", "[import]") {
    Json config = llama_config({32, 4096, 14336, 32, 8, 32000});
    config["model_type"] = "mistral";
    config["architectures"] = {"MistralForCausalLM"};
    config["sliding_window"] = 4096;
    CHECK(parameters_of(config) == 7'241'732'096);
    CHECK(read_hf_config(config, "config.json").assumed.size() == 1);
}

TEST_CASE("Parameters of Llama's variants stand in PyTorch's order", "[import]") {
    Json config = llama_config({1, 64, 128, 4, 2, 100});
    config["attention_bias"] = true;
    config["mlp_bias"] = true;
    config["head_dim"] = 32;  // not 64 / 4
    const Model model = model_of_config(config);
    const std::string layer = "model.layers.0.";
    const std::vector<std::string> expected{"model.embed_tokens.weight",
                                            layer + "self_attn.q_proj.weight",
                                            layer + "self_attn.q_proj.bias",
                                            layer + "self_attn.k_proj.weight",
                                            layer + "self_attn.k_proj.bias",
                                            layer + "self_attn.v_proj.weight",
                                            layer + "self_attn.v_proj.bias",
                                            layer + "self_attn.o_proj.weight",
                                            layer + "self_attn.o_proj.bias",
                                            layer + "mlp.gate_proj.weight",
                                            layer + "mlp.gate_proj.bias",
                                            layer + "mlp.up_proj.weight",
                                            layer + "mlp.up_proj.bias",
                                            layer + "mlp.down_proj.weight",
                                            layer + "mlp.down_proj.bias",
                                            layer + "input_layernorm.weight",
                                            layer + "post_attention_layernorm.weight",
                                            "model.norm.weight",
                                            "lm_head.weight"};
    CHECK(parameter_names(model) == expected);
    // 4 heads of 32 from 64, and 2 of keys.
    CHECK(model.parameters[1].shape == std::vector<std::int64_t>{128, 64});
    CHECK(model.parameters[3].shape == std::vector<std::int64_t>{64, 64});
    CHECK(model.parameters[7].shape == std::vector<std::int64_t>{64, 128});
}

// Recorded by tests/frameworks/record_hf_parameters.py.
TEST_CASE("Small models have the parameters of Hugging Face's own, in its order", "[import]") {
    std::ifstream in(std::string(BUCKETWISE_TEST_DATA_DIR) + "/frameworks/hf_parameters.json");
    REQUIRE(in);
    const Json file = Json::parse(in);
    REQUIRE(file["cases"].size() == 10);
    for (const Json& one : file["cases"]) {
        CAPTURE(one["config"]["architectures"]);
        Json parameters = Json::array();
        for (const Parameter& parameter : model_of_config(one["config"]).parameters) {
            parameters.push_back(Json::array({parameter.name, parameter.shape}));
        }
        CHECK(parameters == one["parameters"]);
        // Each shape survives as the key `model` of a scenario.
        const HfModel model = read_hf_config(one["config"], "config.json");
        const Json written = shape_json(model.shape);
        const ModelChoice again = read_model({&written, "scenario.json", "/workload/model"});
        CHECK(std::get<TransformerShape>(again) == *model.transformer());
    }
}

TEST_CASE("Llama's variants, Falcon and mT5 have as many parameters as published", "[import]") {
    const auto variant = [](const char* type, const char* architecture, const LlamaSizes& sizes,
                            const Json& more) {
        Json config = llama_config(sizes);
        config["model_type"] = type;
        config["architectures"] = {architecture};
        config.update(more);
        return config;
    };
    CHECK(parameters_of(variant("qwen3", "Qwen3ForCausalLM", {28, 1024, 3072, 16, 8, 151936, true},
                                {{"head_dim", 128}})) == 596'049'920);
    CHECK(parameters_of(variant("qwen3", "Qwen3ForCausalLM", {36, 4096, 12288, 32, 8, 151936},
                                {{"head_dim", 128}})) == 8'190'735'360);
    CHECK(parameters_of(variant("gemma2", "Gemma2ForCausalLM", {26, 2304, 9216, 8, 4, 256000, true},
                                {{"head_dim", 256}})) == 2'614'341'888);
    CHECK(parameters_of(variant("olmo2", "Olmo2ForCausalLM", {16, 2048, 8192, 16, 16, 100352},
                                Json::object())) == 1'484'916'736);
    CHECK(parameters_of(variant("phi3", "Phi3ForCausalLM", {32, 3072, 8192, 32, 32, 32064},
                                {{"sliding_window", 2047}})) == 3'821'079'552);
    CHECK(parameters_of({{"model_type", "falcon"},
                         {"architectures", {"FalconForCausalLM"}},
                         {"hidden_size", 4544},
                         {"num_hidden_layers", 32},
                         {"num_attention_heads", 71},
                         {"vocab_size", 65024},
                         {"multi_query", true},
                         {"parallel_attn", true},
                         {"bias", false},
                         {"alibi", false}}) == 6'921'720'704);
    Json mt5 = t5_config({8, 512, 1024, 6, false});
    mt5.update({{"model_type", "mt5"},
                {"architectures", {"MT5ForConditionalGeneration"}},
                {"vocab_size", 250112}});
    CHECK(parameters_of(mt5) == 300'176'768);
    // The first configurations of Llama: another spelling, another key.
    Json first = llama_config({32, 4096, 11008, 32, 32, 32000});
    first["architectures"] = {"LLaMAForCausalLM"};
    first["max_sequence_length"] = 2048;
    first.erase("max_position_embeddings");
    CHECK(parameters_of(first) == 6'738'415'616);
}

TEST_CASE("Of Qwen2's four projections of attention three have biases", "[import]") {
    const Model model = model_of_config(qwen2_config({1, 64, 128, 4, 2, 100}));
    const std::string layer = "model.layers.0.";
    const std::vector<std::string> names = parameter_names(model);
    CHECK(std::vector<std::string>(names.begin() + 1, names.begin() + 9) ==
          std::vector<std::string>{
              layer + "self_attn.q_proj.weight", layer + "self_attn.q_proj.bias",
              layer + "self_attn.k_proj.weight", layer + "self_attn.k_proj.bias",
              layer + "self_attn.v_proj.weight", layer + "self_attn.v_proj.bias",
              layer + "self_attn.o_proj.weight", layer + "mlp.gate_proj.weight"});
    CHECK(read_hf_config(qwen2_config({1, 64, 128, 4, 2, 100}), "").assumed.empty());
}

TEST_CASE("Mixtral's experts are computed, and only its router is reduced with the rest",
          "[import]") {
    CHECK(refusal(mixtral_config()).find("--dense-only") != std::string::npos);
    const HfModel mixtral = read_hf_config(mixtral_config(), "", HfExperts::left_out);
    CHECK(mixtral.assumed.size() == 1);
    TransformerShape shape = *mixtral.transformer();
    shape.layers = 1;
    const Model model = make_transformer("mixtral", shape, small_input);
    const std::string layer = "model.layers.0.";
    CHECK(parameter_names(model) ==
          std::vector<std::string>{
              "model.embed_tokens.weight", layer + "self_attn.q_proj.weight",
              layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight",
              layer + "self_attn.o_proj.weight", layer + "block_sparse_moe.gate.weight",
              layer + "input_layernorm.weight", layer + "post_attention_layernorm.weight",
              "model.norm.weight", "lm_head.weight"});
    // Forward: 8 tokens, each through 2 of 8 experts, so 2 tokens an expert, 3 products each.
    std::int64_t experts = 0;
    for (const Operation& operation : model.operations) {
        if (operation.name.find("experts") != std::string::npos) {
            CHECK(operation.parameters.empty());
            experts += operation.forward.flops;
        }
    }
    CHECK(experts == std::int64_t{2} * 8 * 2 * 3 * 4096 * 14336);
}

TEST_CASE("A vision transformer's norms are registered behind its linear layers", "[import]") {
    const Json config = vit_config();
    const Model model = model_of_config(config);
    CHECK(parameters_of(config) == 86'567'656);  // as published
    const std::vector<std::string> names = parameter_names(model);
    const std::string layer = "vit.encoder.layer.0.";
    REQUIRE(names.size() == 4 + 12 * 16 + 4);
    CHECK(std::vector<std::string>(names.begin(), names.begin() + 21) ==
          std::vector<std::string>{"vit.embeddings.cls_token",
                                   "vit.embeddings.position_embeddings",
                                   "vit.embeddings.patch_embeddings.projection.weight",
                                   "vit.embeddings.patch_embeddings.projection.bias",
                                   layer + "attention.attention.query.weight",
                                   layer + "attention.attention.query.bias",
                                   layer + "attention.attention.key.weight",
                                   layer + "attention.attention.key.bias",
                                   layer + "attention.attention.value.weight",
                                   layer + "attention.attention.value.bias",
                                   layer + "attention.output.dense.weight",
                                   layer + "attention.output.dense.bias",
                                   layer + "intermediate.dense.weight",
                                   layer + "intermediate.dense.bias",
                                   layer + "output.dense.weight",
                                   layer + "output.dense.bias",
                                   layer + "layernorm_before.weight",
                                   layer + "layernorm_before.bias",
                                   layer + "layernorm_after.weight",
                                   layer + "layernorm_after.bias",
                                   "vit.encoder.layer.1.attention.attention.query.weight"});
    CHECK(std::vector<std::string>(names.end() - 4, names.end()) ==
          std::vector<std::string>{"vit.layernorm.weight", "vit.layernorm.bias",
                                   "classifier.weight", "classifier.bias"});
    // The same products as torchvision's, whose attention has one projection for three.
    const auto flops = [](const Model& of) {
        std::int64_t sum = 0;
        for (const Operation& operation : of.operations) {
            sum += operation.forward.flops;
        }
        return sum;
    };
    CHECK(flops(model) == flops(make_model("vit_b_16", {.batch = 1, .image_size = 224})));
    CHECK(parameters_of(changed(config, "qkv_bias", false)) == 86'567'656 - 12 * 3 * 768);
    CHECK(parameters_of(changed(config, "id2label", {{"0", "cat"}, {"1", "dog"}})) ==
          86'567'656 - 998 * 769);
}

TEST_CASE("T5's parameters stand in PyTorch's order, the shared table first", "[import]") {
    const std::vector<std::string> names =
        parameter_names(model_of_config(t5_config({2, 64, 128, 1, false})));
    const std::string encoder = "encoder.block.0.layer.";
    const std::string decoder = "decoder.block.0.layer.";
    CHECK(std::vector<std::string>(names.begin(), names.begin() + 11) ==
          std::vector<std::string>{
              "shared.weight", encoder + "0.SelfAttention.q.weight",
              encoder + "0.SelfAttention.k.weight", encoder + "0.SelfAttention.v.weight",
              encoder + "0.SelfAttention.o.weight",
              encoder + "0.SelfAttention.relative_attention_bias.weight",
              encoder + "0.layer_norm.weight", encoder + "1.DenseReluDense.wi_0.weight",
              encoder + "1.DenseReluDense.wi_1.weight", encoder + "1.DenseReluDense.wo.weight",
              encoder + "1.layer_norm.weight"});
    // The encoder: 10 of its first block, 9 of its second, its last norm.
    REQUIRE(names.size() > 37);
    CHECK(std::vector<std::string>(names.begin() + 20, names.begin() + 37) ==
          std::vector<std::string>{
              "encoder.final_layer_norm.weight", decoder + "0.SelfAttention.q.weight",
              decoder + "0.SelfAttention.k.weight", decoder + "0.SelfAttention.v.weight",
              decoder + "0.SelfAttention.o.weight",
              decoder + "0.SelfAttention.relative_attention_bias.weight",
              decoder + "0.layer_norm.weight", decoder + "1.EncDecAttention.q.weight",
              decoder + "1.EncDecAttention.k.weight", decoder + "1.EncDecAttention.v.weight",
              decoder + "1.EncDecAttention.o.weight", decoder + "1.layer_norm.weight",
              decoder + "2.DenseReluDense.wi_0.weight", decoder + "2.DenseReluDense.wi_1.weight",
              decoder + "2.DenseReluDense.wo.weight", decoder + "2.layer_norm.weight",
              "decoder.block.1.layer.0.SelfAttention.q.weight"});
    CHECK(names[names.size() - 2] == "decoder.final_layer_norm.weight");
    CHECK(names.back() == "lm_head.weight");
    // A tied head is no parameter, and the shared table's gradient is complete when the encoder's
    // embedding, which runs first, has run backward.
    const Model tied = model_of_config(t5_config({2, 64, 128, 1}));
    CHECK(parameter_names(tied).back() == "decoder.final_layer_norm.weight");
    CHECK(tied.operations.front().parameters == std::vector<std::int32_t>{0});
}

TEST_CASE("BERT's heads follow the encoder, the tied bias first", "[import]") {
    const std::vector<std::string> names =
        parameter_names(model_of_config(bert_config("BertForPreTraining")));
    CHECK(names.front() == "bert.embeddings.word_embeddings.weight");
    const std::vector<std::string> tail(names.end() - 9, names.end());
    CHECK(tail ==
          std::vector<std::string>{"bert.pooler.dense.weight", "bert.pooler.dense.bias",
                                   "cls.predictions.bias", "cls.predictions.transform.dense.weight",
                                   "cls.predictions.transform.dense.bias",
                                   "cls.predictions.transform.LayerNorm.weight",
                                   "cls.predictions.transform.LayerNorm.bias",
                                   "cls.seq_relationship.weight", "cls.seq_relationship.bias"});
}

TEST_CASE("What would change the parameters and is not known is refused by its key", "[import]") {
    const Json gpt2 = gpt2_config(12, 768, 12);
    const Json llama = llama_config({16, 2048, 8192, 32, 8, 128256});
    const Json bert = bert_config("BertModel");
    struct Case {
        Json config;
        const char* what;
    };
    for (const Case& bad :
         {Case{Json::array(), "expected a model configuration"},
          Case{Json::object(), "expected the key model_type, got none"},
          Case{changed(gpt2, "model_type", "deepseek_v3"),
               "/model_type: expected gpt2, llama, mistral"},
          Case{changed(gpt2, "model_type", "vit"), "ViTForImageClassification"},
          Case{changed(vit_config(), "patch_size", 15), "divides the images' size (224)"},
          Case{changed(gpt2, "model_type", 7), "/model_type: expected gpt2"},
          Case{changed(gpt2, "n_layer", "twelve"), "/n_layer: expected"},
          Case{changed(gpt2, "n_layer", -1), "/n_layer: expected"},
          Case{changed(gpt2, "n_embd", nullptr), "expected the key n_embd"},
          Case{changed(gpt2, "add_cross_attention", true), "/add_cross_attention: expected false"},
          Case{changed(gpt2, "architectures", {"GPT2ForSequenceClassification"}),
               "/architectures: expected [GPT2LMHeadModel]"},
          Case{changed(gpt2, "architectures", "GPT2LMHeadModel"), "/architectures: expected"},
          Case{changed(llama, "quantization_config", {{"bits", 4}}),
               "/quantization_config: expected none"},
          Case{changed(llama, "mlp_bias", "no"), "/mlp_bias: expected"},
          Case{changed(llama, "architectures", {"LlamaForCausalLM", "Other"}), "/architectures"},
          Case{changed(bert, "position_embedding_type", "relative_key"),
               "/position_embedding_type: expected absolute"},
          Case{changed(bert_config("BertForMaskedLM"), "tie_word_embeddings", false),
               "/tie_word_embeddings: expected true"},
          Case{changed(bert, "architectures", {"BertLMHeadModel"}),
               "/architectures: expected [BertForMaskedLM or BertForPreTraining or BertModel "
               "or "}}) {
        CAPTURE(bad.config.dump());
        const std::string message = refusal(bad.config);
        INFO(message);
        CHECK(message.find("config.json: ") == 0);
        CHECK(message.find(bad.what) != std::string::npos);
    }
}

TEST_CASE("A shape that is written as JSON has only what differs from its family", "[import]") {
    const TransformerShape gpt2 = *read_hf_config(gpt2_config(12, 768, 12), "").transformer();
    CHECK(gpt2 == transformer_shape("gpt2"));
    CHECK(shape_json(gpt2).size() == 8);
    TransformerShape no_biases = gpt2;
    no_biases.linear_bias = no_biases.norm_bias = false;
    CHECK(shape_json(no_biases).at("linear_bias") == false);
    CHECK(shape_json(no_biases).at("norm_bias") == false);
    CHECK(shape_json(no_biases).size() == 10);
    const TransformerShape llama =
        *read_hf_config(llama_config({16, 2048, 8192, 32, 8, 128256, true}), "").transformer();
    CHECK(shape_json(llama).at("key_value_heads") == 8);
    CHECK(shape_json(llama).at("tied_embeddings") == true);
    CHECK(shape_json(llama).size() == 9);
    CHECK(shape_json(read_hf_config(bert_config("BertForMaskedLM"), "").shape).at("bert_head") ==
          "masked_lm");
    const Json labelled = changed(bert_config("BertForTokenClassification"), "id2label",
                                  {{"0", "O"}, {"1", "B"}, {"2", "I"}});
    CHECK(shape_json(read_hf_config(labelled, "").shape).at("labels") == 3);
    const Json t5 = shape_json(read_hf_config(t5_config({8, 512, 1024, 6, false}), "").shape);
    CHECK(t5.at("head_width") == 64);  // 6 x 64 is not 512
    CHECK(t5.at("gated") == true);
    const Json vit = shape_json(read_hf_config(vit_config(), "").shape);
    CHECK(vit.at("family") == "vit");
    CHECK(vit.at("classes") == 1000);
    CHECK_FALSE(vit.contains("query_key_value_bias"));
    CHECK(t5.at("tied_embeddings") == false);
}

}  // namespace bucketwise
