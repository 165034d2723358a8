"""The error responses of every route in the OpenAPI document: those of middleware by rule, those of a route by its error classes."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from ..errors import (
    AccountsUnreadable,
    HeadscopeError,
    RequestTimeout,
    ServerBusy,
    StorageFull,
    TooManyRequests,
    Unauthorized,
)
from .middleware.access import OPEN, SIGN_IN
from .middleware.bodies import SAFE_METHODS
from .middleware.security import REQUEST_ID
from .problems import MEDIA

Responses = dict[int | str, dict[str, Any]]

SCHEMA = {"schema": {"$ref": "#/components/schemas/Problem"}}
NAMED = {"X-Request-ID": {"$ref": "#/components/headers/X-Request-ID"}}
HEADERS = {"X-Request-ID": {"required": True, "schema": {"type": "string", "pattern": f"^{REQUEST_ID.pattern}$"}}}
CHALLENGE = {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}}
# The HTTP parser rejects what is not HTTP, and a head that is too long, before Headscope sees it.
PARSER = {"description": "A problem document, or plain text from the HTTP parser.", "headers": {}}
MORE: dict[int, dict[str, Any]] = {
    400: {**PARSER, "content": {MEDIA: SCHEMA, "text/plain": {"schema": {"type": "string"}}}},
    401: {"headers": {**NAMED, **CHALLENGE}},
}
TOKEN = {"type": "http", "scheme": "bearer", "description": "An access token. A server without users needs none."}


def raises(*errors: type[HeadscopeError]) -> Responses:
    """Return `responses` for routes that raise these errors."""
    return {error.status: {"content": {MEDIA: SCHEMA}} for error in errors}


def media(*types: str) -> Responses:
    """Return `responses` for a route that answers with one of these media types."""
    return {200: {"content": {one.partition(";")[0]: _body(one) for one in types}}}


def describe(app: FastAPI) -> None:
    """Complete the OpenAPI document of the application: errors, the header of every response, and where a token is needed."""
    generate = app.openapi

    def described() -> dict[str, Any]:
        document = generate()
        components = document["components"]
        if "securitySchemes" not in components:
            problems: Responses = {}
            for path, operations in document["paths"].items():
                for method, operation in operations.items():
                    _complete(path, method.upper(), operation, problems)
            components |= {"responses": problems, "headers": HEADERS, "securitySchemes": {"token": TOKEN}}
            for unused in ("HTTPValidationError", "ValidationError"):
                del components["schemas"][unused]
        return document

    app.openapi = described  # type: ignore[method-assign]


def _complete(path: str, method: str, operation: dict[str, Any], problems: Responses) -> None:
    """Declare every response of one operation; those that are problem documents and nothing else are shared."""
    responses: dict[str, Any] = operation["responses"]
    for status in map(str, _common(path, method, operation)):
        responses.setdefault(status, {}).setdefault("content", {})[MEDIA] = SCHEMA
    for status, response in responses.items():
        # FastAPI declares a document of its own for an invalid request; Headscope's handler replaces it.
        if status == "422" or response.get("content", {}).keys() == {MEDIA}:
            name = f"Problem{status}"
            problems[name] = _problem(int(status))
            responses[status] = {"$ref": f"#/components/responses/{name}"}
        else:
            response["headers"] = {**NAMED, **response.get("headers", {})}
    operation["responses"] = dict(sorted(responses.items()))
    if not _open(path, method):
        operation["security"] = [{"token": []}]


def _common(path: str, method: str, operation: dict[str, Any]) -> list[int]:
    """Return the error statuses of an operation that follow from its address, method and input."""
    statuses = [400, 421, 500]
    if not _open(path, method):
        statuses += [Unauthorized.status, TooManyRequests.status, AccountsUnreadable.status, StorageFull.status]
    if "{" in path:
        statuses += [404]
    if method not in SAFE_METHODS:
        statuses += [403, RequestTimeout.status, 413, 415, TooManyRequests.status, ServerBusy.status]
    if "requestBody" in operation or "parameters" in operation:
        statuses += [422]
    return statuses


def _open(path: str, method: str) -> bool:
    return OPEN.fullmatch(path) is not None or (method, path) == SIGN_IN


def _problem(status: int) -> dict[str, Any]:
    document = {"description": "A problem document.", "headers": NAMED, "content": {MEDIA: SCHEMA}}
    return document | MORE.get(status, {})


def _body(type_: str) -> dict[str, Any]:
    """Return the schema of a body: none for what is not one string."""
    structured = type_ in ("application/json", "text/event-stream")
    return {} if structured else {"schema": {"type": "string", "format": "binary"}}
