"""Scores with their signatures: BLEU, chrF and TER by sacreBLEU, paired bootstrap, and test-set leakage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
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
    ter: float  # an error rate: lower is better
    p_values: dict[str, float]  # baseline → p of the paired bootstrap on BLEU
    comet: float | None = None  # from a file that comet-score wrote


@dataclass(frozen=True)
class Comparison:
    """Several systems on one test set."""

    scores: dict[str, Score]
    bleu_signature: str
    chrf_signature: str
    ter_signature: str
    num_sentences: int


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, case-sensitive, against raw references."""
    if not outputs:
        raise SettingError("there are no outputs to score")
    score: float = BLEU(force=True).corpus_score(list(outputs), [list(references)]).score
    return score


def chrf(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Corpus chrF."""
    score: float = CHRF().corpus_score(list(outputs), [list(references)]).score
    return score


class EditRates:
    """Corpus TER of several systems on one test set.

    TER takes a thousand times as long as BLEU for long sentences, and systems often agree on a sentence, so each
    different output is compared only once.
    """

    def __init__(self, references: Sequence[str]) -> None:
        self.references = list(references)
        self._metric = TER()
        self._known: dict[tuple[str, str], tuple[float, float]] = {}

    def ter(self, outputs: Sequence[str]) -> float:
        """The number of edits in percent of the words of the references."""
        counts = [self._counts(*pair) for pair in zip(outputs, self.references, strict=True)]
        edits, words = (sum(column) for column in zip(*counts, strict=True))
        return 100 * edits / words if words else 100.0 * bool(edits)

    def _counts(self, output: str, reference: str) -> tuple[float, float]:
        found = self._known.get((output, reference))
        if found is None:
            score = self._metric.sentence_score(output, [reference])
            found = self._known[output, reference] = (score.num_edits, score.ref_length)
        return found


def signatures() -> dict[str, str]:
    """The signature of each metric."""
    metrics = {"bleu": BLEU(force=True), "chrf": CHRF(), "ter": TER()}
    for metric in metrics.values():
        metric.corpus_score(["a"], [["a"]])  # a signature names the number of references
    return {name: str(metric.get_signature()) for name, metric in metrics.items()}


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
    edits = EditRates(references)
    p_values: dict[str, dict[str, float]] = {name: {} for name in systems}
    for baseline in baselines:
        if baseline in systems:
            for name, p in bootstrap(systems, references, baseline).items():
                p_values[name][baseline] = p
    scores = {
        name: Score(bleu(outputs, references), chrf(outputs, references), edits.ter(outputs), p_values[name])
        for name, outputs in systems.items()
    }
    signed = signatures()
    return Comparison(scores, signed["bleu"], signed["chrf"], signed["ter"], len(references))


def bootstrap(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], baseline: str = "baseline"
) -> dict[str, float]:
    """The p-value of each other system's difference in BLEU from the baseline, by sacreBLEU's paired bootstrap."""
    others = [name for name in systems if name != baseline]
    if not others:
        return {}
    named = [(name, list(systems[name])) for name in (baseline, *others)]
    test = PairedTest(named, {"BLEU": BLEU(references=[list(references)], force=True)}, None, "bs", _SAMPLES)
    found = test()[1]["BLEU"]
    # With equal scores there is no difference to test; the bootstrap would give 0.001.
    return {
        name: 1.0 if result.score == found[0].score else float(result.p_value)
        for name, result in zip(others, found[1:], strict=True)
    }


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
