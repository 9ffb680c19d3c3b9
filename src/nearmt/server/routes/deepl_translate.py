"""The DeepL API: text, languages, usage, and empty lists of glossaries."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, Field

from nearmt.markup import Rules, rules_for
from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.http.fields import read_fields
from nearmt.server.http.openapi import body_in_forms, errors
from nearmt.server.routes.libretranslate import Code, guess_source
from nearmt.server.routes.memories import find_memory
from nearmt.server.service.languages import language_name
from nearmt.server.settings import Role

router = APIRouter(prefix="/v2", tags=["DeepL"])
_NO_LIMIT = 1_000_000_000_000
# DeepL's clients request English and Portuguese as target languages by region.
_TARGETS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}


class DeeplError(BaseModel):
    message: str
    detail: str | None = None


def deepl_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Descriptions of a route's error responses in the DeepL format."""
    return errors(*statuses, model=DeeplError)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


class DeeplTranslateBody(BaseModel):
    text: Annotated[list[str], BeforeValidator(_as_list)] = Field(min_length=1)
    source_lang: Annotated[Code | None, BeforeValidator(_none_if_empty)] = None
    target_lang: Code
    tag_handling: Annotated[Literal["xml", "html"] | None, BeforeValidator(_none_if_empty)] = None
    split_sentences: Literal["0", "1", "nonewlines"] | None = None
    ignore_tags: Annotated[list[str], BeforeValidator(_as_list)] = Field(
        [], description="tags whose content is not translated"
    )
    splitting_tags: Annotated[list[str], BeforeValidator(_as_list)] = Field([], description="tags that end a sentence")
    formality: Literal["default", "prefer_more", "prefer_less", "more", "less"] | None = None
    glossary_id: str | None = None
    translation_memory_id: str | None = Field(None, description="selects a store, or one origin within a store")
    model_type: str | None = None
    auth_key: str | None = None


def _rules(body: DeeplTranslateBody) -> Rules | None:
    if body.tag_handling is None:
        return None
    return rules_for(
        body.tag_handling,
        ignored=_tag_names(body.ignore_tags),
        splitting=_tag_names(body.splitting_tags),
        is_newline_break=False if body.split_sentences == "nonewlines" else None,
    )


def _tag_names(tags: list[str]) -> list[str]:
    return [name.strip() for tag in tags for name in tag.split(",") if name.strip()]


class DeeplTranslation(BaseModel):
    detected_source_language: str
    text: str
    billed_characters: int
    model_type_used: str | None = None


class DeeplTranslateReply(BaseModel):
    translations: list[DeeplTranslation]


@router.post(
    "/translate",
    response_model=DeeplTranslateReply,
    response_model_exclude_none=True,
    summary="Translate one or more texts",
    responses=deepl_errors(403, 404, 415, 429, 503, 504),
    openapi_extra=body_in_forms(DeeplTranslateBody),
)
async def translate(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    body = await read_fields(request, DeeplTranslateBody)
    caller = context.admit(request, Role.TRANSLATE, body.auth_key)
    if body.glossary_id:
        raise ApiError(404, "no_such_glossary", "glossaries are not supported: the memory provides the terminology")
    if body.formality in ("more", "less"):
        raise ApiError(400, "bad_request", "formality is not supported; prefer_more and prefer_less are accepted")
    only: tuple[str, ...] = ()
    if body.translation_memory_id:
        memory = find_memory(context, caller, body.translation_memory_id)
        facts, only = context.registry.facts(memory.store), memory.origins
    else:
        source = body.source_lang
        if source is None:
            source = (await guess_source(context.chooser.facts(caller), body.text[0])).code
        facts = context.chooser.by_languages(caller, source, body.target_lang)
    results = await context.service.translate(
        request,
        caller,
        body.text,
        context.options(facts.name, only=only),
        rules=_rules(body),
        splits_sentences=body.split_sentences != "0",
    )
    language = (body.source_lang or facts.source_lang or "").partition("-")[0].upper()
    used = {"model_type_used": "quality_optimized"} if body.model_type else {}
    return {
        "translations": [
            {"detected_source_language": language, "text": result.text, "billed_characters": len(text), **used}
            for text, result in zip(body.text, results, strict=True)
        ]
    }


class DeeplLanguagesQuery(BaseModel):
    type: Literal["source", "target"] = "source"
    auth_key: str | None = None


class DeeplLanguage(BaseModel):
    language: str
    name: str
    supports_formality: bool | None = None


@router.get(
    "/languages",
    response_model=list[DeeplLanguage],
    response_model_exclude_none=True,
    summary="Source or target languages",
    responses=deepl_errors(403, 415, 429),
    openapi_extra={
        "parameters": [{"name": "type", "in": "query", "schema": {"type": "string", "enum": ["source", "target"]}}]
    },
)
async def languages(request: Request) -> list[dict[str, Any]]:
    context = Context.of(request)
    query = await read_fields(request, DeeplLanguagesQuery)  # DeepL's Python client sends it in the body of a GET
    caller = context.admit(request, Role.TRANSLATE, query.auth_key)
    usable = context.chooser.facts(caller)
    if query.type == "source":
        codes = [facts.source_lang.partition("-")[0].upper() for facts in usable if facts.source_lang]
        return [{"language": code, "name": language_name(code)} for code in dict.fromkeys(codes)]
    targets = [facts.target_lang.upper() for facts in usable if facts.target_lang]
    regional = [code for target in targets for code in _TARGETS.get(target, (target,))]
    return [
        {"language": code, "name": language_name(code), "supports_formality": False} for code in dict.fromkeys(regional)
    ]


class DeeplUsage(BaseModel):
    character_count: int = Field(description="characters translated for this key since the server started")
    character_limit: int


@router.get("/usage", response_model=DeeplUsage, summary="Usage", responses=deepl_errors(403, 429))
async def usage(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.TRANSLATE)
    return {"character_count": context.service.characters.get(caller.name, 0), "character_limit": _NO_LIMIT}


class DeeplGlossaries(BaseModel):
    glossaries: list[dict[str, Any]]


class DeeplGlossaryPairs(BaseModel):
    supported_languages: list[dict[str, Any]]


@router.get(
    "/glossaries", response_model=DeeplGlossaries, summary="Glossaries: always empty", responses=deepl_errors(403, 429)
)
async def glossaries(request: Request) -> dict[str, Any]:
    Context.of(request).admit(request, Role.TRANSLATE)
    return {"glossaries": []}


@router.get(
    "/glossary-language-pairs",
    response_model=DeeplGlossaryPairs,
    summary="Language pairs for glossaries: always empty",
    responses=deepl_errors(403, 429),
)
async def glossary_pairs(request: Request) -> dict[str, Any]:
    Context.of(request).admit(request, Role.TRANSLATE)
    return {"supported_languages": []}
