"""The memories: what they are, adding, correcting, removing, importing."""

import asyncio
from dataclasses import asdict
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.datastructures import UploadFile

from nearmt.building.corrections import Batch
from nearmt.corpus import SentencePair
from nearmt.corpus.extensions import UPLOAD_FORMATS
from nearmt.corpus.pairs import utc_date
from nearmt.errors import NearMTError
from nearmt.server.context import Context
from nearmt.server.http.auth import Caller
from nearmt.server.http.errors import ApiError
from nearmt.server.http.fields import open_form
from nearmt.server.http.openapi import errors
from nearmt.server.http.schemas import (
    AddedReply,
    JobReply,
    RemovedReply,
    StoreDetailReply,
    StoresReply,
    UnitBody,
    UnitsBody,
)
from nearmt.server.service.jobs import ImportJob, Upload, format_of, kept_until_started
from nearmt.server.service.stores import StoreFacts
from nearmt.server.service.texts import refuse_bad_text
from nearmt.server.settings import Role

router = APIRouter(prefix="/v1", tags=["memory"])
_ORIGIN = "api"
_COPIED_BYTES = 1 << 20
_IMPORT = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "the file, gzipped or not"},
        "format": {"type": "string", "enum": list(UPLOAD_FORMATS), "description": "else by the file's name"},
        "origin": {"type": "string", "maxLength": 1000, "description": "else the file's name"},
    },
}


@router.get("/stores", response_model=StoresReply, responses=errors(401, 403, 429), summary="The stores of this server")
def list_stores(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.TRANSLATE)
    usual = (list(caller.stores) or context.registry.names)[0]
    return {
        "may_edit": context.authenticator.may(caller, Role.EDIT),
        "stores": [
            {**_described(facts, usual), **asdict(context.registry.counts(facts.name))}
            for facts in context.chooser.facts(caller)
        ],
    }


def _described(facts: StoreFacts, usual: str) -> dict[str, Any]:
    return {
        "name": facts.name,
        "is_usual": facts.name == usual,
        "languages": {"source": facts.source_lang, "target": facts.target_lang},
        "methods": list(facts.methods),
        "created_at": facts.created_at,
        "changed_at": facts.changed_at,
        "version": facts.version,
    }


@router.get(
    "/stores/{name}", response_model=StoreDetailReply, responses=errors(401, 403, 404, 429, 503), summary="One store"
)
def show_store(request: Request, name: str) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.TRANSLATE)
    (found,) = context.chooser.named(caller, [name])
    return {
        **_described(context.registry.facts(found), (list(caller.stores) or context.registry.names)[0]),
        **context.registry.details(found),
    }


def _editable(request: Request, name: str) -> tuple[Context, Caller]:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    context.chooser.named(caller, [name])
    return context, caller


@router.post(
    "/stores/{name}/units", response_model=AddedReply, responses=errors(401, 403, 404, 409, 429, 503),
    summary="Add units, or correct those that are there",
)  # fmt: skip
async def add_units(request: Request, name: str, body: UnitsBody) -> dict[str, Any]:
    context, _ = _editable(request, name)
    limits = context.settings.limits
    if len(body.units) > limits.max_units:
        raise ApiError(413, "too_many_units", f"{limits.max_units} units are the most at once: import a file instead")
    pairs = [_pair(unit, number, body.origin or _ORIGIN, limits.max_characters_per_text) for number, unit in
             enumerate(body.units, 1)]  # fmt: skip
    return await add_pairs(context, name, pairs, keep_both=body.keep_both)


async def add_pairs(
    context: Context, name: str, pairs: list[SentencePair], *, keep_both: bool = False
) -> dict[str, Any]:
    """Add to a store in its own thread; when this returns, the pairs are on disk."""
    try:
        added = await asyncio.get_running_loop().run_in_executor(
            context.registry.writer(name), context.registry.add, name, pairs, Batch(keep_both)
        )
    except NearMTError as error:
        raise context.service.without_paths(error) from None
    return added.as_dict()


def _pair(unit: UnitBody, number: int, origin: str, max_characters: int) -> SentencePair:
    for what, text in (("source", unit.source), ("target", unit.target), ("unit_id", unit.unit_id),
                       ("origin", unit.origin or origin)):  # fmt: skip
        refuse_bad_text(text or "", f"{what} of unit {number}")
        if len(text or "") > max_characters:
            raise ApiError(413, "too_long", f"{what} of unit {number} has more than {max_characters} characters")
    changed_at = utc_date(unit.changed_at)
    if unit.changed_at is not None and changed_at is None:
        raise ApiError(400, "bad_request", f"changed_at of unit {number} is no date as in 2024-05-01T12:00:00Z")
    return SentencePair(unit.source, unit.target, unit.unit_id, unit.origin or origin, changed_at)


@router.delete(
    "/stores/{name}/units", response_model=RemovedReply, responses=errors(401, 403, 404, 409, 429, 503),
    summary="Remove the units that fit all that is given",
)  # fmt: skip
async def remove_units(
    request: Request,
    name: str,
    unit_id: Annotated[str | None, Query(min_length=1, max_length=1000)] = None,
    origin: Annotated[str | None, Query(min_length=1, max_length=1000)] = None,
    source: Annotated[str | None, Query(min_length=1, max_length=50_000, description="the source text")] = None,
    target: Annotated[str | None, Query(min_length=1, max_length=50_000, description="the target text")] = None,
) -> dict[str, Any]:
    context, _ = _editable(request, name)
    given = {"unit_id": unit_id, "origin": origin, "source": source, "target": target}
    if not any(given.values()):
        raise ApiError(400, "bad_request", "say what to remove: unit_id, origin, source or target")
    for what, text in given.items():
        refuse_bad_text(text or "", what)
    return await remove_from(context, name, **given)


async def remove_from(
    context: Context,
    name: str,
    *,
    unit_id: str | None = None,
    origin: str | None = None,
    source: str | None = None,
    target: str | None = None,
) -> dict[str, Any]:
    """Remove from a store in its own thread."""
    try:
        removed = await asyncio.get_running_loop().run_in_executor(
            context.registry.writer(name),
            lambda: context.registry.remove(name, unit_id=unit_id, origin=origin, source=source, target=target),
        )
    except NearMTError as error:
        raise context.service.without_paths(error) from None
    return {**removed.as_dict(), "removed": [asdict(pair) for pair in removed.pairs]}


@router.post(
    "/stores/{name}/import", status_code=202, response_model=JobReply,
    responses=errors(401, 403, 404, 429, 503), summary="Import a TMX, XLIFF, PO, TSV or JSONL file",
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _IMPORT}}}},
)  # fmt: skip
async def import_file(request: Request, name: str) -> ImportJob:
    context, caller = _editable(request, name)  # before the file is taken in
    async with open_form(request) as form:
        file, stated, origin = form.get("file"), form.get("format"), form.get("origin")
        if not isinstance(file, UploadFile):
            raise ApiError(400, "bad_form", "the form has no field file with a file in it")
        if isinstance(stated, UploadFile) or isinstance(origin, UploadFile):
            raise ApiError(400, "bad_form", "format and origin are texts, not files")
        shown = PurePath(file.filename or "").name
        called = origin or shown or "import"
        refuse_bad_text(called, "origin")
        kind = format_of(shown, stated or None)
        with kept_until_started(Upload()) as upload:
            await asyncio.to_thread(_copy, file, upload)
            return context.jobs.start(ImportJob(name, called[:1000], caller.name), upload, kind)


def _copy(file: UploadFile, upload: Upload) -> None:
    with upload.path.open("wb") as out:
        while chunk := file.file.read(_COPIED_BYTES):
            out.write(chunk)


@router.get("/jobs/{id}", response_model=JobReply, responses=errors(401, 403, 404, 429), summary="How far an import is")
def show_job(request: Request, id: str) -> ImportJob:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    job = context.jobs.find(id)
    if job is None or (job.owner != caller.name and caller.role != Role.ADMIN):
        raise ApiError(404, "no_such_job", "there is no such job, or it was long ago")
    return job
