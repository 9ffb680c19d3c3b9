"""The application: all parts put together."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import astuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from nearmt import __version__
from nearmt.errors import NearMTError
from nearmt.server import (
    apertium,
    deepl_memories,
    deepl_translate,
    front,
    libretranslate,
    native_status,
    native_stores,
    native_translate,
    translated_files,
)
from nearmt.server.access import Gatekeeper
from nearmt.server.context import Context
from nearmt.server.descriptions import complete
from nearmt.server.failures import ApiError, from_http, from_validation, in_dialect
from nearmt.server.guard import Guard
from nearmt.server.jobs import ImportJobs
from nearmt.server.kept_files import KeptFiles
from nearmt.server.metrics import Metrics
from nearmt.server.selection import StoreChooser
from nearmt.server.settings import ServerSettings
from nearmt.server.stores import Shelf
from nearmt.server.translation import TranslationDesk

log = logging.getLogger("nearmt.server")
_DESCRIPTION = (
    "Adaptive machine translation with translation memories. Besides the native API under /v1 there are routes that "
    "clients of LibreTranslate, DeepL and Apertium understand."
)


def create_app(settings: ServerSettings) -> FastAPI:
    """A server; its stores are loaded when it starts, in the background."""
    metrics = Metrics()
    shelf = Shelf(settings, metrics.on_batch)
    chooser = StoreChooser(shelf)
    context = Context(
        settings,
        metrics,
        Gatekeeper(settings),
        shelf,
        chooser,
        TranslationDesk(shelf, settings),
        ImportJobs(shelf, settings.limits.max_jobs),
        KeptFiles(),
    )
    metrics.watch(
        lambda: sum(engine.batcher.num_queued for engine in shelf.engines),
        lambda: [(name, *astuple(shelf.counts(name))) for name in filter(shelf.is_ready, shelf.names)],
    )
    app = FastAPI(
        title="nearmt",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,  # its page loads its code from elsewhere
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    app.state.context = context
    app.add_middleware(Guard, settings=settings, metrics=metrics)
    for part in (native_translate, native_stores, native_status, libretranslate, apertium, deepl_translate,
                 deepl_memories, translated_files, front):  # fmt: skip
        app.include_router(part.router)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_bad_request)
    app.add_exception_handler(NearMTError, _on_nearmt_error)
    described = complete(
        app.openapi(),
        (
            libretranslate.LibreTranslateBody,
            libretranslate.LibreDetectBody,
            libretranslate.LibreSuggestBody,
            deepl_translate.DeeplTranslateBody,
        ),
    )
    app.openapi = lambda: described  # type: ignore[method-assign]  # as FastAPI's own guide has it
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    threading.Thread(target=_load, args=(context.shelf,), name="loading", daemon=True).start()
    yield
    context.jobs.close()
    context.files.close()
    await asyncio.to_thread(context.shelf.close, context.settings.shutdown_seconds)


def _load(shelf: Shelf) -> None:
    shelf.load(lambda name: log.info("the store %s is ready", name))
    if shelf.failure is not None:
        log.error("%s", shelf.failure)


def _answer(request: Request, error: ApiError) -> JSONResponse:
    status, content = in_dialect(error, request.url.path)
    return JSONResponse(content, status, error.headers)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _answer(request, from_http(error))


async def _on_bad_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return _answer(request, from_validation(list(error.errors())))


async def _on_nearmt_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NearMTError)
    return _answer(request, Context.of(request).desk.without_paths(error))
