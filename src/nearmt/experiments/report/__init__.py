"""Building blocks of reports: charts, tables, examples and a self-contained HTML page."""

from nearmt.experiments.report.charts import (
    BarChart,
    Chart,
    GroupedBarChart,
    LineChart,
    can_draw,
    png_of,
    require_drawing,
    svg_of,
)
from nearmt.experiments.report.examples import (
    Change,
    Example,
    Reason,
    changed_words,
    pick_examples,
    pick_misled,
    reasons_for,
)
from nearmt.experiments.report.page import Table, examples_html, figure, page

__all__ = [
    "BarChart",
    "Change",
    "Chart",
    "Example",
    "GroupedBarChart",
    "LineChart",
    "Reason",
    "Table",
    "can_draw",
    "changed_words",
    "examples_html",
    "figure",
    "page",
    "pick_examples",
    "pick_misled",
    "png_of",
    "reasons_for",
    "require_drawing",
    "svg_of",
]
