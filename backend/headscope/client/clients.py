"""The two clients: one blocks, one is async."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self, TypeVar

import anyio
import httpx2
from pydantic import ValidationError

from ..api.schemas.analyses import AnalysisDocument
from ..api.schemas.common import Problem
from ..api.schemas.effects import EffectDocument
from ..api.schemas.head_scores import HeadScoresDocument
from ..api.schemas.studies import StudyDocument
from ..errors import ApiError, Cancelled
from .call import PREFIX, Call, reading
from .operations import Operations

T = TypeVar("T")
AnyDocument = AnalysisDocument | EffectDocument | HeadScoresDocument | StudyDocument
Document = TypeVar("Document", AnalysisDocument, EffectDocument, HeadScoresDocument, StudyDocument)

CANCELLED = "The job was cancelled."
LOCAL = "http://127.0.0.1:8000"
# Seconds: within which a response begins, even with wait=60; and between two looks at a job, at first and at most.
TIMEOUT, SHORTEST_PAUSE, LONGEST_PAUSE = 90.0, 0.05, 2.0


class Client(Operations):
    """A client that blocks. `url` is the server's address, `token` an access token for a server with users.

    Close it, or use it in a `with` statement. Raises ApiError for what the server rejects, and httpx2.HTTPError if the server cannot be reached.

    >>> from headscope.client import Client
    >>> Client("http://127.0.0.1:8000").close()
    """

    def __init__(self, url: str = LOCAL, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        self._http = httpx2.Client(base_url=url, headers=_headers(token), timeout=timeout)

    def send(self, call: Call[T]) -> T:
        """Send a call and return what it reads from the response."""
        response = self._http.request(**call.arguments())
        return call.read(_checked(response))

    def wait(self, document: Document) -> Document:
        """Return the document of a job once it is done. Raises ApiError if it failed or was cancelled."""
        pauses = _pauses()
        while not _is_done(document):
            time.sleep(next(pauses))
            document = self.send(_again(document))
        return document

    def download(self, url: str, file: str | Path) -> Path:
        """Write what an address of this server returns, such as `a.links["export"] + "?format=npz"`, to a file, as it arrives."""
        path = Path(file)
        with self._http.stream("GET", url) as response:
            if response.is_error:
                response.read()
                _checked(response)
            with path.open("wb") as target:
                for piece in response.iter_bytes():
                    target.write(piece)
        return path

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Operations):
    """The same, with methods to `await`, for asyncio and trio."""

    def __init__(self, url: str = LOCAL, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        self._http = httpx2.AsyncClient(base_url=url, headers=_headers(token), timeout=timeout)

    async def send(self, call: Call[T]) -> T:
        """Send a call and return what it reads from the response."""
        response = await self._http.request(**call.arguments())
        return call.read(_checked(response))

    async def wait(self, document: Document) -> Document:
        """Return the document of a job once it is done. Raises ApiError if it failed or was cancelled."""
        pauses = _pauses()
        while not _is_done(document):
            await anyio.sleep(next(pauses))
            document = await self.send(_again(document))
        return document

    async def download(self, url: str, file: str | Path) -> Path:
        """Write what an address of this server returns to a file, as it arrives."""
        async with self._http.stream("GET", url) as response:
            if response.is_error:
                await response.aread()
                _checked(response)
            async with await anyio.open_file(file, "wb") as target:
                async for piece in response.aiter_bytes():
                    await target.write(piece)
        return Path(file)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def _checked(response: httpx2.Response) -> bytes:
    """Return the body of a response. Raises ApiError if the server rejected the request."""
    if not response.is_error:
        return response.content
    try:
        problem = Problem.model_validate_json(response.content, extra="ignore").model_dump()
    except ValidationError:  # of a proxy in front of the server
        detail = f"The server answered with status {response.status_code}. Check its address, and any proxy before it."
        problem = {
            "detail": detail,
            "code": "http-error",
            "status": response.status_code,
            "title": "The request failed",
        }
    raise ApiError(problem)


def _is_done(document: AnyDocument) -> bool:
    """Return whether a job is done. Raises ApiError if it ended in another way."""
    if document.status in ("failed", "cancelled"):
        raise ApiError(Cancelled(CANCELLED).problem() if document.error is None else document.error.model_dump())
    return document.status == "done"


def _again(document: Document) -> Call[Document]:
    """Return the call for the current state of a job."""
    return Call("GET", document.links["self"].removeprefix(PREFIX), reading(type(document)))


def _pauses() -> Iterator[float]:
    """Yield the seconds between looks at a job, longer and longer."""
    pause = SHORTEST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)
