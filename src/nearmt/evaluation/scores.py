"""Scores with their signatures: BLEU and chrF by sacreBLEU, paired bootstrap, and test-set leakage."""

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
    """A system's corpus scores, and the p-value of its difference from each baseline."""

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
        raise SettingError("there are no outputs to score")
    score: float = BLEU(force=True).corpus_score(list(outputs), [list(references)]).score
    return score


def close_to_best(systems: Sequence[Sequence[str]], references: Sequence[str]) -> list[bool]:
    """For each system, True if its BLEU is within one standard error of the best.

    The standard error is that of the difference, by paired bootstrap. With few sentences the best score is mostly luck.
    """
    metric = BLEU(force=True)
    counts = np.array([[_counts(metric, *pair) for pair in zip(o, references, strict=True)] for o in systems])
    drawn = np.random.default_rng(1).multinomial(
        len(references), [1 / len(references)] * len(references), _NOISE_SAMPLES
    )
    scores = [_bleu_of(part.sum(axis=0)) for part in counts]
    resampled = np.array([[_bleu_of(row) for row in drawn @ part] for part in counts])  # (systems, samples)
    best = int(np.argmax(scores))
    errors = (resampled[best] - resampled).std(axis=1)
    return [scores[best] - score <= error for score, error in zip(scores, errors, strict=True)]


def _counts(metric: BLEU, output: str, reference: str) -> list[int]:
    """The statistics of a sentence that BLEU sums over the corpus: lengths, matches, n-grams."""
    score = metric.corpus_score([output], [[reference]])
    return [score.sys_len, score.ref_len, *score.counts, *score.totals]


def _bleu_of(counts: np.ndarray) -> float:
    sys_len, ref_len, *rest = counts.tolist()
    order = len(rest) // 2
    score: float = BLEU.compute_bleu(rest[:order], rest[order:], sys_len, ref_len, smooth_method="exp").score
    return score


def sentence_chrf(output: str, reference: str) -> float:
    """chrF of one sentence, for choosing examples, not for reporting."""
    score: float = CHRF().sentence_score(output, [reference]).score
    return score


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], baselines: Sequence[str] = ()
) -> Comparison:
    """Score every system, and test it against each of the baselines that is among the systems."""
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
            # With equal scores there is no difference to test; the bootstrap would give 0.001.
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
    """How many test pairs are in the store. They make retrieval look better than it is."""

    same_pair: int
    same_source: int


def leakage(pairs: Sequence[SentencePair], lookup: TextLookup) -> Leakage:
    """Count the test pairs that are in the store, and those whose source is."""
    return Leakage(
        same_pair=sum(len(lookup.same_pair(pair)) > 0 for pair in pairs),
        same_source=sum(len(lookup.same_source(pair.source)) > 0 for pair in pairs),
    )
