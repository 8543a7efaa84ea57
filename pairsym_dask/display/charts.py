"""Small charts as inline SVG: no script, no network, colours that read on light and on dark ground.

Text and axes take the colour of the page around them; a point's words appear when the pointer rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 26, 48
COLOURS = ("#3b7dd8", "#d9730d", "#2e9e5b", "#a64ac9", "#888888")
GREY = 4  # a colour for what stands behind
_CHARACTER = 7.3  # width of a letter of a label
_HALO = 'stroke="Canvas" stroke-width="3" paint-order="stroke"'  # keeps a name readable over points
_UPPER = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass
class Axis:
    """One axis of a chart; on a logarithmic one values at or below zero are left out."""

    label: str
    log: bool = False
    low: float = math.inf
    high: float = -math.inf

    def see(self, values: Any) -> np.ndarray:
        """Widen the axis to hold these values; they come back as floats, nan where the axis has no place for them."""
        values = np.array(values, np.float64)
        with np.errstate(invalid="ignore"):
            values[~np.isfinite(values) | ((values <= 0) & self.log)] = np.nan
        found = values[np.isfinite(values)]
        if found.size:
            self.low, self.high = min(self.low, float(found.min())), max(self.high, float(found.max()))
        return values

    def settle(self) -> None:
        """Give the axis its ends: some room beside what it holds."""
        if not math.isfinite(self.high):
            self.low, self.high = 1.0, 1.0
        if self.log:
            room = max(0.04 * math.log(self.high / self.low), 0.05)
            self.low, self.high = self.low * math.exp(-room), self.high * math.exp(room)
        else:
            room = 0.05 * (self.high - self.low) or 0.05 * abs(self.high) or 1.0
            self.low, self.high = (0.0 if self.low == 0 else self.low - room), self.high + room

    def place(self, values: Any) -> np.ndarray:
        """Values as parts of the axis, 0 to 1."""
        if self.log:
            return np.asarray(np.log(np.asarray(values) / self.low) / math.log(self.high / self.low))
        return np.asarray((np.asarray(values, np.float64) - self.low) / (self.high - self.low))

    def ticks(self) -> list[tuple[float, str]]:
        """Values to mark, with their words."""
        if self.log and self.high / self.low > 20:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            values = [10.0**e for e in range(first, last + 1, 1 + (last - first) // 7)]
            return [(value, tick_text(value, value)) for value in values]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 3))
        step *= max((m for m in (1, 2, 5) if m * step * 3 <= self.high - self.low), default=1)
        values = [step * k for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [(value, tick_text(value, step)) for value in values]


def tick_text(value: float, step: float) -> str:
    """A tick's value, as short as its step allows.

    >>> tick_text(0.25, 0.05), tick_text(-25_300_000, 100_000), tick_text(1e-5, 1e-5), tick_text(2000, 500)
    ('0.25', '-25.3M', '10⁻⁵', '2000')
    """
    if value == 0:
        return "0"
    exponent = math.log10(abs(value))
    if value == step and exponent == round(exponent) and (exponent < -3 or exponent > 3):
        return "10" + str(round(exponent)).translate(_UPPER)
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and (abs(value) >= 10 * size or size > 1e3):
            return _decimals(value / size, step / size) + letter
    return _decimals(value, step) if abs(step) > 1e-5 else f"{value:.3g}"


def _decimals(value: float, step: float) -> str:
    return f"{value:.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


@dataclass(frozen=True)
class Mark:
    """Something that a chart shows."""

    kind: str
    name: str  # in the legend; empty for none
    colour: str
    values: tuple[Any, ...]


class Chart:
    """What a chart shows: points, lines and bars over two axes; `svg()` draws them in the order they were added."""

    def __init__(self, x: Axis, y: Axis) -> None:
        self.x, self.y = x, y
        self.marks: list[Mark] = []

    def points(self, x: Any, y: Any, titles: Sequence[str] | None = None, name: str = "", colour: int = 0) -> Chart:
        """A cloud; `titles` are shown when the pointer rests on a point."""
        self._add("points", name, colour, self.x.see(x), self.y.see(y), titles)
        return self

    def line(self, x: Any, y: Any, name: str = "", colour: int = 0, dashed: bool = False, error: Any = None) -> Chart:
        """A line through points in order, each with its values as a title; `error` are standard errors of y."""
        x, y = self.x.see(x), self.y.see(y)
        if error is not None:
            error = np.nan_to_num(np.asarray(error, np.float64))
            self.y.see(np.concatenate([y - error, y + error]))
        self._add("line", name, colour, x, y, dashed, error)
        return self

    def level(self, y: float, name: str = "", colour: int = 0) -> Chart:
        """A dashed horizontal line over the whole width."""
        self._add("level", name, colour, self.y.see([y]))
        return self

    def bars(self, low: Any, high: Any, height: Any, titles: Sequence[str], colour: int = 0) -> Chart:
        """A bar from `low` to `high` each, standing on the foot of the chart."""
        self._add("bars", "", colour, self.x.see(low), self.x.see(high), self.y.see(height), titles)
        return self

    def names(self, x: Any, y: Any, texts: Sequence[str], colour: int = 0) -> Chart:
        """Ringed points with their names beside them, where there is room."""
        self._add("names", "", colour, self.x.see(x), self.y.see(y), texts)
        return self

    def _add(self, kind: str, name: str, colour: int, *values: Any) -> None:
        self.marks.append(Mark(kind, name, COLOURS[colour], values))

    def svg(self) -> str:
        """The drawing, as wide as the place it is put in."""
        self.x.settle()
        self.y.settle()
        self._taken: list[tuple[float, float, float]] = []
        drawn = "".join("".join(getattr(self, f"_draw_{mark.kind}")(mark.colour, *mark.values)) for mark in self.marks)
        words = escape(f"{self.y.label} against {self.x.label}", quote=True)
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}" font-size="13" fill="currentColor" '
            f'style="width:100%;max-width:{WIDTH * 1.1:.0f}px;height:auto;font-family:system-ui,sans-serif">'
            f"{''.join(self._frame())}{drawn}</svg>"
        )

    def _px(self, x: Any) -> np.ndarray:
        return np.asarray(LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT))

    def _py(self, y: Any) -> np.ndarray:
        return np.asarray(HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM))

    def _frame(self) -> Iterable[str]:
        foot, end = HEIGHT - BOTTOM, WIDTH - RIGHT
        for value, text in self.y.ticks():
            at = float(self._py(value))
            yield f'<path d="M{LEFT} {at:.1f}H{end}" stroke="currentColor" opacity=".15"/>'
            yield f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
        free = 0.0  # where the next number may begin
        for value, text in self.x.ticks():
            at = float(self._px(value))
            yield f'<path d="M{at:.1f} {foot}v4" stroke="currentColor"/>'
            half = len(text) * _CHARACTER / 2
            if at - half < free:
                continue
            free = at + half + _CHARACTER / 2
            yield f'<text x="{at:.1f}" y="{foot + 17}" text-anchor="middle">{text}</text>'
        yield f'<path d="M{LEFT} {TOP}V{foot}H{end}" fill="none" stroke="currentColor"/>'
        yield f'<text x="{(LEFT + end) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(self.x.label)}</text>'
        yield f'<text x="2" y="13">{escape(self.y.label)}</text>'
        at = WIDTH - RIGHT
        for mark in reversed([mark for mark in self.marks if mark.name]):
            at -= int(len(mark.name) * _CHARACTER) + 4
            yield f'<text x="{at}" y="13" fill="{mark.colour}">{escape(mark.name)}</text>'
            at -= 14
            yield f'<circle cx="{at + 7}" cy="9" r="4" fill="{mark.colour}"/>'

    def _draw_points(self, colour: str, x: np.ndarray, y: np.ndarray, titles: Sequence[str] | None) -> Iterable[str]:
        px, py = self._px(x), self._py(y)
        seen = np.flatnonzero(np.isfinite(px) & np.isfinite(py)).tolist()
        if titles is None:  # one path instead of thousands of circles
            dots = "".join(f"M{px[k]:.1f} {py[k]:.1f}h0" for k in seen)
            yield f'<path d="{dots}" stroke="{colour}" stroke-width="3" stroke-linecap="round" opacity=".5"/>'
            return
        yield f'<g fill="{colour}" fill-opacity=".45">'
        for k in seen:
            yield f'<circle cx="{px[k]:.1f}" cy="{py[k]:.1f}" r="2.5"><title>{escape(titles[k])}</title></circle>'
        yield "</g>"

    def _draw_line(
        self, colour: str, x: np.ndarray, y: np.ndarray, dashed: bool, error: np.ndarray | None
    ) -> Iterable[str]:
        px, py = self._px(x), self._py(y)
        seen = np.flatnonzero(np.isfinite(px) & np.isfinite(py)).tolist()
        path = "L".join(f"{px[k]:.1f} {py[k]:.1f}" for k in seen)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        if path:
            yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
        for k in seen:
            title = escape(f"{self.x.label} {x[k]:,.6g}: {y[k]:,.10g}")
            if error is not None:
                low, high = self._py([y[k] - error[k], y[k] + error[k]])
                title += escape(f", standard error {error[k]:,.2g}")
                yield f'<path d="M{px[k]:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" opacity=".6"/>'
            yield f'<circle cx="{px[k]:.1f}" cy="{py[k]:.1f}" r="3" fill="{colour}"><title>{title}</title></circle>'

    def _draw_level(self, colour: str, y: np.ndarray) -> Iterable[str]:
        if np.isfinite(y[0]):
            at = float(self._py(y[0]))
            yield (
                f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{colour}" stroke-width="1.5" '
                'stroke-dasharray="5 4"/>'
            )

    def _draw_bars(
        self, colour: str, low: np.ndarray, high: np.ndarray, height: np.ndarray, titles: Sequence[str]
    ) -> Iterable[str]:
        left, right, top = self._px(low), self._px(high), self._py(height)
        foot = HEIGHT - BOTTOM
        for k in np.flatnonzero(np.isfinite(left) & np.isfinite(top)).tolist():
            yield (
                f'<rect x="{left[k] + 0.5:.1f}" y="{top[k]:.1f}" width="{max(right[k] - left[k] - 1, 1):.1f}" '
                f'height="{max(foot - top[k], 0):.1f}" fill="{colour}" fill-opacity=".8">'
                f"<title>{escape(titles[k])}</title></rect>"
            )

    def _draw_names(self, colour: str, x: np.ndarray, y: np.ndarray, texts: Sequence[str]) -> Iterable[str]:
        px, py = self._px(x), self._py(y)
        seen = np.flatnonzero(np.isfinite(px) & np.isfinite(py)).tolist()
        self._taken += [(px[k] - 5, py[k], 10.0) for k in seen]
        for k in seen:
            text = texts[k] if len(texts[k]) <= 24 else texts[k][:23] + "…"
            wide = len(text) * _CHARACTER
            yield (
                f'<circle cx="{px[k]:.1f}" cy="{py[k]:.1f}" r="4" fill="none" stroke="{colour}" stroke-width="2">'
                f"<title>{escape(texts[k])}</title></circle>"
            )
            for left in (px[k] + 7, px[k] - 7 - wide):
                if left < LEFT or left + wide > WIDTH:
                    continue
                if any(abs(py[k] - b) < 12 and a < left + wide and left < a + w for a, b, w in self._taken):
                    continue
                self._taken.append((left, py[k], wide))
                yield f'<text x="{left:.1f}" y="{py[k] + 4:.1f}" fill="{colour}" {_HALO}>{escape(text)}</text>'
                break


def sparkline(values: Sequence[float], title: str, width: int = 140, height: int = 30) -> str:
    """A line of a few values without axes, its last point marked; empty for fewer than two values."""
    found = [value for value in values if math.isfinite(value)]
    if len(found) < 2:
        return ""
    low, span = min(found), (max(found) - min(found)) or 1.0
    step = (width - 8) / (len(found) - 1)
    at = [(4 + k * step, height - 4 - (value - low) / span * (height - 8)) for k, value in enumerate(found)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title, quote=True)}" style="vertical-align:middle"><title>{escape(title)}</title>'
        f'<path d="M{path}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.5"/>'
        f'<circle cx="{at[-1][0]:.1f}" cy="{at[-1][1]:.1f}" r="2.5" fill="{COLOURS[0]}"/></svg>'
    )
