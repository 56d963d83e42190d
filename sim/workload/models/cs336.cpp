// The language model of Stanford CS336's assignments, in its reference implementation's names and
// order: SwiGLU is w2(silu(w1(x)) * w3(x)).
#include "sim/workload/models/builder.h"

namespace bucketwise::models {

Model make_cs336(std::string name, const TransformerShape& shape, const ModelInput& input) {
    return make_llama_like(std::move(name), shape, input,
                           {.embedding = "token_embeddings",
                            .layer = "layers",
                            .attention = "attn",
                            .query = "attn.q_proj",
                            .key = "attn.k_proj",
                            .value = "attn.v_proj",
                            .attention_output = "attn.output_proj",
                            .gate = "ffn.w1",
                            .up = "ffn.w3",
                            .down = "ffn.w2",
                            .feed_forward_order = {"ffn.w1", "ffn.w2", "ffn.w3"},
                            .attention_norm = "ln1",
                            .feed_forward_norm = "ln2",
                            .final_norm = "ln_final",
                            .head = "lm_head"});
}

}  // namespace bucketwise::models
