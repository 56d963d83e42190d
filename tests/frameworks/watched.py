"""A model in PyTorch's DistributedDataParallel whose buckets and gradients are seen by a communication hook that does what
DDP does without one, and by hooks on the gradient accumulators that run before the reducer's."""

import contextlib
import functools

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import models as small
from recording import dtype_name

OLD = torch.__version__.startswith("1.")
MIB = 1 << 20
ITERATIONS = 4
VIEWS, BATCHED, LAZY = {"gradient_as_bucket_view": True}, {"batched_grad_copy": True}, {"lazy_bucket_allocation": True}
STATIC, FIND_UNUSED = {"static_graph": True}, {"find_unused_parameters": True}

# Models with parameters that get no gradient, and some of a few MiB.


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
    """Models and what they are called with, by name."""
    vectors, tokens = (small.vectors, small.mean_square), (small.tokens, small.mean_square)
    found = {"unused": (Unused, vectors), "unused_flips": (lambda: Unused(flips=True), vectors),
             "unused_output": (UnusedOutput, (small.vectors, first_output)),
             "unused_large": (lambda: Unused(width=512), vectors), "mlp_large": (lambda: small.Mlp(640, 12), vectors),
             "deep_large": (lambda: Inside(lambda: small.Mlp(640, 12)), vectors),
             "encoder_large": (lambda: small.Encoder(2000, 256, 6), tokens),
             "huge_middle_large": (lambda: small.HugeMiddle(wide=60_000), vectors),
             "conv_large": (lambda: small.ConvNet((3, 64, 128, 256, 512)), (small.images, small.mean_square)),
             "mixed_large": (lambda: small.Mixed(3000, 512, 4), tokens),
             "tied_large": (lambda: small.Tied(3000, 384), tokens),
             "shuffled_large": (lambda: small.Shuffled((512, 600, 640, 700, 512, 800)), vectors),
             "huge_embedding_large": (lambda: small.HugeEmbedding(6000, 256), tokens)}
    return {name: small.Model(small.seeded(build), *called) for name, (build, called) in found.items()}


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
    dtypes = [dtype_name(p.dtype) for p in parameters]
    return {"numel": [p.numel() for p in parameters], "dtype": dtypes[0] if len(set(dtypes)) == 1 else dtypes,
            "readiness": ready}


def on_accumulated(parameter, callback):
    """Calls back when the gradient has been accumulated, before hooks that are added later, as the reducer's are."""
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return accumulator, accumulator.register_hook(lambda *_: callback())


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
            # Without a hook DDP divides; one that does as DDP does has to.
            return (HOOKS[hook] if hook else default_hooks.allreduce_hook)(group, bucket)

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
                loss.register_hook(lambda _: torch.autograd.Variable._execution_engine.queue_callback(
                    lambda: self.events.append("graph done")))
                loss.backward()
            watched.append(list(self.events))
        return watched


def launches(events):
    return [event for event in events if isinstance(event, tuple)]


def unused_of(name):
    """Options that a model needs whose parameters are not all used."""
    return FIND_UNUSED if name.startswith("unused") else {}


def small_cap(name):
    """Limits, in MiB, that give a model about 2, 4 and 8 buckets."""
    _, parameters = reducer_parameters(all_models()[name].make_model())
    size = sum(p.numel() * p.element_size() for p in parameters) / MIB
    return [float(f"{size / n:.3g}") for n in (2, 4, 8)]
