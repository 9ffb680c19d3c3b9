"""What reports are made of: charts, tables, examples and a page that needs nothing from elsewhere."""

from nearmt.report.charts import bar_chart, line_chart, standalone
from nearmt.report.examples import Change, Example, changed_words, pick_examples
from nearmt.report.page import Table, examples_html, figure, page

__all__ = [
    "Change",
    "Example",
    "Table",
    "bar_chart",
    "changed_words",
    "examples_html",
    "figure",
    "line_chart",
    "page",
    "pick_examples",
    "standalone",
]
