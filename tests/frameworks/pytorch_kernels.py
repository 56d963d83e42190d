"""The reducer of DistributedDataParallel in one backward pass after the rebuild: copies, divisions, casts and all-reduces,
from the profiler's events."""

import json
import tempfile
from pathlib import Path

import torch
from torch.nn.parallel import DistributedDataParallel

from recording import dtype_name
from watched import BATCHED, HOOKS, ITERATIONS, LAZY, OLD, STATIC, VIEWS, all_models, small_cap, unused_of

TYPES = {"float": "float32", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "int": "int32", "long int": "int64"}
SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}
WATCHED_OPERATIONS = {
    "aten::copy_", "aten::mul", "aten::mul_", "aten::div", "aten::div_", "aten::add", "aten::add_", "aten::_to_copy",
    "aten::zero_", "aten::fill_", "aten::clone", "aten::cat", "c10d::allreduce_", "c10d::broadcast_",
}  # fmt: skip


class Event:
    def __init__(self, thread, start, end, name, shapes, types):
        self.thread, self.start, self.end, self.name, self.shapes, self.types = thread, start, end, name, shapes, types
        self.children = []

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()


def profiled(function):
    """The events on all threads while the function runs, as a forest per thread."""
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True,
                                experimental_config=config) as profiler:
        function()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "trace.json")
        profiler.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())["traceEvents"]
    found = []
    for e in trace:
        if e.get("ph") == "X" and e.get("cat") in ("cpu_op", "user_annotation"):
            arguments = e.get("args", {})
            shapes, types = arguments.get("Input Dims", []), arguments.get("Input type", [])
            found.append(Event(e["tid"], e["ts"], e["ts"] + e["dur"], e["name"], shapes, types))
    forests = {}
    found.sort(key=lambda e: (e.start, -e.end))
    stacks = {}
    for event in found:
        stack = stacks.setdefault(event.thread, [])
        while stack and event.start >= stack[-1].end:
            stack.pop()
        (stack[-1].children if stack else forests.setdefault(event.thread, [])).append(event)
        stack.append(event)
    return forests


def numel(shape):
    if shape and isinstance(shape[0], list):
        return [numel(part) for part in shape]
    product = 1
    for size in shape:
        product *= size
    return product


def flat(elements):
    return sum(elements) if isinstance(elements, list) else elements


def of_reducer(events, inside=""):
    """The outermost watched operations that no backward function of the model runs, as (label, operation)."""
    for event in events:
        name = event.name
        if name.startswith("autograd::engine::evaluate_function") and "AccumulateGrad" not in name:
            continue
        if name == "torch::autograd::AccumulateGrad":
            yield from of_reducer(event.children, "accumulate")
        elif name.startswith(("torch::distributed::reducer::", "torch.distributed.ddp.reducer::")):
            yield from of_reducer(event.children, name.rsplit(":", 1)[1])
        elif name in WATCHED_OPERATIONS or name.startswith("aten::_foreach"):
            yield inside, event
        else:
            yield from of_reducer(event.children, inside)


LABELS = {
    ("mul_out", "mul"): "mul_out",
    ("copy_", "copy_"): "copy_in",
    ("copy_bucket_to_grad", "copy_"): "copy_out",
    ("copy_bucket_to_grad_batched", "_foreach_copy_"): "foreach_copy_out",
    ("", "_foreach_copy_"): "foreach_copy",
    ("", "div_"): "div",
    ("", "_to_copy"): "cast",
    ("", "allreduce_"): "all_reduce",
    ("", "broadcast_"): "broadcast",
}


def dispatched(backward, parameters):
    """For PyTorch 1.13, whose profiler knows neither all-reduces nor types: the calls of the dispatcher.

    The work of an all-reduce's thread is not among them.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    gradients = {p.grad.data_ptr() for p in parameters if p.grad is not None}
    labels = {"mul.out": "mul_out", "div_.Tensor": "div", "div_.Scalar": "div", "zero_.default": "zero_"}
    found = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            operation = str(function).split(".", 1)[1]
            result = function(*args, **(kwargs or {}))
            if str(function).startswith("c10d.allreduce_"):
                found.append(["all_reduce", args[0][0].numel(), dtype_name(args[0][0].dtype)])
            elif operation == "_to_copy.default":
                found.append(["cast", result.numel(), f"{dtype_name(args[0].dtype)}>{dtype_name(result.dtype)}"])
            elif operation == "copy_.default" and args[0].dim():
                found.append(["copy", args[0].numel(), dtype_name(args[0].dtype)])
            elif operation == "add_.Tensor" and args[0].data_ptr() in gradients:
                found.append(["accumulate add_", args[0].numel(), dtype_name(args[0].dtype)])
            elif operation in labels and args[0].dim():
                found.append([labels[operation], args[0].numel(), dtype_name(args[0].dtype)])
            return result

    with Watch():
        backward()
    last = max(i for i, entry in enumerate(found) if entry[0] == "all_reduce")
    for i, entry in enumerate(found):
        if entry[0] == "copy":
            entry[0] = "copy_" if entry[2] == "int32" else "copy_in" if i < last else "copy_out"
    return found


def kernel_case(case, rank):
    make_model, make_batch, loss = all_models()[case["model"]]
    module = make_model()
    ddp = DistributedDataParallel(module, **case["options"])
    if case.get("hook"):
        ddp.register_comm_hook(None, HOOKS[case["hook"]])
    for iteration in range(ITERATIONS):
        loss(ddp, make_batch(rank, iteration)).backward()
        ddp.zero_grad(set_to_none=case["zero_grad"])
    micro_steps = case.get("micro_steps", 1)
    for micro_step in range(micro_steps - 1):
        with ddp.no_sync():
            loss(ddp, make_batch(rank, 50 + micro_step)).backward()
    value = loss(ddp, make_batch(rank, 99))
    if OLD:
        return with_totals({"sequence": dispatched(value.backward, list(module.parameters())), "decompressed": []})
    forests = profiled(value.backward)
    every = [event for forest in forests.values() for root in forest for event in root.walk()]
    reduced = {}  # elements -> dtype, which the launch does not say
    for event in every:
        if event.name == "gloo:all_reduce" and event.types:
            reduced.setdefault(numel(event.shapes[0]), set()).add(TYPES[event.types[0]])
    sequence, decompressed = [], []
    for thread, forest in forests.items():
        for inside, event in of_reducer(forest):
            operation = event.name.split("::")[1]
            if not event.shapes or event.shapes[0] == []:
                continue  # numbers
            label = LABELS.get((inside, operation), f"{inside} {operation}".strip())
            elements = numel(event.shapes[0])
            types = [TYPES.get(t) for t in event.types if TYPES.get(t)]
            dtype = types[0] if types else None
            if label in ("all_reduce", "broadcast"):
                elements = flat(elements)
                known = reduced.get(elements, set())
                dtype = known.pop() if len(known) == 1 else None
                reduced[elements] = {dtype}
            if operation == "_to_copy":
                inner = next(e for e in event.walk() if e.name == "aten::copy_")
                copied = [TYPES[t] for t in inner.types[:2]] or [None, None]
                dtype = f"{copied[1]}>{copied[0]}"
            if operation == "copy_" and len(types) == 2 and types[0] != types[1]:
                dtype = f"{types[1]}>{types[0]}"
            if operation == "_foreach_copy_":
                inner = next((e for e in event.walk() if e.name == "aten::copy_" and e.types), None)
                dtype = TYPES[inner.types[0]] if inner else None
            late = operation == "copy_" and inside == "" and case.get("hook") and dtype != "int32"
            if late:
                label = "decompress"
            (decompressed if late else sequence).append((event.start, [label, elements, dtype]))
    result = {}
    for key, found in (("sequence", sequence), ("decompressed", decompressed)):
        result[key] = [entry for _, entry in sorted(found, key=lambda pair: pair[0])]
    result["decompressed"].sort(key=str)  # the threads' order is not determined
    return with_totals(result)


def with_totals(result):
    entries = result["sequence"]
    for i in range(1, len(entries)):  # the order of a hash set, from which unused parameters come, is not determined
        j = i
        while j and entries[j][0] == entries[j - 1][0] == "zero_" and entries[j] < entries[j - 1]:
            entries[j - 1], entries[j] = entries[j], entries[j - 1]
            j -= 1
    totals = {}
    for label, elements, dtype in result["sequence"] + result["decompressed"]:
        total = totals.setdefault(label, [0, 0, 0])
        total[0] += 1
        total[1] += flat(elements)
        total[2] += flat(elements) * SIZES.get(str(dtype).rsplit(">", 1)[-1], 0)
    return {**result, "totals": totals}


def kernel_cases():
    # PyTorch 1.13's first bucket has 1 MiB whatever the limit, so small models have one bucket there.
    small_ones = ("mlp", "conv_batchnorm", "mixed_dtypes", "tied", "reused", "unused")
    large_ones = ("mlp_large", "conv_large", "tied_large", "shuffled_large", "unused_large")
    for name in large_ones if OLD else small_ones:
        cap = {"bucket_cap_mb": small_cap(name)[1], **unused_of(name)}
        for extra in ({}, VIEWS, BATCHED, {**VIEWS, **BATCHED}, LAZY):
            for set_to_none in (True, False):
                yield name, {**cap, **extra}, {"zero_grad": set_to_none}
        yield name, {**cap, **STATIC}, {"zero_grad": True}
        yield name, {**cap, **LAZY, **VIEWS}, {"zero_grad": True}
        for hook in HOOKS:
            yield name, cap, {"zero_grad": True, "hook": hook}
        for extra in (VIEWS, BATCHED, {**VIEWS, **BATCHED}):
            yield name, {**cap, **extra}, {"zero_grad": True, "hook": "fp16"}
        yield name, {**cap, **VIEWS}, {"zero_grad": False, "hook": "fp16"}
        for extra, set_to_none in (({}, True), (VIEWS, True), (VIEWS, False), (BATCHED, True)):
            yield name, {**cap, **extra}, {"zero_grad": set_to_none, "micro_steps": 2}
