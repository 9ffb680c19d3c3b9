"""The Apertium API, as far as OmegaT's built-in connector uses it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from nearmt.markup import rules_for
from nearmt.server.context import Context
from nearmt.server.http.openapi import errors
from nearmt.server.routes.libretranslate import LibreError
from nearmt.server.settings import Role

router = APIRouter(tags=["Apertium"])


class ApertiumData(BaseModel):
    translatedText: str  # noqa: N815


class ApertiumReply(BaseModel):
    responseData: ApertiumData  # noqa: N815
    responseDetails: None = None  # noqa: N815
    responseStatus: Literal[200] = 200  # noqa: N815


@router.get(
    "/translate",
    response_model=ApertiumReply,
    summary="Translate a text",
    responses=errors(403, 429, 503, 504, model=LibreError),
)
async def translate(
    request: Request,
    q: Annotated[str, Query(description="the text")],
    langpair: Annotated[str, Query(pattern=r"^[A-Za-z0-9@._-]{1,40}\|[A-Za-z0-9@._-]{1,40}$", examples=["de|en"])],
    format: Annotated[Literal["txt", "html"], Query()] = "txt",
    key: Annotated[str | None, Query()] = None,
) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.TRANSLATE, key)
    source, _, target = langpair.partition("|")
    facts = context.chooser.by_languages(caller, source, target)
    rules = rules_for("html") if format == "html" else None
    (result,) = await context.service.translate(request, caller, [q], context.options(facts.name), rules=rules)
    return {"responseData": {"translatedText": result.text}, "responseDetails": None, "responseStatus": 200}
