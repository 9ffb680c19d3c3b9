"""The native API: list and describe stores, add, correct and remove units, import files."""

import asyncio
from dataclasses import asdict
from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.datastructures import UploadFile

from nearmt.building.corrections import EditBatch
from nearmt.corpus import SentencePair
from nearmt.corpus.extensions import UPLOAD_FORMATS
from nearmt.corpus.pairs import utc_date
from nearmt.server.caller import Caller
from nearmt.server.context import Context
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
from nearmt.server.service.jobs import ImportJob, Upload, format_of, removed_on_error
from nearmt.server.service.stores import StoreFacts
from nearmt.server.service.texts import check_characters, check_length
from nearmt.server.settings import Role

router = APIRouter(prefix="/v1", tags=["memory"])
_DEFAULT_ORIGIN = "api"
_CHUNK_BYTES = 1 << 20
_IMPORT = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "the file, optionally gzipped"},
        "format": {
            "type": "string",
            "enum": list(UPLOAD_FORMATS),
            "description": "format of the file; derived from its name if not given",
        },
        "origin": {
            "type": "string",
            "maxLength": 1000,
            "description": "origin of the units; the name of the file if not given",
        },
    },
}


@router.get("/stores", response_model=StoresReply, responses=errors(401, 403, 429), summary="List the stores")
def list_stores(request: Request) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.TRANSLATE)
    default = context.chooser.allowed(caller)[0]
    return {
        "may_edit": context.authenticator.may(caller, Role.EDIT),
        "stores": [
            {**_describe(facts, default), **asdict(context.registry.counts(facts.name))}
            for facts in context.chooser.facts(caller)
        ],
    }


def _describe(facts: StoreFacts, default: str) -> dict[str, Any]:
    return {
        "name": facts.name,
        "is_usual": facts.name == default,
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
    (found,) = context.chooser.by_name(caller, [name])
    default = context.chooser.allowed(caller)[0]
    return {**_describe(context.registry.facts(found), default), **context.registry.details(found)}


def _admit_editor(request: Request, name: str) -> tuple[Context, Caller]:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    context.chooser.by_name(caller, [name])
    return context, caller


@router.post(
    "/stores/{name}/units",
    response_model=AddedReply,
    responses=errors(401, 403, 404, 409, 429, 503),
    summary="Add or correct units",
)
async def add_units(request: Request, name: str, body: UnitsBody) -> dict[str, Any]:
    context, _ = _admit_editor(request, name)
    limits = context.settings.limits
    if len(body.units) > limits.max_units:
        message = f"{len(body.units)} units are too many: the limit is {limits.max_units}; import a file instead"
        raise ApiError(413, "too_many_units", message)
    pairs = [
        _pair(unit, number, body.origin or _DEFAULT_ORIGIN, limits.max_characters_per_text)
        for number, unit in enumerate(body.units, 1)
    ]
    return await add_pairs(context, name, pairs, keep_both=body.keep_both)


async def add_pairs(
    context: Context, name: str, pairs: list[SentencePair], *, keep_both: bool = False
) -> dict[str, Any]:
    """Add pairs to a store in its writer thread. When it returns, they are on disk."""
    added = await asyncio.get_running_loop().run_in_executor(
        context.registry.writer(name), context.registry.add, name, pairs, EditBatch(keep_both)
    )
    return added.as_dict()


def _pair(unit: UnitBody, number: int, default_origin: str, max_characters: int) -> SentencePair:
    origin = unit.origin or default_origin
    texts = {"source": unit.source, "target": unit.target, "unit_id": unit.unit_id or "", "origin": origin}
    for field, text in texts.items():
        check_characters(text, f"{field} of unit {number}")
        check_length(text, f"{field} of unit {number}", max_characters)
    changed_at = utc_date(unit.changed_at)
    if unit.changed_at is not None and changed_at is None:
        raise ApiError(
            400, "bad_request", f"changed_at of unit {number} is not a date: write it as 2024-05-01T12:00:00Z"
        )
    return SentencePair(unit.source, unit.target, unit.unit_id, origin, changed_at)


@router.delete(
    "/stores/{name}/units",
    response_model=RemovedReply,
    responses=errors(401, 403, 404, 409, 429, 503),
    summary="Remove the units that match all given parameters",
)
async def remove_units(
    request: Request,
    name: str,
    unit_id: Annotated[str | None, Query(min_length=1, max_length=1000)] = None,
    origin: Annotated[str | None, Query(min_length=1, max_length=1000)] = None,
    source: Annotated[str | None, Query(min_length=1, max_length=50_000, description="the source text")] = None,
    target: Annotated[str | None, Query(min_length=1, max_length=50_000, description="the target text")] = None,
) -> dict[str, Any]:
    context, _ = _admit_editor(request, name)
    given = {"unit_id": unit_id, "origin": origin, "source": source, "target": target}
    if not any(given.values()):
        raise ApiError(400, "bad_request", "give at least one of unit_id, origin, source and target")
    for field, text in given.items():
        check_characters(text or "", field)
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
    """Remove units from a store in its writer thread."""
    removed = await asyncio.get_running_loop().run_in_executor(
        context.registry.writer(name),
        lambda: context.registry.remove(name, unit_id=unit_id, origin=origin, source=source, target=target),
    )
    return {**removed.as_dict(), "removed": [asdict(pair) for pair in removed.pairs]}


@router.post(
    "/stores/{name}/import",
    status_code=202,
    response_model=JobReply,
    responses=errors(401, 403, 404, 429, 503),
    summary="Import a TMX, XLIFF, PO, TSV or JSONL file",
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _IMPORT}}}},
)
async def import_file(request: Request, name: str) -> ImportJob:
    context, caller = _admit_editor(request, name)  # before the file is read
    async with open_form(request) as form:
        file, stated, origin = form.get("file"), form.get("format"), form.get("origin")
        if not isinstance(file, UploadFile):
            raise ApiError(400, "bad_form", "the form needs a file in the field file")
        if isinstance(stated, UploadFile) or isinstance(origin, UploadFile):
            raise ApiError(400, "bad_form", "format and origin must be text, not files")
        file_name = PurePath(file.filename or "").name
        origin = origin or file_name or "import"
        check_characters(origin, "origin")
        format = format_of(file_name, stated or None)
        with removed_on_error(Upload()) as upload:
            await asyncio.to_thread(_copy, file, upload)
            return context.jobs.start(ImportJob(name, origin[:1000], caller.name), upload, format)


def _copy(file: UploadFile, upload: Upload) -> None:
    with upload.path.open("wb") as out:
        while chunk := file.file.read(_CHUNK_BYTES):
            out.write(chunk)


@router.get(
    "/jobs/{id}", response_model=JobReply, responses=errors(401, 403, 404, 429), summary="Progress of an import"
)
def show_job(request: Request, id: str) -> ImportJob:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    job = context.jobs.find(id)
    if job is None or (job.owner != caller.name and caller.role != Role.ADMIN):
        raise ApiError(404, "no_such_job", "unknown or expired job")
    return job
