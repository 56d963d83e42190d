#!/usr/bin/env python3
"""Draws what `bucketwise bench allreduce --format json` printed: time by number of ranks, a panel per message.

usage: all_reduce.py RESULT.json PICTURE

Reads RESULT.json and writes PICTURE.svg and PICTURE.png. Lines are simulated, dots are measured medians with their
range, open diamonds are published. Needs matplotlib.
"""

import sys

import plot  # palette, style and how a picture is saved

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter, NullLocator

COLOURS = {"library": plot.GREY, "ring": plot.BLUE, "direct": plot.VERMILION,
           "recursive_halving_doubling": plot.GREEN, "double_binary_tree": plot.PURPLE}
MOST_PANELS = 4


def panels_of(rows):
    """Title and rows of each panel: a message each, at most MOST_PANELS of them, evenly chosen; all of them in one
    where none was summed on two numbers of ranks."""
    sizes = sorted({row["bytes"] for row in rows})
    if len({(row["bytes"], row["world_size"]) for row in rows}) == len(sizes) > 1:
        return [(f"{plot.bytes_text(sizes[0])} to {plot.bytes_text(sizes[-1])}", rows)]
    if len(sizes) > MOST_PANELS:
        sizes = [sizes[round(i * (len(sizes) - 1) / (MOST_PANELS - 1))] for i in range(MOST_PANELS)]
    return [(plot.bytes_text(size), [row for row in rows if row["bytes"] == size]) for size in sizes]


def of_key(rows, key):
    return sorted((row for row in rows if key in row), key=lambda row: row["world_size"])


def draw_algorithm(axes, rows, colour):
    simulated = of_key(rows, "simulated_time_s")
    axes.plot([r["world_size"] for r in simulated], [1e3 * r["simulated_time_s"] for r in simulated], color=colour,
              marker=".", markersize=3)
    measured = of_key(rows, "time_s")
    medians = [1e3 * r["time_s"] for r in measured]
    # Rounding may put a median of few samples outside of its range.
    spread = [[max(m - 1e3 * r["min_s"], 0) for m, r in zip(medians, measured)],
              [max(1e3 * r["max_s"] - m, 0) for m, r in zip(medians, measured)]]
    axes.errorbar([r["world_size"] for r in measured], medians, yerr=spread, color=colour, linestyle="none",
                  marker="o", markersize=4, elinewidth=0.8, alpha=0.85)
    published = of_key(rows, "published_time_s")
    axes.plot([r["world_size"] for r in published], [1e3 * r["published_time_s"] for r in published], color=colour,
              linestyle="none", marker="D", markersize=5, markerfacecolor="none")


def rank_axis(axes, rows):
    ranks = sorted({row["world_size"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    powers = [2 ** i for i in range(21) if ranks[0] <= 2 ** i <= ranks[-1]]
    axes.set_xticks(powers[::-(-len(powers) // 5)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
    axes.set_xlabel("ranks")


def legend_of(axes, algorithms, rows):
    handles = [Line2D([], [], color=COLOURS[a], label=a.replace("_", " ")) for a in algorithms]
    kinds = (("simulated_time_s", {"linestyle": "-"}, "simulated"),
             ("time_s", {"linestyle": "none", "marker": "o", "markersize": 4}, "measured, median and range"),
             ("published_time_s", {"linestyle": "none", "marker": "D", "markerfacecolor": "none"}, "published"))
    handles += [Line2D([], [], color="#444444", label=label, **style) for key, style, label in kinds
                if of_key(rows, key)]
    axes.legend(handles=handles, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.02, 1.0))


def draw(document):
    rows = [row for row in document["rows"] if row["algorithm"] in COLOURS]
    if not rows:
        sys.exit("all_reduce.py: the result has no rows")
    drawn = panels_of(rows)
    algorithms = [a for a in COLOURS if any(row["algorithm"] == a for row in rows)]
    figure, panels = plt.subplots(1, len(drawn), sharey=True, squeeze=False, figsize=(2.4 + 2.6 * len(drawn), 3.8))
    for axes, (title, shown) in zip(panels[0], drawn):
        for algorithm in algorithms:
            draw_algorithm(axes, [row for row in shown if row["algorithm"] == algorithm], COLOURS[algorithm])
        rank_axis(axes, shown)
        axes.set_title(plot.plain(title))
    panels[0][0].set_ylabel("all-reduce, ms (logarithmic)")
    legend_of(panels[0][-1], algorithms, rows)
    return figure


def machine_of(document):
    return "; ".join(filter(None, [document.get("hardware"), document.get("libraries"), *document.get("links", [])]))


if __name__ == "__main__":
    plot.draw_file(draw, machine_of)
