"""Charts of the reports, drawn by matplotlib, which the extra `paper` installs. Equal charts give equal files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from nearmt.errors import MissingExtraError

GRID_COLOR = "#dddddd"
_BAR_COLOR = "#2e8b57"
_LINE_COLORS = ("#c2703d", "#3d7ac2", _BAR_COLOR, "#8a4fb0", "#b03a5b", "#7a7a7a", "#a08a1e", "#2b9a9a")
_INCHES = (7.0, 3.5)
_DOTS_PER_INCH = 160  # of the PNG


@dataclass(frozen=True)
class LineChart:
    """One line per series over evenly spaced ticks."""

    ticks: Sequence[str]
    series: Mapping[str, Sequence[float]]
    x_label: str
    y_label: str


@dataclass(frozen=True)
class BarChart:
    """One bar per name, starting at zero."""

    bars: Mapping[str, float]
    x_label: str
    y_label: str


@dataclass(frozen=True)
class GroupedBarChart:
    """One bar per series at each tick; bars of a faint tick are pale."""

    ticks: Sequence[str]
    series: Mapping[str, Sequence[float]]
    is_faint: Sequence[bool]
    x_label: str
    y_label: str


Chart = LineChart | BarChart | GroupedBarChart


def can_draw() -> bool:
    """True if matplotlib is installed."""
    return find_spec("matplotlib") is not None


def require_drawing() -> None:
    """Raise an error if matplotlib is missing. Call it before work whose result is a report."""
    if not can_draw():
        raise MissingExtraError("a report with charts", "nearmt[paper]")


def svg_of(chart: Chart) -> str:
    """The chart as an SVG document with black text on white."""
    return _saved(chart, "svg", dict.fromkeys(("Creator", "Date", "Format", "Type"))).decode()


def png_of(chart: Chart) -> bytes:
    """The chart as a picture of 1,120 × 560 pixels."""
    return _saved(chart, "png", {"Software": None})


def _saved(chart: Chart, kind: str, metadata: dict[str, None]) -> bytes:
    require_drawing()
    import matplotlib
    from matplotlib.figure import Figure

    options = {
        "font.sans-serif": ["DejaVu Sans"],
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": repr(chart),  # ids that differ between the charts of a page
    }
    content = BytesIO()
    with matplotlib.rc_context(options):
        figure = Figure(_INCHES, _DOTS_PER_INCH, layout="constrained")
        _draw(figure.add_subplot(), chart)
        figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def _draw(axes: Any, chart: Chart) -> None:
    if isinstance(chart, GroupedBarChart):
        _draw_groups(axes, chart)
    elif isinstance(chart, LineChart):
        for number, (name, line) in enumerate(chart.series.items()):
            color = _LINE_COLORS[number % len(_LINE_COLORS)]
            axes.plot(range(len(line)), line, "o-", markersize=4, color=color, label=name)
        axes.set_xticks(range(len(chart.ticks)), chart.ticks)
        _add_legend(axes)
    else:
        axes.bar(list(chart.bars), list(chart.bars.values()), color=_BAR_COLOR, width=0.7)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.grid(axis="y", color=GRID_COLOR)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_groups(axes: Any, chart: GroupedBarChart) -> None:
    width = 0.8 / len(chart.series)
    for number, (name, heights) in enumerate(chart.series.items()):
        color = _LINE_COLORS[number % len(_LINE_COLORS)]
        places = [tick - 0.4 + (number + 0.5) * width for tick in range(len(heights))]
        bars = axes.bar(places, heights, width=0.92 * width, color=color, label=name)
        for bar, is_faint in zip(bars, chart.is_faint, strict=True):
            bar.set_alpha(0.35 if is_faint else 1.0)
    axes.axhline(0, color="#000000", linewidth=0.8)
    axes.set_xticks(range(len(chart.ticks)), chart.ticks)
    _add_legend(axes)


def _add_legend(axes: Any) -> None:
    legend = axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
    for handle in legend.legend_handles:
        handle.set_alpha(1.0)  # also if the first bar is pale
