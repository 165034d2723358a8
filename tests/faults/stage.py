"""The stage of faults: a server or a cluster under load, and the account of the load."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.faults.load import DOCUMENTED, Client, Load, answers, digest, forget, kind, requests
from tests.support.cluster import Cluster
from tests.support.server import SLOW, Server, eventually

# Longest time of one job on a stage, in s: a process that hangs is noticed after it at the latest, and no job takes as long, even on a machine that is busy.
JOB_SECONDS = 60
SETTINGS = {"job_seconds": JOB_SECONDS, "log_format": "json"}
CLUSTER, EMBEDDED = "cluster", "embedded"


def open_deployment(deployment: str, folder: Path, models: Path, **constants: float) -> Server:
    """Return the deployment of that name, not started yet. `constants` of a cluster: see Stack."""
    if deployment == EMBEDDED:
        return Server(folder / "home", models, preloaded=False, **SETTINGS)
    return Cluster(folder / "home", models, servers=2, workers=2, constants=constants, **SETTINGS)


@dataclass
class Account:
    """The outcome of a load of `jobs`: everything but `refused`, `resent`, `again` and the times must be 0.

    `lost`: accepted but never done or no longer known. `duplicate`: ended twice, or more than one result. `wrong`: other bytes than those of
    a server that nothing happened to. `errors`: answers of 500 and above that are not documented. `refused`: documented ones. `resent`: failed as
    documented, and sent again by their clients. `again`: results computed beyond one for each job. `first`, `all`: s from the fault until the next
    analysis was done, and until all were. `broken`: what else was not as promised.
    """

    jobs: int
    lost: int = 0
    duplicate: int = 0
    wrong: int = 0
    errors: int = 0
    refused: int = 0
    resent: int = 0
    again: int = 0
    first: float = 0.0
    all: float = 0.0
    broken: str = ""

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return not (self.lost or self.duplicate or self.wrong or self.errors or self.broken)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Stage:
    """A deployment under load. `others` are analyses beside the load, each with the number of its forward passes."""

    def __init__(self, server: Server, expected: Mapping[str, str], jobs: int) -> None:
        self.server, self._expected, self._bodies = server, expected, requests(jobs)
        self.outage = 10.0 if jobs >= 50 else 4.0
        self.crowd = 500 if jobs >= 50 else 100
        self.others: dict[str, int] = {}
        self._struck = 0.0

    def ask(self, passes: int = 0, **body: Any) -> str:
        """Request an analysis beside the load with its expected number of forward passes; return its id."""
        id_ = self.server.submit(**{**SLOW, "measures": [], **body})
        self.others[id_] = passes
        return id_

    @property
    def cluster(self) -> Cluster:
        """The server as a cluster."""
        assert isinstance(self.server, Cluster)
        return self.server

    @property
    def servers(self) -> list[Server]:
        """The servers."""
        return self.server.servers if isinstance(self.server, Cluster) else [self.server]

    def runner(self, id_: str) -> psutil.Process:
        """Return the process that runs the model of a running job."""
        if isinstance(self.server, Cluster):
            return self.server.holder(id_).child()
        return self.server.child()

    def runners(self) -> list[psutil.Process]:
        """All processes that run models."""
        return self.server.children()

    def midway(self, load: Load) -> str:
        """Return the id of an analysis during its forward pass."""
        self.server.forward(load.victim)
        return load.victim

    def struck(self) -> None:
        """Record the time of the fault."""
        self._struck = time.monotonic()

    def _clear(self) -> bool:
        """Delete what an earlier run left; return whether it stays deleted, because unfinished jobs may publish late."""
        forget(self.server, self._expected)
        time.sleep(0.5)
        return all(self.server.get(f"/analyses/{id_}").status_code == 404 for id_ in self._expected)

    def run(self, strike: Callable[[Stage, Load], None], documented: frozenset[str]) -> Account:
        """Strike under load; jobs are sent again after errors with `documented` codes."""
        eventually(self._clear, "nothing to be left of an earlier run")
        self.server.idle()
        before, results, broken = self._computed(), self.results(), ""
        self.others = {}
        with Load(lambda: self.servers, self._bodies) as load:
            self.struck()
            try:
                strike(self, load)
            except AssertionError as error:
                broken = str(error) or repr(error)
            while not load.wait(0.2):
                self._look_after()
        self.restart_ended()
        try:
            account = self.account(load.clients, documented)
        except AssertionError:
            forget(self.server, {**self._expected, **self.others})  # lest the next run finds them
            raise
        account.broken = account.broken or broken
        meant = sum(passes for id_, passes in self.others.items() if id_ in self._expected)
        account.again = (self._computed() - before).total() - len(self._bodies) - meant
        forget(self.server, {**self._expected, **self.others})
        account.duplicate += abs(self.results() - results)
        return account

    def _computed(self) -> Counter[str]:
        """How often each analysis of the load has been computed, by the logs of all processes, which outlive them."""
        workers = self.server.workers if isinstance(self.server, Cluster) else []
        lines = [
            line for part in (*self.servers, *workers) for line in part.log().splitlines() if '"analysis ends"' in line
        ]
        events = [json.loads(line) for line in lines if line.endswith("}")]  # a killed process may leave half a line
        return Counter(event["job"] for event in events if event["end"] == "done" and event["job"] in self._expected)

    def _look_after(self) -> None:
        """Restart workers that have exited, as Docker does."""
        for worker in self.server.workers if isinstance(self.server, Cluster) else ():
            if worker.running and worker.process.poll() is not None:
                worker.kill()
                worker.start()

    def restart_ended(self) -> None:
        """Restart what has ended, and wait until no job is left."""
        if isinstance(self.server, Cluster):
            cluster = self.server
            for part in (cluster.db, cluster.broker, cluster.cache, *cluster.workers, *cluster.others):
                if part.process.poll() is not None:
                    part.kill()
                    part.start()
            cluster.ready()
        if self.server.process.poll() is not None:
            Server.restart(self.server)
        eventually(lambda: self.server.client.get("/readyz").json()["status"] == "ok", "a server that is well")
        eventually(lambda: not self._unfinished(), "the end of all jobs")

    def _unfinished(self) -> int:
        counts = Counter(item["status"] for item in self.server.get("/analyses?limit=200").json()["items"])
        return counts["queued"] + counts["running"]

    def account(self, clients: list[Client], documented: frozenset[str]) -> Account:
        """Return the account of the clients, which have all ended."""
        account = Account(len(clients))
        for client in clients:
            failures = sum(number for code, number in client.failures.items() if code not in documented)
            kept = client.status == "done" and self._look(client, account)
            account.lost += not kept or failures > 0 or client.forgotten > 0
            account.resent += client.failures.total() - failures
            for said, number in client.told.items():
                account.refused += number if said in DOCUMENTED else 0
                account.errors += number if said[0] >= 500 and said not in DOCUMENTED else 0
        after = sorted(client.finished - self._struck for client in clients if client.finished > self._struck)
        account.first, account.all = (round(after[0], 2), round(after[-1], 2)) if after else (0.0, 0.0)
        odd = Counter(said for client in clients for said in client.told if said not in DOCUMENTED)
        account.broken = ", ".join(f"{status} {code}" for status, code in odd)
        return account

    def _look(self, client: Client, account: Account) -> bool:
        """Return whether a result exists; count it if it is wrong or its job ended more than once."""
        read = list(answers(self.server, client.id, client.body))
        account.errors += sum(answer.status_code >= 500 for answer in read)
        if any(answer.status_code != 200 for answer in read):
            return False
        account.wrong += digest(read) != self._expected[client.id]
        last = [event["event_id"] for event in self.server.events(client.id, of=kind(client.body))][-1]
        account.duplicate += "0" not in (client.version, last) and last != client.version
        return True

    def results(self) -> int:
        """Return the number of stored results."""
        return sum(1 for _ in (self.server.home / "results").glob("*/*"))
