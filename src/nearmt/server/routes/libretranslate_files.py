"""LibreTranslate's files: an XLIFF, PO or TMX file comes in, is filled, and can be fetched for an hour."""

import asyncio
import secrets
import shutil
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile

from nearmt.corpus.languages import LanguagePair
from nearmt.documents import document_format, translate_document
from nearmt.errors import NearMTError
from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.http.fields import open_form
from nearmt.server.http.openapi import errors
from nearmt.server.routes.libretranslate import LibreError
from nearmt.server.service.options import TranslationOptions
from nearmt.server.service.translation import BlockingTranslate
from nearmt.server.settings import Role

router = APIRouter(tags=["LibreTranslate"])
_ENDINGS = {"xliff": ".xlf", "po": ".po", "tmx": ".tmx"}
_FORM = {
    "type": "object",
    "required": ["file", "source", "target"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "XLIFF, PO or TMX"},
        **{name: {"type": "string"} for name in ("source", "target", "api_key")},
    },
}


class LibreFileReply(BaseModel):
    translatedFileUrl: str  # noqa: N815


@router.post(
    "/translate_file", response_model=LibreFileReply, summary="Fill an XLIFF, PO or TMX file",
    responses=errors(403, 429, 503, 504, model=LibreError),
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
)  # fmt: skip
async def translate_file(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    if context.settings.keys and request.headers.get("authorization"):
        context.admit(request, Role.TRANSLATE)  # a key in the form is known only after the file
    async with open_form(request) as form:
        source, target, key = (_text(form, name) for name in ("source", "target", "api_key"))
        caller = context.admit(request, Role.TRANSLATE, key)
        file = form.get("file")
        if not isinstance(file, UploadFile) or not source or not target:
            raise ApiError(400, "bad_form", "the form needs the fields file, source and target")
        shown = PurePath(file.filename or "").name
        kind = document_format(shown)
        if kind is None:
            raise ApiError(400, "bad_format", "the file's name must end in .xlf, .xliff, .po or .tmx")
        facts = context.chooser.by_languages(caller, None if source == "auto" else source, target)
        place = context.files.folder() / f"{secrets.token_hex(16)}{_ENDINGS[kind]}"
        translate = context.service.blocking(
            request, TranslationOptions((facts.name,), context.settings.decoding.method)
        )
        await context.service.in_thread(
            lambda: _translate(file.file, place, shown, translate, LanguagePair(facts.source_lang, facts.target_lang))
        )
    id = context.files.keep(place, shown)
    return {"translatedFileUrl": str(request.url_for("download_file", id=id))}


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) else None


def _translate(file: BinaryIO, place: Path, shown: str, translate: BlockingTranslate, languages: LanguagePair) -> None:
    given = place.with_name(f"in-{place.name}")
    try:
        with given.open("wb") as out:
            shutil.copyfileobj(file, out)
        translate_document(given, place, translate, languages)
    except NearMTError as error:
        raise type(error)(str(error).replace(str(given), shown).replace(str(place), shown)) from None
    finally:
        given.unlink(missing_ok=True)


@router.get(
    "/download_file/{id}", response_class=FileResponse, summary="Fetch a translated file",
    responses={
        **errors(404, model=LibreError),
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    },
)  # fmt: skip
async def download_file(request: Request, id: str) -> FileResponse:
    # No key: the address itself is the secret, as the clients expect.
    found = await asyncio.to_thread(Context.of(request).files.find, id)
    if found is None:
        raise ApiError(404, "no_such_file", "there is no such file, or it was long ago")
    return FileResponse(found.path, filename=found.shown, media_type="application/octet-stream")
