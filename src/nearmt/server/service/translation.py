"""From the texts of a request to its translations: checked, cut into sentences, decoded with others, put together."""

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.requests import Request

from nearmt.errors import IndexUnavailableError, NearMTError
from nearmt.markup import Rules, translate_marked
from nearmt.server.http.auth import Caller
from nearmt.server.http.errors import ApiError, from_nearmt
from nearmt.server.service.batching import QueueFullError
from nearmt.server.service.options import Decoded, TranslationOptions
from nearmt.server.service.queue import Order
from nearmt.server.service.stores import StoreRegistry
from nearmt.server.service.texts import Plan, plan_text, refuse_bad_text, refuse_deep_tags
from nearmt.server.settings import LimitSettings, ServerSettings

log = logging.getLogger("nearmt.server")
_WAITING_THREADS = 64
_PLANNED_AT_ONCE = 20_000  # characters; finding the sentences of more would hold up other requests
Result = TypeVar("Result")


class BlockingTranslate(Protocol):
    """Translates sentences; `rank` 0 is the best translation, 1 the next best."""

    def __call__(self, sentences: list[str], rank: int = 0) -> list[str]: ...


@dataclass(frozen=True)
class Sentence:
    """A sentence of a text, and where its translation stands in the translated one."""

    source: str
    start: int
    end: int


@dataclass(frozen=True)
class Translated:
    """One translated text."""

    text: str
    score: float | None  # not known of texts with tags, which are put together from pieces
    sentences: tuple[Sentence, ...] = ()  # of plain text alone
    alternatives: tuple[tuple[str, float | None], ...] = ()
    tokens: tuple[dict[str, Any], ...] | None = None


def check_texts(texts: Sequence[str], limits: LimitSettings) -> None:
    """Refuse what is too much or is no text."""
    if len(texts) > limits.max_texts:
        raise ApiError(413, "too_many_texts", f"{len(texts)} texts are more than the {limits.max_texts} of a request")
    for number, text in enumerate(texts, 1):
        if len(text) > limits.max_characters_per_text:
            raise ApiError(
                413, "too_long", f"text {number} has {len(text)} characters, and {limits.max_characters_per_text} is "
                "the most"
            )  # fmt: skip
        refuse_bad_text(text, f"text {number}")
    total = sum(map(len, texts))
    if total > limits.max_characters:
        raise ApiError(
            413, "too_long", f"the texts have {total} characters together, and {limits.max_characters} is the most"
        )


class TranslationService:
    """Takes texts of a request and gives translations, together with other requests where it can."""

    def __init__(self, registry: StoreRegistry, settings: ServerSettings) -> None:
        self._shelf, self._settings = registry, settings
        self.characters: dict[str, int] = {}  # translated since the start, by caller
        # Threads that wait for the decoding of texts with tags, which are put together piece by piece.
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, thread_name_prefix="marked")

    def language(self, options: TranslationOptions) -> str:
        """The language that a options translates from."""
        return self._shelf.engine(options.stores[0]).model.source_lang or "en"

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
        """One result for each text, in order; `rules` are those of texts with tags."""
        check_texts(texts, self._settings.limits)
        if options.n_best > self._settings.decoding.beam:
            raise ApiError(400, "bad_request", f"n_best is at most {self._settings.decoding.beam}, this server's beam")
        if rules is None:
            results = await self._translate_plain(request, texts, options, splits_sentences, wants_evidence)
        else:
            results = await self._translate_marked(request, texts, options, rules)
        self._note(caller, texts, results)
        return results

    def _note(self, caller: Caller, texts: Sequence[str], results: Sequence[Translated]) -> None:
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

        def plan() -> list[Plan]:
            return [plan_text(text, language, splits_sentences=splits_sentences) for text in texts]

        plans = await asyncio.to_thread(plan) if sum(map(len, texts)) > _PLANNED_AT_ONCE else plan()
        sentences = [sentence for plan in plans for sentence in plan.sentences]
        decoded = await self.decode(request, options, sentences, wants_evidence)
        results, at = [], 0
        for found in plans:
            results.append(_put_together(found, decoded[at : at + len(found.sentences)], wants_evidence))
            at += len(found.sentences)
        return results

    async def _translate_marked(
        self, request: Request, texts: Sequence[str], options: TranslationOptions, rules: Rules
    ) -> list[Translated]:
        for number, text in enumerate(texts, 1):
            refuse_deep_tags(text, f"text {number}")
        language = self.language(options)
        translate = self.blocking(request, options)

        def work() -> list[list[str]]:
            ranks = range(options.n_best)
            return [
                translate_marked(texts, functools.partial(translate, rank=rank), rules, language=language)
                for rank in ranks
            ]

        best, *others = await self.in_thread(work)
        return [
            Translated(text, None, alternatives=tuple((other[number], None) for other in others))
            for number, text in enumerate(best)
        ]

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Do work that waits for decoding, in a thread of its own."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._waiting, work)
        except NearMTError as error:
            raise self.without_paths(error) from None

    def blocking(self, request: Request, options: TranslationOptions) -> "BlockingTranslate":
        """For work in a thread: sentences in, their translations out, nothing decoded twice."""
        loop = asyncio.get_running_loop()
        known: dict[str, Decoded] = {}

        def translate(sentences: list[str], rank: int = 0) -> list[str]:
            wanted = [sentence for sentence in dict.fromkeys(sentences) if sentence not in known]
            decoding = asyncio.run_coroutine_threadsafe(self.decode(request, options, wanted), loop)
            known.update(zip(wanted, decoding.result(), strict=True))
            found = [known[sentence] for sentence in sentences]
            return [one.alternatives[rank - 1][0] if 0 < rank <= len(one.alternatives) else one.text for one in found]

        return translate

    async def decode(
        self, request: Request, options: TranslationOptions, sentences: Sequence[str], wants_evidence: bool = False
    ) -> list[Decoded]:
        """Decode sentences together with those of other requests, as long as the client waits."""
        if not sentences:
            return []
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not finished.done():
                finished.set_result(None)

        def on_done(_: Order) -> None:
            loop.call_soon_threadsafe(wake)

        batcher = self._shelf.engine(options.stores[0]).batcher
        order = Order(options, sentences, on_done, wants_evidence)
        try:
            batcher.submit(order)
        except QueueFullError as full:
            raise ApiError(
                503, "queue_full", "too much is waiting to be translated: try again later",
                {"Retry-After": str(full.retry_after)},
            ) from None  # fmt: skip
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            seconds = self._settings.limits.time_limit_seconds
            done, _ = await asyncio.wait({finished, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not order.is_over:
                batcher.cancel(order)
        if finished not in done:
            if gone in done:
                raise ApiError(499, "client_gone", "the client went away")
            raise ApiError(504, "time_limit", f"the translation took longer than {seconds:g} seconds")
        if isinstance(order.error, NearMTError):
            raise self.without_paths(order.error)
        if order.error is not None:
            raise order.error
        return list(order.results)

    def without_paths(self, error: NearMTError) -> ApiError:
        """An error of nearmt for a client, who need not know the server's disk."""
        if isinstance(error, IndexUnavailableError):
            log.warning("%s", error)
        found = from_nearmt(error)
        return ApiError(found.status_code, found.code, self._shelf.without_paths(found.message), found.headers)


async def _disconnected(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _put_together(plan: Plan, decoded: Sequence[Decoded], wants_evidence: bool) -> Translated:
    best = [sentence.text for sentence in decoded]
    score = sum(sentence.score for sentence in decoded) / len(decoded) if decoded else 0.0
    alternatives: list[tuple[str, float | None]] = []
    for rank in range(max((len(sentence.alternatives) for sentence in decoded), default=0)):
        chosen = [
            sentence.alternatives[rank] if rank < len(sentence.alternatives) else (sentence.text, sentence.score)
            for sentence in decoded
        ]
        mean = sum(score for _, score in chosen) / len(chosen)
        alternatives.append((plan.fill([text for text, _ in chosen]), mean))
    tokens: tuple[dict[str, Any], ...] | None = None
    spans = plan.spans(best)
    if wants_evidence:
        moved = zip((start for start, _ in spans), decoded, strict=True)
        tokens = tuple(
            {**token, "start": token["start"] + start, "end": token["end"] + start}
            for start, sentence in moved
            for token in sentence.tokens or ()
        )
    sentences = tuple(Sentence(source, *span) for source, span in zip(plan.sentences, spans, strict=True))
    return Translated(plan.fill(best), score, sentences, tuple(alternatives), tokens)
