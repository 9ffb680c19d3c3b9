"""The native API: POST /v1/translate."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request

from nearmt.datastore import Filter
from nearmt.markup import rules_for
from nearmt.methods.registry import AUTO, MethodRequest
from nearmt.server.caller import Caller
from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.http.openapi import errors
from nearmt.server.http.schemas import FilterBody, TranslateBody, TranslateReply
from nearmt.server.service.options import TranslationOptions
from nearmt.server.service.texts import check_characters
from nearmt.server.settings import Role

router = APIRouter(prefix="/v1", tags=["translate"])


@router.post(
    "/translate",
    response_model=TranslateReply,
    responses=errors(400, 401, 403, 404, 413, 429, 503, 504),
    summary="Translate one or more texts",
)
async def translate(request: Request, body: TranslateBody) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.TRANSLATE)
    if body.evidence and body.format != "text":
        raise ApiError(400, "bad_request", "evidence is available only with format text")
    options = TranslationOptions(
        _select_stores(context, caller, body),
        MethodRequest(body.method or context.settings.decoding.method, body.k, body.temperature, body.knn_share),
        _filter(body.filter),
        body.n_best,
    )
    results = await context.service.translate(
        request,
        caller,
        [body.text] if isinstance(body.text, str) else body.text,
        options,
        rules=None if body.format == "text" else rules_for(body.format),
        splits_sentences=body.split_sentences,
        wants_evidence=body.evidence,
    )
    method = options.method.name
    return {
        "translations": [
            {
                **asdict(result),
                "alternatives": [{"text": text, "score": score} for text, score in result.alternatives],
            }
            for result in results
        ],
        "stores": list(options.stores),
        "method": context.registry.facts(options.stores[0]).best_method if method == AUTO else method,
    }


def _select_stores(context: Context, caller: Caller, body: TranslateBody) -> tuple[str, ...]:
    if body.stores is not None and body.store is not None:
        raise ApiError(400, "bad_request", "give store or stores, not both")
    names = body.stores if body.stores is not None else [body.store] if body.store is not None else None
    if names is not None:
        return context.chooser.by_name(caller, names)
    if body.source is not None or body.target is not None:
        return (context.chooser.by_languages(caller, body.source, body.target).name,)
    return (context.chooser.default(caller),)


def _filter(body: FilterBody | None) -> Filter:
    if body is None:
        return Filter()
    for text in (*body.only, *body.exclude, body.since or "", body.until or ""):
        check_characters(text, "the filter")
    return Filter(tuple(body.only), tuple(body.exclude), body.since, body.until)
