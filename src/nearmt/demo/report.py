"""The demo's result as one page that needs nothing from elsewhere."""

from html import escape
from pathlib import Path
from typing import Any

from nearmt.demo.charts import bar_chart, line_chart
from nearmt.demo.run import CURVE_SENTENCES, CURVE_SIZES, DemoResult, Example
from nearmt.store import replace_file

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1c1c; --soft: #666; --line: #ddd; --mark: #d6f0df; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #9a9a9a; --line: #3a3a3a; --mark: #1f4a31; --paper: #161616; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .3rem .6rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } tr { border-bottom: 1px solid var(--line); }
.note, figcaption, footer { color: var(--soft); font-size: .85rem; } figure { margin: 1rem 0; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .axis { stroke: var(--ink); fill: none; } svg .grid { stroke: var(--line); fill: none; }
mark { background: var(--mark); color: inherit; border-radius: 3px; padding: 0 .15em; }
dl { display: grid; grid-template-columns: 6.5rem 1fr; gap: .2rem .8rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; }
article { border-top: 1px solid var(--line); padding: .8rem 0; } ul { margin: .3rem 0; padding-left: 1.1rem; }
"""


def write_report(result: DemoResult, path: Path) -> None:
    """Write the page."""
    replace_file(path, _page(result).encode())


def _page(result: DemoResult) -> str:
    comparison = result.evaluation["comparison"]
    sizes = [str(size) for size in CURVE_SIZES][: len(result.curve["adaptive"])]
    signature = " ".join(f"{key}={value}" for key, value in result.evaluation["signature"].items())
    info = result.info
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>nearmt demo</title><style>{_STYLE}</style></head><body>
<h1>What a translation memory teaches a frozen model</h1>
<p>{info["sentences"]:,} pairs of memory, {info["entries"]:,} stored states;
{comparison["num_sentences"]} test sentences, none of which stands in the memory.</p>
{_table(result.evaluation)}
<p class="note">p: paired bootstrap on BLEU. “Changed” is the share of output tokens that the model alone would not have
chosen after the same words. BLEU {escape(comparison["bleu_signature"])} ·
chrF {escape(comparison["chrf_signature"])}</p>
<h2>How many neighbours?</h2>
<figure>{line_chart(sizes, result.curve, "K: neighbours looked at", "BLEU")}
<figcaption>The first {CURVE_SENTENCES} test sentences. Vanilla keeps its tuned temperature and share; adaptive has a
network trained for each K.</figcaption></figure>
<figure>{bar_chart(result.chosen_sizes, "neighbours believed", "mean probability")}
<figcaption>What Meta-k decides on the dev set; 0 is the model alone.</figcaption></figure>
<h2>Three sentences that gained most</h2>
{"".join(_example(example) for example in result.examples)}
<footer><p>{escape(signature)}</p></footer>
</body></html>
"""


def _table(evaluation: dict[str, Any]) -> str:
    rows = []
    for name, score in evaluation["comparison"]["scores"].items():
        tests = [f"{score['p_values'][b]:.3f}" if b in score["p_values"] else "–" for b in ("base", "vanilla")]
        changed = f"{evaluation['changed_shares'][name]:.0%}"
        cells = [name, f"{score['bleu']:.2f}", f"{score['chrf']:.2f}", *tests, changed]
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("method", "BLEU", "chrF", "p vs base", "p vs vanilla", "changed"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _example(example: Example) -> str:
    marked, at = [], 0
    for change in example.changes:
        marked.append(escape(example.adaptive[at : change.start]))
        marked.append(f"<mark>{escape(example.adaptive[change.start : change.end])}</mark>")
        at = change.end
    marked.append(escape(example.adaptive[at:]))
    causes = "".join(
        f"<li><mark>{escape(change.words)}</mark> from “{escape(change.segment_source)}” → "
        f"“{escape(change.segment_target)}”</li>"
        for change in example.changes
    )
    return f"""<article><dl><dt>source</dt><dd lang="de">{escape(example.source)}</dd>
<dt>base</dt><dd>{escape(example.base)}</dd><dt>adaptive</dt><dd>{"".join(marked)}</dd>
<dt>reference</dt><dd>{escape(example.reference)}</dd></dl><ul class="note">{causes}</ul></article>
"""
