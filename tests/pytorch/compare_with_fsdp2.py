#!/usr/bin/env python3
"""Predicted and measured steps of PyTorch's fully_shard (FSDP2), at several groupings and settings.

usage: compare_with_fsdp2.py --bucketwise BINARY [-o FOLDER] [--rounds 12] [--rate 1gbit] [--seed 1] [--ranks 2|4]
                             [--short: no time is judged, only whether everything fits together]
                             [--measure: nothing is predicted yet]
                             [--again: judge anew what was measured into FOLDER before]

Two or four ranks of real PyTorch over Gloo, each on a shaped link and, where there are as many, on a core of its own
(compare_with_ddp.py, whose module this builds on), train a decoder of 8 layers and 12 million parameters. In every
round, in a seeded random order: a step with every setting (what is predicted, never fitted to), and what a prediction
is made of: passes that bucketwise.torch captures of a model with one layer per group, isolated all-gathers,
reduce-scatters and all-reduces, and all-gathers beside backward. With Gloo all of FSDP2's collectives block the host but asynchronous all-gathers, so times add up, and
collectives count by their means.

Writes into FOLDER captured.json, log.jsonl, link.json, steps.csv and comparison.json. Skipped (exit code 77), saying
why, where compare_with_ddp.py would be, or without fully_shard.
"""

import argparse
import csv
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare_with_ddp as base

HERE = Path(__file__).resolve()
MIB = 1 << 20


def settings(layers):
    """`sharding` of a scenario, by what it is called in tables."""
    found = {}
    for size in (1, 2, layers // 2):
        found[f"{size} per group"] = {"layers_per_group": size}
    found["all in the root"] = {"layers_per_group": 0}
    for size in (1, layers // 2):
        found[f"{size} per group, kept"] = {"layers_per_group": size, "reshard_after_forward": False}
    for size in (1, 2, layers // 2):
        found[f"{size} per group, asynchronous"] = {
            "layers_per_group": size,
            "asynchronous_unshard": True,
            "forward_prefetch": 1,
        }
    found["1 per group, asynchronous, 2 ahead"] = {
        "layers_per_group": 1,
        "asynchronous_unshard": True,
        "forward_prefetch": 2,
        "backward_prefetch": 2,
    }
    found["1 per group, asynchronous, kept"] = {
        "layers_per_group": 1,
        "asynchronous_unshard": True,
        "forward_prefetch": 1,
        "reshard_after_forward": False,
    }
    return found


class Setup:
    compiled, passes = False, 1

    def __init__(self, short):
        self.layers, self.width, self.tokens, self.batch = (4, 64, 16, 2) if short else (8, 384, 128, 2)
        self.trained = self
        # From less than a block's norms to all parameters.
        shifts = range(12, 21, 2) if short else (12, 14, 16, 18, 20, 21, 22, 23, 24, 25, 26)
        self.isolated = [(kind, 1 << s) for kind in ("allgather", "reducescatter", "allreduce") for s in shifts]
        self.contended = [1 << 16] if short else [1 << 20, 1 << 22, 1 << 24]

    def model(self):
        from sharded_models import Decoder

        class Large(Decoder):
            VOCABULARY, WIDTH, TOKENS, HEADS = 512, self.width, self.tokens, 8

        return Large(layers=self.layers)

    def inputs(self):
        return base.torch.randint(512, (self.batch, self.tokens))

    def targets(self):
        return base.torch.randint(512, (self.batch * self.tokens,))


class ShardedRank(base.Rank):
    def __init__(self, rank, setup, rounds, folder):
        self.join(rank, setup, rounds, folder)
        from bucketwise.torch import capture

        self.wrapped = {name: self.shard(sharding) for name, sharding in settings(setup.layers).items()}
        self.watched = self.shard({"layers_per_group": 1})
        capture(self.watched[0], folder / "captured.json", steps=setup.passes * rounds, warmup=setup.passes)

    def shard(self, sharding):
        from record_sharded import groups_of, set_prefetch, shard

        model = self.setup.model()
        groups = groups_of([f"layers.{i}" for i in range(self.setup.layers)], sharding)
        shard(model, groups, base.RANKS, sharding)
        turn = list(range(1, len(groups) + 1))
        set_prefetch(model, groups, sharding, {"forward": turn, "backward": turn[::-1]})
        return model, base.torch.optim.SGD(model.parameters(), lr=1e-3)

    def loss(self, model):
        model.zero_grad(set_to_none=True)
        return base.torch.nn.functional.cross_entropy(model(self.inputs).flatten(0, 1), self.targets)

    def step(self, model, optimizer):
        """Moments of its beginning, before and after backward, and of its end."""
        moments = [time.perf_counter()]
        loss = self.loss(model)
        moments.append(time.perf_counter())
        loss.backward()
        moments.append(time.perf_counter())
        optimizer.step()
        moments.append(time.perf_counter())
        return moments

    def warm_up(self):
        for model, optimizer in self.wrapped.values():
            self.step(model, optimizer)

    def judged(self, name):
        base.dist.barrier()
        begin, forward, backward, end = self.step(*self.wrapped[name])
        ranks = self.by_rank(*(1e3 * t for t in (forward - begin, backward - forward, end - begin)))
        row = {"setting": name}
        for rank, times in enumerate(ranks):
            for part, ms in zip(("forward", "backward", "step"), times):
                row[f"rank{rank}_{part}_ms"] = round(ms, 4)
        return row

    def capture(self):
        for _ in range(self.setup.passes):
            base.dist.barrier()
            self.step(*self.watched)

    def isolated(self, kind, size):
        """As FSDP2 calls them, gathered in place, and averaged; and as a step has them: as many in a row as take all
        parameters, after one of another kind. Gloo's all-gathers take half as long again when one follows another."""
        whole = base.torch.zeros(size // 4)
        mine, part = whole.chunk(base.RANKS)[self.rank], base.torch.zeros(size // 4 // base.RANKS)
        issue = {
            "allgather": lambda: base.dist.all_gather_into_tensor(whole, mine),
            "reducescatter": lambda: base.dist.reduce_scatter_tensor(part, whole, op=base.dist.ReduceOp.AVG),
            "allreduce": lambda: base.dist.all_reduce(whole),
        }
        before = issue["allgather" if kind == "reducescatter" else "reducescatter"]
        numel = sum(parameter.numel() for parameter in self.alone.parameters())
        base.dist.barrier()
        times = []
        before()
        for _ in range(min(max(round(4 * numel / size), 1), 20)):
            begin = time.perf_counter()
            issue[kind]()
            times.append(1e6 * (time.perf_counter() - begin))
        return {
            "kind": kind,
            **base.transport(),
            "bytes": size,
            "dtype": "float32",
            "samples_us": self.slowest(times),
            "largest_difference": 0.0,
            "peak_memory_bytes": 0,
        }

    def queued_all_reduces_us(self, size, count):
        """From end to end, of all-gathers, which alone run beside computing: one at a time, as with one group ahead."""
        whole, times = base.torch.zeros(size // 4), []
        for _ in range(int(count)):
            begin = time.perf_counter()
            base.dist.all_gather_into_tensor(whole, whole.chunk(base.RANKS)[self.rank], async_op=True).wait()
            times.append(1e6 * (time.perf_counter() - begin))
        return times

    def contended(self, size):
        return {**super().contended(size), "collective": "allgather"}

    def run(self, seed):
        order = random.Random(seed)
        work = [lambda n=name: ("steps", self.judged(n)) for name in self.wrapped]
        work += [lambda k=kind, s=size: ("log", self.isolated(k, s)) for kind, size in self.setup.isolated]
        work += [lambda s=size: ("log", self.contended(s)) for size in self.setup.contended]
        work.append(lambda: ("captured", self.capture()))
        self.warm_up()
        found = {"steps": [], "log": [{**base.environment(seed, self.rounds), "command": ["compare_with_fsdp2.py"]}]}
        for number in range(-1, self.rounds):  # the first one warms up
            order.shuffle(work)
            for item in work:
                kind, record = item()
                if number >= 0 and record is not None:
                    found[kind].append({**record, "round": number})
            if self.rank == 0:
                base.show_progress(number + 1, self.rounds)
        if self.rank == 0:
            base.write_lines(self.folder / "log.jsonl", found["log"])
            base.write_csv(self.folder / "steps.csv", found["steps"])
            share = statistics.median(self.processor_shares)
            numels = sum(p.numel() for p in self.alone.parameters())
            described = {"torch": base.torch.__version__, "processor_share": share, "parameters": numels}
            base.write_json(self.folder / "fsdp2.json", described)
        base.dist.barrier()
        base.dist.destroy_process_group()


def run_rank(options):
    # Without the process that started it there is nobody left to report to.
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    ShardedRank(options.rank, Setup(options.short), options.rounds, Path(options.output)).run(options.seed)
    os._exit(0)


# --- predicted beside measured ---


def with_means(folder):
    """means.jsonl: collectives of each kind and size as often as they were, each by their mean. Nothing hides what a step
    waits for, so times add up, and with them their means."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    for record in lines:
        if "samples_us" in record:
            same = [r["samples_us"] for r in lines if (r["kind"], r.get("bytes")) == (record["kind"], record["bytes"])]
            mean = statistics.mean(us for samples in same for us in samples)
            record["means_us"] = [mean] * len(record["samples_us"])
    for record in lines:
        if "means_us" in record:
            record["samples_us"] = record.pop("means_us")
    base.write_lines(folder / "means.jsonl", lines)


def make_link(options, folder):
    """Writes link.json, with what copying costs, and returns it."""
    with_means(folder)
    base.run(options.bucketwise, "calibrate", folder / "means.jsonl", "-o", folder / "link.json")
    (folder / "means.jsonl").unlink()
    link = json.loads((folder / "link.json").read_text())
    captured = json.loads((folder / "captured.json").read_text())
    link["copy_gb_per_s"] = captured["cluster"]["link"]["copy_gb_per_s"]
    base.write_json(folder / "link.json", link)
    return link


def predicted(options, folder, sharding):
    scenario = json.loads((folder / "captured.json").read_text())
    known = scenario["sync"]["sharding"]
    scenario["sync"]["sharding"] = {**{k: known[k] for k in ("gradient_sync",)}, **sharding}
    scenario["cluster"]["link"] = json.loads((folder / "link.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        base.write_json(Path(name, "scenario.json"), scenario)
        text = base.run(options.bucketwise, "predict", Path(name, "scenario.json"), "--json", "-")
    return json.loads(text)["configured"]


def measured_steps(folder):
    """Returns ms of the slowest rank by setting and part."""
    found = {}
    with open(folder / "steps.csv") as lines:
        for row in csv.DictReader(lines):
            for part in ("forward", "backward", "step"):
                slowest = max(float(row[f"rank{rank}_{part}_ms"]) for rank in range(base.RANKS))
                found.setdefault(row["setting"], {}).setdefault(part, []).append(slowest)
    return found


def judge(options, folder):
    """Writes link.json and comparison.json; returns the latter."""
    link = make_link(options, folder)
    measured, draws = measured_steps(folder), random.Random(options.seed)
    points = []
    for name, sharding in settings(Setup(options.short).layers).items():
        prediction = predicted(options, folder, sharding)
        median = {part: statistics.median(times) for part, times in measured[name].items()}
        points.append(
            {
                "setting": name,
                "sharding": sharding,
                "measured_step_ms": median["step"],
                "measured_interval_ms": base.bootstrap(measured[name]["step"], draws),
                "measured_forward_ms": median["forward"],
                "measured_backward_ms": median["backward"],
                "predicted_step_ms": prediction["step_ms"],
                "predicted_forward_ms": prediction["forward_ms"],
                "predicted_backward_ms": prediction["backward_ms"],
                "error": prediction["step_ms"] / median["step"] - 1,
            }
        )
    described = json.loads((folder / "fsdp2.json").read_text())
    provenance = link["provenance"]
    chosen = min(points, key=lambda p: p["predicted_step_ms"])
    fastest = min(points, key=lambda p: p["measured_step_ms"])
    comparison = {
        "machine": f"{provenance['hardware']}; {provenance['versions']}; {provenance['date']}",
        **described,
        "rounds": options.rounds,
        "rate": options.rate,
        "ranks": options.ranks,
        "short": options.short,
        "points": points,
        "mape": statistics.mean(abs(p["error"]) for p in points),
        "max_error": max(abs(p["error"]) for p in points),
        "predicted_best": chosen["setting"],
        "measured_best": fastest["setting"],
        "regret": chosen["measured_step_ms"] / fastest["measured_step_ms"] - 1,
        "noise_floor": noise(measured, draws),
    }
    base.write_json(folder / "comparison.json", comparison)
    return comparison


def noise(measured, draws):
    halves = []
    for times in measured.values():
        low, high = base.bootstrap(times["step"], draws)
        halves.append((high - low) / 2 / statistics.median(times["step"]))
    return statistics.median(halves)


def report(comparison):
    print(f"PyTorch {comparison['torch']}, {comparison['parameters']} parameters, {base.RANKS} ranks, Gloo, "
          f"{comparison['rate']}, {comparison['rounds']} rounds\n")  # fmt: skip
    warn_of_others(comparison)
    print("| setting | measured, ms | 95 % | predicted, ms | error |\n|---|---|---|---|---|")
    for p in comparison["points"]:
        low, high = p["measured_interval_ms"]
        measured = f"{p['measured_step_ms']:.1f} | {low:.1f} to {high:.1f}"
        print(f"| {p['setting']} | {measured} | {p['predicted_step_ms']:.1f} | {100 * p['error']:+.1f} % |")
    print(f"\nMAPE {100 * comparison['mape']:.1f} %, noise floor {100 * comparison['noise_floor']:.1f} %")
    print(f"best: predicted {comparison['predicted_best']}, measured {comparison['measured_best']}, "
          f"regret {100 * comparison['regret']:.1f} %")  # fmt: skip


def warn_of_others(described):
    if described["processor_share"] < 0.98:
        share = 100 * described["processor_share"]
        print(f"Other programs ran: computing got {share:.0f} % of its core. Times below tell little.\n")


def report_measured(folder):
    warn_of_others(json.loads((folder / "fsdp2.json").read_text()))
    print("| setting | forward, ms | backward, ms | step, ms |\n|---|---|---|---|")
    for name, parts in sorted(measured_steps(folder).items()):
        print(f"| {name} | " + " | ".join(f"{statistics.median(times):.1f}" for times in parts.values()) + " |")


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--bucketwise")
    parser.add_argument("-o", "--output")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2, choices=(2, 4))
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.short else 12)
    needs_program = options.rank is None and not options.measure
    if needs_program and (options.bucketwise is None or shutil.which(options.bucketwise) is None):
        parser.error(f"--bucketwise: expected a program, got {options.bucketwise}")
    if options.again:
        if options.output is None or not Path(options.output, "steps.csv").is_file():
            parser.error("--again: expected -o with a folder that was measured into")
        stored = Path(options.output, "comparison.json")
        if stored.is_file():
            before = json.loads(stored.read_text())
            options.rounds, options.rate, options.short = before["rounds"], before["rate"], before["short"]
            options.ranks = before.get("ranks", 2)
    return options


def require():
    base.require()
    probe = "import torch.distributed.fsdp as f, sys; sys.exit(not hasattr(f, 'fully_shard'))"
    if subprocess.run([sys.executable, "-c", probe]).returncode:
        raise base.Skip("PyTorch has no fully_shard here")


def main():
    options = parse()
    base.RANKS = options.ranks
    if options.rank is not None:
        run_rank(options)
    if options.again:
        return report(judge(options, Path(options.output)))
    try:
        require()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(options.output or name)
            folder.mkdir(parents=True, exist_ok=True)
            arguments = ["--rounds", options.rounds, "--seed", options.seed, "-o", folder, "--measure"]
            arguments += ["--ranks", options.ranks]
            # The heap keeps what is freed, as a GPU's allocator does. Else everything that is gathered anew costs a page
            # fault for each of its pages.
            os.environ.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_TOP_PAD_=str(1 << 26))
            base.run_script(HERE, arguments + (["--short"] if options.short else []), options.rate)
            if options.measure:
                return report_measured(folder)
            comparison = judge(options, folder)
            report(comparison)
            steps = [p["predicted_step_ms"] for p in comparison["points"]]
            assert len(set(steps)) > 1, "settings that make a difference"
    except base.Skip as reason:
        print(f"compare_with_fsdp2: skipped: {reason}")
        sys.exit(base.SKIPPED)


if __name__ == "__main__":
    main()
