#!/usr/bin/env python3
"""Writes the golden data in this directory by asking PyTorch itself.

    pip install torch torchvision transformers
    python3 make_golden.py

No weights are downloaded and no GPU is used; it takes about a minute and 2 GB of memory. Everything is seeded, so a
second run with the same versions writes the same bytes.

parameters/<model>.txt   One `name dim0 dim1 ...` per entry of model.named_parameters(): registration order, shared
                         parameters once. Lines that start with # are comments.
bucket_assignment.json   torch.distributed._compute_bucket_assignment_by_size on random inputs.
readiness.json           The order in which a real backward pass finishes the parameters' gradients.
rebuilt_buckets.json     The buckets that DistributedDataParallel uses, in launch order.

Each JSON file explains its fields under "provenance".
"""

import json
import os
import random
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchvision.models.resnet import Bottleneck
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

DIRECTORY = Path(__file__).resolve().parent
MEBIBYTE = 1 << 20
VERSIONS = {"torch": torch.__version__, "torchvision": torchvision.__version__,
            "transformers": transformers.__version__, "date": "2026-11-21", "command": "python3 make_golden.py"}


def write_json(name, key, records):
    """Writes {"provenance": ..., key: [...]} with one record per line, so that a change shows as a readable diff. What
    fields mean stands only in the file, and is taken over."""
    fields = json.loads((DIRECTORY / name).read_text())["provenance"]["fields"]
    provenance = json.dumps({**VERSIONS, "fields": fields}, indent=1)
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    (DIRECTORY / name).write_text(f'{{"provenance":{provenance},\n"{key}":[\n{lines}\n]}}\n')


# The transformer of Stanford CS336, which no library carries. What matters here is the registration order (a block
# holds attn, ffn, ln1, ln2) and the order of operations in forward(); both follow the course's reference model.


class Linear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs).normal_(std=0.02))

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.weight)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))


class SwiGlu(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1 = Linear(width, hidden)
        self.w2 = Linear(hidden, width)
        self.w3 = Linear(width, hidden)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def rotate(x):
    """RoPE on x[batch, head, position, dim]; the angles depend on the position and the pair of dimensions only."""
    position = torch.arange(x.shape[-2], dtype=x.dtype)
    frequency = 10000.0 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angle = torch.outer(position, frequency)
    even, odd = x[..., 0::2], x[..., 1::2]
    pairs = (angle.cos() * even - angle.sin() * odd, angle.sin() * even + angle.cos() * odd)
    return torch.stack(pairs, dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = Linear(width, width)
        self.k_proj = Linear(width, width)
        self.v_proj = Linear(width, width)
        self.output_proj = Linear(width, width)

    def forward(self, x):
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        q, k = rotate(q), rotate(k)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.output_proj((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, hidden, heads):
        super().__init__()
        self.attn = Attention(width, heads)
        self.ffn = SwiGlu(width, hidden)
        self.ln1 = RmsNorm(width)
        self.ln2 = RmsNorm(width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class Cs336Transformer(nn.Module):
    def __init__(self, width, hidden, layers, heads, vocabulary=10_000):
        super().__init__()
        self.token_embeddings = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, hidden, heads) for _ in range(layers))
        self.ln_final = RmsNorm(width)
        self.lm_head = Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.token_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_final(x))


# parameters/


def gpt2(width, layers, heads):
    return GPT2LMHeadModel(GPT2Config(n_embd=width, n_layer=layers, n_head=heads))


def transformer_sizes(width, layers, heads, hidden, vocabulary):
    """Arguments that BertConfig and LlamaConfig share."""
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": hidden,
            "vocab_size": vocabulary}


def bert(width, layers, heads):
    return BertModel(BertConfig(**transformer_sizes(width, layers, heads, 4 * width, 30522)))


def llama(*sizes, **others):
    return LlamaForCausalLM(LlamaConfig(**transformer_sizes(*sizes), tie_word_embeddings=False, **others))


def resnext101_32x4d():
    """NVIDIA's (DeepLearningExamples). torchvision has this structure, but no name for it."""
    return torchvision.models.ResNet(Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4)


# model: (constructor, tensors, elements). The counts are written down so that a new library version cannot change the
# data unnoticed.
MODELS = {
    "resnet18": (torchvision.models.resnet18, 62, 11_689_512),
    "resnet50": (torchvision.models.resnet50, 161, 25_557_032),
    "resnet101": (torchvision.models.resnet101, 314, 44_549_160),
    "resnet152": (torchvision.models.resnet152, 467, 60_192_808),
    "resnext50_32x4d": (torchvision.models.resnext50_32x4d, 161, 25_028_904),
    "resnext101_32x4d": (resnext101_32x4d, 314, 44_177_704),
    "resnext101_32x8d": (torchvision.models.resnext101_32x8d, 314, 88_791_336),
    "vit_b_16": (torchvision.models.vit_b_16, 152, 86_567_656),
    "vgg16": (torchvision.models.vgg16, 32, 138_357_544),
    "gpt2": (lambda: gpt2(768, 12, 12), 148, 124_439_808),
    "gpt2-medium": (lambda: gpt2(1024, 24, 16), 292, 354_823_168),
    "gpt2-large": (lambda: gpt2(1280, 36, 20), 436, 774_030_080),
    "gpt2-xl": (lambda: gpt2(1600, 48, 25), 580, 1_557_611_200),
    "bert-base": (lambda: bert(768, 12, 12), 199, 109_482_240),
    "bert-large": (lambda: bert(1024, 24, 16), 391, 335_141_888),
    "llama-3-8b": (lambda: llama(4096, 32, 32, 14336, 128256, num_key_value_heads=8), 291, 8_030_261_248),
    "llama-7b": (lambda: llama(4096, 32, 32, 11008, 32000), 291, 6_738_415_616),
    "cs336-xl-2025": (lambda: Cs336Transformer(1600, 6400, 48, 25), 435, 1_998_235_200),
    "cs336-xl-2026": (lambda: Cs336Transformer(2560, 10240, 32, 32), 291, 3_406_809_600),
}


def write_parameters():
    (DIRECTORY / "parameters").mkdir(exist_ok=True)
    header = "# " + ", ".join(f"{key}: {value}" for key, value in VERSIONS.items())
    for name, (construct, tensors, elements) in MODELS.items():
        with torch.device("meta"):
            parameters = dict(construct().named_parameters())
        counted = (len(parameters), sum(p.numel() for p in parameters.values()))
        assert counted == (tensors, elements), (name, counted)
        lines = [" ".join([key, *map(str, p.shape)]) for key, p in parameters.items()]
        (DIRECTORY / "parameters" / f"{name}.txt").write_text("\n".join([header, *lines]) + "\n")


# bucket_assignment.json


def random_case(rng):
    """One input. Sizes are log-uniform up to a scale of the case; many limits are the exact size of a run."""
    count = rng.randint(1, 60)
    largest = rng.choice([4, 100, 10_000, 4_000_000, 1 << 32])
    palette = rng.sample(["float32", "float64", "float16", "bfloat16"], rng.randint(1, 4))
    numel = [rng.choices([0, 1, int(largest ** rng.random())], [3, 7, 90])[0] for _ in range(count)]
    dtype = [rng.choice(palette) for _ in range(count)]
    size = [n * getattr(torch, t).itemsize for n, t in zip(numel, dtype)]

    def limit():
        start = rng.randrange(count)
        exact = sum(size[start : start + rng.randint(1, 8)])
        return rng.choices([exact, rng.randint(0, 4 * largest), MEBIBYTE, 2**63 - 1], [45, 45, 5, 5])[0]

    return {"numel": numel, "dtype": dtype, "limits_bytes": [limit() for _ in range(rng.randint(1, 4))],
            "order": rng.choice([None, rng.sample(range(count), count), list(reversed(range(count)))]),
            "sparse": rng.choice([None, None, [rng.random() < 0.1 for _ in range(count)]])}


def assign(case):
    """Adds the answer of PyTorch to a case. Meta tensors have a size and a type, but no memory."""
    parameters = [torch.empty(n, dtype=getattr(torch, t), device="meta") for n, t in zip(case["numel"], case["dtype"])]
    order = case["order"] or range(len(parameters))
    # PyTorch looks tensors up by position, but sparse flags by the value in tensor_indices.
    buckets, limits = dist._compute_bucket_assignment_by_size([parameters[i] for i in order], case["limits_bytes"],
                                                              case["sparse"] or [], case["order"] or [])
    # A full bucket reaches its limit. A sparse bucket reports limit 0.
    sizes = [sum(parameters[i].nbytes for i in bucket) for bucket in buckets]
    not_full = sum(size < limit for size, limit in zip(sizes, limits))
    return {**case, "buckets": buckets, "unordered_tail": not_full if case["order"] else 0}


def write_bucket_assignment():
    rng = random.Random(20261121)
    cases = [assign(random_case(rng)) for _ in range(400)]
    write_json("bucket_assignment.json", "cases", cases)


# readiness.json


def images():
    return torch.randn(2, 3, 64, 64)


def tokens():
    return torch.randint(128, (2, 16))


def bert_loss(model):
    output = model(tokens())
    return output.last_hidden_state.sum() + output.pooler_output.sum()


def language_model_loss(model):
    batch = tokens()
    return model(batch, labels=batch).loss


def small_models():
    """Yields (name, model, function of the model that returns a loss)."""
    for name in ("resnet18", "resnet50", "vgg16"):
        yield name, MODELS[name][0](), lambda model: model(images()).sum()
    config = GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=16, bos_token_id=None,
                        eos_token_id=None)
    yield "gpt2-2-layers", GPT2LMHeadModel(config), language_model_loss
    sizes = (64, 2, 4, 256, 128)
    yield "bert-2-layers", BertModel(BertConfig(**transformer_sizes(*sizes))), bert_loss
    yield "llama-2-layers", llama(*sizes), language_model_loss
    yield "cs336-2-layers", Cs336Transformer(64, 256, 2, 4, vocabulary=128), lambda model: model(tokens()).sum()
    yield "resnext50_32x4d", torchvision.models.resnext50_32x4d(), lambda model: model(images()).sum()
    yield "vit_b_16", torchvision.models.vit_b_16(image_size=64), lambda model: model(images()).sum()


def write_readiness():
    records = []
    for name, model, loss in small_models():
        ready = []
        parameters = dict(model.named_parameters())
        for key, parameter in parameters.items():
            parameter.register_post_accumulate_grad_hook(lambda _, key=key: ready.append(key))
        loss(model).backward()
        assert sorted(ready) == sorted(parameters)
        records.append({"model": name, "parameters": list(parameters), "ready": ready})
    write_json("readiness.json", "models", records)


# rebuilt_buckets.json


DDP_OPTIONS = [{}, {"bucket_cap_mb": 25}, {"bucket_cap_mb": 5}, {"bucket_cap_mb_list": [1, 5, 10]},
               {"find_unused_parameters": True}, {"static_graph": True}]


def launched_buckets(model, options, iterations=4):
    """Returns, per iteration, the parameter indices of each bucket in launch order."""
    index = {id(p): i for i, p in enumerate(model.parameters())}
    launches = []

    def record_launch(_, bucket):
        launches[-1].append([index[id(p)] for p in bucket.parameters()])
        assert bucket.buffer().nbytes == sum(p.nbytes for p in bucket.parameters())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp = DistributedDataParallel(model, **options)
    ddp.register_comm_hook(None, record_launch)
    for _ in range(iterations):
        launches.append([])
        ddp(images()).sum().backward()
    return launches


def write_rebuilt_buckets():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    plans = []
    for name in ("resnet18", "resnet50"):
        for options in DDP_OPTIONS:
            model = MODELS[name][0]()
            size = [p.nbytes for p in model.parameters()]
            launches = launched_buckets(model, options)
            first, final = launches[0], launches[-1]
            rebuilt = launches.index(final)
            assert launches == [first] * rebuilt + [final] * (len(launches) - rebuilt)
            plans.append({"model": name, "options": options,
                          "first_iteration_bytes": [sum(size[i] for i in bucket) for bucket in first],
                          "rebuilt_before_iteration": rebuilt + 1 if rebuilt else None,
                          "bucket_bytes": [sum(size[i] for i in bucket) for bucket in final],
                          "bucket_parameters": final})
    dist.destroy_process_group()
    write_json("rebuilt_buckets.json", "plans", plans)


if __name__ == "__main__":
    torch.manual_seed(0)
    write_parameters()
    write_bucket_assignment()
    write_readiness()
    write_rebuilt_buckets()
