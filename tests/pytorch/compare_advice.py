#!/usr/bin/env python3
"""Compares the advice of bucketwise.torch in a real training with a sweep of caps in the same processes.

usage: compare_advice.py --bucketwise BINARY [-o FOLDER] [--rounds 12] [--rate 1gbit] [--seed 1] [--ranks 2]
                         [--model perceptron|convolutional|transformer] [--wrapper ddp|fsdp] [--checkpoint]
                         [--short: no time is judged, only whether everything fits together]
                         [--again: report anew what was measured into FOLDER before]

Ranks (comparison.py) train a model of trained_models.py with DistributedDataParallel's defaults, or with fully_shard on
each block (--checkpoint: whose forward runs again in backward): once unchanged, and once with bw.advise() around the
loop. The losses have to be equal bit for bit; added time and memory are reported. Then a step is measured at seven caps,
the default and the advised cap, or under every setting that was predicted, each in every round, in a seeded random
order, for --rounds rounds or until more would change no verdict (decision.py); the advice has seen none of these steps.

Writes FOLDER/comparison.json, beside what advise() writes.
"""

import random
import resource
import statistics
import sys
import time
from pathlib import Path

import comparison as base
from compare_with_ddp import MODELS, bucket_bytes
from comparison import read_json, write_json
from decision import FEWEST_ROUNDS, decision_of, of_plans, told

CAPS, SHORT_CAPS = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 50.0], [0.25, 0.5]
STEPS = {"ddp": 80, "fsdp": 40}
OWN = {"layers_per_group": 1, "reshard_after_forward": True}  # fully_shard(block), by scenarios' keys


class Training:
    """One wrapped model, and the loop around it."""

    def __init__(self, trained, options, **wrapping):
        torch.manual_seed(options["seed"])
        wrap = self.sharded if options["wrapper"] == "fsdp" else torch.nn.parallel.DistributedDataParallel
        plain = trained.model()
        if options["checkpoint"]:
            from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

            for name in blocks_of(plain):
                plain[int(name)] = checkpoint_wrapper(plain[int(name)])
        self.model = wrap(plain, **wrapping)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.inputs, self.targets = trained.inputs(), trained.targets()

    @staticmethod
    def sharded(model, sharding=OWN):
        from record_sharded import groups_of, set_prefetch, shard

        groups = groups_of(blocks_of(model), sharding)
        shard(model, groups, dist.get_world_size(), sharding)
        turn = list(range(1, len(groups) + 1))
        set_prefetch(model, groups, sharding, {"forward": turn, "backward": turn[::-1]})
        return model

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.model(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, steps):
        return [self.step().item() for _ in range(steps)]

    def parameters(self):
        return [getattr(value, "_local_tensor", value) for value in self.model.state_dict().values()]


def blocks_of(model):
    """Names of the layers of a Sequential that have parameters."""
    return [name for name, layer in model.named_children() if list(layer.parameters())]


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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

    Training(trained, options).losses(5)  # warms up what is made once in a process
    steps = STEPS[options["wrapper"]]
    plain, training = (Training(trained, options) for _ in range(2))
    begin = time.perf_counter()
    without = plain.losses(steps)
    middle = time.perf_counter()
    training_mib = peak_mib()  # of one that trains, beside another's parameters
    plain.optimizer.state.clear()
    plain.model.zero_grad(set_to_none=True)
    with advise(training.model, folder / "advice", program=options["bucketwise"]) as advice:
        losses = training.losses(steps)
        end = time.perf_counter()
    advised_mib = peak_mib()
    result = of_first(advice.result)
    if result is None:
        sys.exit("compare_advice: nothing was advised")
    prediction = of_first(read_json(folder / "advice" / "prediction.json") if rank == 0 else None)
    if options["wrapper"] == "fsdp":
        advised = prediction["best"]["sharding"]
        settings = [row["sharding"] for row in prediction["sweep"]]
    else:
        advised = None if prediction["keep_default"] else prediction["best"]["bucket_cap_mib"]
        settings = [None, *(SHORT_CAPS if options["short"] else CAPS)]
        settings += [advised] if advised not in settings else []
    equal = all(torch.equal(a, b) for a, b in zip(plain.parameters(), training.parameters()))
    found = {"torch": torch.__version__, **{key: options[key] for key in ("model", "rate", "rounds", "wrapper", "checkpoint", "ranks")},
             "seconds": {"without": middle - begin, "with": end - middle}, "losses_equal": losses == without,
             "parameters_equal": equal, "advice": result, "advised": advised,  # null: the default
             "peak_mib": [round(training_mib), round(advised_mib)],
             "steps": sweep(options, trained, settings, advised, prediction)}
    found["rounds"] = len(found["steps"][0]["step_ms"])
    if rank == 0:
        write_json(folder / "comparison.json", found)


def wrapping_of(options, setting):
    """Keywords of the wrapper, for a bucket cap or what a scenario says of sharding."""
    return {} if setting is None else {"sharding" if options["wrapper"] == "fsdp" else "bucket_cap_mb": setting}


def sweep(options, trained, settings, advised, prediction):
    """By setting the slowest rank's ms of every round, and what was predicted of the same buckets, if anything: the
    prediction has every plan that a cap can give."""
    trainings = [Training(trained, options, **wrapping_of(options, setting)) for setting in settings]
    order, times = random.Random(options["seed"]), [[] for _ in settings]
    for training in trainings:
        training.losses(2)  # DDP forms its final buckets after the first
    for number in range(-1, options["rounds"]):
        turns = list(range(len(settings)))
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
        if FEWEST_ROUNDS <= number + 1 < options["rounds"]:
            # DDP tells its buckets late, so settings with the same ones count as different here.
            if of_first(decision_of(dict(enumerate(times)), settings.index(advised))["settled"]):
                break
    if options["wrapper"] == "fsdp":
        return [{"setting": row["sharding"], "step_ms": ms, "predicted_step_ms": row["step_ms"]}
                for row, ms in zip(prediction["sweep"], times)]
    predicted = {tuple(row["bucket_bytes"]): row["step_ms"] for row in [*prediction["sweep"], prediction["default"]]}
    plans = [bucket_bytes(training.model) for training in trainings]
    return [{"setting": cap, "bucket_bytes": plan, "step_ms": ms, "predicted_step_ms": predicted.get(tuple(plan))}
            for cap, plan, ms in zip(settings, plans, times)]


# --- what it amounts to ---


def judge(options, folder):
    """Returns comparison.json with the replay's error, regret and noise, of caps that give the same buckets taken
    together."""
    found = read_json(folder / "comparison.json")
    plans = {}
    plan_of = lambda row: tuple(row["bucket_bytes"]) if "bucket_bytes" in row else str(row["setting"])  # noqa: E731
    for row in found["steps"]:
        plans.setdefault(plan_of(row), []).extend(row["step_ms"])
    medians = {plan: statistics.median(ms) for plan, ms in plans.items()}
    draws = random.Random(options.seed)
    points = [base.point_of("step", ms, 0, draws) for ms in plans.values()]
    current = found["advice"]["current"]
    own = current.get("sharding")  # the scenario's own, of FSDP2
    default, advised = (next(plan_of(row) for row in found["steps"] if row["setting"] == setting)
                        for setting in (own, found["advised"]))
    errors = [row["predicted_step_ms"] / medians[plan_of(row)] - 1 for row in found["steps"]]
    times = {i: row["step_ms"] for i, row in enumerate(found["steps"])}
    decision = decision_of(of_plans(times, lambda i: plan_of(found["steps"][i])), advised)
    judged = {**found, "decision": {**decision, "best": [row["setting"] for row in found["steps"] if plan_of(row) == decision["best"]]},
              "verdict": {"replay_error": found["advice"].get("replay_error"),
                                   "replay_against_sweep": current["step_ms"] / medians[default] - 1,
                                   "mape": statistics.mean(map(abs, errors)),
                                   "plans_equal": own is not None or current["bucket_bytes"] == list(default),
                                   "regret": medians[advised] / min(medians.values()) - 1,
                                   "gain_over_default": 1 - medians[advised] / medians[default],
                                   "noise_floor": base.noise_floor_of(points, "step")}}
    check(judged)
    return judged


def report(found):
    again = ", blocks computed again" if found["checkpoint"] else ""
    print(f"PyTorch {found['torch']}, {found['wrapper']}, {found['model']}{again}, {found['ranks']} ranks, Gloo, "
          f"{found['rate']}, {found['rounds']} rounds\n")
    print("| setting | step, ms | predicted, ms | error |\n|---|---|---|---|")
    for row in found["steps"]:
        measured, predicted = statistics.median(row["step_ms"]), row["predicted_step_ms"]
        error = 100 * (predicted / measured - 1)
        print(f"| {named(row['setting'])} | {measured:.1f} | {predicted:.1f} | {error:+.1f} % |")
    seconds, advice, verdict = found["seconds"], found["advice"], found["verdict"]
    without_mib, with_mib = found.get("peak_mib", (None, None))
    memory = "" if with_mib is None else f"at most {without_mib} and {with_mib} MiB of memory; "
    equal = "equal" if found["losses_equal"] and found["parameters_equal"] else "DIFFERENT"
    print(f"\n{STEPS[found['wrapper']]} steps: {seconds['without']:.2f} s without, {seconds['with']:.2f} s with advise(); "
          f"{memory}collectives "
          f"between steps {advice.get('added_ms', 0):.0f} ms; losses and parameters {equal}")
    print(f"measured step {advice['measured_step_ms']:.1f} ms, replayed {advice['replayed_step_ms']:.1f} "
          f"({100 * verdict['replay_error']:+.1f} %; against the sweep's {100 * verdict['replay_against_sweep']:+.1f} %)")
    print(f"advised {named(found['advised'])}: {told(found['decision'])}, "
          f"{100 * verdict['gain_over_default']:.1f} % faster than what ran, noise {100 * verdict['noise_floor']:.1f} %; mean error over the settings {100 * verdict['mape']:.1f} %")


def named(setting):
    if not isinstance(setting, dict):
        return "default" if setting is None else f"{setting:g} MiB"
    groups = len(setting.get("groups", [])) or "no"
    return (f"{groups} groups, {'resharded' if setting['reshard_after_forward'] else 'kept'}, ahead "
            f"{setting['forward_prefetch']}/{setting['backward_prefetch']}"
            f"{', asynchronous' if setting['asynchronous_unshard'] else ''}")


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
    parser.add_argument("--wrapper", choices=STEPS, default="ddp")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    base.compare(base.options_of(parser), measure, judge, report)


if __name__ == "__main__":
    main()
