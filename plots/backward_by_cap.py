#!/usr/bin/env python3
"""Draws what tests/pytorch/compare_with_ddp.py found: backward over bucket cap, predicted and measured.

usage: backward_by_cap.py COMPARISON.json PICTURE

Reads COMPARISON.json and writes PICTURE.svg and PICTURE.png. Lines are predicted, dots are measured medians with their
95 % intervals; left with copied buckets, right with views. Needs matplotlib.
"""

import plot  # palette, style and how a picture is saved

import matplotlib.pyplot as plt


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
    axes.set_title(
        f"{'gradient_as_bucket_view' if case['views'] else 'copied buckets'}, MAPE {100 * case['mape']:.1f} %")


def draw(comparison):
    figure, panels = plt.subplots(1, 2, sharey=True, figsize=(9.2, 3.8))
    for axes, case, colour in zip(panels, comparison["cases"], (plot.BLUE, plot.VERMILION)):
        draw_case(axes, case, colour)
        axes.legend()
    panels[0].set_ylabel("backward, ms")
    return figure


if __name__ == "__main__":
    plot.draw_file(draw, lambda comparison: comparison["machine"])
