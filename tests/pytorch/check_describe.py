"""Checks bucketwise.torch.describe: described models against those written by hand, published counts, and refusals.

usage: check_describe.py path/to/bucketwise repo_root

Exits with 77 where Python has no PyTorch or transformers. Published configurations that are not part of the project are
looked for in ../shared/cases/hf and left out, said so, where it is not there.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from on_ranks import is_there  # noqa: E402

LLAMA = dict(model_type="llama", architectures=["LlamaForCausalLM"], vocab_size=128256, hidden_size=2048,
             intermediate_size=8192, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=8,
             max_position_embeddings=4096, tie_word_embeddings=True)
# Four layers each, in sizes that are trained.
MODELS = {
    "gpt2": dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_layer=4, n_embd=768, n_head=12,
                 n_positions=1024, vocab_size=50257),
    "bert": dict(model_type="bert", architectures=["BertForMaskedLM"], num_hidden_layers=4, hidden_size=768,
                 intermediate_size=3072, num_attention_heads=12, vocab_size=30522, max_position_embeddings=512),
    "llama": LLAMA,
    "qwen2": dict(LLAMA, model_type="qwen2", architectures=["Qwen2ForCausalLM"]),
    "t5": dict(model_type="t5", architectures=["T5ForConditionalGeneration"], num_layers=4, num_decoder_layers=4,
               d_model=768, d_ff=3072, num_heads=12, d_kv=64, vocab_size=32128, n_positions=512),
    "vit": dict(model_type="vit", architectures=["ViTForImageClassification"], num_hidden_layers=4, hidden_size=768,
                intermediate_size=3072, num_attention_heads=12, image_size=224, patch_size=16, num_channels=3,
                num_labels=1000),
}
# By configuration of ../shared/cases/hf: those that are not written by hand.
PUBLISHED = {"clip_vit_b32": 151277313, "deepseek_v2_lite": 15706484224, "dinov2_base": 86580480,
             "gpt_oss_20b": 20914757184, "mamba_130m": 129135360, "mixtral_8x7b": 46702792704,
             "modernbert_base": 149655232}

# A linear layer whose first factor is frozen, and one that is not used.
OWN = """
import torch

class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = torch.nn.Linear(8, 16)
        self.frozen.requires_grad_(False)
        self.trained = torch.nn.Linear(16, 4)
        self.unused = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.trained(torch.relu(self.frozen(x)))

def make():
    return Own(), torch.zeros(32, 8)

def make_what():
    return 3
"""


def run(command, folder, code=0):
    root = str(Path(sys.argv[2]).resolve())
    variables = dict(os.environ, PYTHONPATH=f"{root}/python", BUCKETWISE_PYTHON=sys.executable)
    done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=folder, timeout=600)
    assert done.returncode == code, (command, done.returncode, done.stdout[-500:], done.stderr[-2000:])
    return done


def described(folder, *arguments):
    run([sys.executable, "-m", "bucketwise.torch.describe", *arguments, "-o", f"{folder}/described.json"], folder)
    return json.loads(Path(folder, "described.json").read_text())


def numel(shape):
    product = 1
    for extent in shape:
        product *= extent
    return product


def flops(model):
    passes = ("forward", "input_gradient", "weight_gradient")
    return sum(operation.get(one, {}).get("flops", 0) for operation in model["operations"] for one in passes)


class Program:
    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def import_hf(self, config, *options):
        done = run([self.binary, "import", "hf", config, "-o", f"{self.folder}/imported.json", *options], self.folder)
        return json.loads(Path(self.folder, "imported.json").read_text()), done.stdout

    def step_ms(self, document):
        Path(self.folder, "s.json").write_text(json.dumps(document))
        done = run([self.binary, "predict", "s.json", "--json", "-"], self.folder)
        return json.loads(done.stdout)["default"]["step_ms"]

    def readiness(self, document):
        """Returns names as they are copied into buckets."""
        Path(self.folder, "s.json").write_text(json.dumps(document))
        run([self.binary, "predict", "s.json", "--set", "/sync/views=false", "--trace", "t.json"], self.folder)
        events = json.loads(Path(self.folder, "t.json").read_text())
        events = events["traceEvents"] if isinstance(events, dict) else events
        device = next(e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == "compute stream")
        copies = [(e["ts"], e["name"]) for e in events if e["tid"] == device and e["name"].startswith("into bucket: ")]
        return [name for _, name in sorted(copies)]


def like_those_by_hand(program, folder):
    for name, config in MODELS.items():
        Path(folder, "config.json").write_text(json.dumps(config))
        is_vit = name == "vit"
        batch = "128" if is_vit else "8"
        length = [] if is_vit else ["--sequence-length", "512"]
        by_hand, printed = program.import_hf("config.json", "--batch", batch, *length)
        document = described(folder, "config.json", "--dtype", "float32", "--batch", batch,
                             *([] if is_vit else ["--sequence", "512"]))
        model = document["workload"]["model"]
        elements = sum(numel(parameter["shape"]) for parameter in model["parameters"])
        assert f": {elements} parameters in {len(model['parameters'])} tensors" in printed, (name, elements, printed)
        tera = float(printed.split(" Tflop")[0].split()[-1])
        assert abs(flops(model) / 1e12 / tera - 1) < 0.01, (name, flops(model), tera)
        assert not document.get("caveats"), (name, document["caveats"])
        same = dict(by_hand, workload=dict(document["workload"], dtype="float32", arithmetic="bfloat16"))
        orders = program.readiness(same), program.readiness(by_hand)
        if is_vit:  # transformers 5 renamed its modules
            orders = [[one.rsplit(".", 1)[-1] for one in order] for order in orders]
        assert orders[0] == orders[1], name
        steps = program.step_ms(same), program.step_ms(by_hand)
        apart = 100 * (steps[0] / steps[1] - 1)
        print(f"{name}: described {steps[0]:.3f} ms, by hand {steps[1]:.3f} ms, {apart:+.2f} %")
        assert abs(steps[0] / steps[1] - 1) < 0.01, (name, steps)


def frozen_and_unused_are_told(folder, program):
    Path(folder, "own.py").write_text(OWN)
    document = described(folder, "own:make")
    model = document["workload"]["model"]
    names = [parameter["name"] for parameter in model["parameters"]]
    assert names == ["trained.weight", "trained.bias", "unused.weight", "unused.bias"]
    assert model["frozen_elements"] == 8 * 16 + 16 and document["workload"]["batch"] == 32
    first, relu, last = model["operations"]
    # x has no gradient and the weight is frozen: the first runs forward alone.
    assert first["forward"]["flops"] == 2 * 32 * 8 * 16 and not {"input_gradient", "weight_gradient"} & first.keys()
    assert last["weight_gradient"]["flops"] == 2 * 32 * 16 * 4
    assert last["parameters"] == ["trained.bias", "trained.weight"]
    assert "input_gradient" not in last
    stated = " ".join(document["caveats"])
    assert "2 parameters, 6 numbers, such as unused.weight, get no gradient" in stated, stated
    assert "144 numbers of frozen parameters" in stated, stated
    program.step_ms(document)
    assert "Module" in run([sys.executable, "-m", "bucketwise.torch.describe", "own:make_what"], folder, 2).stderr


def checkpointing_is_written(folder):
    for typed, written in (("full", "full"), ("operators", "operators"), ("2", {"every": 2})):
        document = described(folder, "own:make", "--checkpointing", typed)
        assert document["workload"]["activation_checkpointing"] == written


def an_incomplete_configuration_says_what_it_lacks(program, folder):
    """Qwen2.5-VL of 3B without its heads: transformers takes another model's, which its sections of positions do not fit."""
    Path(folder, "config.json").write_text(json.dumps(
        dict(model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"], hidden_size=2048,
             num_hidden_layers=2, vision_config=dict(depth=1))))
    done = run([program.binary, "import", "hf", "config.json", "-o", "i.json", "--batch", "1"], folder, 2)
    assert "the configuration does not give num_attention_heads, intermediate_size" in done.stderr, done.stderr


def imports_what_is_not_by_hand(program, folder):
    config = {"model_type": "dinov2", "architectures": ["Dinov2Model"], "num_hidden_layers": 2}
    Path(folder, "config.json").write_text(json.dumps(config))
    document, printed = program.import_hf("config.json", "--batch", "4")
    assert document["workload"]["batch"] == 4 and "Dinov2Model" in printed, printed
    assert program.step_ms(document) > 0
    for config, says in (({"model_type": "dinov2", "quantization_config": {"quant_method": "gptq"}},
                          "/quantization_config: expected none: quantised weights are not trained"),
                         ({"model_type": "no_such_model"}, "/model_type: expected a model that transformers")):
        Path(folder, "config.json").write_text(json.dumps(config))
        done = run([program.binary, "import", "hf", "config.json", "-o", "x.json"], folder, 2)
        assert says in done.stderr, done.stderr


def counts_are_those_published(program, folder, root):
    configs = Path(os.path.abspath(root)).parent / "shared" / "cases" / "hf"
    if not configs.is_dir():
        print("check_describe: published configurations are skipped: no shared/cases beside the project")
        return
    for name, count in PUBLISHED.items():
        length = ["--sequence-length", "64"] if name not in ("dinov2_base",) else []
        _, printed = program.import_hf(str(configs / f"{name}.json"), "--batch", "2", *length)
        assert f": {count} parameters in " in printed, (name, printed)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    for package in ("torch", "transformers"):
        if not is_there(package):
            print(f"check_describe: skipped: {package} is not installed for this Python")
            sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        program = Program(os.path.abspath(sys.argv[1]), folder)
        like_those_by_hand(program, folder)
        frozen_and_unused_are_told(folder, program)
        checkpointing_is_written(folder)
        imports_what_is_not_by_hand(program, folder)
        an_incomplete_configuration_says_what_it_lacks(program, folder)
        counts_are_those_published(program, folder, sys.argv[2])


if __name__ == "__main__":
    main()
