#!/usr/bin/env python3
"""Predicted and measured backward times of PyTorch's DistributedDataParallel, at several bucket caps.

usage: compare_with_ddp.py --bucketwise BINARY [-o FOLDER] [--rounds 12] [--rate 1gbit] [--caps 0.5,1,2,4,8,25,50]
                           [--model perceptron|convolutional|transformer] [--seed 1]
                           [--short: no time is judged, only whether everything fits together]
                           [--compile: the model is under torch.compile, with Inductor]
                           [--recompute: kinds of activation checkpointing, not gradient_as_bucket_view]
                           [--again: judge anew what was measured into FOLDER before]

Two ranks (comparison.py) train a model of 43 to 48 MiB of gradients (trained_models.py). In every round:

- backward at every cap, with copied buckets and with gradient_as_bucket_view: predicted, never fitted to;
- passes that bucketwise.torch.capture_pytorch watches: without communication (no_sync) and, to see what that changes, with;
- isolated all-reduces, and all-reduces beside backward passes: a log that `bucketwise calibrate` takes;
- backward with buckets that are copied but not sent, which gives the cost of DDP's copies.

With --recompute each kind is captured once, without communication. The capture without checkpointing also predicts
kinds that choose whole blocks (activation_checkpointing).

Writes into FOLDER what was captured, the log, the link made of it, measured times by round, and comparison.json.
"""

import importlib.util
import json
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import comparison as base
from checkpointing import KINDS, wrap_blocks
from comparison import read_json, run, write_json
from decision import decision_of, of_plans, told

MODELS = ("perceptron", "convolutional", "transformer")
WITHOUT = "from the capture that computes nothing again"
PASSES = 2  # watched by each capture in each round
COLUMNS = {"cap, MiB": "bucket_cap_mib", "buckets": "buckets"}


def sizes_of(short):
    """Messages that are timed by themselves, and beside backward, in bytes."""
    shifts = range(12, 23, 2) if short else (12, 14, 16, 18, 20, 21, 22, 23, 24, 25, 26)
    return [1 << shift for shift in shifts], [1 << 16] if short else [1 << 20, 1 << 22, 1 << 24]


def caps_of(options):
    """A short run has 1.5 MiB of gradients; its caps make from one to six buckets of them. Under torch.compile no cap is
    below 1 MiB."""
    if options["caps"]:
        return options["caps"]
    if options["recompute"]:
        return [0.25, 25.0] if options["short"] else [1.0, 4.0, 25.0]
    if options["short"]:
        return [1.0, 1.25, 25.0] if options["compile"] else [0.25, 0.5, 1.0, 25.0]
    return [1.0, 6.0, 10.0, 16.0, 25.0] if options["compile"] else [0.5, 1.0, 2.0, 4.0, 8.0, 25.0, 50.0]


def cases_of(options):
    """gradient_as_bucket_view, and the kind of checkpointing."""
    return [(False, kind) for kind in KINDS] if options["recompute"] else [(False, "none"), (True, "none")]


def file_of(kind):
    """Its capture's, without the ending."""
    return "captured" if kind == "none" else kind.replace(" ", "_")


class DdpRank(base.Rank):
    def __init__(self, rank, options, folder):
        from bucketwise.torch.capture_pytorch import capture
        from trained_models import MODELS

        super().__init__(rank, options, folder, MODELS[options["model"]](options["short"]))

        self.called = {self.alone: self.compiled(self.alone)}  # torch.compile's module by the one in it
        self.wrapped = self.wrap_all()
        finest = {"bucket_cap_mb": 1} if options["compile"] else {}  # these pieces tell all others
        rounds = options["rounds"]
        self.watched = {kind: self.wrap(kind, **finest) for _, kind in cases_of(options)}
        self.disturbed, self.unsent = self.wrap(**finest), self.wrap()
        self.unsent.register_comm_hook(None, unsent)
        for kind, model in self.watched.items():
            capture(model, folder / f"{file_of(kind)}.json", steps=(PASSES + 1) * rounds, warmup=PASSES + 1)
        for name, model in (("disturbed", self.disturbed), ("unsent", self.unsent)):
            capture(model, folder / f"{name}.json", steps=PASSES * rounds, warmup=PASSES)

    def model(self):
        model = super().model()
        return inside(model) if self.options["compile"] else model

    def compiled(self, module):
        if not self.options["compile"]:
            return module
        # Every model is compiled by itself, and those that are watched once more.
        torch = base.torch
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1000
        return torch.compile(module)

    def wrap(self, kind="none", **options):
        model = self.model()
        wrap_blocks(model, [name for name, layer in model.named_children() if list(layer.parameters())], kind)
        wrapped = base.torch.nn.parallel.DistributedDataParallel(model, **options)
        self.called[wrapped] = self.compiled(wrapped)
        return wrapped

    def wrap_all(self):
        """Returns the judged models by the arguments of judged()."""
        return {(views, kind, cap): self.wrap(kind, bucket_cap_mb=cap, gradient_as_bucket_view=views)
                for views, kind in cases_of(self.options) for cap in caps_of(self.options)}

    def work(self):
        for model in self.wrapped.values():  # DDP forms its final buckets after the first pass
            for _ in range(2):
                self.run_once(model)
        isolated, contended = sizes_of(self.options["short"])
        work = [("judged", self.judged, key) for key in self.wrapped]
        work += [("log", self.isolated, (size,)) for size in isolated]
        work += [("log", self.contended, (size,)) for size in contended]
        return [*work, ("captured", self.capture, ())]

    def described(self):
        return {"buckets": [{"views": views, "kind": kind, "cap_mib": cap, "bucket_bytes": bucket_bytes(model)}
                            for (views, kind, cap), model in self.wrapped.items()]}

    def loss(self, model):
        model.zero_grad(set_to_none=True)
        return base.torch.nn.functional.cross_entropy(self.called[model](self.inputs), self.targets)

    def run_once(self, model):
        self.loss(model).backward()

    def backward_s(self, model):
        """All ranks start at once."""
        loss = self.loss(model)
        base.dist.barrier()
        begin = time.perf_counter()
        loss.backward()
        return time.perf_counter() - begin

    # Each of these measures one thing once, and gives what to write of it.

    def judged(self, views, kind, cap):
        return self.row({"views": int(views), "kind": kind, "cap_mib": cap},
                        {"": self.backward_s(self.wrapped[views, kind, cap])})

    def capture(self):
        for model in self.watched.values():
            with model.no_sync():
                for _ in range(PASSES):
                    base.dist.barrier()
                    self.run_once(model)
            self.run_once(model)  # gives its settings and buckets, not its times
        for model in (self.disturbed, self.unsent):
            for _ in range(PASSES):
                self.backward_s(model)

    def all_reduce_us(self, message, count):
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            base.dist.all_reduce(message)
            times.append(1e6 * (time.perf_counter() - begin))
        return times

    def isolated(self, size):
        message = base.torch.zeros(size // 4)
        count = 20 if size <= 1 << 16 else 10 if size <= 1 << 20 else 3 if size <= 1 << 24 else 1
        base.dist.barrier()
        self.all_reduce_us(message, 1)
        return self.record("allreduce", size, self.slowest(self.all_reduce_us(message, count)))

    def queued_us(self, size, count):
        """As DDP hands its buckets to Gloo, which runs two at a time, so that while one waits for a processor the other
        uses the link."""
        messages = [base.torch.zeros(size // 4) for _ in range(2)]
        works = [base.dist.all_reduce(message, async_op=True) for message in messages]
        ends = []
        for i in range(count + 2):
            works[i % 2].wait()
            ends.append(time.perf_counter())
            works[i % 2] = base.dist.all_reduce(messages[i % 2], async_op=True)
        for work in works:
            work.wait()
        # Two that share the link end together, so from the end of one to that of the next but one there are two.
        return [1e6 * (after - before) / 2 for before, after in zip(ends, ends[2:])]


def inside(model):
    """torch.compile skips the forward() of a bare Sequential, and so all that it does."""

    class Inside(base.torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x)

    return Inside()


def unsent(_, bucket):
    """A communication hook that returns every bucket unchanged."""
    done = base.torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def bucket_bytes(model):
    return [int(size) for size in model._get_ddp_logging_data()["rebuilt_bucket_sizes"].split(",")]


def measure(rank, _, options, folder):
    DdpRank(rank, options, Path(folder)).measure("backward.csv", "ddp.json")


# --- predicted beside measured ---


def judge(options, folder):
    """Writes link.json and comparison.json; returns the latter."""
    binary = options.bucketwise
    link = base.calibrated_link(binary, folder, "log.jsonl", "unsent.json")
    bare = {key: value for key, value in link.items() if key not in ("copy_gb_per_s", "interference")}
    copied = {**bare, "copy_gb_per_s": link["copy_gb_per_s"]}
    ways = {"link": ("captured", link), "without interference": ("captured", copied),
            "without interference and copies": ("captured", bare), "captured with communication": ("disturbed", copied)}
    measured = base.read_slowest(folder / "backward.csv", lambda row: (
        row["views"] == "1", row.get("kind", "none"), float(row["cap_mib"])))
    ddp = read_json(folder / "ddp.json")
    caps = sorted({cap for *_, cap in measured})
    buckets = ddp.pop("buckets")
    comparison = {**base.head_of(options, link, ddp), "model": options.model, "compiled": options.compile,
                  "recompute": options.recompute, "cases": []}
    for views, kind in cases_of(vars(options)):
        of_case = {name: (file_of(kind) if scenario == "captured" else scenario, parameters, "none")
                   for name, (scenario, parameters) in ways.items() if kind == "none" or scenario == "captured"}
        if kind not in ("none", "operators"):
            of_case[WITHOUT] = ("captured", link, kind)
        predicted = {name: predict(binary, folder / f"{scenario}.json", parameters, views, caps, again)
                     for name, (scenario, parameters, again) in of_case.items()}
        for bucket in buckets:
            if bucket["views"] == views and bucket.get("kind", "none") == kind:
                expected = predicted["link"][bucket["cap_mib"]]["bucket_bytes"]
                what = f"cap {bucket['cap_mib']} MiB, views {views}: DDP's buckets are {bucket['bucket_bytes']}"
                assert bucket["bucket_bytes"] == expected, f"{what}, predicted {expected}"
        of_caps = {cap: measured[views, kind, cap] for cap in caps}
        comparison["cases"].append({"views": views, "kind": kind, **case(of_caps, predicted, random.Random(options.seed))})
    write_json(folder / "comparison.json", comparison)
    return comparison


def predict(binary, scenario, link, views, caps, kind):
    """By cap. `kind`: of checkpointing, other than in the capture."""
    again = ["--set", f"/workload/activation_checkpointing={json.dumps(KINDS[kind])}"] if kind != "none" else []
    with tempfile.TemporaryDirectory() as name:
        write_json(Path(name) / "link.json", link)
        text = run(binary, "predict", scenario, "--link", Path(name) / "link.json", "--set", "/step/accumulation=1",
                   "--set", f"/sync/views={'true' if views else 'false'}", "--bucket-cap",
                   ",".join(f"{cap:g}MiB" for cap in caps), *again, "--json", "-")
    rows = {row["bucket_cap_mib"]: row for row in base.json.loads(text)["sweep"]}
    return {cap: rows[cap] for cap in caps}


def case(measured, predicted, draws):
    rows = predicted["link"]
    points = [{"bucket_cap_mib": cap, "buckets": rows[cap]["buckets"],
               **base.point_of("backward", times, rows[cap]["backward_ms"], draws)} for cap, times in measured.items()]
    medians = {p["bucket_cap_mib"]: p["measured_backward_ms"] for p in points}
    # The decision is a bucket plan: caps with the same plan are one step, measured several times.
    plans = {}
    for cap in measured:
        plans.setdefault(tuple(rows[cap]["bucket_bytes"]), []).append(cap)
    by_plan = {plan: statistics.median(ms for cap in same for ms in measured[cap]) for plan, same in plans.items()}
    chosen = min(measured, key=lambda cap: rows[cap]["backward_ms"])
    plan_of = lambda cap: tuple(rows[cap]["bucket_bytes"])  # noqa: E731
    decision = decision_of(of_plans(measured, plan_of), plan_of(chosen))
    decision["best"] = plans[decision["best"]]
    fastest = min(by_plan, key=by_plan.get)
    less = {name: statistics.mean(abs(by_cap[cap]["backward_ms"] / medians[cap] - 1) for cap in medians)
            for name, by_cap in predicted.items() if name != "link"}
    return {"points": points, "mape": base.mape_of(points), "mape_of_less": less, "predicted_best_mib": chosen,
            "measured_best_mib": plans[fastest][0], "regret": by_plan[tuple(rows[chosen]["bucket_bytes"])]
            / by_plan[fastest] - 1, "decision": decision, "noise_floor": base.noise_floor_of(points, "backward")}


def called(case):
    kind = case["kind"]
    return "gradient_as_bucket_view" if case["views"] else "copied buckets" if kind == "none" else f"checkpointing: {kind}"


def report(comparison):
    base.print_head(comparison, comparison["model"] + (", compiled" if comparison["compiled"] else ""))
    for one in comparison["cases"]:
        print(called(one), end="\n\n")
        base.print_points(one["points"], COLUMNS, "backward")
        less = ", ".join(f"{name} {100 * value:.1f} %" for name, value in one["mape_of_less"].items())
        print(f"\nMAPE {100 * one['mape']:.1f} % ({less}), noise floor {100 * one['noise_floor']:.1f} %")
        best = f"predicted {one['predicted_best_mib']:g}, measured {one['measured_best_mib']:g} MiB (of equal plans)"
        print(f"best cap {best}, {told(one['decision'])}\n")


def check(comparison, folder):
    """Asserts that a short run is complete; times are not judged."""
    gradients = read_json(folder / "captured.json")["workload"]["gradients"]
    if comparison["model"] == "perceptron":
        from trained_models import Perceptron

        layers, width = Perceptron(True).layers, Perceptron(True).width
        assert [g["numel"] for g in gradients] == [width * width, width] * layers
        weights = [g["ready_ms"] for g in gradients][::2]
        assert weights == sorted(weights, reverse=True), f"the last layer's gradient is ready first, got {weights}"
    for one in comparison["cases"]:
        assert all(math.isfinite(p["error"]) and p["measured_backward_ms"] > 0 for p in one["points"])
        assert len({p["buckets"] for p in one["points"]}) > 1, "caps that make a difference"
    if importlib.util.find_spec("matplotlib") is not None:
        draw = base.ROOT / "plots" / "backward_by_cap.py"
        run(sys.executable, draw, folder / "comparison.json", folder / "backward")
        assert (folder / "backward.png").stat().st_size > 5_000
    log = read_json(folder / "captured.ddp.json")
    assert log["backend_name"] == "gloo" and log["world_size"] == comparison["ranks"]


def caps_in_mib(text):
    caps = sorted({float(cap) for cap in text.split(",")})
    if not 0 < caps[0] <= caps[-1] < 1e6:
        raise ValueError(text)
    return caps


def main():
    parser = base.parser_of(__doc__, rounds=12)
    parser.add_argument("--caps", type=caps_in_mib)
    parser.add_argument("--model", choices=MODELS, default="perceptron")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    base.compare(base.options_of(parser), measure, judge, report, check)


if __name__ == "__main__":
    main()
