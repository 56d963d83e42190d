#!/usr/bin/env python3
"""bucketwise.torch.capture_pytorch tells what a real PyTorch training step does, and leaves no trace in it.

usage: check_capture.py path/to/bucketwise repo_root

Two ranks over Gloo on loopback. Nothing here depends on how fast the machine is: what has to be long sleeps, and is
compared with what only computes. Skipped (exit code 77) where Python has no PyTorch.
"""

import contextlib
import importlib
import sys
import time
from pathlib import Path

import checks
from checks import RANKS, check_no_trace, predict, read_json, said_by, stated

WIDTH = 64
SLEEP_S = 0.05


def layers(nn):
    """Weights that autograd finishes last to first, BatchNorm's buffers, and random numbers."""
    kinds = (nn.Linear, (WIDTH, WIDTH)), (nn.BatchNorm1d, (WIDTH,)), (nn.ReLU, ()), (nn.Dropout, (0.2,))
    return nn.Sequential(*[kind(*arguments) for _ in range(4) for kind, arguments in kinds])


def train(torch, model, wrap, micro_steps, steps, captured=None):
    """The parameters and buffers that a short training ends with."""
    from bucketwise.torch.capture_pytorch import capture

    torch.manual_seed(7)
    model = model(torch.nn)
    ddp = wrap(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    if captured is not None:
        capture(ddp, captured, steps=6, warmup=2)
    for _ in range(steps):
        optimizer.zero_grad()
        for micro_step in range(micro_steps):
            last = micro_step + 1 == micro_steps or ddp is model
            with contextlib.nullcontext() if last else ddp.no_sync():
                ddp(torch.randn(16, WIDTH)).square().mean().backward()
        optimizer.step()
    return ddp, {name: value.clone() for name, value in model.state_dict().items()}


def check_harmless(torch, wraps, folder, rank, binary):
    original = torch.autograd.backward
    for name, (wrap, micro_steps) in wraps.items():
        file = folder / f"{name}.json"
        _, without = train(torch, layers, wrap, micro_steps, 10)
        ddp, with_capture = train(torch, layers, wrap, micro_steps, 10, file)
        for key, value in without.items():
            assert torch.equal(value, with_capture[key]), f"{name}: {key} differs after training with capture"
        check_no_trace(torch, ddp, original)
        if rank == 0:
            check_captured(torch, name, file, binary, ddp, micro_steps)


def check_captured(torch, name, file, binary, ddp, micro_steps):
    document = read_json(file)
    workload = document["workload"]
    gradients = {g["name"]: g for g in workload["gradients"]}
    model = ddp.module if hasattr(ddp, "module") else ddp
    assert {n: p.numel() for n, p in model.named_parameters()} == {n: g["numel"] for n, g in gradients.items()}
    weights = [gradients[f"{4 * layer}.weight"]["ready_ms"] for layer in range(4)]
    in_turn = weights == sorted(weights, reverse=True) and weights[-1] > 0
    assert in_turn, f"{name}: the last layer is ready first: {weights}"
    assert max(g["ready_ms"] for g in gradients.values()) <= workload["backward_ms"] and workload["forward_ms"] > 0
    # BatchNorm's running mean and variance, and its count of batches, an int64.
    buffers = [{"tensors": 8, "bytes": 8 * 4 * WIDTH}, {"tensors": 4, "bytes": 4 * 8}]
    assert workload["buffers"] == buffers, workload["buffers"]
    has_hooks = hasattr(importlib.import_module("torch.optim.optimizer"), "register_optimizer_step_post_hook")
    assert (document["step"].get("optimizer_ms", 0) > 0) == has_hooks, document["step"]
    prediction = predict(binary, file)
    assert document["cluster"]["link"]["caveats"][0]["withholds_advice"], document["cluster"]["link"]
    assert any("a placeholder that nobody measured" in note for note in prediction["notes"]), prediction["notes"]
    caveats = stated(document)
    disturbed = any("every pass that was timed communicated" in text for text in caveats)
    assert disturbed == (ddp is not model and micro_steps == 1), f"{name}: {caveats}"
    assert set(caveats) <= set(prediction["notes"]), prediction["notes"]
    if ddp is model:
        return
    assert document["step"]["accumulation"] == micro_steps and document["cluster"]["ranks"] == RANKS
    log = read_json(file.with_name(f"{name}.ddp.json"))
    buckets = [int(size) for size in log["rebuilt_bucket_sizes"].split(",")]
    asked = prediction.get("configured", prediction["default"])  # the latter where the script asks for no cap
    assert asked["bucket_bytes"] == buckets, f"{name}: DDP's {buckets}, predicted {asked}"
    assert document["sync"]["static_graph"] == (name == "static"), document["sync"]
    assert "framework" not in document["sync"], document["sync"]


def check_compiled(torch, DistributedDataParallel, folder, rank, binary):
    """Pieces that a cap of 1 MiB cut are those that a larger one cuts: its buckets are predicted from them."""
    if not hasattr(torch, "compile") or sys.version_info >= (3, 15):
        return
    from bucketwise.torch.capture_pytorch import capture

    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            width = 520  # so that each layer takes more than 1 MiB: the finest pieces
            self.layers = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(8)))

        def forward(self, x):
            return self.layers(x)

    def trained(cap, file):
        torch._dynamo.reset()
        torch.manual_seed(3)
        ddp = DistributedDataParallel(Deep(), bucket_cap_mb=cap)
        capture(ddp, file, steps=5, warmup=2)
        compiled = torch.compile(ddp, backend="aot_eager")
        for _ in range(8):
            compiled(torch.randn(64, 520)).square().mean().backward()
        return checks.buckets_of(ddp)

    finest = folder / "compiled.json"
    buckets = {cap: trained(cap, finest if cap == 1 else folder / "compiled_at_cap.json") for cap in (3, 2, 1)}
    if rank != 0:
        return
    document = read_json(finest)
    assert document["sync"]["compiled"] is True and document["sync"]["bucket_cap_mib"] == 1, document["sync"]
    # A layer fills a piece, and its weight and bias are ready at the same moment.
    ready = [gradient["ready_ms"] for gradient in document["workload"]["gradients"]]
    assert len(set(ready)) == 8 and ready[::2] == ready[1::2], ready
    for cap, sizes in buckets.items():
        row = predict(binary, finest, "--bucket-cap", f"{cap}MiB")["sweep"][0]
        assert row["bucket_bytes"] == sizes, f"at {cap} MiB: DDP's {sizes}, predicted {row}"
    caveats = stated(read_json(folder / "compiled_at_cap.json"))
    assert any("cut the graph at a cap above 1 MiB" in caveat for caveat in caveats), caveats


def check_wrappers():
    """The modules of the calling code identify the wrapper, the outermost of several."""
    from bucketwise.torch.capture_pytorch import wrapper_around

    def called_through(*modules):
        call = lambda: wrapper_around(sys._getframe())  # noqa: E731
        for module in modules:
            scope = {"__name__": module, "call": call}
            exec("def step():\n    return call()", scope)
            call = scope["step"]
        return call()

    assert called_through() is None
    assert called_through("accelerate.accelerator") == "accelerate"
    assert called_through("accelerate.accelerator", "transformers.trainer") == "transformers"
    assert called_through("lightning.pytorch.loops.optimization") == "lightning"
    assert called_through("accelerated.by.hand", "transformers.models.gpt2") is None


def check_ddp_is_taken_out(torch, DistributedDataParallel, folder, rank):
    """A communication hook that sleeps is DDP's work, an operation that sleeps is the model's."""
    from bucketwise.torch.capture_pytorch import capture

    slow = checks.sleeping_function(torch, 0.0, 0.02)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.second(slow(self.first(x)))

    def sleeping_hook(_, bucket):
        time.sleep(2)
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    ddp = DistributedDataParallel(Model(), bucket_cap_mb=0.001)
    ddp.register_comm_hook(None, sleeping_hook)
    capture(ddp, folder / "slow.json", steps=2, warmup=1)
    for _ in range(3):
        ddp(torch.randn(4, WIDTH)).sum().backward()
    if rank == 0:
        workload = read_json(folder / "slow.json")["workload"]
        ready = {g["name"]: g["ready_ms"] for g in workload["gradients"]}
        assert ready["first.weight"] - ready["second.weight"] >= 20, f"an operation between them sleeps 20 ms: {ready}"
        assert 20 <= workload["backward_ms"] < 2000, f"DDP's hook sleeps 2 s: {workload['backward_ms']}"


def check_recomputed(torch, DistributedDataParallel, folder, rank, binary):
    """A block sleeps before and after its layer, each way. Called through torch's own checkpoint(), it sleeps in backward
    after its layer, then before it in the forward that runs again up to what backward needs."""
    from bucketwise.torch.capture_pytorch import capture
    from torch.utils.checkpoint import checkpoint

    sleep = checks.sleeping_function(torch, SLEEP_S, SLEEP_S)

    class Block(torch.nn.Module):
        def __init__(self, sleeps):
            super().__init__()
            self.sleeps, self.inner = sleeps, torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())

        def forward(self, x):
            return sleep(self.inner(sleep(x))) if self.sleeps else self.inner(x)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList(Block(sleeps) for sleeps in (False, True, False))

        def forward(self, x):
            first, second, last = self.blocks
            return last(checkpoint(second, first(x), use_reentrant=False))

    original, file = torch.autograd.backward, folder / "recomputed.json"
    ddp = DistributedDataParallel(Model())
    capture(ddp, file, steps=2, warmup=1)
    for step in range(3):
        ddp(torch.randn(16, WIDTH)).square().mean().backward()
        hooked = [name for name, module in ddp.module.named_modules() if module._forward_hooks_always_called]
        assert hooked == ([] if step == 2 else ["blocks.1"]), f"after pass {step}: {hooked}"
    check_no_trace(torch, ddp, original)
    if rank == 0:
        gradients = read_json(file)["workload"]["gradients"]
        shares = {one["name"]: one["recomputed"] for one in gradients if "recomputed" in one}
        assert len(shares) == 1 and next(iter(shares)).startswith("blocks.1."), shares
        assert 0.4 < next(iter(shares.values())) < 0.6, shares
        assert predict(binary, file)["default"]["backward_ms"] > 3e3 * SLEEP_S


def check_models(torch, DistributedDataParallel, folder, rank, binary):
    """Frozen, unused and shared parameters, a sparse gradient; outside of DDP also a second forward in backward."""
    from bucketwise.torch.capture_pytorch import capture
    from torch.utils.checkpoint import checkpoint

    nn = torch.nn

    class Model(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.reentrant = reentrant  # a backward within backward, which DDP with unused parameters refuses
            self.embedding = nn.Embedding(50, WIDTH, sparse=True)
            self.frozen, self.unused = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.block, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.shared = self.head
            self.frozen.requires_grad_(False)

        def forward(self, tokens):
            x = self.frozen(self.embedding(tokens))
            x = checkpoint(self.block, x, use_reentrant=True) if self.reentrant else self.block(x)
            return self.shared(self.head(x))

    odd = DistributedDataParallel(Model(False), find_unused_parameters=True)
    for name, model in (("odd", odd), ("reentrant", Model(True))):
        capture(model, folder / f"{name}.json", steps=2, warmup=1)
        for _ in range(3):
            model(torch.randint(50, (8,))).sum().backward()
        if rank != 0:
            continue
        document = read_json(folder / f"{name}.json")
        gradients = {g["name"]: g for g in document["workload"]["gradients"]}
        modules = [f"{module}.{part}" for module in ("unused", "block", "head") for part in ("weight", "bias")]
        assert list(gradients) == ["embedding.weight", *modules], list(gradients)
        assert [name for name, g in gradients.items() if g.get("sparse")] == ["embedding.weight"]
        assert gradients["unused.weight"]["ready_ms"] == 0 < gradients["head.weight"]["ready_ms"]
        assert gradients["head.weight"]["ready_ms"] < gradients["block.weight"]["ready_ms"]
        assert document["sync"].get("find_unused_parameters", False) == (name == "odd")
        buckets = predict(binary, folder / f"{name}.json")["default"]["bucket_bytes"]
        if name == "odd":
            log = read_json(folder / f"{name}.ddp.json")
            assert ", ".join(map(str, buckets)) == log["bucket_sizes"], f"predicted {buckets}, {log['bucket_sizes']}"


def check_between(torch, folder, rank):
    """Work between backward and the optimizer, as clipping is, counts to it; another model's pass does not."""
    from bucketwise.torch.capture_pytorch import capture

    other = torch.nn.Linear(2, 2)
    for name in ("clipped", "other"):
        model = torch.nn.Linear(WIDTH, WIDTH)
        model.scale = torch.nn.Parameter(torch.ones(()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        capture(model, folder / f"{name}.json", steps=3, warmup=1)
        for _ in range(5):
            (model(torch.randn(4, WIDTH)) * model.scale).square().mean().backward()
            time.sleep(SLEEP_S)  # stands for a norm of many gradients
            if name == "other":
                other(torch.randn(1, 2)).sum().backward()
            optimizer.step()
    if rank == 0:
        times = {name: read_json(folder / f"{name}.json")["step"]["optimizer_ms"] for name in ("clipped", "other")}
        assert times["other"] < 1e3 * SLEEP_S < times["clipped"], times
        shapes = [g.get("shape") for g in read_json(folder / "clipped.json")["workload"]["gradients"]]
        assert [WIDTH, WIDTH] in shapes and None in shapes, shapes  # a number has none


def check_failures(torch, folder):
    """Refusals come at once; later errors are printed, and training goes on."""
    from bucketwise.torch.capture_pytorch import capture

    nn = torch.nn
    for model, options in ((nn.ReLU(), {}), (nn.Linear(2, 2, dtype=torch.complex64), {}),
                           (nn.Linear(2, 2), {"steps": 0})):
        try:
            capture(model, folder / "refused.json", **options)
            raise AssertionError(f"{model} is refused")
        except ValueError as error:
            assert "bucketwise: " in str(error)
    original = torch.autograd.backward
    model = nn.Linear(2, 2)
    capture(model, folder / "no such folder" / "workload.json", steps=1, warmup=0)
    _, said = said_by(lambda: [model(torch.randn(1, 2)).sum().backward() for _ in range(2)])
    if not torch.distributed.get_rank():
        assert said.startswith("bucketwise: nothing was captured: FileNotFoundError"), said
    check_no_trace(torch, model, original)
    # A backward that fails does not count, and is not hidden.
    model = nn.Linear(2, 2)
    capture(model, folder / "after_failure.json", steps=2, warmup=0)
    with contextlib.redirect_stderr(None):
        model(torch.randn(1, 2)).sum().backward()
        try:
            model(torch.randn(1, 2)).backward()  # not a scalar
            raise AssertionError("backward of a vector fails")
        except RuntimeError:
            pass
        assert torch.autograd.backward is not original, "one pass has counted, one is missing"
        model(torch.randn(1, 2)).sum().backward()
    check_no_trace(torch, model, original)


def check_events(torch, folder, rank):
    with checks.emulated_gpu(torch) as device:
        train(torch, layers, lambda m: m, 1, 8, folder / "events.json")
    assert device.waits == (1 if rank == 0 else 0), "waited once, at the end"
    if rank == 0:
        assert device.made < device.waited
        workload = read_json(folder / "events.json")["workload"]
        last, first = workload["gradients"][-1]["ready_ms"], workload["gradients"][0]["ready_ms"]
        assert 0 < last < first <= workload["backward_ms"], workload


def check(rank, _, program, folder):
    import torch
    from torch.nn.parallel import DistributedDataParallel as ddp

    folder = Path(folder)
    # 4 layers of 64 x 64 and three vectors of 64 are 69,632 bytes: caps that make one bucket and several.
    wraps = {"plain": (ddp, 1), "views": (lambda m: ddp(m, bucket_cap_mb=0.03, gradient_as_bucket_view=True), 1),
             "accumulated": (lambda m: ddp(m, bucket_cap_mb=0.02), 2),
             "static": (lambda m: ddp(m, bucket_cap_mb=0.02, static_graph=True), 1), "alone": (lambda m: m, 1)}
    check_harmless(torch, wraps, folder, rank, program)
    check_wrappers()
    check_ddp_is_taken_out(torch, ddp, folder, rank)
    check_recomputed(torch, ddp, folder, rank, program)
    check_models(torch, ddp, folder, rank, program)
    check_compiled(torch, ddp, folder, rank, program)
    check_events(torch, folder, rank)
    check_between(torch, folder, rank)
    own = folder / str(rank)
    own.mkdir()
    check_failures(torch, own)


if __name__ == "__main__":
    checks.main(__doc__, check)
