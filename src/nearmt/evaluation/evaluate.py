"""Comparing methods on one test set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.datastore import FLAT, TextLookup
from nearmt.decoding.decoder import Decoder
from nearmt.decoding.evidence import share_not_first_choice
from nearmt.errors import SettingError
from nearmt.evaluation.comet import read_comet
from nearmt.evaluation.held_out import HeldOutSet, translate_held_out
from nearmt.evaluation.matches import MatchBand, best_matches, match_bands
from nearmt.evaluation.scores import Comparison, Leakage, Score, compare, leakage
from nearmt.methods.registry import (
    METHODS,
    TRAINED,
    MethodRequest,
    describe_method,
    make_method,
)
from nearmt.progress import Progress, silent
from nearmt.translator import Translator

BASELINES = ("base", "vanilla")


@dataclass(frozen=True)
class Evaluation:
    """The scores of every method with their settings, and how similar the test set is to the store."""

    comparison: Comparison
    changed_shares: dict[str, float]  # share of output tokens that are not the model's first choice
    settings: dict[str, dict[str, Any]]
    leakage: Leakage
    matches: list[MatchBand]  # the scores by the similarity of a source to the most similar one in the store
    num_skipped: int  # pairs too long for the model
    pairs: list[SentencePair]  # the others
    outputs: dict[str, list[str]]
    signature: dict[str, Any]

    def with_comet(self, path: Path) -> "Evaluation":
        """Add the COMET scores of these outputs, read from a file that comet-score wrote."""
        comet = read_comet(path, self.outputs)
        scores = {name: replace(score, comet=comet.get(name)) for name, score in self.comparison.scores.items()}
        return replace(self, comparison=replace(self.comparison, scores=scores))

    @classmethod
    def from_dict(
        cls, content: dict[str, Any], outputs: dict[str, list[str]], pairs: list[SentencePair]
    ) -> "Evaluation":
        comparison = content["comparison"]
        scores = {name: Score(**score) for name, score in comparison["scores"].items()}
        parts = {
            "comparison": Comparison(**{**comparison, "scores": scores}),
            "leakage": Leakage(**content["leakage"]),
            "matches": [MatchBand.from_dict(band) for band in content["matches"]],
        }
        return cls(**{**content, **parts}, outputs=outputs, pairs=pairs)

    def as_dict(self) -> dict[str, Any]:
        content = asdict(self)
        del content["outputs"], content["pairs"]
        content["matches"] = [band.as_dict() for band in self.matches]
        return content


def evaluate(
    translator: Translator,
    pairs: Sequence[SentencePair],
    methods: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Translate the test set with every method and compare; by default, the baselines and all trained methods."""
    if methods is None:
        networks = translator.snapshot.manifest.networks
        methods = (*BASELINES, "uniform", *(name for name in TRAINED if name in networks))
    unknown = set(methods) - set(METHODS)
    if unknown:
        raise SettingError(f"unknown method {', '.join(sorted(unknown))}: choose from {', '.join(METHODS)}")
    model, snapshot = translator.model, translator.snapshot
    if snapshot.manifest.adaptation is None and set(methods) != {"base"}:
        raise SettingError(f"{snapshot.folder} is not trained: run nearmt train {snapshot.folder}")
    retriever = translator.readers[0].retriever
    made = {name: make_method(MethodRequest(name), snapshot, retriever, model.engine) for name in methods}
    test = HeldOutSet.from_pairs(model, pairs)
    outputs: dict[str, list[str]] = {}
    changed: dict[str, float] = {}
    settings: dict[str, dict[str, Any]] = {}
    total = len(test) * len(methods)
    for number, (name, method) in enumerate(made.items()):
        decoder = Decoder(model, translator.retriever if method else None, method, translator.decoding)
        before = number * len(test)
        scored = translate_held_out(
            decoder,
            test,
            lambda done, before=before: progress("translating", before + done, total),  # type: ignore[misc]
        )
        outputs[name] = scored.texts
        changed[name] = share_not_first_choice(decoder, test.sources, [best.token_ids for best in scored.hypotheses])
        settings[name] = describe_method(method)
    progress("comparing", 0, None)
    total_stored = snapshot.manifest.num_sentences
    matches = best_matches(
        test.texts,
        (pair.source for pair in snapshot.texts()),
        lambda done: progress("matching", done, total_stored),
    )
    return Evaluation(
        comparison=compare(outputs, test.references, [name for name in BASELINES if name in methods]),
        changed_shares=changed,
        settings=settings,
        leakage=leakage(test.pairs, TextLookup(snapshot)),
        matches=match_bands(matches, outputs, test.references),
        num_skipped=len(pairs) - len(test),
        pairs=test.pairs,
        outputs=outputs,
        signature=signature(translator),
    )


def signature(translator: Translator) -> dict[str, Any]:
    """Everything that the scores depend on besides the methods."""
    manifest, beam = translator.snapshot.manifest, translator.decoding.beam
    index = manifest.index
    return {
        "model": translator.model.identity.name,
        "weights": translator.model.identity.weights[:12],
        "languages": str(manifest.languages),
        "entries": manifest.num_entries,
        "sentences": manifest.num_sentences,
        "keys": manifest.key_type,
        "index": index.factory if index is not None else FLAT,
        "num_probes": index.num_probes if index is not None else None,
        "reranked": index.reranked if index is not None else None,
        "beam": beam.num_beams,
        "length_penalty": beam.length_penalty,
        "early_stopping": beam.early_stopping,
    }
