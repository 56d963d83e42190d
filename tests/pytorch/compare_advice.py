#!/usr/bin/env python3
"""Compares the advice of bucketwise.torch in a real training with a sweep of caps in the same processes.

usage: compare_advice.py --bucketwise BINARY [-o FOLDER] [--rounds 12] [--rate 1gbit] [--seed 1]
                         [--model perceptron|convolutional|transformer]
                         [--short: no time is judged, only whether everything fits together]
                         [--again: report anew what was measured into FOLDER before]

Two ranks of real PyTorch over Gloo train as in compare_with_ddp.py, with its models and link and with
DistributedDataParallel's defaults: once unchanged, and once with bw.advise() around the loop. The losses have to be
equal bit for bit, and the added time is reported. Then a step is measured at seven caps, the default and the advised
cap, each in every round, in a seeded random order; the advice has seen none of these steps.

Writes FOLDER/comparison.json, beside what advise() writes. Skipped (exit code 77) as compare_with_ddp.py is.
"""

import argparse
import contextlib
import datetime
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import compare_with_ddp as ddp_comparison

HERE = Path(__file__).resolve()
CAPS = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 50.0]
SHORT_CAPS = [0.25, 0.5]
STEPS = 80


class Training:
    """One model in a DistributedDataParallel, and the loop around it."""

    def __init__(self, trained, seed, **options):
        torch.manual_seed(seed)
        self.trained = trained
        self.ddp = torch.nn.parallel.DistributedDataParallel(trained.model(), **options)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-3, momentum=0.9)
        self.batch = torch.Generator().manual_seed(seed + dist.get_rank())
        self.inputs, self.targets = trained.inputs(), trained.targets()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.ddp(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, steps):
        return [self.step().item() for _ in range(steps)]


def measure(options, folder):
    from bucketwise.torch import advise

    trained = ddp_comparison.MODELS[options.model](options.short)
    steps = STEPS
    found = {"torch": torch.__version__, "model": options.model, "rate": os.environ["COMPARE_RATE"], "rounds": options.rounds}
    Training(trained, options.seed).losses(5)  # warms up what is made once in a process
    begin = time.perf_counter()
    plain = Training(trained, options.seed)
    without = plain.losses(steps)
    middle = time.perf_counter()
    training = Training(trained, options.seed)
    with advise(training.ddp, folder / "advice", program=options.bucketwise) as advice:
        losses = training.losses(steps)
        end = time.perf_counter()
    found["seconds"] = {"without": middle - begin, "with": end - middle}
    found["losses_equal"] = losses == without
    found["parameters_equal"] = all(
        torch.equal(a, b) for a, b in zip(plain.ddp.module.state_dict().values(), training.ddp.module.state_dict().values())
    )
    results = [advice.result]
    dist.broadcast_object_list(results, src=0)
    if results[0] is None:
        sys.exit("compare_advice: nothing was advised")
    found["advice"] = results[0]
    prediction = [json.loads((folder / "advice" / "prediction.json").read_text()) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(prediction, src=0)
    advised = None if prediction[0]["keep_default"] else prediction[0]["best"]["bucket_cap_mib"]
    found["advised_cap_mib"] = advised  # null: the default
    caps = [None, *(SHORT_CAPS if options.short else CAPS)]
    caps += [advised] if advised not in caps else []
    found["steps"] = sweep(options, trained, caps)
    add_predicted(found["steps"], prediction[0])
    if dist.get_rank() == 0:
        (folder / "comparison.json").write_text(json.dumps(found, indent=1) + "\n")


def add_predicted(rows, prediction):
    """Adds the predictions of the same buckets; the prediction has every plan that a cap can give."""
    steps = {tuple(row["bucket_bytes"]): row["step_ms"] for row in [*prediction["sweep"], prediction["default"]]}
    for row in rows:
        row["predicted_step_ms"] = steps.get(tuple(row["bucket_bytes"]))


def sweep(options, trained, caps):
    """By cap the slowest rank's ms of every round."""
    trainings = [Training(trained, options.seed, **({} if cap is None else {"bucket_cap_mb": cap})) for cap in caps]
    order, times = random.Random(options.seed), [[] for _ in caps]
    for training in trainings:
        training.losses(2)  # DDP forms its final buckets after the first
    for number in range(-1, options.rounds):
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
            ddp_comparison.show_progress(number + 1, options.rounds)
    return [
        {"bucket_cap_mib": cap, "bucket_bytes": ddp_comparison.bucket_bytes(training.ddp), "step_ms": ms}
        for cap, training, ms in zip(caps, trainings, times)
    ]


def run_rank(options):
    # Without the process that started it there is nobody left to report to.
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(1)), daemon=True).start()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[options.rank % len(cores)]})
    sys.path.insert(0, str(HERE.parents[2] / "python"))
    global torch, dist
    import torch
    import torch.distributed as dist

    ddp_comparison.torch, ddp_comparison.dist = torch, dist
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    dist.init_process_group(
        "gloo", rank=options.rank, world_size=ddp_comparison.RANKS, timeout=datetime.timedelta(minutes=5)
    )
    measure(options, Path(options.output))
    dist.barrier()
    os._exit(0)  # Gloo's threads and a half-closed store have nothing left to say


# --- what it amounts to ---


def judge(found, seed):
    """Replay's error, regret and noise, of caps that give the same buckets taken together."""
    plans = {}
    for row in found["steps"]:
        plans.setdefault(tuple(row["bucket_bytes"]), []).extend(row["step_ms"])
    medians = {plan: statistics.median(ms) for plan, ms in plans.items()}
    draws = random.Random(seed)
    halves = []
    for ms in plans.values():
        low, high = ddp_comparison.bootstrap(ms, draws)
        halves.append((high - low) / 2 / statistics.median(ms))
    row = {row["bucket_cap_mib"]: row for row in found["steps"]}
    default, advised = (tuple(row[cap]["bucket_bytes"]) for cap in (None, found["advised_cap_mib"]))
    advice = found["advice"]
    return {
        "replay_error": advice.get("replay_error"),
        "replay_against_sweep": advice["current"]["step_ms"] / medians[default] - 1,
        "mape": statistics.mean(abs(row["predicted_step_ms"] / medians[tuple(row["bucket_bytes"])] - 1) for row in found["steps"]),
        "plans_equal": advice["current"]["bucket_bytes"] == list(default),
        "advised_cap_mib": found["advised_cap_mib"],
        "regret": medians[advised] / min(medians.values()) - 1,
        "gain_over_default": 1 - medians[advised] / medians[default],
        "noise_floor": statistics.median(halves),
    }


def report(found, verdict):
    print(f"PyTorch {found['torch']}, {found['model']}, {ddp_comparison.RANKS} ranks, Gloo, {found['rate']}, {found['rounds']} rounds\n")
    print("| cap, MiB | buckets | step, ms | predicted, ms | error |\n|---|---|---|---|---|")
    for row in found["steps"]:
        cap = "default" if row["bucket_cap_mib"] is None else f"{row['bucket_cap_mib']:g}"
        measured, predicted = statistics.median(row["step_ms"]), row["predicted_step_ms"]
        print(f"| {cap} | {len(row['bucket_bytes'])} | {measured:.1f} | {predicted:.1f} | {100 * (predicted / measured - 1):+.1f} % |")
    seconds, advice = found["seconds"], found["advice"]
    print(f"\n{STEPS} steps: {seconds['without']:.2f} s without, {seconds['with']:.2f} s with advise(); all-reduces between "
          f"steps {advice.get('added_ms', 0):.0f} ms; losses and parameters {'equal' if found['losses_equal'] and found['parameters_equal'] else 'DIFFERENT'}")
    print(f"measured step {advice['measured_step_ms']:.1f} ms, replayed {advice['replayed_step_ms']:.1f} "
          f"({100 * verdict['replay_error']:+.1f} %; against the sweep's {100 * verdict['replay_against_sweep']:+.1f} %)")
    cap = "the default" if verdict["advised_cap_mib"] is None else f"{verdict['advised_cap_mib']:g} MiB"
    print(f"advised {cap}: regret {100 * verdict['regret']:.1f} %, {100 * verdict['gain_over_default']:.1f} % faster than the "
          f"default, noise {100 * verdict['noise_floor']:.1f} %; mean error over the caps {100 * verdict['mape']:.1f} %")


def check(found, verdict):
    """Asserts only what does not depend on the machine's speed."""
    assert found["losses_equal"], "losses differ with and without advise()"
    assert found["parameters_equal"], "parameters differ with and without advise()"
    assert all(row["predicted_step_ms"] for row in found["steps"]), "DDP formed buckets that no cap was to give"
    assert verdict["plans_equal"], f"DDP's buckets and those replayed differ: {verdict}"
    assert found["advice"]["added_ms"] > 0 and found["advice"]["verdict"]["text"], found["advice"]


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bucketwise", required=True)
    parser.add_argument("-o", "--output")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--model", choices=ddp_comparison.MODELS, default="perceptron")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--rank", type=int)
    return parser.parse_args()


def main():
    options = parsed()
    if options.rank is not None:
        run_rank(options)
    try:
        if not options.again:
            ddp_comparison.require()
        with tempfile.TemporaryDirectory() if options.output is None else contextlib.nullcontext(options.output) as name:
            folder = Path(name).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            arguments = ["--rounds", options.rounds, "--seed", options.seed, "--model", options.model, "-o", folder]
            arguments += ["--bucketwise", Path(options.bucketwise).resolve()] + (["--short"] if options.short else [])
            if not options.again:
                ddp_comparison.run_script(HERE, arguments, options.rate)
            found = json.loads((folder / "comparison.json").read_text())
    except ddp_comparison.Skip as why:
        print(f"skipped: {why}")
        sys.exit(ddp_comparison.SKIPPED)
    verdict = judge(found, options.seed)
    report(found, verdict)
    check(found, verdict)


if __name__ == "__main__":
    main()
