"""Checks before every route (Host, origin, type and size of the body), the request id, and security headers on every response."""

from __future__ import annotations

import logging
import re
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ... import logs
from ..problems import HTTP_ERRORS, make_internal_error, make_problem
from .bodies import SAFE_METHODS, BodyLimits

logger = logging.getLogger("headscope.api")

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")

# Only the page's own files, so that no token can become a script.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
# Status, code, title and detail of a problem.
Rejection = tuple[int, str, str, str]
WRONG_HOST = (
    421,
    "wrong-host",
    "Wrong host",
    "This host name is not allowed. Add it to HEADSCOPE_ALLOWED_HOSTS on the server.",
)
CROSS_SITE = (
    403,
    "cross-site",
    "Cross-site request rejected",
    "Browsers may only send this request from Headscope's own page. Open the page at this address.",
)
REQUEST_ID_NAME = b"x-request-id"
RESERVED = frozenset({REQUEST_ID_NAME, *(name for name, _ in HEADERS)})


class SecurityMiddleware:
    """ASGI middleware around the whole application.

    Host is checked on every request: a page whose host name was rebound to this address sends no Origin. Requests with side effects must come from
    Headscope's own page or from outside a browser.
    """

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...], limits: BodyLimits) -> None:
        self._app, self._hosts, self._limits = app, frozenset((*LOOPBACK, *hosts)), limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        id_ = headers.get("x-request-id", "")
        scope["request_id"] = id_ if REQUEST_ID.fullmatch(id_) else uuid.uuid4().hex
        with logs.bound(request_id=scope["request_id"]):
            await self._respond(scope, headers, receive, send)

    async def _respond(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        started = False

        async def send_secured(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                others = [pair for pair in message["headers"] if pair[0] not in RESERVED]
                id_header = (REQUEST_ID_NAME, scope["request_id"].encode())
                message = {**message, "headers": [*others, id_header, *HEADERS]}
            await send(message)

        rejection = self._reject(scope, headers)
        if rejection is not None:
            response = make_problem(*rejection)
            await response(scope, receive, send_secured)
            return
        # Range requests are not supported; dropping the header avoids parsing thousands of ranges.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        try:
            await self._app(scope, receive, send_secured)
        except Exception:  # handled here and not by Starlette, so that the response has the security headers
            logger.exception("unexpected")
            if started:
                raise
            await make_internal_error()(scope, receive, send_secured)

    def _reject(self, scope: Scope, headers: Headers) -> Rejection | None:
        """Return why a request is rejected; None if it may pass."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._hosts:
            return WRONG_HOST
        if scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        same_origin = not origin or _host_of(origin) == hosts[0]
        if not same_origin or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return CROSS_SITE
        return self._reject_body(scope["path"], headers)

    def _reject_body(self, path: str, headers: Headers) -> Rejection | None:
        length = headers.get("content-length", "0")
        has_body = length != "0" or "transfer-encoding" in headers
        # Another site's form can send text/plain without a preflight request, but neither of these types.
        media_type = "application/octet-stream" if path in self._limits.files else "application/json"
        if "content-encoding" in headers or (has_body and _media_type(headers) != media_type):
            code, title, _ = HTTP_ERRORS[415]
            return 415, code, title, f"Send the body as {media_type}, without Content-Encoding."
        largest = self._limits.largest(path)
        if not length.isdigit() or int(length[:18]) > largest:
            code, title, _ = HTTP_ERRORS[413]
            return (
                413,
                code,
                title,
                f"The request body is limited to {largest:,} bytes. Split the request, or raise the limit in the server's settings.",
            )
        return None


def _host_name(host: str) -> str | None:
    """Return the name in a Host header without its port; None if it is invalid."""
    matched = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?", host)
    return matched.group(1).lower() if matched else None


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _host_of(origin: str) -> str | None:
    """Return host and port of an Origin header; None if it is invalid."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
