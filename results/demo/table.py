#!/usr/bin/env python3
"""Judges the demo's runs, which run.sh made, by the long one.

usage: table.py                                   prints the table of runs.csv
       table.py --reference VALIDATION            a long run's points as JSON
       table.py --row VALIDATION LOAD SEED SECONDS   a row of runs.csv

A run is right where the cap it advises takes, in the long run, at most 1 % and that run's noise longer than
the best cap there. Caps are compared by their number of buckets, the default by name. A run that decides
nothing is counted apart, and so is one whose decision is not held.
"""

import csv
import json
import pathlib
import re
import statistics
import sys

FOLDER = pathlib.Path(__file__).parent
TOLERANCE = 0.01


def comparison(validation):
    return json.loads((pathlib.Path(validation) / "comparison.json").read_text())


def best_of(points):
    return min(points, key=lambda point: point["measured_step_ms"])


def reference(validation):
    found = comparison(validation)
    return {
        "command": re.sub(r" -o \S+", "", found["command"]),
        "machine": found["machine"],
        "noise": found["noise_floor"],
        "points": [
            {key: point[key] for key in ("bucket_cap_mib", "is_default", "buckets", "measured_step_ms",
                                         "measured_interval_ms", "samples")}
            for point in found["points"]
        ],
    }


def row(validation, load, seed, seconds):
    found = comparison(validation)
    default = next(point for point in found["points"] if point["is_default"])
    advised_mib = found["predicted_best_mib"]
    advised = default if found["predicted_best_is_default"] else min(
        (point for point in found["points"] if not point["is_default"]),
        key=lambda point: abs(point["bucket_cap_mib"] - advised_mib))
    best = best_of(found["points"])
    return [load, seed, seconds, found["verdict"]["decision"], found["verdict"]["error"],
            "default" if advised["is_default"] else f"{advised['bucket_cap_mib']:.5g}", advised["buckets"],
            *(f"{point['measured_step_ms']:.4g}" for point in (advised, default, best)),
            *(f"{share:.4f}" for share in (found["regret"], *found["verdict"]["regret_95"], found["mape"],
                                           found["noise_floor"])), found["verdict"]["text"]]


HEADER = ["load", "seed", "seconds", "decision", "error", "advised_mib", "buckets", "advised_ms", "default_ms",
          "best_ms", "regret", "regret_low_95", "regret_high_95", "mean_error", "noise", "verdict"]


def cost_in(long_run, run):
    """How much longer than the best cap's the advised cap's step takes in the long run, or where those buckets
    were not measured there, in its own."""
    points = long_run["points"]
    if run["advised_mib"] == "default":
        same = [point for point in points if point["is_default"]]
    else:
        same = [point for point in points if not point["is_default"] and point["buckets"] == int(run["buckets"])]
        if not same:
            return float(run["regret"])
    return same[0]["measured_step_ms"] / best_of(points)["measured_step_ms"] - 1


def table():
    long_run = json.loads((FOLDER / "reference.json").read_text())
    allowed = TOLERANCE + long_run["noise"]
    print(f"allowed over the best of the long run: {100 * allowed:.1f} %\n")
    print("| load | runs | right | held | inconclusive | missed | sure and wrong | cost, mean and most "
          "| error, mean | seconds, most |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with open(FOLDER / "runs.csv", newline="") as file:
        runs = list(csv.DictReader(file))
    for load in dict.fromkeys(run["load"] for run in runs):
        of_load = [run for run in runs if run["load"] == load]
        costs = [cost_in(long_run, run) for run in of_load]
        right = [cost <= allowed for cost in costs]
        decisions = [run["decision"] for run in of_load]
        wrong = sum(decision == "held" and not is_right for decision, is_right in zip(decisions, right))
        print(f"| {load} | {len(of_load)} | {sum(right)} | {decisions.count('held')} "
              f"| {decisions.count('inconclusive')} | {decisions.count('missed')} | {wrong} "
              f"| {100 * statistics.mean(costs):.1f}, {100 * max(costs):.1f} % "
              f"| {100 * statistics.mean(float(run['mean_error']) for run in of_load):.1f} % "
              f"| {max(float(run['seconds']) for run in of_load):.0f} |")


def main(arguments):
    match arguments:
        case []:
            table()
        case ["--header"]:
            csv.writer(sys.stdout, lineterminator="\n").writerow(HEADER)
        case ["--reference", validation]:
            json.dump(reference(validation), sys.stdout, indent=1)
            print()
        case ["--row", validation, load, seed, seconds]:
            csv.writer(sys.stdout, lineterminator="\n").writerow(row(validation, load, seed, seconds))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
