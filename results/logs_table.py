#!/usr/bin/env python3
"""Prints the predictions of link presets for public all-reduces, and the error of each.

usage: logs_table.py [--program BUCKETWISE] [--sizes] [--check] [--left-out]
   --program   default: build/release/cli/bucketwise of this checkout
   --sizes     every size, not only what they come to
   --check     fail where `bucketwise link list` says something else of a preset
   --left-out  predict the logs of each source with what all other sources and data sheets tell

links/rows.csv has the times with their sources. Errors are of what is typical over what was measured, less 1, of
64 KiB to 1 GiB; a row is within the range where it is between the times of the preset's ends.
"""

import csv
import functools
import io
import json
import math
import os
import statistics
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tables

SMALLEST, LARGEST = 64 << 10, 1 << 30
# Slower by this than more nodes of the same machines are, at most sizes: no law of a number of ranks says that.
ANOMALOUS = 1.5
GROWTH = "slingshot-gh200"
GROWTH_SIZES = {"1 MiB": 1 << 20, "64 MiB": 64 << 20, "1 GiB": 1 << 30}
# Factors from NCCL's model to the clock, and the values that are tried for each.
FACTORS = {"ring_ll": (0.3, 0.35, 0.45, 0.55, 0.7, 0.85, 1.0, 1.3), "nvls": (1.0, 1.1, 1.25, 1.4, 1.5, 1.65, 1.8, 2.0, 2.2),
           "network": (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2.0, 2.2)}
# Where a log set more of its preset than a factor: what is known without it, which is 98.5 % of what NCCL counts for an
# NVLink, 94 % of a NIC, and through host memory what the two other machines reach.
NIC, GPU, LAUNCH = "/topology/nics", "/topology/node/bandwidth_gb_per_s", "/launch_us"
WITHOUT = {
    "AWS p5": {f"{NIC}/bandwidth_gb_per_s": 47, f"{NIC}/latency_us": 15},
    "GB200 NVL72": {GPU: 711},
    "8 x 4 A100-SXM4-40GB": {f"{NIC}/bandwidth_gb_per_s": 11.75, f"{NIC}/latency_us": 2},
    "GH200": {GPU: 365, LAUNCH: 7, f"{NIC}/latency_us": 2},
    "4 x RTX PRO 4500": {GPU: 5.45},
}


def lines_of(program, *arguments):
    return list(csv.DictReader(io.StringIO(program.run("link", *arguments, "--format", "csv"))))


def source_of(hardware):
    """Logs of one cluster are one source."""
    return "GH200" if "GH200" in hardware else hardware.split(",")[0].split(":")[0].split(" Blackwell")[0]


class Set:
    def __init__(self, rows, program):
        self.name, self.preset = rows[0]["set"], rows[0]["preset"]
        self.hardware, self.origin = rows[0]["hardware"], rows[0]["origin"]
        self.ranks = int(rows[0]["ranks"])
        self.torch = self.origin.startswith("torch")
        self.measured = {int(row["bytes"]): float(row["time_us"]) for row in rows
                         if SMALLEST <= int(row["bytes"]) <= LARGEST}
        self.source = source_of(self.hardware)
        self.said = self.times_of(self.preset, program)

    def times_of(self, link, program):
        sizes = ",".join(f"{size}B" for size in self.measured)
        shown = lines_of(program, "link", "show", link, "--ranks", str(self.ranks), "--bytes", sizes)
        return {int(row["bytes"]): row for row in shown}

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


class LeftOut:
    """Fits the factors to the logs of all sources but one."""

    def __init__(self, sets, program):
        self.sets, self.program = sets, program
        self.links = {one.preset: program.run(one.preset, "link", "show", one.preset, "--json") for one in sets}
        self.known = {}

    def error(self, one, factors, changes=()):
        """Returns the mean |error| of one log, and its errors, with a preset that is changed."""
        key = (one.name, *factors.values(), *changes)
        if key not in self.known:
            link = json.loads(self.links[one.preset])
            clock = link["topology"]["nccl"]["clock"]
            fitted = {"ring_ll": clock["ring_ll"]} if link["topology"]["nccl"]["generation"] == "ampere" else {}
            clock.update({**factors, **fitted})  # before Hopper the preset's, as no log tells it
            for pointer, value in changes:
                *path, last = pointer.strip("/").split("/")
                part = functools.reduce(lambda at, name: at.get(name, {}), path, link)
                if last in part:  # a node alone has no NICs
                    part[last] = value
            file = Path(self.program.folder.name) / f"link_{threading.get_ident()}.json"
            file.write_text(json.dumps(link))
            said = one.times_of(file, self.program)
            errors = [float(said[size]["time_us"]) / us - 1 for size, us in one.measured.items()]
            self.known[key] = statistics.mean(map(abs, errors)), errors
        return self.known[key]

    def fitted(self, logs):
        """Takes each factor in turn, as often as that changes one."""
        factors = dict.fromkeys(FACTORS, 1.0)
        before = None
        while factors != before:
            before = dict(factors)
            for name, values in FACTORS.items():
                tried = [{**factors, name: value} for value in values]
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    errors = list(pool.map(lambda f: statistics.mean(self.error(one, f)[0] for one in logs), tried))
                factors = tried[min(range(len(tried)), key=errors.__getitem__)]
        return factors

    def show(self, anomalous):
        print(f"{'left out':24}{'factors of the others':38}{'log':20}{'mean |error|':>14}{'in range':>10}")
        means, inside, rows = {}, 0, 0
        for source in dict.fromkeys(one.source for one in self.sets):
            factors = self.fitted([one for one in self.sets if one.source != source and one.name not in anomalous])
            for one in (one for one in self.sets if one.source == source):
                mean, errors = self.error(one, factors, tuple(WITHOUT.get(source, {}).items()))
                means.setdefault(source, []).append(mean)
                rows += len(errors)
                inside += one.inside()
                said = ", ".join(f"{name} {value:g}" for name, value in factors.items())
                print(f"{source:24}{said:38}{one.name:20}{100 * mean:12.1f} %{one.inside():6}/{len(errors):<3}"
                      f"{'  anomalous' if one.name in anomalous else ''}")
        of_logs = [mean for of_source in means.values() for mean in of_source]
        of_sources = [statistics.mean(of_source) for of_source in means.values()]
        print(f"median {100 * statistics.median(of_logs):.1f} %, of sources {100 * statistics.median(of_sources):.1f} %, "
              f"largest {100 * max(of_logs):.1f} %; {100 * inside / rows:.0f} % of times in the presets' ranges")


def main():
    parser = tables.parser_of(__doc__)
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--check", action="store_true")
    wanted = parser.parse_args()
    program = tables.Program(wanted.program)
    sets = read_sets(program)
    if wanted.check:
        check(sets, program)
        return
    anomalous = anomalies(sets)
    if wanted.left_out:
        LeftOut([one for one in sets if not one.torch], program).show(anomalous)
        return
    print_sets(sets, anomalous, wanted.sizes)
    print()
    summary("nccl-tests", [one for one in sets if not one.torch], anomalous)
    summary("by PyTorch, host and all", [one for one in sets if one.torch], anomalous)
    for name, why in anomalous.items():
        print(f"{name} is anomalous: {why}")
    print_growth(sets, anomalous)


if __name__ == "__main__":
    main()
