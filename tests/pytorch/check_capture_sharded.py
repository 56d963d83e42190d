#!/usr/bin/env python3
"""bucketwise.torch captures a step under fully_shard by the modules that were sharded, and leaves no trace in it.

usage: check_capture_sharded.py path/to/bucketwise repo_root

Two ranks over Gloo on loopback. Nothing here depends on how fast the machine is: what has to be long sleeps, and is
compared with what only computes. Skipped (exit code 77) where Python has no PyTorch with fully_shard.
"""

import json
import sys
import time
from pathlib import Path

import checks
from checks import RANKS, read_json, read_lines, run

SLEEP_S = 1.0


def fully_sharded(model, groups, **options):
    from torch.distributed.fsdp import fully_shard

    for names in groups:
        modules = [model.get_submodule(name) for name in names]
        fully_shard(modules if len(modules) > 1 else modules[0], **options)
    return fully_shard(model, **options)


def train(torch, make, micro_steps, steps, captured=None):
    """The model, and the parameters that a short training ends with."""
    from bucketwise.torch import capture

    torch.manual_seed(7)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if captured is not None:
        capture(model, captured, steps=2 * micro_steps, warmup=micro_steps)
    for _ in range(steps):
        for micro_step in range(micro_steps):
            model.set_requires_gradient_sync(micro_step + 1 == micro_steps)
            model(*model.example()).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, [parameter.full_tensor().clone() for parameter in model.parameters()]


def hooks_of(model):
    from torch.distributed.fsdp import FSDPModule

    modules = list(model.modules())
    count = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in modules)
    leaves = [p._unsharded_param for m in modules if isinstance(m, FSDPModule)
              for group in m._get_fsdp_state()._fsdp_param_groups for p in group.fsdp_params]
    return count, sum(bool(getattr(leaf, "_post_accumulate_grad_hooks", None)) for leaf in leaves)


def cases(torch):
    """How a model is sharded, micro-steps, and what of the settings has to be read off it."""
    from sharded_models import MODELS
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy

    make, blocks, _, (first, last) = MODELS["decoder"]
    each = [[block] for block in blocks]
    default = {"groups": each, "reshard_after_forward": True, "forward_prefetch": 0, "backward_prefetch": 1,
               "asynchronous_unshard": False, "reduce_scatter_buffers": 1, "gradient_sync": "every_micro_step",
               "reshard_after_backward": True}

    def prefetching():
        model = fully_sharded(make(), each)
        model._set_unshard_async_op(True)
        layers = list(model.layers)
        for i, layer in enumerate(layers):
            layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 3])
            layer.set_modules_to_backward_prefetch(layers[max(i - 2, 0) : i][::-1])
        return model

    def compiled():
        model = make()
        for layer in model.layers:
            layer.compile(backend="aot_eager")
        return model

    pairs = [blocks[:2], blocks[2:]]
    ends = [first, *each, last]
    nested = [["layers.0.mlp"], ["layers.0"], ["layers.1.mlp", "layers.2.mlp"], ["layers.1", "layers.2"]]
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    yield "plain", lambda: fully_sharded(make(), each), 1, default
    yield "pairs", lambda: fully_sharded(make(), pairs), 1, {**default, "groups": pairs}
    in_root = {"layers_per_group": 0, **{key: value for key, value in default.items() if key != "groups"}}
    yield "root", lambda: fully_sharded(make(), []), 1, in_root
    kept, root_too = {**default, "reshard_after_forward": False}, {**default, "reshard_root": True}
    yield "kept", lambda: fully_sharded(make(), each, reshard_after_forward=False), 1, kept
    yield "root_too", lambda: fully_sharded(make(), each, reshard_after_forward=True), 1, root_too
    yield "ends", lambda: fully_sharded(make(), ends), 1, {**default, "groups": ends}
    # In the order of modules, whatever that of the calls.
    in_turn = [nested[1], nested[0], nested[3], nested[2]]
    yield "nested", lambda: fully_sharded(make(), nested), 1, {**default, "groups": in_turn}
    ahead = {"asynchronous_unshard": True, "forward_prefetch": 2, "backward_prefetch": 2}
    yield "prefetching", prefetching, 1, {**default, **ahead}
    dtypes = {"parameter_dtype": "bfloat16", "reduce_dtype": "float32"}
    yield "half", lambda: fully_sharded(make(), each, mp_policy=half), 1, {**default, **dtypes}
    # Two replicas of one rank each: nothing is gathered, gradients are all-reduced.
    mesh = init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("replicate", "shard"))
    yield "hybrid", lambda: fully_sharded(make(), each, mesh=mesh), 1, {**default, "shard_ranks": 1}
    if sys.version_info < (3, 15):
        yield "compiled", lambda: fully_sharded(compiled(), each), 1, default
    yield "accumulated", lambda: fully_sharded(make(), each), 3, {**default, "gradient_sync": "last_micro_step"}


def check_predicted(binary, name, file, sharding):
    """As it was sharded; where both ends are in groups nothing is left for the root."""
    prediction = checks.predict(binary, file)
    configured = prediction["configured"]
    assert configured["groups"] == len(sharding.get("groups", [])) + (name != "ends"), f"{name}: {configured['groups']}"
    assert configured["forward_ms"] > 0 < configured["backward_ms"], configured
    assert any("a placeholder that nobody measured" in note for note in prediction["notes"]), prediction["notes"]


def check_harmless(torch, folder, rank, binary):
    original = torch.autograd.backward
    for name, make, micro_steps, sharding in cases(torch):
        file = folder / f"{name}.json"
        untouched, without = train(torch, make, micro_steps, 5)
        model, with_capture = train(torch, make, micro_steps, 5, file)
        for key, (one, other) in enumerate(zip(without, with_capture)):
            assert torch.equal(one, other), f"{name}: parameter {key} differs after training with capture"
        assert torch.autograd.backward is original
        assert hooks_of(model) == hooks_of(untouched), f"{name}: hooks are left"
        if rank == 0:
            check_captured(name, read_json(file), model, micro_steps, sharding)
            check_predicted(binary, name, file, sharding)


def check_captured(name, document, model, micro_steps, sharding):
    workload, found = document["workload"], document["sync"]["sharding"]
    assert found == sharding, f"{name}: {found}, expected {sharding}"
    assert document["sync"]["strategy"] == ("hsdp" if "shard_ranks" in sharding else "fsdp"), document["sync"]
    assert document["cluster"]["ranks"] == RANKS, document["cluster"]
    assert document["step"]["accumulation"] == micro_steps and document["step"]["optimizer_ms"] > 0, document["step"]
    shapes = {g["name"]: g["shape"] for g in workload["gradients"]}
    assert shapes == {n: list(p.shape) for n, p in model.named_parameters()}, shapes
    ready = [n for o in workload["backward_operations"] for n in o.get("ready", [])]
    assert sorted(ready) == sorted(shapes), f"{name}: every gradient is ready once: {ready}"
    modules = {m for names in sharding.get("groups", []) for m in names}
    for way in ("forward", "backward"):
        names = [o["name"].removesuffix(way).rstrip() for o in workload[f"{way}_operations"]]
        assert set(names) - {"", "(loss)"} == modules, f"{name}: {names}"
        turn = list(dict.fromkeys(n for n in names if n in modules))
        outer = [m for m in turn if "mlp" not in m and m.startswith("layers")]
        assert outer == sorted(outer, reverse=way == "backward"), f"{name}: {turn}"
        assert names[-1 if way == "forward" else 0] == "(loss)", names
        assert all(o["device_us"] >= 0 and o["host_us"] == 0 for o in workload[f"{way}_operations"])
    owners = {n: o["name"].split()[0] for o in workload["backward_operations"] for n in o.get("ready", [])}
    for gradient, owner in owners.items():
        inside = [m for m in modules if gradient.startswith(f"{m}.")]
        expected = max(inside, key=len) if inside else "backward"
        assert owner == expected, f"{name}: {gradient} is ready in {owner}"
    stated = json.dumps(document.get("caveats", []))
    assert ("collectives ran beside computing" in stated) == sharding["asynchronous_unshard"], stated
    assert "not simulated" not in stated, stated


def sleeping(torch):
    """A module that sleeps before its block, each time in forward and in backward."""

    slow = checks.sleeping_function(torch, SLEEP_S, SLEEP_S)

    class Sleeping(torch.nn.Module):
        def __init__(self, block, times):
            super().__init__()
            self.block, self.times = block, times

        def forward(self, x):
            for _ in range(self.times):
                x = slow(x)
            return self.block(x)

    return Sleeping


def check_what_is_timed(torch, folder, rank):
    """A block that sleeps is computing, and in the operations that are its own; that another rank sleeps is waiting."""
    from bucketwise.torch import capture
    from sharded_models import Decoder

    Sleeping = sleeping(torch)
    model = Decoder()
    # Rank 1 comes two sleeps later to what follows block 0, rank 0 one later to what follows block 2.
    model.layers[0] = Sleeping(model.layers[0], 2 * (rank == 1))
    model.layers[2] = Sleeping(model.layers[2], rank == 0)
    fully_sharded(model, [[f"layers.{i}"] for i in range(4)])
    capture(model, folder / "slow.json", steps=1, warmup=1)
    for _ in range(2):
        model(*model.example()).square().mean().backward()
    if rank != 0:
        return
    workload = read_json(folder / "slow.json")["workload"]
    for way in ("forward", "backward"):
        us = {}
        for operation in workload[f"{way}_operations"]:
            us[operation["name"]] = us.get(operation["name"], 0) + operation["device_us"]
        slow = us.pop(f"layers.2 {way}")
        assert 1e6 * SLEEP_S <= slow < 2e6 * SLEEP_S, f"{way}: block 2 sleeps once: {slow} us"
        assert sum(us.values()) < 1e6 * SLEEP_S, f"{way}: nothing else sleeps on rank 0: {us}"


def check_recomputed(torch, folder, rank, binary):
    """A checkpointed block that sleeps once each way sleeps twice in backward: half of that is forward again."""
    from bucketwise.torch import capture
    from sharded_models import Decoder
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    Sleeping = sleeping(torch)
    model = Decoder()
    model.layers[1] = checkpoint_wrapper(Sleeping(model.layers[1], 1))
    model.layers[3] = checkpoint_wrapper(model.layers[3])  # in the root's group
    fully_sharded(model, [[f"layers.{i}"] for i in range(3)])
    capture(model, folder / "recomputed.json", steps=1, warmup=1)
    for _ in range(2):
        model(*model.example()).square().mean().backward()
    assert not any(module._forward_hooks_always_called for module in model.modules()), "hooks are left"
    if rank == 0:
        document = read_json(folder / "recomputed.json")
        shares = {o["name"]: o["recomputed"] for o in document["workload"]["backward_operations"] if "recomputed" in o}
        assert set(shares) == {"layers.1 backward", "backward"}, shares
        assert 0.4 < shares["layers.1 backward"] < 0.6, shares
        assert not any("recomputed" in o for o in document["workload"]["forward_operations"])
        assert checks.predict(binary, folder / "recomputed.json")["configured"]["backward_ms"] > 2e3 * SLEEP_S


def slow_functions(module, names, seconds):
    """Replaces functions by slower ones; returns them by name, and a function that puts the others back."""
    originals = {name: getattr(module, name) for name in names if hasattr(module, name)}

    def slowed(original):
        def slow(*arguments, **keywords):
            time.sleep(seconds)
            return original(*arguments, **keywords)

        return slow

    slow = {name: slowed(original) for name, original in originals.items()}
    for name, function in slow.items():
        setattr(module, name, function)
    return slow, lambda: [setattr(module, name, original) for name, original in originals.items()]


def check_own_work(torch, folder, rank):
    """Slow copies make the link's copy_gb_per_s small. Collectives, however slow, do not, and nothing stays replaced."""
    import torch.distributed as dist
    from bucketwise.torch import capture
    from sharded_models import Decoder
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as group

    seconds = 0.2
    names = ("all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor", "reduce_scatter_single")
    slow, restore = slow_functions(group, ["foreach_all_gather_copy_out"], seconds)
    slow_collectives, restore_collectives = slow_functions(dist, names, seconds)
    try:
        model = fully_sharded(Decoder(), [["layers.0"]])
        capture(model, folder / "own_work.json", steps=1, warmup=1)
        for _ in range(2):
            model(*model.example()).square().mean().backward()
        assert all(getattr(group, name) is function for name, function in slow.items())
        assert all(getattr(dist, name) is function for name, function in slow_collectives.items())
    finally:
        restore_collectives()
        restore()
    if slow and rank == 0:
        rate = read_json(folder / "own_work.json")["cluster"]["link"]["copy_gb_per_s"]
        numel = sum(parameter.numel() for parameter in model.parameters())  # of all ranks
        # The block is gathered twice, the root's group once: three copies sleep, and five collectives, which do not count.
        # Each gather moves 1.5 times its bytes, each reduction its own: 10 to 16 bytes for each parameter.
        by_sleep = 1e9 * rate * seconds / numel
        assert 16 / 8 < by_sleep <= 16 / 3, by_sleep


def check_events(torch, folder, rank):
    _, make, micro_steps, _ = next(cases(torch))
    with checks.emulated_gpu(torch):
        train(torch, make, micro_steps, 5, folder / "events.json")
    if rank == 0:
        document = read_json(folder / "events.json")
        operations = document["workload"]["forward_operations"]
        assert all(0 < o["device_us"] and 0 < o["host_us"] for o in operations), operations
        assert "host_is_device" not in document["workload"]
        assert any("collectives ran beside computing" in str(c) for c in document["caveats"]), document["caveats"]


def check_refused(torch, folder):
    from bucketwise.torch import capture
    from sharded_models import Decoder
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import Shard

    def refused(model, text):
        try:
            capture(model, folder / "refused.json")
            raise AssertionError(f"expected: {text}")
        except ValueError as error:
            assert str(error).startswith("bucketwise: ") and text in str(error), error

    flat = FullyShardedDataParallel(Decoder(), device_id=torch.device("cpu"))
    refused(flat, "FullyShardedDataParallel are not simulated")
    blocks_only = Decoder()
    torch.distributed.fsdp.fully_shard(blocks_only.layers[0])
    refused(blocks_only, "give the module for which it was called last")
    second = fully_sharded(torch.nn.Linear(4, 4), [], shard_placement_fn=lambda p: Shard(p.ndim - 1))
    refused(second, "another dimension than the first")
    mesh = init_device_mesh("cpu", (RANKS,))
    tensor_parallel = torch.distributed.tensor.parallel.parallelize_module(
        Decoder(), mesh, {"head": torch.distributed.tensor.parallel.ColwiseParallel()}
    )
    refused(tensor_parallel, "tensor parallelism are not simulated")


def check_collectives(folder, binary):
    """Records for `bucketwise calibrate`, of all sizes that were asked for."""
    import torch.distributed as dist
    from bucketwise.torch import time_collectives

    file = folder / "collectives.jsonl"
    time_collectives(file, largest=1 << 16)
    if dist.get_rank() == 0:
        environment, *records = read_lines(file)
        assert environment["kind"] == "environment" and environment["hosts"] == 1, environment
        # 4, 16 and 64 KiB, which two ranks can divide.
        sizes = [(r["kind"], r["bytes"]) for r in records]
        kinds = ("allgather", "reducescatter", "allreduce")
        assert sizes == [(kind, 1 << shift) for kind in kinds for shift in (12, 14, 16)], sizes
        assert all(r["ranks"] == RANKS and min(r["samples_us"]) > 0 for r in records)
        run(binary, "calibrate", file, "-o", folder / "link.json")
        assert {"all_gather", "reduce_scatter"} <= set(read_json(folder / "link.json"))


def check(rank, _, program, folder):
    import torch

    folder = Path(folder)
    check_harmless(torch, folder, rank, program)
    check_what_is_timed(torch, folder, rank)
    check_recomputed(torch, folder, rank, program)
    check_own_work(torch, folder, rank)
    check_events(torch, folder, rank)
    check_refused(torch, folder)
    check_collectives(folder, program)


if __name__ == "__main__":
    checks.main(__doc__, check, "hasattr(fsdp, 'fully_shard')")
