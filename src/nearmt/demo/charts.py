"""Two small charts as inline SVG, so that a report needs nothing from elsewhere."""

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 560, 300, 56, 44, 16
_COLORS = ("#7a7a7a", "#c2703d", "#3d7ac2", "#2e8b57")


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


def line_chart(ticks: Sequence[str], series: Mapping[str, Sequence[float]], x_label: str, y_label: str) -> str:
    """A line for each series over evenly spaced ticks, named at its right end."""
    values = [value for line in series.values() for value in line]
    margin = max((max(values) - min(values)) * 0.1, 0.5)
    low, high = min(values) - margin, max(values) + margin
    right = _WIDTH - 90
    at = [_LEFT + 24 + (right - _LEFT - 24) * i / max(1, len(ticks) - 1) for i in range(len(ticks))]
    body = _grid(low, high, 1)
    body += [
        f'<text x="{x:.0f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(tick)}</text>'
        for x, tick in zip(at, ticks, strict=True)
    ]
    for (name, line), color in zip(series.items(), _COLORS, strict=False):
        points = [(x, _scale(low, high, value)) for x, value in zip(at, line, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in points]
        body.append(
            f'<text x="{points[-1][0] + 8:.0f}" y="{points[-1][1] + 4:.0f}" fill="{color}">{escape(name)}</text>'
        )
    return _frame(body, x_label, y_label)


def bar_chart(bars: Mapping[str, float], x_label: str, y_label: str) -> str:
    """A bar for each name, from zero."""
    high = max(bars.values()) * 1.1
    room = (_WIDTH - 8 - _LEFT) / len(bars)
    body = _grid(0.0, high, 2)
    for number, (name, value) in enumerate(bars.items()):
        x, y = _LEFT + room * (number + 0.15), _scale(0.0, high, value)
        height = _HEIGHT - _BOTTOM - y
        body.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{room * 0.7:.1f}" height="{height:.1f}" fill="{_COLORS[3]}"/>'
        )
        body.append(
            f'<text x="{x + room * 0.35:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(name)}</text>'
        )
    return _frame(body, x_label, y_label)
