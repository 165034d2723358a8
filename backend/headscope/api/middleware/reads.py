"""Reads of a finished analysis that the same reader has read before: answered at once, without routing, validation, threads or the record.

Routes say what may be answered so. An answer that is kept belongs to a result as its files were when it was read, and counts for as long as none of them has
changed; so what is gone is gone at once on every server, and what was damaged is found. Whatever can't be answered here is left to the routes, which also say what is wrong.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...errors import HeadscopeError
from ...server.service import Service
from ...store import Stored
from ...store.map_file import Corrupt
from ..http.recent import RecentAnswers
from .access import Visitor

ABOUT = re.compile(r"/api/v1/(analyses|studies)/([0-9a-f]{32})(/.*)?")
# Readers that are remembered, each with one thing it has read.
READERS = 10_000
# The most characters of a question with its headers, and bytes of an answer, that are kept.
LONGEST, LARGEST = 1000, 1024 * 1024
# Bytes that an answer takes beside its body: headers, the question, and the stamps of the files.
BESIDE = 3 * 1024
# Headers that an answer depends on.
NAMES = frozenset({b"accept", b"accept-encoding", b"if-none-match"})

# Headers that an answer has in common with what is said in its place to whoever has it.
LASTING = ("Cache-Control", "Vary", "ETag")


class ReadAnswer(Protocol):
    """Reads an answer from a result. Raises BlockingIOError rather than `wait` for a disk, or compute for long."""

    def __call__(self, stored: Stored, *, wait: bool) -> Response:
        """The answer."""


class CachedRead(NamedTuple):
    """What a route has read: the result, the answer if that may be given again, and the route."""

    id: str
    stored: Stored
    answer: Response | None
    route: Any


def found(request: Request, id_: str, stored: Stored, answer: Response | None) -> None:
    """For a route that reads: the same question is answered by that again, for as long as this is the result; None: it is asked of the route each time."""
    request.scope["headscope.found"] = CachedRead(id_, stored, answer, request.scope["route"])


class ReadRequest(NamedTuple):
    """A question: about an analysis or a study, which one, what of it, in which format, the answers that the reader has; and all that an answer depends on."""

    kind: str
    id: str
    part: str
    accept: str
    had: str
    question: tuple[Any, ...]


class ReadCache:
    """ASGI middleware, inside the access check. `simple` understands simple questions, which need not have been asked before; they belong to `route`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        service: Service,
        recent: RecentAnswers,
        simple: Callable[[Scope, ReadRequest], ReadAnswer | None],
        route: Any,
    ) -> None:
        self._app, self._service, self._recent = app, service, recent
        self._simple, self._route = simple, route
        self._readers: OrderedDict[tuple[Visitor, str, str], str] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _asked(scope)
        answer = await self._answer(scope, asked) if asked else None
        if answer is not None:
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)
        if asked and "headscope.found" in scope:
            await self._keep(scope["visitor"], asked, scope["headscope.found"])

    async def _keep(self, visitor: Visitor, asked: ReadRequest, found: CachedRead) -> None:
        """Remember the reader, and the answer. A job that is under way might still be cancelled, and its result be none."""
        reader = (visitor, asked.kind, found.id)
        if self._readers.get(reader) != found.stored.digest:
            with suppress(HeadscopeError):
                if await asyncio.to_thread(self._service.is_settled, found.id):
                    self._readers[reader] = found.stored.digest
        if len(self._readers) > READERS:
            self._readers.popitem(last=False)
        if found.answer is not None:
            self._put(found.stored, asked, found.answer, found.route)

    def _put(self, stored: Stored, asked: ReadRequest, answer: Response, route: Any) -> None:
        if stored.fingerprint is not None and len(answer.body) <= LARGEST:
            self._recent.put(
                (stored.digest, stored.fingerprint, asked.question), (answer, route), len(answer.body) + BESIDE
            )

    async def _answer(self, scope: Scope, asked: ReadRequest) -> Response | None:
        visitor: Visitor = scope["visitor"]
        digest = self._readers.get((visitor, asked.kind, asked.id))
        if digest is None:
            return None
        try:
            if not visitor.opens(asked.id) and not await asyncio.to_thread(
                visitor.may_read, self._service.database, asked.id
            ):
                return None
            stored = self._service.results.get_cached(asked.id)
            if stored is None or stored.digest != digest:
                return None
            answer = await self._given(stored, asked, scope)
        except (HeadscopeError, Corrupt):  # of which the route says more
            return None
        tag = answer.headers.get("etag", "") if answer and asked.had else ""
        if answer and tag and tag.removeprefix("W/") in asked.had:
            return Response(status_code=304, headers={name: answer.headers[name] for name in LASTING})
        return answer

    async def _given(self, stored: Stored, asked: ReadRequest, scope: Scope) -> Response | None:
        """The answer that was given before, or is to a simple question; without waiting for a disk if it need not be."""
        kept = self._recent.get((stored.digest, stored.fingerprint, asked.question))
        if kept is not None:
            answer: Response
            answer, scope["route"] = kept
            return answer
        reading = self._simple(scope, asked)
        if reading is None:
            return None
        scope["route"] = self._route
        try:
            answer = reading(stored, wait=False)
        except BlockingIOError:
            answer = await self._service.limiters.results.run(lambda: reading(stored, wait=True))
        self._put(stored, asked, answer, self._route)
        return answer


def _asked(scope: Scope) -> ReadRequest | None:
    """What is asked of one analysis or study, unless it is too long to be kept, or says something twice."""
    about = ABOUT.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
    if about is None:
        return None
    path, query = scope["path"], scope["query_string"]
    pairs = [pair for pair in scope["headers"] if pair[0] in NAMES]
    headers = dict(pairs)
    had = headers.pop(b"if-none-match", b"").decode("latin-1")
    if (
        len({name for name, _ in pairs}) < len(pairs)
        or len(path) + len(query) + sum(map(len, headers.values())) > LONGEST
    ):
        return None
    accept, coding = (headers.get(name, b"") for name in (b"accept", b"accept-encoding"))
    return ReadRequest(about[1], about[2], about[3] or "", accept.decode("latin-1"), had, (path, query, accept, coding))
