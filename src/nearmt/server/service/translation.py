"""The translation service: checks texts, splits them into sentences, has them decoded and assembles the results."""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from nearmt.errors import NearMTError
from nearmt.markup import Rules, SplitText, split_text, translate_marked
from nearmt.server.caller import Caller
from nearmt.server.http.errors import ApiError
from nearmt.server.service.batching import QueueFullError
from nearmt.server.service.options import DecodedSentence, TranslationOptions
from nearmt.server.service.queue import QueuedRequest
from nearmt.server.service.stores import StoreRegistry
from nearmt.server.service.texts import check_characters, check_length, check_tag_depth
from nearmt.server.settings import LimitSettings, ServerSettings

log = logging.getLogger("nearmt.server")
_WAITING_THREADS = 64
_MAX_INLINE_CHARACTERS = 20_000  # splitting longer texts would block the event loop
Result = TypeVar("Result")


class BlockingTranslate(Protocol):
    """Translates sentences and waits for the result; `rank` 0 is the best translation, 1 the next best."""

    def __call__(self, sentences: list[str], rank: int = 0) -> list[str]: ...


@dataclass(frozen=True)
class Sentence:
    """A source sentence, with start and end of its translation in the translated text."""

    source: str
    start: int
    end: int


@dataclass(frozen=True)
class Translated:
    """One translated text."""

    text: str
    score: float | None  # None for text with tags
    sentences: tuple[Sentence, ...] = ()  # empty for text with tags
    alternatives: tuple[tuple[str, float | None], ...] = ()
    tokens: tuple[dict[str, Any], ...] | None = None


def check_texts(texts: Sequence[str], limits: LimitSettings) -> None:
    """Refuse texts that exceed the limits or are malformed."""
    if len(texts) > limits.max_texts:
        raise ApiError(413, "too_many_texts", f"{len(texts)} texts are too many: the limit is {limits.max_texts}")
    for number, text in enumerate(texts, 1):
        check_length(text, f"text {number}", limits.max_characters_per_text)
        check_characters(text, f"text {number}")
    total = sum(map(len, texts))
    if total > limits.max_characters:
        raise ApiError(
            413, "too_long", f"the texts have {total} characters in total: the limit is {limits.max_characters}"
        )


class TranslationService:
    """Translates the texts of a request, in batches with other requests."""

    def __init__(self, registry: StoreRegistry, settings: ServerSettings) -> None:
        self._registry, self._settings = registry, settings
        self.characters: dict[str, int] = {}  # translated since the server started, by caller
        # Text with tags and documents are translated in threads, which wait for their sentences to be decoded.
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="marked")

    def language(self, options: TranslationOptions) -> str:
        """The source language."""
        return self._registry.runner(options.stores[0]).model.source_lang or "en"

    async def translate(
        self,
        request: Request,
        caller: Caller,
        texts: Sequence[str],
        options: TranslationOptions,
        *,
        rules: Rules | None = None,
        splits_sentences: bool = True,
        wants_evidence: bool = False,
    ) -> list[Translated]:
        """One result per text, in order. With `rules`, the texts have tags."""
        check_texts(texts, self._settings.limits)
        if options.n_best > self._settings.decoding.beam:
            raise ApiError(400, "bad_request", f"n_best must not exceed the beam size, {self._settings.decoding.beam}")
        if rules is None:
            results = await self._translate_plain(request, texts, options, splits_sentences, wants_evidence)
        else:
            results = await self._translate_marked(request, texts, options, rules)
        self._record(caller, texts, results)
        return results

    def _record(self, caller: Caller, texts: Sequence[str], results: Sequence[Translated]) -> None:
        if caller.name in self.characters or len(self.characters) < self._settings.limits.max_connections:
            self.characters[caller.name] = self.characters.get(caller.name, 0) + sum(map(len, texts))
        if self._settings.log_texts:
            for text, result in zip(texts, results, strict=True):
                log.info("%s: %r → %r", caller.name, text, result.text)

    async def _translate_plain(
        self,
        request: Request,
        texts: Sequence[str],
        options: TranslationOptions,
        splits_sentences: bool,
        wants_evidence: bool,
    ) -> list[Translated]:
        language = self.language(options)

        def split() -> list[SplitText]:
            return [split_text(text, language, splits_sentences=splits_sentences) for text in texts]

        parts = await asyncio.to_thread(split) if sum(map(len, texts)) > _MAX_INLINE_CHARACTERS else split()
        sentences = [sentence for part in parts for sentence in part.sentences]
        decoded = iter(await self.decode(request, options, sentences, wants_evidence))
        return [_assemble(part, list(islice(decoded, len(part.sentences))), wants_evidence) for part in parts]

    async def _translate_marked(
        self, request: Request, texts: Sequence[str], options: TranslationOptions, rules: Rules
    ) -> list[Translated]:
        for number, text in enumerate(texts, 1):
            check_tag_depth(text, f"text {number}")
        language = self.language(options)
        translate = self.blocking_translate(request, options)

        def work() -> list[list[str]]:
            return [
                translate_marked(texts, functools.partial(translate, rank=rank), rules, language=language)
                for rank in range(options.n_best)
            ]

        best, *others = await self.in_thread(work)
        return [
            Translated(text, None, alternatives=tuple((other[number], None) for other in others))
            for number, text in enumerate(best)
        ]

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Run a function that waits for sentences to be decoded in a separate thread."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, work)

    def blocking_translate(self, request: Request, options: TranslationOptions) -> BlockingTranslate:
        """A function for `in_thread` that translates sentences; it decodes equal sentences once."""
        loop = asyncio.get_running_loop()
        known: dict[str, DecodedSentence] = {}

        def translate(sentences: list[str], rank: int = 0) -> list[str]:
            new = [sentence for sentence in dict.fromkeys(sentences) if sentence not in known]
            decoding = asyncio.run_coroutine_threadsafe(self.decode(request, options, new), loop)
            known.update(zip(new, decoding.result(), strict=True))
            found = [known[sentence] for sentence in sentences]
            return [one.alternatives[rank - 1][0] if 0 < rank <= len(one.alternatives) else one.text for one in found]

        return translate

    async def decode(
        self, request: Request, options: TranslationOptions, sentences: Sequence[str], wants_evidence: bool = False
    ) -> list[DecodedSentence]:
        """Decode sentences in batches with those of other requests; stops if the client disconnects."""
        if not sentences:
            return []
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not finished.done():
                finished.set_result(None)

        def on_done(_: QueuedRequest) -> None:
            loop.call_soon_threadsafe(wake)

        batcher = self._registry.runner(options.stores[0]).batcher
        queued = QueuedRequest(options, sentences, on_done, wants_evidence)
        try:
            batcher.submit(queued)
        except QueueFullError as full:
            headers = {"Retry-After": str(full.retry_after)}
            raise ApiError(503, "queue_full", "the queue is full: try again later", headers) from None
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            seconds = self._settings.limits.time_limit_seconds
            done, _ = await asyncio.wait({finished, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not queued.is_done:
                batcher.cancel(queued)
        if finished not in done:
            if gone in done:
                raise ApiError(499, "client_gone", "the client disconnected")
            raise ApiError(504, "time_limit", f"the translation took longer than {seconds:g} seconds")
        if isinstance(queued.error, NearMTError):
            raise self._registry.public_error(queued.error)
        if queued.error is not None:
            raise queued.error
        return list(queued.results)


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _assemble(parts: SplitText, decoded: Sequence[DecodedSentence], wants_evidence: bool) -> Translated:
    best = [sentence.text for sentence in decoded]
    spans = parts.spans(best)
    alternatives: list[tuple[str, float | None]] = []
    for rank in range(max((len(sentence.alternatives) for sentence in decoded), default=0)):
        chosen = [
            sentence.alternatives[rank] if rank < len(sentence.alternatives) else (sentence.text, sentence.score)
            for sentence in decoded
        ]
        alternatives.append((parts.fill([text for text, _ in chosen]), fmean(score for _, score in chosen)))
    tokens: tuple[dict[str, Any], ...] | None = None
    if wants_evidence:  # token positions are relative to the sentence
        tokens = tuple(
            {**token, "start": token["start"] + start, "end": token["end"] + start}
            for (start, _), sentence in zip(spans, decoded, strict=True)
            for token in sentence.tokens or ()
        )
    return Translated(
        parts.fill(best),
        fmean(sentence.score for sentence in decoded) if decoded else 0.0,
        tuple(Sentence(source, *span) for source, span in zip(parts.sentences, spans, strict=True)),
        tuple(alternatives),
        tokens,
    )
