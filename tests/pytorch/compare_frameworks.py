#!/usr/bin/env python3
"""Predicted and measured backward times of DeepSpeed's ZeRO-1 and ZeRO-2 and of Megatron-LM's DistributedDataParallel.

usage: compare_frameworks.py --bucketwise BINARY --framework deepspeed_zero1|deepspeed_zero2|megatron_lm [-o FOLDER]
                             [--rounds 8] [--rate 1gbit] [--settings 500000,…] [--seed 1]
                             [--short: no time is judged, only whether everything fits together]
                             [--again: judge anew what was measured into FOLDER before]

Two ranks of the real package (comparison.py) train the perceptron of compare_with_ddp.py, whose ranks these are. In
every round: backward with every setting, until the gradients are reduced (what is predicted, never fitted to), and what
a prediction is made of: passes that bucketwise.torch.capture_pytorch watches, isolated all-reduces and all-reduces
beside backward. Where nothing hides what a step waits for, times add up, and with them their means: all-reduces count
by their mean, not by their median, and what was captured is scaled to the mean of the slower rank of each pass. The
prediction is `bucketwise settings check` of a file with that setting. Also skipped without the package.
"""

import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import comparison as base
from compare_with_ddp import DdpRank
from comparison import read_json, run, write_json

PACKAGES = {"deepspeed_zero1": "deepspeed", "deepspeed_zero2": "deepspeed", "megatron_lm": "megatron.core"}
DEEPSPEED = {"train_micro_batch_size_per_gpu": 1, "zero_allow_untested_optimizer": True, "steps_per_print": 10**9}
# The model has 12.6 million elements, in a short run 0.4 million.
SETTINGS, SHORT_SETTINGS = [1_000_000, 2_500_000, 4_000_000, 7_000_000, 20_000_000], [70_000, 400_000]


def deepspeed_config(framework, elements):
    zero = {"stage": int(framework[-1]), "overlap_comm": True, "contiguous_gradients": True,
            "reduce_bucket_size": elements}
    return {**DEEPSPEED, "zero_optimization": zero}


class DeepSpeed:
    def __init__(self, framework):
        from record_deepspeed import import_deepspeed

        self.framework, self.package = framework, import_deepspeed()
        self.package.init_distributed(dist_backend="gloo")
        self.version = f"deepspeed {self.package.__version__}"

    def wrap(self, model, elements):
        optimizer = base.torch.optim.AdamW(model.parameters(), lr=1e-5)
        config = deepspeed_config(self.framework, elements)
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
        from record_megatron import on_cpu_without_optimizer

        on_cpu_without_optimizer()
        import megatron.core
        from megatron.core import parallel_state

        parallel_state.initialize_model_parallel()
        self.version = f"megatron-core {megatron.core.__version__}"

    @staticmethod
    def wrap(model, elements):
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
        from megatron.core.transformer import TransformerConfig

        config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
        settings = {"overlap_grad_reduce": True, "bucket_size": elements, "check_for_nan_in_grad": True}
        return DistributedDataParallel(config, DistributedDataParallelConfig(**settings), model)

    @staticmethod
    def backward(wrapped, loss):
        loss.backward()
        wrapped.finish_grad_sync()

    @staticmethod
    def finish(wrapped):
        wrapped.zero_grad_buffer()


class FrameworkRank(DdpRank):
    def wrap_all(self):
        self.alone_ms = []
        framework = self.options["framework"]
        self.package = (Megatron if framework == "megatron_lm" else DeepSpeed)(framework)
        return {(elements,): self.package.wrap(self.model(), elements) for elements in self.options["settings"]}

    def reduced_s(self, wrapped):
        loss = base.torch.nn.functional.cross_entropy(wrapped(self.inputs), self.targets)
        base.dist.barrier()
        begin = time.perf_counter()
        self.package.backward(wrapped, loss)
        took = time.perf_counter() - begin
        self.package.finish(wrapped)
        return took

    def run_once(self, model):
        if any(model is wrapped for wrapped in self.wrapped.values()):
            self.reduced_s(model)
        else:
            super().run_once(model)

    def judged(self, elements):
        return self.row({"elements": elements}, {"": self.reduced_s(self.wrapped[elements,])})

    def capture(self):
        super().capture()
        for _ in range(2):
            self.alone_ms.append([ms for (ms,) in self.by_rank(1e3 * self.backward_s(self.alone))])

    def described(self):
        return {"framework": self.options["framework"], "package": self.package.version, "alone_ms": self.alone_ms}


def measure(rank, _, options, folder):
    FrameworkRank(rank, options, Path(folder)).measure("backward.csv", "ddp.json")


# --- predicted beside measured ---


def of_slower_rank(folder, alone_ms):
    """Writes slower.json: what rank 0 captured, as much longer as the slower rank of each pass takes on average."""
    factor = statistics.mean(map(max, alone_ms)) / statistics.median(ranks[0] for ranks in alone_ms)
    scenario = read_json(folder / "captured.json")
    workload = scenario["workload"]
    for part in (workload, *workload["gradients"]):
        part.update({key: factor * part[key] for key in ("forward_ms", "backward_ms", "ready_ms") if key in part})
    write_json(folder / "slower.json", scenario)


def predicted(options, folder, elements):
    """Returns the result of settings check for a file with this setting."""
    if options.framework == "megatron_lm":
        name, text = "arguments.sh", f"pretrain.py --overlap-grad-reduce --ddp-bucket-size {elements}\n"
    else:
        name, text = "ds_config.json", json.dumps(deepspeed_config(options.framework, elements))
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, name)
        file.write_text(text)
        found = json.loads(run(options.bucketwise, "settings", "check", file, folder / "slower.json", "--link",
                               folder / "link.json", "--set", "/step/accumulation=1", "--json", "-"))
    assert found["place"] == options.framework and found["value"] == elements, found
    return found["checked"]


def judge(options, folder):
    """Writes link.json and comparison.json; returns the latter."""
    described = read_json(folder / "ddp.json")
    base.with_means(folder, 1)
    link = base.calibrated_link(options.bucketwise, folder, "means.jsonl", "unsent.json")
    (folder / "means.jsonl").unlink()
    of_slower_rank(folder, described.pop("alone_ms"))
    measured = base.read_slowest(folder / "backward.csv", lambda row: int(row["elements"]))
    points = []
    for elements, times in sorted(measured.items()):
        checked = predicted(options, folder, elements)
        point = base.point_of("backward", times, checked["backward_ms"], random.Random(options.seed))
        points.append({"elements": elements, "buckets": checked["buckets"], **point})
    comparison = {**base.head_of(options, link, described), "points": points, "mape": base.mape_of(points),
                  "noise_floor": base.noise_floor_of(points, "backward"), "swapped": swapped(points)}
    write_json(folder / "comparison.json", comparison)
    return comparison


def swapped(points):
    """Pairs of settings in the wrong order, of those whose measured intervals do not overlap."""
    pairs = []
    for i, a in enumerate(points):
        for b in points[i + 1 :]:
            slow, fast = (a, b) if a["measured_backward_ms"] > b["measured_backward_ms"] else (b, a)
            differ = slow["measured_interval_ms"][0] > fast["measured_interval_ms"][1]
            if differ and slow["predicted_backward_ms"] < fast["predicted_backward_ms"]:
                pairs.append([a["elements"], b["elements"]])
    return pairs


def report(comparison):
    base.print_head(comparison, f"{comparison['framework']} of {comparison['package']}")
    base.print_points(comparison["points"], {"elements": "elements", "buckets": "buckets"}, "backward")
    print(f"\nMAPE {100 * comparison['mape']:.1f} %, noise floor {100 * comparison['noise_floor']:.1f} %; "
          f"in the wrong order: {comparison['swapped'] or 'none'}")


def check(comparison, _):
    assert len({p["buckets"] for p in comparison["points"]}) > 1, "settings that make a difference"


def main():
    parser = base.parser_of(__doc__, rounds=8)
    parser.add_argument("--framework", choices=PACKAGES, required=True)
    parser.add_argument("--settings", type=lambda text: [int(one) for one in text.split(",")])
    parser.set_defaults(model="perceptron", compile=False, recompute=False, caps=None)
    options = base.options_of(parser)
    options.settings = options.settings or (SHORT_SETTINGS if options.short else SETTINGS)
    base.compare(options, measure, judge, report, check, package=PACKAGES[options.framework],
                 variables=base.KEEPING_HEAP)


if __name__ == "__main__":
    main()
