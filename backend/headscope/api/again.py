"""Questions asked again: answered without the routes, which understood them the first time, and once for all who wait for the same answer.

What is kept of a question is how it is answered, never an answer: each is made from the record and the store as they are then. Where that fails, the route says what is wrong.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import HeadscopeError
from ..jobs import Record
from .access import Visitor

# Questions that are kept, and the most characters that one may have with its headers.
MOST, LONGEST = 1000, 1000
# Headers that an answer may depend on.
NAMES = frozenset({b"accept", b"accept-encoding", b"if-none-match"})

Asked = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """About which analysis it is, how it is answered (that may block; None: not now), and the route that it belongs to."""

    id: str
    answer: Callable[[], Response | None]
    route: Any


def keep(request: Request, id_: str, answer: Callable[[], Response | None]) -> None:
    """For a route that reads: the same question about that analysis is answered by `answer` from now on."""
    request.scope["headscope.again"] = Question(id_, answer, request.scope["route"])


class Again:
    """ASGI middleware, inside the access check. `record` says who may read what."""

    def __init__(self, app: ASGIApp, *, record: Record) -> None:
        self._app, self._record = app, record
        self._questions: OrderedDict[Asked, Question] = OrderedDict()
        self._begun: dict[Asked, asyncio.Task[Response | None]] = {}
        self._next: dict[Asked, asyncio.Task[Response | None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _asked(scope)
        question = self._questions.get(asked) if asked else None
        answer = await self._answer(asked, question) if asked and question else None
        if answer is not None and question is not None:
            scope["route"] = question.route
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)
        if asked and "headscope.again" in scope:
            self._keep(asked, scope["headscope.again"])

    def _keep(self, asked: Asked, question: Question) -> None:
        self._questions[asked] = question
        self._questions.move_to_end(asked)
        if len(self._questions) > MOST:
            self._questions.popitem(last=False)

    async def _answer(self, asked: Asked, question: Question) -> Response | None:
        """The answer that is begun next: whoever asks before it begins gets the same one."""
        task = self._next.get(asked)
        if task is None:
            task = self._next[asked] = asyncio.create_task(self._begin(asked, question, self._begun.get(asked)))
        return await asyncio.shield(task)

    async def _begin(
        self, asked: Asked, question: Question, before: asyncio.Task[Response | None] | None
    ) -> Response | None:
        if before is not None:
            await asyncio.wait((before,))
        self._begun[asked] = self._next.pop(asked)
        try:
            return await asyncio.to_thread(self._read, asked[0], question)
        finally:
            del self._begun[asked]

    def _read(self, visitor: Visitor, question: Question) -> Response | None:
        try:
            return question.answer() if visitor.may_read(self._record, question.id) else None
        except (HeadscopeError, sqlite3.Error):
            return None


def _asked(scope: Scope) -> Asked | None:
    """All that an answer depends on, for a question that may be kept; whoever asks is part of it, so that nobody can tell from the time what others have asked."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    headers = [pair for pair in scope["headers"] if pair[0] in NAMES]
    length = len(scope["path"]) + len(scope["query_string"]) + sum(len(value) for _, value in headers)
    return (scope["visitor"], scope["path"], scope["query_string"], *headers) if length <= LONGEST else None
