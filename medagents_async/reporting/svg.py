"""Plots as SVG that stands inside HTML: no library, colours by the page's style sheet.

Everything is drawn 400 units wide, so that text keeps its size on a phone. Names may be of any
origin: all text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 400, 44, 388, 10, 190
_BAR = 38  # a bar with its name above it
_COLOURS = 6
_LONGEST = 46  # characters of a name
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class Point:
    """A share `y` of 1 with its interval, at `x` where the plot has one; `marked` stands out."""

    name: str
    y: float
    low: float
    high: float
    x: float = 0.0
    marked: bool = False


def _tag(element: str, content: str = "", **attributes: object) -> Markup:
    pairs = Markup("").join(
        Markup(' {}="{}"').format(
            name.strip("_").replace("_", "-"),
            f"{value:.1f}" if isinstance(value, float) else value,
        )
        for name, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(element, pairs, content)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    return _tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=style)


def _text(x: float, y: float, words: str, anchor: str = "start", style: str = "") -> Markup:
    shown = words if len(words) <= _LONGEST else words[: _LONGEST - 1] + "…"
    return _tag("text", shown, x=x, y=y, text_anchor=anchor, class_=style)


def _figure(label: str, height: float, parts: Iterable[Markup]) -> Markup:
    content = Markup("").join([_tag("title", label), *parts])
    return _tag("svg", content, viewBox=f"0 0 {WIDTH} {height:.0f}", role="img", aria_label=label)


def _colour(place: int) -> str:
    return f"c{place % _COLOURS}"


def bars(label: str, points: Sequence[Point]) -> Markup:
    """Shares from 0 to 100 % as bars, a whisker for each interval."""
    parts: list[Markup] = []
    bottom = len(points) * _BAR + 4.0
    span = WIDTH - 8.0
    for tick in _QUARTERS:
        parts.append(_line(4 + span * tick, 0, 4 + span * tick, bottom, "grid"))
        anchor = {0.0: "start", 1.0: "end"}.get(tick, "middle")
        parts.append(_text(4 + span * tick, bottom + 13, f"{tick:.0%}", anchor, "tick"))
    for place, point in enumerate(points):
        top = place * _BAR + 20.0
        middle = top + 6
        low, high = 4 + span * point.low, 4 + span * point.high
        numbers = f"{point.y:.1%} ({100 * point.low:.1f}–{100 * point.high:.1f})"
        parts += [
            _text(4, top - 5, point.name),
            _text(WIDTH - 4, top - 5, numbers, "end", "value"),
            _tag("rect", x=4, y=top, width=span * point.y, height=12, class_="bar"),
            _line(low, middle, high, middle, "whisker"),
            *(_line(end, middle - 4, end, middle + 4, "whisker") for end in (low, high)),
        ]
    return _figure(label, bottom + 18, parts)


def _round(most: float) -> list[float]:
    """Some four round numbers from 0 up to `most`."""
    step = 10.0 ** math.floor(math.log10(most / 3))
    step *= max(factor for factor in (1, 2, 5) if factor * step * 3 <= most or factor == 1)
    return [step * n for n in range(int(most / step + 1e-9) + 1)]


def _decades(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every decade between `low` and `high`, or where there are many 1 alone."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 50 else (1,)
    found = [factor * 10.0**ten for ten in tens for factor in factors]
    return [value for value in found if low <= value <= high]


def _axes(x_label: str, ticks: Sequence[tuple[float, str]], top: float) -> list[Markup]:
    """Axes with the labels of the upright one at these heights."""
    return [
        *(_line(LEFT, y, RIGHT, y, "grid") for y, _ in ticks),
        *(_text(LEFT - 5, y + 4, words, "end", "tick") for y, words in ticks),
        _line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis"),
        _line(LEFT, top, LEFT, BOTTOM, "axis"),
        _text((LEFT + RIGHT) / 2, BOTTOM + 32, x_label, "middle", "tick"),
    ]


def lines(label: str, x_label: str, series: Mapping[str, Sequence[tuple[int, float]]]) -> Markup:
    """A line for each of the series, over whole numbers from 1."""
    last = max((x for points in series.values() for x, _ in points), default=1)
    most = max((y for points in series.values() for _, y in points), default=0.0) or 1.0

    def across(x: float) -> float:
        return LEFT + 14 + (RIGHT - LEFT - 28) * ((x - 1) / (last - 1) if last > 1 else 0.5)

    def up(y: float) -> float:
        return BOTTOM - (BOTTOM - TOP - 8) * y / most

    parts = _axes(x_label, [(up(tick), f"{tick:.3g}") for tick in _round(most)], TOP)
    step = -(-last // 12)
    for x in range(1, last + 1, step):
        parts.append(_text(across(x), BOTTOM + 15, str(x), "middle", "tick"))
    legend = BOTTOM + 50.0
    for place, (name, points) in enumerate(series.items()):
        colour = _colour(place)
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        parts.append(_tag("polyline", points=path, class_=f"line {colour}"))
        parts += [
            _tag("circle", cx=across(x), cy=up(y), r=3.5, class_=f"dot {colour}") for x, y in points
        ]
        if len(series) > 1:
            parts.append(_tag("circle", cx=LEFT + 4, cy=legend - 4, r=4, class_=f"dot {colour}"))
            parts.append(_text(LEFT + 14, legend, name))
            legend += 18
    return _figure(label, legend - 6, parts)


def frontier(label: str, x_label: str, points: Sequence[Point]) -> Markup:
    """Accuracy against cost, which may span decades; a line joins the marked points, the frontier.

    No `x` is negative; where one is 0 the scale is linear.
    """
    least, most = min(point.x for point in points), max(point.x for point in points) or 1.0
    low, high = least / 1.5, most * 1.5
    ticks = _decades(low, high) if least > 0 else _round(most)

    def across(x: float) -> float:
        share = math.log(x / low) / math.log(high / low) if least > 0 else x / high
        return LEFT + (RIGHT - LEFT) * share

    def up(y: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * y

    parts = _axes(x_label, [(up(tick), f"{tick:.0%}") for tick in _QUARTERS], TOP)
    for tick in ticks:
        shown = f"{tick:,.0f}" if tick >= 1 else f"{tick:.4g}"
        parts.append(_text(across(tick), BOTTOM + 15, shown, "middle", "tick"))
    best = sorted((point.x, point.y) for point in points if point.marked)
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in best)
    parts.append(_tag("polyline", points=path, class_="line edge"))
    legend = BOTTOM + 50.0
    for place, point in enumerate(points):
        x, colour = across(point.x), _colour(place)
        shape = f"dot {colour}" if point.marked else f"ring {colour}"
        parts += [
            _line(x, up(point.low), x, up(point.high), f"whisker {colour}"),
            _tag("circle", cx=x, cy=up(point.y), r=5, class_=shape),
            _tag("circle", cx=LEFT + 4, cy=legend - 4, r=4, class_=shape),
            _text(LEFT + 14, legend, point.name),
        ]
        legend += 18
    return _figure(label, legend - 6, parts)
