#!/usr/bin/env python3
"""Predicted and measured backward times of DeepSpeed's ZeRO-1 and ZeRO-2 and of Megatron-LM's DistributedDataParallel.

usage: compare_frameworks.py --bucketwise BINARY --framework deepspeed_zero1|deepspeed_zero2|megatron_lm [-o FOLDER]
                             [--rounds 8] [--rate 1gbit] [--settings 500000,…] [--seed 1]
                             [--short: no time is judged, only whether everything fits together]
                             [--again: judge anew what was measured into FOLDER before]

Two ranks of the real package over Gloo on a shaped link, each on a core of its own, train the perceptron of
compare_with_ddp.py, whose module this builds on. In every round, in a seeded random order: backward with every
setting, until the gradients are reduced (what is predicted, never fitted to), and what a prediction is made of:
passes that bucketwise.torch.capture_pytorch watches, isolated all-reduces and all-reduces beside backward. Where nothing
hides what a step waits for, times add up, and with them their means: all-reduces count by their mean, not by their
median, and what was captured is scaled to the mean of the slower rank of each pass. The prediction is
`bucketwise settings check` of a file with that setting. Skipped (exit code 77), saying why, without the package,
or where compare_with_ddp.py would be.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "frameworks")]

import compare_with_ddp as base
from record import is_there

HERE = Path(__file__).resolve()
PACKAGES = {"deepspeed_zero1": "deepspeed", "deepspeed_zero2": "deepspeed", "megatron_lm": "megatron.core"}
DEEPSPEED = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "steps_per_print": 10**9}


def deepspeed_settings(framework, elements):
    stage = int(framework[-1])
    zero = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True, "reduce_bucket_size": elements}
    return {"zero_optimization": zero}


class DeepSpeed:
    def __init__(self, framework):
        from record_deepspeed import import_deepspeed

        self.framework, self.package = framework, import_deepspeed()
        self.package.init_distributed(dist_backend="gloo")

    version = property(lambda self: f"deepspeed {self.package.__version__}")

    def wrap(self, model, elements):
        config = {**DEEPSPEED, **deepspeed_settings(self.framework, elements)}
        optimizer = base.torch.optim.AdamW(model.parameters(), lr=1e-5)
        engine, *_ = self.package.initialize(model=model, optimizer=optimizer, config=config)
        return engine

    @staticmethod
    def backward(engine, loss):
        engine.backward(loss)

    @staticmethod
    def finish(engine):
        engine.step()


class Megatron:
    """Its optimizer is not run: what it would do after backward is not judged."""

    def __init__(self, framework):
        import torch

        # Where its buffers are, and what it waits for around a collective on a stream of its own.
        from record_megatron import Stream, no_compiler

        torch.cuda.current_device = lambda: "cpu"
        torch.cuda.current_stream = lambda *_: Stream()
        torch.cuda.Stream = lambda *_, **__: Stream()
        torch.utils.cpp_extension.load_inline = no_compiler
        import megatron.core
        from megatron.core import parallel_state

        parallel_state.initialize_model_parallel()
        self.package = megatron.core

    version = property(lambda self: f"megatron-core {self.package.__version__}")

    @staticmethod
    def wrap(model, elements):
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
        from megatron.core.transformer import TransformerConfig

        config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
        settings = DistributedDataParallelConfig(
            overlap_grad_reduce=True, bucket_size=elements, check_for_nan_in_grad=True
        )
        return DistributedDataParallel(config, settings, model)

    @staticmethod
    def backward(wrapped, loss):
        loss.backward()
        wrapped.finish_grad_sync()

    @staticmethod
    def finish(wrapped):
        wrapped.zero_grad_buffer()


class FrameworkRank(base.Rank):
    def __init__(self, rank, setup, rounds, folder, framework, settings):
        self.framework, self.settings, self.alone_ms = framework, settings, []
        os.environ.update(LOCAL_RANK=str(rank), RANK=str(rank), WORLD_SIZE=str(base.RANKS))  # which DeepSpeed reads
        super().__init__(rank, setup, rounds, folder)

    def wrap_all(self):
        self.package = (Megatron if self.framework == "megatron_lm" else DeepSpeed)(self.framework)
        return {(elements,): self.package.wrap(self.model(), elements) for elements in self.settings}

    def loss_of(self, wrapped):
        return base.torch.nn.functional.cross_entropy(wrapped(self.inputs), self.targets)

    def warm_up(self):
        for wrapped in self.wrapped.values():
            for _ in range(2):
                self.package.backward(wrapped, self.loss_of(wrapped))
                self.package.finish(wrapped)

    def judged(self, elements):
        wrapped = self.wrapped[elements,]
        loss = self.loss_of(wrapped)
        base.dist.barrier()
        begin = time.perf_counter()
        self.package.backward(wrapped, loss)
        times = self.by_rank(1e3 * (time.perf_counter() - begin))
        self.package.finish(wrapped)
        return {"elements": elements, **{f"rank{r}_ms": round(ms, 4) for r, (ms,) in enumerate(times)}}

    def capture(self):
        super().capture()
        for _ in range(2):
            loss = self.loss(self.alone)
            base.dist.barrier()
            begin = time.perf_counter()
            loss.backward()
            self.alone_ms.append([ms for (ms,) in self.by_rank(1e3 * (time.perf_counter() - begin))])

    def described(self):
        return {"framework": self.framework, "package": self.package.version, "alone_ms": self.alone_ms}


def run_rank(options):
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    setup = base.Setup(options.short, None, "perceptron", False)
    rank = FrameworkRank(
        options.rank, setup, options.rounds, Path(options.output), options.framework, options.settings
    )  # fmt: skip
    rank.run(options.seed)
    sys.stdout.flush()
    os._exit(0)


# --- predicted beside measured ---


def with_means(folder):
    """Writes means.jsonl: the log with each isolated all-reduce as long as those of its size are on average."""
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    times = {}
    for record in records:
        if record["kind"] == "allreduce":
            times.setdefault(record["bytes"], []).extend(record["samples_us"])
    for record in records:
        if record["kind"] == "allreduce":
            record["samples_us"] = [statistics.mean(times[record["bytes"]])]
    base.write_lines(folder / "means.jsonl", records)


def of_slower_rank(folder):
    """Writes slower.json: what rank 0 captured, as much longer as the slower rank of each pass takes on average."""
    alone = json.loads((folder / "ddp.json").read_text())["alone_ms"]
    factor = statistics.mean(map(max, alone)) / statistics.median(ranks[0] for ranks in alone)
    scenario = json.loads((folder / "captured.json").read_text())
    workload = scenario["workload"]
    for part in (workload, *workload["gradients"]):
        part.update({key: factor * part[key] for key in ("forward_ms", "backward_ms", "ready_ms") if key in part})
    base.write_json(folder / "slower.json", scenario)


def predicted(options, folder, elements):
    """Returns the result of settings check for a file with this setting."""
    if options.framework == "megatron_lm":
        name, text = "arguments.sh", f"pretrain.py --overlap-grad-reduce --ddp-bucket-size {elements}\n"
    else:
        name, text = "ds_config.json", json.dumps({**DEEPSPEED, **deepspeed_settings(options.framework, elements)})
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, name)
        file.write_text(text)
        found = json.loads(
            base.run(options.bucketwise, "settings", "check", file, folder / "slower.json", "--link",
                     folder / "link.json", "--set", "/step/accumulation=1", "--json", "-")
        )  # fmt: skip
    assert found["place"] == options.framework and found["value"] == elements, found
    return found["checked"]


def judge(options, folder):
    """Writes link.json and comparison.json; returns the latter."""
    with_means(folder)
    link = base.calibrated_link(options.bucketwise, folder, "means.jsonl")
    (folder / "means.jsonl").unlink()
    of_slower_rank(folder)
    measured = {}
    for row in base.csv.DictReader((folder / "backward.csv").read_text().splitlines()):
        slowest = max(float(row[f"rank{rank}_ms"]) for rank in range(base.RANKS))
        measured.setdefault(int(row["elements"]), []).append(slowest)
    described = json.loads((folder / "ddp.json").read_text())
    points = []
    for elements, times in sorted(measured.items()):
        checked, median = predicted(options, folder, elements), statistics.median(times)
        points.append(
            {
                "elements": elements,
                "buckets": checked["buckets"],
                "measured_backward_ms": median,
                "measured_interval_ms": base.bootstrap(times, random.Random(options.seed)),
                "predicted_backward_ms": checked["backward_ms"],
                "error": checked["backward_ms"] / median - 1,
            }
        )
    halves = [(p["measured_interval_ms"][1] - p["measured_interval_ms"][0]) / 2 / p["measured_backward_ms"] for p in points]
    provenance = link["provenance"]
    comparison = {
        "machine": f"{provenance['hardware']}; {provenance['versions']}; {provenance['date']}",
        "torch": described["torch"],
        "framework": options.framework,
        "package": described["package"],
        "processor_share": described["processor_share"],
        "rounds": options.rounds,
        "rate": options.rate,
        "points": points,
        "mape": statistics.mean(abs(p["error"]) for p in points),
        "noise_floor": statistics.median(halves),
        "swapped": swapped(points),
    }
    base.write_json(folder / "comparison.json", comparison)
    return comparison


def swapped(points):
    """Pairs of settings in the wrong order, of those whose measured intervals do not overlap."""
    pairs = []
    for i, a in enumerate(points):
        for b in points[i + 1 :]:
            slow, fast = (a, b) if a["measured_backward_ms"] > b["measured_backward_ms"] else (b, a)
            told = slow["measured_interval_ms"][0] > fast["measured_interval_ms"][1]
            if told and slow["predicted_backward_ms"] < fast["predicted_backward_ms"]:
                pairs.append([a["elements"], b["elements"]])
    return pairs


def report(comparison):
    print(f"{comparison['framework']}, {comparison['package']}, PyTorch {comparison['torch']}, {base.RANKS} ranks, Gloo, "
          f"{comparison['rate']}, {comparison['rounds']} rounds\n")  # fmt: skip
    if comparison["processor_share"] < 0.98:
        print(f"Other programs ran: computing got {100 * comparison['processor_share']:.0f} % of its core.\n")
    print("| elements | buckets | measured, ms | 95 % | predicted, ms | error |\n|---|---|---|---|---|---|")
    for p in comparison["points"]:
        low, high = p["measured_interval_ms"]
        measured = f"{p['measured_backward_ms']:.1f} | {low:.1f} to {high:.1f}"
        print(f"| {p['elements']} | {p['buckets']} | {measured} | {p['predicted_backward_ms']:.1f} | "
              f"{100 * p['error']:+.1f} % |")  # fmt: skip
    print(f"\nMAPE {100 * comparison['mape']:.1f} %, noise floor {100 * comparison['noise_floor']:.1f} %; "
          f"in the wrong order: {comparison['swapped'] or 'none'}")  # fmt: skip


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--bucketwise")
    parser.add_argument("--framework", choices=PACKAGES, required=True)
    parser.add_argument("-o", "--output")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--settings", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.short else 8)
    # The model has 12.6 million elements, in a short run 0.4 million.
    options.settings = options.settings or (
        [70_000, 400_000] if options.short else [1_000_000, 2_500_000, 4_000_000, 7_000_000, 20_000_000]
    )
    if options.rank is None and (options.bucketwise is None or shutil.which(options.bucketwise) is None):
        parser.error(f"--bucketwise: expected a program, got {options.bucketwise}")
    if options.again:
        before = json.loads(Path(options.output, "comparison.json").read_text())
        options.rounds, options.rate = before["rounds"], before["rate"]
    return options


def main():
    options = parse()
    if options.rank is not None:
        return run_rank(options)
    if options.again:
        return report(judge(options, Path(options.output)))
    try:
        base.require()
        package = PACKAGES[options.framework]
        if not is_there(package):
            raise base.Skip(f"{package} is not installed for this Python")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(options.output or name)
            folder.mkdir(parents=True, exist_ok=True)
            arguments = ["--framework", options.framework, "--rounds", options.rounds, "--seed", options.seed]
            arguments += ["--settings", ",".join(map(str, options.settings)), "-o", folder]
            # The heap keeps what is freed, as a GPU's allocator does. Else every buffer that a framework makes anew costs
            # a page fault for each of its pages.
            os.environ.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_TOP_PAD_=str(1 << 26))
            base.run_script(HERE, arguments + (["--short"] if options.short else []), options.rate)
            comparison = judge(options, folder)
            report(comparison)
            assert len({p["buckets"] for p in comparison["points"]}) > 1, "settings that make a difference"
    except base.Skip as reason:
        print(f"compare_frameworks: skipped: {reason}")
        sys.exit(base.SKIPPED)


if __name__ == "__main__":
    main()
