"""One call of the REST interface as a value, and methods of clients made from functions that return such values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload
from urllib.parse import quote

from pydantic import BaseModel

PREFIX = "/api/v1"
JSON, SAFETENSORS, BYTES = "application/json", "application/vnd.safetensors", "application/octet-stream"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call, and how its response is read.

    path    below PREFIX, with names in braces that `names` fills
    params  of the query; those that are None are left out
    body    JSON, or the bytes of a file
    wait    seconds for which the server may hold its response until a job has ended
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    names: Mapping[str, str | int] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | bytes | None = None
    accept: str = JSON
    wait: float | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of httpx2's `request`."""
        headers = {"Accept": self.accept}
        if self.wait:
            headers["Prefer"] = f"wait={self.wait:g}"
        found: dict[str, Any] = {
            "method": self.method,
            "url": PREFIX
            + self.path.format(**{name: quote(str(value), safe="") for name, value in self.names.items()}),
            "params": {name: value for name, value in self.params.items() if value is not None},
            "headers": headers,
        }
        if isinstance(self.body, bytes):
            headers["Content-Type"] = BYTES
            found["content"] = self.body
        elif self.body is not None:
            found["json"] = self.body
        return found


class Sender(Protocol):
    """A client that returns what a call reads."""

    def send(self, call: Call[T]) -> T:
        """Send a call."""


class AsyncSender(Protocol):
    """A client that returns an awaitable of it."""

    def send(self, call: Call[T]) -> Awaitable[T]:
        """Send a call."""


class Operation(Generic[P, T]):
    """A method that sends the call that a function returns: of a blocking client its result, of an async one an awaitable."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self.call = call
        update_wrapper(self, call)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> Operation[P, T]: ...
    @overload
    def __get__(self, client: Sender, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self.call(*args, **kwargs))

        return update_wrapper(method, self.call)


def reading(model: type[BaseModel]) -> Callable[[bytes], Any]:
    """Return a reader of documents. Fields that a later version of the server added are ignored."""
    return lambda body: model.model_validate_json(body, extra="ignore")
