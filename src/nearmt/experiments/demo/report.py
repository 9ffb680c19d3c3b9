"""Writes the result of the demo as an HTML page."""

from html import escape
from pathlib import Path

from nearmt.datastore import replace_file
from nearmt.evaluation.matches import MatchBand
from nearmt.experiments.demo.run import DemoResult
from nearmt.experiments.report import BarChart, Table, examples_html, figure, page


def write_report(result: DemoResult, path: Path) -> None:
    """Write the report page."""
    replace_file(path, _page(result).encode())


def score_table(result: DemoResult) -> Table:
    """Return the comparison of the methods."""
    rows = []
    for name, score in result.evaluation["comparison"]["scores"].items():
        tests = [f"{score['p_values'][b]:.3f}" if b in score["p_values"] else "–" for b in ("base", "vanilla")]
        changed = f"{result.evaluation['changed_shares'][name]:.0%}"
        rows.append((name, *(f"{score[metric]:.2f}" for metric in ("bleu", "chrf", "ter")), *tests, changed))
    return Table(("method", "BLEU", "chrF", "TER", "p vs base", "p vs vanilla", "changed"), tuple(rows))


def match_table(result: DemoResult) -> Table:
    """Return the scores of the model alone and with the memory, by similarity to the memory."""
    rows = [
        (b.label, f"{b.sentences}", f"{b.chrf['base']:.1f}", f"{b.chrf['adaptive']:.1f}", f"{_gain(b):+.1f}")
        for b in result.matches
    ]
    return Table(("best match", "sentences", "base chrF", "adaptive chrF", "gain"), tuple(rows))


def _gain(band: MatchBand) -> float:
    return band.gains("chrf")["adaptive"]


def _page(result: DemoResult) -> str:
    comparison = result.evaluation["comparison"]
    settings = {**result.evaluation["signature"], "model": Path(result.evaluation["signature"]["model"]).name}
    signature = " ".join(f"{key}={value}" for key, value in settings.items())
    gains = figure(
        BarChart({band.label: _gain(band) for band in result.matches}, "best match in the memory", "gain in chrF"),
        "How much better the translations are with the memory than without it, by the similarity of a sentence to the "
        "most similar one in the memory.",
    )
    sizes_used = figure(
        BarChart(result.chosen_sizes, "neighbours used", "share of the tokens"),
        "How many stored tokens Meta-k trusts for one token of the translation, on the dev set. 0 means "
        "that it leaves the model alone.",
    )
    misled = f"<h2>A sentence that the memory made worse</h2>\n{examples_html(result.misled)}" if result.misled else ""
    body = f"""<h1>How a translation memory adapts a frozen model</h1>
<p>The model is not trained any further. The memory has {result.info["sentences"]:,} sentence pairs, stored as
{result.info["entries"]:,} decoder states, one for each target token. None of the {comparison["num_sentences"]} test
sentences is in it.</p>
{score_table(result).as_html()}
<p class="note">base: the model alone. vanilla: kNN-MT with one fixed share for the memory. adaptive: a small network
decides for each token how much of the memory to use. p: paired bootstrap on BLEU. “Changed” is the share of output
tokens that the model alone would not have chosen in the same context. BLEU {escape(comparison["bleu_signature"])} ·
chrF {escape(comparison["chrf_signature"])} · TER, where lower is better, {escape(comparison["ter_signature"])}</p>
<h2>When does it help?</h2>
{gains}
{match_table(result).as_html()}
<p class="note">The best match is the similarity of the source to the nearest source in the memory, by words, as CAT
tools show it.</p>
<h2>How many neighbours does it trust?</h2>
{sizes_used}
<h2>Sentences that gained most</h2>
{examples_html(result.examples)}
{misled}
<footer><p>{escape(result.about)}</p><p>{escape(signature)}</p></footer>"""
    return page("nearmt demo", body)
