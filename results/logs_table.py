#!/usr/bin/env python3
"""Prints the predictions of link presets for public all-reduces, and the error of each.

usage: logs_table.py [--program BUCKETWISE] [--sizes] [--check]
   --program   default: build/release/cli/bucketwise of this checkout
   --sizes     every size, not only what they come to
   --check     fail where `bucketwise link list` says something else of a preset

links/rows.csv has the times with their sources. Errors are of what is typical over what was measured, less 1, of
64 KiB to 1 GiB; a row is within the range where it is between the times of the preset's ends.
"""

import csv
import io
import math
import statistics
import sys
from pathlib import Path

import tables

SMALLEST, LARGEST = 64 << 10, 1 << 30
# Slower by this than more nodes of the same machines are, at most sizes: no law of a number of ranks says that.
ANOMALOUS = 1.5
GROWTH = "slingshot-gh200"
GROWTH_SIZES = {"1 MiB": 1 << 20, "64 MiB": 64 << 20, "1 GiB": 1 << 30}


def lines_of(program, *arguments):
    return list(csv.DictReader(io.StringIO(program.run("link", *arguments, "--format", "csv"))))


class Set:
    def __init__(self, rows, program):
        self.name, self.preset = rows[0]["set"], rows[0]["preset"]
        self.hardware, self.origin = rows[0]["hardware"], rows[0]["origin"]
        self.ranks = int(rows[0]["ranks"])
        self.torch = self.origin.startswith("torch")
        self.measured = {int(row["bytes"]): float(row["time_us"]) for row in rows
                         if SMALLEST <= int(row["bytes"]) <= LARGEST}
        sizes = ",".join(f"{size}B" for size in self.measured)
        shown = lines_of(program, "link", "show", self.preset, "--ranks", str(self.ranks), "--bytes", sizes)
        self.said = {int(row["bytes"]): row for row in shown}

    def said_us(self, size, column="time_us"):
        return float(self.said[size][column])

    def errors(self, column="time_us"):
        return [self.said_us(size, column) / us - 1 for size, us in self.measured.items()]

    def mean_error(self, column="time_us"):
        return 100 * statistics.mean(map(abs, self.errors(column)))

    def inside(self):
        return sum(self.said_us(size, "fast_us") <= us <= self.said_us(size, "slow_us")
                   for size, us in self.measured.items())

    # How many times slower than a larger one at the same size, the median over sizes.
    def slower_than(self, larger):
        return statistics.median(us / larger.measured[size] for size, us in self.measured.items()
                                 if size in larger.measured)


def read_sets(program):
    rows = {}
    for row in tables.rows_of(Path(__file__).parent / "links" / "rows.csv"):
        rows.setdefault(row["set"], []).append(row)
    return [Set(of_set, program) for of_set in rows.values()]


def anomalies(sets):
    found = {}
    for one in sets:
        for larger in sets:
            if larger.preset == one.preset and larger.torch == one.torch and larger.ranks > one.ranks:
                times = one.slower_than(larger)
                if times > ANOMALOUS:
                    found[one.name] = f"{times:.1f} times as long as {larger.hardware}, the median over sizes"
    return found


def print_sets(sets, anomalous, all_sizes):
    print(f"{'':20}{'preset':17}{'ranks':>6}{'sizes':>6}{'mean |error|':>14}{'worst':>8}{'in range':>10}"
          f"{'NCCL alone':>12}")
    for one in sets:
        errors = one.errors()
        alone = f"{one.mean_error('nccl_us'):10.1f} %" if "nccl_us" in next(iter(one.said.values())) else ""
        print(f"{one.name:20}{one.preset:17}{one.ranks:6}{len(errors):6}{one.mean_error():12.1f} %"
              f"{100 * max(errors, key=abs):+6.0f} %{one.inside():6}/{len(errors):<3}{alone}"
              f"{'  anomalous' if one.name in anomalous else ''}")
        if all_sizes:
            for size, us in one.measured.items():
                print(f"    {size:>12} B  measured {us:10.1f} us  {one.said_us(size, 'fast_us'):10.1f} "
                      f"{one.said_us(size):10.1f} {one.said_us(size, 'slow_us'):10.1f}"
                      f"  {100 * (one.said_us(size) / us - 1):+6.1f} %")


def summary(name, sets, anomalous):
    sound = [one for one in sets if one.name not in anomalous]
    means = [one.mean_error() for one in sets]
    rows = sum(len(one.measured) for one in sets)
    inside = sum(one.inside() for one in sets)
    print(f"{name}: {len(sets)} sets, {rows} times; mean |error|: median {statistics.median(means):.1f} %"
          f" (without anomalous {statistics.median(one.mean_error() for one in sound):.1f} %), largest"
          f" {max(one.mean_error() for one in sound):.1f} % but for anomalous; in range {100 * inside / rows:.0f} %"
          f" ({100 * sum(one.inside() for one in sound) / sum(len(one.measured) for one in sound):.0f} %)")


def print_growth(sets, anomalous):
    grown = sorted((one for one in sets if one.preset == GROWTH), key=lambda one: one.ranks)
    print(f"\n{GROWTH}, measured and said in us\n{'':24}" + "".join(f"{name:>26}" for name in GROWTH_SIZES))
    for one in grown:
        line = f"{one.hardware:24}"
        for size in GROWTH_SIZES.values():
            us, said = one.measured[size], one.said_us(size)
            line += f"{us:10.1f}{said:9.1f}{100 * (said / us - 1):+5.0f} %"
        print(line + ("  anomalous" if one.name in anomalous else ""))


# The median of a preset's logs' mean errors, as `link list` shows it.
def check(sets, program):
    listed = {row["name"]: row for row in lines_of(program, "link", "list")}
    wrong = []
    for preset, row in listed.items():
        logs = [one for one in sets if one.preset == preset and not one.torch]
        error = statistics.median(one.mean_error() for one in logs) if logs else None
        said = float(row["log_error_percent"]) if row["log_error_percent"] else None
        same = (error is None) == (said is None) and (error is None or math.isclose(error, said, abs_tol=0.5))
        if int(row["logs"]) != len(logs) or not same:
            wrong.append(f"{preset}: {len(logs)} logs, error {error}; link list says {row['logs']}, {said}")
    if wrong:
        sys.exit("\n".join(wrong))


def main():
    parser = tables.parser_of(__doc__)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--check", action="store_true")
    wanted = parser.parse_args()
    program = tables.Program(wanted.program)
    sets = read_sets(program)
    if wanted.check:
        check(sets, program)
        return
    anomalous = anomalies(sets)
    print_sets(sets, anomalous, wanted.sizes)
    print()
    summary("nccl-tests", [one for one in sets if not one.torch], anomalous)
    summary("by PyTorch, host and all", [one for one in sets if one.torch], anomalous)
    for name, why in anomalous.items():
        print(f"{name} is anomalous: {why}")
    print_growth(sets, anomalous)


if __name__ == "__main__":
    main()
