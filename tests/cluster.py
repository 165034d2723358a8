"""A real cluster for tests: Redis, servers and workers as processes of this machine, each of which can be killed, stopped, continued and restarted."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from headscope.jobs import RedisRecord
from tests.broker import Broker
from tests.server import Program, Server, environment, eventually

# How the cache's Redis differs from the broker's.
FORGETFUL = ("--appendonly", "no", "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
both_homes = pytest.mark.parametrize("server", ["embedded", "cluster"], indirect=True, scope="session")


class Worker(Program):
    """`headscope worker`, and the process below it that runs models. `constants` of headscope.jobs, such as station.BEAT_SECONDS, have other values there."""

    def __init__(self, folder: Path, name: str, settings: dict[str, str], constants: Mapping[str, float]) -> None:
        super().__init__(folder / f"{name}.log")
        self.name, self._environment = name, settings
        modules = "".join(f"import headscope.jobs.{constant.split('.')[0]}\n" for constant in constants)
        values = "".join(f"headscope.jobs.{constant} = {value}\n" for constant, value in constants.items())
        self._program = f"{modules}{values}from headscope.cli import main\nmain()"

    def start(self) -> Worker:
        """Start; it takes jobs once it is ready, which `Cluster.ready` waits for."""
        command = [sys.executable, "-c", self._program, "worker", "--device", "cpu", "--name", self.name]
        self.launch(command, env=self._environment)
        return self

    def child(self) -> psutil.Process:
        """The process that runs models, once there is one."""
        return eventually(lambda: psutil.Process(self.process.pid).children(), f"a child of {self.name}")[0]


class Cluster(Server):
    """Redis, `servers` servers and `workers` workers. It is itself the first of the servers, so it can be used wherever a Server can."""

    def __init__(
        self,
        home: Path,
        models: Path | None = None,
        *,
        servers: int = 1,
        workers: int = 1,
        cache: bool = False,
        constants: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self._sockets = Path(
            tempfile.mkdtemp(prefix="headscope-")
        )  # not below pytest's folders: a socket's path is short
        self.broker = Broker(self._sockets / "broker")
        self.cache = Broker(self._sockets / "cache", *FORGETFUL) if cache else None
        settings |= {"redis_url": self.broker.url} | ({"cache_url": self.cache.url} if self.cache else {})
        super().__init__(home, models, **settings)
        self._settings, self._models, self._constants = settings, models, constants or {}
        self.others = [Server(home, models, log=f"{home.name}-{number}", **settings) for number in range(1, servers)]
        self.workers = [self._worker(f"worker-{number}") for number in range(workers)]

    def _worker(self, name: str, **settings: Any) -> Worker:
        values = environment(self.home, self._models, **self._settings | settings)
        return Worker(self.home.parent, name, values, self._constants)

    @property
    def servers(self) -> list[Server]:
        """All of them."""
        return [self, *self.others]

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Cluster:
        """Start everything and wait until all of it is ready."""
        try:
            for part in filter(None, (self.broker, self.cache, *self.workers)):
                part.start()
            super().start()
            for server in self.others:
                server.start()
            self.ready()
        except BaseException:
            self.close()
            raise
        return self

    def ready(self, workers: int | None = None) -> None:
        """Wait until that many workers are listed (all of them)."""
        expected = len(self.workers) if workers is None else workers
        eventually(lambda: self.listed() >= expected, "workers")

    def back(self) -> None:
        """Wait until every server reaches Redis again."""
        for server in self.servers:
            eventually(lambda server=server: server.client.get("/readyz").status_code == 200, "a server that is ready")

    def listed(self) -> int:
        """How many workers the servers know."""
        return int(self.client.get("/readyz").json()["workers"] or 0)

    def close(self) -> None:
        """End everything."""
        for part in filter(None, (*self.others, *self.workers, self.cache, self.broker)):
            part.kill()
        super().kill()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def record(self) -> RedisRecord:
        """The record of jobs, past the servers."""
        return RedisRecord(self.broker.url)

    def holder(self, id_: str) -> Worker:
        """The worker that runs a job, once one does."""
        record = self.record()

        def running() -> str | None:
            job = record.get(id_)
            return job.worker if job is not None and job.status == "running" else None

        name = eventually(running, "a worker for the job")
        return next(worker for worker in self.workers if worker.name == name)

    def add_worker(self, **settings: Any) -> Worker:
        """One worker more, with settings of its own."""
        self.workers.append(self._worker(f"worker-{len(self.workers)}", **settings).start())
        return self.workers[-1]

    def children(self) -> list[psutil.Process]:
        """The processes that run models now."""
        return [
            child
            for worker in self.workers
            if worker.running
            for child in psutil.Process(worker.process.pid).children()
        ]
