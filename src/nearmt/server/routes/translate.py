"""POST /v1/translate."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request

from nearmt.markup import rules_for
from nearmt.methods.registry import AUTO
from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.http.openapi import errors
from nearmt.server.http.schemas import FilterBody, TranslateBody, TranslateReply
from nearmt.server.service.options import TranslationOptions
from nearmt.server.service.texts import refuse_bad_text
from nearmt.server.settings import Role

router = APIRouter(prefix="/v1", tags=["translate"])


@router.post(
    "/translate", response_model=TranslateReply, responses=errors(400, 401, 403, 404, 413, 429, 503, 504),
    summary="Translate one text or many",
)  # fmt: skip
async def translate(request: Request, body: TranslateBody) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.TRANSLATE)
    if body.evidence and body.format != "text":
        raise ApiError(400, "bad_request", "evidence goes with format text")
    chooser = context.chooser
    if body.stores is not None and body.store is not None:
        raise ApiError(400, "bad_request", "name a store or several stores, not both")
    named = body.stores if body.stores is not None else [body.store] if body.store is not None else None
    if named is not None:
        stores = chooser.named(caller, named)
    elif body.source is not None or body.target is not None:
        stores = (chooser.by_languages(caller, body.source, body.target).name,)
    else:
        stores = (chooser.usual(caller),)
    texts = [body.text] if isinstance(body.text, str) else body.text
    wanted = body.filter or FilterBody()
    for name in (*wanted.only, *wanted.exclude, wanted.since or "", wanted.until or ""):
        refuse_bad_text(name, "the filter")
    options = TranslationOptions(
        stores,
        body.method or context.settings.decoding.method,
        body.k,
        body.temperature,
        body.knn_share,
        body.n_best,
        tuple(wanted.only),
        tuple(wanted.exclude),
        wanted.since,
        wanted.until,
    )
    results = await context.service.translate(
        request, caller, texts, options,
        rules=None if body.format == "text" else rules_for(body.format),
        splits_sentences=body.split_sentences, wants_evidence=body.evidence,
    )  # fmt: skip
    return {
        "translations": [
            {
                "text": result.text,
                "score": result.score,
                "alternatives": [{"text": text, "score": score} for text, score in result.alternatives],
                "sentences": [asdict(sentence) for sentence in result.sentences],
                "tokens": result.tokens,
            }
            for result in results
        ],
        "stores": list(stores),
        "method": context.registry.facts(stores[0]).best_method if options.method == AUTO else options.method,
    }
