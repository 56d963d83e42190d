#!/usr/bin/env python3
"""Writes small lists of the collectives of real training steps: flight recorder dumps and an execution trace.

usage: make_logs.py OUTPUT_FOLDER [FORM...]

Every form runs on the CPU, its ranks over Gloo on loopback. A flight recorder's dump is written of each rank, to
OUTPUT_FOLDER/fr_FORM_rankN.pickle.gz or .json.gz; `execution_trace` writes rank 0's execution_trace.json.gz. The
stored ones were made by PyTorch 2.15.0; the tests read the stored ones, so they need no PyTorch.

Collectives, their sizes and their order follow from the form. Times differ each time. Stack frames are left out but for
one form, in which the folders of this machine are made unreadable. Of the execution trace only arithmetic (aten::) is
left out. Bytes are reproducible from dumps: gzip stores no time and no name.
"""

import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from torch import nn

from make_traces import linears
from on_ranks import run_on_ranks

STEPS = 8


def train(model, optimizer=None, after=None, steps=STEPS):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 512)).square().mean().backward()
        if after:
            after()
        optimizer.step()


# --- forms: what a rank runs ------------------------------------------------------------------------------


def ddp():
    """Two buckets of two layers each, which sizes do not tell apart."""
    train(nn.parallel.DistributedDataParallel(linears(4), bucket_cap_mb=2))


def default_caps():
    """A first bucket of one layer, and one of the other two."""
    train(nn.parallel.DistributedDataParallel(linears(3)))


def unused():
    train(nn.parallel.DistributedDataParallel(linears(3), find_unused_parameters=True))


def fp16_hook():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = nn.parallel.DistributedDataParallel(linears(3))
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model)


def metrics():
    """The loss is averaged in every step, and counts now and then."""
    model = nn.parallel.DistributedDataParallel(linears(3))
    calls = []

    def average():
        calls.append(None)
        dist.all_reduce(torch.zeros(1))
        if len(calls) % 3 == 0:
            dist.all_reduce(torch.zeros(100, dtype=torch.long))

    train(model, after=average)


def tensor_parallel():
    """Two replicas of two parallel ranks: each layer's activations are summed over one group, its gradients over another."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    tp = mesh["tp"].get_group()

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            x = x.clone()
            dist.all_reduce(x, group=tp)
            return x

        @staticmethod
        def backward(context, gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=tp)
            return gradient

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(512, 512)

        def forward(self, x):
            return Sum.apply(self.linear(x))

    model = nn.Sequential(*[Layer() for _ in range(3)])
    train(nn.parallel.DistributedDataParallel(model, process_group=mesh["dp"].get_group()))


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    model = linears(3)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    train(model)


# Ranks, what runs, how dumps are written: a number is of a ring buffer's entries. 16 hold all steps but the first
# iteration, 12 begin in mid-step.
FORMS = {
    "ddp": (2, ddp, "pickle"),
    "ddp_json": (2, ddp, "json"),
    "ddp_frames": (2, ddp, "frames"),
    "ddp_4": (4, ddp, "pickle"),
    "ring": (2, ddp, 16),
    "default_caps": (2, default_caps, "pickle"),
    "unused": (2, unused, "pickle"),
    "fp16_hook": (2, fp16_hook, "pickle"),
    "metrics": (2, metrics, "pickle"),
    "ring_metrics": (2, metrics, 12),
    "tensor_parallel": (4, tensor_parallel, "pickle"),
    "fsdp2": (2, fsdp2, "pickle"),
    "execution_trace": (2, None, "observer"),
}


# --- writing ----------------------------------------------------------------------------------------------


def write(path, data):
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(data)


def without_folders(dump):
    """Strings of a pickle say how long they are: folders become as many x."""
    for folder in (sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2]), tempfile.gettempdir()):
        dump = dump.replace(folder.encode(), b"x" * len(folder.encode()))
    return dump


def dump_of(how):
    c10d = torch._C._distributed_c10d
    if how == "json":
        text = c10d._dump_fr_trace_json()
        return text if isinstance(text, bytes) else text.encode()
    return without_folders(c10d._dump_fr_trace(includeStackTraces=how == "frames"))


def observe(output):
    from torch.profiler import ExecutionTraceObserver

    model = nn.parallel.DistributedDataParallel(linears(3))
    train(model, steps=3)
    if dist.get_rank() > 0:
        train(model, steps=2)
        return
    with tempfile.TemporaryDirectory() as folder:
        observer = ExecutionTraceObserver().register_callback(f"{folder}/trace.json")
        observer.start()
        train(model, steps=2)
        observer.stop()
        observer.unregister_callback()
        trace = json.loads(Path(folder, "trace.json").read_text())
    trace["nodes"] = [node for node in trace["nodes"] if not node["name"].startswith("aten::")]
    write(f"{output}/execution_trace.json.gz", json.dumps(trace, separators=(",", ":")).encode())


def run(rank, _, form, output):
    _, train_form, how = FORMS[form]
    torch.manual_seed(rank)
    if how == "observer":
        return observe(output)
    train_form()
    kind = "json" if how == "json" else "pickle"
    write(f"{output}/fr_{form}_rank{rank}.{kind}.gz", dump_of(how))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    output, forms = sys.argv[1], sys.argv[2:] or list(FORMS)
    for form in forms:
        ranks, _, how = FORMS[form]
        entries = str(how if isinstance(how, int) else 2000)
        run_on_ranks(run, ranks, form, os.path.abspath(output), variables={"TORCH_FR_BUFFER_SIZE": entries})
        print(form)


if __name__ == "__main__":
    main()
