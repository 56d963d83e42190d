#!/usr/bin/env python3
"""Predicts public steps of real GPUs, and says by source how far off the predictions are.

usage: score.py [--program BUCKETWISE] [--details] [--source NAME] [--refit] [--page] [--expect FILE | --write FILE]
   --program   default: build/release/cli/bucketwise of this checkout
   --details   a line for every row, too
   --source    only this one; may be repeated
   --refit     fit the factors of device presets to all other sources than each, and say how far off that one is then
   --page      put what is printed into README.md, and draw score.svg (needs matplotlib)
   --write     store what is predicted; --expect: fail where it differs from that

README.md says how a row becomes a scenario.
"""

import csv
import io
import json
import math
import os
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "ddp")]
import ddp
import tables
from tables import percent

STEPS_TO_CALIBRATE = 3
# Fitted factors of device presets: their usual deviation as a share.
FITTED = {"tensor_efficiency": 0.10, "vector_efficiency": 0.08, "convolution_efficiency": 0.15, "flash_efficiency": 0.20,
          "fused_efficiency": 0.5, "pass_efficiency": 0.06, "host_scale": 0.4}
USUAL_ERROR = 0.05  # of a row, that weighs as much as such a deviation
STEPS_TO_FIT = 2
MOVE = 0.03


def merged(base, other):
    """`other`'s values over those of `base`, object by object."""
    if not (isinstance(base, dict) and isinstance(other, dict)):
        return other
    return {**base, **{key: merged(base[key], value) if key in base else value for key, value in other.items()}}


def set_value(scenario, setting):
    """/json/pointer=value, as of the program's --set."""
    pointer, text = setting.split("=", 1)
    *path, last = pointer.strip("/").split("/")
    for key in path:
        scenario = scenario.setdefault(key, {})
    try:
        scenario[last] = json.loads(text)
    except ValueError:
        scenario[last] = text


def scenario_of(row, source, models):
    model = models.get(row["model"], row["model"])
    if isinstance(model, dict) and row["sequence"]:
        model = {"context": int(row["sequence"]), **model}
    workload = {"model": model, "batch": int(row["batch"]), "device": row["gpu"]}
    if row["sequence"]:
        workload["sequence_length"] = int(row["sequence"])
    step = {"accumulation": int(row["accumulation"])} if row["accumulation"] != "1" else {}
    scenario = merged(source["base"], {"name": f"{row['model']}, {row['gpus']} {row['gpu']}", "workload": workload,
                                       "cluster": {"ranks": int(row["gpus"]), "link": row["link"]}, "step": step})
    scenario = json.loads(json.dumps(scenario))
    for setting in row["set"].split():
        set_value(scenario, setting)
    return scenario


class Program(tables.Program):
    def __init__(self, path):
        super().__init__(path)
        listed = json.loads(self.run("device list", "device", "list", "--format", "json"))
        self.devices = {row["name"]: row for row in listed["rows"]}
        shown = json.loads(self.run("device show", "device", "show", "A100", "--format", "json"))
        self.factors = {row["factor"]: row["typical"] for row in shown["rows"]}  # of all presets

    def step(self, scenario, *options):
        """A row of sweep."""
        handle, file = tempfile.mkstemp(suffix=".json", dir=self.folder.name)
        with os.fdopen(handle, "w") as opened:
            json.dump(scenario, opened)
        own = f"/cluster/ranks={scenario['cluster']['ranks']}"
        said = json.loads(self.run(scenario["name"], "sweep", file, "--vary", own, "--jobs", "1", *options))
        os.unlink(file)
        return said

    def slower(self, scenario, factor):
        """The same with computing that takes `factor` times as long, on the same host."""
        device = self.devices[scenario["workload"]["device"]]
        peaks = {key.removesuffix("_tflop_per_s"): value / factor for key, value in device.items()
                 if key.endswith("_tflop_per_s") and value}
        return merged(scenario, {"workload": {"device": {
            "preset": device["name"], "memory_bandwidth_gb_per_s": device["memory_gb_per_s"] / factor, "peak_tflop_per_s": peaks}}})


def calibrated(program, scenario, measured_ms):
    """How much longer than expected computing takes where this row was measured."""
    factor = 1.0
    for _ in range(STEPS_TO_CALIBRATE):
        said = program.step(program.slower(scenario, factor))
        computing_ms = said["step_ms"] - said["exposed_communication_ms"]
        factor *= max(0.1, 1 + (measured_ms - said["step_ms"]) / computing_ms)
    return factor


def smallness(row):
    """On the fewest GPUs, with the fewest settings, the shortest."""
    return int(row["gpus"]), len(row["set"].split()), float(row["measured_ms"])


def predicted(program, rows, sources, models):
    """Each row from names alone, and from its table's smallest row."""
    scenarios = [scenario_of(row, sources[row["source"]], models) for row in rows]
    by_table = {}
    for place, row in enumerate(rows):
        if sources[row["source"]].get("one_row"):
            by_table.setdefault(row["source"], []).append(place)
    bases = {source: min(places, key=lambda place: smallness(rows[place])) for source, places in by_table.items()}

    def factor_of(source):
        return calibrated(program, scenarios[bases[source]], float(rows[bases[source]]["measured_ms"]))

    def both(place):
        row, scenario = rows[place], scenarios[place]
        part = f"{row['part']}_ms"
        said = program.step(scenario, "--range")
        one = {"source": row["source"], "row": row["origin"], "predicted_ms": said[part],
               "low_ms": said[part] * said["low_step_ms"] / said["step_ms"],
               "high_ms": said[part] * said["high_step_ms"] / said["step_ms"]}
        if row["source"] in factors and place != bases[row["source"]]:
            one["from_one_row_ms"] = program.step(program.slower(scenario, factors[row["source"]]))[part]
        if row["memory_gib"]:
            one["memory_gib"] = said["memory_bytes"] / 2**30
        return one

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        factors = dict(zip(bases, pool.map(factor_of, bases)))
        said = list(pool.map(both, range(len(rows))))
    for row, one in zip(rows, said):
        one["measured_ms"] = float(row["measured_ms"])
        one["is_step"] = True
    return said


def collectives(program):
    """Collectives alone, on a preset whose nodes have as many GPUs and adapters as the row's."""
    groups = {}
    for row in tables.rows_of(HERE / "collectives.csv"):
        groups.setdefault((row["source"], row["preset"], row["nodes"], row["gpus_per_node"], row["collective"]), []).append(row)
    said = []
    for (source, preset, nodes, gpus, collective), own in groups.items():
        link = json.loads(program.run(preset, "link", "show", preset, "--json"))
        whole = link["topology"]["node"]["gpus"] == int(gpus)
        link["topology"]["node"]["gpus"] = link["topology"]["nics"]["per_node"] = int(gpus)
        file = Path(program.folder.name) / "link.json"
        file.write_text(json.dumps(link))
        shown = program.run(source, "link", "show", preset if whole else file, "--ranks", str(int(nodes) * int(gpus)), "--collective",
                            collective, "--bytes", ",".join(f"{row['bytes']}B" for row in own), "--format", "csv")
        for row, one in zip(own, csv.DictReader(io.StringIO(shown))):
            ends = {"low_ms": float(one["fast_us"]) / 1e3, "high_ms": float(one["slow_us"]) / 1e3} if one.get("slow_us") else {}
            said.append({"source": source, "row": f"{nodes} x {gpus}, {row['bytes']} B", "predicted_ms": float(one["time_us"]) / 1e3,
                         "measured_ms": float(row["time_us"]) / 1e3, **ends})
    return said


def error(one, key="predicted_ms"):
    return one[key] / one["measured_ms"] - 1


def median(errors):
    return statistics.median(map(abs, errors))


def line_of(name, own):
    errors = [error(one) for one in own]
    later = [error(one, "from_one_row_ms") for one in own if "from_one_row_ms" in one]
    within = [one["low_ms"] <= one["measured_ms"] <= one["high_ms"] for one in own if "low_ms" in one]
    widths = [one["high_ms"] / one["low_ms"] - 1 for one in own if "low_ms" in one]
    return (f"{name:30} {len(own):4} {percent(median(errors))} {percent(statistics.mean(errors))} "
            f"{percent(max(errors, key=abs))} "
            + (f"{percent(sum(within) / len(within), 0)} {percent(median(widths), 0)} " if within else " " * 18)
            + (f"{percent(median(later))} {percent(max(later, key=abs))}" if later else "")).rstrip()


HEAD = f"{'source':30} {'rows':>4} {'median':>8} {'bias':>8} {'worst':>8} {'in range':>8} {'wide':>8} {'one row':>8} {'worst':>8}"


def table_of(said):
    lines = [HEAD]
    for name in dict.fromkeys(one["source"] for one in said):
        lines.append(line_of(name, [one for one in said if one["source"] == name]))
    return "\n".join([*lines, line_of("all steps", [one for one in said if "is_step" in one])])


def print_details(rows, said):
    for row, one in zip(rows, said):
        inside = "in " if one["low_ms"] <= one["measured_ms"] <= one["high_ms"] else "out"
        later = f"{100 * error(one, 'from_one_row_ms'):+7.1f}" if "from_one_row_ms" in one else " " * 7
        memory = f"{one['memory_gib']:6.1f} GiB of {row['memory_gib']}" if row["memory_gib"] else ""
        print(f"{row['source']:16} {row['model']:16} {row['gpus']:>4} {row['batch']:>4} x {row['sequence']:>5} x "
              f"{row['accumulation']:>2} {one['measured_ms']:9.1f} {one['predicted_ms']:9.1f} {100 * error(one):+6.1f} {later} "
              f"{inside} {memory} {row['set'][:60]}".rstrip())


# --- factors fitted anew ---

def factors_at(program, moves):
    return {key: program.factors[key] * math.exp(move) for key, move in zip(FITTED, moves)}


def errors_at(program, rows, sources, models, moves):
    """Logarithms of predicted over measured, each source weighing as much as another, then the moves."""
    factors = factors_at(program, moves)
    count = {row["source"]: 0 for row in rows}
    for row in rows:
        count[row["source"]] += 1

    def of_row(row):
        scenario = scenario_of(row, sources[row["source"]], models)
        device = scenario["workload"]["device"]
        scenario["workload"]["device"] = {**({"preset": device} if isinstance(device, str) else device), **factors}
        return math.log(program.step(scenario)[f"{row['part']}_ms"] / float(row["measured_ms"]))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        plain = list(pool.map(of_row, rows))
    # A row that contradicts its neighbours weighs no more than two usual errors.
    weighed = [max(-2, min(2, one / USUAL_ERROR)) / math.sqrt(count[row["source"]]) for row, one in zip(rows, plain)]
    return plain, weighed + [move / usual for move, usual in zip(moves, FITTED.values())]


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


def fitted(program, rows, sources, models):
    """Gauss and Newton's least squares."""
    moves = [0.0] * len(FITTED)
    for _ in range(STEPS_TO_FIT):
        here = errors_at(program, rows, sources, models, moves)[1]
        slopes = []
        for i in range(len(moves)):
            there = errors_at(program, rows, sources, models, [m + (MOVE if i == j else 0) for j, m in enumerate(moves)])[1]
            slopes.append([(a - b) / MOVE for a, b in zip(there, here)])
        square = [[sum(a * b for a, b in zip(s, t)) for t in slopes] for s in slopes]
        change = solved(square, [-sum(a * b for a, b in zip(s, here)) for s in slopes])
        moves = [m + max(-0.2, min(0.2, c)) for m, c in zip(moves, change)]
    return moves


def refit(program, rows, sources, models):
    print(f"{'left out':20} {'rows':>4} {'median':>8} {'bias':>8}  factors fitted to the others")
    for name in [None, *dict.fromkeys(row["source"] for row in rows)]:
        moves = fitted(program, [row for row in rows if row["source"] != name], sources, models)
        own = [row for row in rows if name in (None, row["source"])]
        errors = [math.exp(one) - 1 for one in errors_at(program, own, sources, models, moves)[0]]
        print(f"{name or 'nothing':20} {len(own):4} {percent(median(errors))} {percent(statistics.mean(errors))}  "
              + ", ".join(f"{key} {value:.3g}" for key, value in factors_at(program, moves).items()), flush=True)


# --- the page ---

BEGIN, END = "<!-- printed by score.py -->\n", "<!-- end -->"


def write_page(text, said):
    readme = HERE / "README.md"
    before, rest = readme.read_text().split(BEGIN, 1)
    indented = "".join(f"    {line}\n" if line else "\n" for line in text.rstrip().splitlines())
    readme.write_text(f"{before}{BEGIN}\n{indented}\n{END}{rest.split(END, 1)[1]}")
    draw(said, HERE / "score.svg")


def draw(said, file):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "bucketwise", "axes.axisbelow": True})
    names = list(dict.fromkeys(one["source"] for one in said))
    figure, axes = plt.subplots(figsize=(8.4, 0.3 * len(names) + 1.2))
    axes.axvspan(-5, 5, color="#e8f2f8", linewidth=0)
    axes.axvline(0, color="#666666", linewidth=0.8)
    for key, colour, marker, what in (("predicted_ms", "#0072B2", "o", "from names alone, or as ddp/README.md says"),
                                      ("from_one_row_ms", "#D55E00", "^", "from one measured row")):
        own = [one for one in said if key in one]
        axes.scatter([100 * error(one, key) for one in own],
                     [names.index(one["source"]) + (0.15 if key == "from_one_row_ms" else -0.15) for one in own], s=14,
                     color=colour, marker=marker, alpha=0.5, linewidths=0, label=what)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#e4e4e4")
    axes.set_xlabel("predicted over measured step, % (shaded: within 5 %)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", frameon=False)
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})


def main():
    parser = tables.parser_of(__doc__, stores=True)
    for flag in ("--details", "--refit", "--page"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--source", action="append")
    options = parser.parse_args()
    sources = json.loads((HERE / "sources.json").read_text())
    models = json.loads((HERE / "models.json").read_text())
    if unknown := sorted(set(options.source or ()) - set(sources)):
        parser.error(f"--source: expected one of {', '.join(sources)}, got {unknown[0]}")
    if options.source and (options.expect or options.write or options.page):
        parser.error("--expect, --write and --page are of all sources")
    rows = [row for row in tables.rows_of(HERE / "rows.csv") if not options.source or row["source"] in options.source]
    program = Program(options.program)
    if options.refit:
        refit(program, rows, sources, models)
        return
    with ThreadPoolExecutor(1) as pool:
        aside = None if options.source else pool.submit(ddp.judge_all, ddp.Program(options.program), show=lambda text: None)
        said = predicted(program, rows, sources, models)
        if options.details:
            print_details(rows, said)
        if aside:
            in_ddp, advices = aside.result()
            said += [{"source": one["set"], "is_step": True, **one} for one in in_ddp] + collectives(program)
    printed = table_of(said)
    print(printed)
    if options.page:
        write_page(printed, said)
    if options.expect:
        ddp.check_advice(advices)
    tables.store([{key: one[key] for key in ("source", "predicted_ms", "low_ms", "high_ms", "from_one_row_ms") if key in one}
                  for one in said], options)


if __name__ == "__main__":
    tables.run(main)
