#!/usr/bin/env python3
"""Writes tests/data/frameworks/deepspeed.json: the collectives of DeepSpeed's ZeRO stages 0, 1 and 2.

    pip install torch transformers torchvision deepspeed
    pip install --no-deps --no-build-isolation --target old/0.14.2 deepspeed==0.14.2     # and any other version
    python3 tests/frameworks/record_deepspeed.py [old/0.14.2 ...]

usage: record_deepspeed.py [--only TEXT] [--output FILE] [folder ...]
  folder         another DeepSpeed to record, besides the one that Python imports
  --only TEXT    only the cases whose description, a line of JSON, contains TEXT; writes nothing but prints them
  --output FILE  write another file

Two and four Gloo ranks on loopback, on a CPU, where DeepSpeed has no streams: the recording is the host's order of
issue. It takes about ten minutes. RECORDING_TRACEBACK=1 shows why a case was refused.
"""

import gc
import logging
import os
import sys

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", DS_BUILD_OPS="0")

import torch

from models import models
from recording import Recorder, distinct, limits, main, record_cases

# Beside the settings of a case; the optimizer is torch.optim.AdamW.
CONSTANT = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True, "steps_per_print": 10**9}
STEPS = 3

# Models for settings that are not tried on all of them.
FEW = ("mlp", "encoder", "huge_middle", "shuffled", "odd")
TWO = ("huge_middle", "shuffled")
BFLOAT16 = {"bf16": {"enabled": True}}
FP32_SUMS = {"data_types": {"grad_accum_dtype": "fp32"}}
FP32_SENT = {"communication_data_type": "fp32"}


def case(model, stage, ranks=2, accumulation=1, groups=None, more=None, **zero):
    settings = {"zero_optimization": {"stage": stage, **{k: v for k, v in zero.items() if v is not None}}}
    if accumulation > 1:
        settings["gradient_accumulation_steps"] = accumulation
    settings.update(more or {})
    return {"model": model, "ranks": ranks, "settings": settings, **({"groups": groups} if groups else {})}


def cases():
    built = {name: model.make_model() for name, model in models().items()}
    both = [(stage, overlap) for stage in (1, 2) for overlap in (False, True)]
    listed = []

    def add(names, which, options, **zero):
        for name in names:
            for limit in limits(built[name], which):
                for stage, overlap in options:
                    listed.append(case(name, stage, overlap_comm=overlap, reduce_bucket_size=limit, **zero))

    # A model with two dtypes is one that ZeRO refuses, or flattens into one dtype in bf16.
    plain = [name for name in built if name not in ("mixed_dtypes", "resnet18")]
    add(plain, ("middle", "tiny"), both)
    add(plain, ("default",), [(1, None), (2, None)])
    add(("resnet18",) if "resnet18" in built else (), ("middle", "default"), both)
    add(FEW, ("all", "all but one", "largest", "below largest", "last two"), [(1, False), (2, True)])
    for more in ({"contiguous_gradients": False}, {"reduce_scatter": False},
                 {"use_multi_rank_bucket_allreduce": False}):
        add(FEW, ("middle", "tiny"), both, **more)
    add(TWO, ("tiny",), both, contiguous_gradients=False, use_multi_rank_bucket_allreduce=False)
    add(TWO, ("middle",), both, contiguous_gradients=False, reduce_scatter=False)
    add(("frozen", "tiny_parameters", "llama"), ("middle",), both, use_multi_rank_bucket_allreduce=False)
    add(FEW, ("middle",), both, accumulation=2)
    add(("reused",), ("tiny",), both, accumulation=3)
    add(FEW, ("middle", "tiny"), both, ranks=4)
    add(TWO, ("middle",), both, ranks=4, use_multi_rank_bucket_allreduce=False)
    add(("tiny_parameters", "frozen"), ("middle",), [(1, True), (2, False)], ranks=4)
    add(("mlp", "odd", "encoder"), ("middle",), [(1, False), (2, False)], allgather_bucket_size=64)
    add(TWO, ("middle",), [(1, True), (2, True)], round_robin_gradients=True)
    for name in ("mlp", "encoder", "huge_middle", "tied"):
        parameters = [p for p in built[name].parameters() if p.requires_grad]
        groups = [[i for i, p in enumerate(parameters) if p.dim() > 1],
                  [i for i, p in enumerate(parameters) if p.dim() < 2]]
        add((name,), ("middle",), both, groups=groups)
        add((name,), ("tiny",), [(1, False), (2, True)], groups=groups, ranks=4, use_multi_rank_bucket_allreduce=False)
    for more in (BFLOAT16, {**BFLOAT16, **FP32_SENT}, {**BFLOAT16, **FP32_SUMS}, {**BFLOAT16, **FP32_SUMS, **FP32_SENT},
                 {"communication_data_type": "bf16"}, {"communication_data_type": "fp16"}):
        add(("mlp", "shuffled"), ("middle",), both, more=more)
        add(("huge_middle", "mixed_dtypes"), ("tiny",), [(1, False), (2, True)], more=more)
    for more in ({**BFLOAT16, **FP32_SUMS}, {**BFLOAT16, **FP32_SENT}):
        add(("huge_middle",), ("middle",), both, accumulation=2, more=more)
        add(TWO, ("middle",), [(1, True), (2, True)], use_multi_rank_bucket_allreduce=False, more=more)
        add(TWO, ("middle",), [(1, True), (2, True)], contiguous_gradients=False, more=more)
        add(TWO, ("middle",), [(1, True), (2, True)], reduce_scatter=False, more=more)
    add(("mlp", "odd"), ("middle",), [(1, False), (2, True)], more={"fp16": {"enabled": True, "loss_scale": 8}})
    add(("mlp",), ("middle",), [(1, False), (2, False)], more={"gradient_clipping": 1.0})
    add(("mlp",), ("middle",), [(1, False)], reduce_scatter=False, more={"prescale_gradients": True})
    add(TWO, ("middle",), [(2, True), (2, False)], accumulation=2, use_multi_rank_bucket_allreduce=False)
    for name in ("mlp", "shuffled", "odd", "tied"):
        listed.append(case(name, 0))
        listed.append(case(name, 0, accumulation=2))
    listed.append(case("mlp", 0, more=BFLOAT16))
    listed.append(case("mlp", 0, more={**BFLOAT16, **FP32_SENT}))
    return distinct(listed)


def import_deepspeed():
    """DeepSpeed, also one that is older than the PyTorch that is here."""
    import numpy
    from torch.distributed.elastic.agent.server import api

    # DeepSpeed 0.14 imports these at the top, for elastic training and autotuning; nothing here uses them.
    for module, name in ((api, "_get_socket_with_port"), (api, "log"), (numpy, "BUFSIZE")):
        if not hasattr(module, name):
            setattr(module, name, None)
    import deepspeed
    import deepspeed.comm.torch

    # It would compile C++ for a shared-memory all-reduce that only inference calls.
    deepspeed.comm.torch.build_shm_op = lambda: None
    # In older versions it looks for "torch.cpu.FloatTensor", which is not what a CPU's tensors are called, and so
    # reduces nothing at all without contiguous_gradients. On a GPU it finds them.
    deepspeed.runtime.zero.stage_1_and_2.split_half_float_double = split_by_dtype
    # It says that a CPU has no float16, which was so in older versions of PyTorch.
    accelerator = deepspeed.accelerator.get_accelerator()
    accelerator.is_fp16_supported = lambda: True
    accelerator.supported_dtypes = lambda: [torch.float, torch.half, torch.bfloat16]
    return deepspeed


def split_by_dtype(tensors):
    dtypes = (torch.half, torch.float, torch.double, torch.bfloat16)
    buckets = [[t for t in tensors if t.dtype == dtype] for dtype in dtypes]
    return [bucket for bucket in buckets if bucket]


def train(recorder, case, rank):
    import deepspeed

    make_model, make_batch, loss = models()[case["model"]]
    model = make_model()
    recorder.watch(model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [parameters[i] for i in group]} for group in case.get("groups", [])]
    optimizer = torch.optim.AdamW(groups or parameters, lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={**CONSTANT, **case["settings"]})
    assert engine.world_size == case["ranks"]
    steps = []
    readiness = []
    for step in range(STEPS):
        recorder.start()
        for micro_step in range(case["settings"].get("gradient_accumulation_steps", 1)):
            engine_loss = loss(engine, make_batch(rank, STEPS * micro_step + step))
            recorder.mark("forward")
            engine.backward(engine_loss)
            recorder.mark("backward")
            before = len(recorder.events)
            engine.step()
            if len(recorder.events) > before:
                recorder.mark("step")
        readiness.append(recorder.ready)
        steps.append(recorder.stop())
    assert steps[1] == steps[2] and readiness[1] == readiness[2], f"{case}: {steps[1]} {steps[2]}"
    engine.destroy()
    return {"events": steps[1], "readiness": readiness[1]}


def record(rank, ranks, folder, wanted):
    recorder = Recorder()
    recorder.install()
    recorder.mark_autograd()
    if folder:
        sys.path.insert(0, folder)
    deepspeed = import_deepspeed()
    logging.disable(logging.WARNING)
    deepspeed.init_distributed(dist_backend="gloo")
    gc.freeze()  # older versions collect garbage, and print, several times for each optimizer they make
    return record_cases(recorder, train, wanted, rank, deepspeed.__version__.split("+")[0])


if __name__ == "__main__":
    main(__doc__, "deepspeed", "deepspeed", cases(), record)
