"""Writes the result of the demo as an HTML page."""

from html import escape
from pathlib import Path

from nearmt.datastore import replace_file
from nearmt.experiments.demo.run import CURVE_SENTENCES, CURVE_SIZES, DemoResult
from nearmt.experiments.report import BarChart, LineChart, Table, examples_html, figure, page


def write_report(result: DemoResult, path: Path) -> None:
    """Write the report page."""
    replace_file(path, _page(result).encode())


def score_table(result: DemoResult) -> Table:
    """Return the comparison of the methods."""
    rows = []
    for name, score in result.evaluation["comparison"]["scores"].items():
        tests = [f"{score['p_values'][b]:.3f}" if b in score["p_values"] else "–" for b in ("base", "vanilla")]
        changed = f"{result.evaluation['changed_shares'][name]:.0%}"
        rows.append((name, f"{score['bleu']:.2f}", f"{score['chrf']:.2f}", *tests, changed))
    return Table(("method", "BLEU", "chrF", "p vs base", "p vs vanilla", "changed"), tuple(rows))


def _page(result: DemoResult) -> str:
    comparison = result.evaluation["comparison"]
    sizes = [str(size) for size in CURVE_SIZES][: len(result.curve["adaptive"])]
    signature = " ".join(f"{key}={value}" for key, value in result.evaluation["signature"].items())
    curve = figure(
        LineChart(sizes, result.curve, "K: neighbours retrieved", "BLEU"),
        f"The first {CURVE_SENTENCES} test sentences. Vanilla keeps its tuned temperature and share; adaptive uses "
        "a network trained for each K.",
    )
    sizes_used = figure(
        BarChart(result.chosen_sizes, "neighbours used", "mean probability"),
        "How many neighbours Meta-k uses on the dev set; 0 is the model alone.",
    )
    body = f"""<h1>How a translation memory adapts a frozen model</h1>
<p>The memory has {result.info["sentences"]:,} sentence pairs, stored as {result.info["entries"]:,} decoder states.
None of the {comparison["num_sentences"]} test sentences is in it.</p>
{score_table(result).as_html()}
<p class="note">p: paired bootstrap on BLEU. “Changed” is the share of output tokens that the model alone would not have
chosen in the same context. BLEU {escape(comparison["bleu_signature"])} ·
chrF {escape(comparison["chrf_signature"])}</p>
<h2>How many neighbours?</h2>
{curve}
{sizes_used}
<h2>Sentences that gained most</h2>
{examples_html(result.examples)}
<footer><p>{escape(signature)}</p></footer>"""
    return page("nearmt demo", body)
