"""Copying the best match of the memory: always, or above a threshold, with the model for the rest."""

import time
from dataclasses import asdict
from typing import Any

from nearmt.decoding.decoder import Decoder
from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
from nearmt.evaluation.scores import bleu
from nearmt.experiments.alternatives.settings import System
from nearmt.experiments.alternatives.workbench import Workbench

Found = list[tuple[int, str]]  # for each sentence, the percentage of its best match and its target


def copied(bench: Workbench, correction: float) -> dict[str, Any]:
    """The best match of every sentence, however bad it is."""
    test, milliseconds = _best_matches(bench, bench.test)
    other, _ = _best_matches(bench, bench.other)
    return asdict(System(_targets(test), _targets(other), 0.0, milliseconds, correction))


def copied_or_translated(bench: Workbench, base: dict[str, Any], correction: float) -> dict[str, Any]:
    """The best match above the threshold that is best on the dev set, and the model below it."""
    began = time.process_time()
    dev, _ = _best_matches(bench, bench.dev)
    translated = translate_held_out(Decoder(bench.model), bench.dev).texts
    scores = {
        threshold: bleu(_above(dev, translated, threshold), bench.dev.references)
        for threshold in (*bench.settings.thresholds, 101)
    }
    threshold = max(scores, key=lambda one: (scores[one], one))
    setup = time.process_time() - began
    test, milliseconds = _best_matches(bench, bench.test)
    other, _ = _best_matches(bench, bench.other)
    share = sum(percent < threshold for percent, _ in test) / len(test)
    return asdict(
        System(
            _above(test, base["test"], threshold),
            _above(other, base["other"], threshold),
            setup,
            milliseconds + share * base["milliseconds"],
            correction,
            {"threshold": threshold, "copied": 1 - share, "dev": scores},
        )
    )


def _best_matches(bench: Workbench, texts: HeldOutSet) -> tuple[Found, float]:
    """The best matches, and the milliseconds that finding one takes."""
    bench.translator.matches(texts.texts[0], 1, 1)  # opens the index
    began = time.process_time()
    matches = [bench.translator.matches(text, 1, 1) for text in texts.texts]
    milliseconds = 1000 * (time.process_time() - began) / len(texts)
    return [(found[0].percent, found[0].target) if found else (0, "") for found in matches], milliseconds


def _targets(found: Found) -> list[str]:
    return [target for _, target in found]


def _above(found: Found, otherwise: list[str], threshold: int) -> list[str]:
    pairs = zip(found, otherwise, strict=True)
    return [target if percent >= threshold else text for (percent, target), text in pairs]
