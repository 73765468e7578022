"""Pictures of a page: SVG without script. Every mark has its number in a `<title>`; the colours are those of the page.

Sizes are in units of the SVG; the page scales it to its width. `Shown` escapes text that comes from input files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from mio2trace.outgoing import visible


class Shown(Markup):
    """Markup that escapes text from input files and makes control characters visible."""

    @classmethod
    def escape(cls, text: object, /) -> Shown:
        return super().escape(visible(text) if type(text) is str else text)


class Piece(NamedTuple):
    """A part of a bar: colour class, length in ns, whether it is auxiliary work, tooltip."""

    colour: str
    ns: float
    helps: bool
    title: str


def stacked(pieces: Sequence[Piece], whole: float, label: str, *, height: int = 10, width: int = 400) -> Markup:
    """Draw one bar; ``whole`` is its full width. Auxiliary parts are hatched. Parts too thin to see are left out."""
    marks: list[Markup] = []
    x = 0.0
    for piece in pieces:
        wide = width * piece.ns / whole if whole else 0.0
        if wide >= 0.2:
            shape = Shown('x="{}" width="{}" height="{}"').format(_n(x), _n(wide), height)
            hatch = Shown('<rect class="hatch" {}/>').format(shape) if piece.helps else ""
            marks.append(
                Shown('<g><title>{}</title><rect class="{}" {}/>{}</g>').format(piece.title, piece.colour, shape, hatch)
            )
        x += wide
    return Shown(
        '<svg class="bar" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(width, height, label, _joined(marks))


def change(colour: str, more: float, most: float, label: str) -> Markup:
    """Draw a bar from the middle: to the right for more, to the left for less. ``most`` reaches the edge."""
    width, tall = 400, 10
    long = min(abs(more) / most, 1.0) * width / 2 if most else 0.0
    x = width / 2 - (long if more < 0 else 0.0)
    shape = Shown('<path class="axis" d="M{} 0v{}"/><rect class="{}" x="{}" width="{}" height="{}"/>').format(
        width // 2, tall, colour, _n(x), _n(max(long, 0.8)), tall
    )
    return Shown(
        '<svg class="bar" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        "<title>{}</title>{}</svg>"
    ).format(width, tall, label, label, shape)


def columns(bins: Sequence[tuple[str, float, str, str]], label: str) -> Markup:
    """Draw a histogram. ``bins``: (label below, height, label above, tooltip) of each column."""
    wide, tall, top = 56, 150, 18
    most = max((size for _, size, _, _ in bins), default=0) or 1
    marks: list[Markup] = []
    for number, (name, size, above, title) in enumerate(bins):
        height = tall * size / most
        middle = wide * number + wide / 2
        y = top + tall - height
        column = Shown(
            '<g><title>{}</title><rect class="column" x="{}" y="{}" width="{}" height="{}"/>'
            '<text x="{}" y="{}">{}</text><text class="faint" x="{}" y="{}">{}</text></g>'
        )
        shape = wide * number + 5, _n(y), wide - 10, _n(height)
        below = _n(middle), tall + top + 16, name
        marks.append(column.format(title, *shape, *below, _n(middle), _n(y - 5), above))
    base = Shown('<path class="axis" d="M0 {}h{}"/>').format(top + tall, wide * len(bins))
    width = max(1, wide * len(bins))
    return Shown(
        '<svg class="columns" width="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        '<g class="labels">{}</g>{}</svg>'
    ).format(width, width, tall + top + 24, label, _joined(marks), base)


def timeline(
    layers: Sequence[tuple[str, Sequence[float], str]],
    bands: Sequence[tuple[float, float, str, str]],
    ticks: Sequence[tuple[float, str]],
    label: str,
) -> Markup:
    """Draw a run from left to right: the busy part of each bin, stacked by colour class.

    ``layers``: (colour, busy part of each bin from 0 to 1, tooltip). ``bands``: (from, to, text, tooltip) of the marks
    below, with places from 0 to 1. ``ticks``: (place, text).
    """
    width, tall = 960, 60
    count = max((len(parts) for _, parts, _ in layers), default=1) or 1
    floor = [0.0] * count
    marks: list[Markup] = []
    for colour, parts, title in layers:
        path: list[str] = []
        for number, part in enumerate(parts):
            high = tall * min(part, 1.0)
            if high >= 0.2:
                x = width * number / count
                path.append(f"M{_n(x)} {_n(tall - floor[number])}v-{_n(high)}h{_n(width / count)}v{_n(high)}")
                floor[number] += high
        if path:
            marks.append(Shown('<path class="{}" d="{}"><title>{}</title></path>').format(colour, "".join(path), title))
    for start, end, text, title in bands:
        x, wide = width * start, max(width * (end - start) - 1, 1)
        shown = text if 7 * len(text) < wide else ""
        marks.append(
            Shown(
                '<g class="band"><title>{}</title><rect x="{}" y="64" width="{}" height="14"/>'
                '<text x="{}" y="75">{}</text></g>'
            ).format(title, _n(x), _n(wide), _n(x + wide / 2), shown)
        )
    for place, text in ticks:
        anchor = "start" if place < 0.05 else "end" if place > 0.95 else "middle"
        marks.append(
            Shown('<text class="faint" x="{}" y="94" style="text-anchor:{}">{}</text>').format(
                _n(width * place), anchor, text
            )
        )
    return Shown(
        '<svg class="run" viewBox="0 0 {} 98" role="img" aria-label="{}"><path class="axis" d="M0 {}h{}"/>{}</svg>'
    ).format(width, label, tall, width, _joined(marks))


def roofline(
    points: Sequence[tuple[float, float, float, str, str]], roofs: Sequence[tuple[str, float, float]], label: str
) -> Markup:
    """Draw problems by operations per byte and operations per second, on logarithmic axes, under the limits of the
    device.

    ``points``: (operations per byte, operations per ns, share of the time, colour class, tooltip) of each problem.
    ``roofs``: (label, operations per ns, bytes per ns) of each data type.
    """
    width, tall, left, top = 640, 260, 76, 14
    xs = [intensity for intensity, *_ in points] + [peak / bandwidth for _, peak, bandwidth in roofs]
    ys = [rate for _, rate, *_ in points] + [peak for _, peak, _ in roofs]
    x0, x1 = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)) + 0.3)
    y0, y1 = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)) + 0.05)

    def across(value: float) -> float:
        return left + width * (math.log10(value) - x0) / (x1 - x0)

    def down(value: float) -> float:
        return top + tall * (y1 - math.log10(value)) / (y1 - y0)

    marks = [_gridline(across(10.0**power), top, tall, _plain(10.0**power)) for power in range(x0, x1 + 1)]
    for power in range(y0, y1 + 1):
        height = _n(down(10.0**power))
        line = Shown('<path class="grid" d="M{} {}h{}"/><text class="end" x="{}" y="{}">{}</text>')
        marks.append(line.format(left, height, width, left - 6, height, _plain(10.0**power / 1000)))
    for name, peak, bandwidth in roofs:
        begin, ridge = max(10.0**x0, 10.0**y0 / bandwidth), peak / bandwidth
        start = f"M{_n(across(begin))} {_n(down(begin * bandwidth))}"
        path = f"{start}L{_n(across(ridge))} {_n(down(peak))}H{left + width}"
        shape = Shown('<path class="roof" d="{}"><title>{}</title></path><text class="end" x="{}" y="{}">{}</text>')
        marks.append(shape.format(path, name, left + width - 4, _n(down(peak) - 5), name))
    for intensity, rate, share, colour, title in points:
        x, y, radius = across(intensity), down(rate), 3 + 9 * math.sqrt(min(share, 1))
        dot = Shown('<circle class="{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>')
        marks.append(dot.format(colour, _n(x), _n(y), _n(radius), title))
    axes = Shown('<text x="{}" y="{}">FLOP a byte of least traffic</text><text x="{}" y="{}" class="up">TFLOP/s</text>')
    marks.append(axes.format(left + width / 2, top + tall + 34, 12, top + tall / 2))
    frame = Shown('<svg class="roofline" viewBox="0 0 {} {}" role="img" aria-label="{}"><g class="labels">{}</g></svg>')
    return frame.format(left + width + 30, top + tall + 42, label, _joined(marks))


def _gridline(x: float, top: float, tall: float, text: str) -> Markup:
    line = Shown('<path class="grid" d="M{} {}v{}"/><text x="{}" y="{}">{}</text>')
    return line.format(_n(x), top, tall, _n(x), top + tall + 16, text)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _n(value: float) -> str:
    """Format a coordinate with at most two decimals and no trailing zeros."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("", "-0") else text


def _joined(marks: Iterable[Markup]) -> Markup:
    return Markup("").join(marks)
