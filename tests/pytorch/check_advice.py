#!/usr/bin/env python3
"""bucketwise.torch.advise() advises within a real PyTorch training, and leaves no trace in it.

usage: check_advice.py path/to/bucketwise repo_root

Two ranks over Gloo on loopback. No time is judged. Where Accelerate, Lightning or Transformers are installed, what is
printed for them is typed into them, and gives the buckets that were printed. Skipped (exit code 77) where Python has no
PyTorch.
"""

import contextlib
import importlib.util
import math
import re
import sys
import warnings
from pathlib import Path

import checks
from checks import RANKS, buckets_of, check_no_trace, read_json, read_lines, said_by

WIDTH = 96
STEPS = 60
SLEEP_S = 0.02


def model(nn):
    layers = [layer for _ in range(6) for layer in (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())]
    return nn.Sequential(*layers, nn.Dropout(0.2))


def train(wrapped, steps, micro_steps=1):
    """Losses."""
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        for micro_step in range(micro_steps):
            with contextlib.nullcontext() if micro_step + 1 == micro_steps else wrapped.no_sync():
                loss = wrapped(torch.randn(32, WIDTH)).square().mean()
                loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def advised(folder, steps=STEPS, micro_steps=1, **options):
    torch.manual_seed(5)
    wrapped = DistributedDataParallel(model(torch.nn))

    def run():
        with bw.advise(wrapped, folder, **options) as advice:
            losses = train(wrapped, steps, micro_steps)
        return advice, losses

    (advice, losses), said = said_by(run)
    check_no_trace(torch, wrapped, backward)
    return advice, losses, wrapped, said


def check_harmless_and_complete(folder, rank):
    for name, micro_steps in (("plain", 1), ("accumulated", 2)):
        torch.manual_seed(5)
        without = train(DistributedDataParallel(model(torch.nn)), STEPS, micro_steps)
        advice, losses, wrapped, said = advised(folder / name, micro_steps=micro_steps)
        assert losses == without, f"{name}: losses differ with advise()"
        if rank != 0:
            assert advice.result is None and not said, said
            continue
        result = advice.result
        assert result == read_json(folder / name / "advice.json")
        assert result["added_ms"] > 0 and result["measured_step_ms"] > 0 and result["verdict"]["text"], result
        buckets = buckets_of(wrapped)
        assert result["current"]["bucket_bytes"] == buckets, (result["current"], buckets)
        one_line = " ".join(said.split())
        for part in (result["verdict"]["text"], "replayed it takes", "all-reduces of", "are in"):
            assert part in one_line, f"{name}: {part} is missing in {said}"
        records = read_lines(folder / name / "all_reduces.jsonl")
        sizes = [record["bytes"] for record in records if record["kind"] == "allreduce"]
        assert sizes == sorted(sizes) and len(sizes) >= 3 and records[0]["kind"] == "environment", records
        scenario = read_json(folder / name / "scenario.json")
        assert scenario["step"].get("accumulation", 1) == micro_steps and scenario["cluster"]["ranks"] == RANKS
        assert scenario["cluster"]["link"]["provenance"]["samples"] > 0, scenario["cluster"]["link"]
        assert not any("communicated" in str(caveat) for caveat in scenario.get("caveats", [])), scenario["caveats"]
        captured = read_json(folder / name / "captured.json")
        assert any("communicated" in str(caveat) for caveat in captured.get("caveats", [])) == (name == "plain"), captured


def check_links(folder, rank):
    """Without timing nothing is advised by a placeholder; a preset may take its place."""
    for name, link in (("none", False), ("preset", "eth-1g")):
        advice, _, _, said = advised(folder / name, link=link)
        if rank == 0:
            assert not (folder / name / "all_reduces.jsonl").exists() and "added_ms" not in advice.result
            withheld = advice.result["verdict"]["advice"] == "withheld"
            assert withheld == (link is False), advice.result["verdict"]


def check_all_ranks_are_needed(folder, rank):
    """Where one rank does not ask, no all-reduce is added that it would not answer."""
    torch.manual_seed(5)
    wrapped = DistributedDataParallel(model(torch.nn))

    def run():
        with bw.advise(wrapped, folder / "half") if rank == 0 else contextlib.nullcontext():
            train(wrapped, STEPS)

    _, said = said_by(run)
    assert rank != 0 or "1 of 2 ranks called it" in said, said


def check_evaluation(folder, rank):
    """A rank may look at its model on its own between steps, with gradients or without."""
    torch.manual_seed(5)
    wrapped = DistributedDataParallel(model(torch.nn), broadcast_buffers=False)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)

    def run():
        with bw.advise(wrapped, folder / "evaluated") as advice:
            for _ in range(STEPS):
                optimizer.zero_grad()
                wrapped(torch.randn(32, WIDTH)).square().mean().backward()
                optimizer.step()
                if rank == 0:
                    wrapped.module(torch.randn(32, WIDTH))  # with gradients, which DDP itself would not allow
                    with torch.no_grad():
                        wrapped.eval()
                        wrapped(torch.randn(32, WIDTH))
                        wrapped.train()
                dist.barrier()
        return advice

    advice, said = said_by(run)
    assert rank != 0 or advice.result["added_ms"] > 0, said


def check_failures(folder, rank):
    """One line, and training goes on."""
    sharded = type("DTensor", (torch.nn.Parameter,), {})

    class Sharded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = sharded(torch.zeros(2))

    for subject, options, part in ((torch.nn.ReLU(), {}, "expected a model with parameters"),
                                   (Sharded(), {}, "sharded parameters"), (None, {}, "nothing is advised")):
        _, said = said_by(lambda: bw.advise(subject, folder / "refused", **options).__exit__())  # noqa: B023
        if rank == 0:
            assert part in said and said.count("\n") == 1, said
    for name, options, part in (("missing", {"program": str(folder / "no such program")}, "no such program"),
                                ("failing", {"options": ["--no-such-option"]}, "no-such-option"),
                                ("early", {"warmup": 1000}, "training ended after")):
        advice, losses, _, said = advised(folder / name, **options)
        assert len(losses) == STEPS and advice.result is None, (name, len(losses), advice.result)
        assert rank != 0 or part in said.splitlines()[-1], f"{name}: {said}"
    # Alone, and without torch.distributed, too; but with nothing said of other ranks.
    alone = model(torch.nn)
    _, said = said_by(lambda: train_alone(alone, folder))
    check_no_trace(torch, alone, backward)


def train_alone(alone, folder):
    with bw.advise(alone, folder / "alone", link="eth-1g"):
        train(alone, STEPS)


def check_sharded(folder, rank):
    """Under fully_shard, with and without blocks that are computed again. Rank 1 sleeps in the forward of the second, which
    the scenario that rank 0 writes has to tell, as all wait for it."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.distributed.fsdp import fully_shard

    sleep = checks.sleeping_function(torch, SLEEP_S * (rank == 1), 0.0)

    class Sleep(torch.nn.Module):
        def forward(self, x):
            return sleep(x)

    def sharded(again):
        torch.manual_seed(5)
        blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.ReLU(),
                                      torch.nn.Linear(2 * WIDTH, WIDTH)) for _ in range(3)]
        blocks[1].append(Sleep())
        wrapped = torch.nn.Sequential(*(checkpoint_wrapper(block) if again else block for block in blocks))
        for block in wrapped:
            fully_shard(block)
        return fully_shard(wrapped)

    def hooks_of(wrapped):
        return [(len(module._forward_pre_hooks), len(module._forward_hooks)) for module in wrapped.modules()]

    def run(wrapped, name):
        with bw.advise(wrapped, folder / name) as advice:
            losses = train(wrapped, STEPS)
        return advice, losses

    wrapped = sharded(False)
    exposed = bw.ExposedCommunication(wrapped)
    train(wrapped, 6)
    assert 0 < exposed.ms() < 1e4, exposed.ms()
    for again in (False, True):
        name = f"sharded{again}"
        without = train(sharded(again), STEPS)
        wrapped = sharded(again)
        before = hooks_of(wrapped)
        (advice, losses), said = said_by(lambda: run(wrapped, name))  # noqa: B023
        assert losses == without, f"{name}: losses differ with advise()"
        assert torch.autograd.backward is backward and hooks_of(wrapped) == before, "hooks are left"  # but for FSDP2's own
        if rank != 0:
            assert advice.result is None and advice.exposed_ms is None and not said, said
            continue
        result, scenario = advice.result, read_json(folder / name / "scenario.json")
        assert result is not None and result["added_ms"] > 0 and result["measured_step_ms"] > 0, said
        assert advice.exposed_ms == result["exposed_ms"] > 0, result
        assert scenario["sync"]["strategy"] == "fsdp" and scenario["cluster"]["ranks"] == RANKS, scenario["sync"]
        assert scenario["cluster"]["link"]["provenance"]["samples"] > 0, scenario["cluster"]["link"]
        assert result["current"]["sharding"]["groups"] == [["0"], ["1"], ["2"]], result["current"]["sharding"]
        forward_us = {o["name"]: o["device_us"] for o in scenario["workload"]["forward_operations"]}
        assert forward_us["1 forward"] >= 1e6 * SLEEP_S, forward_us
        check_recomputed(result, said, again)
        records = read_lines(folder / name / "collectives.jsonl")
        block = 4 * sum(p.numel() for p in torch.nn.Sequential(torch.nn.Linear(WIDTH, 2 * WIDTH),
                                                               torch.nn.Linear(2 * WIDTH, WIDTH)).parameters())
        for kind in ("allgather", "reducescatter"):
            assert block in [record["bytes"] for record in records if record["kind"] == kind], (block, records)
        for part in ("replayed it takes", "all-gathers and reduce-scatters of the model's sizes"):
            assert part in " ".join(said.split()), f"{name}: {part} is missing in {said}"


def check_recomputed(result, said, again):
    """The block that sleeps in forward would sleep again, for the share that is not its last product's: half. Blocks
    that run again already are not told."""
    if again or result["verdict"]["advice"] == "withheld":
        assert result["recomputed"] == {} and "If memory is short" not in said, said
        return
    for blocks in ("every block", "every second one"):
        step_ms = result["recomputed"][blocks]["step_ms"]
        assert step_ms > result["best"]["step_ms"] + 450 * SLEEP_S, result
        assert f"with {blocks} {step_ms:.4g} ms" in said, said


def check_exposed(folder, rank):
    """A training that logs what it waits for trains the same, and gets a number."""
    torch.manual_seed(5)
    without = train(DistributedDataParallel(model(torch.nn)), 12)
    torch.manual_seed(5)
    wrapped = DistributedDataParallel(model(torch.nn))

    def run():
        exposed = bw.ExposedCommunication(wrapped)
        first, losses = exposed.ms(), train(wrapped, 6)
        after, more = exposed.ms(), train(wrapped, 6)
        return [first, after, exposed.ms()], losses + more

    (values, losses), said = said_by(run)
    assert losses[:6] == without[:6], "losses differ with ExposedCommunication"
    assert values[0] is None and 0 < values[1] < 1e4 and 0 < values[2] < 1e4, values
    assert not said, said


def check_device(folder, rank):
    with checks.emulated_gpu(torch):
        advice, _, _, said = advised(folder / "device")
    if rank == 0:
        assert advice.result is not None and advice.result["added_ms"] > 0, said
        records = read_lines(folder / "device" / "all_reduces.jsonl")
        assert records[0]["gpu"] == "emulated" and "2.28.3" in records[0]["gpu_libraries"], records[0]
        assert len([record for record in records if record["kind"] == "allreduce"]) >= 3, records


def check_trace_handler(folder, rank):
    wrapped = DistributedDataParallel(model(torch.nn))
    file = folder / "trace" / "advice.json"
    if rank == 0:
        file.parent.mkdir()
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=4, repeat=1)

    def run():
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        activities = [torch.profiler.ProfilerActivity.CPU]
        handler = bw.trace_handler(file)
        with torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=handler,
                                    record_shapes=True) as profiler:
            for _ in range(8):
                optimizer.zero_grad()
                wrapped(torch.randn(32, WIDTH)).square().mean().backward()
                optimizer.step()
                profiler.step()

    _, said = said_by(run)
    # Debian's PyTorch 1.13 has no shapes in its traces of a CPU, and says so.
    if rank == 0 and not (torch.__version__.startswith("1.13") and "whose sizes nothing tells" in said):
        assert file.exists(), said
        assert read_json(file)["best"]["bucket_bytes"], said


# --- wrappers: what is printed, typed, gives the buckets that were printed ---
# By a preset's link, as a busy machine's may be so unsteady that nothing is advised by it.


BATCH = 512


def wide():
    """2.4 MiB of gradients in 14 of them, and computing that lasts longer than a gigabit link's all-reduce of them: a cap
    below the default hides more of that."""
    torch.manual_seed(2)
    return torch.nn.Sequential(*(torch.nn.Linear(300, 300) for _ in range(7)))


def typed_into(said, pattern):
    """The argument that was printed, as Python has it."""
    text = " ".join(said.split())
    if "nothing: the default is as good as any" in text:
        return {}
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in {said}"
    return {name: float(value) for name, value in re.findall(r"(\w+)=([0-9.]+)", found.group(1))}


def told(values):
    """Rank 0's, on all ranks."""
    values = [values]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def check_accelerate(folder, rank):
    from accelerate import Accelerator, DistributedDataParallelKwargs

    def run(steps, **options):
        accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**options)] if options else [])
        wrapped = accelerator.prepare(wide())
        with bw.advise(wrapped, folder / "accelerate", link="eth-1g") if not options else contextlib.nullcontext() as advice:
            for _ in range(steps):
                wrapped.zero_grad()
                accelerator.backward(wrapped(torch.randn(BATCH, 300)).square().mean())
        return wrapped, advice

    (_, advice), said = said_by(lambda: run(STEPS))
    check_typed("accelerate", advice, said, r"DistributedDataParallelKwargs\(([^)]*)\)", lambda o: run(4, **o)[0])


def check_typed(name, advice, said, pattern, run):
    """`run`: trains with the options that were printed, and returns the DistributedDataParallel."""
    result = told(advice.result)
    options = told(typed_into(said, pattern) if dist.get_rank() == 0 else None)
    assert set(options) <= {"bucket_cap_mb", "ddp_bucket_cap_mb"}, (name, options)
    buckets = buckets_of(run(options))
    printed = result["best"]["bucket_bytes"] if options else result["current"]["bucket_bytes"]
    assert buckets == printed, f"{name}, {options}: {buckets}, printed {printed}"
    print(f"rank {dist.get_rank()}: {name}: {options} gives the {len(buckets)} buckets that were printed")


def check_lightning(folder, rank):
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = wide()

        def training_step(self, batch, _):
            return self.layers(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = torch.utils.data.TensorDataset(torch.randn(BATCH, 300).repeat(RANKS * STEPS, 1))
    kept = {}

    class Keep(pl.Callback):
        def on_train_start(self, trainer, _):
            kept["wrapped"] = trainer.strategy.model

    def run(steps, callback=None, **options):
        trainer = pl.Trainer(accelerator="cpu", devices=RANKS, strategy=DDPStrategy(**options), max_steps=steps,
                             logger=False, enable_checkpointing=False, enable_progress_bar=False,
                             enable_model_summary=False, callbacks=[Keep(), *([callback] if callback else [])])
        trainer.fit(Module(), torch.utils.data.DataLoader(data, batch_size=BATCH))
        return kept["wrapped"]

    callback = bw.LightningCallback(folder / "lightning", link="eth-1g")
    _, said = said_by(lambda: run(STEPS, callback))
    check_typed("lightning", callback.advice, said, r"DDPStrategy\(([^)]*)\)", lambda o: run(4, **o))


def check_transformers(folder, rank):
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = wide()

        def forward(self, x):
            return {"loss": self.layers(x).square().mean()}

    data = [{"x": torch.randn(300)}] * (BATCH * RANKS * STEPS)
    kept = {}

    def run(steps, callback=None, **options):
        arguments = TrainingArguments(output_dir=str(folder / "trainer"), max_steps=steps, per_device_train_batch_size=BATCH,
                                      use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True,
                                      logging_strategy="no", ddp_find_unused_parameters=False, **options)
        trainer = Trainer(model=Model(), args=arguments, train_dataset=data, callbacks=[callback] if callback else [])
        trainer.train()
        kept["wrapped"] = trainer.model_wrapped
        return kept["wrapped"]

    callback = bw.TrainerCallback(folder / "transformers", link="eth-1g")
    _, said = said_by(lambda: run(STEPS, callback))
    check_typed("transformers", callback.advice, said, r"(ddp_bucket_cap_mb=[0-9.]+)", lambda o: run(4, **o))


def check(rank, _, __, folder):
    global torch, dist, DistributedDataParallel, bw, backward
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import bucketwise.torch as bw
    from bucketwise.torch import watch

    backward, folder = torch.autograd.backward, Path(folder)
    # However unsteady a busy machine's times are: else nothing would be advised by them.
    watch.HOPELESS_SPREAD = watch.MOSTLY_UNSEEN = sys.modules["bucketwise.torch.advice"].POOR = math.inf
    warnings.simplefilter("ignore")
    for own in (check_harmless_and_complete, check_links, check_all_ranks_are_needed, check_evaluation, check_failures,
                check_trace_handler, check_device, check_exposed):
        own(folder, rank)
    if hasattr(importlib.import_module("torch.distributed.fsdp"), "fully_shard"):
        check_sharded(folder, rank)
    for own in (check_accelerate, check_lightning, check_transformers):
        name = own.__name__.removeprefix("check_")
        packages = [name] if name != "transformers" else [name, "accelerate"]  # its Trainer needs it
        if all(importlib.util.find_spec(package) is not None for package in packages):
            own(folder, rank)
        elif rank == 0:
            print(f"{name} is not installed, and so was not checked")


if __name__ == "__main__":
    checks.main(__doc__, check)
