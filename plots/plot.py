#!/usr/bin/env python3
"""Draws what `bucketwise validate` found: step time by cap, accuracy, one step, the link, the error's causes.

usage: plot.py FOLDER

Reads comparison.json and fit.json in FOLDER and writes step_time, accuracy, timeline, link_fit and
error_causes there, each as .svg and .png. Needs matplotlib.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator  # noqa: E402

# Okabe and Ito's palette: told apart with any colour vision, and by lightness in print.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#999999")

plt.rcParams.update({
    "figure.figsize": (7.2, 4.4), "figure.dpi": 120, "font.size": 11, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True,
    "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "bucketwise", "savefig.bbox": "tight",
    "axes.titlesize": 11, "axes.titlelocation": "left",
    # What stands in the SVG is asked of the reader's machine.
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"]})


def caption(figure, comparison):
    """The machine, below everything else."""
    figure.canvas.draw()
    lowest_inch = figure.get_tightbbox(figure.canvas.get_renderer()).y0
    figure.text(0.01, lowest_inch / figure.get_figheight() - 0.03, shortened(comparison["machine"], 110), fontsize=7.5,
                color="#666666", ha="left", va="top")


def shortened(text, most):
    return text if len(text) <= most else text[:most - 1] + "…"


def mib_text(value, _=None):
    return f"{value:g}"


def cap_axis(axes, caps):
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bucket cap, MiB (logarithmic)")
    ticks = [2.0 ** i for i in range(-12, 13) if min(caps) * 0.9 <= 2.0 ** i <= max(caps) * 1.1]
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(FuncFormatter(mib_text))
    axes.xaxis.set_minor_locator(NullLocator())


def drawn_caps(points):
    """A cap of one bucket for all may be far beyond: it is drawn one step behind the last other one."""
    finite = sorted(p["bucket_cap_mib"] for p in points)
    if len(finite) > 2 and finite[-1] > 8 * finite[-2]:
        return {finite[-1]: finite[-2] * 2}
    return {}


def draw_step_time(comparison, axes):
    named = [p for p in comparison["points"] if not p["is_default"]]
    default = [p for p in comparison["points"] if p["is_default"]]
    moved = drawn_caps(comparison["points"])

    def x_of(p):
        return moved.get(p["bucket_cap_mib"], p["bucket_cap_mib"])

    xs = [x_of(p) for p in named]
    if all("predicted_interval_ms" in p for p in named):
        axes.fill_between(xs, [p["predicted_interval_ms"][0] for p in named],
                          [p["predicted_interval_ms"][1] for p in named], color=BLUE, alpha=0.13, linewidth=0,
                          label="95 % of predicted steps")
    axes.plot(xs, [p["predicted_step_ms"] for p in named], color=BLUE, marker=".", label="predicted")
    draw_measured(axes, named, xs, VERMILION, "o", "measured median, 95 % interval")
    if default:
        draw_measured(axes, default, [x_of(p) for p in default], PURPLE, "s", "measured, default cap")
        axes.plot([x_of(p) for p in default], [p["predicted_step_ms"] for p in default], color=PURPLE, marker="_",
                  markersize=14, linestyle="none", label="predicted, default cap")
    best = min(comparison["points"], key=lambda p: p["predicted_step_ms"])
    axes.margins(y=0.16)
    axes.annotate("predicted best", (x_of(best), best["predicted_step_ms"]), xytext=(x_of(best), 0.03),
                  textcoords=("data", "axes fraction"), ha="center", color=BLUE, fontsize=9,
                  arrowprops={"arrowstyle": "->", "color": BLUE})
    cap_axis(axes, xs)
    if moved:
        (far, near), = moved.items()
        axes.set_xlabel(f"bucket cap, MiB (logarithmic; the last point is one bucket for all, {far:g} MiB)")
    axes.set_ylabel("step time, ms")
    axes.set_title(f"{comparison['scenario']}\n{comparison['strategy']}, {comparison['ranks']} ranks: "
                   f"mean error {100 * comparison['mape']:.1f} %, regret {100 * comparison['regret']:.1f} %, "
                   f"noise {100 * comparison['noise_floor']:.1f} %")
    axes.legend(fontsize=9)


def draw_measured(axes, points, xs, color, marker, label):
    middles = [p["measured_step_ms"] for p in points]
    low = [m - p["measured_interval_ms"][0] for m, p in zip(middles, points)]
    high = [p["measured_interval_ms"][1] - m for m, p in zip(middles, points)]
    axes.errorbar(xs, middles, yerr=[low, high], color=color, marker=marker, linestyle="none", capsize=3,
                  markersize=5, label=label)


def draw_accuracy(comparison, axes):
    points = comparison["points"]
    predicted = [p["predicted_step_ms"] for p in points]
    draw = [p["measured_step_ms"] for p in points]
    low = [m - p["measured_interval_ms"][0] for m, p in zip(draw, points)]
    high = [p["measured_interval_ms"][1] - m for m, p in zip(draw, points)]
    axes.errorbar(predicted, draw, yerr=[low, high], color=VERMILION, marker="o", linestyle="none", capsize=3,
                  markersize=5, label="caps, 95 % interval")
    ends = [min(predicted + draw) * 0.97, max(predicted + draw) * 1.03]
    axes.plot(ends, ends, color=BLUE, linewidth=1, label="predicted = measured")
    axes.fill_between(ends, [0.98 * e for e in ends], [1.02 * e for e in ends], color=BLUE, alpha=0.13, linewidth=0,
                      label="± 2 %")
    axes.set_xlim(ends)
    axes.set_ylim(ends)
    axes.set_aspect("equal")
    axes.set_xlabel("predicted step, ms")
    axes.set_ylabel("measured step, ms")
    axes.set_title(f"{comparison['scenario']}\nrank correlation {comparison['rank_correlation']:.2f}")
    axes.legend(fontsize=9, loc="upper left")


PHASES = {"forward": SKY, "backward": BLUE, "optimizer": GREEN}


def draw_timeline(comparison, axes):
    pictures = comparison["pictures"]
    rows = []
    for name in ("predicted", "measured"):
        for track in ("computing", "communicating"):
            rows.append((f"{name}\n{track}", pictures[name][track], pictures[name]))
    for y, (_, spans, picture) in enumerate(rows):
        for span in spans:
            length = span["end_ms"] - span["begin_ms"]
            color = PHASES.get(span["what"], ORANGE)
            axes.broken_barh([(span["begin_ms"], length)], (y - 0.36, 0.72), facecolors=color, edgecolor="white",
                             linewidth=0.5)
            if span["what"].startswith("bucket") and length > 0.035 * picture["step_ms"]:
                axes.text(span["begin_ms"] + length / 2, y, span["what"].split()[1], ha="center", va="center",
                          fontsize=8)
        axes.plot([picture["step_ms"]] * 2, [y - 0.45, y + 0.45], color="black", linewidth=1.2)
        if y % 2 == 0:
            draw_exposed(axes, spans, y)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.invert_yaxis()
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.02 * max(pictures[name]["step_ms"] for name in ("predicted", "measured")))
    axes.set_xlabel("time in the step, ms (measured: medians of rank 0)")
    axes.grid(axis="y", visible=False)
    cap = pictures["bucket_cap_mib"]
    axes.set_title(f"{comparison['scenario']}: one step" + (f" at {cap:g} MiB" if cap else ""))
    handles = [Patch(color=color, label=name) for name, color in PHASES.items()]
    handles += [Patch(color=ORANGE, label="all-reduce (by bucket)"),
                Patch(facecolor="white", edgecolor=VERMILION, hatch="////", label="exposed")]
    axes.legend(handles=handles, fontsize=9, ncols=5, loc="upper center", bbox_to_anchor=(0.45, -0.16),
                columnspacing=1, handlelength=1.2)


def draw_exposed(axes, spans, y):
    """Between the phases of computing, the step waits for communication."""
    spans = sorted(spans, key=lambda span: span["begin_ms"])
    for before, after in zip(spans, spans[1:]):
        gap = after["begin_ms"] - before["end_ms"]
        if gap > 0:
            axes.broken_barh([(before["end_ms"], gap)], (y - 0.36, 0.72), facecolors="white", edgecolor=VERMILION,
                             hatch="////", linewidth=0.5)


def draw_link_fit(fit, comparison, axes, residual_axes):
    by_ranks = {}
    for point in fit["all_reduce"]:
        by_ranks.setdefault(point["ranks"], []).append(point)
    for (ranks, points), color, marker in zip(sorted(by_ranks.items()), (VERMILION, PURPLE, GREEN, ORANGE), "osD^"):
        kept = [p for p in points if not p["dropped"]]
        dropped = [p for p in points if p["dropped"]]
        axes.plot([p["bytes"] for p in points], [p["fitted_us"] for p in points], color=BLUE, linewidth=1.2,
                  label="fitted" if ranks == min(by_ranks) else None)
        axes.plot([p["bytes"] for p in kept], [p["median_us"] for p in kept], color=color, marker=marker,
                  linestyle="none", markersize=5, label=f"measured medians, {ranks} ranks")
        residual_axes.errorbar([p["bytes"] for p in kept], [100 * p["relative_residual"] for p in kept],
                               yerr=[100 * p["standard_error_us"] / p["median_us"] for p in kept], color=color,
                               marker=marker, linestyle="none", markersize=4, capsize=2)
        if dropped:
            axes.plot([p["bytes"] for p in dropped], [p["median_us"] for p in dropped], color=GREY, marker="x",
                      linestyle="none", label="left out")
    for segment in fit["link"]["segments"][:-1]:
        for each in (axes, residual_axes):
            each.axvline(segment["up_to_bytes"], color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylabel("all-reduce, µs")
    axes.yaxis.set_major_locator(LogLocator(base=10))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(f"{fit['link']['name']}: {fit['link']['algorithm']}, "
                   f"{len(fit['link']['segments'])} segment{'s' if len(fit['link']['segments']) > 1 else ''}")
    axes.legend(fontsize=9)
    residual_axes.axhline(0, color=BLUE, linewidth=1)
    residual_axes.set_ylabel("fitted off by, %")
    residual_axes.set_xlabel("message, bytes (logarithmic)")
    sizes = [p["bytes"] for p in fit["all_reduce"]]
    residual_axes.set_xticks([2 ** i for i in range(0, 50, 4) if min(sizes) / 2 <= 2 ** i <= max(sizes) * 2])
    residual_axes.xaxis.set_major_formatter(FuncFormatter(bytes_text))
    residual_axes.xaxis.set_minor_locator(NullLocator())


def bytes_text(value, _=None):
    for unit, size in (("GiB", 2 ** 30), ("MiB", 2 ** 20), ("KiB", 2 ** 10)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"


CAUSES = {"computing": GREEN, "drift, copies and launches": SKY, "readiness": BLUE, "all-reduce latency": YELLOW,
          "all-reduce bandwidth": ORANGE, "interference on computing": PURPLE, "interference on all-reduces": VERMILION,
          "waiting for peers": "#444444", "not explained": "#bbbbbb"}


def cap_label(comparison, point):
    if point["bucket_cap_mib"] is None:
        return comparison["strategy"]
    return "default" if point["is_default"] else f"{point['bucket_cap_mib']:g}"


def draw_error_causes(comparison, axes):
    points = comparison["points"]
    positions = range(len(points))
    up, down = [0.0] * len(points), [0.0] * len(points)
    for name, color in CAUSES.items():
        shares = [100 * p["causes_ms"][name] / p["measured_step_ms"] for p in points]
        bottoms = [up[i] if share >= 0 else down[i] for i, share in enumerate(shares)]
        axes.bar(positions, shares, bottom=bottoms, color=color, width=0.72, label=name)
        for i, share in enumerate(shares):
            (up if share >= 0 else down)[i] += share
    in_all = [100 * (p["measured_step_ms"] - p["predicted_step_ms"]) / p["measured_step_ms"] for p in points]
    axes.plot(positions, in_all, color="white", markeredgecolor="black", marker="D", linestyle="none", markersize=6,
              label="in all", zorder=3)
    axes.axhline(0, color="black", linewidth=0.8)
    labels = [cap_label(comparison, p) for p in points]
    axes.set_xticks(positions, labels, rotation=45, ha="right", fontsize=9)
    axes.set_xlabel("bucket cap, MiB")
    axes.set_ylabel("measured longer than predicted, % of step")
    axes.grid(axis="x", visible=False)
    axes.set_title(f"{comparison['scenario']}: where the error comes from")
    axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def save(figure, comparison, folder, name):
    caption(figure, comparison)
    for ending in ("svg", "png"):
        figure.savefig(folder / f"{name}.{ending}", metadata={"Date": None} if ending == "svg" else None)
    plt.close(figure)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot.py FOLDER")
    folder = Path(sys.argv[1])
    comparison = json.loads((folder / "comparison.json").read_text())
    fit = json.loads((folder / "fit.json").read_text())
    if all(p["bucket_cap_mib"] is not None for p in comparison["points"]):
        figure, axes = plt.subplots()
        draw_step_time(comparison, axes)
        save(figure, comparison, folder, "step_time")
    figure, axes = plt.subplots(figsize=(5.4, 5.4))
    draw_accuracy(comparison, axes)
    save(figure, comparison, folder, "accuracy")
    figure, axes = plt.subplots(figsize=(7.6, 3.6))
    draw_timeline(comparison, axes)
    save(figure, comparison, folder, "timeline")
    figure, (axes, residual_axes) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 5.2), height_ratios=[2.2, 1])
    draw_link_fit(fit, comparison, axes, residual_axes)
    save(figure, comparison, folder, "link_fit")
    figure, axes = plt.subplots()
    draw_error_causes(comparison, axes)
    save(figure, comparison, folder, "error_causes")


if __name__ == "__main__":
    main()
