"""The table of a comparison."""

from collections.abc import Mapping, Sequence
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.evaluation.scores import bleu, compare
from nearmt.experiments.alternatives.results import Results
from nearmt.experiments.alternatives.settings import FULL, LORA
from nearmt.experiments.alternatives.terms import Terms
from nearmt.experiments.report.page import Table

_HEADINGS = (
    "system", "BLEU", "chrF", "p", "terms right", "set-up, min", "ms a sentence", "other text", "a correction, s",
)  # fmt: skip
_KINDS = {FULL: "fine-tuned", LORA: "LoRA"}


class Report:
    """The systems that are finished, with what they are scored against."""

    def __init__(
        self, results: Results, test: Sequence[SentencePair], other: Sequence[SentencePair], terms: Terms, baseline: str
    ) -> None:
        found = {name: results.find(name) for name in results.names()}
        self.systems = {name: one for name, one in found.items() if isinstance(one, dict) and "milliseconds" in one}
        self.test, self.other, self.terms = [p.target for p in test], [p.target for p in other], terms
        self.baseline = baseline if baseline in self.systems else "base"  # the system that p is against

    def as_markdown(self) -> str:
        """One table of the systems that translated the whole test set, and one of all on the subset."""
        if "base" not in self.systems:
            return "Nothing is finished yet."
        everywhere = {name: s for name, s in self.systems.items() if None not in s["test"]}
        parts = [self.table(everywhere, range(len(self.test))).as_markdown()]
        for name, system in self.systems.items():
            if name not in everywhere:
                rows = [i for i, text in enumerate(system["test"]) if text is not None]
                parts.append(f"On {len(rows)} sentences of the test set:")
                parts.append(self.table({**everywhere, name: system}, rows).as_markdown())
        return "\n\n".join(parts)

    def table(self, systems: Mapping[str, Any], rows: Sequence[int]) -> Table:
        """The scores of some systems on these rows of the test set."""
        references = [self.test[i] for i in rows]
        outputs = {name: [system["test"][i] for i in rows] for name, system in systems.items()}
        scores = compare(outputs, references, [self.baseline]).scores
        lines = []
        for name in _ordered(systems):
            system, score = systems[name], scores[name]
            p = score.p_values.get(self.baseline)
            lines.append(
                (
                    title_of(name, system),
                    f"{score.bleu:.2f}",
                    f"{score.chrf:.2f}",
                    f"{p:.3f}" if p is not None and name != self.baseline else "–",
                    f"{self.terms.recall(outputs[name], references):.1%}".replace("%", " %"),
                    f"{system['setup'] / 60:.1f}",
                    f"{system['milliseconds']:.1f}",
                    self._change(system),
                    "never" if system["correction"] is None else f"{system['correction']:.2f}",
                )
            )
        return Table(_HEADINGS, tuple(lines))

    def _change(self, system: Mapping[str, Any]) -> str:
        """BLEU on text of another domain and its change against the model alone, on the translated sentences."""
        rows = [i for i, text in enumerate(system["other"]) if text is not None]
        references = [self.other[i] for i in rows]
        found, base = (bleu([one["other"][i] for i in rows], references) for one in (system, self.systems["base"]))
        return f"{found:.2f} ({found - base:+.2f})".replace("-", "−")


def title_of(name: str, system: Mapping[str, Any]) -> str:
    """How the table names a system."""
    details = system["details"]
    if name == "copied-or-translated":
        return f"best match from {details['threshold']} %, otherwise the model"
    kind, _, rest = name.partition("-")
    if kind in _KINDS:
        factor, _, memory = rest.partition("-")
        return f"{_KINDS[kind]}, ×{factor}" + (f", with a memory ({details['method']})" if memory else "")
    if kind == "memory":
        return f"memory, {rest}"
    return {"base": "the model alone", "copied": "best match copied", "per-sentence": "adapted to each sentence"}[name]


def _ordered(systems: Mapping[str, Any]) -> list[str]:
    places = ("base", "copied", "copied-or-translated", "per-sentence", FULL, LORA, "memory")
    kinds = {name: name if name in places else name.partition("-")[0] for name in systems}
    return sorted(systems, key=lambda name: (name.endswith("-memory"), places.index(kinds[name])))
