"""The error responses in the OpenAPI document: those of middleware by rule, those of a route by the error classes that it declares."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from ..errors import (
    DatabaseUnavailable,
    HeadscopeError,
    RequestTimeout,
    ServerBusy,
    StorageFull,
    TooManyRequests,
    Unauthorized,
)
from .middleware.access import PUBLIC, SIGN_IN
from .middleware.bodies import SAFE_METHODS
from .middleware.security import REQUEST_ID
from .problems import MEDIA

Responses = dict[int | str, dict[str, Any]]

SCHEMA = {"schema": {"$ref": "#/components/schemas/Problem"}}
NAMED = {"X-Request-ID": {"$ref": "#/components/headers/X-Request-ID"}}
HEADERS = {"X-Request-ID": {"required": True, "schema": {"type": "string", "pattern": f"^{REQUEST_ID.pattern}$"}}}
CHALLENGE = {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}}
# The HTTP parser rejects invalid HTTP and oversized heads before Headscope sees them.
PARSER = {"description": "A problem document, or plain text from the HTTP parser.", "headers": {}}
MORE: dict[int, dict[str, Any]] = {
    400: {**PARSER, "content": {MEDIA: SCHEMA, "text/plain": {"schema": {"type": "string"}}}},
    401: {"headers": {**NAMED, **CHALLENGE}},
}
TOKEN = {"type": "http", "scheme": "bearer", "description": "An access token. Servers without users do not need one."}


def raises(*errors: type[HeadscopeError]) -> Responses:
    """Return `responses` for routes that raise these errors."""
    return {error.status: {"content": {MEDIA: SCHEMA}} for error in errors}


def media(*types: str) -> Responses:
    """Return `responses` for a route that responds with one of these media types."""
    return {200: {"content": {type_.partition(";")[0]: _body_schema(type_) for type_ in types}}}


def describe(app: FastAPI) -> None:
    """Complete the application's OpenAPI document with error responses, the headers of every response, and the security of operations."""
    generate = app.openapi

    def complete() -> dict[str, Any]:
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

    app.openapi = complete  # type: ignore[method-assign]


def _complete(path: str, method: str, operation: dict[str, Any], problems: Responses) -> None:
    """Declare every response of an operation. Responses that are always problem documents become shared components."""
    responses: dict[str, Any] = operation["responses"]
    for status in map(str, _common_errors(path, method, operation)):
        responses.setdefault(status, {}).setdefault("content", {})[MEDIA] = SCHEMA
    for status, response in responses.items():
        # FastAPI declares its own 422 schema, which Headscope's handler replaces.
        if status == "422" or response.get("content", {}).keys() == {MEDIA}:
            name = f"Problem{status}"
            problems[name] = _problem(int(status))
            responses[status] = {"$ref": f"#/components/responses/{name}"}
        else:
            response["headers"] = {**NAMED, **response.get("headers", {})}
    operation["responses"] = dict(sorted(responses.items()))
    if not _is_public(path, method):
        operation["security"] = [{"token": []}]


def _common_errors(path: str, method: str, operation: dict[str, Any]) -> list[int]:
    """Return the error statuses that follow from an operation's path, method and input."""
    statuses = [400, 421, 500]
    if not _is_public(path, method):
        statuses += [Unauthorized.status, TooManyRequests.status, DatabaseUnavailable.status, StorageFull.status]
    if "{" in path:
        statuses += [404]
    if method not in SAFE_METHODS:
        statuses += [403, RequestTimeout.status, 413, 415, TooManyRequests.status, ServerBusy.status]
    if "requestBody" in operation or "parameters" in operation:
        statuses += [422]
    return statuses


def _is_public(path: str, method: str) -> bool:
    return PUBLIC.fullmatch(path) is not None or (method, path) in SIGN_IN


def _problem(status: int) -> dict[str, Any]:
    document = {"description": "A problem document.", "headers": NAMED, "content": {MEDIA: SCHEMA}}
    return document | MORE.get(status, {})


def _body_schema(type_: str) -> dict[str, Any]:
    """Return the schema of a body: a binary string, or none for JSON and event streams."""
    structured = type_ in ("application/json", "text/event-stream")
    return {} if structured else {"schema": {"type": "string", "format": "binary"}}
