"""A self-contained HTML page: style, tables, charts and examples. It loads nothing from elsewhere."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from nearmt.experiments.report.charts import GRID_COLOR, Chart, svg_of
from nearmt.experiments.report.examples import Example, reasons_for

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --soft: #666; --line: #ddd; --mark: #d6f0df; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #9a9a9a; --line: #3a3a3a; --mark: #1f4a31; --paper: #161616; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .3rem .5rem; text-align: right; }
td { white-space: nowrap; } th:first-child, td:first-child { text-align: left; white-space: normal; }
tr { border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; }
.note, figcaption, footer { color: var(--soft); font-size: .85rem; } figure { margin: 1rem 0; }
.note, footer { overflow-wrap: anywhere; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); }
mark { background: var(--mark); color: inherit; border-radius: 3px; padding: 0 .15em; }
dl { display: grid; grid-template-columns: 6.5rem 1fr; gap: .2rem .8rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; }
article { border-top: 1px solid var(--line); padding: .8rem 0; } ul { margin: .3rem 0; padding-left: 1.1rem; }
"""


@dataclass(frozen=True)
class Table:
    """A table of text. The first column names the row."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def as_html(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.headings)
        rows = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows]
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        return f'<div class="wide">{table}</div>'

    def as_markdown(self) -> str:
        lines = [self.headings, ("---", *["---:"] * (len(self.headings) - 1)), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page(title: str, body: str, lang: str = "en") -> str:
    """Return a complete HTML document with this body."""
    return f"""<!doctype html>
<html lang="{lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
{body}
</body></html>
"""


def figure(chart: Chart, caption: str) -> str:
    """Return a chart with its caption. The chart follows the page's light or dark mode."""
    drawing = svg_of(chart)
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r'<g id="[\w.]+">', "<g>", drawing)  # matplotlib's names recur in every chart
    for color, themed in (("#ffffff", "none"), ("#000000", "var(--ink)"), (GRID_COLOR, "var(--line)")):
        drawing = drawing.replace(color, themed)
    label = escape(f"{chart.y_label} by {chart.x_label}")
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def examples_html(examples: Sequence[Example]) -> str:
    """Return translations without and with the memory, with the changed words highlighted."""
    return "".join(_example(example) for example in examples)


def _example(example: Example) -> str:
    marked, position = [], 0
    for change in example.changes:
        marked.append(escape(example.adaptive[position : change.start]))
        marked.append(f"<mark>{escape(example.adaptive[change.start : change.end])}</mark>")
        position = change.end
    marked.append(escape(example.adaptive[position:]))
    causes = "".join(
        f"<li><mark>{escape(reason.words)}</mark> from “{escape(reason.segment_source)}” → "
        f"“{escape(reason.segment_target)}”</li>"
        for reason in reasons_for(example.changes)
    )
    return f"""<article><dl><dt>source</dt><dd>{escape(example.source)}</dd>
<dt>base</dt><dd>{escape(example.base)}</dd><dt>adaptive</dt><dd>{"".join(marked)}</dd>
<dt>reference</dt><dd>{escape(example.reference)}</dd></dl><ul class="note">{causes}</ul></article>
"""
