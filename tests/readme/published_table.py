#!/usr/bin/env python3
"""Prints the published compare_ddp medians beside what `bucketwise` (found on PATH) predicts.

One machine describes all three strategies: scenarios/compare_ddp_*.json differ in `name` and `sync` only.
"""

import csv
import json
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# Scenario, the published table's name of it, MiB per N: DistributedDataParallel counts MiB, the Python versions floats.
STRATEGIES = [("core", "DDP_CPP_CORE", 1), ("async", "PYTHON_DDP_ASYNC_REDUCTION", 4),
              ("sync", "PYTHON_DDP_SYNC_REDUCTION", 4)]


def published(option):
    with open(REPOSITORY / "tests/data/published/compare_ddp.csv") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return {int(r["n"]): float(r["p50_ms"]) for r in rows if (r["phase"], r["option"]) == ("backward", option)}


def predicted(name, mib_per_n, ns):
    caps = ",".join(f"{n * mib_per_n}MiB" for n in ns)
    scenario = REPOSITORY / f"scenarios/compare_ddp_{name}.json"
    command = ["bucketwise", "predict", scenario, "--bucket-cap", caps, "--json", "-"]
    sweep = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["sweep"]
    return {round(row["bucket_cap_mib"] / mib_per_n): row["backward_ms"] for row in sweep}


def main():
    columns = []
    for name, option, mib_per_n in STRATEGIES:
        measured = published(option)
        columns.append((name, measured, predicted(name, mib_per_n, sorted(measured))))
    print("backward, ms" + "".join(f"{name:^28}" for name, _, _ in columns))
    print("  N " + "  published  predicted  error" * len(columns))
    for n in sorted(columns[0][1]):
        cells = [f"{m[n]:11.2f}{p[n]:11.2f}{100 * (p[n] / m[n] - 1):+6.2f}%" for _, m, p in columns]
        print(f"{n:3} " + "".join(cells))
    errors = [100 * sum(abs(p[n] / m[n] - 1) for n in m) / len(m) for _, m, p in columns]
    print("mean absolute error " + "".join(f"{e:{8 if i == 0 else 27}.2f}%" for i, e in enumerate(errors)))


if __name__ == "__main__":
    main()
