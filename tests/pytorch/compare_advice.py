#!/usr/bin/env python3
"""Compares the advice of bucketwise.torch in a real training with a sweep of caps in the same processes.

usage: compare_advice.py --bucketwise BINARY [-o FOLDER] [--rounds 12] [--rate 1gbit] [--seed 1]
                         [--model perceptron|convolutional|transformer]
                         [--short: no time is judged, only whether everything fits together]
                         [--again: report anew what was measured into FOLDER before]

Two ranks (comparison.py) train a model of trained_models.py with DistributedDataParallel's defaults: once unchanged,
and once with bw.advise() around the loop. The losses have to be equal bit for bit, and the added time is reported. Then
a step is measured at seven caps, the default and the advised cap, each in every round, in a seeded random order; the
advice has seen none of these steps.

Writes FOLDER/comparison.json, beside what advise() writes.
"""

import random
import statistics
import sys
import time
from pathlib import Path

import comparison as base
from compare_with_ddp import MODELS, bucket_bytes
from comparison import read_json, write_json

CAPS, SHORT_CAPS = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 50.0], [0.25, 0.5]
STEPS = 80


class Training:
    """One model in a DistributedDataParallel, and the loop around it."""

    def __init__(self, trained, seed, **options):
        torch.manual_seed(seed)
        self.ddp = torch.nn.parallel.DistributedDataParallel(trained.model(), **options)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-3, momentum=0.9)
        self.inputs, self.targets = trained.inputs(), trained.targets()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.ddp(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, steps):
        return [self.step().item() for _ in range(steps)]

    def parameters(self):
        return self.ddp.module.state_dict().values()


def of_first(value):
    """Rank 0's, on all ranks."""
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def measure(rank, _, options, folder):
    global torch, dist
    import torch
    import torch.distributed as dist
    from bucketwise.torch import advise
    from trained_models import MODELS

    cores = sorted(base.os.sched_getaffinity(0))
    base.os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_flush_denormal(True)
    folder, trained = Path(folder), MODELS[options["model"]](options["short"])

    Training(trained, options["seed"]).losses(5)  # warms up what is made once in a process
    begin = time.perf_counter()
    plain = Training(trained, options["seed"])
    without = plain.losses(STEPS)
    middle = time.perf_counter()
    training = Training(trained, options["seed"])
    with advise(training.ddp, folder / "advice", program=options["bucketwise"]) as advice:
        losses = training.losses(STEPS)
        end = time.perf_counter()
    result = of_first(advice.result)
    if result is None:
        sys.exit("compare_advice: nothing was advised")
    prediction = of_first(read_json(folder / "advice" / "prediction.json") if rank == 0 else None)
    advised = None if prediction["keep_default"] else prediction["best"]["bucket_cap_mib"]
    caps = [None, *(SHORT_CAPS if options["short"] else CAPS)]
    caps += [advised] if advised not in caps else []
    equal = all(torch.equal(a, b) for a, b in zip(plain.parameters(), training.parameters()))
    found = {"torch": torch.__version__, **{key: options[key] for key in ("model", "rate", "rounds")},
             "seconds": {"without": middle - begin, "with": end - middle}, "losses_equal": losses == without,
             "parameters_equal": equal, "advice": result, "advised_cap_mib": advised,  # null: the default
             "steps": sweep(options, trained, caps, prediction)}
    if rank == 0:
        write_json(folder / "comparison.json", found)


def sweep(options, trained, caps, prediction):
    """By cap the slowest rank's ms of every round, and what was predicted of the same buckets, if anything: the
    prediction has every plan that a cap can give."""
    trainings = [Training(trained, options["seed"], **({} if cap is None else {"bucket_cap_mb": cap})) for cap in caps]
    order, times = random.Random(options["seed"]), [[] for _ in caps]
    for training in trainings:
        training.losses(2)  # DDP forms its final buckets after the first
    for number in range(-1, options["rounds"]):
        turns = list(range(len(caps)))
        order.shuffle(turns)
        for turn in turns:
            trainings[turn].step()  # comes from another model's: not what a training's is like
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(2):
                trainings[turn].step()
            took = torch.tensor([1e3 * (time.perf_counter() - begin) / 2], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            if number >= 0:
                times[turn].append(round(took.item(), 4))
        if dist.get_rank() == 0:
            base.show_progress(number + 1, options["rounds"])
    predicted = {tuple(row["bucket_bytes"]): row["step_ms"] for row in [*prediction["sweep"], prediction["default"]]}
    plans = [bucket_bytes(training.ddp) for training in trainings]
    return [{"bucket_cap_mib": cap, "bucket_bytes": plan, "step_ms": ms, "predicted_step_ms": predicted.get(tuple(plan))}
            for cap, plan, ms in zip(caps, plans, times)]


# --- what it amounts to ---


def judge(options, folder):
    """Returns comparison.json with the replay's error, regret and noise, of caps that give the same buckets taken
    together."""
    found = read_json(folder / "comparison.json")
    plans = {}
    for row in found["steps"]:
        plans.setdefault(tuple(row["bucket_bytes"]), []).extend(row["step_ms"])
    medians = {plan: statistics.median(ms) for plan, ms in plans.items()}
    draws = random.Random(options.seed)
    points = [base.point_of("step", ms, 0, draws) for ms in plans.values()]
    row = {row["bucket_cap_mib"]: row for row in found["steps"]}
    default, advised = (tuple(row[cap]["bucket_bytes"]) for cap in (None, found["advised_cap_mib"]))
    current = found["advice"]["current"]
    errors = [row["predicted_step_ms"] / medians[tuple(row["bucket_bytes"])] - 1 for row in found["steps"]]
    judged = {**found, "verdict": {"replay_error": found["advice"].get("replay_error"),
                                   "replay_against_sweep": current["step_ms"] / medians[default] - 1,
                                   "mape": statistics.mean(map(abs, errors)),
                                   "plans_equal": current["bucket_bytes"] == list(default),
                                   "regret": medians[advised] / min(medians.values()) - 1,
                                   "gain_over_default": 1 - medians[advised] / medians[default],
                                   "noise_floor": base.noise_floor_of(points, "step")}}
    check(judged)
    return judged


def report(found):
    print(f"PyTorch {found['torch']}, {found['model']}, 2 ranks, Gloo, {found['rate']}, {found['rounds']} rounds\n")
    print("| cap, MiB | buckets | step, ms | predicted, ms | error |\n|---|---|---|---|---|")
    for row in found["steps"]:
        cap = "default" if row["bucket_cap_mib"] is None else f"{row['bucket_cap_mib']:g}"
        measured, predicted = statistics.median(row["step_ms"]), row["predicted_step_ms"]
        error = 100 * (predicted / measured - 1)
        print(f"| {cap} | {len(row['bucket_bytes'])} | {measured:.1f} | {predicted:.1f} | {error:+.1f} % |")
    seconds, advice, verdict = found["seconds"], found["advice"], found["verdict"]
    equal = "equal" if found["losses_equal"] and found["parameters_equal"] else "DIFFERENT"
    print(f"\n{STEPS} steps: {seconds['without']:.2f} s without, {seconds['with']:.2f} s with advise(); all-reduces "
          f"between steps {advice.get('added_ms', 0):.0f} ms; losses and parameters {equal}")
    print(f"measured step {advice['measured_step_ms']:.1f} ms, replayed {advice['replayed_step_ms']:.1f} "
          f"({100 * verdict['replay_error']:+.1f} %; against the sweep's {100 * verdict['replay_against_sweep']:+.1f} %)")
    cap = "the default" if found["advised_cap_mib"] is None else f"{found['advised_cap_mib']:g} MiB"
    print(f"advised {cap}: regret {100 * verdict['regret']:.1f} %, {100 * verdict['gain_over_default']:.1f} % faster than "
          f"the default, noise {100 * verdict['noise_floor']:.1f} %; mean error over the caps {100 * verdict['mape']:.1f} %")


def check(found):
    """Asserts only what does not depend on the machine's speed."""
    assert found["losses_equal"], "losses differ with and without advise()"
    assert found["parameters_equal"], "parameters differ with and without advise()"
    assert all(row["predicted_step_ms"] for row in found["steps"]), "DDP formed buckets that no cap was to give"
    assert found["verdict"]["plans_equal"], f"DDP's buckets and those replayed differ: {found['verdict']}"
    assert found["advice"]["added_ms"] > 0 and found["advice"]["verdict"]["text"], found["advice"]


def main():
    parser = base.parser_of(__doc__, rounds=12)
    parser.add_argument("--model", choices=MODELS, default="perceptron")
    base.compare(base.options_of(parser), measure, judge, report)


if __name__ == "__main__":
    main()
