#!/usr/bin/env python3
"""Draws what tests/pytorch/compare_with_ddp.py found: backward over bucket cap, predicted and measured.

usage: backward_by_cap.py COMPARISON.json PICTURE

Reads COMPARISON.json and writes PICTURE.svg and PICTURE.png. Lines are predicted, dots are measured medians with their
95 % intervals: a panel for copied buckets and one for views, or one for each kind of activation checkpointing. Needs
matplotlib.
"""

import plot  # palette, style and how a picture is saved

import matplotlib.pyplot as plt


def title_of(case):
    kind = case.get("kind", "none")
    return "gradient_as_bucket_view" if case["views"] else "copied buckets" if kind == "none" else f"checkpointing: {kind}"


def draw_case(axes, case, colour):
    points = case["points"]
    caps = [p["bucket_cap_mib"] for p in points]
    medians = [p["measured_backward_ms"] for p in points]
    interval = [[m - p["measured_interval_ms"][0] for m, p in zip(medians, points)],
                [p["measured_interval_ms"][1] - m for m, p in zip(medians, points)]]
    axes.plot(caps, [p["predicted_backward_ms"] for p in points], color=colour, label="predicted")
    axes.errorbar(caps, medians, yerr=interval, color="black", linestyle="none", marker="o", markersize=4,
                  elinewidth=0.8, label="measured")
    plot.cap_axis(axes, caps)
    axes.set_title(f"{title_of(case)}, MAPE {100 * case['mape']:.1f} %")


def draw(comparison):
    cases = comparison["cases"]
    figure, panels = plt.subplots(1, len(cases), sharey=True, figsize=(4.6 * len(cases), 3.8))
    for axes, case, colour in zip(panels, cases, (plot.BLUE, plot.VERMILION, plot.GREEN, plot.PURPLE)):
        draw_case(axes, case, colour)
        axes.legend()
    panels[0].set_ylabel("backward, ms")
    return figure


if __name__ == "__main__":
    plot.draw_file(draw, lambda comparison: comparison["machine"])
