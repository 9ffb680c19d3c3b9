"""Scores with their signatures: BLEU and chrF by sacreBLEU, paired bootstrap, and what leaks from test to store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from nearmt.corpus import SentencePair
from nearmt.datastore import TextLookup
from nearmt.errors import SettingError

_SAMPLES = 1000
_NOISE_SAMPLES = 300


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


def as_good_as_the_best(systems: Sequence[Sequence[str]], references: Sequence[str]) -> list[bool]:
    """Which systems' BLEU is within one standard error of the best one's.

    The error is that of the difference, by paired bootstrap: with few sentences, the highest score is mostly luck.
    """
    metric = BLEU(force=True)
    counts = np.array([[_counts(metric, *pair) for pair in zip(o, references, strict=True)] for o in systems])
    drawn = np.random.default_rng(1).multinomial(
        len(references), [1 / len(references)] * len(references), _NOISE_SAMPLES
    )
    own = [_bleu_of(part.sum(axis=0)) for part in counts]
    resampled = np.array([[_bleu_of(row) for row in drawn @ part] for part in counts])  # (systems, samples)
    best = int(np.argmax(own))
    errors = (resampled[best] - resampled).std(axis=1)
    return [own[best] - score <= error for score, error in zip(own, errors, strict=True)]


def _counts(metric: BLEU, output: str, reference: str) -> list[int]:
    """What BLEU adds up over sentences: lengths, matches, n-grams."""
    score = metric.corpus_score([output], [[reference]])
    return [score.sys_len, score.ref_len, *score.counts, *score.totals]


def _bleu_of(counts: np.ndarray) -> float:
    sys_len, ref_len, *rest = counts.tolist()
    order = len(rest) // 2
    score: float = BLEU.compute_bleu(rest[:order], rest[order:], sys_len, ref_len, smooth_method="exp").score
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
