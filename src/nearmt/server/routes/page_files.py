"""Serves the files of the web page under a content security policy that allows no other sources."""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from nearmt.server.http.errors import ApiError

router = APIRouter(include_in_schema=False)
_INDEX = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# With trusted types the browser refuses to parse any string as HTML, so that segments are always shown as text.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)


@dataclass(frozen=True)
class PageFile:
    """One file of the page."""

    content: bytes
    media_type: str
    etag: str


def _read_all() -> dict[str, PageFile]:
    found = {}
    for entry in files("nearmt.server").joinpath("page").iterdir():
        media_type = _MEDIA_TYPES.get(entry.name[entry.name.rfind(".") :])
        if media_type is not None:
            content = entry.read_bytes()
            found[entry.name] = PageFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


_FILES = _read_all()


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    return _answer(request, _INDEX)


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def page_file(request: Request, name: str) -> Response:
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    found = _FILES.get(name)
    if found is None:
        raise ApiError(404, "not_found", "no such path")
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "ETag": found.etag}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
