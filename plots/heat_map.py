#!/usr/bin/env python3
"""Draws what `bucketwise sweep` wrote as a heat map: two varied keys as axes, a column as colour.

usage: heat_map.py ROWS PICTURE [--x POINTER] [--y POINTER] [--colour COLUMN] [--at POINTER=VALUE ...]
                   [--scenario SCENARIO]

Reads ROWS, JSON lines or CSV, and writes PICTURE.svg and PICTURE.png. Without --x and --y the first two keys that
vary are the axes; keys that vary besides have to be held at a value each with --at. The colour is step_ms unless
another column is asked for. The title names model and link: as the rows vary them, else as SCENARIO, the file that was
swept, has them. Values of an axis are one step apart, however far they lie. Needs matplotlib.
"""

import argparse
import csv
import json
import math
import sys
from pathlib import Path

import plot  # style and how a picture is saved

import matplotlib.pyplot as plt
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, LogLocator

MOST_LABELLED_CELLS = 150
MOST_TICKS = 12
MOST_CHARACTERS = 52  # that fit below the horizontal axis
TITLES = {"step_ms": "step, ms", "forward_ms": "forward, ms", "backward_ms": "backward, ms",
          "exposed_communication_ms": "exposed communication, ms", "bucket_cap_mib": "bucket cap, MiB",
          "buckets": "buckets", "default_step_ms": "step at the default cap, ms", "gain_ms": "gain of the best cap, ms"}


def refuse(expected):
    sys.exit(f"heat_map.py: {plot.one_line(expected, 1000)}")


def number_or_text(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def read_rows(path):
    try:
        text = plot.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{path}: expected a file of rows, got {error}")
    try:
        if text.startswith("{"):
            return [json.loads(line) for line in text.splitlines()]
        rows = list(csv.DictReader(text.splitlines()))
        return [{key: number_or_text(value) for key, value in row.items()} for row in rows]
    except (json.JSONDecodeError, csv.Error, TypeError) as error:
        refuse(f"{path}: expected what bucketwise sweep writes, got {error}")


def held(rows, conditions):
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals or key not in rows[0]:
            refuse(f"--at {condition}: expected POINTER=VALUE of a key that the rows have")
        rows = [row for row in rows if row[key] == number_or_text(value)]
        if not rows:
            refuse(f"--at {condition}: expected a value that a row has")
    return rows


def axes_of(rows, options):
    """The two keys to draw over; every other one has to have one value."""
    varied = [key for key in rows[0] if key.startswith("/") and len({str(row[key]) for row in rows}) > 1]
    chosen = [key for key in (options.x, options.y) if key]
    for key in chosen:
        if key not in rows[0]:
            refuse(f"expected one of the keys {', '.join(k for k in rows[0] if k.startswith('/'))}, got {key}")
    rest = [key for key in varied if key not in chosen]
    x = options.x or (rest.pop(0) if rest else None)
    y = options.y or (rest.pop(0) if rest else None)
    if not x or not y or x == y:
        refuse("expected two keys that vary")
    if rest:
        refuse(f"expected --at POINTER=VALUE for what varies besides: {', '.join(rest)}")
    return x, y


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class Axis:
    """The values of a key, one step apart: rising where all are numbers, else as they come."""

    def __init__(self, rows, key):
        self.key = key
        values = {json.dumps(row[key]): row[key] for row in rows}.values()
        self.is_numeric = all(map(is_number, values))
        self.values = sorted(values) if self.is_numeric else list(values)
        self.index = {json.dumps(value): i for i, value in enumerate(self.values)}

    def place_of(self, row):
        return self.index[json.dumps(row[self.key])]

    def set_up(self, matplotlib_axis):
        stride = max(1, math.ceil(len(self.values) / MOST_TICKS))
        ticks = range(0, len(self.values), stride)
        matplotlib_axis.set_ticks(ticks, [value_text(self.values[i]) for i in ticks])


def value_text(value):
    if not is_number(value):
        return str(value).lower() if isinstance(value, bool) else plot.plain(value, 24)
    return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else f"{value:g}"


def label_of(pointer):
    """The unit is the end of a key's name."""
    parts = pointer.strip("/").split("/")
    units = {"us": "µs", "ms": "ms", "mib": "MiB", "bytes": "bytes"}
    name = parts[-1]
    unit = ""
    if name.endswith("_gb_per_s"):
        name, unit = name[:-len("_gb_per_s")], "GB/s"
    elif name.rpartition("_")[2] in units and "_" in name:
        name, _, key = name.rpartition("_")
        unit = units[key]
    place = " / ".join(parts[:-1])
    return plot.plain(f"{name.replace('_', ' ')}{', ' + unit if unit else ''}  ({place})" if place else name, 80)


def cells_of(rows, x, y, column):
    cells = [[None] * len(x.values) for _ in y.values]
    for row in rows:
        if column not in row:
            refuse(f"expected one of the columns {', '.join(k for k in row if not k.startswith('/'))}, got {column}")
        line, place = cells[y.place_of(row)], x.place_of(row)
        if line[place] is not None:
            refuse(f"expected one row for each {x.key} and {y.key}, got two")
        value = row[column]
        line[place] = float(value) if is_number(value) else math.nan
    return [[math.nan if value is None else value for value in line] for line in cells]


def cell_text(value):
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def label_cells(axes, cells, image):
    for j, line in enumerate(cells):
        for i, value in enumerate(line):
            if not math.isnan(value):
                red, green, blue, _ = image.cmap(image.norm(value))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                axes.text(i, j, cell_text(value), ha="center", va="center", fontsize=7.5,
                          color="white" if dark else "black")


def draw_contours(axes, x, y, cells, finite, norm):
    """Lines of equal value, where both axes have an order."""
    low, high, count = min(finite), max(finite), 8
    if not (x.is_numeric and y.is_numeric) or len(x.values) < 2 or len(y.values) < 2 or low == high:
        return
    shares = [i / count for i in range(1, count)]
    levels = [low * (high / low) ** share if norm else low + (high - low) * share for share in shares]
    axes.clabel(axes.contour(cells, levels=levels, colors="white", linewidths=0.8), fontsize=7.5, fmt=cell_text)


def read_object(path):
    try:
        document = json.loads(plot.read_text(path))
    except (OSError, ValueError) as error:
        refuse(f"{path}: expected a scenario or a link, got {error}")
    if not isinstance(document, dict):
        refuse(f"{path}: expected an object")
    return document


def part_of(document, key):
    """An object within a scenario, or an empty one: what is wrong with a scenario bucketwise itself says."""
    part = document.get(key)
    return part if isinstance(part, dict) else {}


def model_of(scenario):
    model = part_of(scenario, "workload").get("model")
    return part_of(scenario["workload"], "model").get("name") if isinstance(model, dict) else model


def link_of(scenario, folder):
    """A link is given by its file beside the scenario, by a preset's name, or in place."""
    link = part_of(scenario, "cluster").get("link")
    if isinstance(link, str):
        file = folder / link
        return read_object(file).get("name", link) if link.endswith(".json") and file.is_file() else link
    return link.get("name") if isinstance(link, dict) else None


def held_value(rows, key):
    """Returns the value of a key that all rows share. A key that differs is an axis, and has none."""
    values = {json.dumps(row.get(key)): row.get(key) for row in rows}
    return next(iter(values.values())) if len(values) == 1 else None


def title_of(rows, scenario_file):
    scenario = read_object(scenario_file) if scenario_file else {}

    def named(key, in_scenario):
        value = held_value(rows, key) if key in rows[0] else in_scenario
        return plot.plain(value.get("name", "") if isinstance(value, dict) else value, 44) if value else None

    # Where a model has no name, as one given by its gradients, the scenario has.
    model = named("/workload/model", model_of(scenario) or scenario.get("name"))
    link = named("/cluster/link", link_of(scenario, scenario_file.parent) if scenario_file else None)
    return f"{model} on {link}" if model and link else model or (f"link {link}" if link else None)


def draw(rows, x, y, column, title):
    cells = cells_of(rows, x, y, column)
    finite = [value for line in cells for value in line if not math.isnan(value)]
    if not finite:
        refuse(f"expected numbers in the column {column}, got none")
    logarithmic = min(finite) > 0 and max(finite) > 4 * min(finite)
    norm = LogNorm(min(finite), max(finite)) if logarithmic else None
    figure, axes = plt.subplots(figsize=(7.2, 5.2))
    axes.grid(False)
    what = TITLES.get(column, plot.plain(column)) + (" (logarithmic)" if logarithmic else "")
    axes.set_title(title or what)
    image = axes.imshow(cells, cmap="viridis", norm=norm, origin="lower", aspect="auto")
    x.set_up(axes.xaxis)
    y.set_up(axes.yaxis)
    if sum(len(value_text(value)) + 2 for value in x.values[:MOST_TICKS]) > MOST_CHARACTERS:
        plt.setp(axes.get_xticklabels(), rotation=25, ha="right", rotation_mode="anchor")
    if len(x.values) * len(y.values) <= MOST_LABELLED_CELLS:
        label_cells(axes, cells, image)
    else:
        draw_contours(axes, x, y, cells, finite, norm)
    axes.set_xlabel(label_of(x.key), fontsize=10)
    axes.set_ylabel(label_of(y.key), fontsize=10)
    bar = figure.colorbar(image, ax=axes)
    bar.set_label(what)
    bar.outline.set_visible(False)
    if logarithmic:
        # Over a decade and more there is no room for every digit.
        within = (2, 5) if max(finite) > 8 * min(finite) else range(2, 10)
        bar.ax.yaxis.set_minor_locator(LogLocator(subs=tuple(within), numticks=60))
        for set_formatter in (bar.ax.yaxis.set_major_formatter, bar.ax.yaxis.set_minor_formatter):
            set_formatter(FuncFormatter(lambda at, _: value_text(at)))
        bar.ax.tick_params(which="minor", labelsize=8)
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--x", help="key of the horizontal axis")
    parser.add_argument("--y", help="key of the vertical axis")
    parser.add_argument("--colour", default="step_ms", help="column that is drawn as colour")
    parser.add_argument("--at", action="append", default=[], metavar="POINTER=VALUE")
    parser.add_argument("--scenario", type=Path, help="file that was swept, for the names of model and link")
    options = parser.parse_args()
    rows = read_rows(options.rows)
    if not rows:
        refuse(f"{options.rows}: expected rows, got none")
    rows = held(rows, options.at)
    x, y = (Axis(rows, key) for key in axes_of(rows, options))
    figure = draw(rows, x, y, options.colour, title_of(rows, options.scenario))
    simulated = f"simulated: {len(rows)} points of {options.rows.name}" + "".join(f", {c}" for c in options.at)
    with plot.Pictures(options.picture.parent) as pictures:
        pictures.save(figure, {"machine": simulated}, options.picture.name)


if __name__ == "__main__":
    main()
