"""Translation memories in the DeepL API: list them, import a file through an upload URL, follow the job, delete."""

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.routes.deepl_translate import deepl_errors
from nearmt.server.routes.memories import Memory, find_memory, list_memories, memory_id
from nearmt.server.routes.stores import remove_from
from nearmt.server.service.jobs import ImportJob, Upload, format_of, removed_on_error, utc_timestamp
from nearmt.server.service.texts import check_characters
from nearmt.server.settings import Role

router = APIRouter(prefix="/v3", tags=["DeepL"])
_UPLOAD_SECONDS = 3600
_MAX_PENDING = 1000


class DeeplMemory(BaseModel):
    translation_memory_id: str
    name: str
    source_language: str
    target_languages: list[str]
    segment_count: int
    creation_time: str
    updated_time: str


class DeeplMemories(BaseModel):
    translation_memories: list[DeeplMemory]
    total_count: int


class DeeplSourceFile(BaseModel):
    file_name: Annotated[str, Field(min_length=1, max_length=255)]
    content_length: Annotated[int, Field(ge=1, le=1 << 40)]
    content_type: Annotated[str | None, Field(max_length=100)] = None


class DeeplImportParameters(BaseModel):
    display_name: Annotated[str | None, Field(min_length=1, max_length=255)] = None


class DeeplImportBody(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    source_file: DeeplSourceFile
    parameters: DeeplImportParameters | None = Field(
        None, description="display_name: the store to import into, or the name of a new origin in the default store"
    )


class DeeplImportReply(BaseModel):
    job_id: str
    upload_url: str
    expires_at: str


class DeeplJobError(BaseModel):
    message: str


class DeeplJobResult(BaseModel):
    status: Literal["awaiting_input", "processing", "completed", "failed", "expired"]
    translation_memory_id: str | None = None
    skipped_segment_count: int | None = None
    error: DeeplJobError | None = None


class DeeplJob(BaseModel):
    job_id: str
    operation: Literal["import"]
    product: Literal["translation_memory"]
    creation_time: str
    results: list[DeeplJobResult]


@dataclass
class _PendingImport:
    """An import whose file has been announced, and its job once the file has arrived."""

    store: str
    origin: str
    is_store: bool  # the import targets a whole store, not one origin within the default store
    owner: str
    format: str
    length: int
    announced_at: float
    job: ImportJob | None = None

    @property
    def is_expired(self) -> bool:
        return time.time() > self.announced_at + _UPLOAD_SECONDS


class _PendingImports:
    """Announced imports by their secret ids."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, _PendingImport] = OrderedDict()

    def add(self, pending: _PendingImport) -> str:
        while len(self._found) >= _MAX_PENDING:
            self._found.popitem(last=False)
        id = secrets.token_urlsafe(24)
        self._found[id] = pending
        return id

    def get(self, id: str) -> _PendingImport | None:
        return self._found.get(id)


def _pending_imports(request: Request) -> _PendingImports:
    state = request.app.state
    if not hasattr(state, "pending_imports"):
        state.pending_imports = _PendingImports()
    found: _PendingImports = state.pending_imports
    return found


def _describe(memory: Memory) -> dict[str, Any]:
    facts = memory.facts
    return {
        "translation_memory_id": memory.id,
        "name": memory.name,
        "source_language": (facts.source_lang or "und").upper(),
        "target_languages": [(facts.target_lang or "und").upper()],
        "segment_count": memory.segments,
        "creation_time": facts.created_at,
        "updated_time": facts.changed_at,
    }


@router.get(
    "/translation_memories",
    response_model=DeeplMemories,
    summary="List translation memories: the stores and their origins",
    responses=deepl_errors(403, 429),
)
def memories(
    request: Request,
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    page_size: Annotated[int, Query(ge=1, le=25)] = 25,
) -> dict[str, Any]:
    context = Context.of(request)
    found = list_memories(context, context.admit(request, Role.TRANSLATE))
    shown = found[page * page_size : (page + 1) * page_size]
    return {"translation_memories": [_describe(memory) for memory in shown], "total_count": len(found)}


@router.post(
    "/translation_memories/import",
    response_model=DeeplImportReply,
    summary="Announce a file to import",
    responses=deepl_errors(403, 404, 429, 503),
)
def announce(request: Request, body: DeeplImportBody) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    name = PurePath(body.source_file.file_name).name
    wanted = body.parameters.display_name if body.parameters and body.parameters.display_name else None
    for text in (name, wanted or ""):
        check_characters(text, "the name")
    max_bytes = context.settings.limits.max_upload_bytes
    if body.source_file.content_length > max_bytes:
        raise ApiError(413, "too_large", f"the file is larger than {max_bytes} bytes")
    is_store = wanted in context.chooser.allowed(caller)
    store = wanted if is_store and wanted is not None else context.chooser.default(caller)
    context.chooser.check_ready(store)
    pending = _PendingImport(
        store,
        (wanted if wanted and not is_store else name) or "import",
        is_store,
        caller.name,
        format_of(name, None),
        body.source_file.content_length,
        time.time(),
    )
    id = _pending_imports(request).add(pending)
    return {
        "job_id": id,
        "upload_url": str(request.url_for("upload", id=id)),
        "expires_at": utc_timestamp(pending.announced_at + _UPLOAD_SECONDS),
    }


@router.put(
    "/translation_memories/uploads/{id}",
    response_class=Response,
    summary="Upload an announced file",
    responses={**deepl_errors(404, 409, 503), 200: {"description": "The import is queued"}},
    openapi_extra={"requestBody": {"content": {"application/xml": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def upload(request: Request, id: str) -> Response:
    # No key is needed: clients expect to upload to a secret URL.
    context, pending = Context.of(request), _pending_imports(request).get(id)
    if pending is None or pending.is_expired:
        raise ApiError(404, "no_such_upload", "unknown or expired upload")
    if pending.job is not None:
        raise ApiError(409, "already_sent", "the file has already been uploaded")
    with removed_on_error(Upload()) as file:
        size = 0
        with file.path.open("wb") as out:
            async for chunk in request.stream():
                size += len(chunk)
                await asyncio.to_thread(out.write, chunk)
        if size != pending.length:
            raise ApiError(
                400, "wrong_length", f"the file was announced with {pending.length} bytes, and {size} arrived"
            )
        if pending.job is not None:
            raise ApiError(409, "already_sent", "the file has already been uploaded")
        job = ImportJob(pending.store, pending.origin, pending.owner, forces_origin=not pending.is_store)
        pending.job = context.jobs.start(job, file, pending.format)
    return Response(status_code=200)


@router.get(
    "/translation_memories/jobs/{id}",
    response_model=DeeplJob,
    response_model_exclude_none=True,
    summary="Progress of an import",
    responses=deepl_errors(403, 404, 429),
)
def show_job(request: Request, id: str) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    pending = _pending_imports(request).get(id)
    if pending is None or (pending.owner != caller.name and caller.role != Role.ADMIN):
        raise ApiError(404, "no_such_job", "unknown or expired job")
    return {
        "job_id": id,
        "operation": "import",
        "product": "translation_memory",
        "creation_time": utc_timestamp(pending.announced_at),
        "results": [_result(pending)],
    }


def _result(pending: _PendingImport) -> dict[str, Any]:
    job = pending.job
    if job is None:
        return {"status": "expired" if pending.is_expired else "awaiting_input"}
    if job.state == "failed":
        return {"status": "failed", "error": {"message": job.error or "the import failed"}}
    if job.state != "done":
        return {"status": "processing"}
    return {
        "status": "completed",
        "translation_memory_id": memory_id(pending.store, None if pending.is_store else pending.origin),
        "skipped_segment_count": sum(job.dropped.values()),
    }


@router.get(
    "/translation_memories/{id}",
    response_model=DeeplMemory,
    summary="One translation memory",
    responses=deepl_errors(403, 404, 429),
)
def show_memory(request: Request, id: str) -> dict[str, Any]:
    context = Context.of(request)
    return _describe(find_memory(context, context.admit(request, Role.TRANSLATE), id))


@router.delete(
    "/translation_memories/{id}",
    status_code=204,
    summary="Remove all units of an origin",
    responses=deepl_errors(403, 404, 409, 429),
)
async def delete_memory(request: Request, id: str) -> Response:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    memory = await asyncio.to_thread(find_memory, context, caller, id)
    if memory.origin is None:
        raise ApiError(403, "not_allowed", "a whole store cannot be deleted through the API")
    await remove_from(context, memory.store, origin=memory.origin)
    return Response(status_code=204)
