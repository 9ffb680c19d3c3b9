"""The LibreTranslate API: text, languages and suggestions."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, Field

from nearmt.corpus import SentencePair
from nearmt.corpus.extensions import DOCUMENT_EXTENSIONS
from nearmt.markup import rules_for
from nearmt.server.context import Context
from nearmt.server.http.fields import read_fields
from nearmt.server.http.openapi import body_in_forms, errors
from nearmt.server.routes.stores import add_pairs
from nearmt.server.service.languages import Guess, guess_languages, language_name
from nearmt.server.service.stores import StoreFacts
from nearmt.server.service.texts import check_characters, check_length
from nearmt.server.settings import Role

router = APIRouter(tags=["LibreTranslate"])
_AUTO = "auto"
_ORIGIN = "suggestions"
Code = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[A-Za-z0-9@._-]+$")]


class LibreError(BaseModel):
    error: str


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


class LibreTranslateBody(BaseModel):
    q: str | list[str] = Field(description="a text or a list of texts")
    source: Code = Field(description="source language, or auto")
    target: Code
    format: Annotated[Literal["text", "html"] | None, BeforeValidator(_none_if_empty)] = "text"
    alternatives: Annotated[Annotated[int, Field(ge=0, le=63)] | None, BeforeValidator(_none_if_empty)] = 0
    api_key: str | None = None


class DetectedLanguage(BaseModel):
    confidence: float
    language: str


class LibreTranslateReply(BaseModel):
    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return errors(*statuses, model=LibreError)


@router.post(
    "/translate",
    response_model=LibreTranslateReply,
    response_model_exclude_none=True,
    summary="Translate one or more texts",
    responses=_errors(403, 415, 429, 503, 504),
    openapi_extra=body_in_forms(LibreTranslateBody),
)
async def translate(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    body = await read_fields(request, LibreTranslateBody)
    caller = context.admit(request, Role.TRANSLATE, body.api_key)
    texts = body.q if isinstance(body.q, list) else [body.q]
    guesses: list[Guess] = []
    source: str | None = body.source
    if body.source == _AUTO:
        guesses = [await guess_source(context.chooser.facts(caller), text) for text in texts]
        source = guesses[0].code if guesses else None
    facts = context.chooser.by_languages(caller, source, body.target)
    wanted = body.alternatives or 0
    results = await context.service.translate(
        request,
        caller,
        texts,
        context.options(facts.name, n_best=1 + wanted),
        rules=rules_for("html") if body.format == "html" else None,
    )
    reply: dict[str, Any] = {"translatedText": [result.text for result in results]}
    if body.source == _AUTO:
        reply["detectedLanguage"] = [{"confidence": guess.confidence, "language": guess.code} for guess in guesses]
    if wanted:
        reply["alternatives"] = [[text for text, _ in result.alternatives[:wanted]] for result in results]
    return reply if isinstance(body.q, list) else {name: value[0] for name, value in reply.items()}


async def guess_source(usable: list[StoreFacts], text: str) -> Guess:
    """The most likely language of a text, among the source languages of the stores."""
    sources = [facts.source_lang for facts in usable if facts.source_lang is not None]
    check_characters(text, "the text")
    return (await asyncio.to_thread(guess_languages, text, sources))[0]


class LibreDetectBody(BaseModel):
    q: str
    api_key: str | None = None


@router.post(
    "/detect",
    response_model=list[DetectedLanguage],
    summary="Identify the language of a text",
    responses=_errors(403, 415, 429),
    openapi_extra=body_in_forms(LibreDetectBody),
)
async def detect(request: Request) -> list[dict[str, Any]]:
    context = Context.of(request)
    body = await read_fields(request, LibreDetectBody)
    context.admit(request, Role.TRANSLATE, body.api_key)
    check_characters(body.q, "q")
    check_length(body.q, "q", context.settings.limits.max_characters_per_text)
    guesses = await asyncio.to_thread(guess_languages, body.q)
    return [{"confidence": guess.confidence, "language": guess.code} for guess in guesses]


class LibreLanguage(BaseModel):
    code: str
    name: str
    targets: list[str]


@router.get("/languages", response_model=list[LibreLanguage], responses=_errors(429), summary="Languages")
def languages(request: Request) -> list[dict[str, Any]]:
    context = Context.of(request)
    targets: dict[str, list[str]] = {}
    for name in filter(context.registry.is_ready, context.registry.names):
        facts = context.registry.facts(name)
        if facts.source_lang is None or facts.target_lang is None:
            continue
        targets.setdefault(facts.source_lang, []).append(facts.target_lang)
        targets.setdefault(facts.target_lang, [])
    return [
        {"code": code, "name": language_name(code), "targets": list(dict.fromkeys(found))}
        for code, found in targets.items()
    ]


class LibreSettings(BaseModel):
    apiKeys: bool  # noqa: N815
    charLimit: int  # noqa: N815
    frontendTimeout: int  # noqa: N815
    keyRequired: bool  # noqa: N815
    language: dict[str, dict[str, str]]
    suggestions: bool
    supportedFilesFormat: list[str]  # noqa: N815


@router.get(
    "/frontend/settings", response_model=LibreSettings, responses=_errors(429), summary="Settings for a user interface"
)
def frontend_settings(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    settings = context.settings
    default = next(filter(context.registry.is_ready, context.registry.names), None)
    facts = context.registry.facts(default) if default is not None else None
    pair = {"source": facts.source_lang if facts else None, "target": facts.target_lang if facts else None}
    return {
        "apiKeys": bool(settings.keys),
        "charLimit": settings.limits.max_characters_per_text,
        "frontendTimeout": 500,
        "keyRequired": bool(settings.keys) and not settings.allow_translation_without_key,
        "language": {side: {"code": code or "", "name": language_name(code or "")} for side, code in pair.items()},
        "suggestions": bool(settings.keys) or settings.allow_edits_without_key,
        "supportedFilesFormat": list(DOCUMENT_EXTENSIONS),
    }


class LibreHealth(BaseModel):
    status: Literal["ok"]


@router.get("/health", response_model=LibreHealth, summary="Health check")
async def health() -> dict[str, Any]:
    return {"status": "ok"}


class LibreSuggestBody(BaseModel):
    q: str = Field(min_length=1, description="the source text")
    s: str = Field(min_length=1, description="the suggested translation")
    source: Code
    target: Code
    api_key: str | None = None


class LibreSuggestReply(BaseModel):
    success: bool


@router.post(
    "/suggest",
    response_model=LibreSuggestReply,
    summary="Add a suggested translation to the memory",
    responses=_errors(403, 409, 415, 429, 503),
    openapi_extra=body_in_forms(LibreSuggestBody),
)
async def suggest(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    body = await read_fields(request, LibreSuggestBody)
    caller = context.admit(request, Role.EDIT, body.api_key)
    for name, text in (("q", body.q), ("s", body.s)):
        check_characters(text, name)
        check_length(text, name, context.settings.limits.max_characters_per_text)
    source = None if body.source == _AUTO else body.source
    facts = context.chooser.by_languages(caller, source, body.target)
    # Without a unit id, the next suggestion for the same text replaces this one.
    await add_pairs(context, facts.name, [SentencePair(body.q, body.s, None, _ORIGIN)])
    return {"success": True}
