"""A real cluster for tests: the services of docker-compose.yml as local processes, which can be killed, stopped, continued and restarted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from kombu import pools

from headscope.database import Database
from headscope.jobs import JobDatabase
from headscope.jobs.celery import application
from headscope.settings import Settings
from tests.support.compose import Stack, Worker
from tests.support.extent import mostly_long
from tests.support.server import Server, eventually, value_of

# Constants of a cluster whose tests wait until a lost worker is noticed: seconds instead of a quarter of a minute.
IMPATIENT = {"watch.ANNOUNCED_SECONDS": 0.1, "supervisor.STALE_SECONDS": 4.0, "worker_process.HEARTBEAT_SECONDS": 0.3}
# Both homes; the cluster's cases are long where they would repeat what others of the fixture `cluster` test.
both_deployments = pytest.mark.parametrize("server", ["embedded", "cluster"], indirect=True, scope="session")
cluster_long = pytest.mark.parametrize(
    "server", mostly_long(["embedded", "cluster"], "embedded"), indirect=True, scope="session"
)


class Cluster(Server):
    """Database, broker, cache, `servers` servers and `workers` workers. It is itself the first server, so it can be used as a Server.

    A server of docker-compose.yml has users: requests use the token of a new `user`. `constants`: see Stack.
    """

    def __init__(
        self,
        home: Path,
        models: Path | None = None,
        *,
        servers: int = 1,
        workers: int = 1,
        user: str = "tester",
        constants: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self._user = user
        self._folder = Path(tempfile.mkdtemp(prefix="headscope-"))
        self.stack = Stack(self._folder, models, home=home, logs=home.parent, constants=constants, **settings)
        self.db = self.stack.database()
        self._database = JobDatabase(Database(self.db.url))
        self.broker, self.cache = self.stack.redis("broker"), self.stack.redis("cache")
        super().__init__(home, process=self.stack.api("api"))
        self.others = [
            Server(home, log=f"{home.name}-{number}", process=self.stack.api(f"api-{number}"))
            for number in range(1, servers)
        ]
        self.workers = [self.stack.worker(f"worker-{number}") for number in range(workers)]

    @property
    def settings(self) -> Settings:
        return Settings(home=self.home, database_url=self.db.url, redis_url=self.broker.url)

    @property
    def servers(self) -> list[Server]:
        """All servers."""
        return [self, *self.others]

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Cluster:
        """Start everything and wait until it is ready."""
        try:
            self.db.start()
            self.token = self.create_user(self._user)
            for part in (self.broker, self.cache, *self.workers):
                part.start()
            super().start()
            for server in self.others:
                server.token = self.token
                server.start()
            self.ready()
        except BaseException:
            self.close()
            raise
        return self

    def ready(self) -> None:
        """Wait until every worker that has been started is listed by its present process, not by an earlier one of its name."""
        eventually(
            lambda: self.listed() >= self._present() == sum(worker.running for worker in self.workers), "workers"
        )

    def _present(self) -> int:
        alive = {child.pid for child in self.children()}
        return sum(worker.pid in alive for worker in self._database.workers())

    def warm(self) -> None:
        """Wait until every worker has loaded the default model (with prewarm=True). Its first job would wait for torch to be imported."""
        eventually(
            lambda: sum(bool(worker.warm) for worker in self._database.workers()) >= len(self.workers),
            "workers that have loaded the default model",
        )

    def back(self) -> None:
        """Wait until every server reaches database and broker again."""
        for server in self.servers:
            eventually(lambda server=server: server.client.get("/readyz").status_code == 200, "a server that is ready")

    def listed(self) -> int:
        """Return the number of listed workers."""
        return int(self.client.get("/readyz").json()["workers"] or 0)

    def close(self) -> None:
        """Stop everything."""
        for part in (*self.others, *self.workers, self.cache, self.broker):
            part.kill()
        super().kill()
        self._database.close()
        self.db.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def database(self) -> JobDatabase:
        """Return the job database, which does not need the servers."""
        return self._database

    def inspect(self) -> Any:
        """Return Celery's inspection of the workers, with none of the connections that a broker closed when it was restarted."""
        pools.reset()
        return application(self.broker.url, job_seconds=60).control.inspect(timeout=2)

    def holder(self, id_: str) -> Worker:
        """Wait until a worker runs a job and return it."""
        database = self.database()

        def running() -> str | None:
            job = database.get(id_)
            return job.worker if job is not None and job.status == "running" else None

        name = eventually(running, "a worker for the job")
        return next(worker for worker in self.workers if worker.name == name)

    def add_worker(self, **settings: Any) -> Worker:
        """Add a worker with its own settings."""
        self.workers.append(self.stack.worker(f"worker-{len(self.workers)}", **settings).start())
        return self.workers[-1]

    def metric(self, name: str) -> int:
        """A number of /metrics; a counter is the sum over all servers and workers, each from its own start on."""
        if not name.endswith("_total"):
            return super().metric(name)
        texts = [server.client.get("/metrics").text for server in self.servers if server.running]
        counted = sum(value_of(text, name) for text in texts if f"headscope_{name} " in text)
        return counted + sum(worker.metric(name) for worker in self.workers if worker.running)

    def children(self) -> list[psutil.Process]:
        """Return the processes that run models."""
        return [
            child
            for worker in self.workers
            if worker.running
            for child in psutil.Process(worker.process.pid).children()
        ]
