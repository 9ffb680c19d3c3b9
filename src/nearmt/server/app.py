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
from nearmt.server.context import Context
from nearmt.server.http.auth import Authenticator
from nearmt.server.http.errors import ApiError, from_http, from_validation, in_dialect
from nearmt.server.http.metrics import Metrics
from nearmt.server.http.middleware import RequestLimits
from nearmt.server.http.openapi import complete
from nearmt.server.routes import (
    apertium,
    deepl_memories,
    deepl_translate,
    libretranslate,
    libretranslate_files,
    page_files,
    status,
    stores,
    translate,
)
from nearmt.server.service.jobs import ImportJobs
from nearmt.server.service.kept_files import KeptFiles
from nearmt.server.service.store_choice import StoreChooser
from nearmt.server.service.stores import StoreRegistry
from nearmt.server.service.translation import TranslationService
from nearmt.server.settings import ServerSettings

log = logging.getLogger("nearmt.server")
_DESCRIPTION = (
    "Adaptive machine translation with translation memories. Besides the native API under /v1 there are routes that "
    "clients of LibreTranslate, DeepL and Apertium understand."
)

ROUTES = (
    translate,
    stores,
    status,
    libretranslate,
    apertium,
    deepl_translate,
    deepl_memories,
    libretranslate_files,
    page_files,
)


def create_app(settings: ServerSettings) -> FastAPI:
    """A server; its stores are loaded when it starts, in the background."""
    metrics = Metrics()
    registry = StoreRegistry(settings, metrics.on_batch)
    chooser = StoreChooser(registry)
    context = Context(
        settings,
        metrics,
        Authenticator(settings),
        registry,
        chooser,
        TranslationService(registry, settings),
        ImportJobs(registry, settings.limits.max_jobs),
        KeptFiles(),
    )
    metrics.watch(
        lambda: sum(engine.batcher.num_queued for engine in registry.engines),
        lambda: [(name, *astuple(registry.counts(name))) for name in filter(registry.is_ready, registry.names)],
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
    app.add_middleware(RequestLimits, settings=settings, metrics=metrics)
    for part in ROUTES:
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
    threading.Thread(target=_load, args=(context.registry,), name="loading", daemon=True).start()
    yield
    context.jobs.close()
    context.files.close()
    await asyncio.to_thread(context.registry.close, context.settings.shutdown_seconds)


def _load(registry: StoreRegistry) -> None:
    registry.load(lambda name: log.info("the store %s is ready", name))
    if registry.failure is not None:
        log.error("%s", registry.failure)


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
    return _answer(request, Context.of(request).service.without_paths(error))
