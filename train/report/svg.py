"""Line charts and interval marks as inline SVG, coloured by the page's own variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from train.evaluation.stats import Interval

WIDTH, HEIGHT = 340, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 24
COLOURS = 4
Point = tuple[float, float]
Link = Callable[[str, float], str]
"""(name of a line, x) → an address, "" for none."""


def line_chart(
    series: Sequence[tuple[str, Sequence[Point]]],
    x_label: str = "step",
    title: str = "",
    link: Link | None = None,
) -> str:
    """Named lines over one axis, four colours and then dashed; points have their values as
    tooltips. `link`: the address behind the points of an x, where there is one."""
    points = [p for _, line in series for p in line]
    if not points:
        return '<p class="quiet">nothing logged</p>'
    low_x, high_x = _range([x for x, _ in points], 0.0)
    low_y, high_y = _range([y for _, y in points], 0.08)
    at, parts = _axes(low_x, high_x, low_y, high_y, title, link is not None)
    for index, (name, line) in enumerate(series):
        parts += _line(name, line, index, at, x_label, link)
    return "".join(parts) + "</svg>"


def stacked_chart(
    names: Sequence[str],
    shares: Sequence[tuple[float, Sequence[float]]],
    title: str = "",
    link: Link | None = None,
) -> str:
    """Shares of a whole by step, one on top of the other: (x, a share for each name)."""
    low_x, high_x = _range([x for x, _ in shares], 0.0)
    at, parts = _axes(low_x, high_x, 0.0, 1.0, title, link is not None)
    sums = [[sum(values[:n]) for n in range(len(names) + 1)] for _, values in shares]
    half = (high_x - low_x) / 2 if len(shares) == 1 else 0.0
    for n, name in enumerate(names):
        edge: list[str] = []
        for sides, order in ((n + 1, 1), (n, -1)):
            for (x, _), heights in list(zip(shares, sums, strict=True))[::order]:
                for shift in (-half * order, half * order) if half else (0.0,):
                    px, py = at(min(max(x + shift, low_x), high_x), min(heights[sides], 1.0))
                    edge.append(f"{px:.1f},{py:.1f}")
        tip = f"{escape(name)}: {shares[-1][1][n]:.0%} at the last step"
        points = " ".join(edge)
        parts.append(f'<polygon class="area c{n % 6}" points="{points}">')
        parts.append(f"<title>{tip}</title></polygon>")
    return "".join(parts) + "</svg>"


def _axes(
    low_x: float, high_x: float, low_y: float, high_y: float, title: str, linked: bool
) -> tuple[Callable[[float, float], Point], list[str]]:
    """Where a point of the plane stands, and the beginning of the picture with its grid."""

    def at(x: float, y: float) -> Point:
        across = (x - low_x) / (high_x - low_x)
        up = (y - low_y) / (high_y - low_y)
        return (
            LEFT + across * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM),
        )

    # a picture may not hold links
    role = "group" if linked else "img"
    label = escape(title or "chart")
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="{role}" aria-label="{label}">']
    for tick in _ticks(low_y, high_y, 4):
        y = at(low_x, tick)[1]
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{_number(tick)}</text>'
        )
    for tick in _ticks(low_x, high_x, 5):
        if tick == int(tick):
            x = at(tick, low_y)[0]
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{tick:g}</text>')
    return at, parts


def _line(
    name: str,
    line: Sequence[Point],
    index: int,
    at: Callable[[float, float], Point],
    x_label: str,
    link: Link | None,
) -> list[str]:
    places = [at(x, y) for x, y in line]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashed = " dashed" if index >= COLOURS else ""
    index %= COLOURS
    marks = [f'<polyline class="line c{index}{dashed}" points="{path}"/>']
    radius = 2.2 if len(line) <= 60 else 1.2
    for (x, y), (cx, cy) in zip(line, places, strict=True):
        tip = f"{escape(name)}: {y:.4g} at {x_label} {x:g}"
        dot = (
            f'<circle class="dot c{index}" cx="{cx:.1f}" cy="{cy:.1f}" r="{radius}">'
            f"<title>{tip}</title></circle>"
        )
        place = link(name, x) if link else ""
        # steps are linked from a table too: hundreds of points are no tab stops
        marks.append(
            f'<a href="{escape(place)}" tabindex="-1" aria-label="{tip}">{dot}</a>'
            if place
            else dot
        )
    return marks


def interval_mark(interval: Interval, low: float = 0.0, high: float = 1.0) -> str:
    """A dot with its whiskers on a line from `low` to `high`; zero is marked when inside."""
    if math.isnan(interval.value):
        return ""
    width, height, pad = 110, 18, 5

    def x(value: float) -> float:
        return pad + (min(max(value, low), high) - low) / (high - low) * (width - 2 * pad)

    zero = (
        f'<line class="zero" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="1" y2="{height - 1}"/>'
        if low < 0 < high
        else ""
    )
    left, right = x(interval.low), x(interval.high)
    return (
        f'<svg class="mark" aria-hidden="true" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">'
        f'<line class="grid" x1="{pad}" x2="{width - pad}" y1="9" y2="9"/>{zero}'
        f'<line class="whisker" x1="{left:.1f}" x2="{right:.1f}" y1="9" y2="9"/>'
        f'<circle class="value" cx="{x(interval.value):.1f}" cy="9" r="3.2"/></svg>'
    )


def _range(values: Sequence[float], pad: float) -> Point:
    low, high = min(values), max(values)
    if low == high:
        return low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
    return low - pad * (high - low), high + pad * (high - low)


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers inside [low, high], about `count` of them."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e5):
        digits, power = f"{value:.2e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return f"{value:.10g}" if size < 1000 else f"{value:.0f}"
