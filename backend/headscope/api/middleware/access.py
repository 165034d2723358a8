"""The access check: on a server with users, every request except for the page's own files must come from a known visitor."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import HeadscopeError, TooManyRequests, Unauthorized
from ...jobs.job import LOCAL
from ...server.accounts import Accounts
from ...server.limiters import client
from ...server.lookups import Lookups
from ...server.service import Service
from ..problems import handle_error

# Public paths. All others need access, including those that do not exist.
PUBLIC = re.compile(r"/(healthz|assets/[^/]+)?")
# Paths of supervisors, which tell how the server is.
PROBES = frozenset({"/readyz", "/metrics"})
SIGN_IN = frozenset(
    {
        ("POST", "/api/v1/session"),
        ("GET", "/api/v1/session/oidc"),
        ("POST", "/api/v1/session/oidc"),
        ("POST", "/api/v1/session/oidc/code"),
    }
)
# The paths that a share key grants: one analysis or study, and what the page needs to show it (declarations, and a session without a user).
SHARED = re.compile(r"/api/v1/(analyses|studies)/(?P<id>[0-9a-f]{32})(/.*)?")
SHARED_CONTEXT = frozenset({f"/api/v1/{part}" for part in ("lenses", "mechanisms", "measures", "figures", "session")})
KEY = re.compile(r"[0-9a-f]{32}")
# Delay of the response to an invalid token or key.
REJECT_SECONDS = 0.3
# Event streams stay open: their number per visitor is limited, and access is checked again at this interval.
STREAM = re.compile(r"/api/v1/(analyses|studies)/[^/]+/events")
MAX_STREAMS = 100
RECHECK_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request. `name` is None for a request with only a share key; `shared` is the analysis or study that the key grants.

    `granted` is the one that the path names, if the user has a grant of it. `everything`: the single user of a server without tokens, who has access to
    everything.
    """

    name: str | None
    shared: str | None = None
    everything: bool = False
    granted: str | None = field(default=None, compare=False)

    @property
    def owner(self) -> str | None:
        """The owner that requests are restricted to; None for all owners. Raises Unauthorized for a request with only a share key."""
        if self.name is None:
            raise Unauthorized(
                "A share key only grants read access to its analysis or study. Sign in to do anything else."
            )
        return None if self.everything else self.name

    @property
    def client(self) -> str:
        """The id that request limits count by: the user, or the analysis or study of a share key."""
        return self.name or f"share:{self.shared}"

    async def may_read(self, service: Service, id_: str) -> bool:
        """Return whether they may read an analysis or study. Raises DatabaseUnavailable."""
        if self.everything or id_ in (self.shared, self.granted):
            return True
        return self.name is not None and await asyncio.to_thread(service.database.may_read, id_, self.name)


class AccessMiddleware:
    """ASGI middleware inside the security checks: identifies the visitor or responds with 401. Only the method and `scope["path"]` are considered.

    `shared` returns the analysis or study that a share key grants; it may block.
    """

    def __init__(self, app: ASGIApp, *, accounts: Accounts, shared: Callable[[str], str | None]) -> None:
        self._app, self._accounts, self._shared = app, accounts, shared
        self._readers: Lookups[tuple[str | None, bool]] = Lookups()
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope["visitor"] = visitor = await self._identify(scope)
            if visitor is not None:
                client.set(visitor.client)
            streams = visitor is not None and STREAM.fullmatch(scope["path"]) is not None
            if visitor and streams and self._streams[visitor.client] >= MAX_STREAMS:
                raise TooManyRequests(f"You have {MAX_STREAMS} open event streams, the maximum. Close some of them.")
        except HeadscopeError as error:
            response = await handle_error(Request(scope), error)
            await response(scope, receive, send)
            return
        if visitor and streams:
            await self._stream(visitor, scope, receive, _vary_by_user(send))
        else:
            await self._app(scope, receive, _vary_by_user(send) if visitor else send)

    async def _stream(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the visitor loses access; then end the stream as if the client had disconnected."""
        revoked = False

        async def receive_while_allowed() -> Message:
            nonlocal revoked
            while await self._has_access(visitor, scope):
                with suppress(TimeoutError):
                    async with asyncio.timeout(RECHECK_SECONDS):
                        return await receive()
            revoked = True
            return {"type": "http.disconnect"}

        self._streams[visitor.client] += 1
        try:
            await self._app(scope, receive_while_allowed, send)
        finally:
            self._streams[visitor.client] -= 1
            if not self._streams[visitor.client]:
                del self._streams[visitor.client]
        if revoked:
            await send({"type": "http.response.body", "body": b""})

    async def _has_access(self, visitor: Visitor, scope: Scope) -> bool:
        """Return whether the request would still be accepted from this visitor. If that cannot be looked up, access continues."""
        try:
            return await self._identify(scope) == visitor
        except Unauthorized:
            return False
        except HeadscopeError:
            return True

    async def _identify(self, scope: Scope) -> Visitor | None:
        """Return the visitor; None on public paths. Raises Unauthorized, and the errors of Database."""
        if PUBLIC.fullmatch(scope["path"]) or (scope["method"], scope["path"]) in SIGN_IN:
            return None
        closed = self._accounts.is_closed()
        if not (closed if closed is not None else await asyncio.to_thread(self._accounts.require_token)):
            return Visitor(LOCAL, everything=True)
        token, key, id_ = token_of(scope), _share_key(scope), _id_of(scope["path"])
        name, granted = None, False
        if token:
            probe = scope["path"] in PROBES
            find = partial(self._accounts.find_reader, token, id_, probe=probe)
            name, granted = await self._readers.get((token, id_, probe), find)
        shared = await asyncio.to_thread(self._shared, key) if key else None
        visitor = Visitor(name, shared, granted=id_ if granted else None)
        if visitor.name is None and not (visitor.shared and _grants(visitor.shared, scope["path"])):
            await reject(invalid=bool(token or (key and not visitor.shared)))
        return visitor


def _vary_by_user(send: Send) -> Send:
    """Add the Vary header that keeps browsers from reusing a cached response for another user."""

    async def send_varied(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).add_vary_header("Authorization, Cookie")
        await send(message)

    return send_varied


async def reject(*, invalid: bool) -> NoReturn:
    """Raise Unauthorized. If an invalid token or key was sent, wait first: this slows down guessing at no cost to the server."""
    if invalid:
        await asyncio.sleep(REJECT_SECONDS)
        raise Unauthorized(
            "This access token or share key is invalid or has been revoked. Ask the server's administrator."
        )
    raise Unauthorized(
        "This server requires an access token. Sign in on the page, or send Authorization: Bearer TOKEN."
    )


def token_of(scope: Scope) -> str | None:
    """Return the token of a request: from the Authorization header (empty if invalid), otherwise from the page's cookie."""
    authorization = Headers(scope=scope).get("authorization")
    if authorization is not None:
        scheme, _, token = authorization.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""
    return Request(scope).cookies.get(cookie_name(scope))


def cookie_name(scope: Scope) -> str:
    """Return the name of the cookie with the token. It contains the port, because browsers share cookies between the ports of a host."""
    port = re.search(r":(\d+)$", Headers(scope=scope).get("host", ""))
    return f"headscope-{port[1]}" if port else "headscope"


def _share_key(scope: Scope) -> str | None:
    """Return the share key of a GET or HEAD request."""
    if scope["method"] not in ("GET", "HEAD"):
        return None
    keys = QueryParams(scope["query_string"]).getlist("share")
    return keys[0] if keys and KEY.fullmatch(keys[0]) else None


def _grants(shared: str, path: str) -> bool:
    """Return whether a key to the analysis or study `shared` is sufficient for this path."""
    return path in SHARED_CONTEXT or _id_of(path) == shared


def _id_of(path: str) -> str:
    """Return the id of the analysis or study that a path names; an empty string if there is none."""
    matched = SHARED.fullmatch(path)
    return matched["id"] if matched else ""
