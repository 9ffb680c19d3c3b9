"""The same charts as PNG, for slides and papers. Needs matplotlib, which comes with the extra `paper`."""

from importlib.util import find_spec
from io import BytesIO
from typing import Any

from nearmt.experiments.report.charts import COLORS, Chart, LineChart

_INCHES = (5.6, 3.0)
_DOTS_PER_INCH = 200


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def png_of(chart: Chart) -> bytes:
    """A picture of 1,120 × 600 dots."""
    from matplotlib.figure import Figure

    figure = Figure(_INCHES, _DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    if isinstance(chart, LineChart):
        _draw_lines(axes, chart)
    else:
        axes.bar(list(chart.bars), list(chart.bars.values()), color=COLORS[2], width=0.7)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.grid(axis="y", color="#ddd")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    content = BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})  # equal charts give equal files
    return content.getvalue()


def _draw_lines(axes: Any, chart: LineChart) -> None:
    for number, (name, line) in enumerate(chart.series.items()):
        axes.plot(range(len(line)), line, "o-", markersize=4, color=COLORS[number % len(COLORS)], label=name)
    axes.set_xticks(range(len(chart.ticks)), chart.ticks)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize="small")
