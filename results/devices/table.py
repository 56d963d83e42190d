#!/usr/bin/env python3
"""Prints the predictions of device presets for public steps of single GPUs, and the error of each.

usage: table.py [--program BUCKETWISE] [--refit] [--expect FILE | --write FILE]
   --program   default: build/release/cli/bucketwise of this checkout
   --refit     fit the factors anew, to all rows and to all but one source's, and print how far off those left out are
   --write     store what is predicted; --expect: fail where it differs from that

rows.csv has the rows with their sources; README.md says what was fitted to which.
"""

import json
import math
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tables
from tables import percent

# Fitted factors: the prior, and its usual deviation as a share. A factor that no row determines keeps its prior. The
# host's prior is 20 us for an operation, and 13 us for a kernel.
BEGIN = {"tensor_efficiency": (0.8, 0.15), "vector_efficiency": (0.95, 0.08), "convolution_efficiency": (0.9, 0.15),
         "fused_efficiency": (0.15, 0.6), "host_scale": (0.87, 0.5)}
# A row's error that weighs as much as such a move.
USUAL_ERROR = 0.08
STEPS = 4
STEP = 0.03


def predict(program, row, factors):
    workload = json.loads(row["workload"])
    if factors:
        device = workload["device"]
        workload["device"] = {**({"preset": device} if isinstance(device, str) else device), **factors}
    scenario = {"name": row["row"], "workload": workload, "cluster": {"ranks": 1, "link": "eth-100g"},
                "sync": {"strategy": row["strategy"]}, "step": json.loads(row["step"])}
    return program.predict(scenario, *(["--bucket-cap", "25MiB"] if row["strategy"] != "none" else []))


def part_of(said, row):
    return said[f"{row['part']}_ms"]


def predicted(program, row, factors=None):
    return part_of(predict(program, row, factors)["default"], row)


def solved(matrix, right):
    """By elimination with pivots."""
    rows = [[*line, value] for line, value in zip(matrix, right)]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(len(rows)):
            if r != i:
                share = rows[r][i] / rows[i][i]
                rows[r] = [a - share * b for a, b in zip(rows[r], rows[i])]
    return [line[-1] / line[i] for i, line in enumerate(rows)]


def factors_at(moves):
    return {key: begin * math.exp(move) for (key, (begin, _)), move in zip(BEGIN.items(), moves)}


def errors_at(program, rows, moves):
    """Logarithms of predicted over measured, each source weighing as much as another, and the moves themselves."""
    factors = factors_at(moves)
    count = {row["source"]: 0 for row in rows}
    for row in rows:
        count[row["source"]] += 1
    errors = [math.log(predicted(program, row, factors) / float(row["measured_ms"])) / USUAL_ERROR
              / math.sqrt(count[row["source"]]) for row in rows]
    return errors + [move / usual for move, (_, usual) in zip(moves, BEGIN.values())]


def fitted(program, rows):
    """Gauss and Newton's least squares."""
    moves = [0.0] * len(BEGIN)
    for _ in range(STEPS):
        here = errors_at(program, rows, moves)
        slopes = []
        for i in range(len(moves)):
            there = errors_at(program, rows, [m + (STEP if i == j else 0) for j, m in enumerate(moves)])
            slopes.append([(a - b) / STEP for a, b in zip(there, here)])
        square = [[sum(a * b for a, b in zip(s, t)) for t in slopes] for s in slopes]
        change = solved(square, [-sum(a * b for a, b in zip(s, here)) for s in slopes])
        moves = [m + max(-0.3, min(0.3, c)) for m, c in zip(moves, change)]
    return factors_at(moves)


def judge(program, rows):
    """Prints a line for each row, and what they say together; returns what was predicted."""
    stored = []
    print(f"{'row':64} {'measured':>9} {'predicted':>9} {'error':>8}   {'fast':>7} {'slow':>7}  within  launches")
    for use, what in (("fit", "fitted to"), ("look", "not fitted to: steps of two GPUs less their all-reduces"),
                      ("last", "not fitted to, and looked at last: NVIDIA's BERT-large")):
        errors, within, told = [], [], []
        for row in (row for row in rows if row["use"] == use):
            said = predict(program, row, None)
            measured, ms = float(row["measured_ms"]), part_of(said["default"], row)
            ends = {end["end"]: part_of(end["best"], row) for end in said["device_preset"]["ends"]}
            binding = said["binding"]
            launches = binding["launch_ms"] / sum(binding.values())
            errors.append(ms / measured - 1)
            within.append(ends["fast"] <= measured <= ends["slow"])
            told.append((launches >= 0.1) == (row["bound_by_launches"] == "yes"))
            print(f"{row['row']:64} {measured:9.1f} {ms:9.1f} {percent(errors[-1])} {ends['fast']:9.1f} {ends['slow']:7.1f}"
                  f"  {'yes' if within[-1] else 'no':6} {percent(launches)}{'' if told[-1] else ' (wrong)'}")
            stored.append({"row": row["row"], "predicted_ms": ms, "fast_ms": ends["fast"], "slow_ms": ends["slow"],
                           "launches": launches})
        print(f"{what}: {len(errors)} rows, median error {percent(statistics.median(map(abs, errors))).strip()}, largest "
              f"{percent(max(errors, key=abs)).strip()}, {sum(within)} within their range, launches told of {sum(told)}\n")
    return stored


def refit(program, rows):
    def said(factors):
        return ", ".join(f"{key} {value:.2f}" for key, value in factors.items())

    rows = [row for row in rows if row["use"] == "fit"]
    print(f"fitted to all: {said(fitted(program, rows))}")
    out = []
    for source in dict.fromkeys(row["source"] for row in rows):
        factors = fitted(program, [row for row in rows if row["source"] != source])
        errors = [predicted(program, row, factors) / float(row["measured_ms"]) - 1 for row in rows if row["source"] == source]
        out += map(abs, errors)
        print(f"without {source}: {said(factors)}; its rows: {', '.join(percent(error).strip() for error in errors)}")
    print(f"left out: median error {percent(statistics.median(out)).strip()}, largest {percent(max(out)).strip()}")


def main():
    parser = tables.parser_of(__doc__, stores=True)
    parser.add_argument("--refit", action="store_true")
    options = parser.parse_args()
    program, rows = tables.Program(options.program), tables.rows_of(Path(__file__).parent / "rows.csv")
    stored = judge(program, rows)
    if options.refit:
        refit(program, rows)
    tables.store(stored, options)


if __name__ == "__main__":
    tables.run(main)
