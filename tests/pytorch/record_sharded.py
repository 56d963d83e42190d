#!/usr/bin/env python3
"""Records what FSDP2 of real PyTorch does in a training step: tests/data/fsdp2, which tests/data/fsdp2/README.md describes.

usage: record_sharded.py -o FOLDER [--models perceptron,decoder,...]
       record_sharded.py --check FOLDER [--models ...]: nothing is written; whether what is installed does the same

Every model under every setting, on 2 and on 4 ranks that are processes of this machine and meet over Gloo. In a step
that has settled, the third, the calls of rank 0 are noted in their order, which must be that of all ranks, and the
bytes that hold parameters and gradients. Nothing here is random but the numbers in tensors, and no time is measured.
Checking is skipped (exit code 77) without the PyTorch of the recording.
"""

import argparse
import datetime
import functools
import importlib.metadata
import importlib.util
import json
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from on_ranks import run_on_ranks  # noqa: E402

MODELS = ["perceptron", "decoder", "decoder_tied", "convolutional", "encoder_decoder", "nested"]
MICRO_STEPS = 3  # of cases that say when gradients are reduced
SKIPPED = 77

BF16, WIDE_SUMS = {"parameter_dtype": "bfloat16"}, {"reduce_dtype": "float32"}
EACH_TIME, AT_LAST = {"gradient_sync": "every_micro_step"}, {"gradient_sync": "last_micro_step"}
KEPT, HYBRID = {"reshard_after_forward": False}, {"shard_ranks": 2}
ONE_AHEAD = {"forward_prefetch": 1, "backward_prefetch": 1}
# Beside one layer per group, on two ranks.
ON_TWO = {
    "kept after forward": KEPT,
    "the root resharded too": {"reshard_root": True},
    "forward prefetch of 1": {"forward_prefetch": 1},
    "forward prefetch of 2": {"forward_prefetch": 2},
    "backward prefetch of 1, explicit": {"backward_prefetch": 1},
    "backward prefetch of 2": {"backward_prefetch": 2},
    "asynchronous unshard": {"asynchronous_unshard": True},
    "asynchronous unshard, prefetch of 1": {"asynchronous_unshard": True, **ONE_AHEAD},
    "bfloat16, reduced in float32": {**BF16, **WIDE_SUMS},
    "bfloat16": BF16,
    "reduced in bfloat16": {"reduce_dtype": "bfloat16"},
    "two reduce-scatter buffers": {"reduce_scatter_buffers": 2},
    "accumulated, reduced each time": EACH_TIME,
    "accumulated, reduced at last": AT_LAST,
    "accumulated, reduced at last, gathered once": {**AT_LAST, "reshard_after_backward": False},
    "accumulated, kept throughout": {**KEPT, **AT_LAST, "reshard_after_backward": False},
    "accumulated in bfloat16, reduced at last in float32": {**BF16, **WIDE_SUMS, **AT_LAST},
}
CHECKPOINTED = {
    "": {},
    ", kept after forward": KEPT,
    ", asynchronous unshard": {"asynchronous_unshard": True},
    ", prefetch of 1": ONE_AHEAD,
    ", accumulated, reduced at last": AT_LAST,
}
ON_FOUR = {
    "four ranks, resharded to two": {"reshard_ranks": 2},
    "hybrid": HYBRID,
    "hybrid, kept after forward": {**HYBRID, **KEPT},
    "hybrid, bfloat16": {**HYBRID, **BF16, **WIDE_SUMS},
    "hybrid, accumulated": {**HYBRID, **AT_LAST},
    "hybrid, accumulated, all-reduced at last": {**HYBRID, **EACH_TIME, "all_reduce": "last_micro_step"},
}


def cases(ranks, blocks, child, ends):
    """(name, `sharding` of a scenario) of all cases on so many ranks."""

    def of_size(size):
        return {"layers_per_group": size} if child is None else with_children(chunks(blocks, size))

    def with_children(groups):
        """A child is sharded before what it is in."""
        children = lambda names: [f"{name}.{child}" for name in names]  # noqa: E731
        return {"groups": [each for names in groups for each in ([children(names)] if child else []) + [names]]}

    each = of_size(1)
    if ranks == 4:
        yield "four ranks", each
        yield "four ranks, two layers per group", of_size(2)
        yield from ((name, {**each, **more}) for name, more in ON_FOUR.items())
        return
    yield "one layer per group", each
    yield "two layers per group", of_size(2)
    yield "all in the root", {"layers_per_group": 0}
    yield "uneven groups", with_children([blocks[:1], blocks[1:3], *chunks(blocks[3:], 1)])
    yield "the last block in the root", with_children(chunks(blocks[:-1], 1))
    for name, more in CHECKPOINTED.items():
        yield f"each layer computed again{name}", {**each, **more, "checkpointed": True}
    yield "each layer computed again, two layers per group", {**of_size(2), "checkpointed": True}
    yield from ((name, {**each, **more}) for name, more in ON_TWO.items())
    if ends is not None:
        first, last = ends
        apart = [first[:1], *each.get("groups", chunks(blocks, 1)), last]
        yield "ends in groups of their own", {"groups": apart}
        yield "ends in groups of their own, prefetch of 1", {"groups": apart, **ONE_AHEAD}
        yield "ends in groups of their own, kept after forward", {"groups": apart, **KEPT}
        yield "nothing in the root", {"groups": [first, *apart[1:]]}


def chunks(names, size):
    return [names[i : i + size] for i in range(0, len(names), size)]


def trainings(ranks, models, wanted=lambda model, name: True):
    """Yields (model, name of the case, its Training) of all `models`, which are as sharded_models.MODELS has them."""
    for model, (make, blocks, child, ends) in models.items():
        for name, sharding in cases(ranks, blocks, child, ends):
            # BatchNorm of a CPU takes no parameters that are narrower than its statistics.
            if wanted(model, name) and not (model == "convolutional" and "parameter_dtype" in sharding):
                yield model, name, Training(make, blocks, ranks, sharding)


# --- one rank ---


def groups_of(blocks, sharding):
    """The modules of each fully_shard call but the root's."""
    if "groups" in sharding:
        return sharding["groups"]
    size = sharding["layers_per_group"]
    return chunks(blocks, size) if size else []


def shard(model, groups, ranks, sharding):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    parts = sharding.get("shard_ranks")
    shape, names = ((ranks // parts, parts), ("replicate", "shard")) if parts else ((ranks,), None)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    dtypes = [getattr(torch, sharding[key]) if key in sharding else None for key in ("parameter_dtype", "reduce_dtype")]
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(param_dtype=dtypes[0], reduce_dtype=dtypes[1])}
    reshard = sharding.get("reshard_after_forward", True)
    of_root = True if sharding.get("reshard_root") else None if reshard else False
    for names in groups:
        modules = [model.get_submodule(name) for name in names]
        kept = sharding.get("reshard_ranks", None if reshard else False)
        fully_shard(modules if len(modules) > 1 else modules[0], reshard_after_forward=kept, **options)
    fully_shard(model, reshard_after_forward=of_root, **options)
    if "reduce_scatter_buffers" in sharding:
        model.set_reduce_scatter_max_input_buffers(sharding["reduce_scatter_buffers"])
    if sharding.get("asynchronous_unshard"):
        model._set_unshard_async_op(True)


def groups_in_turn(recorder, way):
    """Without the root, as their forward or backward begins for the first time."""
    event = {"forward": "forward_begin ", "backward": "pre_backward "}[way]
    places = [int(what.removeprefix(event)) for what in recorder.order if what.startswith(event)]
    return [place for place in dict.fromkeys(places) if place > 0]


def set_prefetch(model, groups, sharding, order):
    """Each group asks for those that come next in `order`, places in `groups` from 1 on. Returns the lists."""
    lists = {}
    for way, places in order.items():
        modules = {place: model.get_submodule(groups[place - 1][0]) for place in places}
        depth = sharding.get(f"{way}_prefetch", 0)
        for i, place in enumerate(places):
            ahead = places[i + 1 : i + 1 + depth]
            if ahead:
                getattr(modules[place], f"set_modules_to_{way}_prefetch")([modules[p] for p in ahead])
                lists.setdefault(way, []).append([place, ahead])
    return lists


def checkpoint_blocks(model, blocks):
    """Below the hooks of fully_shard, as fully_shard(checkpoint_wrapper(block)) has them, without its names."""
    from torch.utils.checkpoint import checkpoint

    for name in blocks:
        block = model.get_submodule(name)
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


class Training:
    def __init__(self, make, blocks, ranks, sharding):
        import torch

        torch.manual_seed(1)
        self.checkpointed = sharding.get("checkpointed", False)
        self.model, self.sharding = make(), {key: value for key, value in sharding.items() if key != "checkpointed"}
        if self.checkpointed:
            checkpoint_blocks(self.model, blocks)
        self.micro_steps = MICRO_STEPS if "gradient_sync" in sharding else 1
        self.groups = groups_of(blocks, sharding)
        shard(self.model, self.groups, ranks, sharding)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.example = self.model.example()

    def set_prefetch(self):
        """In the order of a first step. Returns the lists."""
        from sharded_recorder import Recorder

        self.step()
        first = Recorder(self.model, self.groups)
        with first.watching():
            self.step(first)
        order = {way: groups_in_turn(first, way) for way in ("forward", "backward")}
        return set_prefetch(self.model, self.groups, self.sharding, order)

    def step(self, recorder=None):
        for micro_step in range(self.micro_steps):
            is_last = micro_step + 1 == self.micro_steps
            if self.sharding.get("gradient_sync") == "last_micro_step":
                self.model.set_requires_gradient_sync(is_last)
            if not self.sharding.get("reshard_after_backward", True):
                # Not at last: the next step would compute with parameters from before the optimizer.
                self.model.set_reshard_after_backward(is_last)
            if self.sharding.get("all_reduce") == "last_micro_step":
                self.model.set_requires_all_reduce(is_last)
            if recorder is not None:
                recorder.phase, recorder.micro_step = "forward", micro_step
                recorder.note("forward", micro_step)
            loss = self.model(*self.example).float().square().mean()
            if recorder is not None:
                recorder.phase = "backward"
                recorder.note("backward", micro_step)
            loss.backward()
        if recorder is not None:
            recorder.note("optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad()

    def watch_gradients(self, recorder):
        """When the last of a group's has come."""
        hooks = []
        for group, place in recorder.places.items():
            arrived = []

            def arrive(_, place=place, arrived=arrived, all_of_them=len(group.fsdp_params)):
                arrived.append(None)
                if len(arrived) % all_of_them == 0:
                    recorder.note("gradients", place)

            hooks += [p._unsharded_param.register_post_accumulate_grad_hook(arrive) for p in group.fsdp_params]
        return hooks


def record(name, ranks, training):
    from sharded_recorder import Recorder

    lists = training.set_prefetch()
    training.step()
    recorder = Recorder(training.model, training.groups)
    hooks = training.watch_gradients(recorder)
    with recorder.watching():
        training.step(recorder)
    for hook in hooks:
        hook.remove()
    memory = recorder.memory
    return {"name": name, "ranks": ranks, "strategy": "hsdp" if "shard_ranks" in training.sharding else "fsdp",
            "sharding": training.sharding, **({"checkpointed": True} if training.checkpointed else {}),
            "accumulation": training.micro_steps, "groups": training.groups,
            "prefetch": lists, "collectives": recorder.collectives, "order": recorder.order,
            "memory": {"peak_bytes": memory.peak_bytes, "peak_at": memory.peak_at,
                       "at_peak": dict(sorted(memory.at_peak.items())),
                       "largest": dict(sorted(memory.largest.items()))}}


def record_all(rank, ranks, models):
    """Returns lists of records by model, of rank 0; their memory differs among ranks."""
    import sharded_models
    import torch.distributed as dist

    found = {}
    for model, name, training in trainings(ranks, {model: sharded_models.MODELS[model] for model in models}):
        mine = record(name, ranks, training)
        everybodys = [None] * ranks
        dist.all_gather_object(everybodys, json.dumps({**mine, "memory": None}))
        assert len(set(everybodys)) == 1, f"{model}, {name}: ranks do not do the same"
        found.setdefault(model, []).append(mine)
    return found


# --- the records ---


def described(make):
    """The workload, in the form that scenarios have."""
    import torch
    from sharded_models import operations

    torch.manual_seed(1)
    model = make()
    forward = operations(model)
    gradients = [{"name": n, "numel": p.numel(), "dtype": str(p.dtype).removeprefix("torch."), "shape": list(p.shape)}
                 for n, p in model.named_parameters()]
    return {"gradients": gradients, "forward_operations": [operation(name, "forward") for name in forward],
            "backward_operations": backward_operations(model, forward), "host_is_device": True}


def operation(name, way):
    return {"name": f"{name} {way}".strip(), "host_us": 0, "device_us": 1}


def backward_operations(model, forward):
    """Forward's in reverse: a gradient is ready with the last of the operations that use its parameter."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    found, left = [], set(names)
    for module in forward:
        of_module = [p for _, p in model.get_submodule(module).named_parameters(recurse=False) if p in left]
        left -= set(of_module)
        ready = {"ready": [names[p] for p in of_module]} if of_module else {}
        found.insert(0, {**operation(module, "backward"), **ready})
    order = [set(each["ready"]) for each in found if "ready" in each]
    assert not left and order == arrivals(model, [len(each) for each in order]), "autograd takes another order"
    return found


def arrivals(model, sizes):
    """Names of parameters as their gradients come, so many at a time."""
    come = []
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: come.append(name))
    model(*model.example()).square().mean().backward()
    return [set(come[sum(sizes[:i]) : sum(sizes[: i + 1])]) for i in range(len(sizes))]


def text_of(model, workload, found):
    """One case a line."""
    import torch
    from sharded_recorder import COLUMNS

    head = {"model": model, "torch": torch.__version__, "python": platform.python_version(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
            "command": "tests/pytorch/record_sharded.py -o tests/data/fsdp2", "columns": COLUMNS}
    compact = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731
    lines = [f'"{key}":{compact(value)},' for key, value in head.items()]
    lines += ['"workload":' + compact(workload) + ",", '"cases":[']
    return "{" + "\n".join(lines) + "\n" + ",\n".join(compact(case) for case in found) + "\n]}\n"


def check(folder, texts):
    for model, text in texts.items():
        stored, found = json.loads((folder / f"{model}.json").read_text()), json.loads(text)
        assert stored["workload"] == found["workload"], f"{model}: another workload than recorded"
        for one, other in zip(stored["cases"], found["cases"], strict=True):
            assert one == other, f"{model}, {one['name']}: other than recorded: {json.dumps(other)}"
        print(f"{model}: {len(found['cases'])} cases are as recorded")


def skip_unless_recorded(folder, models):
    """Without what a build adds to a version, such as +cpu."""
    recorded = {json.loads((folder / f"{model}.json").read_text())["torch"].split("+")[0] for model in models}
    has_torch = importlib.util.find_spec("torch") is not None
    installed = importlib.metadata.version("torch").split("+")[0] if has_torch else "none"
    if {installed} != recorded:
        print(f"record_sharded: skipped: recorded was PyTorch {', '.join(recorded)}, installed is {installed}")
        sys.exit(SKIPPED)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("-o", "--output", type=Path)
    place.add_argument("--check", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    options = parser.parse_args()
    if options.check:
        skip_unless_recorded(options.check, options.models)
    found = [run_on_ranks(record_all, ranks, options.models)[0] for ranks in (2, 4)]
    import sharded_models

    texts = {}
    for model in options.models:
        workload = described(sharded_models.MODELS[model][0])
        texts[model] = text_of(model, workload, [case for each in found for case in each[model]])
    if options.check:
        return check(options.check, texts)
    options.output.mkdir(parents=True, exist_ok=True)
    for model, text in texts.items():
        (options.output / f"{model}.json").write_text(text)


if __name__ == "__main__":
    main()
