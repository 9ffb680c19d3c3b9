"""How errors leave the server: a status, a short code for machines and one sentence for people."""

from collections.abc import Mapping
from typing import Any

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

# FastAPI lets an HTTPException pass that is raised while it reads a body, and turns every other one into a 400.


class ApiError(HTTPException):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code = code

    @property
    def message(self) -> str:
        return str(self.detail)


CODES = {400: "bad_request", 401: "key_needed", 403: "not_allowed", 404: "not_found", 405: "method_not_allowed",
         413: "too_large", 415: "unsupported_type", 422: "bad_request", 429: "too_many_requests"}  # fmt: skip
# Later ones are more general.
_STATUS: tuple[tuple[type[NearMTError], int, str], ...] = (
    (StoreLockedError, 409, "store_locked"),
    (StoreDamagedError, 500, "store_damaged"),
    (StoreMismatchError, 409, "store_mismatch"),
    (CorpusError, 400, "unreadable_file"),
    (MarkupError, 400, "bad_markup"),
    (DocumentError, 400, "unreadable_file"),
    (SettingError, 400, "bad_setting"),
    (MissingExtraError, 501, "not_installed"),
    (NearMTError, 500, "internal_error"),
)


_RETRY_AFTER = 5  # seconds, when the search engine is away


def from_nearmt(error: NearMTError) -> ApiError:
    """What the server says where nearmt raised."""
    if isinstance(error, IndexUnavailableError):
        # Where the search engine is and what ails it is the operator's business, whose log says it.
        return ApiError(
            503, "index_unavailable", "the search engine of this store does not answer: try again later",
            {"Retry-After": str(_RETRY_AFTER)},
        )  # fmt: skip
    status, code = next((status, code) for kind, status, code in _STATUS if isinstance(error, kind))
    return ApiError(status, code, str(error))


def from_http(error: HTTPException) -> ApiError:
    """An error of the framework, such as an unknown path, in our form."""
    if isinstance(error, ApiError):
        return error
    sentences = {404: "there is nothing at this path", 405: "this path does not take this method"}
    message = sentences.get(error.status_code, str(error.detail))
    code = CODES.get(error.status_code, "error")
    return ApiError(error.status_code, code, message, error.headers)


def from_validation(errors: list[Any]) -> ApiError:
    """The first thing that is wrong with a request. What was sent is not repeated."""
    first = errors[0]
    where = ".".join(str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path"))
    reason = str(first.get("msg", "it is not what was expected")).removeprefix("Value error, ")
    if first.get("type") == "json_invalid":
        return ApiError(400, "bad_json", "the body is not valid JSON")
    if first.get("type") == "extra_forbidden":
        reason = "there is no such field"
    reason = reason[:1].lower() + reason[1:]
    return ApiError(400, "bad_request", f"{where}: {reason}" if where else reason)


def unexpected() -> ApiError:
    """Our own fault; what happened is in the log."""
    return ApiError(500, "internal_error", "something went wrong in the server: its log says more")


def in_dialect(error: ApiError, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body of an error in the words of the protocol that the path belongs to."""
    is_deepl, is_libre = path.startswith(("/v2/", "/v3/")), path.strip("/").split("/")[0] in LIBRETRANSLATE_PATHS
    # Their clients know a missing key by 403 alone.
    status = 403 if error.status_code == 401 and (is_deepl or is_libre) else error.status_code
    if is_deepl:
        return status, {"message": error.message, "detail": error.code}
    if is_libre:
        return status, {"error": error.message}
    return status, {"error": {"code": error.code, "message": error.message}}


LIBRETRANSLATE_PATHS = frozenset(
    {"translate", "translate_file", "detect", "languages", "suggest", "frontend", "health", "download_file"}
)
