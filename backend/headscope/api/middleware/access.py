"""Who asks: on a server with users nothing but the page's own files is answered before that is known."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...errors import HeadscopeError, TooManyRequests, Unauthorized
from ...jobs import JobDatabase
from ...jobs.job import LOCAL
from ...server.accounts import Accounts
from ...server.limiters import client
from ..problems import failure

# Paths that are open to everybody. All others are closed, those that do not exist too.
OPEN = re.compile(r"/(healthz|assets/[^/]+)?")
SIGN_IN = ("POST", "/api/v1/session")
# What a share key opens: one analysis or study, and what the page needs around it: what methods are called, and who is signed in (nobody).
SHARED = re.compile(r"/api/v1/(analyses|studies)/(?P<id>[0-9a-f]{32})(/.*)?")
AROUND = frozenset({f"/api/v1/{part}" for part in ("lenses", "mechanisms", "measures", "figures", "session")})
KEY = re.compile(r"[0-9a-f]{32}")
# How long somebody who sent a wrong token or key waits for the answer.
WRONG_SECONDS = 0.3
# Event streams, which stay open: how many a visitor may have, and how often (s) it is checked that the visitor may still read one.
STREAM = re.compile(r"/api/v1/(analyses|studies)/[^/]+/events")
MOST_STREAMS = 100
RECHECK_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. `name` is None for somebody with nothing but a share key; `shared` is the analysis or study that the key opens.

    `everything`: the one user of a server without tokens, who may see all there is.
    """

    name: str | None
    shared: str | None = None
    everything: bool = False

    @property
    def owner(self) -> str | None:
        """Whose things the request is about; None for everybody's. Raises Unauthorized where only a share key was sent."""
        if self.name is None:
            raise Unauthorized("A share key opens its analysis or study for reading only. Sign in for anything else.")
        return None if self.everything else self.name

    @property
    def client(self) -> str:
        """What limits on requests count: the user, or the analysis or study of a share key."""
        return self.name or f"share:{self.shared}"

    def opens(self, id_: str) -> bool:
        """Whether they may read an analysis or study, whosever it is."""
        return self.everything or self.shared == id_

    def may_read(self, database: JobDatabase, id_: str) -> bool:
        """Whether they may read an analysis or study. It may block, and raise BrokerUnavailable."""
        return self.opens(id_) or (self.name is not None and database.may_read(id_, self.name))


class Access:
    """ASGI middleware, inside the guard: finds out who asks, or answers 401. It decides on the method and `scope["path"]` only.

    `shared` names the analysis or study that a share key opens; it may block.
    """

    def __init__(self, app: ASGIApp, *, accounts: Accounts, shared: Callable[[str], str | None]) -> None:
        self._app, self._accounts, self._shared = app, accounts, shared
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope["visitor"] = visitor = await self._visitor(scope)
            if visitor is not None:
                client.set(visitor.client)
            streams = visitor is not None and STREAM.fullmatch(scope["path"]) is not None
            if visitor and streams and self._streams[visitor.client] >= MOST_STREAMS:
                raise TooManyRequests(f"At most {MOST_STREAMS} event streams may be open at once. Close some of yours.")
        except HeadscopeError as error:
            answer = await failure(Request(scope), error)
            await answer(scope, receive, send)
            return
        if visitor and streams:
            await self._stream(visitor, scope, receive, _varied(send))
        else:
            await self._app(scope, receive, _varied(send) if visitor else send)

    async def _stream(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with events until the visitor loses access; then the stream ends as if the client had disconnected."""
        ended = False

        async def receive_while_allowed() -> Message:
            nonlocal ended
            while await self._is_still(visitor, scope):
                with suppress(TimeoutError):
                    async with asyncio.timeout(RECHECK_SECONDS):
                        return await receive()
            ended = True
            return {"type": "http.disconnect"}

        self._streams[visitor.client] += 1
        try:
            await self._app(scope, receive_while_allowed, send)
        finally:
            self._streams[visitor.client] -= 1
            if not self._streams[visitor.client]:
                del self._streams[visitor.client]
        if ended:
            await send({"type": "http.response.body", "body": b""})

    async def _is_still(self, visitor: Visitor, scope: Scope) -> bool:
        """Whether the request would be let in as the same visitor. While that cannot be looked up, nothing changes."""
        try:
            return await self._visitor(scope) == visitor
        except Unauthorized:
            return False
        except HeadscopeError:
            return True

    async def _visitor(self, scope: Scope) -> Visitor | None:
        """Who asks; None where it does not matter. Raises Unauthorized, AccountsUnreadable or BrokerUnavailable."""
        if OPEN.fullmatch(scope["path"]) or (scope["method"], scope["path"]) == SIGN_IN:
            return None
        if not self._accounts.require_token():
            return Visitor(LOCAL, everything=True)
        token, key = token_of(scope), _key(scope)
        visitor = Visitor(
            self._accounts.find_user(token) if token else None,
            await asyncio.to_thread(self._shared, key) if key else None,
        )
        if visitor.name is None and not (visitor.shared and _opens(scope["path"], visitor.shared)):
            await refuse(wrong=bool(token or (key and not visitor.shared)))
        return visitor


def _varied(send: Send) -> Send:
    """What a browser keeps of an answer is for the same user only."""

    async def send_varied(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).add_vary_header("Authorization, Cookie")
        await send(message)

    return send_varied


async def refuse(*, wrong: bool) -> None:
    """Raise Unauthorized, after a while if something wrong was sent: guessing takes time, and costs the server none."""
    if wrong:
        await asyncio.sleep(WRONG_SECONDS)
        raise Unauthorized(
            "That access token or share key is not known here, or not any more. Ask whoever runs the server."
        )
    raise Unauthorized("This server wants an access token. Sign in on the page, or send Authorization: Bearer TOKEN.")


def token_of(scope: Scope) -> str | None:
    """The token that a request brings: in its Authorization header (empty if that has none), else in the cookie of the page."""
    headers = Headers(scope=scope)
    given = headers.get("authorization")
    if given is not None:
        kind, _, token = given.partition(" ")
        return token.strip() if kind.lower() == "bearer" else ""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(scope))
    except CookieError:
        return None
    return found.value if found else None


def cookie_name(scope: Scope) -> str:
    """The name of the cookie with the token. Browsers don't tell ports apart, so that two servers of one machine need two names."""
    port = re.search(r":(\d+)$", Headers(scope=scope).get("host", ""))
    return f"headscope-{port[1]}" if port else "headscope"


def _key(scope: Scope) -> str | None:
    """The share key of a request that only reads."""
    if scope["method"] not in ("GET", "HEAD"):
        return None
    found = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("share", [""])[0]
    return found if KEY.fullmatch(found) else None


def _opens(path: str, shared: str) -> bool:
    """Whether a key to the analysis or study `shared` is enough for this path."""
    found = SHARED.fullmatch(path)
    return path in AROUND or (found is not None and found["id"] == shared)
