"""Every failure as an RFC 9457 problem document. Never an echo of the input, an exception's text, a path or a traceback."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import HeadscopeError, StorageFull
from ..stores import FULL
from .middleware.metrics import template

logger = logging.getLogger("headscope.api")

MEDIA = "application/problem+json"

# pydantic's kinds of error in our words, with the bounds that we set ourselves; others say only that the value is not valid.
SENTENCES = {
    "missing": "This field is required.",
    "extra_forbidden": "There is no such field.",
    "string_type": "This must be a string.",
    "string_unicode": "This must be text; half of a surrogate pair is not a character.",
    "string_too_short": "This is too short.",
    "string_too_long": "This is too long.",
    "int_type": "This must be a whole number.",
    "int_parsing": "This must be a whole number.",
    "int_from_float": "This must be a whole number.",
    "float_type": "This must be a number.",
    "float_parsing": "This must be a number.",
    "finite_number": "This must be a finite number.",
    "bool_type": "This must be true or false.",
    "bool_parsing": "This must be true or false.",
    "list_type": "This must be a list.",
    "dict_type": "This must be an object.",
    "model_type": "This must be an object.",
    "model_attributes_type": "This must be a JSON object.",
    "too_short": "This list is too short.",
    "too_long": "This list is too long.",
    "json_invalid": "The body is not valid JSON.",
    "greater_than_equal": "This number is too small: it must be at least {ge:g}.",
    "greater_than": "This number is too small: it must be more than {gt:g}.",
    "less_than_equal": "This number is too large: it must be at most {le:g}.",
    "less_than": "This number is too large: it must be less than {lt:g}.",
    "literal_error": "This must be {expected}.",
    "string_pattern_mismatch": "This must look like {pattern}.",
    "union_tag_not_found": "This must be a name, or an object with a name.",
}
# What is said of a value that is of another type altogether.
TYPES = frozenset({"string_type", "model_type", "model_attributes_type", "dict_type", "list_type"})
TITLES = {
    400: ("bad-request", "The request can't be read"),
    404: ("not-found", "There is nothing here"),
    405: ("method-not-allowed", "That can't be done here"),
    413: ("too-large", "The request is too large"),
    415: ("unsupported-media-type", "Send JSON"),
}
# Answers before the whole body has arrived: the rest of it is not read.
UNREAD = frozenset({408, 413})
MOST_ERRORS = 20
DETAILS = {
    400: "The request's body can't be read. Send one JSON object in UTF-8.",
    404: "There is nothing at this address. The interface is described at /api/v1/openapi.json.",
    405: "This address does not take that method. The interface is described at /api/v1/openapi.json.",
    413: "The request's body is too large.",
    415: "Send the body as application/json.",
}


def problem(
    status: int,
    code: str,
    title: str,
    detail: str,
    *,
    errors: Sequence[dict[str, str]] = (),
    request_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """A problem response."""
    document = {"type": f"/problems/{code}", "title": title, "status": status, "detail": detail, "code": code}
    sent = dict(headers or {})
    if status in (429, 503):
        sent["Retry-After"] = "30"
    if status in UNREAD:
        sent["Connection"] = "close"
    return JSONResponse(
        {**document, "request_id": request_id, "errors": list(errors), **more},
        status,
        sent,
        media_type=MEDIA,
    )


def request_id(request: Request) -> str | None:
    """The id the middleware gave this request."""
    found: str | None = request.scope.get("request_id")
    return found


def install(app: FastAPI) -> None:
    """Handlers for every kind of failure."""
    app.add_exception_handler(HeadscopeError, failure)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, refusal)
    app.add_exception_handler(OSError, _full_disk)


async def failure(request: Request, error: Exception) -> Response:
    """An error of ours as a response."""
    assert isinstance(error, HeadscopeError)  # noqa: S101 - registered for this type
    document = error.problem()
    if error.status >= 500:
        logger.error("%s: %s", error.code, error.detail, extra={"request_id": request_id(request)})
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.status in UNREAD:
        headers["Connection"] = "close"
    return JSONResponse({**document, "request_id": request_id(request)}, error.status, headers, media_type=MEDIA)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    found = error.errors()[:MOST_ERRORS]
    items = [_item(item, error.body) for item in found]
    # Where one of several shapes was tried further inside, that it is not one of the others says nothing.
    tried = {item["pointer"] for item in items}
    items = [
        item
        for item, raw in zip(items, found, strict=True)
        if raw["type"] not in TYPES or not any(one.startswith(f"{item['pointer']}/") for one in tried)
    ]
    first = items[0] if items else {"pointer": "", "message": "The request is not valid."}
    detail = f"{first['pointer'].lstrip('/') or 'The request'}: {first['message']}"
    status = 400 if any(item["type"] == "json_invalid" for item in found) else 422
    return problem(
        status, "invalid-request", "The request is not valid", detail, errors=items, request_id=request_id(request)
    )


def _item(item: dict[str, Any], body: Any) -> dict[str, str]:
    """One field. A key that the caller invented is not repeated."""
    where, *place = item["loc"]
    if where == "body":
        place = _within(body, place, missing=item["type"] == "missing")
    if item["type"] == "extra_forbidden":
        place = place[:-1]
    sentence = SENTENCES.get(item["type"], "This value is not valid.")
    return {"pointer": "".join(f"/{part}" for part in place), "message": sentence.format(**item.get("ctx", {}))}


def _within(body: Any, place: Sequence[str | int], *, missing: bool) -> list[str | int]:
    """The steps of a place that lead through the body, and the last one where that is missing. The others name shapes that pydantic tried."""
    found: list[str | int] = []
    for number, step in enumerate(place, 1):
        if _leads_on(body, step):
            body = body[step]
        elif not (missing and number == len(place)):
            continue
        found.append(step)
    return found


def _leads_on(body: Any, step: str | int) -> bool:
    if isinstance(body, list):
        return isinstance(step, int) and step < len(body)
    return isinstance(body, dict) and step in body


async def refusal(request: Request, error: Exception) -> Response:
    """Return an error of HTTP itself as a response."""
    assert isinstance(error, HTTPException)  # noqa: S101
    code, title = TITLES.get(error.status_code, ("http-error", "The request failed"))
    detail = DETAILS.get(error.status_code, "The request could not be answered.")
    headers = dict(error.headers or {})
    # Starlette names the methods of the first route of an address only.
    declared = request.app.openapi()["paths"].get(template(request.scope)) if error.status_code == 405 else None
    if declared:
        headers["Allow"] = ", ".join(method.upper() for method in declared)
    return problem(error.status_code, code, title, detail, request_id=request_id(request), headers=headers)


async def _full_disk(request: Request, error: Exception) -> Response:
    """A file that could not be written for want of room; any other error of the operating system stays a fault of ours."""
    if isinstance(error, OSError) and error.errno in FULL:
        return await failure(
            request, StorageFull("The server's disk is full. Free some room there, then send the request again.")
        )
    raise error


def unexpected(request_id: str) -> Response:
    """The answer where the fault is ours."""
    return problem(
        500,
        "internal",
        "Something went wrong",
        "The server failed on this request; its log says why.",
        request_id=request_id,
    )
