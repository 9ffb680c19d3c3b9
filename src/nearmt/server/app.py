"""The application: assembles settings, services, routes and middleware."""

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
from starlette.middleware.cors import CORSMiddleware

from nearmt import __version__
from nearmt.errors import NearMTError
from nearmt.server.context import Context
from nearmt.server.http.auth import Authenticator
from nearmt.server.http.errors import ApiError, error_response, from_http, from_validation
from nearmt.server.http.metrics import Metrics
from nearmt.server.http.middleware import CORS_HEADERS, CORS_METHODS, RequestLimits
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
from nearmt.server.service.downloads import Downloads
from nearmt.server.service.jobs import ImportJobs
from nearmt.server.service.store_choice import StoreChooser
from nearmt.server.service.stores import StoreRegistry
from nearmt.server.service.translation import TranslationService
from nearmt.server.settings import ServerSettings

log = logging.getLogger("nearmt.server")
_DESCRIPTION = (
    "Adaptive machine translation with translation memories. Besides the native API under /v1, the server offers "
    "routes compatible with clients of LibreTranslate, DeepL and Apertium."
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
# Bodies that may be JSON or a form. FastAPI does not see these models, so the OpenAPI description is completed.
_FORM_BODIES = (
    libretranslate.LibreTranslateBody,
    libretranslate.LibreDetectBody,
    libretranslate.LibreSuggestBody,
    deepl_translate.DeeplTranslateBody,
)


def create_app(settings: ServerSettings) -> FastAPI:
    """Create the application. On startup it loads its stores in a background thread."""
    app = FastAPI(
        title="nearmt",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,  # FastAPI's documentation page loads scripts from another site
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    context = app.state.context = _create_context(settings)
    app.add_middleware(RequestLimits, settings=settings, metrics=context.metrics)
    if settings.cors_origins:
        # Added last, so it is the outermost: error responses of RequestLimits need CORS headers too.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=CORS_METHODS,
            allow_headers=CORS_HEADERS,
        )
    for module in ROUTES:
        app.include_router(module.router)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_bad_request)
    app.add_exception_handler(NearMTError, _on_nearmt_error)
    description = complete(app.openapi(), _FORM_BODIES)
    app.openapi = lambda: description  # type: ignore[method-assign]  # as FastAPI's own guide does it
    return app


def _create_context(settings: ServerSettings) -> Context:
    metrics = Metrics()
    registry = StoreRegistry(settings, metrics.on_batch)
    metrics.watch(
        lambda: sum(runner.batcher.num_queued for runner in registry.runners),
        lambda: [(name, *astuple(registry.counts(name))) for name in filter(registry.is_ready, registry.names)],
    )
    return Context(
        settings,
        metrics,
        Authenticator(settings),
        registry,
        StoreChooser(registry),
        TranslationService(registry, settings),
        ImportJobs(registry, settings.limits.max_jobs),
        Downloads(),
    )


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    threading.Thread(target=_load, args=(context.registry,), name="loading", daemon=True).start()
    yield
    context.jobs.close()
    context.downloads.close()
    await asyncio.to_thread(context.registry.close, context.settings.shutdown_seconds)


def _load(registry: StoreRegistry) -> None:
    registry.load(lambda name: log.info("store %s is ready", name))
    if registry.failure is not None:
        log.error("%s", registry.failure)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return error_response(from_http(error), request.url.path)


async def _on_bad_request(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return error_response(from_validation(list(error.errors())), request.url.path)


async def _on_nearmt_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NearMTError)
    found: ApiError = Context.of(request).registry.public_error(error)
    return error_response(found, request.url.path)
