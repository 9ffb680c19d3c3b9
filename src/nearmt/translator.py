"""Public API of translation: texts in, translations with their evidence out."""

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal, cast, get_args

from nearmt.building.compatibility import ModelRequest, as_request, check_model, check_values, load_model
from nearmt.corpus import normalise_space
from nearmt.datastore import Filter, Snapshot, TrainingRecord, open_finished
from nearmt.decoding.beam import Hypothesis
from nearmt.decoding.decoder import Decoder, DecodingSettings
from nearmt.decoding.evidence import TokenEvidence, explain_tokens
from nearmt.errors import SettingError
from nearmt.markup.splitting import TokenizedText, tokenize_to_fit
from nearmt.methods.mixture import Method
from nearmt.methods.registry import AUTO, MethodRequest, make_method
from nearmt.models import Seq2Seq
from nearmt.retrieval.merged import AnyRetriever, MergedRetriever
from nearmt.retrieval.modes import StoreRetriever
from nearmt.retrieval.reader import Reader
from nearmt.retrieval.sentences.matches import LIMIT, MINIMUM, Match, MatchFinder, best_of_stores, first_exact

Exact = Literal["translate", "reuse"]


@dataclass(frozen=True)
class Translation:
    """A translated text. `tokens` is the evidence, computed when it is first read.

    A translation that was reused from the memory names its `match` and has a score of 0 and no tokens.
    """

    source: str
    text: str
    score: float  # log-probability over length ** penalty
    token_ids: tuple[int, ...]
    alternatives: tuple[tuple[str, float], ...] = ()  # the other hypotheses with their scores
    match: Match | None = None
    _explain: Callable[[], tuple[TokenEvidence, ...]] = field(default=tuple, repr=False, compare=False)

    @cached_property
    def tokens(self) -> tuple[TokenEvidence, ...]:
        return self._explain()


class Translator:
    """Translates with one store, or with several stores of one model, and follows changes made to them.

    `method` is the name of a method, a `MethodRequest`, or a method object. The names are "auto" (the trained network
    with the lowest held-out loss), "adaptive", "robust", "kernel", "vanilla", "uniform" and "base". With several
    stores, the trained networks and the default `k`, `temperature` and `knn_share` come from the first. Unless `model`
    is given, the model is loaded by the name in the store. Unless `engine` is given, it runs on the engine that the
    store was trained with, or built with if it is untrained. With `exact="reuse"`, a text that is stored, apart from
    white space, is not decoded: its translation is the newest stored one, of the first store that has the text.
    """

    def __init__(
        self,
        store: "str | Path | Reader | Sequence[str | Path | Reader]",
        *,
        model: Seq2Seq | ModelRequest | str | Path | None = None,
        method: str | MethodRequest | Method = AUTO,
        k: int | None = None,
        temperature: float | None = None,
        knn_share: float | None = None,
        filter: Filter | None = None,
        decoding: DecodingSettings | None = None,
        exact: Exact = "translate",
        device: str = "cpu",
        offline: bool = False,
        engine: str | None = None,
    ) -> None:
        given = [store] if isinstance(store, str | Path | Reader) else list(store)
        if not given:
            raise SettingError("a translator needs at least one store")
        folders = [item.folder if isinstance(item, Reader) else Path(item).absolute() for item in given]
        manifests = [open_finished(folder).manifest for folder in folders]
        if not isinstance(model, Seq2Seq):
            model = load_model(manifests[0], as_request(model, device=device, offline=offline, engine=engine))
        self.model = model
        for folder, manifest in zip(folders, manifests, strict=True):
            check_model(manifest, model, folder)
        # A given reader is shared: one index in memory, however many translators use it.
        self.readers = [item if isinstance(item, Reader) else Reader(Path(item).absolute()) for item in given]
        for reader in self.readers:
            check_values(reader.snapshot, model)
        self.decoding = decoding or DecodingSettings()
        self.filter = filter or Filter()
        self.exact = check_exact(exact)
        if isinstance(method, str):
            method = MethodRequest(method, k, temperature, knn_share)
        elif (k, temperature, knn_share) != (None, None, None):
            raise SettingError("`k`, `temperature` and `knn_share` go with the name of a method")
        self._request = method if isinstance(method, MethodRequest) else None
        self.method: Method | None = None if isinstance(method, MethodRequest) else method
        self._lock = threading.Lock()
        self._seen: list[StoreRetriever] = []
        self._training: TrainingRecord | None = None
        self._assemble()

    def __repr__(self) -> str:
        name = self.method.name if self.method else "base"
        return f"Translator({str(self.snapshot.folder)!r}, {self.model.identity.name!r}, method={name!r})"

    @property
    def snapshot(self) -> Snapshot:
        """The first store as of the last refresh."""
        return self._seen[0].snapshot

    def _assemble(self) -> None:
        """Set up everything that depends on the current commits of the stores."""
        seen = [reader.retriever for reader in self.readers]
        for at, retriever in enumerate(seen):
            if self._seen and retriever.snapshot.manifest.created_at != self._seen[at].snapshot.manifest.created_at:
                check_model(retriever.snapshot.manifest, self.model, retriever.snapshot.folder)  # it was rebuilt
        first, training = seen[0], seen[0].snapshot.manifest.adaptation
        if (not self._seen or training != self._training) and self._request is not None:
            self.method = make_method(self._request, first.snapshot, first, self.model.engine)
        self._seen, self._training = seen, training
        parts = [retriever.filtered(self.filter) for retriever in seen]
        self.retriever: AnyRetriever = parts[0] if len(parts) == 1 else MergedRetriever(parts)
        self._finders: list[MatchFinder] = [reader.finder.filtered(self.filter) for reader in self.readers]
        self._decoder = self.decoder(self.method)

    def refresh(self) -> bool:
        """Follow new commits of the stores. Every translation does this first. Returns True if there were any."""
        with self._lock:
            for reader in self.readers:
                reader.refresh()
            has_changed = any(a is not b.retriever for a, b in zip(self._seen, self.readers, strict=True))
            if has_changed:
                self._assemble()
            return has_changed

    def filtered(self, filter: Filter) -> "Translator":
        """A translator with the same model, stores and method that uses only a part of the stores."""
        other = copy.copy(self)
        other._lock = threading.Lock()
        other.filter = filter
        other._assemble()
        return other

    def decoder(self, method: Method | None) -> Decoder:
        """A decoder with the same model and stores and another method; None is the plain model."""
        return Decoder(self.model, self.retriever if method else None, method, self.decoding)

    def translate(
        self, texts: Sequence[str], *, on_done: Callable[[int], None] = lambda sentences: None
    ) -> list[Translation]:
        """Translate texts, with one result for each, in order. An empty text stays empty.

        A text that is too long for the model is translated in parts, cut at sentence ends or spaces where possible.
        """
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts, not one string")
        self.refresh()
        decoder, finders, reuses = self._decoder, self._finders, self.exact == "reuse"
        clean = [normalise_space(text) for text in texts]
        matches = [first_exact(finders, text) if reuses and text else None for text in clean]
        decoded_texts = [text for text, match in zip(clean, matches, strict=True) if text and match is None]
        distinct = list(dict.fromkeys(decoded_texts))  # a text that comes again is decoded once
        num_ready = sum(match is not None for match in matches) + len(decoded_texts) - len(distinct)
        if num_ready:
            on_done(num_ready)
        split = tokenize_to_fit(distinct, self.model.tokenize_sources, self.model.max_source_tokens)
        flat = [part for parts in split for part in parts]
        decoded = decoder.decode(
            [part.token_ids for part in flat],
            None,
            lambda done: on_done(num_ready + done),
            [part.text for part in flat],
        )
        hypotheses = iter(decoded)
        found = {
            text: (parts, list(islice(hypotheses, len(parts)))) for text, parts in zip(distinct, split, strict=True)
        }
        return [
            Translation(text, match.target, 0.0, (), match=match)
            if match is not None
            else self._result(decoder, text, *found.get(key, ([], [])))
            for text, key, match in zip(texts, clean, matches, strict=True)
        ]

    def _result(
        self, decoder: Decoder, text: str, sources: Sequence[TokenizedText], hypotheses: Sequence[list[Hypothesis]]
    ) -> Translation:
        if not hypotheses:
            return Translation(text, "", 0.0, ())
        best = [found[0] for found in hypotheses]
        outputs = self.model.detokenize([hypothesis.token_ids for hypothesis in best])
        others = hypotheses[0][1:] if len(hypotheses) == 1 else []
        other_texts = self.model.detokenize([hypothesis.token_ids for hypothesis in others]) if others else []
        return Translation(
            source=text,
            text=" ".join(outputs),
            score=sum(hypothesis.score for hypothesis in best) / len(best),
            token_ids=tuple(token for hypothesis in best for token in hypothesis.token_ids),
            alternatives=tuple((t, h.score) for t, h in zip(other_texts, others, strict=True)),
            _explain=lambda: _explain_parts(decoder, sources, best, outputs),
        )

    def matches(self, text: str, limit: int = LIMIT, minimum: int = MINIMUM) -> list[Match]:
        """The stored sentences whose source is most similar to a text, best first; of equals the newest first.

        The similarity is counted as CAT tools do, by edit distance over words, in percent; `minimum` is the lowest to
        find.
        """
        self.refresh()
        return best_of_stores(self._finders, text, limit, minimum)

    def exact_match(self, text: str) -> Match | None:
        """The newest stored sentence with this source, white space apart, of the first store that has one."""
        self.refresh()
        return first_exact(self._finders, text)

    def explain(self, text: str) -> Translation:
        """Translate one text and compute its evidence at once."""
        (translation,) = self.translate([text])
        _ = translation.tokens
        return translation


def check_exact(given: str) -> Exact:
    """What to do with a text that is stored, if it is one of the choices."""
    for choice in get_args(Exact):
        if given == choice:
            return cast(Exact, choice)
    raise SettingError(f"`exact` takes {' or '.join(get_args(Exact))}, not {given!r}")


def _explain_parts(
    decoder: Decoder, sources: Sequence[TokenizedText], hypotheses: Sequence[Hypothesis], outputs: Sequence[str]
) -> tuple[TokenEvidence, ...]:
    """The evidence of a text that was translated in parts and joined with spaces."""
    found: list[TokenEvidence] = []
    offset = 0
    for source, hypothesis, output in zip(sources, hypotheses, outputs, strict=True):
        found += explain_tokens(decoder, source.token_ids, hypothesis.token_ids, offset, source.text)
        offset += len(output) + 1
    return tuple(found)
