#!/usr/bin/env python3
"""Whether PyTorch computes again what the simulator says, and keeps as much.

usage: check_recompute.py path/to/bucketwise repo_root

A Llama of Hugging Face's, four layers on the CPU: how often backward calls a matrix product, with blocks checkpointed as
torchtitan does it, against the operations of the simulated backward; and the bytes alive after forward, against the
activations that `predict` counts. Skipped (exit code 77) without PyTorch and Transformers.
"""

import functools
import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from checkpointing import options_of

SKIPPED = 77
HIDDEN, INNER, HEADS, LAYERS, VOCABULARY, BATCH, TOKENS = 256, 688, 8, 4, 1000, 2, 256


def made(kind):
    import torch
    from torch.utils.checkpoint import checkpoint
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, vocab_size=VOCABULARY,
                         num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=TOKENS,
                         tie_word_embeddings=False, attn_implementation="sdpa", use_cache=False)
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        if kind != "none":
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False, **options_of(kind))
    return model


def run(kind):
    """Returns the products of backward, and the bytes of the storages that forward made and left alive."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Watch(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.products, self.made = 0, []

        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            result = operation(*args, **(kwargs or {}))
            self.products += operation is torch.ops.aten.mm.default
            for tensor in tree_leaves(result):
                if isinstance(tensor, torch.Tensor):
                    storage = tensor.untyped_storage()
                    self.made.append((StorageWeakRef(storage), storage.nbytes()))
            return result

    model = made(kind)
    tokens = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
    own = {StorageWeakRef(tensor.untyped_storage()).cdata for tensor in (*model.parameters(), *model.buffers(), tokens)}
    with Watch() as forward:
        loss = model(input_ids=tokens, labels=tokens).loss
    gc.collect()
    left = {made.cdata: size for made, size in forward.made if not made.expired() and made.cdata not in own}
    with Watch() as backward:
        loss.backward()
    return backward.products, sum(left.values())


def simulated(program, kind, folder):
    scenario = {
        "name": "recompute",
        "workload": {"model": {"family": "llama", "layers": LAYERS, "hidden": HIDDEN, "feed_forward": INNER,
                               "heads": HEADS, "vocabulary": VOCABULARY, "context": TOKENS},
                     "batch": BATCH, "sequence_length": TOKENS, "device": "A100", "activation_checkpointing": kind},
        "cluster": {"ranks": 2, "link": "nvlink-a100-8"}, "sync": {"strategy": "naive"}, "step": {"optimizer": "sgd"}}
    file = Path(folder) / "scenario.json"
    file.write_text(json.dumps(scenario))
    trace = Path(folder) / "trace.json"
    done = subprocess.run([program, "predict", str(file), "--json", "-"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)["memory"]
    done = subprocess.run([program, "predict", str(file), "--trace", str(trace)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    again = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]
             if event.get("name", "").endswith(" recomputed") and event.get("ph") in "XB"}
    return memory, again


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        print("check_recompute: skipped: PyTorch and Transformers are not installed for this Python")
        sys.exit(SKIPPED)
    logits = 4 * BATCH * TOKENS * VOCABULARY  # freed by Transformers before backward
    with tempfile.TemporaryDirectory() as folder:
        plain, _ = run("none")
        for kind, expected in (("none", 0), ("full", 6), ("operators", 3)):
            products, left = run(kind)
            memory, again = simulated(sys.argv[1], kind, folder)
            ours = sum("_proj recomputed" in name for name in again)
            assert products - plain == expected * LAYERS, f"{kind}: PyTorch ran {products - plain} products again"
            assert ours == expected * LAYERS, f"{kind}: {ours} are simulated: {sorted(again)}"
            counted = memory["activations_bytes"] - logits
            assert abs(counted / left - 1) < 0.03, f"{kind}: {counted} bytes are counted, {left} were alive"
            print(f"{kind}: {ours} products are computed again, as simulated; {left} bytes are left by forward, "
                  f"{counted} are counted")


if __name__ == "__main__":
    main()
