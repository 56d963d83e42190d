#!/usr/bin/env python3
"""Predicted and measured steps of PyTorch's fully_shard (FSDP2), at several groupings and settings.

usage: compare_with_fsdp2.py --bucketwise BINARY [-o FOLDER] [--rounds 12] [--rate 1gbit] [--seed 1] [--ranks 2|4]
                             [--recompute: kinds of activation checkpointing, resharding and clipping, not groupings]
                             [--short: no time is judged, only whether everything fits together]
                             [--again: judge anew what was measured into FOLDER before]

Two or four ranks (comparison.py) train a decoder of 8 layers and 12 million parameters. In every round: a step with
every setting (what is predicted, never fitted to), and what a prediction is made of: passes that bucketwise.torch
captures of a model with one layer per group, isolated all-gathers, reduce-scatters and all-reduces, and all-gathers
beside backward. With Gloo all of FSDP2's collectives block the host but asynchronous all-gathers, so times add up, and
collectives count by their means.

With --recompute each kind of checkpointing is captured once, and clipping once; that tells the other settings. The capture
without checkpointing also predicts kinds that choose whole blocks (activation_checkpointing).

Writes into FOLDER captured.json and other captures, log.jsonl, link.json, steps.csv and comparison.json.
"""

import itertools
import random
import tempfile
import time
from pathlib import Path

import comparison as base
from checkpointing import KINDS
from comparison import read_json, run, write_json
from decision import decision_of, told

PARTS = ("forward", "backward", "step")
ONE_LAYER = {"layers_per_group": 1}
CAPTURED = {"full": "full", "every 2": "every_2", "operators": "operators"}  # kinds by the names of their files


def settings(options):
    """By what they are called in tables: how a model is wrapped, as arguments of shard()."""
    if not options["recompute"]:
        return {name: {"sharding": sharding} for name, sharding in groupings(Training(options).layers).items()}
    found = {}
    for kind, kept, clip in itertools.product(CAPTURED, (False, True), (False, True)):
        name = ", ".join([kind, *(["kept"] if kept else []), *(["clipped"] if clip else [])])
        found[name] = {"sharding": {**ONE_LAYER, "reshard_after_forward": not kept}, "kind": kind, "clip": clip}
    return found


def captures(options):
    """Captured models by the names of their files: how each is wrapped."""
    found = {"captured": {}}
    if options["recompute"]:
        found |= {CAPTURED[kind]: {"kind": kind} for kind in CAPTURED}
        found["clipped"] = {"clip": True}
    return found


def groupings(layers):
    half = layers // 2
    ahead = {"asynchronous_unshard": True, "forward_prefetch": 1}
    found = {f"{size} per group": {"layers_per_group": size} for size in (1, 2, half)}
    found["all in the root"] = {"layers_per_group": 0}
    found |= {f"{size} per group, kept": {"layers_per_group": size, "reshard_after_forward": False} for size in (1, half)}
    found |= {f"{size} per group, asynchronous": {"layers_per_group": size, **ahead} for size in (1, 2, half)}
    found["1 per group, asynchronous, 2 ahead"] = {
        "layers_per_group": 1, **ahead, "forward_prefetch": 2, "backward_prefetch": 2}
    found["1 per group, asynchronous, kept"] = {"layers_per_group": 1, **ahead, "reshard_after_forward": False}
    return found


class Training:
    def __init__(self, options):
        batch = 8 if options["recompute"] else 2  # so that computing is as long as communication
        self.layers, self.width, self.tokens, self.batch = (4, 64, 16, 2) if options["short"] else (8, 384, 128, batch)

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
    def __init__(self, rank, options, folder):
        super().__init__(rank, options, folder, Training(options))
        from bucketwise.torch import capture

        self.wrapped = {name: self.shard(**setting) for name, setting in settings(options).items()}
        self.watched = {name: self.shard(**watched) for name, watched in captures(options).items()}
        for name, (model, *_) in self.watched.items():
            capture(model, folder / f"{name}.json", steps=options["rounds"], warmup=1)

    def shard(self, sharding=ONE_LAYER, kind="none", clip=False):
        from checkpointing import wrap_blocks
        from record_sharded import groups_of, set_prefetch, shard

        model = self.model()
        blocks = [f"layers.{i}" for i in range(self.training.layers)]
        wrap_blocks(model, blocks, kind)
        groups = groups_of(blocks, sharding)
        shard(model, groups, base.dist.get_world_size(), sharding)
        turn = list(range(1, len(groups) + 1))
        set_prefetch(model, groups, sharding, {"forward": turn, "backward": turn[::-1]})
        return model, base.torch.optim.SGD(model.parameters(), lr=1e-3), clip

    def work(self):
        for wrapped in self.wrapped.values():
            self.step(*wrapped)
        # From less than a block's norms to all parameters.
        short = self.options["short"]
        shifts = range(12, 21, 2) if short else (12, 14, 16, 18, 20, 21, 22, 23, 24, 25, 26)
        work = [("judged", self.judged, (name,)) for name in self.wrapped]
        work += [("log", self.isolated, (kind, 1 << shift)) for kind in ("allgather", "reducescatter", "allreduce")
                 for shift in shifts]
        work += [("log", self.contended, (size,)) for size in ([1 << 16] if short else [1 << 20, 1 << 22, 1 << 24])]
        return [*work, *(("captured", self.capture, (name,)) for name in self.watched)]

    def described(self):
        return {"parameters": self.numel()}

    def numel(self):
        return sum(parameter.numel() for parameter in self.alone.parameters())

    def loss(self, model):
        model.zero_grad(set_to_none=True)
        return base.torch.nn.functional.cross_entropy(model(self.inputs).flatten(0, 1), self.targets)

    def step(self, model, optimizer, clip):
        """Seconds of forward, of backward and in all."""
        begin = time.perf_counter()
        loss = self.loss(model)
        middle = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        if clip:
            base.torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return middle - begin, end - middle, time.perf_counter() - begin

    def judged(self, name):
        base.dist.barrier()
        seconds = self.step(*self.wrapped[name])
        return self.row({"setting": name}, {f"{part}_": each for part, each in zip(PARTS, seconds)})

    def capture(self, name):
        base.dist.barrier()
        self.step(*self.watched[name])

    def isolated(self, kind, size):
        """As FSDP2 calls them, gathered in place, and averaged; and as a step has them: as many in a row as take all
        parameters, after one of another kind. Gloo's all-gathers take half as long again when one follows another."""
        dist, ranks = base.dist, base.dist.get_world_size()
        whole, part = base.torch.zeros(size // 4), base.torch.zeros(size // 4 // ranks)
        mine = whole.chunk(ranks)[self.rank]
        issue = {"allgather": lambda: dist.all_gather_into_tensor(whole, mine),
                 "reducescatter": lambda: dist.reduce_scatter_tensor(part, whole, op=dist.ReduceOp.AVG),
                 "allreduce": lambda: dist.all_reduce(whole)}
        dist.barrier()
        issue["allgather" if kind == "reducescatter" else "reducescatter"]()
        times = []
        for _ in range(min(max(round(4 * self.numel() / size), 1), 20)):
            begin = time.perf_counter()
            issue[kind]()
            times.append(1e6 * (time.perf_counter() - begin))
        return self.record(kind, size, self.slowest(times))

    def queued_us(self, size, count):
        """All-gathers, which alone run beside computing: one at a time, as with one group ahead."""
        whole, times = base.torch.zeros(size // 4), []
        mine = whole.chunk(base.dist.get_world_size())[self.rank]
        for _ in range(int(count)):
            begin = time.perf_counter()
            base.dist.all_gather_into_tensor(whole, mine, async_op=True).wait()
            times.append(1e6 * (time.perf_counter() - begin))
        return times

    def contended(self, size):
        return {**super().contended(size), "collective": "allgather"}


def measure(rank, _, options, folder):
    ShardedRank(rank, options, Path(folder)).measure("steps.csv", "fsdp2.json")


# --- predicted beside measured ---


def predicted(options, folder, capture, sharding, kind="none", clip=False):
    """`kind`: of checkpointing, other than in the capture."""
    scenario = read_json(folder / f"{capture}.json")
    known = scenario["sync"]["sharding"]
    scenario["sync"]["sharding"] = {"gradient_sync": known["gradient_sync"], **sharding}
    scenario["cluster"]["link"] = read_json(folder / "link.json")
    if kind != "none":
        scenario["workload"]["activation_checkpointing"] = KINDS[kind]
    if clip:
        scenario["step"] = read_json(folder / "clipped.json")["step"]
    with tempfile.TemporaryDirectory() as name:
        write_json(Path(name, "scenario.json"), scenario)
        text = run(options.bucketwise, "predict", Path(name, "scenario.json"), "--json", "-")
    return base.json.loads(text)["configured"]


def point_of(options, folder, name, setting, measured, draws):
    kind, others = setting.get("kind", "none"), {key: value for key, value in setting.items() if key != "kind"}
    prediction = predicted(options, folder, CAPTURED.get(kind, "captured"), **others)
    point = {"setting": name, **setting}
    for part in ("forward", "backward"):
        point[f"measured_{part}_ms"] = base.statistics.median(measured[part][name])
        point[f"predicted_{part}_ms"] = prediction[f"{part}_ms"]
    point |= base.point_of("step", measured["step"][name], prediction["step_ms"], draws)
    if kind not in ("none", "operators"):
        point["predicted_without_ms"] = predicted(options, folder, "captured", **setting)["step_ms"]
    return point


def judge(options, folder):
    """Writes link.json and comparison.json; returns the latter."""
    base.with_means(folder, None)
    link = base.calibrated_link(options.bucketwise, folder, "means.jsonl", "captured.json")
    (folder / "means.jsonl").unlink()
    measured = {part: base.read_slowest(folder / "steps.csv", lambda row: row["setting"], f"{part}_") for part in PARTS}
    draws = random.Random(options.seed)
    points = [point_of(options, folder, name, setting, measured, draws)
              for name, setting in settings(vars(options)).items()]
    anew = [base.point_of("step", times, 1, draws) for times in measured["step"].values()]  # with intervals of its own
    chosen = min(points, key=lambda p: p["predicted_step_ms"])
    fastest = min(points, key=lambda p: p["measured_step_ms"])
    comparison = {**base.head_of(options, link, read_json(folder / "fsdp2.json")), "short": options.short, "recompute": options.recompute,
                  "points": points, "mape": base.mape_of(points), "max_error": max(abs(p["error"]) for p in points),
                  "predicted_best": chosen["setting"], "measured_best": fastest["setting"],
                  "regret": chosen["measured_step_ms"] / fastest["measured_step_ms"] - 1,
                  "decision": decision_of(measured["step"], chosen["setting"]),
                  "noise_floor": base.noise_floor_of(anew, "step")}
    write_json(folder / "comparison.json", comparison)
    return comparison


def report(comparison):
    base.print_head(comparison, f"{comparison['parameters']} parameters")
    base.print_points(comparison["points"], {"setting": "setting"}, "step")
    again = [p["predicted_without_ms"] / p["measured_step_ms"] - 1 for p in comparison["points"] if "predicted_without_ms" in p]
    if again:
        print("\nfrom a step that computes nothing again: " + ", ".join(f"{100 * error:+.1f} %" for error in again))
    print(f"\nMAPE {100 * comparison['mape']:.1f} %, noise floor {100 * comparison['noise_floor']:.1f} %")
    print(f"best: predicted {comparison['predicted_best']}, measured {comparison['measured_best']}, "
          f"{told(comparison['decision'])}")


def check(comparison, _):
    assert len({p["predicted_step_ms"] for p in comparison["points"]}) > 1, "settings that make a difference"


def main():
    parser = base.parser_of(__doc__, rounds=12)
    parser.add_argument("--ranks", type=int, choices=(2, 4))
    parser.add_argument("--recompute", action="store_true")
    base.compare(base.options_of(parser), measure, judge, report, check, variables=base.KEEPING_HEAP,
                 probe="hasattr(__import__('torch.distributed.fsdp').distributed.fsdp, 'fully_shard')")


if __name__ == "__main__":
    main()
