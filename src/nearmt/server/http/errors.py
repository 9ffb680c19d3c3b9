"""Error responses: a status, a short code for programs and one sentence for people."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from nearmt.errors import (
    CorpusError,
    DocumentError,
    IndexUnavailableError,
    MarkupError,
    MissingExtraError,
    NearMTError,
    SettingError,
    StoreDamagedError,
    StoreLockedError,
    StoreMismatchError,
)

log = logging.getLogger("nearmt.server")


class ApiError(HTTPException):
    """An error response.

    It is an HTTPException because FastAPI turns any other exception raised while it reads a body into a plain 400.
    """

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code = code

    @property
    def message(self) -> str:
        return str(self.detail)


_CODES = {
    400: "bad_request",
    401: "key_needed",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_type",
    422: "bad_request",
    429: "too_many_requests",
}
_MESSAGES = {404: "no such path", 405: "this path does not support this method"}
# The first matching class applies. The messages of these errors are sent to the client.
_PUBLIC: tuple[tuple[type[NearMTError], int, str], ...] = (
    (StoreLockedError, 409, "store_locked"),
    (CorpusError, 400, "unreadable_file"),
    (MarkupError, 400, "bad_markup"),
    (DocumentError, 400, "unreadable_file"),
    (SettingError, 400, "bad_setting"),
    (MissingExtraError, 501, "not_installed"),
)
_INDEX_RETRY_SECONDS = 5
_LIBRETRANSLATE_PATHS = frozenset(
    {"translate", "translate_file", "detect", "languages", "suggest", "frontend", "health", "download_file"}
)


def from_nearmt(error: NearMTError) -> ApiError:
    """The response to an error of nearmt.

    Errors that the client cannot have caused may name files or addresses of the server, so their messages go to the
    log, and the client gets a general one.
    """
    for kind, status, code in _PUBLIC:
        if isinstance(error, kind):
            return ApiError(status, code, str(error))
    log.error("%s: %s", type(error).__name__, error)
    if isinstance(error, IndexUnavailableError):
        return ApiError(
            503,
            "index_unavailable",
            "the search engine of this store does not answer: try again later",
            {"Retry-After": str(_INDEX_RETRY_SECONDS)},
        )
    if isinstance(error, StoreMismatchError):
        return ApiError(409, "store_mismatch", "a store of this server does not match its model: see the server's log")
    if isinstance(error, StoreDamagedError):
        return ApiError(500, "store_damaged", "a store of this server is damaged: see the server's log")
    return unexpected()


def from_http(error: HTTPException) -> ApiError:
    """A framework error, such as an unknown path, in our format."""
    if isinstance(error, ApiError):
        return error
    message = _MESSAGES.get(error.status_code, str(error.detail))
    return ApiError(error.status_code, _CODES.get(error.status_code, "error"), message, error.headers)


def from_validation(errors: list[Any]) -> ApiError:
    """The first fault of a request. The response does not repeat what the client sent."""
    first = errors[0]
    if first.get("type") == "json_invalid":
        return ApiError(400, "bad_json", "the body is not valid JSON")
    location = ".".join(str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path"))
    reason = str(first.get("msg", "invalid value")).removeprefix("Value error, ")
    if first.get("type") == "extra_forbidden":
        reason = "unknown field"
    reason = reason[:1].lower() + reason[1:]
    return ApiError(400, "bad_request", f"{location}: {reason}" if location else reason)


def unexpected() -> ApiError:
    """The response to a fault of the server; the details are in the log."""
    return ApiError(500, "internal_error", "internal error: see the server's log")


def error_response(error: ApiError, path: str) -> JSONResponse:
    """An error in the format of the API that the path belongs to."""
    is_deepl, is_libre = path.startswith(("/v2/", "/v3/")), path.strip("/").split("/")[0] in _LIBRETRANSLATE_PATHS
    # Clients of DeepL and LibreTranslate recognise a missing key only by status 403.
    status = 403 if error.status_code == 401 and (is_deepl or is_libre) else error.status_code
    content: dict[str, Any] = {"error": {"code": error.code, "message": error.message}}
    if is_deepl:
        content = {"message": error.message, "detail": error.code}
    elif is_libre:
        content = {"error": error.message}
    return JSONResponse(content, status, error.headers)
