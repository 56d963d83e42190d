#!/usr/bin/env python3
"""Decisions about PyTorch's steps (decision.py) are judged as `bucketwise compare` judges those of our own ranks.

usage: check_decision.py path/to/bucketwise repo_root

Stored runs, reduced to rounds that measured the same plans.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from decision import decision_of, of_plans

FEWEST = 5  # rounds of a plan that counts


def in_common(steps):
    """The steps of plans that were measured often, in the rounds that all of these have."""
    rounds = {}
    for step in steps:
        rounds.setdefault(tuple(step["bucket_bytes"]), set()).add(step["round"])
    often = {plan: measured for plan, measured in rounds.items() if len(measured) >= FEWEST}
    common = set.intersection(*often.values())
    return [s for s in steps if tuple(s["bucket_bytes"]) in often and s["round"] in common]


def check(binary, run, folder):
    records = [json.loads(line) for line in (run / "measurements.jsonl").read_text().splitlines()]
    steps = in_common([record for record in records if record["kind"] == "step"])
    kept = [record for record in records if record["kind"] != "step"] + steps
    file = folder / "measurements.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in kept))
    subprocess.run([binary, "compare", run / "scenario.json", "--measurements", file, "-o", folder / "comparison.json"],
                   check=True, stdout=subprocess.DEVNULL)
    judged = json.loads((folder / "comparison.json").read_text())
    times, plan_of = {}, {}
    for step in sorted(steps, key=lambda s: s["round"]):
        times.setdefault(step["bucket_cap_mib"], []).append(step["samples_us"][0] / 1e3)
        plan_of[step["bucket_cap_mib"]] = tuple(step["bucket_bytes"])
    by_plan = of_plans(times, plan_of.get)
    advised = min(plan_of, key=lambda cap: abs(cap - judged["predicted_best_mib"]))  # which is rounded
    decision = decision_of(by_plan, plan_of[advised])
    rounds = len(by_plan[decision.pop("best")])
    what = f"{run.name}, {len(by_plan)} plans, {rounds} rounds: {decision}, {judged['verdict']}"
    assert len(by_plan) > 3, what
    assert decision["verdict"] == judged["verdict"]["decision"], what
    for one, other in zip(decision["regret_interval"], judged["verdict"]["regret_95"]):
        assert abs(one - other) < 1e-3, what
    print(what)


def main():
    binary, repository = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    for name in ("resnet_1gbit_1", "tiny_1gbit_1", "tiny_300mbit_1", "transformer_500mbit_2"):
        with tempfile.TemporaryDirectory() as folder:
            check(binary, repository / "results" / "validation" / name, Path(folder))


if __name__ == "__main__":
    main()
