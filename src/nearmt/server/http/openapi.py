"""What the OpenAPI description says of errors and of bodies that come in several forms."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from nearmt.server.http.schemas import ErrorReply

_MEANINGS = {
    400: "The request is not understood, or asks for what cannot be",
    401: "A key is needed",
    403: "The key is not known or may not do this",
    404: "It is not there",
    408: "The body did not arrive in time",
    409: "Another process is writing to the store",
    415: "The body is neither JSON nor a form",
    413: "More than the server takes",
    429: "Too many requests",
    503: "Not ready, or too much is waiting; Retry-After says when to come again",
    504: "The translation took too long",
}


def errors(*statuses: int, model: type[BaseModel] = ErrorReply) -> dict[int | str, dict[str, Any]]:
    """The errors of a route; a body that is too slow or an unexpected fault can meet any of them."""
    return {status: {"model": model, "description": _MEANINGS[status]} for status in sorted({*statuses, 400, 408, 413})}


def body_in_forms(model: type[BaseModel], *, is_required: bool = True) -> dict[str, Any]:
    """A body that may be JSON or a form."""
    schema = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": is_required, "content": dict.fromkeys(kinds, schema)}}


def complete(described: dict[str, Any], bodies: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """The framework's description made true: it does not know how we answer bad requests, nor bodies in many forms."""
    schemas = described["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for operations in described["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for body in bodies:
        content = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(content.pop("$defs", {}))
        schemas[body.__name__] = content
    described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    described["security"] = [{"key": []}, {}]
    return described
