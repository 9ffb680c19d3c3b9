"""Additions to FastAPI's OpenAPI description: error responses, and bodies that may be JSON or a form."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from nearmt.server.http.schemas import ErrorReply

_DESCRIPTIONS = {
    400: "The request is invalid",
    401: "A key is needed",
    403: "The key is unknown or does not have the role",
    404: "Not found",
    408: "The body did not arrive in time",
    409: "Another process is writing to the store",
    413: "A limit of the server is exceeded",
    415: "The body is neither JSON nor a form",
    429: "Too many requests",
    503: "Not ready, or the queue is full; see Retry-After",
    504: "The translation took too long",
}


def errors(*statuses: int, model: type[BaseModel] = ErrorReply) -> dict[int | str, dict[str, Any]]:
    """Descriptions of a route's error responses; 400, 408 and 413 are possible on every route."""
    return {
        status: {"model": model, "description": _DESCRIPTIONS[status]} for status in sorted({*statuses, 400, 408, 413})
    }


def body_in_forms(model: type[BaseModel]) -> dict[str, Any]:
    """Description of a body that may be JSON or a form."""
    schema = {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
    types = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": dict.fromkeys(types, schema)}}


def complete(description: dict[str, Any], bodies: Iterable[type[BaseModel]]) -> dict[str, Any]:
    """Correct FastAPI's description: validation errors are 400, not 422; add the form bodies and the keys."""
    schemas = description["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for operations in description["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for body in bodies:
        content = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(content.pop("$defs", {}))
        schemas[body.__name__] = content
    description["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    description["security"] = [{"key": []}, {}]
    return description
