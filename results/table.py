#!/usr/bin/env python3
"""Prints the validations under results/validation, one line each, as `bucketwise compare` judged them.

usage: table.py [--again [--program BUCKETWISE]]
   --again    calibrate and compare anew from the stored measurements, and say what each prediction says its own
              regret will not exceed in 95 % of cases; nothing that is stored changes
   --program  default: build/release/cli/bucketwise of this checkout
"""

import json
import statistics
import tempfile
from pathlib import Path

import tables

FOLDER = Path(__file__).resolve().parent / "validation"
LINKS = {"1gbit": 0, "300mbit": 1, "loopback": 2}


def main():
    parser = tables.parser_of(__doc__)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    program = tables.Program(options.program) if options.again else None
    said = f" {'said':>7}" if options.again else ""
    print(f"{'workload, link, repeat':30} {'caps':>4} {'error':>7} {'noise':>7} {'regret':>7}{said} {'over default':>12}"
          f"  {'error':12} {'decision':12} regret, 95 %")
    runs = sorted((file.parent for file in FOLDER.glob("*/comparison.json")), key=order)
    comparisons = []
    for run in runs:
        c = compared_again(program, run) if options.again else json.loads((run / "comparison.json").read_text())
        comparisons.append(c)
        print_line(run, c, options.again)
    for what in ("error", "decision"):
        verdicts = [c["verdict"][what] for c in comparisons]
        print(f"{what}: " + ", ".join(f"{verdicts.count(v)} {v}" for v in ("held", "inconclusive", "missed")))
    within = sum(c["verdict"]["regret_95"][0] <= c["regret"] <= c["verdict"]["regret_95"][1] for c in comparisons)
    print(f"regret within its own interval: {within} of {len(runs)}")
    if options.again:
        held = sum(c["regret"] <= chosen_point(c)["expected_regret_95"] for c in comparisons)
        print(f"mean error {100 * statistics.mean(c['mape'] for c in comparisons):.2f} %, "
              f"mean regret {100 * statistics.mean(c['regret'] for c in comparisons):.2f} %")
        print(f"regret within what was said would not be exceeded in 95 % of cases: {held} of {len(runs)}")


def order(run):
    model, link, repeat = run.name.rsplit("_", 2)
    return LINKS[link], model, repeat


def print_line(run, c, again):
    model, link, repeat = run.name.rsplit("_", 2)
    low, high = c["verdict"].get("regret_95", [0, 0])
    met = f"{c['verdict']['error']:12} {c['verdict']['decision']:12} {100 * low:4.1f} to {100 * high:4.1f} %"
    gain = 1 - 1 / (1 + (c["gain_over_default"] or 0))
    said = f" {100 * chosen_point(c)['expected_regret_95']:5.2f} %" if again else ""
    print(f"{f'{model}, {link}, {repeat}':30} {len(c['points']):4} {100 * c['mape']:5.2f} % {100 * c['noise_floor']:5.2f} % "
          f"{100 * c['regret']:5.2f} %{said} {100 * gain:10.2f} %  {met}")


# --- anew ---------------------------------------------------------------------------------------------------


def compared_again(program, run):
    measurements = str(run / "measurements.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        link, scenario, comparison = (f"{folder}/{name}.json" for name in ("link", "scenario", "comparison"))
        program.run(run.name, "calibrate", measurements, "-o", link, "--scenario-output", scenario)
        program.run(run.name, "compare", scenario, "--link", link, "--measurements", measurements, "-o", comparison)
        return json.loads(Path(comparison).read_text())


def chosen_point(c):
    """The point whose regret it is. Naming the default cap is another point than leaving it out."""
    return next(point for point in c["points"] if point["bucket_cap_mib"] == c["predicted_best_mib"]
                and point["is_default"] == c["predicted_best_is_default"])


if __name__ == "__main__":
    tables.run(main)
