"""DeepL's translation memories: list, import a TMX through an upload address, watch the job, delete."""

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from nearmt.server.context import Context
from nearmt.server.http.errors import ApiError
from nearmt.server.routes.deepl_translate import deepl_errors
from nearmt.server.routes.memories import Memory, find_memory, list_memories, memory_id
from nearmt.server.routes.stores import remove_from
from nearmt.server.service.jobs import ImportJob, Upload, format_of, kept_until_started
from nearmt.server.service.texts import refuse_bad_text
from nearmt.server.settings import Role

router = APIRouter(prefix="/v3", tags=["DeepL"])
_UPLOAD_SECONDS = 3600
_MAX_EXPECTED = 1000


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
        None, description="display_name: a store to import into; else the name of a new part of the usual store"
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
class _Expected:
    """An import whose file has been announced."""

    store: str
    origin: str
    is_store: bool  # the whole store was meant, not a part of it
    owner: str
    format: str
    length: int
    announced: float
    job: ImportJob | None = None


class _Expectations:
    """Imports by their secret numbers."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, _Expected] = OrderedDict()

    def add(self, expected: _Expected) -> str:
        while len(self._found) >= _MAX_EXPECTED:
            self._found.popitem(last=False)
        id = secrets.token_urlsafe(24)
        self._found[id] = expected
        return id

    def get(self, id: str) -> _Expected | None:
        return self._found.get(id)


def _expectations(request: Request) -> _Expectations:
    state = request.app.state
    if not hasattr(state, "expectations"):
        state.expectations = _Expectations()
    found: _Expectations = state.expectations
    return found


def _described(memory: Memory) -> dict[str, Any]:
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
    "/translation_memories", response_model=DeeplMemories, summary="Stores and their origins",
    responses=deepl_errors(403, 429),
)  # fmt: skip
def memories(
    request: Request,
    page: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
    page_size: Annotated[int, Query(ge=1, le=25)] = 25,
) -> dict[str, Any]:
    context = Context.of(request)
    found = list_memories(context, context.admit(request, Role.TRANSLATE))
    shown = found[page * page_size : (page + 1) * page_size]
    return {"translation_memories": [_described(memory) for memory in shown], "total_count": len(found)}


@router.post(
    "/translation_memories/import", response_model=DeeplImportReply, summary="Announce a file to import",
    responses=deepl_errors(403, 404, 429, 503),
)  # fmt: skip
def announce(request: Request, body: DeeplImportBody) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    name = PurePath(body.source_file.file_name).name
    wanted = body.parameters.display_name if body.parameters and body.parameters.display_name else None
    for text in (name, wanted or ""):
        refuse_bad_text(text, "the name")
    if body.source_file.content_length > context.settings.limits.max_upload_bytes:
        raise ApiError(413, "too_large", f"a file has at most {context.settings.limits.max_upload_bytes} bytes")
    is_store = wanted in (list(caller.stores) or context.registry.names)
    store = wanted if is_store and wanted is not None else context.chooser.usual(caller)
    context.chooser.refuse_unready(store)
    expected = _Expected(
        store,
        (wanted if wanted and not is_store else name) or "import",
        is_store,
        caller.name,
        format_of(name, None),
        body.source_file.content_length,
        time.time(),
    )
    id = _expectations(request).add(expected)
    expires = datetime.fromtimestamp(expected.announced + _UPLOAD_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"job_id": id, "upload_url": str(request.url_for("upload", id=id)), "expires_at": expires}


@router.put(
    "/translation_memories/uploads/{id}", response_class=Response, summary="Send the announced file",
    responses={**deepl_errors(404, 409, 503), 200: {"description": "It is being imported"}},
    openapi_extra={
        "requestBody": {"content": {"application/xml": {"schema": {"type": "string", "format": "binary"}}}}
    },
)  # fmt: skip
async def upload(request: Request, id: str) -> Response:
    # No key: the address itself is the secret, as the clients expect.
    context, expected = Context.of(request), _expectations(request).get(id)
    if expected is None or time.time() > expected.announced + _UPLOAD_SECONDS:
        raise ApiError(404, "no_such_upload", "no file is expected here")
    if expected.job is not None:
        raise ApiError(409, "already_sent", "the file was already sent")
    with kept_until_started(Upload()) as file:
        size = 0
        with file.path.open("wb") as out:
            async for chunk in request.stream():
                size += len(chunk)
                await asyncio.to_thread(out.write, chunk)
        if size != expected.length:
            raise ApiError(400, "wrong_length", f"{expected.length} bytes were announced and {size} were sent")
        if expected.job is not None:
            raise ApiError(409, "already_sent", "the file was already sent")
        job = ImportJob(expected.store, expected.origin, expected.owner, forces_origin=not expected.is_store)
        expected.job = context.jobs.start(job, file, expected.format)
    return Response(status_code=200)


@router.get(
    "/translation_memories/jobs/{id}", response_model=DeeplJob, response_model_exclude_none=True,
    summary="How far an import is", responses=deepl_errors(403, 404, 429),
)  # fmt: skip
def show_job(request: Request, id: str) -> dict[str, Any]:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    expected = _expectations(request).get(id)
    if expected is None or (expected.owner != caller.name and caller.role != Role.ADMIN):
        raise ApiError(404, "no_such_job", "there is no such job, or it was long ago")
    created = datetime.fromtimestamp(expected.announced, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "job_id": id, "operation": "import", "product": "translation_memory", "creation_time": created,
        "results": [_result(expected)],
    }  # fmt: skip


def _result(expected: _Expected) -> dict[str, Any]:
    job = expected.job
    if job is None:
        is_late = time.time() > expected.announced + _UPLOAD_SECONDS
        return {"status": "expired" if is_late else "awaiting_input"}
    if job.state == "failed":
        return {"status": "failed", "error": {"message": job.error or "the import failed"}}
    if job.state != "done":
        return {"status": "processing"}
    return {
        "status": "completed",
        "translation_memory_id": memory_id(expected.store, None if expected.is_store else expected.origin),
        "skipped_segment_count": sum(job.dropped.values()),
    }


@router.get(
    "/translation_memories/{id}", response_model=DeeplMemory, summary="One memory",
    responses=deepl_errors(403, 404, 429),
)  # fmt: skip
def show_memory(request: Request, id: str) -> dict[str, Any]:
    context = Context.of(request)
    return _described(find_memory(context, context.admit(request, Role.TRANSLATE), id))


@router.delete(
    "/translation_memories/{id}", status_code=204, summary="Remove what has one origin",
    responses=deepl_errors(403, 404, 409, 429),
)  # fmt: skip
async def delete_memory(request: Request, id: str) -> Response:
    context = Context.of(request)
    caller = context.admit(request, Role.EDIT)
    memory = await asyncio.to_thread(find_memory, context, caller, id)
    if memory.origin is None:
        raise ApiError(403, "not_allowed", "a whole store is taken away on the server, not through this interface")
    await remove_from(context, memory.store, origin=memory.origin)
    return Response(status_code=204)
