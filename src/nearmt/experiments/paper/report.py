"""Writes the results as JSON, as Markdown with figures in SVG and PNG, and as one self-contained HTML page."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from nearmt import __version__
from nearmt.datastore import replace_file, storage_errors
from nearmt.evaluation.saved import write_systems
from nearmt.evaluation.scores import signatures
from nearmt.experiments.paper.config import PaperConfig, shown_model
from nearmt.experiments.paper.lab import Lab
from nearmt.experiments.paper.sections import OUTPUTS, Section, file_name
from nearmt.experiments.report import Example, examples_html, figure, page, png_of, reasons_for, svg_of


def write_reports(config: PaperConfig, lab: Lab, sections: Sequence[Section], out: Path) -> None:
    """Write results.json, report.md, report.html and the figures, each as figures/*.svg and figures/*.png."""
    with storage_errors(out):
        (out / "figures").mkdir(exist_ok=True)
        for section in sections:
            for drawn in section.figures:
                path = out / "figures" / file_name(drawn.name)
                replace_file(path.with_suffix(".svg"), svg_of(drawn.chart).encode())
                replace_file(path.with_suffix(".png"), png_of(drawn.chart))
            for found in section.outputs:
                write_systems(
                    out / OUTPUTS / file_name(found.domain.lower()), found.systems, found.pairs, overwrite=True
                )
        about = _about(config, lab)
        content = {"about": about, "sections": {section.name: section.data for section in sections}}
        replace_file(out / "results.json", json.dumps(content, ensure_ascii=False, indent=1).encode())
        replace_file(out / "report.md", _markdown(config, sections, about).encode())
        replace_file(out / "report.html", _html(config, sections, about).encode())


def _about(config: PaperConfig, lab: Lab) -> dict[str, Any]:
    identity = lab.model.identity
    return {
        "nearmt": __version__,
        "model": {
            "name": shown_model(identity.name),
            "architecture": identity.architecture,
            "width": identity.width,
            "weights": identity.weights[:12],
        },
        "domains": {
            domain.name: {"test_sentences": len(domain.test), "longer_than_the_model_takes": domain.test.num_skipped}
            for domain in lab.domains.values()
        },
        "signatures": signatures(),
        "config": config.as_dict(),
    }


def _setting_lines(config: PaperConfig, about: dict[str, Any]) -> list[str]:
    model = about["model"]
    tests = ", ".join(f"{name} {found['test_sentences']}" for name, found in about["domains"].items())
    protocol = (
        "as in the paper: trained and selected on all of dev, raw features, fixed T"
        if config.paper_protocol
        else "blocks of dev sentences held out for selection; vanilla's k, T and share chosen there by BLEU, "
        "adaptive's T by likelihood among those within a standard error of the best BLEU"
    )
    return [
        f"Model: {model['name']} ({model['architecture']}, width {model['width']}, weights {model['weights']}).",
        f"Test sentences: {tests}. Decoding: beam {config.beam}, length penalty {config.length_penalty}.",
        f"Protocol: {protocol}. Seeds: {', '.join(map(str, config.seeds))}; at most {config.steps:,} steps.",
        f"nearmt {about['nearmt']}; results.json has every number with its settings.",
    ]


def _signature_lines() -> list[str]:
    names = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER"}
    return [f"{names[metric]} {signature}" for metric, signature in signatures().items()]


def _markdown(config: PaperConfig, sections: Sequence[Section], about: dict[str, Any]) -> str:
    lines = [f"# {config.title}", "", *_setting_lines(config, about)]
    lines += ["", *(f"    {line}" for line in _signature_lines())]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.text]
        for heading, table in section.tables:
            lines += ["", *([f"**{heading}**", ""] if heading else []), table.as_markdown()]
        if section.notes:
            lines += ["", section.notes]
        for drawn in section.figures:
            lines += ["", f"![{drawn.caption}](figures/{file_name(drawn.name)}.svg)"]
        for example in section.examples:
            lines += ["", *_example_lines(example)]
    return "\n".join(lines) + "\n"


def _example_lines(example: Example) -> list[str]:
    lines = [f"    source     {example.source}", f"    base       {example.base}"]
    lines += [f"    adaptive   {example.adaptive}", f"    reference  {example.reference}"]
    for reason in reasons_for(example.changes):
        lines.append(f"      {reason.words} ← {reason.segment_source} → {reason.segment_target}")
    return lines


def _html(config: PaperConfig, sections: Sequence[Section], about: dict[str, Any]) -> str:
    parts = [f"<h1>{escape(config.title)}</h1>"]
    parts += [f"<p>{escape(line)}</p>" for line in _setting_lines(config, about)]
    for section in sections:
        parts.append(f"<h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>")
        for heading, table in section.tables:
            parts.append((f"<h3>{escape(heading)}</h3>" if heading else "") + table.as_html())
        if section.notes:
            parts.append(f'<p class="note">{escape(section.notes)}</p>')
        parts += [figure(drawn.chart, drawn.caption) for drawn in section.figures]
        parts.append(examples_html(section.examples))
    parts.append(f"<footer><p>{'<br>'.join(map(escape, _signature_lines()))}</p></footer>")
    return page(config.title, "\n".join(parts))
