#!/usr/bin/env python3
"""Writes tests/data/frameworks/megatron.json: what Megatron core's DistributedDataParallel does with gradients.

    pip install torch transformers torchvision megatron-core
    pip install --no-deps --target old/0.15.3 megatron-core==0.15.3     # and any other version
    python3 tests/frameworks/record_megatron.py [old/0.15.3 ...]

usage: record_megatron.py [--only TEXT] [--output FILE] [folder ...]
  folder         another Megatron core to record, besides the one that Python imports
  --only TEXT    only the cases whose description, a line of JSON, contains TEXT; writes nothing but prints them
  --output FILE  write another file

Two to four Gloo ranks on loopback, on a CPU. Megatron is written for GPUs, so some functions of torch.cuda are
replaced, see on_cpu(): the recording is the host's order of issue. The optimizer and the function that ends a step
are Megatron's own. It takes a few minutes. RECORDING_TRACEBACK=1 shows why a case was refused.
"""

import contextlib
import inspect
import logging
import os
import sys
import warnings

os.environ.update(CUDA_VISIBLE_DEVICES="", CUDA_DEVICE_MAX_CONNECTIONS="1")

import torch
import torch.distributed as dist
import torch.utils.cpp_extension

from models import models
from recording import Recorder, distinct, dtype_name, limits, main, record_cases

STEPS = 4
FEW = ("mlp", "encoder", "huge_middle", "shuffled", "odd")
OVERLAP = {"overlap_grad_reduce": True}
SHARDED = {"use_distributed_optimizer": True}
GATHER = {**OVERLAP, **SHARDED, "overlap_param_gather": True}
BFLOAT16 = {"dtype": "bfloat16"}


def cases():
    built = {name: model.make_model() for name, model in models().items()}
    listed = []

    def add(names, which, settings, ranks=2, **more):
        for name in names:
            if name not in built:
                continue
            for size in limits(built[name], which):
                sized = settings if size is None else {**settings, "bucket_size": size}
                listed.append({"model": name, "ranks": ranks, **more, "settings": sized})

    small = [name for name in built if name != "resnet18"]
    for settings in (OVERLAP, {**OVERLAP, **SHARDED}, GATHER):
        add(small, ("middle", "tiny"), settings)
        add(FEW, ("default", "all", "all but first", "last two", "above last two"), settings)
        add(("mlp", "encoder", "huge_middle", "odd"), ("middle", "tiny"), settings, ranks=4)
        add(("mlp", "shuffled", "odd", "tiny_parameters"), ("tiny",), settings, ranks=3)
        add(("mlp", "odd"), ("one",), settings)
        add(("resnet18",), ("middle",), settings)
        add(FEW, ("middle",), {**settings, "average_in_collective": True})
        add(("mlp", "encoder", "huge_middle"), ("middle",), settings, micro_steps=2)
        for more in ({}, {"grad_reduce_in_fp32": True}):
            add(("mlp", "encoder", "shuffled", "mixed_dtypes"), ("middle",), {**settings, **more}, **BFLOAT16)
            add(("mixed_dtypes",), ("middle", "tiny"), {**settings, **more})
        for name, shared in (("tied", 0), ("gpt2", 0), ("encoder", 0), ("mlp", 4)):
            add((name,), ("middle", "tiny", "default"), settings, shared_embedding=shared)
    for settings in ({}, SHARDED):
        add(FEW + ("tied", "frozen", "mixed_dtypes"), ("default", "middle"), settings)
        add(("mlp", "encoder"), ("middle",), settings, micro_steps=2)
        add(("mlp", "mixed_dtypes"), ("middle",), {**settings, "grad_reduce_in_fp32": True}, **BFLOAT16)
    for settings in ({**OVERLAP, **SHARDED}, GATHER):
        high = {**settings, "pad_buckets_for_high_nccl_busbw": True}
        add(("mlp", "huge_embedding", "huge_middle", "encoder"), ("middle", "tiny"), high)
        add(("huge_middle", "mlp"), ("tiny",), high, ranks=3)
        widened = {**settings, "reduce_scatter_with_fp32_accumulation": True}
        add(("mlp", "shuffled"), ("middle",), widened, **BFLOAT16)
    for settings in (OVERLAP, GATHER):
        local = {**settings, "param_name_patterns_for_fp32_local_accumulation": ["all"]}
        add(("mlp",), ("middle",), local, **BFLOAT16)
    return distinct(listed)


class CpuForCuda(torch.overrides.TorchFunctionMode):
    """Makes tensors that ask for device="cuda" on the CPU."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        keywords = dict(keywords or {})
        if str(keywords.get("device")).startswith("cuda"):
            keywords["device"] = "cpu"
        return function(*arguments, **keywords)


class Stream:
    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass


def on_cpu_without_optimizer():
    """Replaces the functions of a GPU that gradients need, before Megatron is imported."""
    # The device of the buffers.
    torch.cuda.current_device = lambda: "cpu"
    # Waited for before and after a collective, where it has a stream of its own.
    torch.cuda.current_stream = lambda *_: Stream()
    torch.cuda.Stream = lambda *_, **__: Stream()
    # Version 0.15 compiles an allocator for inference at import, and goes without it if that fails in this way.
    torch.utils.cpp_extension.load_inline = no_compiler


def on_cpu():
    """Replaces all functions of a GPU, before Megatron is imported. They start no collective and wait for none."""
    on_cpu_without_optimizer()
    # The optimizer makes its flags and norms with device="cuda", and moves norms there.
    CpuForCuda().__enter__()
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    # The optimizer tells parameters by this name.
    type_name = torch.Tensor.type
    torch.Tensor.type = lambda tensor, *arguments, **keywords: (
        type_name(tensor, *arguments, **keywords)
        if arguments or keywords
        else "torch.cuda." + type_name(tensor).split(".")[-1]
    )
    # Gloo has no average. The recorder, which is installed after this, still sees that one was asked for.
    for name in ("all_reduce", "reduce_scatter_tensor"):
        summing(name)


def no_compiler(*_, **__):
    raise RuntimeError("nothing is compiled here")


def summing(name):
    from torch.distributed import distributed_c10d

    original = getattr(dist, name)

    def without_average(*arguments, **keywords):
        if keywords.get("op") == dist.ReduceOp.AVG:
            keywords["op"] = dist.ReduceOp.SUM
        return original(*arguments, **keywords)

    without_average.__signature__ = inspect.signature(original)
    setattr(dist, name, without_average)
    setattr(distributed_c10d, name, without_average)


def import_megatron():
    import megatron.core
    from megatron.core import parallel_state

    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    return megatron.core


def describe_buffers(wrapped, parameters):
    numbers = {id(p): i for i, p in enumerate(parameters)}
    buffers, places = [], {}
    for i, buffer in enumerate(wrapped.buffers):
        buckets = []
        for j, bucket in enumerate(buffer.buckets):
            places[id(bucket)] = [i, j]
            assert bucket.bucket_id == j
            members = [numbers[id(p)] for p in getattr(bucket, "params_list", bucket.params)]
            buckets.append([bucket.offset, bucket.grad_data.numel(), bucket.numel_unpadded, members])
        dtypes = [dtype_name(buffer.grad_dtype), dtype_name(buffer.param_dtype)]
        buffers.append([*dtypes, buffer.numel, buffer.numel_unpadded, buckets])
    groups = [[places[id(bucket)] for bucket in group.buckets] for group in wrapped.bucket_groups]
    described = {"buffers": buffers}
    if groups != [[place] for place in places.values()]:
        described["bucket_groups"] = groups
    return described


def train(recorder, case, rank):
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.distributed import param_and_grad_buffer
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig

    # A bucket group with reduce_scatter_with_fp32_accumulation replaces this one for the rest of the process.
    param_and_grad_buffer.dist_reduce_scatter_func = dist.reduce_scatter_tensor
    make_model, make_batch, loss = models()[case["model"]]
    model = make_model()
    if "dtype" in case:
        model.to(getattr(torch, case["dtype"]))
    recorder.watch(model)
    if case["settings"].get("overlap_param_gather"):
        recorder.watch_forward(model)
    parameters = list(model.parameters())
    if "shared_embedding" in case:
        parameters[case["shared_embedding"]].shared_embedding = True
    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
    settings = dict(case["settings"])
    if "param_name_patterns_for_fp32_local_accumulation" in settings:
        settings["param_name_patterns_for_fp32_local_accumulation"] = ("all",)
    config.bf16 = any(p.dtype == torch.bfloat16 for p in parameters)
    wrapped = DistributedDataParallel(config, DistributedDataParallelConfig(**settings), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=1e-4,
            bf16=config.bf16,
            params_dtype=torch.bfloat16 if config.bf16 else torch.float32,
            use_distributed_optimizer=settings.get("use_distributed_optimizer", False),
            overlap_param_gather=settings.get("overlap_param_gather", False),
        ),
        [wrapped],
    )
    steps, readiness, used = [], [], []
    for step in range(STEPS):
        recorder.start()
        wrapped.zero_grad_buffer()
        optimizer.zero_grad()
        micro_steps = case.get("micro_steps", 1)
        for micro_step in range(micro_steps):
            with contextlib.nullcontext() if micro_step + 1 == micro_steps else wrapped.no_sync():
                value = loss(wrapped, make_batch(rank, STEPS * micro_step + step))
                recorder.mark("forward")
                value.backward()
                recorder.mark("backward")
        finalize_model_grads([wrapped])
        recorder.mark("finalize")
        optimizer.step()
        recorder.mark("step")
        readiness.append(recorder.ready)
        used.append(recorder.used)
        steps.append(recorder.stop())
    # The second step is the first whose forward pass finds gathers under way, and whose sizes are known.
    assert steps[2] == steps[3] and readiness[1] == readiness[2], f"{case}: {steps}"
    assert steps[1] == steps[2], f"{case}: {steps}"
    found = {"readiness": readiness[1], **describe_buffers(wrapped, parameters), "events": steps[1]}
    return {**found, "forward": used[1]} if used[1] else found


def record(rank, ranks, folder, wanted):
    models()  # some are in packages that want to see the real torch.cuda when they are imported
    on_cpu()
    recorder = Recorder()
    recorder.install()
    if folder:
        sys.path.insert(0, folder)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    return record_cases(recorder, train, wanted, rank, import_megatron().__version__)


if __name__ == "__main__":
    main(__doc__, "megatron", "megatron-core", cases(), record)
