"""The attacked server, with the limits of docker-compose.yml, and a user who measures it during attacks."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.api.users import Users, users
from tests.support.cluster import Cluster
from tests.support.models import tiny_model
from tests.support.server import API

# The server's memory, `mem_limit` in docker-compose.yml; and the maximum latency of another user, in s.
MEMORY_BYTES = 1024**3
LATENCY_SECONDS = 1.0
DESCRIPTORS = 65536
# Tokens of the analysis with large maps: three layers of it are 48 MiB.
LONG = 1024
# Between two requests of the user who measures, in s. To add up the memory of all processes takes as long as a request.
PAUSE = 0.1


class Lab(Cluster):
    """A server, a worker and a broker. The server's temporary files count as memory, because compose mounts them as tmpfs."""

    def __init__(self, home: Path, models: Path | None = None, **settings: Any) -> None:
        super().__init__(home, models, **settings)
        self.temporary = home.parent / "tmp"
        self.temporary.mkdir()
        self._environment["TMPDIR"] = str(self.temporary)

    def launch(self, command: Sequence[str | Path], **options: Any) -> None:
        """Start the server with the file descriptors that compose allows, or as many as this machine does."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        super().launch(["prlimit", f"--nofile={min(DESCRIPTORS, most)}", *command], **options)

    def memory(self) -> int:
        """Return the memory of the server, its child processes and its temporary files, in bytes."""
        server = psutil.Process(self.process.pid)
        processes = sum(map(_resident, [server, *server.children(recursive=True)]))
        return processes + sum(_size(file) for file in self.temporary.rglob("*"))


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


@dataclass(frozen=True, slots=True)
class Target:
    """The target: `lab` with the attacker Ada and the user Emmy, and Ada's data."""

    lab: Users
    server: Lab
    token: str
    analysis: str
    key: str

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, port = self.lab.server.url.split(":")
        return host, int(port)


@contextmanager
def target(folder: Path) -> Iterator[Target]:
    """A server that has analysed a long text of Ada's, which she shares."""
    models = folder / "models"
    tiny_model(models / "bert", "bert")
    tiny_model(models / "vit", "vit")
    tiny_model(models / "long", "gpt2", layers=3, positions=LONG)
    with users(folder / "home", models, Lab) as lab:
        body = {"model": "long", "token_ids": [5] * LONG, "lenses": ["weights"], "measures": []}
        made = lab.ada.post(f"{API}/analyses", json=body, headers={"Prefer": "wait=60"})
        assert made.json()["status"] == "done", made.text
        id_ = made.json()["id"]
        key = lab.ada.post(f"{API}/analyses/{id_}/share").json()["key"]
        assert isinstance(lab.server, Lab)
        yield Target(lab, lab.server, lab.tokens["ada"], id_, key)


class Watch:
    """Emmy, who lists her analyses repeatedly in a thread, and the largest latency (s) and memory (bytes) measured."""

    def __init__(self, attacked: Target) -> None:
        self._target = attacked
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.latency, self.memory, self.requests = 0.0, 0, 0
        self.failures: list[str] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        with self._target.server.visitor(self._target.lab.tokens["emmy"]) as emmy:
            while not self._stop.wait(PAUSE):
                begun = time.monotonic()
                try:
                    emmy.get(f"{API}/analyses").raise_for_status()
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                self.latency = max(self.latency, time.monotonic() - begun)
                self.memory = max(self.memory, self._target.server.memory())
                self.requests += 1
