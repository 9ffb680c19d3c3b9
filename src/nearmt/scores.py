"""Scores with their signatures: BLEU and chrF by sacreBLEU, paired bootstrap, and what leaks from test to store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from nearmt.corpus import SentencePair
from nearmt.errors import SettingError
from nearmt.store import TextLookup

_SAMPLES = 1000


@dataclass(frozen=True)
class Score:
    """A system's corpus scores, and how likely its difference from each baseline is chance."""

    bleu: float
    chrf: float
    p_values: dict[str, float]  # baseline → p of the paired bootstrap on BLEU


@dataclass(frozen=True)
class Comparison:
    """Several systems on one test set."""

    scores: dict[str, Score]
    bleu_signature: str
    chrf_signature: str
    num_sentences: int


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, case-sensitive, against raw references."""
    if not outputs:
        raise SettingError("there is nothing to score")
    score: float = BLEU(force=True).corpus_score(list(outputs), [list(references)]).score
    return score


def sentence_chrf(output: str, reference: str) -> float:
    """chrF of one sentence: for picking examples, not for reporting."""
    score: float = CHRF().sentence_score(output, [reference]).score
    return score


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], baselines: Sequence[str] = ()
) -> Comparison:
    """Score every system; test each against each baseline that is there."""
    bleu_metric, chrf_metric = BLEU(force=True), CHRF()
    scored = {
        name: (
            bleu_metric.corpus_score(list(outputs), [list(references)]).score,
            chrf_metric.corpus_score(list(outputs), [list(references)]).score,
        )
        for name, outputs in systems.items()
    }
    p_values: dict[str, dict[str, float]] = {name: {} for name in systems}
    for baseline in baselines:
        if baseline not in systems or len(systems) < 2:
            continue
        ordered = [baseline, *(name for name in systems if name != baseline)]
        named = [(name, list(systems[name])) for name in ordered]
        test = PairedTest(named, {"BLEU": BLEU(references=[list(references)], force=True)}, None, "bs", _SAMPLES)
        for name, result in zip(ordered[1:], test()[1]["BLEU"][1:], strict=True):
            # Where the scores are the same there is nothing to explain by chance; the bootstrap would say 0.001.
            is_same = scored[name][0] == scored[baseline][0]
            p_values[name][baseline] = 1.0 if is_same else float(result.p_value)
    return Comparison(
        scores={name: Score(float(b), float(c), p_values[name]) for name, (b, c) in scored.items()},
        bleu_signature=str(bleu_metric.get_signature()),
        chrf_signature=str(chrf_metric.get_signature()),
        num_sentences=len(references),
    )


@dataclass(frozen=True)
class Leakage:
    """How many test pairs the store already knows: they make retrieval look better than it is."""

    same_pair: int
    same_source: int


def leakage(pairs: Sequence[SentencePair], lookup: TextLookup) -> Leakage:
    """Count test pairs that stand in the store, whole or by their source."""
    return Leakage(
        same_pair=sum(len(lookup.same_pair(pair)) > 0 for pair in pairs),
        same_source=sum(len(lookup.same_source(pair.source)) > 0 for pair in pairs),
    )
