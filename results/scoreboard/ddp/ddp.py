#!/usr/bin/env python3
"""Predicts public measurements of real GPUs, and prints how far off each prediction is.

usage: ddp.py [--program BUCKETWISE] [--details] [--set NAME]
   --program   default: build/release/cli/bucketwise of this checkout
   --details   a line for every row, not only one for each set
   --set NAME  only this one; may be repeated

The rule that makes a scenario and a link of a set's rows is README.md's; no row that is judged is fitted to.
"""

import json
import math
import os
import statistics
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
import tables
from tables import rows_of

# Rows that give the computing time, and are not judged: the first of these in a table, or the all-reduces after
# backward that leave the least time for computing.
ALONE = ("single_gpu", "no_sync")
AFTER_BACKWARD = ("flat", "naive")
SHARDED = "+sharded"  # of a strategy whose optimizer is
# Of their peak, as of the program's own devices.
MEMORY_EFFICIENCY = 0.85
PRESET_GB_PER_S = {"A100": 2039, "H100": 3350, "V100": 900}
# All-reduces whose standard deviation is a larger share of their time are left out.
MOST_NOISE = 0.2


def median_of(rows, column):
    values = [float(row[column]) for row in rows if row[column]]
    return statistics.median(values) if values else None


class Program(tables.Program):
    def with_strategy(self, scenario, strategy, caps=()):
        named = ["--bucket-cap", ",".join(f"{cap}MiB" for cap in caps)] if caps else []
        return self.predict(scenario, "--strategy", strategy, *named)

    def step_ms(self, scenario, strategy, cap=None):
        if strategy.endswith(SHARDED):  # each rank updates its part, then broadcasts it
            strategy = strategy.removesuffix(SHARDED)
            step = {**scenario["step"], "optimizer_ms": scenario["step"]["optimizer_ms"] / scenario["cluster"]["ranks"]}
            scenario = {**scenario, "step": step, "sync": {**scenario["sync"], "sharded_optimizer": "broadcast"}}
        named = cap and cap != "default"
        said = self.with_strategy(scenario, strategy, [cap] if named else [])
        return (said["sweep"][0] if named else said["default"] if cap else said["best"])["step_ms"]


def segments_through(points):
    """A ring on two ranks or more whose cost is linear between the (bytes, ms) given, and beyond them."""
    segments = []
    for (low, low_ms), (high, high_ms) in zip(points, points[1:]):
        ms_per_byte = max((high_ms - low_ms) / (high - low), 1e-12)
        fixed_ms = low_ms - ms_per_byte * low
        if fixed_ms < 0:  # no time is left for a message of no bytes
            fixed_ms, ms_per_byte = 0.0, high_ms / high
        segments.append((high, fixed_ms, ms_per_byte))
    return segments


def has_all_reduces(name):
    return any(row["set"] == name for row in rows_of(HERE / "allreduces.csv"))


def link_of(name, given, rows, gradients):
    """From all-reduces of the same box, else from what the table's own all-reduces after backward took."""
    if "link" in given:
        return given["link"]
    ranks = given["ranks"]
    by_bytes = defaultdict(list)
    for row in rows_of(HERE / "allreduces.csv"):
        if row["set"] == name and float(row["std_ms"] or 0) < MOST_NOISE * float(row["time_ms"]):
            by_bytes[int(row["bytes"])].append(row)
    points = sorted((size, median_of(of_size, "time_ms")) for size, of_size in by_bytes.items())
    if not points:
        # naive: one for each gradient; flat: one of all. The shorter tells the wire, the difference the rest.
        took = {strategy: median_of([r for r in rows if r["strategy"] == strategy], "communication_ms")
                for strategy in AFTER_BACKWARD}
        if not any(took.values()):
            flat, alone = (median_of([r for r in rows if r["strategy"] == s], "step_ms") for s in ("flat", "single_gpu"))
            took["flat"] = flat - alone
        wire = min(ms for ms in took.values() if ms)
        fixed = max((took["naive"] or wire) - wire, 0.0) / gradients["count"] if took["flat"] else 0.0
        points = [(gradients["bytes"] // 1000, fixed + wire / 1000), (gradients["bytes"], fixed + wire)]
    if len(points) == 1:  # no latency can be told from it
        points = [(points[0][0] // 1000, points[0][1] / 1000), *points]
    steps, per_byte = 2 * (ranks - 1), 2 * (ranks - 1) / ranks
    segments = [{"latency_us": 1e3 * fixed_ms / steps, "bandwidth_gb_per_s": per_byte / ms_per_byte / 1e6,
                 **({"up_to_bytes": high} if i + 2 < len(points) else {})}
                for i, (high, fixed_ms, ms_per_byte) in enumerate(segments_through(points))]
    return {"name": f"all-reduces of {name}", "algorithm": "ring", "segments": segments,
            "provenance": {"backend": "nccl", "ranks": ranks, "hardware": given["hardware"]}}


def scenario_of(name, given, config, link, ranks):
    workload = {**given["workload"], **{k: v for k, v in config.items() if k != "base"}}
    return {"name": name, "workload": workload, "cluster": {"ranks": ranks, "link": link},
            "sync": given["sync"], "step": {"optimizer": "adam", **given["step"]}}


def add_optimizer(given, scenario, gradients):
    if "optimizer_elements" in given:
        device = given["workload"]["device"]
        gb_per_s = PRESET_GB_PER_S[device] if isinstance(device, str) else device["memory_bandwidth_gb_per_s"]
        scenario["step"]["optimizer_ms"] = (given["optimizer_elements"] * gradients["bytes"] / MEMORY_EFFICIENCY / gb_per_s
                                            / 1e6)
        del scenario["step"]["optimizer"]


def add_computing(program, scenario, rows):
    """Measured passes where the base has them, else such that the base is met, backward twice as long as forward."""
    workload, step = scenario["workload"], scenario["step"]
    of = {strategy: [row for row in rows if row["strategy"] == strategy] for strategy in ALONE + AFTER_BACKWARD}
    base = next((strategy for strategy in ALONE if of[strategy]), None)
    if base:
        passes = [median_of(of[base], f"{part}_ms") for part in ("forward", "backward", "optimizer")]
        if all(passes):
            workload["forward_ms"], workload["backward_ms"], step["optimizer_ms"] = passes
            del step["optimizer"]
            return base
    computing = {}
    for strategy in [base] if base else [s for s in AFTER_BACKWARD if of[s]]:
        measured = median_of(of[strategy], "step_ms")
        ms = measured / 2
        for _ in range(4):
            workload["forward_ms"], workload["backward_ms"] = ms / 3, 2 * ms / 3
            alone = {**scenario, "cluster": {"ranks": 1, "link": "eth-100g"}}
            ms += measured - (program.step_ms(alone, "none") if base else program.step_ms(scenario, strategy))
            if ms <= 0:
                sys.exit(f"{scenario['name']}: nothing is left for computing")
        computing[strategy] = ms
    base = min(computing, key=computing.get)
    workload["forward_ms"], workload["backward_ms"] = computing[base] / 3, 2 * computing[base] / 3
    return base


def gradients_of(program, scenario):
    said = program.with_strategy({**scenario, "cluster": {"ranks": 2, "link": "eth-100g"}}, "overlap")
    sizes = said["best"]["bucket_bytes"]
    return {"count": len(sizes), "bytes": sum(sizes)}


def judged(program, name, given, rows):
    """Each config's predicted rows, and what the program advises among the caps that were measured."""
    configs = sorted({row["config"] for row in rows}, key=[row["config"] for row in rows].index)
    for config in configs:
        own = given.get("configs", {}).get(config, {})
        of_config = [row for row in rows if row["config"] == config]
        of_base = [row for row in rows if row["config"] == own.get("base", config)]
        gradients = gradients_of(program, scenario_of(name, given, own, "eth-100g", 2))
        scenario = scenario_of(name, given, own, link_of(name, given, of_base, gradients), given["ranks"])
        add_optimizer(given, scenario, gradients)
        used = {*ALONE, add_computing(program, scenario, of_base)}
        if "link" not in given and not has_all_reduces(name):  # the link is of these
            used.update(AFTER_BACKWARD)
        predicted = []
        measured = defaultdict(list)
        for row in of_config:
            if row["strategy"] not in used:
                measured[int(row["gpus"]), row["strategy"], row["cap_mib"]].append(row)
        for (ranks, strategy, cap), of_row in measured.items():
            scenario["cluster"]["ranks"] = ranks
            predicted.append({"set": name, "config": config, "gpus": ranks, "strategy": strategy, "cap_mib": cap,
                              "predicted_ms": program.step_ms(scenario, strategy, cap),
                              "measured_ms": median_of(of_row, "step_ms")})
        yield {"config": config, "rows": predicted, "advice": advice(program, scenario, predicted)}


def advice(program, scenario, predicted):
    """Returns the program's choice among the measured caps, and its cost over the best of them."""
    by_cap = {float(row["cap_mib"]): row for row in predicted if row["cap_mib"] not in ("", "default")}
    if len(by_cap) < 2:
        return None
    said = program.with_strategy(scenario, scenario["sync"]["strategy"], [f"{cap:g}" for cap in sorted(by_cap)])
    chosen = said["default" if said["keep_default"] else "best"]
    def measured(mib):  # at the nearest cap that was
        return by_cap[min(by_cap, key=lambda cap: abs(math.log(cap / mib)))]["measured_ms"]

    cap = min(by_cap, key=lambda cap: abs(math.log(cap / chosen["bucket_cap_mib"])))
    return {"cap_mib": cap, "saved_95": said["verdict"].get("saved_95"),
            "saved": 1 - by_cap[cap]["measured_ms"] / measured(said["default"]["bucket_cap_mib"]),
            "regret": by_cap[cap]["measured_ms"] / min(r["measured_ms"] for r in by_cap.values()) - 1,
            "said": chosen["expected_regret_95"]}


def percent(share):
    return tables.percent(share, 2)


def judge_all(program, names=None, details=False, show=print):
    """Shows a line for each set; returns the predicted rows, and what was advised."""
    sets = json.loads((HERE / "sets.json").read_text())
    rows = rows_of(HERE / "steps.csv")
    stored = []
    mapes = {False: [], True: []}
    held = []
    advices = []
    show(f"{'set':30} {'trust':>5} {'rows':>4} {'MAPE':>8} {'bias':>8} {'worst':>8} {'advised':>11} {'regret':>8} {'said':>8}")
    names = names or list(sets)
    of_sets = [[row for row in rows if row["set"] == name and row["trust"] != "D"] for name in names]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        judgements = list(pool.map(lambda name, of_set: list(judged(program, name, sets[name], of_set)), names, of_sets))
    for name, of_set, configs in zip(names, of_sets, judgements):
        predicted = [row for config in configs for row in config["rows"]]
        errors = [row["predicted_ms"] / row["measured_ms"] - 1 for row in predicted]
        mape = statistics.mean(map(abs, errors))
        scales = all(row["cap_mib"] == "default" for row in predicted)
        mapes[scales].append(mape)
        advised = [config["advice"] for config in configs if config["advice"]]
        caps = ",".join(f"{a['cap_mib']:g}" for a in advised)
        regret, said = (percent(max(a[key] for a in advised)) if advised else "" for key in ("regret", "said"))
        held += [a["regret"] <= a["said"] for a in advised]
        advices += [(name, a) for a in advised]
        show(f"{name:30} {of_set[0]['trust']:>5} {len(errors):4} {percent(mape)} "
              f"{percent(statistics.mean(errors))} {percent(max(errors, key=abs))} {caps:>11} {regret:>8} {said:>8}")
        if details:
            for row, error in zip(predicted, errors):
                show(f"  {row['config']:36} {row['gpus']:>3} {row['strategy']:9} {row['cap_mib']:>7} {row['measured_ms']:9.2f} "
                      f"{row['predicted_ms']:9.2f} {percent(error)}")
        stored += predicted
    for scales, what in ((False, "sweeps"), (True, "one to N GPUs")):
        if mapes[scales]:
            show(f"{what}: {len(mapes[scales])} sets, median MAPE {percent(statistics.median(mapes[scales])).strip()}, "
                  f"largest {percent(max(mapes[scales])).strip()}")
    if held:
        show(f"regret within what was said would not be exceeded in 95 % of cases: {sum(held)} of {len(held)}")
    return stored, advices


def main():
    parser = tables.parser_of(__doc__)
    parser.add_argument("--details", action="store_true")
    parser.add_argument("--set", action="append")
    options = parser.parse_args()
    sets = json.loads((HERE / "sets.json").read_text())
    if unknown := sorted(set(options.set or ()) - set(sets)):
        parser.error(f"--set: expected one of {', '.join(sets)}, got {unknown[0]}")
    judge_all(Program(options.program), options.set, options.details)


# The most that advice may cost over the best that was measured.
MOST_REGRET = 0.015


def check_advice(advices):
    for name, advice in advices:
        low, high = advice["saved_95"] or (-1, 1)
        if not (advice["regret"] <= min(MOST_REGRET, advice["said"]) and low <= advice["saved"] <= high):
            sys.exit(f"{name}: expected a regret of at most {percent(MOST_REGRET)}, within what is said, and a saving "
                     f"within its interval, got {advice}")


if __name__ == "__main__":
    tables.run(main)
