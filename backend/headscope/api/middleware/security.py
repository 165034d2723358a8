"""What stands before every route: an id for the request, who may ask, how much may be sent, and what a browser may do with the answer."""

from __future__ import annotations

import logging
import re
import uuid
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ... import logs
from ..problems import problem, unexpected
from .bodies import SAFE_METHODS, BodyLimits

logger = logging.getLogger("headscope.api")

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
REQUEST_ID = re.compile(r"[A-Za-z0-9-]{1,64}")

# Only the page's own files; tokens can't become script whatever they hold.
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
REQUEST_ID_NAME = b"x-request-id"
OURS = frozenset({REQUEST_ID_NAME, *(name for name, _ in HEADERS)})


class SecurityMiddleware:
    """ASGI middleware around the whole application.

    The Host is checked against an allow-list on every request, because a page of another site whose name was rebound to this address sends no
    Origin. What changes something must come from this page or from no page at all.
    """

    def __init__(self, app: ASGIApp, *, hosts: tuple[str, ...], limits: BodyLimits) -> None:
        self._app, self._hosts, self._limits = app, frozenset((*LOOPBACK, *hosts)), limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        scope["request_id"] = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        with logs.bound(request_id=scope["request_id"]):
            await self._answer(scope, headers, receive, send)

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                others = [pair for pair in message["headers"] if pair[0] not in OURS]
                named = (REQUEST_ID_NAME, scope["request_id"].encode())
                message = {**message, "headers": [*others, named, *HEADERS]}
            await send(message)

        refused = self._refusal(scope, headers)
        if refused is not None:
            status, code, title, detail = refused
            answer = problem(status, code, title, detail, request_id=scope["request_id"])
            await answer(scope, receive, send_guarded)
            return
        # Nothing is served in ranges; a header that asks for thousands of them is not even read.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        try:
            await self._app(scope, receive, send_guarded)
        except Exception:  # what no handler knows; caught here, so that this answer has the headers, too
            logger.exception("unexpected", extra={"request_id": scope["request_id"]})
            if begun:
                raise
            await unexpected(scope["request_id"])(scope, receive, send_guarded)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, str, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or _host_name(hosts[0]) not in self._hosts:
            return (
                421,
                "wrong-host",
                "Wrong host",
                "This server does not answer to that host name. Set HEADSCOPE_ALLOWED_HOSTS to add it.",
            )
        if scope["method"] in SAFE_METHODS:
            return None
        origin = headers.get("origin")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") or (
            origin and urlsplit_host(origin) != hosts[0]
        ):
            return (
                403,
                "cross-site",
                "Not from this page",
                "Requests that change something are taken from Headscope's own page only.",
            )
        length = headers.get("content-length", "0")
        sends = length != "0" or "transfer-encoding" in headers
        # A form of another site can send text/plain without asking first, but neither of these.
        wanted = "application/octet-stream" if scope["path"] in self._limits.files else "application/json"
        if "content-encoding" in headers or (sends and _media_type(headers) != wanted):
            return (
                415,
                "unsupported-media-type",
                "Send JSON",
                f"Send the body as {wanted}, without Content-Encoding.",
            )
        most = self._limits.most(scope["path"])
        if not length.isdigit() or int(length[:18]) > most:
            return (
                413,
                "too-large",
                "The request is too large",
                f"The request's body may have {most} bytes.",
            )
        return None


def _host_name(host: str) -> str | None:
    """The name without its port; None for what is not a host."""
    matched = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:\d{1,5})?", host)
    return matched.group(1).lower() if matched else None


def _media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def urlsplit_host(origin: str) -> str | None:
    """Host and port of an Origin header."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
