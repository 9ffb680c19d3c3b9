"""Methods compared on one test set, in one table with everything that makes it readable."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nearmt.corpus import SentencePair
from nearmt.datastore import FLAT, TextLookup
from nearmt.decoding.decoder import Decoder
from nearmt.decoding.evidence import share_not_first_choice
from nearmt.errors import SettingError
from nearmt.evaluation.scores import Comparison, Leakage, compare, leakage
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
    """The scores of every method, what was compared with what, and how far the test set can be trusted."""

    comparison: Comparison
    changed_shares: dict[str, float]  # output tokens that are not the model's own first choice
    settings: dict[str, dict[str, Any]]
    leakage: Leakage
    num_skipped: int  # pairs longer than the model takes
    outputs: dict[str, list[str]]
    signature: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        content = asdict(self)
        del content["outputs"]
        return content


def evaluate(
    translator: Translator,
    pairs: Sequence[SentencePair],
    methods: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Translate the test set with every method and compare; without `methods`, the baselines and what was trained."""
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
    sources = model.tokenize_sources([pair.source for pair in pairs])
    kept = [i for i in range(len(pairs)) if len(sources[i]) <= model.max_source_tokens]
    if not kept:
        raise SettingError("the test set has no pair that the model can translate")
    references, sources = [pairs[i].target for i in kept], [sources[i] for i in kept]
    outputs: dict[str, list[str]] = {}
    changed: dict[str, float] = {}
    settings: dict[str, dict[str, Any]] = {}
    total = len(sources) * len(methods)
    for number, (name, method) in enumerate(made.items()):
        decoder = Decoder(model, translator.retriever if method else None, method, translator.decoding)
        before = number * len(sources)
        hypotheses = decoder.decode(
            sources,
            on_done=lambda done, at=before: progress("translating", at + done, total),  # type: ignore[misc]
        )
        outputs[name] = decoder.texts(hypotheses)
        changed[name] = share_not_first_choice(decoder, sources, [found[0].token_ids for found in hypotheses])
        settings[name] = describe_method(method)
    progress("comparing", 0, None)
    return Evaluation(
        comparison=compare(outputs, references, [name for name in BASELINES if name in methods]),
        changed_shares=changed,
        settings=settings,
        leakage=leakage([pairs[i] for i in kept], TextLookup(snapshot)),
        num_skipped=len(pairs) - len(kept),
        outputs=outputs,
        signature=signature(translator),
    )


def signature(translator: Translator) -> dict[str, Any]:
    """What a number was measured on."""
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
