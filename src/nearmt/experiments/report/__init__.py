"""What reports are made of: charts, tables, examples and a page that needs nothing from elsewhere."""

from nearmt.experiments.report.charts import BarChart, Chart, LineChart, standalone
from nearmt.experiments.report.examples import Change, Example, changed_words, pick_examples
from nearmt.experiments.report.page import Table, examples_html, figure, page

__all__ = [
    "BarChart",
    "Change",
    "Chart",
    "Example",
    "LineChart",
    "Table",
    "changed_words",
    "examples_html",
    "figure",
    "page",
    "pick_examples",
    "standalone",
]
