#!/usr/bin/env python3
"""Records what PyTorch's DistributedDataParallel does with gradient buckets, on two Gloo ranks without a GPU.

    pip install torch torchvision transformers
    python3 record_pytorch.py            # writes ../data/frameworks/pytorch.json, in about ten minutes

With PyTorch 1.13 (Debian's python3-torch) it writes pytorch_1.13.json, with the options and models that exist there.
`python3 record_pytorch.py buckets kernels` records and prints those kinds of cases only, and writes nothing.

Four kinds of cases, explained in the file under "provenance":

buckets   the buckets of four iterations, and how many gradients were ready when each was launched
kernels   what the reducer runs for copies, divisions, casts and all-reduces in one backward pass after the rebuild
memory    whose storage the gradients and the buckets are, to the byte
compile   how torch.compile cuts the graph (DDPOptimizer), and what that does to readiness and launches

The dividing lines between kernels come from the profiler's events; everything else is seen by a communication hook that
does what DDP does without one, and by hooks on the gradient accumulators that run before the reducer's.
"""

import contextlib
import gc
import inspect
import json
import os
import re
import sys
import time
import warnings

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from pytorch_compiled import compile_cases, watch_compiled
from pytorch_kernels import kernel_case, kernel_cases
from recording import DATA, DATE, run_on_ranks, texts_of, write_json
from watched import (BATCHED, FIND_UNUSED, HOOKS, ITERATIONS, LAZY, OLD, STATIC, VIEWS, Watched, all_models, describe_model,
                     launches, small_cap, unused_of)

DDP_ARGUMENTS = inspect.signature(DistributedDataParallel.__init__).parameters


# buckets


def watch_buckets(watched, case):
    described = describe_model(case["model"])
    plans, result = [], {}
    found = {"plan": [], "launched_after": [], "backward_ended": [], "index": [], "readiness": [], "launched_in": []}
    for iteration in range(ITERATIONS):
        micro_steps = case.get("micro_steps", 1) if iteration + 1 >= case.get("micro_steps_from", 1) else 1
        watched.indices.clear()
        try:
            steps = watched.step(iteration, micro_steps, set_to_none=case.get("set_to_none", True))
        except RuntimeError as error:
            result["error"] = {"iteration": iteration + 1, **cause_of(error)}
            break
        buckets = [bucket for step in steps for _, _, bucket in launches(step)]
        if buckets not in plans:
            plans.append(buckets)
        after, done = [], []
        for step in steps:
            for i, event in enumerate(step):
                if isinstance(event, tuple):
                    after.append(sum(isinstance(e, int) for e in step[:i]))
                    done.append("graph done" in step[:i])
        order = [event for event in steps[-1] if isinstance(event, int)]
        found["plan"].append(plans.index(buckets))
        found["launched_after"].append(after)
        found["backward_ended"].append(all(done))
        found["index"].append(None if watched.indices == list(range(len(buckets))) else list(watched.indices))
        found["readiness"].append(None if order == described["readiness"] else order)
        found["launched_in"].append(sorted({i + 1 for i, step in enumerate(steps) if launches(step)}))
    result["plans"] = plans
    for key, values in found.items():
        if key in ("index", "readiness") and not any(values) or key == "launched_in" and "micro_steps" not in case:
            continue
        result[key] = values
    if "error" in result:
        return result
    data = watched.ddp._get_ddp_logging_data()
    logged = data.get("rebuilt_per_bucket_param_indices") or ""
    last = ", ".join(" ".join(map(str, bucket)) for bucket in plans[found["plan"][-1]])
    keys = ("bucket_sizes", "rebuilt_bucket_sizes", "has_rebuilt_buckets", "bucket_cap_bytes", "unused_parameter_size")
    logging = {key: data[key] for key in keys if key in data}
    for key in ("bucket_sizes", "rebuilt_bucket_sizes"):
        if isinstance(logging.get(key), str):
            logging[key] = [int(size) for size in logging[key].replace(",", " ").split()]
    result["logging"] = {**logging, "agrees": logged == last if logged else None}
    return result


def bucket_cases():
    every = list(all_models())
    for name in every:
        flips = name == "unused_flips"
        unused = unused_of(name)
        large = name.endswith("_large") or name == "resnet18"
        half, quarter, eighth = small_cap(name)
        yield name, unused, {}
        for cap in [0.5, 1, 4, 25] if large else [25, half, quarter, eighth]:
            yield name, {**unused, "bucket_cap_mb": cap}, {}
        yield name, {**unused, "bucket_cap_mb_list": [1, 2, 8] if large else [eighth, quarter, half]}, {}
        if not flips:
            yield name, {**STATIC, "bucket_cap_mb": quarter}, {}
        if large and not flips:
            yield name, STATIC, {}
        yield name, {**FIND_UNUSED, "bucket_cap_mb": eighth}, {}
    last_cap = {"environment": {"DDP_SET_LAST_BUCKET_CAP": "1"}}
    for name in ("mlp", "encoder", "tied", "reused", "mixed_dtypes", "huge_middle", "unused", "unused_output", "gpt2"):
        if name not in every:
            continue
        half, quarter, eighth = small_cap(name)
        cap = {"bucket_cap_mb": quarter}
        unused = {**unused_of(name), **cap}
        yield name, {**STATIC, **FIND_UNUSED, **cap}, {}
        yield name, {**STATIC, "bucket_cap_mb_list": [eighth, half]}, {}
        yield name, {**FIND_UNUSED, "bucket_cap_mb_list": [eighth, half]}, {}
        for more, extra in ((VIEWS, {}), (VIEWS, {"set_to_none": False}), (BATCHED, {}), (LAZY, {})):
            yield name, {**unused, **more}, extra
        yield name, {**BATCHED, **VIEWS, **STATIC, **cap}, {}
        for hook in HOOKS:
            yield name, unused, {"hook": hook}
        yield name, {**STATIC, **cap}, {"hook": "fp16"}
        yield name, unused, {"micro_steps": 3}
        for first in (1, 2, 3):
            yield name, {**STATIC, **cap}, {"micro_steps": 3, "micro_steps_from": first}
        yield name, {**unused, **VIEWS}, {"micro_steps": 3, "set_to_none": False}
        yield name, unused, last_cap
    for name in ("mlp_large", "encoder_large", "mixed_large", "unused_large"):
        yield name, unused_of(name), last_cap
        yield name, FIND_UNUSED, {}
        yield name, {**STATIC, **FIND_UNUSED}, {}
    for name in ("unused", "unused_output"):
        yield name, {"bucket_cap_mb": 0.005}, {}  # without find_unused_parameters: an error
        yield name, {**FIND_UNUSED, "skip_all_reduce_unused_params": True, "bucket_cap_mb": 0.005}, {}
    for cap in (0.1, 0.003, 2.5, 0, -1, "25", 1e-7):
        yield "mlp", {"bucket_cap_mb": cap}, {}
    for caps in ([25], [0.01], [0.01, 0.02], [0.02, 0.01], [], [1, 0.01], (0.01, 0.02), 0.01, [0], ["1"]):
        yield "mlp", {"bucket_cap_mb_list": caps}, {}
    yield "mlp", {"bucket_cap_mb": 0.02, "bucket_cap_mb_list": [0.01]}, {}
    yield "mlp_large", {"bucket_cap_mb": 1, "bucket_cap_mb_list": [25]}, {}
    for name, caps in (("mlp_large", [25]), ("resnet18", [25]), ("resnet18", [1, 25])):
        yield name, {"bucket_cap_mb_list": caps}, {}


# memory


def storage_of(tensor):
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr(), storage.nbytes()


def watch_memory(watched, case):
    def measure():
        gradients = dict(storage_of(p.grad) for p in watched.parameters if p.grad is not None)
        buckets = dict(storage_of(buffer) for buffer in watched.buffers.values())
        return {"gradients": sum(gradients.values()), "buckets": sum(buckets.values()),
                "both": sum({**gradients, **buckets}.values()),
                "aliased": sum(p.grad is not None and storage_of(p.grad)[0] in buckets for p in watched.parameters)}

    result = {}
    for iteration in range(ITERATIONS):
        watched.buffers.clear()
        watched.step(iteration, case.get("micro_steps", 1), set_to_none=case["zero_grad"])
    result["after_backward"] = measure()
    watched.ddp.zero_grad(set_to_none=case["zero_grad"])
    result["after_zero_grad"] = measure()
    watched.buffers.clear()
    watched.step(ITERATIONS, case.get("micro_steps", 1), set_to_none=case["zero_grad"])
    result["after_second_backward"] = measure()
    if not OLD:
        from torch.multiprocessing.reductions import StorageWeakRef

        for parameter in watched.parameters:
            parameter.grad = None
        references = [StorageWeakRef(buffer.untyped_storage()) for buffer in watched.buffers.values()]
        watched.buffers.clear()
        watched.events.clear()
        for attempt in range(20):  # an all-reduce's thread lets go of its result a little after it has delivered it
            if any(reference.expired() for reference in references) or attempt < 5:
                time.sleep(0.02)
        result["bucket_alive"] = [not reference.expired() for reference in references]
    return result


def memory_cases():
    for name in ("mlp", "mixed_dtypes", "tied", "unused", "frozen", "odd"):
        cap = {"bucket_cap_mb": small_cap(name)[1], **unused_of(name)}
        for extra in ({}, VIEWS, BATCHED, {**VIEWS, **BATCHED}, LAZY):
            for set_to_none in (True, False):
                yield name, {**cap, **extra}, {"zero_grad": set_to_none}
        for set_to_none in (True, False):
            yield name, {**cap, **LAZY, **VIEWS}, {"zero_grad": set_to_none}
            yield name, {**cap, **VIEWS}, {"zero_grad": set_to_none, "hook": "fp16"}
            yield name, {**cap, **VIEWS}, {"zero_grad": set_to_none, "micro_steps": 3}
        yield name, cap, {"zero_grad": True, "hook": "fp16"}


def watching(watch):
    def run(case, rank):
        with Watched(case["model"], case["options"], rank, case.get("hook")) as watched:
            return watch(watched, case)

    return run


KINDS = {"buckets": (bucket_cases, watching(watch_buckets)), "kernels": (kernel_cases, kernel_case),
         "memory": (memory_cases, watching(watch_memory)), "compile": (compile_cases, watching(watch_compiled)),
     }


def exists(options, extra):
    """Whether this version has these options; those that it lacks are left out rather than recorded as errors."""
    return all(key in DDP_ARGUMENTS for key in options) and (not extra.get("hook") or HOOKS[extra["hook"]])


def cause_of(error):
    """The exception's type and its first lines; the compiler's and the workers' wrappings say where it came from."""
    text = str(error)
    text = re.sub(r"/\S*/(?=site-packages|dist-packages)", "", text)
    text = re.sub(r"0x[0-9a-f]+", "0x...", text)
    inner = error.__cause__ or error.__context__
    return {"type": type(error).__name__, "text": text[:700],
            **({"from": type(inner).__name__} if inner is not None else {})}


def cases_of(kind):
    """Each case once, of those that this version and the installed models have."""
    seen = set()
    for name, options, extra in KINDS[kind][0]():
        # PyTorch 1.13's Gloo has no bfloat16.
        if name not in all_models() or not exists(options, extra) or (
                OLD and (name.startswith("mixed") or extra.get("hook") == "bf16")):
            continue
        case = {"kind": kind, "model": name, "options": options, **extra}
        key = json.dumps(case, sort_keys=True)
        if key not in seen:
            seen.add(key)
            yield key, case


def record(rank, ranks, kind):
    """An error on one rank may leave the other waiting, so a group lives for one case; both fail alike here."""
    warnings.simplefilter("ignore")
    results = []
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), ranks, rank == 0)
    for key, case in cases_of(kind):
        dist.init_process_group("gloo", store=dist.PrefixStore(key, store), rank=rank, world_size=ranks)
        variables = case.get("environment", {})
        os.environ.update(variables)
        try:
            answer = KINDS[kind][1](case, rank)
            gathered = [None] * ranks
            dist.all_gather_object(gathered, answer)
            differ = [key for key in gathered[0] if key != "error" and gathered[0][key] != gathered[1].get(key)]
            if differ:
                answer["ranks_differ_in"] = differ
        except Exception as error:
            answer = {"error": cause_of(error)}
            DistributedDataParallel._active_ddp_module = None  # an exception in forward() leaves it set
        for variable in variables:
            del os.environ[variable]
        dist.destroy_process_group()
        gc.collect()
        results.append({**case, **answer})
        if rank == 0:
            print(*case.values(), answer.get("error", ""), file=sys.stderr, flush=True)
    store.add("ended", 1)
    while rank == 0 and store.add("ended", 0) < ranks:  # the others still need its store
        time.sleep(0.1)
    return results


def provenance():
    versions = {"python": sys.version.split()[0], "torch": torch.__version__}
    for package in ("torchvision", "transformers"):
        with contextlib.suppress(ImportError):
            versions[package] = __import__(package).__version__
    return {"versions": versions, "date": DATE, "command": "python3 record_pytorch.py"}


def main():
    kinds = sys.argv[1:] or [kind for kind in KINDS if not (OLD and kind == "compile")]
    records = [each for kind in kinds for each in run_on_ranks(record, 2, kind, grouped=False)[0]]
    if sys.argv[1:]:
        for each in records:
            print(json.dumps(each, separators=(",", ":")))
        return
    described = {name: describe_model(name) for name in {r["model"]: 0 for r in records}}
    name = "pytorch_1.13.json" if OLD else "pytorch.json"
    write_json(DATA / name, {**provenance(), **texts_of(name)}, described, records)


if __name__ == "__main__":
    main()
