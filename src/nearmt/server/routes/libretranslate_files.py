"""File translation in the LibreTranslate API: fills XLIFF, PO and TMX files and offers them for download."""

import asyncio
import shutil
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel
from starlette.datastructures import FormData, UploadFile

from nearmt.corpus.extensions import DOCUMENT_EXTENSIONS
from nearmt.corpus.languages import LanguagePair
from nearmt.documents import document_format, translate_document
from nearmt.errors import NearMTError
from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.http.fields import open_form
from nearmt.server.http.openapi import errors
from nearmt.server.routes.libretranslate import LibreError
from nearmt.server.service.translation import BlockingTranslate
from nearmt.server.settings import Role

router = APIRouter(tags=["LibreTranslate"])
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
    "/translate_file",
    response_model=LibreFileReply,
    summary="Translate the untranslated units of an XLIFF, PO or TMX file",
    responses=errors(403, 429, 503, 504, model=LibreError),
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}},
)
async def translate_file(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    if context.settings.keys and request.headers.get("authorization"):
        context.admit(request, Role.TRANSLATE)  # refuse before reading the file; a key in the form comes with it
    async with open_form(request) as form:
        source, target, key = (_text(form, name) for name in ("source", "target", "api_key"))
        caller = context.admit(request, Role.TRANSLATE, key)
        file = form.get("file")
        if not isinstance(file, UploadFile) or not source or not target:
            raise ApiError(400, "bad_form", "the form needs the fields file, source and target")
        name = PurePath(file.filename or "").name
        if document_format(name) is None:
            raise ApiError(400, "bad_format", f"the file name must end in one of {', '.join(DOCUMENT_EXTENSIONS)}")
        facts = context.chooser.by_languages(caller, None if source == "auto" else source, target)
        out = context.downloads.new_path(PurePath(name).suffix.lower())
        given = out.with_name(f"in-{out.name}")
        translate = context.service.blocking_translate(request, context.options(facts.name))
        languages = LanguagePair(facts.source_lang, facts.target_lang)
        try:
            await context.service.in_thread(lambda: _translate(file.file, given, out, translate, languages))
        except NearMTError as error:
            raise context.registry.public_error(error, {given: name, out: name}) from None
    id = context.downloads.add(out, name)
    return {"translatedFileUrl": str(request.url_for("download_file", id=id))}


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) else None


def _translate(file: BinaryIO, given: Path, out: Path, translate: BlockingTranslate, languages: LanguagePair) -> None:
    try:
        with given.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        translate_document(given, out, translate, languages)
    finally:
        given.unlink(missing_ok=True)


@router.get(
    "/download_file/{id}",
    response_class=FileResponse,
    summary="Download a translated file",
    responses={
        **errors(404, model=LibreError),
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
    },
)
async def download_file(request: Request, id: str) -> FileResponse:
    # No key is needed: clients expect to download from a secret URL.
    found = await asyncio.to_thread(Context.of(request).downloads.find, id)
    if found is None:
        raise ApiError(404, "no_such_file", "unknown or expired file")
    return FileResponse(found.path, filename=found.name, media_type="application/octet-stream")
