"""Records the parameters of small models of Hugging Face Transformers: names, shapes and order.

usage: record_hf_parameters.py > tests/data/frameworks/hf_parameters.json

Models are built on the meta device, without memory or weights. Written by transformers 5; `config` is what its
config.json holds, and `parameters` are named_parameters() as [name, shape].
"""

import json

import torch
import transformers

LLAMA = dict(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MODELS = {
    "Qwen3ForCausalLM": dict(LLAMA, head_dim=32),
    "Gemma2ForCausalLM": dict(LLAMA, head_dim=32),
    "Gemma3ForCausalLM": dict(LLAMA, head_dim=32),
    "Olmo2ForCausalLM": LLAMA,
    "Phi3ForCausalLM": LLAMA,
    "SmolLM3ForCausalLM": LLAMA,
    "GPTNeoXForCausalLM": {key: LLAMA[key] for key in LLAMA if key != "num_key_value_heads"},
    "FalconForCausalLM": dict(vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4),
    "OPTForCausalLM": dict(vocab_size=100, hidden_size=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4,
                           max_position_embeddings=64, word_embed_proj_dim=64),
    "MT5ForConditionalGeneration": dict(vocab_size=100, d_model=64, d_ff=128, d_kv=16, num_layers=2, num_heads=4),
}


def main():
    cases = []
    for name, settings in MODELS.items():
        model_class = getattr(transformers, name)
        config = model_class.config_class(**settings)
        with torch.device("meta"):
            model = model_class(config)
        written = config.to_dict() | {"architectures": [name]}
        kept = {key: value for key, value in written.items() if isinstance(value, (bool, int, str)) or key in
                ("architectures", "word_embed_proj_dim")}
        cases.append({"config": kept, "parameters": [[n, list(p.shape)] for n, p in model.named_parameters()]})
    lines = ",\n".join(json.dumps(case) for case in cases)
    print(f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
