"""A load of analyses and studies: each client retries until it has its result, whatever happens to the servers, and records the responses."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from safetensors.numpy import load

from tests.support.server import API, SLOW, Server, eventually

Body = dict[str, Any]
TERMINAL = frozenset({"done", "failed", "cancelled"})
# Answers of 500 and above that the documentation promises for a fault.
DOCUMENTED = {(503, "database-unavailable"), (503, "store-unavailable"), (507, "storage-full")}
# So long (s) a client tries to get its result; who has none by then has lost it.
PATIENCE = 150.0
# Between two requests of the load, and before an attempt that failed is repeated, in s.
APART, AGAIN = 0.05, 0.25


def requests(count: int) -> list[Body]:
    """Return requests of small models; the first two and every twelfth take a second or more, so that faults occur while some are running."""

    def one(number: int) -> Body:
        if number < 2 or number % 12 == 0:
            return {**SLOW, "max_tokens": 288 - number}
        model = ("bert", "gpt2", "llama")[number % 3]
        return {"model": model, "text": f"The cat sat on mat {number}.", "lenses": ["weights"], "measures": ["entropy"]}

    return [one(number) for number in range(count)]


def kind(body: Body) -> str:
    """Return `analyses` or `studies`, according to the body."""
    return "studies" if "dataset" in body else "analyses"


def answers(server: Server, id_: str, body: Body) -> Iterator[httpx.Response]:
    """Return what a client reads of a finished analysis or study."""
    if kind(body) == "studies":
        yield server.get(f"/studies/{id_}/export")
        return
    maps = ["maps/weights"] if body.get("maps", True) else []
    for path in (*maps, "grid/weights", "measures/entropy"):
        yield server.get(f"/analyses/{id_}/{path}")


def digest(read: Sequence[httpx.Response]) -> str:
    """Return a digest of all tensors of these responses, whose headers list them in any order."""
    assert all(answer.status_code == 200 for answer in read), [answer.text for answer in read]
    together = hashlib.sha256()
    for answer in read:
        for name, values in sorted(load(answer.content).items()):
            together.update(f"{name} {values.dtype} {values.shape}".encode() + values.tobytes())
    return together.hexdigest()


def reference(server: Server, bodies: Sequence[Body]) -> dict[str, str]:
    """Return the responses of an undisturbed server by id, and forget these analyses again."""
    found = {}
    for id_, body in [(server.post(body, f"/{kind(body)}").json()["id"], body) for body in bodies]:
        assert list(server.events(id_, of=kind(body)))[-1]["status"] == "done"
        found[id_] = digest(list(answers(server, id_, body)))
    forget(server, found)
    return found


def forget(server: Server, ids: Collection[str]) -> None:
    """Delete these analyses and studies; cancel those that have not ended."""
    for id_ in ids:
        for of in ("analyses", "studies"):
            answer = server.client.delete(f"{API}/{of}/{id_}")
            assert answer.status_code in (202, 204, 404), answer.text


@dataclass
class Client:
    """A client that waits `patience` s for an analysis or study, and its outcome. `version` is that of the ended job."""

    body: Body
    patience: float = PATIENCE
    id: str = ""
    status: str = ""
    version: str = "0"
    finished: float = 0.0
    told: Counter[tuple[int, str]] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    hangups: int = 0
    forgotten: int = 0

    def follow(self, servers: Callable[[], Sequence[Server]], turn: int, stop: threading.Event) -> None:
        """Send the request and follow it, after a fault at the next server, until it is done or patience ends. An accepted job is sent again only if it failed or is unknown."""
        deadline = time.monotonic() + self.patience

        def is_over() -> bool:
            return self.status == "done" or time.monotonic() > deadline or stop.is_set()

        with httpx.Client(timeout=30, trust_env=False, verify=False, headers=servers()[0].headers) as http:
            while not is_over():
                known = servers()
                try:
                    self._ask(http, f"http://{known[turn % len(known)].url}{API}/{kind(self.body)}", is_over)
                except (httpx.TransportError, json.JSONDecodeError):
                    self.hangups += 1
                if self.status != "done":
                    turn += 1
                    stop.wait(AGAIN)

    def _ask(self, http: httpx.Client, url: str, is_over: Callable[[], bool]) -> None:
        if not self.id:
            answer = http.post(url, json=self.body)
            if not self._welcome(answer):
                return
            self.id = answer.json()["id"]
        with http.stream("GET", f"{url}/{self.id}/events") as stream:
            if not self._welcome(stream):
                self.id = "" if stream.status_code == 404 else self.id
                return
            for line in stream.iter_lines():
                if is_over():
                    return
                if line.startswith("id: "):
                    version = line[4:]
                if line.startswith("data: "):
                    self._hear(json.loads(line[6:]), version)

    def _welcome(self, answer: httpx.Response) -> bool:
        """Return whether a response is a success; record errors."""
        if answer.status_code < 400:
            return True
        answer.read()
        self.told[answer.status_code, answer.json().get("code", "")] += 1
        self.forgotten += answer.status_code == 404
        return False

    def _hear(self, event: dict[str, Any], version: str) -> None:
        if event["status"] not in TERMINAL:
            return
        self.status, self.version, self.finished = event["status"], version, time.monotonic()
        if self.status != "done":
            self.failures[(event["error"] or {}).get("code", self.status)] += 1
            self.id = ""


class Load:
    """Clients that send their requests `apart` s apart, each in its own thread."""

    def __init__(
        self,
        servers: Callable[[], Sequence[Server]],
        bodies: Sequence[Body],
        *,
        apart: float = APART,
        patience: float = PATIENCE,
    ) -> None:
        self.clients = [Client(body, patience) for body in bodies]
        self._apart, self._servers, self._stop = apart, servers, threading.Event()
        self._threads = [
            threading.Thread(target=self._later, args=(number, client), daemon=True)
            for number, client in enumerate(self.clients)
        ]

    def _later(self, number: int, client: Client) -> None:
        if not self._stop.wait(number * self._apart):
            client.follow(self._servers, number, self._stop)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.wait()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until every client has its result or has given up, at most for a time; return whether they have."""
        deadline = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if deadline is None else max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def victim(self) -> str:
        """Return the id of the first analysis, which takes long."""
        return eventually(lambda: self.clients[0].id, "the first analysis")

    def done(self, number: int) -> list[Client]:
        """Wait for a number of finished clients and return them."""

        def found() -> list[Client]:
            ended = [client for client in self.clients if client.status == "done"]
            return ended if len(ended) >= number else []

        return eventually(found, f"{number} analyses")
