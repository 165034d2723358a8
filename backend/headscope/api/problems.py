"""Errors as RFC 9457 problem documents. They never contain input, exception texts, paths or tracebacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from .. import logs
from ..errors import HeadscopeError, InvalidRequest, StorageFull
from ..stores import FULL
from .middleware.metrics import route_template

logger = logging.getLogger("headscope.api")

MEDIA = "application/problem+json"
# The status by which metrics and the log count requests whose client has disconnected; that of nginx.
CLIENT_DISCONNECTED = 499

# Messages for the error types of pydantic, with the bounds that Headscope declares. Other types have a general message.
MESSAGES = {
    "missing": "This field is required.",
    "extra_forbidden": "This field does not exist.",
    "string_unicode": "This must be valid Unicode: it contains half of a surrogate pair.",
    "string_too_short": "This is too short.",
    "string_too_long": "This is too long.",
    "int_parsing": "This must be a whole number.",
    "float_type": "This must be a number.",
    "float_parsing": "This must be a number.",
    "finite_number": "This must be a finite number.",
    "bool_type": "This must be true or false.",
    "bool_parsing": "This must be true or false.",
    "too_short": "This list is too short.",
    "too_long": "This list is too long.",
    "json_invalid": "The request body is not valid JSON.",
    "greater_than_equal": "This number is too small: it must be at least {ge:.16g}.",
    "greater_than": "This number is too small: it must be more than {gt:.16g}.",
    "less_than_equal": "This number is too large: it must be at most {le:.16g}.",
    "less_than": "This number is too large: it must be less than {lt:.16g}.",
    "literal_error": "This must be {expected}.",
    "string_pattern_mismatch": "This must look like {pattern}.",
    "union_tag_not_found": "This must be a name, or an object with a name.",
}
# What a value of the wrong type should be, by the type of the error.
TYPE_ERRORS = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "a JSON object",
}
# Code, title and detail of the errors of HTTP itself.
HTTP_ERRORS = {
    400: ("bad-request", "Malformed request", "The request body cannot be parsed. Send one JSON object in UTF-8."),
    404: (
        "not-found",
        "Not found",
        "This address does not exist. All addresses are listed at /api/v1/openapi.json.",
    ),
    405: (
        "method-not-allowed",
        "Method not allowed",
        "This address does not support this method. The methods are listed at /api/v1/openapi.json.",
    ),
    413: ("too-large", "The request is too large", "The request body is too large. Split the request."),
    415: ("unsupported-media-type", "Unsupported media type", "Send the body as application/json."),
}
OTHER_ERROR = (
    "http-error",
    "The request failed",
    "The request could not be processed. Check it against /api/v1/openapi.json.",
)
# Statuses of responses that are sent before the body is received completely: the connection is closed.
CLOSING = frozenset({408, 413})
MAX_ERRORS = 20


def make_problem(
    status: int,
    code: str,
    title: str,
    detail: str,
    *,
    errors: Sequence[dict[str, str]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a problem document as a response."""
    document = {"type": f"/problems/{code}", "title": title, "status": status, "detail": detail, "code": code}
    return _respond({**document, "errors": list(errors)}, status, headers or {})


def _respond(document: Mapping[str, object], status: int, headers: Mapping[str, str]) -> Response:
    closing = {"Connection": "close"} if status in CLOSING else {}
    content = {**document, "request_id": logs.request_id() or None}
    return JSONResponse(content, status, {**headers, **closing}, media_type=MEDIA)


def add_handlers(app: FastAPI) -> None:
    """Register a handler for every kind of error."""
    app.add_exception_handler(HeadscopeError, handle_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid)
    app.add_exception_handler(HTTPException, handle_http_error)
    app.add_exception_handler(OSError, _handle_full_disk)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)


async def handle_error(request: Request, error: Exception) -> Response:
    """Respond to a HeadscopeError."""
    assert isinstance(error, HeadscopeError)  # noqa: S101 - registered for this type
    if error.status >= 500:
        logger.error("%s: %s", error.code, error.detail)
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return _respond(error.problem(), error.status, headers)


async def _handle_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    details = error.errors()[:MAX_ERRORS]
    items = _without_members(details, [_describe(detail, error.body) for detail in details])
    first = items[0] if items else {"pointer": "", "message": "The request is invalid."}
    message = f"{first['pointer'].lstrip('/') or 'The request'}: {first['message']}"
    status = 400 if any(detail["type"] == "json_invalid" for detail in details) else 422
    return make_problem(status, "invalid-request", InvalidRequest.title, message, errors=items)


def _without_members(details: Sequence[dict[str, Any]], items: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Merge what pydantic reports for every member of a union.

    If the value is of the type of one member, errors of type of the others say nothing; if it is of none, it should be of any of them.
    """
    types: dict[str, list[str]] = {}  # by pointer
    found = list[dict[str, str]]()
    for item, detail in zip(items, details, strict=True):
        if detail["type"] in TYPE_ERRORS:
            types.setdefault(item["pointer"], []).append(TYPE_ERRORS[detail["type"]])
        else:
            found.append(item)
    others = {item["pointer"] for item in found}
    for pointer, names in types.items():
        if pointer not in others and not any(one.startswith(f"{pointer}/") for one in (*others, *types)):
            found.append({"pointer": pointer, "message": f"This must be {' or '.join(dict.fromkeys(names))}."})
    return found


def _describe(detail: dict[str, Any], body: Any) -> dict[str, str]:
    """Return pointer and message of an invalid field. The pointer to an undeclared field is that of its object, so that its name is not echoed."""
    where, *path = detail["loc"]
    if where == "body":
        path = _path_in(body, path, missing=detail["type"] == "missing")
    if detail["type"] == "extra_forbidden":
        path = path[:-1]
    message = MESSAGES.get(detail["type"], "This value is invalid.")
    return {"pointer": "".join(f"/{step}" for step in path), "message": message.format(**detail.get("ctx", {}))}


def _path_in(body: Any, path: Sequence[str | int], *, missing: bool) -> list[str | int]:
    """Return the steps of a path that exist in the body, and the last one if that is what is missing. Other steps name members of unions."""
    steps: list[str | int] = []
    for number, step in enumerate(path, 1):
        if _exists(body, step):
            body = body[step]
        elif not (missing and number == len(path)):
            continue
        steps.append(step)
    return steps


def _exists(body: Any, step: str | int) -> bool:
    if isinstance(body, list):
        return isinstance(step, int) and step < len(body)
    return isinstance(body, dict) and step in body


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Respond to an HTTP error such as an unknown address."""
    assert isinstance(error, HTTPException)  # noqa: S101
    code, title, detail = HTTP_ERRORS.get(error.status_code, OTHER_ERROR)
    headers = dict(error.headers or {})
    # Starlette only lists the methods of the first route with this path.
    declared = request.app.openapi()["paths"].get(route_template(request.scope)) if error.status_code == 405 else None
    if declared:
        headers["Allow"] = ", ".join(method.upper() for method in declared)
    return make_problem(error.status_code, code, title, detail, headers=headers)


async def _handle_full_disk(request: Request, error: Exception) -> Response:
    """Respond to a write that failed because the disk is full. Other operating system errors are internal errors."""
    if isinstance(error, OSError) and error.errno in FULL:
        return await handle_error(
            request, StorageFull("The server's disk is full. Free some space, then send the request again.")
        )
    raise error


async def _handle_disconnect(request: Request, error: Exception) -> Response:
    """Respond to no one, so that it is not counted as an internal error."""
    return Response(status_code=CLIENT_DISCONNECTED)


def make_internal_error() -> Response:
    """Return the response to an unexpected exception."""
    detail = "The server failed to process this request. Look for its request id in the server's log."
    return make_problem(500, HeadscopeError.code, HeadscopeError.title, detail)
