#!/usr/bin/env python3
"""Plants causes of slow steps in real trainings, traces them, and judges what `bucketwise diagnose` says of each.

usage: plant_causes.py --bucketwise BINARY [-o FOLDER] [--wrapper ddp|fsdp] [--model transformer|perceptron|deep]
                       [--ranks 2] [--rounds 10] [--rate 1gbit] [--seed 1]
                       [--short: no time is judged, only whether everything fits together]
                       [--again: judge anew what was traced into FOLDER before]

Ranks (comparison.py) train a model under DistributedDataParallel or fully_shard. The scenario that
`diagnose --expected` is given is that of the sound training, of median length of its first three traces. In a seeded random order, each cause is planted --rounds
times, from slight to severe, and nothing twice as often. Steps with and without it alternate, which tells what it costs;
then steps with it are traced. Causes: a slow link (tc), a late rank, a late host (all ranks wait in one module), small
buckets, no prefetch, find_unused_parameters, copied buckets, more computing in each product.
Writes into FOLDER the traces, planted.csv and comparison.json.
"""

import contextlib
import csv
import gzip
import json
import os
import random
import statistics
import subprocess
import time
from pathlib import Path

import comparison as base
from comparison import read_json, write_json

TIMED, TRACED = 4, 4
CAUSES = {"ddp": ["slow_link", "late_rank", "late_host", "small_buckets", "unused", "copies", "computing"],
          "fsdp": ["slow_link", "late_rank", "late_host", "small_groups", "prefetch", "computing"]}
# Names that diagnose has for them.
NAMED = {"slow_link": "slow_link", "late_rank": "late_rank", "late_host": "late_host", "small_buckets": "small_buckets",
         "small_groups": "small_buckets", "prefetch": "no_prefetch", "unused": "unused_parameters", "copies": "copies",
         "computing": "slow_computing"}


class Deep:
    """100 layers of 160 at batch 64: 10 MiB of gradients, 200 of them."""

    def __init__(self, short):
        self.layers, self.width, self.batch = (12, 64, 16) if short else (100, 160, 64)

    def model(self):
        one = lambda: torch.nn.Linear(self.width, self.width)  # noqa: E731
        blocks = [torch.nn.Sequential(*[one() for _ in range(10 if self.layers > 12 else 3)]) for _ in range(10)]
        return torch.nn.Sequential(*blocks[: max(2, self.layers // 10)])

    def inputs(self):
        return torch.randn(self.batch, self.width)

    def targets(self):
        return torch.randint(self.width, (self.batch,))


class PlantedRank:
    def __init__(self, rank, ranks, options, folder):
        global torch, dist
        import torch
        import torch.distributed as dist
        from trained_models import MODELS

        self.rank, self.ranks, self.options, self.folder = rank, ranks, options, folder
        torch.manual_seed(7)
        self.training = {"deep": Deep, **MODELS}[options["model"]](options["short"])
        self.models, self.kept = {}, ("", 0.0)
        self.step_s = 0.1

    # -- models --

    def model(self, kind, size):
        """Wrapped as `kind` says: sound, or one of the causes that are settings."""
        if kind != "sound" and (kind, size) != self.kept:
            self.models.pop(self.kept[0], None)  # one at a time, beside the sound one
            self.kept = kind, size
        if kind not in self.models:
            torch.manual_seed(7)
            plain = self.training.model()
            if self.options["wrapper"] == "ddp":
                ways = {"small_buckets": {"bucket_cap_mb": 0.6 - 0.55 * size}, "unused": {"find_unused_parameters": True},
                        "copies": {"gradient_as_bucket_view": False}}
                wrapped = torch.nn.parallel.DistributedDataParallel(
                    plain, **{"bucket_cap_mb": 4, "gradient_as_bucket_view": True, **ways.get(kind, {})})
            else:
                wrapped = self.sharded(plain, kind)
            self.models[kind] = wrapped, torch.optim.SGD(wrapped.parameters(), lr=1e-4)
        return self.models[kind]

    def sharded(self, plain, kind):
        from torch.distributed.fsdp import fully_shard

        blocks = [one for one in plain if list(one.parameters())]
        if kind == "small_groups":
            for block in blocks:
                for one in block.modules():
                    if one is not block and list(one.parameters(recurse=False)) and not list(one.children()) \
                            and not isinstance(one, torch.nn.modules.linear.NonDynamicallyQuantizableLinear):
                        fully_shard(one)
        for block in blocks:
            fully_shard(block)
        fully_shard(plain)
        if kind != "prefetch":
            for block, following in zip(blocks, blocks[1:]):
                block.set_modules_to_forward_prefetch([following])
        return plain

    # -- causes --

    @contextlib.contextmanager
    def planted(self, cause, size):
        """Gives a function that makes a step. `size`: how much, from 0 to 1."""
        kind = cause if cause in ("small_buckets", "unused", "copies", "small_groups", "prefetch") else "sound"
        model, optimizer = self.model(kind, size)
        inputs, targets = self.training.inputs(), self.training.targets()
        before, hooks = 0.0, []
        if cause == "slow_link":
            self.set_rate(base.bits_per_second(self.options["rate"]) / (1 + 1.5 * size))
        elif cause == "late_rank":
            before = 0.6 * size * self.step_s if self.rank == 1 else 0.0
        elif cause == "late_host":
            module = self.middle(model)
            hooks.append(module.register_forward_pre_hook(lambda *_: time.sleep(0.6 * size * self.step_s)))
        elif cause == "computing":
            more = round((1 + size) * len(inputs))
            times = -(-more // len(inputs))
            per_input = len(targets) // len(inputs)
            inputs, targets = inputs.repeat(times, *[1] * (inputs.dim() - 1))[:more], targets.repeat(times)[:more * per_input]

        def step():
            optimizer.zero_grad(set_to_none=True)
            if before:
                time.sleep(before)
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

        try:
            yield step
        finally:
            for hook in hooks:
                hook.remove()
            if cause == "slow_link":
                self.set_rate(base.bits_per_second(self.options["rate"]))

    def middle(self, model):
        plain = model.module if hasattr(model, "module") else model
        blocks = [one for one in plain if list(one.parameters())]
        return blocks[len(blocks) // 2]

    def set_rate(self, bits):
        dist.barrier()
        burst = 64 << 10
        subprocess.run(["tc", "qdisc", "change", "dev", "eth0", "root", "tbf", "rate", f"{int(bits)}bit", "burst",
                        str(burst), "limit", str(8 * base.MIB)], check=True)
        dist.barrier()

    # -- measuring --

    def timed_s(self, step):
        begin = time.perf_counter()
        step()
        return time.perf_counter() - begin

    def run(self, number, cause, size):
        """Writes traces of steps with the cause. Returns medians of steps with it and without it, of the slowest rank."""
        with self.planted("nothing", 0) as sound:
            sound_s = self.warm(sound)
        with self.planted(cause, size) as step:
            self.warm(step)
        steps = {True: [], False: []}
        for _ in range(TIMED):
            for has_it in (True, False):
                with self.planted(cause if has_it else "nothing", size) as step:
                    dist.barrier()
                    steps[has_it].append(self.timed_s(step))
        with self.planted(cause, size) as step:
            self.trace(step, number)
        mine = torch.tensor([statistics.median(steps[True]), statistics.median(steps[False]), sound_s])
        dist.all_reduce(mine, op=dist.ReduceOp.MAX)
        return [1e3 * value for value in mine.tolist()][:2]

    def warm(self, step):
        dist.barrier()
        return min(self.timed_s(step) for _ in range(2))

    def trace(self, step, number):
        from torch.profiler import ProfilerActivity, profile, schedule

        dist.barrier()
        file = str(self.folder / f"{number}.rank{self.rank}.json")
        plan = schedule(wait=0, warmup=2, active=TRACED, repeat=1)
        with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True,
                     on_trace_ready=lambda one: one.export_chrome_trace(file + ".raw")) as profiler:
            for _ in range(2 + TRACED):
                step()
                profiler.step()
        packed(file)
        dist.barrier()


def packed(file):
    """In place of the raw trace."""
    Path(file + ".gz").write_bytes(gzip.compress(Path(file + ".raw").read_bytes(), 6, mtime=0))
    Path(file + ".raw").unlink()


def plan_of(options):
    """(cause, size) in the order they are planted; the first is the sound training."""
    causes = CAUSES[options["wrapper"]]
    rounds = options["rounds"]
    sizes = [(i + 1) / rounds for i in range(rounds)]
    items = [(cause, size) for cause in causes for size in sizes] + [("nothing", 0.0)] * (2 * rounds)
    random.Random(options["seed"]).shuffle(items)
    return [("nothing", 0.0), *items]


def plant(rank, ranks, options, folder):
    cores = sorted(os.sched_getaffinity(0))
    if ranks <= len(cores):  # else the system shares the cores evenly, which ranks bound to one cannot do
        os.sched_setaffinity(0, {cores[rank]})
    one = PlantedRank(rank, ranks, options, Path(folder))
    with one.planted("nothing", 0) as step:
        for _ in range(3):
            one.step_s = one.timed_s(step)
    rows = []
    items = plan_of(options)
    for number, (cause, size) in enumerate(items):
        with_ms, without_ms = one.run(number, cause, size)
        rows.append({"number": number, "cause": cause, "size": round(size, 3), "with_ms": round(with_ms, 3),
                     "without_ms": round(without_ms, 3)})
        if rank == 0:
            base.show_progress(number + 1, len(items))
    if rank == 0:
        base.write_csv(Path(folder) / "planted.csv", rows)
        write_json(Path(folder) / "environment.json", {"torch": torch.__version__})


def steps_ms(options, files):
    done = subprocess.run([options.bucketwise, "diagnose", *files, "--json", "-"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["step_ms"]


def judge(options, folder):
    with open(folder / "planted.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    files = lambda number: [str(folder / f"{number}.rank{r}.json.gz") for r in range(options.ranks)]  # noqa: E731
    sound = [row for row in rows if row["cause"] == "nothing"][:3]
    sound.sort(key=lambda row: steps_ms(options, files(row["number"])))
    base.run(options.bucketwise, "import", "kineto", *files(sound[1]["number"]), "-o", str(folder / "expected.json"))
    found = []
    for row in rows:
        if row in sound:
            continue
        done = subprocess.run([options.bucketwise, "diagnose", *files(row["number"]), "--expected",
                               str(folder / "expected.json"), "--json", "-"], capture_output=True, text=True)
        assert done.returncode == 0, (row, done.stderr)
        said = json.loads(done.stdout)
        costs = float(row["with_ms"]) - float(row["without_ms"])
        found.append({**row, "share": costs / float(row["without_ms"]), "costs_ms": costs,
                      "expected_ms": said["expected_step_ms"], "step_ms": said["step_ms"],
                      "causes": [{key: one[key] for key in ("cause", "costs_ms", "text")} for one in said["causes"]]})
    result = {"rounds": options.rounds, "rate": options.rate, "ranks": options.ranks, "short": options.short,
              "model": options.model, "wrapper": options.wrapper, **read_json(folder / "environment.json"),
              "planted": found}
    write_json(folder / "comparison.json", result)
    return result


def report(result):
    print(f"{result['wrapper']}, {result['model']}, {result['ranks']} ranks, {result['rate']}")
    errors, named, above = [], 0, 0
    for row in sorted(result["planted"], key=lambda r: (r["cause"], float(r["size"]))):
        first = row["causes"][0] if row["causes"] else {"cause": "-", "costs_ms": 0.0}
        right = first["cause"] == NAMED.get(row["cause"], "-")
        print(f"  {row['cause']:14} {100 * row['share']:+6.1f} % {row['costs_ms']:+8.1f} ms   "
              + "; ".join(f"{one['cause']} {one['costs_ms']:.1f}" for one in row["causes"]) + ("" if right else "   <- not it"))
        if row["cause"] != "nothing" and row["share"] > 0.1:
            above += 1
            named += right
            if right:
                errors.append(abs(first["costs_ms"] / row["costs_ms"] - 1))
    nothing = [row for row in result["planted"] if row["cause"] == "nothing"]
    alarms = sum(bool(row["causes"]) for row in nothing)
    print(f"  named first {named} of {above} above 10 %, ms within {100 * statistics.median(errors or [0]):.0f} % in the "
          f"median; {alarms} of {len(nothing)} false alarms")


def main():
    parser = base.parser_of(__doc__.split("usage: ")[1].split("\n\n")[0], 10)
    parser.add_argument("--wrapper", choices=CAUSES, default="ddp")
    parser.add_argument("--model", choices=("transformer", "perceptron", "deep"), default="transformer")
    parser.add_argument("--ranks", type=int, default=2)
    parser.set_defaults(fewest_rounds=1)
    options = base.options_of(parser)
    if options.again:
        options.wrapper = read_json(options.output / "comparison.json")["wrapper"]
    base.compare(options, plant, judge, report, probe="hasattr(__import__('torch.distributed.fsdp').distributed.fsdp, 'fully_shard')", variables=base.KEEPING_HEAP)


if __name__ == "__main__":
    main()
