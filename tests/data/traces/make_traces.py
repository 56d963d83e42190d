#!/usr/bin/env python3
"""Writes small profiler traces of real data-parallel training steps, one of each form of it.

usage: make_traces.py OUTPUT_FOLDER [FORM...]

Every form runs on the CPU, its ranks over Gloo on loopback, and rank 0's trace of three steps is written to
OUTPUT_FOLDER/FORM.json.gz. The stored ones were made by PyTorch 2.15.0 (ddp_torch_1_13 by 1.13.0); the tests read
the stored ones, so they need no PyTorch.

What is in a trace but for its times follows from the form: models, seeds and caps are fixed. Times differ each time.
Left out is what no reader of traces looks at: arithmetic (aten:: but for what DDP's reducer copies and divides with, and
where blocks are checkpointed),
arrows, metadata, arguments. Bytes are reproducible from events: gzip stores no time and no name.
"""

import contextlib
import gzip
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from on_ranks import run_on_ranks

WARMUP_STEPS = 4  # DDP rebuilds its buckets after the first; compilers compile
STEPS = 3

# --- models and loops ---------------------------------------------------------------------------------


def linears(count=3, width=512):
    """Parameters: weight width², bias width, of each layer; 512: weights of exactly 1 MiB."""
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])


def ddp(model, **options):
    return nn.parallel.DistributedDataParallel(model, **options)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def loop(model, width=512, optimizer=None, before=None, after=None, context=contextlib.nullcontext, micro_steps=1):
    """A step: backward under `context`; `before` and `after` backward whatever the form does there."""
    optimizer = optimizer or sgd(model)

    def step():
        optimizer.zero_grad()
        for micro_step in range(micro_steps):
            last = micro_step + 1 == micro_steps
            with contextlib.nullcontext() if last else model.no_sync():
                with context():
                    loss = model(torch.randn(8, width)).square().mean()
                if before and last:
                    before()
                loss.backward()
        if after:
            after()
        optimizer.step()

    return step


class Checkpointed(nn.Module):
    """Each layer is run a second time in backward."""

    def __init__(self, reentrant):
        super().__init__()
        self.layers = linears()
        self.reentrant = reentrant

    def forward(self, x):
        from torch.utils.checkpoint import checkpoint

        x = x.requires_grad_()
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Unused(nn.Module):
    """A layer amid the others that no forward uses."""

    def __init__(self):
        super().__init__()
        self.first, self.unused, self.last = linears(1, 256), linears(1, 256), linears(1, 256)

    def forward(self, x):
        return self.last(self.first(x))


class Network(nn.Module):
    """Dynamo leaves the forward of PyTorch's own containers uncompiled where it begins with them."""

    def __init__(self, layers, width):
        super().__init__()
        self.layers = linears(layers, width)

    def forward(self, x):
        return self.layers(x)


class Feed(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(self.up(x).relu())


# --- forms --------------------------------------------------------------------------------------------


def plain_ddp(**options):
    return loop(ddp(linears(), **options))


def hook(name):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = ddp(linears())
    model.register_comm_hook(None, getattr(default_hooks, name))
    return loop(model)


def power_sgd():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    # One bucket: over Gloo, what several issue from callbacks may come in another order on each rank.
    model = ddp(linears(), bucket_cap_mb=100)
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return loop(model)


def scaler_and_clip():
    model = ddp(linears())
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.randn(8, 512)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


def compiled(layers, cap_mib):
    """DDPOptimizer cuts the graph where a bucket of `cap_mib` ends."""
    model = ddp(Network(layers, 512), bucket_cap_mb=cap_mib)
    return loop(torch.compile(model), optimizer=sgd(model))


def python_reducer():
    import torch._dynamo

    torch._dynamo.config.optimize_ddp = "python_reducer"
    model = ddp(Network(3, 128), bucket_cap_mb=1)
    compiled_model = torch.compile(model)
    optimizer = sgd(model)

    def step():
        optimizer.zero_grad()
        with torch._dynamo.compiled_autograd._enable(torch.compile):
            compiled_model(torch.randn(8, 128)).square().mean().backward()
        optimizer.step()

    return step


def nested():
    """A wrapped module within another, which leaves the inner one's parameters to it."""
    outer = nn.Sequential(linears(1), linears(1))
    names = [f"1.module.{name}" for name, _ in outer[1].named_parameters()]
    outer[1] = ddp(outer[1])
    nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(outer, names)
    return loop(ddp(outer))


def zero_redundancy():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = ddp(linears(4, 256), bucket_cap_mb=0.3)
    return loop(model, 256, ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.01))


def mesh(shape, *names):
    return dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)


def fsdp2(*shape, **options):
    from torch.distributed.fsdp import fully_shard

    names = ("replicate", "shard")[2 - len(shape) :]
    model = linears(3, 256)
    for module in (*model, model):
        fully_shard(module, mesh=mesh(shape, *names), **options)
    return loop(model, 256)


def fsdp1(strategy, *shape):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    device_mesh = mesh(shape, "replicate", "shard") if shape else None
    options = {"sharding_strategy": ShardingStrategy[strategy], "device_mesh": device_mesh,
               "device_id": torch.device("cpu")}
    model = FullyShardedDataParallel(linears(3, 256), auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), **options)
    return loop(model, 256)


def replicate():
    from torch.distributed._composable.replicate import replicate as composable

    model = linears()
    composable(model)
    return loop(model)


def replicate_by_fsdp():
    from torch.distributed._composable.replicate_with_fsdp import replicate as composable

    model = linears(3, 256)
    for module in (*model, model):
        composable(module, mesh=mesh((2,), "replicate"))
    return loop(model, 256)


def tensor_parallel():
    """Two ranks share each layer, two pairs of them the data."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

    device_mesh = mesh((2, 2), "data", "tensor")
    model = nn.Sequential(Feed(), Feed())
    for layer in model:
        parallelize_module(layer, device_mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    _pre_dp_module_transform(model)
    return loop(ddp(model, process_group=device_mesh["data"].get_group(), bucket_cap_mb=0.5), 256)


def pipeline_parallel():
    """Two stages of two ranks each: activations and their gradients are sent, gradients reduced within a stage."""
    device_mesh = mesh((2, 2), "stage", "data")
    stage, data = device_mesh["stage"].get_group(), device_mesh["data"].get_group()
    model = ddp(linears(2, 256), process_group=data, bucket_cap_mb=0.3)
    optimizer = sgd(model)
    first = device_mesh["stage"].get_local_rank() == 0
    peer = dist.get_global_rank(stage, 1 if first else 0)

    def step():
        optimizer.zero_grad()
        if first:
            out = model(torch.randn(8, 256))
            dist.send(out.detach(), peer)
            grad = torch.empty(8, 256)
            dist.recv(grad, peer)
            out.backward(grad)
        else:
            x = torch.empty(8, 256)
            dist.recv(x, peer)
            x.requires_grad_()
            model(x).square().mean().backward()
            dist.send(x.grad, peer)
        optimizer.step()

    return step


# --- by hand, as courses and Megatron do ---------------------------------------------------------------


def averaged(tensor):
    dist.all_reduce(tensor.div_(2))


def flat_of(gradients):
    return torch._utils._flatten_dense_tensors(gradients)


def copy_back(flat, gradients):
    for gradient, reduced in zip(gradients, torch._utils._unflatten_dense_tensors(flat, gradients)):
        gradient.copy_(reduced)


def hooked(model, reduce, finish, **more):
    """reduce(parameter) as each gradient is ready gives what finish() is given after backward, or nothing."""
    found = []

    def hook(parameter):
        found.extend(reduce(parameter) or [])

    def finish_all():
        for each in found:
            finish(*each)
        found.clear()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    return loop(model, 256, after=finish_all, **more)


def per_parameter_hooks():
    """Each gradient is all-reduced as it becomes ready, and awaited after backward."""
    def reduce(parameter):
        parameter.grad.div_(2)
        return [[dist.all_reduce(parameter.grad, async_op=True)]]

    return hooked(linears(3, 256), reduce, lambda handle: handle.wait())


def bucketed_hooks():
    """Buckets of reversed parameters, flattened, each all-reduced as it is full: CS336's bucketed DDP."""
    model = linears(3, 256)
    parameters = list(reversed(list(model.parameters())))
    buckets, left = [parameters[:2], parameters[2:4], parameters[4:]], []

    def reduce(parameter):
        for i, bucket in enumerate(buckets):
            if any(parameter is other for other in bucket):
                left[i] -= 1
                if left[i] == 0:
                    flat = flat_of([p.grad for p in bucket])
                    return [[dist.all_reduce(flat, async_op=True), flat, bucket]]

    def begin():
        left[:] = [len(bucket) for bucket in buckets]

    def finish(handle, flat, bucket):
        handle.wait()
        flat /= 2
        copy_back(flat, [p.grad for p in bucket])

    return hooked(model, reduce, finish, before=begin)


def after_backward(reduce):
    model = linears(3, 256)
    return loop(model, 256, after=lambda: reduce([parameter.grad for parameter in model.parameters()]))


def flat(gradients):
    whole = flat_of(gradients)
    averaged(whole)
    copy_back(whole, gradients)


def coalesced():
    """Every four gradients are one all-reduce of several tensors, as Megatron issues its buckets."""
    ready = []

    def reduce(parameter):
        ready.append(parameter)
        if len(ready) == 4:
            with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
                for each in ready:
                    dist.all_reduce(each.grad)
            ready.clear()
            return [[manager]]

    return hooked(linears(4, 256), reduce, lambda manager: manager.wait())


FOUR_RANKS = ("ddp_tensor_parallel", "ddp_pipeline", "fsdp1_hybrid", "hsdp_2x2")
# Of the others two; shapes are recorded but for those whose name ends with no_shapes.
FORMS = {
    "ddp": plain_ddp,
    "ddp_views": lambda: plain_ddp(gradient_as_bucket_view=True),
    "ddp_no_shapes": plain_ddp,
    "ddp_views_no_shapes": lambda: plain_ddp(gradient_as_bucket_view=True),
    "ddp_accumulation": lambda: loop(ddp(linears()), micro_steps=3),
    "ddp_bf16_hook": lambda: hook("bf16_compress_hook"),
    "ddp_fp16_hook": lambda: hook("fp16_compress_hook"),
    "ddp_power_sgd": power_sgd,
    "ddp_static_graph": lambda: plain_ddp(static_graph=True, bucket_cap_mb=1),
    "ddp_unused": lambda: loop(ddp(Unused(), find_unused_parameters=True, bucket_cap_mb=0.2), width=256),
    "ddp_none_unused": lambda: plain_ddp(find_unused_parameters=True, bucket_cap_mb=1),
    "ddp_checkpoint": lambda: loop(ddp(Checkpointed(False))),
    "ddp_checkpoint_reentrant": lambda: loop(ddp(Checkpointed(True), static_graph=True)),
    "ddp_autocast": lambda: loop(ddp(linears()), context=lambda: torch.autocast("cpu", torch.bfloat16)),
    "ddp_scaler_clip": scaler_and_clip,
    "ddp_buffers": lambda: loop(ddp(nn.Sequential(*linears(1, 256), nn.BatchNorm1d(256), *linears(1, 256),
                                              nn.BatchNorm1d(256))), width=256),
    "ddp_batched_copy": lambda: plain_ddp(batched_grad_copy=True),
    "ddp_compiled": lambda: compiled(3, 25),
    "ddp_compiled_graphs": lambda: compiled(4, 2),
    "ddp_compiled_reducer": python_reducer,
    "ddp_two_modules": lambda: loop(nn.Sequential(*(ddp(linears(2), bucket_cap_mb=1) for _ in range(2)))),
    "ddp_nested": nested,
    "ddp_tensor_parallel": tensor_parallel,
    "ddp_pipeline": pipeline_parallel,
    "ddp_zero_redundancy": zero_redundancy,
    "ddp_torch_1_13": plain_ddp,
    "replicate": replicate,
    "replicate_by_fsdp": replicate_by_fsdp,
    "fsdp2": lambda: fsdp2(2),
    "fsdp2_no_shapes": lambda: fsdp2(2),
    "fsdp1": lambda: fsdp1("FULL_SHARD"),
    "fsdp1_grad_op": lambda: fsdp1("SHARD_GRAD_OP"),
    "fsdp1_no_shard": lambda: fsdp1("NO_SHARD"),
    "fsdp1_hybrid": lambda: fsdp1("HYBRID_SHARD", 2, 2),
    "hsdp_2x1": lambda: fsdp2(2, 1),
    "hsdp_1x2": lambda: fsdp2(1, 2),
    "hsdp_2x2": lambda: fsdp2(2, 2),
    "per_parameter_hooks": per_parameter_hooks,
    "per_parameter_hooks_no_shapes": per_parameter_hooks,
    "bucketed_hooks": bucketed_hooks,
    "naive_after_backward": lambda: after_backward(lambda gradients: [averaged(each) for each in gradients]),
    "flat_after_backward": lambda: after_backward(flat),
    "coalesced_hooks": coalesced,
}

# --- tracing ------------------------------------------------------------------------------------------

# Of operations these are kept; of annotations all.
KEPT = ("autograd::engine::", "torch::autograd::", "torch::distributed::", "torch.distributed.", "c10d::",
        "_c10d_functional::", "fsdp::", "FSDP::", "record_param_comms", "aten::div_", "aten::_foreach_copy_",
        "CompiledFunction", "Torch-Compiled Region")
HEAD = ("schemaVersion", "record_shapes", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds")
KEPT_ARGUMENTS = ("Input Dims", "Input type", "Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size",
                  "Process Group Name", "Process Group Description")
RECORDED = ("Sequence number", "Fwd thread id")  # by autograd; kept where backward runs forward again


def kept(event):
    name = event["name"]
    is_operation = event.get("cat", "cpu_op") == "cpu_op"  # without Kineto none has a category
    is_kept = name.startswith(("ProfilerStep", "Optimizer", "gloo:", *KEPT)) or name == "aten::mul"
    return event.get("ph") == "X" and (not is_operation or is_kept)


def small(event):
    arguments = {key: event["args"][key] for key in KEPT_ARGUMENTS if key in event.get("args", {})}
    # Only shapes that somebody asks for: a few words of text otherwise, thousands of times.
    if not event["name"].startswith(("torch", "c10d", "_c10d", "fsdp", "gloo", "aten", "record")):
        arguments = {}
    result = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur") if key in event}
    return {**result, "args": arguments} if arguments else result


def write(trace_file, output, with_arithmetic=False):
    document = json.loads(trace_file.read_text())
    # Without Kineto, PyTorch writes a bare list.
    events = document if isinstance(document, list) else document["traceEvents"]
    head = {name: document[name] for name in HEAD if events is not document and name in document}
    processes = {}
    result = []
    for event in events:
        if kept(event) or (with_arithmetic and event.get("cat") == "cpu_op"):
            autograd = {key: event["args"][key] for key in RECORDED if with_arithmetic and key in event.get("args", {})}
            event = small(event)
            if autograd:
                event["args"] = {**event.get("args", {}), **autograd}
            if events is not document:
                event["pid"] = processes.setdefault(event["pid"], len(processes))
            result.append(event)
    whole = result if events is document else {**head, "traceEvents": result}
    text = json.dumps(whole, separators=(",", ":"))
    output.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def trace(rank, _, name, file):
    torch.manual_seed(rank)
    step = FORMS[name]()
    plan = schedule(wait=WARMUP_STEPS - 1, warmup=1, active=STEPS, repeat=1)
    options = {"schedule": plan, "record_shapes": not name.endswith("no_shapes")}
    if rank == 0:
        options["on_trace_ready"] = lambda profiler: profiler.export_chrome_trace(file)
    with profile(activities=[ProfilerActivity.CPU], **options) as profiler:
        for _ in range(WARMUP_STEPS + STEPS):
            step()
            profiler.step()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    output = Path(sys.argv[1])
    names = sys.argv[2:] or [name for name in FORMS if ("1_13" in name) == torch.__version__.startswith("1.13")]
    output.mkdir(parents=True, exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            run_on_ranks(trace, 4 if name in FOUR_RANKS else 2, name, str(file))
            write(file, output / f"{name}.json.gz", name.startswith("ddp_checkpoint"))
        print(f"{name}: {(output / f'{name}.json.gz').stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
