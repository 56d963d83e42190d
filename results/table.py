#!/usr/bin/env python3
"""Prints the validations under results/validation, one line each, as `bucketwise compare` judged them.

usage: table.py [--caps] [--again [--program BUCKETWISE]]
   --caps     the error at each setting, with the interval of its measured step, instead of one line for each run
   --again    calibrate and compare anew from the stored measurements; nothing that is stored changes
   --program  default: build/release/cli/bucketwise of this checkout
"""

import json
import statistics
import tempfile
from pathlib import Path

import tables

FOLDER = Path(__file__).resolve().parent / "validation"


def main():
    parser = tables.parser_of(__doc__)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--caps", action="store_true")
    options = parser.parse_args()
    program = tables.Program(options.program) if options.again else None
    runs = sorted((file.parent for file in FOLDER.glob("*/comparison.json")), key=order)
    comparisons = {run.name: compared_again(program, run) if options.again else
                   json.loads((run / "comparison.json").read_text()) for run in runs}
    for name, c in comparisons.items():
        if options.caps:
            print_settings(name, c)
    if not options.caps:
        print(f"{'':24} {'settings':>8} {'error':>7} {'noise':>7} {'regret':>7} {'in 95 %':>13} {'saves':>7}  "
              f"{'error':12} decision")
        for name, c in comparisons.items():
            print_line(name, c)
    print_sums(comparisons.values())


def order(run):
    setup, _, seed = run.name.rpartition("_")
    return setup.split("_")[0], setup, int(seed)


def faster_by(slower):
    return slower / (1 + slower)


def print_line(name, c):
    low, high = c["verdict"]["regret_95"]
    print(f"{name:24} {len(c['points']):8} {100 * c['mape']:5.2f} % {100 * c['noise_floor']:5.2f} % "
          f"{100 * c['regret']:5.2f} % {100 * low:4.1f} to {100 * high:3.1f} % {100 * faster_by(c['gain_over_default'] or 0):5.1f} %"
          f"  {c['verdict']['error']:12} {c['verdict']['decision']}")


def print_settings(name, c):
    print(f"\n{name}: {c['verdict']['text']}")
    for point in c["points"]:
        low, high = point["measured_interval_ms"]
        print(f"  {setting(point):>28} {point['predicted_step_ms']:8.0f} ms predicted {point['measured_step_ms']:8.0f} measured"
              f" ({low:.0f} to {high:.0f}) {100 * point['error']:+6.1f} %")


def setting(point):
    if "bucket_cap_mib" in point:
        return "default" if point["is_default"] else f"{point['bucket_cap_mib']:g} MiB"
    return point["setting"]


def print_sums(comparisons):
    for what in ("error", "decision"):
        verdicts = [c["verdict"][what] for c in comparisons]
        print(f"{what}: " + ", ".join(f"{verdicts.count(v)} {v}" for v in ("held", "inconclusive", "missed")))
    within = sum(c["verdict"]["regret_95"][0] <= c["regret"] <= c["verdict"]["regret_95"][1] for c in comparisons)
    print(f"regret within its own interval: {within} of {len(comparisons)}")
    print(f"mean error {100 * statistics.mean(c['mape'] for c in comparisons):.2f} %, "
          f"mean regret {100 * statistics.mean(c['regret'] for c in comparisons):.2f} %")
    expected = sum(c["regret"] <= chosen_point(c)["expected_regret_95"] for c in comparisons)
    print(f"regret within what the prediction said of 95 % of cases: {expected} of {len(comparisons)}")
    saved = [faster_by(c["gain_over_default"] or 0) for c in comparisons]
    print(f"saved over the default: {100 * statistics.mean(saved):.1f} % on average, "
          f"5 % or more in {sum(share >= 0.05 for share in saved)} of {len(saved)}")


def chosen_point(c):
    """The point whose regret it is. Naming the default cap is another point than leaving it out."""
    return next(point for point in c["points"] if point["is_default"] == c["predicted_best_is_default"] and
                (point["sharding"] == c["predicted_best"] if "sharding" in point
                 else point["bucket_cap_mib"] == c["predicted_best_mib"]))


# --- anew ---------------------------------------------------------------------------------------------------


def compared_again(program, run):
    measurements = str(run / "measurements.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        link, scenario, comparison = (f"{folder}/{name}.json" for name in ("link", "scenario", "comparison"))
        program.run(run.name, "calibrate", measurements, "-o", link, "--scenario-output", scenario)
        program.run(run.name, "compare", scenario, "--link", link, "--measurements", measurements, "-o", comparison)
        return json.loads(Path(comparison).read_text())


if __name__ == "__main__":
    tables.run(main)
