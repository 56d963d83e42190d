#!/usr/bin/env python3
"""Records what PyTorch's DistributedDataParallel does with gradient buckets, on two Gloo ranks without a GPU.

    pip install torch torchvision transformers
    python3 record_pytorch.py            # writes ../data/frameworks/pytorch.json, in about ten minutes

With PyTorch 1.13 (Debian's python3-torch) it writes pytorch_1.13.json, with the options and models that exist there.
`python3 record_pytorch.py buckets kernels` records and prints those kinds of cases only, and writes nothing.

Five kinds of cases, explained in the file under "provenance":

buckets   the buckets of four iterations, and how many gradients were ready when each was launched
kernels   what the reducer runs for copies, divisions, casts and all-reduces in one backward pass after the rebuild
memory    whose storage the gradients and the buckets are, to the byte
compile   how torch.compile cuts the graph (DDPOptimizer), and what that does to readiness and launches
mixed     native mixed precision, or why it does not run

The dividing lines between kernels come from the profiler's events; everything else is seen by a communication hook that
does what DDP does without one, and by hooks on the gradient accumulators that run before the reducer's.
"""

import contextlib
import functools
import gc
import inspect
import json
import os
import re
import socket
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import models as small
from recording import write_json

OUTPUT = Path(__file__).resolve().parent.parent / "data" / "frameworks"
OLD = torch.__version__.startswith("1.")
MEBIBYTE = 1 << 20
ITERATIONS = 4
DDP_ARGUMENTS = inspect.signature(DistributedDataParallel.__init__).parameters

FIELDS = {
    "models": "numel, dtype: by index of the parameter, as DistributedDataParallel counts them: those that need a "
    "gradient, in the order of named_modules(), shared ones once; readiness: the order in which their gradients were "
    "accumulated in an eager backward pass. Sizes in cases are bytes if they say so, else elements",
    "kind": "buckets, kernels, memory, compile or mixed",
    "options": "arguments of DistributedDataParallel besides the module",
    "hook": "the communication hook of default_hooks.py; absent: none",
    "environment": "variables set for the case",
    "micro_steps": "backward passes per iteration, all but the last in no_sync(); absent: 1",
    "micro_steps_from": "the first iteration, from 1, that has them; absent: 1",
    "set_to_none": "of zero_grad(), before each iteration; absent: True",
    "error": "the exception that the case raised, in which iteration, and which exception it was raised from",
    "buckets: plans": "the different lists of buckets, each in the order in which they were launched, as indices of "
    "parameters in the order in which the bucket holds them",
    "buckets: plan": "by iteration, from 1: which of plans it used",
    "buckets: launched_after": "by iteration: how many gradients had been accumulated in this backward pass when each "
    "bucket was launched",
    "buckets: backward_ended": "by iteration: true if every launch came after the backward pass of the graph, that is "
    "after the last gradient and from a callback of the engine rather than from a gradient's hook",
    "buckets: index": "by iteration: GradBucket.index() of the launches, where it is not 0, 1, 2, ...",
    "buckets: readiness": "by iteration, where it is not the model's: the order in which gradients were accumulated",
    "buckets: launched_in": "by iteration: the micro step, from 1, of the launches; only with micro_steps",
    "buckets: logging": "from _get_ddp_logging_data() after the last iteration; sizes in bytes. agrees: whether "
    "rebuilt_per_bucket_param_indices equals the last plan (null: it was empty)",
    "kernels: zero_grad": "what came before the backward pass that was watched: set_to_none=True or False",
    "kernels: sequence": "[operation, elements, dtype] in the order of execution on the thread that runs backward. "
    "mul_out: gradient times 1/ranks into the bucket; zero_: of an unused gradient's place in it, sorted; copy_in: "
    "gradient into the bucket, no factor; copy_: the same, before a div (lazily allocated views); foreach_copy: all of "
    "a bucket's gradients into it, its elements as a list; div: in place; cast: a new tensor, dtype as from>to; int32: "
    "the bitmap of used parameters; "
    "all_reduce: the launch; copy_out: bucket into gradient; foreach_copy_out: the same for all of a bucket; "
    "broadcast: of buffers. accumulate: of AccumulateGrad itself, not of the reducer",
    "kernels: decompressed": "the same for what ran when an all-reduce had ended, on whichever thread; with PyTorch "
    "1.13 it is not seen, nor are broadcasts and fills",
    "kernels: totals": "operation -> [how often, elements, bytes written]",
    "mixed": "native mixed precision makes a torch.Stream(), which needs an accelerator; the text of its error depends "
    "on what the process did before",
    "memory": "bytes of distinct storages: gradients, buckets, both: of the union of the two; aliased: gradients that "
    "lie in a bucket; after_backward, after_zero_grad and after_second_backward. bucket_alive: whether the reducer "
    "still holds the buckets' storage when nobody else does",
    "compile: graphs": "by graph given to the compiler, by operation that takes parameters, in forward order: those "
    "parameters",
    "compile: pieces": "by graph given to the compiler, the pieces that it was cut into, in forward order: [bytes, "
    "indices of parameters in the order in which DDPOptimizer met them, nodes added to get an output]",
    "compile: events": "of iteration 1 and of the last: b: a compiled backward piece ended; a number: that gradient "
    "was accumulated; l<number>: bucket <number> was launched",
    "compile: edges": "of each compiled backward piece, in the order in which they run: where its outputs go, in their "
    "order: a number: that parameter's gradient; b<number>: another such piece; else the name of a node. The engine "
    "puts what is ready into its queue in this order",
    "compile: buckets": "DDP's buckets in iteration 1 and in the last, in launch order",
    "compile: changed_in": "the first iteration whose buckets are not those before",
    "compile: optimizer_caps": "first_bucket_cap and bucket_bytes_cap of each DDPOptimizer that compiled a graph",
    "compile: optimize_ddp, backend": "absent: True, and aot_eager (with the same partitioner, and a note of each "
    "backward piece that ended); there are no such notes with inductor",
}


# Models that are only needed here: those with parameters that get no gradient, and some of a few MiB.


class Unused(nn.Module):
    """Layers 1 and 4 of six are never used; with `flips`, one of them is in every second call."""

    def __init__(self, width=small.WIDTH, flips=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(6))
        self.flips = flips
        if flips:
            self.calls = 0

    def forward(self, x):
        x = x.repeat(1, self.layers[0].in_features // x.shape[1])
        for i, layer in enumerate(self.layers):
            if i not in (1, 4) or (i == 1 and self.flips and self.calls % 2):
                x = torch.tanh(layer(x))
        if self.flips:
            self.calls += 1
        return x


class Inside(nn.Module):
    """Holds a model. torch.compile skips the forward() of nn.Sequential itself, and so all that a bare one does."""

    def __init__(self, build):
        super().__init__()
        self.model = build()

    def forward(self, x):
        return self.model(x)


class UnusedOutput(nn.Module):
    """The second head is used in forward(), but not in the loss."""

    def __init__(self, width=small.WIDTH):
        super().__init__()
        self.body = small.Mlp()
        self.second = nn.Linear(width, width)
        self.first = nn.Linear(width, width)

    def forward(self, x):
        x = self.body(x)
        return self.first(x), self.second(x)


def first_output(model, batch):
    return model(batch)[0].square().mean()


def own_models():
    entry, mean_square = small.Model, small.mean_square
    found = {
        "unused": entry(Unused, small.vectors, mean_square),
        "unused_flips": entry(functools.partial(Unused, flips=True), small.vectors, mean_square),
        "unused_output": entry(UnusedOutput, small.vectors, first_output),
        "unused_large": entry(functools.partial(Unused, width=512), small.vectors, mean_square),
        "mlp_large": entry(functools.partial(small.Mlp, 640, 12), small.vectors, mean_square),
        "deep_large": entry(
            functools.partial(Inside, functools.partial(small.Mlp, 640, 12)), small.vectors, mean_square
        ),
        "encoder_large": entry(functools.partial(small.Encoder, 2000, 256, 6), small.tokens, mean_square),
        "huge_middle_large": entry(functools.partial(small.HugeMiddle, wide=60_000), small.vectors, mean_square),
        "conv_large": entry(functools.partial(small.ConvNet, (3, 64, 128, 256, 512)), small.images, mean_square),
        "mixed_large": entry(functools.partial(small.Mixed, 3000, 512, 4), small.tokens, mean_square),
        "tied_large": entry(functools.partial(small.Tied, 3000, 384), small.tokens, mean_square),
        "shuffled_large": entry(
            functools.partial(small.Shuffled, (512, 600, 640, 700, 512, 800)), small.vectors, mean_square
        ),
        "huge_embedding_large": entry(functools.partial(small.HugeEmbedding, 6000, 256), small.tokens, mean_square),
    }
    return {name: model._replace(make_model=small.seeded(model.make_model)) for name, model in found.items()}


@functools.lru_cache(None)
def all_models():
    return {**small.models(), **own_models()}


def reducer_parameters(module):
    """(names, parameters) as DistributedDataParallel counts them; see _build_params_for_reducer."""
    found = {}
    for prefix, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.requires_grad:
                found.setdefault(parameter, f"{prefix}.{name}" if prefix else name)
    return list(found.values()), list(found)


def short(dtype):
    return str(dtype).replace("torch.", "")


def describe_model(name):
    make_model, make_batch, loss = all_models()[name]
    module = make_model()
    _, parameters = reducer_parameters(module)
    ready, keep = [], []
    for i, parameter in enumerate(parameters):
        keep.append(on_accumulated(parameter, lambda i=i: ready.append(i)))
    loss(module, make_batch(0, 0)).backward()
    for _, handle in keep:
        handle.remove()
    return {
        "numel": [p.numel() for p in parameters],
        "dtype": sorted({short(p.dtype) for p in parameters})[0]
        if len({p.dtype for p in parameters}) == 1
        else [short(p.dtype) for p in parameters],
        "readiness": ready,
    }


def on_accumulated(parameter, callback):
    """Calls back when the gradient has been accumulated, before hooks that are added later, as the reducer's are."""
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return accumulator, accumulator.register_hook(lambda *_: callback())


def average(group, bucket):
    """DistributedDataParallel's behaviour without a hook; the division is here because a hook switches DDP's off."""
    return default_hooks.allreduce_hook(group, bucket)


HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": getattr(default_hooks, "bf16_compress_hook", None)}


class Watched:
    """A model in DistributedDataParallel whose events are written down in self.events."""

    def __init__(self, name, options, rank, hook=None):
        self.make_model, self.make_batch, self.loss = all_models()[name]
        self.rank = rank
        self.events = []
        self.buffers = {}
        self.indices = []
        module = self.make_model()
        self.names, self.parameters = reducer_parameters(module)
        index = {id(p): i for i, p in enumerate(self.parameters)}
        self.keep = [on_accumulated(p, lambda i=i: self.events.append(i)) for i, p in enumerate(self.parameters)]
        self.ddp = DistributedDataParallel(module, **options)
        self.depth = 0

        def watch(group, bucket):
            number = len(launches(self.events))
            self.events.append(("launch", number, [index[id(p)] for p in bucket.parameters()]))
            self.indices.append(bucket.index())
            self.buffers[number] = bucket.buffer()
            return (HOOKS[hook] if hook else average)(group, bucket)

        self.ddp.register_comm_hook(None, watch)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Breaks the circles through C++, which the collector does not see: they would keep every model."""
        for _, handle in self.keep:
            handle.remove()
        self.keep.clear()
        self.buffers.clear()
        self.ddp = self.root = None

    def step(self, iteration, micro_steps=1, model=None, set_to_none=True):
        """One iteration; returns the events of each micro step."""
        watched = []
        self.ddp.zero_grad(set_to_none=set_to_none)
        for micro_step in range(micro_steps):
            self.events.clear()
            last = micro_step == micro_steps - 1
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                batch = self.make_batch(self.rank, 10 * iteration + micro_step)
                loss = self.loss(self.ddp if model is None else model, batch)
                self.root = loss.grad_fn
                # The last node of the graph is not known, so the engine's callback marks the end of the graph:
                # callbacks run in the order of queueing, and this one is queued first.
                loss.register_hook(
                    lambda _: torch.autograd.Variable._execution_engine.queue_callback(
                        lambda: self.events.append("graph done")
                    )
                )
                loss.backward()
            watched.append(list(self.events))
        return watched


def launches(events):
    return [event for event in events if isinstance(event, tuple)]


# buckets


def bucket_case(case, rank):
    with Watched(case["model"], case["options"], rank, case.get("hook")) as watched:
        return watch_buckets(watched, case)


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


def small_cap(name):
    """Limits, in MiB, that give a model about 2, 4 and 8 buckets."""
    _, parameters = reducer_parameters(all_models()[name].make_model())
    size = sum(p.numel() * p.element_size() for p in parameters) / MEBIBYTE
    return [float(f"{size / n:.3g}") for n in (2, 4, 8)]


def bucket_cases():
    every = list(all_models())
    for name in every:
        flips = name == "unused_flips"
        unused = {"find_unused_parameters": True} if name.startswith("unused") else {}
        large = name.endswith("_large") or name == "resnet18"
        half, quarter, eighth = small_cap(name)
        caps = [0.5, 1, 4, 25] if large else [25, half, quarter, eighth]
        yield name, unused, {}
        for cap in caps:
            yield name, {**unused, "bucket_cap_mb": cap}, {}
        yield name, {**unused, "bucket_cap_mb_list": [1, 2, 8] if large else [eighth, quarter, half]}, {}
        if not flips:
            yield name, {"static_graph": True, "bucket_cap_mb": quarter}, {}
        if large and not flips:
            yield name, {"static_graph": True}, {}
        yield name, {"find_unused_parameters": True, "bucket_cap_mb": eighth}, {}
    for name in ("mlp", "encoder", "tied", "reused", "mixed_dtypes", "huge_middle", "unused", "unused_output", "gpt2"):
        if name not in every:
            continue
        half, quarter, eighth = small_cap(name)
        unused = {"find_unused_parameters": True} if name.startswith("unused") else {}
        yield name, {"static_graph": True, "find_unused_parameters": True, "bucket_cap_mb": quarter}, {}
        yield name, {"static_graph": True, "bucket_cap_mb_list": [eighth, half]}, {}
        yield name, {"find_unused_parameters": True, "bucket_cap_mb_list": [eighth, half]}, {}
        yield name, {**unused, "gradient_as_bucket_view": True, "bucket_cap_mb": quarter}, {}
        yield name, {**unused, "gradient_as_bucket_view": True, "bucket_cap_mb": quarter}, {"set_to_none": False}
        yield name, {**unused, "batched_grad_copy": True, "bucket_cap_mb": quarter}, {}
        yield name, {**unused, "lazy_bucket_allocation": True, "bucket_cap_mb": quarter}, {}
        both = {"batched_grad_copy": True, "gradient_as_bucket_view": True, "static_graph": True}
        yield name, {**both, "bucket_cap_mb": quarter}, {}
        for hook in HOOKS:
            yield name, {**unused, "bucket_cap_mb": quarter}, {"hook": hook}
        yield name, {"static_graph": True, "bucket_cap_mb": quarter}, {"hook": "fp16"}
        yield name, {**unused, "bucket_cap_mb": quarter}, {"micro_steps": 3}
        for first in (1, 2, 3):
            yield name, {"static_graph": True, "bucket_cap_mb": quarter}, {"micro_steps": 3, "micro_steps_from": first}
        views = {"gradient_as_bucket_view": True}
        yield name, {**unused, **views, "bucket_cap_mb": quarter}, {"micro_steps": 3, "set_to_none": False}
        yield name, {**unused, "bucket_cap_mb": quarter}, {"environment": {"DDP_SET_LAST_BUCKET_CAP": "1"}}
    for name in ("mlp_large", "encoder_large", "mixed_large", "unused_large"):
        unused = {"find_unused_parameters": True} if name.startswith("unused") else {}
        yield name, unused, {"environment": {"DDP_SET_LAST_BUCKET_CAP": "1"}}
        yield name, {"find_unused_parameters": True}, {}
        yield name, {"static_graph": True, "find_unused_parameters": True}, {}
    for name in ("unused", "unused_output"):
        yield name, {"bucket_cap_mb": 0.005}, {}  # without find_unused_parameters: an error
        yield name, {"find_unused_parameters": True, "skip_all_reduce_unused_params": True, "bucket_cap_mb": 0.005}, {}
    for cap in (0.1, 0.003, 2.5, 0, -1, "25", 1e-7):
        yield "mlp", {"bucket_cap_mb": cap}, {}
    for caps in ([25], [0.01], [0.01, 0.02], [0.02, 0.01], [], [1, 0.01], (0.01, 0.02), 0.01, [0], ["1"]):
        yield "mlp", {"bucket_cap_mb_list": caps}, {}
    yield "mlp", {"bucket_cap_mb": 0.02, "bucket_cap_mb_list": [0.01]}, {}
    yield "mlp_large", {"bucket_cap_mb": 1, "bucket_cap_mb_list": [25]}, {}
    yield "mlp_large", {"bucket_cap_mb_list": [25]}, {}
    yield "resnet18", {"bucket_cap_mb_list": [25]}, {}
    yield "resnet18", {"bucket_cap_mb_list": [1, 25]}, {}


# kernels

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
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, experimental_config=config
    ) as profiler:
        function()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "trace.json")
        profiler.export_chrome_trace(path)
        trace = json.loads(Path(path).read_text())["traceEvents"]
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
                found.append(["all_reduce", args[0][0].numel(), short(args[0][0].dtype)])
            elif operation == "_to_copy.default":
                found.append(["cast", result.numel(), f"{short(args[0].dtype)}>{short(result.dtype)}"])
            elif operation == "copy_.default" and args[0].dim():
                found.append(["copy", args[0].numel(), short(args[0].dtype)])
            elif operation == "add_.Tensor" and args[0].data_ptr() in gradients:
                found.append(["accumulate add_", args[0].numel(), short(args[0].dtype)])
            elif operation in labels and args[0].dim():
                found.append([labels[operation], args[0].numel(), short(args[0].dtype)])
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
    runs_backward = next(e.thread for e in every if "evaluate_function" in e.name)
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
        cap = {"bucket_cap_mb": small_cap(name)[1]}
        if name.startswith("unused"):
            cap["find_unused_parameters"] = True
        views, batched, lazy = "gradient_as_bucket_view", "batched_grad_copy", "lazy_bucket_allocation"
        for extra in ({}, {views: True}, {batched: True}, {views: True, batched: True}, {lazy: True}):
            for set_to_none in (True, False):
                yield name, {**cap, **extra}, {"zero_grad": set_to_none}
        yield name, {**cap, "static_graph": True}, {"zero_grad": True}
        yield name, {**cap, lazy: True, views: True}, {"zero_grad": True}
        for hook in HOOKS:
            yield name, cap, {"zero_grad": True, "hook": hook}
        for extra in ({views: True}, {batched: True}, {views: True, batched: True}):
            yield name, {**cap, **extra}, {"zero_grad": True, "hook": "fp16"}
        yield name, {**cap, views: True}, {"zero_grad": False, "hook": "fp16"}
        yield name, cap, {"zero_grad": True, "micro_steps": 2}
        yield name, {**cap, views: True}, {"zero_grad": True, "micro_steps": 2}
        yield name, {**cap, views: True}, {"zero_grad": False, "micro_steps": 2}
        yield name, {**cap, batched: True}, {"zero_grad": True, "micro_steps": 2}


# memory


def storage_of(tensor):
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return storage.data_ptr(), storage.nbytes()


def memory_case(case, rank):
    with Watched(case["model"], case["options"], rank, case.get("hook")) as watched:
        return watch_memory(watched, case)


def watch_memory(watched, case):

    def measure():
        gradients = dict(storage_of(p.grad) for p in watched.parameters if p.grad is not None)
        buckets = dict(storage_of(buffer) for buffer in watched.buffers.values())
        return {
            "gradients": sum(gradients.values()),
            "buckets": sum(buckets.values()),
            "both": sum({**gradients, **buckets}.values()),
            "aliased": sum(p.grad is not None and storage_of(p.grad)[0] in buckets for p in watched.parameters),
        }

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
        cap = {"bucket_cap_mb": small_cap(name)[1]}
        if name == "unused":
            cap["find_unused_parameters"] = True
        views, batched, lazy = "gradient_as_bucket_view", "batched_grad_copy", "lazy_bucket_allocation"
        for extra in ({}, {views: True}, {batched: True}, {views: True, batched: True}, {lazy: True}):
            for set_to_none in (True, False):
                yield name, {**cap, **extra}, {"zero_grad": set_to_none}
        for set_to_none in (True, False):
            yield name, {**cap, lazy: True, views: True}, {"zero_grad": set_to_none}
            yield name, {**cap, views: True}, {"zero_grad": set_to_none, "hook": "fp16"}
            yield name, {**cap, views: True}, {"zero_grad": set_to_none, "micro_steps": 3}
        yield name, cap, {"zero_grad": True, "hook": "fp16"}


# compile

PATH_OF_SOURCE = re.compile(r"(?:_modules|_parameters)\[['\"]([^'\"]+)['\"]\]|(?<=\.)(\w+)|\[['\"]?(\w+)['\"]?\]")


def parameter_of_source(source, names):
    """The index of the parameter that Dynamo knows as, say, L['self']._modules['layers']._modules['0']..."""
    words = [next(filter(None, groups)) for groups in PATH_OF_SOURCE.findall(source)]
    path = ".".join(word for word in words if word not in ("_modules", "_parameters", "self"))
    matches = [i for i, name in enumerate(names) if path == name or path.endswith("." + name)]
    return max(matches, key=lambda i: len(names[i])) if matches else source


def parameters_of_nodes(graph, index_of):
    """By operation of a graph, in forward order: the parameters among its arguments; without those that have none."""
    found = []
    for node in graph.graph.nodes:
        arguments = [a for a in node.args if isinstance(a, torch.fx.Node) and a.op == "placeholder"]
        found.append([
            index_of(str(argument.target))
            for argument in arguments
            if isinstance(argument.meta["example_value"], nn.Parameter) and argument.meta["example_value"].requires_grad
        ])  # fmt: skip
    return [parameters for parameters in found if parameters]


def compile_case(case, rank):
    torch._dynamo.reset()
    torch._dynamo.config.optimize_ddp = case.get("optimize_ddp", True)
    with Watched(case["model"], case["options"], rank) as watched:
        return watch_compiled(watched, case)


def watch_compiled(watched, case):
    from torch._dynamo.backends import distributed
    from torch._dynamo.backends.common import aot_autograd
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition

    graphs, pieces = [], []
    original = distributed.DDPOptimizer.compile_fn

    def compile_fn(self, graph, example_inputs, **configuration):
        source = {
            str(node.target): node._dynamo_source.name if isinstance(node._dynamo_source.name, str)
            else node._dynamo_source.name()
            for node in graph.graph.nodes
            if node.op == "placeholder"
        }  # fmt: skip
        graphs.append(parameters_of_nodes(graph, lambda name: parameter_of_source(source[name], watched.names)))
        compiled = original(self, graph, example_inputs, **configuration)
        pieces.append(
            [
                [
                    bucket.size,
                    [parameter_of_source(source.get(name, name), watched.names) for name in bucket.params],
                    bucket.opcount_increased_to_capture_external_output,
                ]
                for bucket in self.buckets
            ]
        )
        caps.add((self.first_bucket_cap, self.bucket_bytes_cap))
        return compiled

    def compile_backward(graph, example_inputs):
        def run(*arguments):
            outputs = graph(*arguments)
            watched.events.append("piece done")
            return outputs

        return make_boxed_func(run)

    caps = set()
    watching = aot_autograd(
        fw_compiler=lambda graph, example_inputs: make_boxed_func(graph),
        bw_compiler=compile_backward,
        partition_fn=min_cut_rematerialization_partition,
    )
    backend = "inductor" if case.get("backend") == "inductor" else watching
    distributed.DDPOptimizer.compile_fn = compile_fn
    try:
        compiled = torch.compile(watched.ddp, backend=backend)
        steps = [watched.step(iteration, model=compiled)[0] for iteration in range(ITERATIONS)]
        # A step frees what it saved, but the graph's edges stay as long as its root is held.
        watched.step(ITERATIONS, model=compiled)
        loss_node = watched.root
    finally:
        distributed.DDPOptimizer.compile_fn = original

    seen, order = set(), []  # the order is topological when it is turned round

    def visit(node):
        if node is not None and node not in seen:
            seen.add(node)
            for function, _ in reversed(node.next_functions):
                visit(function)
            order.append(node)

    visit(loss_node)
    nodes = [node for node in reversed(order) if "CompiledFunction" in node.name()]
    index = {id(p): i for i, p in enumerate(watched.parameters)}

    def spelled_edge(function):
        if function in nodes:
            return f"b{nodes.index(function)}"
        return index.get(id(getattr(function, "variable", None)), function.name())

    edges = [[spelled_edge(f) for f, _ in node.next_functions if f is not None] for node in nodes]

    def spelled(events):
        found = []
        for event in events:
            if event == "piece done":
                found.append("b")
            elif isinstance(event, tuple):
                found.append(f"l{event[1]}")
            elif isinstance(event, int):
                found.append(event)
        return found

    buckets = [[bucket for _, _, bucket in launches(events)] for events in steps]
    changed = next((i + 1 for i in range(1, ITERATIONS) if buckets[i] != buckets[i - 1]), None)
    return {
        "optimizer_caps": [list(pair) for pair in caps],
        "graphs": graphs,
        "pieces": pieces,
        "buckets": [buckets[0], buckets[-1]],
        "changed_in": changed,
        "edges": edges,
        "events": [spelled(steps[0]), spelled(steps[-1])],
    }


def compile_cases():
    large = [name for name in all_models() if name.endswith("_large")] + ["resnet18"]
    for name in large:
        yield name, {"find_unused_parameters": True} if name == "unused_large" else {}, {}
        for cap in (1, 2, 5, 25):
            unused = {"find_unused_parameters": True} if name == "unused_large" else {}
            yield name, {**unused, "bucket_cap_mb": cap}, {}
    for name in ("deep_large", "encoder_large", "conv_large"):
        yield name, {"bucket_cap_mb": 0.5}, {}
        yield name, {"bucket_cap_mb": 0.999}, {}
        yield name, {"bucket_cap_mb_list": [1, 2, 4]}, {}
        yield name, {"bucket_cap_mb_list": [4, 1]}, {}
        yield name, {"bucket_cap_mb_list": [0.5, 0.75]}, {}
        yield name, {"bucket_cap_mb": 2, "static_graph": True}, {}
        yield name, {"bucket_cap_mb": 2, "find_unused_parameters": True}, {}
        yield name, {"bucket_cap_mb": 2, "gradient_as_bucket_view": True}, {}
        yield name, {"bucket_cap_mb": 2, "batched_grad_copy": True}, {}
        yield name, {"bucket_cap_mb": 2}, {"optimize_ddp": False}
        yield name, {"bucket_cap_mb": 0.5}, {"optimize_ddp": False}
    for name in ("mlp", "encoder", "gpt2", "llama"):
        yield name, {}, {}
        yield name, {"bucket_cap_mb": 0.01}, {}
        yield name, {"bucket_cap_mb": 0.01}, {"optimize_ddp": False}
    yield "mlp_large", {"bucket_cap_mb": 2}, {"optimize_ddp": False}
    for cap in (1, 5):
        yield "deep_large", {"bucket_cap_mb": cap}, {"backend": "inductor"}


# mixed


def mixed_case(case, rank):
    from torch.nn.parallel.distributed import _MixedPrecision

    precision = {key: getattr(torch, value) for key, value in case["mixed_precision"].items()}
    make_model, make_batch, loss = all_models()[case["model"]]
    ddp = DistributedDataParallel(make_model(), mixed_precision=_MixedPrecision(**precision), **case["options"])
    for iteration in range(ITERATIONS):
        loss(ddp, make_batch(rank, iteration)).backward()
        ddp.zero_grad()
    return {"ran": True}


def mixed_cases():
    for precision in ({"param_dtype": "float16", "reduce_dtype": "float16"}, {"reduce_dtype": "bfloat16"}):
        yield "mlp", {"bucket_cap_mb": 0.01}, {"mixed_precision": precision}


KINDS = {
    "buckets": (bucket_cases, bucket_case),
    "kernels": (kernel_cases, kernel_case),
    "memory": (memory_cases, memory_case),
    "compile": (compile_cases, compile_case),
    "mixed": (mixed_cases, mixed_case),
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
    return {
        "type": type(error).__name__,
        "text": text[:700],
        **({"from": type(inner).__name__} if inner is not None else {}),
    }


def worker(rank, port, kind, path):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    results = []
    seen = set()
    cases, run = KINDS[kind]
    # An error on one rank may leave the other waiting, so a group lives for one case; both fail alike here.
    for name, options, extra in cases():
        if name not in all_models() or not exists(options, extra):
            continue
        if OLD and (name.startswith("mixed") or extra.get("hook") == "bf16"):
            continue  # its Gloo has no bfloat16
        case = {"kind": kind, "model": name, "options": options, **extra}
        key = json.dumps(case, sort_keys=True)
        if key in seen:
            continue
        seen.add(key)
        store = dist.PrefixStore(key, dist.TCPStore("127.0.0.1", port, 2, False))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        os.environ.update(extra.get("environment", {}))
        try:
            answer = run(case, rank)
            gathered = [None, None]
            dist.all_gather_object(gathered, answer)
            differ = [key for key in gathered[0] if key != "error" and gathered[0][key] != gathered[1].get(key)]
            if differ:
                answer["ranks_differ_in"] = differ
        except Exception as error:
            answer = {"error": cause_of(error)}
            DistributedDataParallel._active_ddp_module = None  # an exception in forward() leaves it set
        for variable in extra.get("environment", {}):
            del os.environ[variable]
        dist.destroy_process_group()
        gc.collect()
        results.append({**case, **answer})
        if rank == 0:
            print(kind, name, options, extra, answer.get("error", ""), file=sys.stderr, flush=True)
    if rank == 0:
        Path(path).write_text(json.dumps(results))
    sys.stderr.flush()
    os._exit(0)  # threads of groups that PyTorch 1.13 did not destroy would abort a usual exit


def provenance():
    versions = {"python": sys.version.split()[0], "torch": torch.__version__}
    for package in ("torchvision", "transformers"):
        with contextlib.suppress(ImportError):
            versions[package] = __import__(package).__version__
    return {"versions": versions, "date": "2026-11-25", "command": "python3 record_pytorch.py", "fields": FIELDS}


def main():
    kinds = sys.argv[1:] or [kind for kind in KINDS if not (OLD and kind in ("compile", "mixed"))]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = dist.TCPStore("127.0.0.1", port, 2, True, wait_for_workers=False)
    records = []
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "results.json")
        for kind in kinds:
            torch.multiprocessing.spawn(worker, (port, kind, path), nprocs=2)
            records += json.loads(Path(path).read_text())
    del server
    if sys.argv[1:]:
        for record in records:
            print(json.dumps(record, separators=(",", ":")))
        return
    described = {name: describe_model(name) for name in {r["model"]: 0 for r in records}}
    OUTPUT.mkdir(exist_ok=True)
    write_json(OUTPUT / ("pytorch_1.13.json" if OLD else "pytorch.json"), provenance(), described, records)


if __name__ == "__main__":
    main()
