"""Reads the fields of a request from JSON, a form or the query, and checks them with one Pydantic model."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, ImmutableMultiDict, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from nearmt.server.http.errors import ApiError, from_validation

Fields = TypeVar("Fields", bound=BaseModel)
_MAX_FIELDS = 5000


async def read_fields(request: Request, model: type[Fields]) -> Fields:
    """The fields of a request; the body overrides the query."""
    values = {**_flat(request.query_params, model), **await _body(request, model)}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise from_validation(list(error.errors())) from None


async def _body(request: Request, model: type[BaseModel]) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
        return await _form(request, model)
    raw = await request.body()
    if not raw.strip():
        return {}
    if kind not in ("", "application/json", "text/json") and not kind.endswith("+json"):
        raise ApiError(415, "unsupported_type", "the body must be JSON or a form, with a matching Content-Type")
    try:
        content = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise ApiError(400, "bad_json", "the body is not UTF-8") from None
    except (ValueError, RecursionError):
        raise ApiError(400, "bad_json", "the body is not valid JSON") from None
    if not isinstance(content, dict):
        raise ApiError(400, "bad_json", "the body is not a JSON object")
    return content


async def _form(request: Request, model: type[BaseModel]) -> dict[str, Any]:
    if "multipart" not in request.headers["content-type"]:
        _check_utf8(await request.body())
    async with open_form(request) as form:
        return _flat(form, model)


@asynccontextmanager
async def open_form(request: Request) -> AsyncIterator[FormData]:
    """The fields and files of a form; the files are closed at the end of the block."""
    try:
        form = await request.form(max_files=1, max_fields=_MAX_FIELDS)
    except MultiPartException as error:
        raise ApiError(400, "bad_form", f"the form cannot be read: {error.message.lower()}") from None
    except HTTPException as error:  # Starlette's form of the same error
        if isinstance(error, ApiError):
            raise
        raise ApiError(400, "bad_form", f"the form cannot be read: {str(error.detail).lower()}") from None
    except UnicodeDecodeError:
        raise ApiError(400, "bad_form", "the form is not UTF-8") from None
    try:
        yield form
    finally:
        await form.close()


def _check_utf8(raw: bytes) -> None:
    try:
        unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        raise ApiError(400, "bad_form", "the form is not UTF-8") from None


def _flat(values: FormData | ImmutableMultiDict[str, str], model: type[BaseModel]) -> dict[str, Any]:
    """Repeated fields become lists where the model has a list; other fields keep the last value."""
    found: dict[str, Any] = {}
    for name in values:
        given = values.getlist(name)
        texts = [value for value in given if not isinstance(value, UploadFile)]
        field = model.model_fields.get(name.removesuffix("[]"))
        takes_list = field is not None and "list" in str(field.annotation)
        found[name.removesuffix("[]")] = texts if takes_list and (len(texts) > 1 or name.endswith("[]")) else given[-1]
    return found
