#!/usr/bin/env python3
"""Draws what `bucketwise validate` found: step time by setting, accuracy, one step, the link, the error's causes.

usage: plot.py FOLDER

Reads comparison.json and fit.json in FOLDER and writes step_time, accuracy, timeline, link_fit and
error_causes there, each as .svg and .png. Needs matplotlib.
"""

import io
import json
import math
import os
import re
import secrets
import signal
import stat
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
DARK_PURPLE = "#9A4476"  # for text, which needs more contrast

plt.rcParams.update({
    "figure.figsize": (7.2, 4.4), "figure.dpi": 120, "font.size": 11, "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True,
    "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "bucketwise", "savefig.bbox": "tight",
    "axes.titlesize": 11, "axes.titlelocation": "left",
    # The SVG names fonts of the reader's machine.
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"]})


def caption(figure, comparison):
    """The machine, below everything else."""
    figure.canvas.draw()
    lowest_inch = figure.get_tightbbox(figure.canvas.get_renderer()).y0
    figure.text(0.01, lowest_inch / figure.get_figheight() - 0.03, plain(comparison["machine"], 110), fontsize=7.5,
                color="#666666", ha="left", va="top")


def shortened(text, most):
    return text if len(text) <= most else text[:most - 1] + "…"


def one_line(text, most):
    """Returns a name without control characters or text-direction marks."""
    return shortened("".join(c if c.isprintable() else " " for c in str(text)), most)


def plain(text, most=60):
    """The same in a picture: between two dollars matplotlib would take it for a formula."""
    return one_line(text, most).replace("$", r"\$")


def read_text(path):
    """Editors of Windows put a byte-order mark before UTF-8."""
    return path.read_text(encoding="utf-8-sig")


def cap_text(mib):
    """Three digits, as reports have it."""
    return f"{mib:.3g}" if mib < 1000 else f"{mib:.0f}"


def cap_axis(axes, caps, moved=None):
    """`moved`: caps that are drawn elsewhere than where they belong, and where."""
    moved = moved or {}
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bucket cap, MiB (logarithmic" + ("; the last is one bucket for all)" if moved else ")"))
    high = min([max(caps) * 1.1, *(0.75 * place for place in moved.values())])
    ticks = {2.0 ** i: f"{2.0 ** i:g}" for i in range(-12, 13) if min(caps) * 0.9 <= 2.0 ** i <= high}
    ticks.update({place: cap_text(cap) for cap, place in moved.items()})
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.xaxis.set_minor_locator(NullLocator())


def legend_once(axes, **where):
    """Each name once, however often it was drawn."""
    handles, labels = axes.get_legend_handles_labels()
    by_label = dict(zip(labels, handles))
    axes.legend(by_label.values(), by_label.keys(), fontsize=9, **where)


def legend_below(axes, below=0.15, columns=3):
    """Where it covers no data."""
    legend_once(axes, ncols=columns, loc="upper left", bbox_to_anchor=(-0.02, -below), columnspacing=1.2,
                handlelength=1.4)


def drawn_caps(points):
    """A cap of one bucket for all may be far beyond: it is drawn one step behind the last other one."""
    finite = sorted(p["bucket_cap_mib"] for p in points)
    if len(finite) > 2 and finite[-1] > 8 * finite[-2]:
        return {finite[-1]: finite[-2] * 2}
    return {}


def places_of(points):
    """Where each point is drawn, by its index. A default beside a named cap of its size stands next to it."""
    moved = drawn_caps(points)
    named = {p["bucket_cap_mib"] for p in points if not p["is_default"]}
    beside = 1.09
    return [moved.get(p["bucket_cap_mib"], p["bucket_cap_mib"]) *
            (beside if p["is_default"] and p["bucket_cap_mib"] in named else 1) for p in points], moved


def is_sharded(comparison):
    """Points are settings of sharding, with names instead of caps."""
    return "sharded" in comparison


def advised_index(comparison):
    """Returns the index of the advised setting, or nothing without a decision."""
    if comparison["verdict"]["decision"] is None:
        return None
    key, best = ("sharding", "predicted_best") if is_sharded(comparison) else ("bucket_cap_mib", "predicted_best_mib")
    wanted = comparison[best], comparison["predicted_best_is_default"]
    return next((i for i, p in enumerate(comparison["points"]) if (p[key], p["is_default"]) == wanted), None)


def default_index(comparison):
    return next((i for i, p in enumerate(comparison["points"]) if p["is_default"]), None)


def mark_settings(axes, comparison, places):
    """The advised setting and the default, each with its name above the data; returns how many lines names take."""
    advised, default = advised_index(comparison), default_index(comparison)
    own = "yours" if is_sharded(comparison) else "default"
    marks = []
    if advised is not None:
        marks.append((advised, f"{own} and advised" if advised == default else "advised", BLUE))
    if default is not None and default != advised:
        marks.append((default, own, DARK_PURPLE))
    where = places if is_sharded(comparison) else [math.log(place) for place in places]
    low, high = min(where), max(where)
    along = [(where[i] - low) / (high - low) if high > low else 0.5 for i, _, _ in marks]
    stacked = len(marks) == 2 and abs(along[0] - along[1]) < 0.6
    for line, ((i, name, color), at) in enumerate(zip(marks, along)):
        side = "left" if at < 0.3 else "right" if at > 0.7 else "center"  # names near an end lean inwards
        axes.axvline(places[i], color=color, linewidth=1, linestyle=(0, (4, 3)), zorder=0.9)
        setting = "" if is_sharded(comparison) else f": {cap_text(comparison['points'][i]['bucket_cap_mib'])} MiB"
        axes.annotate(name + setting, (places[i], 1), xycoords=axes.get_xaxis_transform(),
                      xytext=(0, 4 + 14 * line * stacked), textcoords="offset points", ha=side, va="bottom", color=color, fontsize=9.5, fontweight="bold")
    return 2 if stacked else len(marks[:1])


def draw_predicted(axes, points, xs, color, label):
    """With the band that 95 % of predicted steps are in."""
    order = sorted(range(len(xs)), key=lambda i: xs[i])
    ordered = [points[i] for i in order]
    if all("predicted_interval_ms" in p for p in ordered):
        axes.fill_between([xs[i] for i in order], [p["predicted_interval_ms"][0] for p in ordered],
                          [p["predicted_interval_ms"][1] for p in ordered], color=color, alpha=0.15, linewidth=0,
                          label="95 % of predicted steps")
    axes.plot([xs[i] for i in order], [p["predicted_step_ms"] for p in ordered], color=color, marker=".", label=label)


def draw_predicted_alone(axes, point, x, color, label, band=None):
    """A point that no line leads to; `band` names its interval."""
    if "predicted_interval_ms" in point:
        low, high = point["predicted_interval_ms"]
        axes.plot([x, x], [low, high], color=color, alpha=0.22, linewidth=8, solid_capstyle="butt", label=band)
    axes.plot([x], [point["predicted_step_ms"]], color=color, marker="_", markersize=14, markeredgewidth=2,
              linestyle="none", label=label)


def setting_axis(axes, comparison):
    """A place for each setting, and its name."""
    points = comparison["points"]
    axes.set_xticks(range(len(points)), [setting_label(comparison, p) for p in points], rotation=45, ha="right",
                    rotation_mode="anchor", fontsize=9)
    axes.set_xlim(-0.6, len(points) - 0.4)
    axes.grid(axis="x", visible=False)


def draw_step_time(comparison, axes):
    points = comparison["points"]
    sharded = is_sharded(comparison)
    places, moved = (list(range(len(points))), None) if sharded else places_of(points)
    advised, default = advised_index(comparison), default_index(comparison)
    plotted = [i for i in range(len(points)) if i != default]
    if sharded:
        for i in plotted:
            draw_predicted_alone(axes, points[i], places[i], BLUE, "predicted", "95 % of predicted steps")
    elif plotted:
        draw_predicted(axes, [points[i] for i in plotted], [places[i] for i in plotted], BLUE, "predicted")
    own, setting = ("yours", "setting") if sharded else ("default", "cap")
    if default is not None:
        draw_predicted_alone(axes, points[default], places[default], PURPLE, f"predicted, {own}")
    for chosen, color, marker, size, label in (
            ([i for i in plotted if i != advised], VERMILION, "o", 5, "measured median, 95 % interval"),
            ([] if advised == default else [advised], "black", "D", 7, f"measured, advised {setting}"),
            ([] if default is None else [default], PURPLE, "s", 7, f"measured, {own}")):
        shown = [i for i in chosen if i is not None]
        if shown:
            draw_measured(axes, [points[i] for i in shown], [places[i] for i in shown], color, marker, label, size)
    lines = mark_settings(axes, comparison, places)
    axes.margins(y=0.1)
    if sharded:
        setting_axis(axes, comparison)
    else:
        cap_axis(axes, places, moved)
    axes.set_ylabel("step time, ms")
    axes.set_title(f"{plain(comparison['scenario'])}\n{plain(comparison['strategy'])} on {ranks_text(comparison)}",
                   pad=8 + 14 * lines)
    legend_below(axes, below=names_depth(comparison, 0.15), columns=2)


def names_depth(comparison, of_caps):
    """How far the names of settings reach below the axes, as a share of their height; `of_caps` where these are caps."""
    if not is_sharded(comparison):
        return of_caps
    letters = max(len(line) for p in comparison["points"] for line in setting_label(comparison, p).split("\n"))
    return 0.12 + 0.015 * letters


def ranks_text(comparison):
    return f"{comparison['ranks']} rank{'s' if comparison['ranks'] > 1 else ''}"


def draw_measured(axes, points, xs, color, marker, label, size=5):
    middles = [p["measured_step_ms"] for p in points]
    low = [m - p["measured_interval_ms"][0] for m, p in zip(middles, points)]
    high = [p["measured_interval_ms"][1] - m for m, p in zip(middles, points)]
    axes.errorbar(xs, middles, yerr=[low, high], color=color, marker=marker, linestyle="none", capsize=3,
                  markersize=size, label=label)


def draw_accuracy(comparison, axes):
    """A place for each setting, as most of them take nearly the same time."""
    points = comparison["points"]
    own, setting = ("yours", "setting") if is_sharded(comparison) else ("default", "cap")
    advised, default = advised_index(comparison), default_index(comparison)
    goal = 2
    axes.axhspan(-goal, goal, color=BLUE, alpha=0.13, linewidth=0, label=f"± {goal} %, the goal")
    axes.axhline(0, color=BLUE, linewidth=1)
    for i, p in enumerate(points):
        error = 100 * p["error"]
        low, high = (100 * (p["predicted_step_ms"] / measured - 1) for measured in reversed(p["measured_interval_ms"]))
        color, marker, name = ((PURPLE, "s", own) if i == default else
                               ("black", "D", f"advised {setting}") if i == advised else
                               (VERMILION, "o", f"other {setting}s"))
        axes.errorbar([i], [error], yerr=[[max(error - low, 0)], [max(high - error, 0)]], color=color, marker=marker,
                      markersize=6, capsize=3, linestyle="none", label=name)
    setting_axis(axes, comparison)
    axes.set_xlabel(("setting" if is_sharded(comparison) else "bucket cap, MiB") +
                    " (bars: 95 % interval of the measured median)")
    axes.set_ylabel("predicted off by, %")
    axes.set_title(f"{plain(comparison['scenario'])}\noff by {100 * comparison['mape']:.1f} % on average, "
                   f"rank correlation {comparison['rank_correlation']:.2f}")
    legend_below(axes, below=names_depth(comparison, 0.09) + 0.18, columns=4)


PHASES = {"forward": SKY, "backward": BLUE, "optimizer": GREEN}
COLLECTIVES = {"all-gather": YELLOW, "reduce-scatter": ORANGE, "all-reduce": PURPLE}  # of a step that shards


def draw_timeline(comparison, axes):
    pictures = comparison["pictures"]
    rows = []
    for name in ("predicted", "measured"):
        for track in ("computing", "communicating"):
            rows.append((f"{name}\n{track}", pictures[name][track], pictures[name]))
    for y, (_, spans, picture) in enumerate(rows):
        for span in spans:
            length = span["end_ms"] - span["begin_ms"]
            color = {**PHASES, **COLLECTIVES}.get(span["what"], ORANGE)
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
    handles = [Patch(color=color, label=name) for name, color in PHASES.items()]
    if is_sharded(comparison):
        at = f"\n{plain(pictures['setting'], 120)}"
        sent = {span["what"] for _, spans, _ in rows for span in spans}
        handles += [Patch(color=color, label=name) for name, color in COLLECTIVES.items() if name in sent]
    else:
        cap = pictures["bucket_cap_mib"]
        at = f" at {cap_text(cap)} MiB" if cap else ""
        handles.append(Patch(color=ORANGE, label="all-reduce (by bucket)"))
    handles.append(Patch(facecolor="white", edgecolor=VERMILION, hatch="////", label="exposed"))
    axes.set_title(f"{plain(comparison['scenario'])}: one step{at}")
    axes.legend(handles=handles, fontsize=9, ncols=len(handles), loc="upper center", bbox_to_anchor=(0.45, -0.16),
                columnspacing=1, handlelength=1.2)


def draw_exposed(axes, spans, y):
    """Between the phases of computing, the step waits for communication."""
    spans = sorted(spans, key=lambda span: span["begin_ms"])
    for before, after in zip(spans, spans[1:]):
        gap = after["begin_ms"] - before["end_ms"]
        if gap > 0:
            axes.broken_barh([(before["end_ms"], gap)], (y - 0.36, 0.72), facecolors="white", edgecolor=VERMILION,
                             hatch="////", linewidth=0.5)


def fitted_collectives(fit):
    """The fitted messages by kind of collective, and the segments of the kind's fit."""
    own = [(kind, fit[kind], fit["link"].get(kind, {}).get("segments", [])) for kind in ("all_gather", "reduce_scatter")
           if fit.get(kind)]
    return ([("all_reduce", fit["all_reduce"], fit["link"]["segments"])] if fit["all_reduce"] else []) + own


def draw_link_fit(fit, comparison, axes, residual_axes):
    kinds = fitted_collectives(fit)
    styles = iter(zip((VERMILION, PURPLE, GREEN, ORANGE, SKY, "black"), "osD^vP"))
    for kind, fitted, segments in kinds:
        by_ranks = {}
        for point in fitted:
            by_ranks.setdefault(point["ranks"], []).append(point)
        for (ranks, points), (color, marker) in zip(sorted(by_ranks.items()), styles):
            draw_fit(axes, residual_axes, points, color, marker,
                     f"{'measured medians' if len(kinds) == 1 else kind.replace('_', '-')}, {ranks} ranks")
        for segment in segments[:-1]:
            for each in (axes, residual_axes):
                each.axvline(segment["up_to_bytes"], color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylabel("all-reduce, µs" if kinds[0][0] == "all_reduce" and len(kinds) == 1 else "collective, µs")
    axes.yaxis.set_major_locator(LogLocator(base=10))
    axes.yaxis.set_minor_formatter(NullFormatter())
    segments = sum(len(of_kind) for _, _, of_kind in kinds)
    axes.set_title(f"{plain(fit['link']['name'])}: {plain(fit['link']['algorithm'])}, "
                   f"{segments} segment{'s' if segments > 1 else ''}")
    legend_once(axes)
    residual_axes.axhline(0, color=BLUE, linewidth=1)
    residual_axes.set_ylabel("fitted off by, %")
    residual_axes.set_xlabel("message, bytes (logarithmic)")
    sizes = [p["bytes"] for _, points, _ in kinds for p in points]
    residual_axes.set_xticks([2 ** i for i in range(0, 50, 4) if min(sizes) / 2 <= 2 ** i <= max(sizes) * 2])
    residual_axes.xaxis.set_major_formatter(FuncFormatter(bytes_text))
    residual_axes.xaxis.set_minor_locator(NullLocator())


def draw_fit(axes, residual_axes, points, color, marker, label):
    """Messages of one kind on so many ranks, and how far off they are fitted."""
    kept = [p for p in points if not p["dropped"]]
    dropped = [p for p in points if p["dropped"]]
    axes.plot([p["bytes"] for p in points], [p["fitted_us"] for p in points], color=BLUE, linewidth=1.2, label="fitted")
    axes.plot([p["bytes"] for p in kept], [p["median_us"] for p in kept], color=color, marker=marker, linestyle="none",
              markersize=5, label=label)
    residual_axes.errorbar([p["bytes"] for p in kept], [100 * p["relative_residual"] for p in kept],
                           yerr=[100 * p["standard_error_us"] / p["median_us"] for p in kept], color=color,
                           marker=marker, linestyle="none", markersize=4, capsize=2)
    if dropped:
        axes.plot([p["bytes"] for p in dropped], [p["median_us"] for p in dropped], color=GREY, marker="x",
                  linestyle="none", label="left out")


def bytes_text(value, _=None):
    for unit, size in (("GiB", 2 ** 30), ("MiB", 2 ** 20), ("KiB", 2 ** 10)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} B"


CAUSES = {"computing": GREEN, "drift, copies and launches": SKY, "readiness": BLUE, "{} latency": YELLOW,
          "{} bandwidth": ORANGE, "interference on computing": PURPLE, "interference on {}s": VERMILION,
          "waiting for peers": "#444444", "not explained": "#bbbbbb"}


def setting_label(comparison, point):
    if is_sharded(comparison):
        return re.sub(r"(.{12,}?), ", r"\1,\n", plain(point["setting"], 120))  # in lines of some length
    if point["bucket_cap_mib"] is None:
        return plain(comparison["strategy"])
    return "default" if point["is_default"] else cap_text(point["bucket_cap_mib"])


def draw_error_causes(comparison, axes):
    points = comparison["points"]
    positions = range(len(points))
    up, down = [0.0] * len(points), [0.0] * len(points)
    for cause, color in CAUSES.items():
        name = cause.format("collective" if is_sharded(comparison) else "all-reduce")
        shares = [100 * p["causes_ms"][name] / p["measured_step_ms"] for p in points]
        bottoms = [up[i] if share >= 0 else down[i] for i, share in enumerate(shares)]
        axes.bar(positions, shares, bottom=bottoms, color=color, width=0.72, label=name)
        for i, share in enumerate(shares):
            (up if share >= 0 else down)[i] += share
    in_all = [100 * (p["measured_step_ms"] - p["predicted_step_ms"]) / p["measured_step_ms"] for p in points]
    axes.plot(positions, in_all, color="white", markeredgecolor="black", marker="D", linestyle="none", markersize=6,
              label="in all", zorder=3)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(positions, [setting_label(comparison, p) for p in points], rotation=45, ha="right", fontsize=9)
    axes.set_xlabel("setting" if is_sharded(comparison) else "bucket cap, MiB")
    axes.set_ylabel("measured longer than predicted, % of step")
    axes.grid(axis="x", visible=False)
    axes.set_title(f"{plain(comparison['scenario'])}: where the error comes from")
    axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))


class Pictures:
    """Replaces files in the folder at the end of a `with`, all or none: the old ones stay until then, and for good if
    anything fails or a signal ends Python."""

    def __init__(self, folder):
        self.folder = folder
        self.drawn = {}   # bytes by name
        self.staged = {}  # files by the place that they take

    def save(self, figure, comparison, name):
        caption(figure, comparison)
        for ending in ("svg", "png"):
            picture = io.BytesIO()
            figure.savefig(picture, format=ending, metadata={"Date": None} if ending == "svg" else None)
            self.drawn[f"{name}.{ending}"] = picture.getvalue()
        plt.close(figure)

    def stage(self, name):
        place = (self.folder / name).resolve()  # a symbolic link stays one
        file = place.with_name(f"{place.name}.{secrets.token_hex(4)}")
        self.staged[place] = file
        with file.open("xb") as staged:
            staged.write(self.drawn[name])
            staged.flush()
            os.fsync(staged.fileno())
        if place.exists():
            file.chmod(stat.S_IMODE(place.stat().st_mode))

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what is staged goes
        return self

    def __exit__(self, failure, *_):
        try:
            if failure is None:
                for name in self.drawn:
                    self.stage(name)
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})  # all or none
                for place, file in self.staged.items():
                    file.replace(place)
        except OSError as error:
            sys.exit(f"{error.filename or self.folder}: cannot write: {error.strerror}")
        finally:
            for file in self.staged.values():
                file.unlink(missing_ok=True)


def draw_file(draw, machine_of):
    """The script that draws one picture: SCRIPT RESULT.json PICTURE."""
    if len(sys.argv) != 3:
        sys.exit(f"usage: {Path(sys.argv[0]).name} RESULT.json PICTURE")
    document, picture = json.loads(read_text(Path(sys.argv[1]))), Path(sys.argv[2])
    with Pictures(picture.parent) as pictures:
        pictures.save(draw(document), {"machine": machine_of(document)}, picture.name)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot.py FOLDER")
    folder = Path(sys.argv[1])
    comparison = json.loads(read_text(folder / "comparison.json"))
    fit = json.loads(read_text(folder / "fit.json"))
    has_settings = is_sharded(comparison) or all(p["bucket_cap_mib"] is not None for p in comparison["points"])
    with Pictures(folder) as pictures:
        if has_settings:
            figure, axes = plt.subplots(figsize=(6.4, 4.2))  # small, so that its text is legible on a phone
            draw_step_time(comparison, axes)
            pictures.save(figure, comparison, "step_time")
        figure, axes = plt.subplots(figsize=(7.2, 3.6))
        draw_accuracy(comparison, axes)
        pictures.save(figure, comparison, "accuracy")
        figure, axes = plt.subplots(figsize=(7.6, 3.6))
        draw_timeline(comparison, axes)
        pictures.save(figure, comparison, "timeline")
        figure, (axes, residual_axes) = plt.subplots(2, 1, sharex=True, figsize=(7.2, 5.2), height_ratios=[2.2, 1])
        draw_link_fit(fit, comparison, axes, residual_axes)
        pictures.save(figure, comparison, "link_fit")
        figure, axes = plt.subplots()
        draw_error_causes(comparison, axes)
        pictures.save(figure, comparison, "error_causes")
    if not has_settings:  # one of an earlier run would tell of another
        for ending in ("svg", "png"):
            (folder / f"step_time.{ending}").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
