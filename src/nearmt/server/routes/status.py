"""Health, readiness, version and metrics."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from nearmt import __version__
from nearmt.server.context import Context
from nearmt.server.http.openapi import errors
from nearmt.server.http.schemas import HealthReply, ReadyReply, VersionReply
from nearmt.server.settings import Role

router = APIRouter(tags=["status"])


@router.get("/v1/health", response_model=HealthReply, summary="Health check")
async def health() -> dict[str, Any]:
    return {"status": "ok"}


@router.get(
    "/v1/ready",
    response_model=ReadyReply,
    summary="Readiness check: whether all stores are loaded",
    responses={503: {"model": ReadyReply, "description": "Stores are loading, or failed to load"}},
)
async def ready(request: Request) -> JSONResponse:
    context = Context.of(request)
    registry = context.registry
    unready = "failed" if registry.failure is not None else "loading"
    stores = {name: "ready" if registry.is_ready(name) else unready for name in registry.names}
    if context.settings.keys:  # this route needs no key, and store names may be confidential
        stores = {}
    return JSONResponse({"ready": registry.is_ready(), "stores": stores}, 200 if registry.is_ready() else 503)


@router.get("/v1/version", response_model=VersionReply, summary="Version")
async def version() -> dict[str, Any]:
    return {"name": "nearmt", "version": __version__, "api": "v1"}


@router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses={**errors(401, 403, 429), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request) -> Response:
    context = Context.of(request)
    if context.settings.keys and not context.settings.public_metrics:
        context.admit(request, Role.ADMIN)
    return Response(context.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
