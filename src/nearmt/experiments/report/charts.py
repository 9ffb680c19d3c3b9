"""Small charts as SVG, so that a report needs nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 560, 300, 56, 44, 16
COLORS = ("#c2703d", "#3d7ac2", "#2e8b57", "#8a4fb0", "#b03a5b", "#7a7a7a", "#a08a1e", "#2b9a9a")
_LABEL_HEIGHT = 13
_STYLE = (
    "svg{font:12px system-ui,sans-serif;fill:#1c1c1c;background:#fff}"
    ".axis{stroke:#1c1c1c;fill:none}.grid{stroke:#ddd;fill:none}"
)


@dataclass(frozen=True)
class LineChart:
    """A line for each series over evenly spaced ticks, named at its right end."""

    ticks: Sequence[str]
    series: Mapping[str, Sequence[float]]
    x_label: str
    y_label: str

    def svg(self) -> str:
        """For a page, whose style it takes."""
        return _frame(_lines(self.ticks, self.series), self.x_label, self.y_label)


@dataclass(frozen=True)
class BarChart:
    """A bar for each name, from zero."""

    bars: Mapping[str, float]
    x_label: str
    y_label: str

    def svg(self) -> str:
        """For a page, whose style it takes."""
        return _frame(_bars(self.bars), self.x_label, self.y_label)


Chart = LineChart | BarChart


def standalone(chart: Chart) -> str:
    """A chart as a file of its own: inside a page its style comes from there."""
    opening, rest = chart.svg().split(">", 1)
    return f'<?xml version="1.0"?>\n{opening} xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>{rest}\n'


def _frame(body: list[str], x_label: str, y_label: str) -> str:
    axis_y = _HEIGHT - _BOTTOM
    middle = (_LEFT + _WIDTH) // 2
    return "".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(y_label)} by {escape(x_label)}">',
            f'<path class="axis" d="M{_LEFT} {_TOP}V{axis_y}H{_WIDTH - 8}"/>',
            f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>',
            f'<text transform="translate(14 {axis_y // 2 + _TOP}) rotate(-90)" text-anchor="middle">'
            f"{escape(y_label)}</text>",
            *body,
            "</svg>",
        ]
    )


def _scale(low: float, high: float, value: float) -> float:
    return _HEIGHT - _BOTTOM - (value - low) / (high - low) * (_HEIGHT - _BOTTOM - _TOP)


def _grid(low: float, high: float, digits: int) -> list[str]:
    lines = []
    for step in range(5):
        value = low + (high - low) * step / 4
        y = _scale(low, high, value)
        lines.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - 8}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.{digits}f}</text>')
    return lines


def spread_labels(wanted: Sequence[float]) -> list[float]:
    """Heights near the wanted ones, far enough apart to be read."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [0.0] * len(wanted)
    for before, i in zip([None, *order], order, strict=False):
        placed[i] = wanted[i] if before is None else max(wanted[i], placed[before] + _LABEL_HEIGHT)
    too_low = max([0.0, *(y - (_HEIGHT - _BOTTOM) for y in placed)])
    return [y - too_low for y in placed]


def _lines(ticks: Sequence[str], series: Mapping[str, Sequence[float]]) -> list[str]:
    values = [value for line in series.values() for value in line]
    margin = max((max(values) - min(values)) * 0.1, 0.5)
    low, high = min(values) - margin, max(values) + margin
    right = _WIDTH - 8 - max(40, 7 * max(map(len, series)))
    at = [_LEFT + 24 + (right - _LEFT - 32) * i / max(1, len(ticks) - 1) for i in range(len(ticks))]
    body = _grid(low, high, 1)
    body += [
        f'<text x="{x:.0f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(tick)}</text>'
        for x, tick in zip(at, ticks, strict=True)
    ]
    labels = spread_labels([_scale(low, high, line[-1]) + 4 for line in series.values()])
    for number, (name, line) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        points = [(x, _scale(low, high, value)) for x, value in zip(at, line, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
        body.append(f'<text x="{points[-1][0] + 8:.0f}" y="{labels[number]:.0f}" fill="{color}">{escape(name)}</text>')
    return body


def _bars(bars: Mapping[str, float]) -> list[str]:
    high = max(max(bars.values()), 1e-9) * 1.1
    room = (_WIDTH - 8 - _LEFT) / len(bars)
    body = _grid(0.0, high, 2)
    for number, (name, value) in enumerate(bars.items()):
        x, y = _LEFT + room * (number + 0.15), _scale(0.0, high, value)
        height = _HEIGHT - _BOTTOM - y
        body.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{room * 0.7:.1f}" height="{height:.1f}" fill="{COLORS[2]}"/>'
        )
        body.append(
            f'<text x="{x + room * 0.35:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(name)}</text>'
        )
    return body
