"""A prediction as HTML for notebooks: its verdict, and a self-contained SVG of the step time over the cap, or over the
memory that settings of sharding need."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from bucketwise._prediction import Plan, Prediction

WIDTH, HEIGHT = 640, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 28, 42
BLUE, GREEN, GREY, INK = "#1f77b4", "#2ca02c", "#8c8c8c", "#333333"


def html_of(prediction: Prediction) -> str:
    title = f"{prediction.scenario}: {prediction.strategy}, {prediction.ranks} ranks, {prediction.link}"
    typed = prediction.settings.get("pytorch_ddp") or prediction.settings.get("PyTorch")
    lines = [f"<p><b>{escape(prediction.verdict.text)}</b></p>", picture_of(prediction), f"<p>{escape(title)}</p>",
             f"<pre>{escape(typed.typed)}</pre>" if typed else ""]
    return f"<div>{''.join(lines)}</div>"


def picture_of(prediction: Prediction) -> str:
    """Returns an SVG; empty where there is one setting, or none."""
    over_memory = bool(prediction.frontier)
    rows = prediction.frontier if over_memory else _told_apart(prediction.sweep)
    if len(rows) < 2:
        return ""
    marked = [*rows, prediction.best, prediction.default]
    steps = [row.step_ms for row in marked]
    lowest, highest = min(steps), max(steps)
    margin = 0.06 * (highest - lowest) or 0.05 * highest
    x = _scale(min(map(_knob, marked)), max(map(_knob, marked)), LEFT, WIDTH - RIGHT)
    y = _scale(lowest - margin, highest + margin, HEIGHT - BOTTOM, TOP)

    def place(row: Plan) -> tuple[float, float]:
        return x(_knob(row)), y(row.step_ms)

    over = "memory" if over_memory else "bucket cap"
    parts = [_plateau(prediction, x), *_axes(over, x, y, lowest, highest),
             *(_memory_ticks(rows, x) if over_memory else _cap_ticks(rows, x)), _line([place(row) for row in rows]),
             _mark(place(prediction.default), GREY, "yours" if over_memory else "default", prediction.default, 0),
             _mark(place(prediction.best), GREEN, "best", prediction.best, 1)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" aria-label="step time over {over}" font-family="sans-serif" font-size="11" fill="{INK}">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>')


def _told_apart(rows: list[Plan]) -> list[Plan]:
    """Returns rows with a cap, and only the last of many small caps with equal steps."""
    capped = [row for row in rows if row.bucket_cap_mib]
    steps = [row.step_ms for row in capped]
    alike = 0.01 * (max(steps) - min(steps)) if steps else 0.0
    others = next((i for i, step in enumerate(steps) if abs(step - steps[0]) > alike), 1)
    return capped[others - 1:]


def _knob(row: Plan) -> float:
    """Where a row stands: the logarithm of its cap, or its memory in GiB."""
    return math.log2(row.bucket_cap_mib or 1.0) if row.memory_bytes is None else row.memory_bytes / 2 ** 30


def _scale(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    span = high - low or 1.0
    return lambda value: round(first + (value - low) / span * (last - first), 1)


def _line(points: list[tuple[float, float]]) -> str:
    """A staircase: the buckets of a cap stay the same up to the next cap that changes them, and a setting fits until a
    faster one does."""
    (x, y), *others = points
    path = f"M{x} {y}" + "".join(f"H{x}V{y}" for x, y in others)
    return f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>'


def _plateau(prediction: Prediction, x: Callable[[float], float]) -> str:
    low, high = prediction.plateau_mib
    if not low or not high:
        return ""
    left = max(x(math.log2(low)), LEFT)
    return (f'<rect x="{left}" y="{TOP}" width="{max(x(math.log2(high)) - left, 1)}" height="{HEIGHT - TOP - BOTTOM}" '
            f'fill="{GREEN}" opacity="0.12"><title>caps as good as the best</title></rect>')


def _mark(at: tuple[float, float], colour: str, called: str, row: Plan, column: int) -> str:
    """A point of the line, and its entry in the key above."""
    knob = (_size(row.memory_bytes / 2 ** 20) if row.memory_bytes is not None else
            "no cap" if row.bucket_cap_mib is None else _size(row.bucket_cap_mib))
    key = WIDTH - RIGHT - 200 * (column + 1)
    return (f'<circle cx="{at[0]}" cy="{at[1]}" r="4" fill="{colour}"/><circle cx="{key}" cy="10" r="4" fill="{colour}"/>'
            f'<text x="{key + 9}" y="14">{called} {knob}, {row.step_ms:.4g} ms</text>')


def _axes(over: str, x: Callable[[float], float], y: Callable[[float], float], lowest: float,
          highest: float) -> list[str]:
    floor, parts = HEIGHT - BOTTOM, []
    for step in (lowest, (lowest + highest) / 2, highest):
        parts += [f'<path d="M{LEFT} {y(step)}H{WIDTH - RIGHT}" stroke="#dddddd"/>',
                  f'<text x="{LEFT - 6}" y="{y(step) + 4}" text-anchor="end">{step:.4g}</text>']
    return [*parts, f'<path d="M{LEFT} {TOP}V{floor}H{WIDTH - RIGHT}" fill="none" stroke="{INK}"/>',
            f'<text x="{LEFT - 46}" y="14">step, ms</text>',
            f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{over}</text>']


def _cap_ticks(rows: list[Plan], x: Callable[[float], float]) -> list[str]:
    first, last = math.ceil(_knob(rows[0])), math.floor(_knob(rows[-1]))
    every = max(1, math.ceil((last - first) / 8))
    return [_tick(x(power), _size(2.0 ** power)) for power in range(first, last + 1, every)]


def _memory_ticks(rows: list[Plan], x: Callable[[float], float]) -> list[str]:
    first, last = _knob(rows[0]), _knob(rows[-1])
    return [_tick(x(gib), _size(1024 * gib)) for gib in (first, (first + last) / 2, last)]


def _tick(at: float, text: str) -> str:
    floor = HEIGHT - BOTTOM
    anchor = "middle" if at < WIDTH - RIGHT - 20 else "end"
    return (f'<path d="M{at} {floor}v4" stroke="{INK}"/>'
            f'<text x="{at}" y="{floor + 16}" text-anchor="{anchor}">{text}</text>')


def _size(mib: float) -> str:
    for unit, factor in (("MiB", 1.0), ("KiB", 1024.0)) if mib < 2048 else (("GiB", 1.0 / 1024),):
        if mib * factor >= 1:
            return f"{mib * factor:.4g} {unit}"
    return f"{mib * 1024 * 1024:.4g} B"
