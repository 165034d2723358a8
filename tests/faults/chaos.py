"""python -m tests.faults.chaos [--minutes N] [--seed N] [--analyses N] [--rows N]: a cluster under load, of which any part is killed or stopped every few seconds.

Two servers, two workers, database, broker and cache, started as docker-compose.yml starts them, compute analyses and a study. Prints what became of
them as JSON, and exits with status 1 if a promise of docs/reliability.md was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from tests.faults.load import Body, Load, forget, reference, requests
from tests.faults.stage import Stage
from tests.support import studies
from tests.support.cluster import Cluster
from tests.support.compose import Worker
from tests.support.models import small_models
from tests.support.postgres import Postgres
from tests.support.server import Program, Server, eventually

# Between two strikes, and how long a part is stopped at most, in s.
BETWEEN, LONGEST = (1.0, 5.0), 20.0
# A part that has ended is started again after this long (s).
RESTART_SECONDS = 0.5
# Everything has to be done this long (s) after the last strike.
PATIENCE = 300.0
# Failures that are documented for a job whose processes are killed again and again; clients ask for it again.
DOCUMENTED = frozenset({"worker-lost", "timed-out"})
# SIGKILL twice as often as a pause, and sometimes a regular stop.
SIGNALS = (*[signal.SIGKILL] * 4, *[signal.SIGSTOP] * 2, signal.SIGTERM)


class Chaos:
    """Kills and stops parts of a cluster at random, and restarts what has ended. `struck` counts by part and signal."""

    def __init__(self, cluster: Cluster, seed: int, *, between: tuple[float, float], longest: float) -> None:
        self._cluster = cluster
        self._random, self._between, self._longest = random.Random(seed), between, longest
        servers = {f"server {number}": server for number, server in enumerate(cluster.servers)}
        workers = {f"worker {number}": worker for number, worker in enumerate(cluster.workers)}
        self._parts: dict[str, Program] = {
            **servers,
            **workers,
            "database": cluster.db,
            "broker": cluster.broker,
            "cache": cluster.cache,
        }
        self._next: list[str] = []  # each part is struck once before any is struck again
        self._stopped: list[tuple[float, list[psutil.Process]]] = []
        self._ended: dict[Program, float] = {}
        self.struck: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        """Strike for a time, and empty the broker twice in it; then let everything run again."""
        end = time.monotonic() + seconds
        wipes = [end - seconds / 3, end - 2 * seconds / 3]
        due = 0.0
        while (now := time.monotonic()) < end or wipes:
            if now >= due:
                self._strike()
                due = now + self._random.uniform(*self._between)
            if wipes and now >= wipes[-1] and self._wipe():
                wipes.pop()
            self.look_after()
            time.sleep(0.05)
        self._resume(float("inf"))

    def look_after(self) -> None:
        """Continue processes that have been stopped for long enough, and restart those that have ended."""
        now = time.monotonic()
        self._resume(now)
        for part in self._parts.values():
            if part.process.poll() is not None and now > self._ended.setdefault(part, now) + RESTART_SECONDS:
                del self._ended[part]
                part.revive()

    def whole(self) -> bool:
        """Restart parts, and return whether every server is ready and lists every worker."""
        self.look_after()
        try:
            found = [server.client.get("/readyz").json() for server in self._cluster.servers]
        except httpx.TransportError:
            return False
        return all((one["status"], one.get("workers")) == ("ok", len(self._cluster.workers)) for one in found)

    def _strike(self) -> None:
        if not self._next:
            self._next = self._random.sample(list(self._parts), len(self._parts))
        name = self._next.pop()
        part = self._parts[name]
        how = self._random.choice(SIGNALS)
        seconds = self._random.uniform(0.5, self._longest)
        alone = self._random.random() < 0.5  # the process that runs a model, and not its parent
        if part.process.poll() is not None:
            return
        process = psutil.Process(part.process.pid)
        children = process.children() if isinstance(part, Worker | Postgres) else []
        if alone and isinstance(part, Worker) and children:
            name, processes = "model process", children
        else:
            processes = [process, *children] if how is signal.SIGSTOP else [process]
        if how is signal.SIGSTOP:
            self._stopped.append((time.monotonic() + seconds, processes))
        self.struck[f"{name} {how.name}"] += 1
        _send(processes, how)

    def _wipe(self) -> bool:
        """Empty the broker; return False while it does not answer."""
        try:
            self._cluster.broker.flush()
        except redis.RedisError:
            return False
        self.struck["broker emptied"] += 1
        return True

    def _resume(self, now: float) -> None:
        for until, processes in [stop for stop in self._stopped if stop[0] <= now]:
            _send(processes, signal.SIGCONT)
            self._stopped.remove((until, processes))


def _send(processes: Sequence[psutil.Process], how: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(how)


def load_of(analyses: int, rows: int) -> list[Body]:
    """The requests of a run: a study, then analyses."""
    return [studies.asked(rows, seed=7), *requests(analyses)]


def run(
    cluster: Cluster,
    expected: Mapping[str, str],
    bodies: Sequence[Body],
    *,
    seconds: float,
    seed: int,
    between: tuple[float, float] = BETWEEN,
    longest: float = LONGEST,
) -> dict[str, Any]:
    """Strike a cluster under load for a time; return the account."""
    chaos, stage = Chaos(cluster, seed, between=between, longest=longest), Stage(cluster, expected, 0)
    forget(cluster, expected)
    before = stage.results()
    apart, patience = 0.8 * seconds / len(bodies), seconds + PATIENCE
    with Load(lambda: cluster.servers, bodies, apart=apart, patience=patience) as load:
        eventually(lambda: load.clients[0].id, "the study to be accepted")
        chaos.run(seconds)
        quiet = time.monotonic()
        while not load.wait(0.2) and time.monotonic() < quiet + PATIENCE:
            chaos.look_after()
        settled = time.monotonic() - quiet
        stuck = sum(client.status != "done" for client in load.clients)
    eventually(chaos.whole, "every server and worker", PATIENCE)
    stage.restart_ended()
    account = stage.account(load.clients, DOCUMENTED)
    forget(cluster, expected)
    account.duplicate += abs(stage.results() - before)
    told = ("jobs", "lost", "duplicate", "wrong", "errors", "refused", "resent", "broken")
    return {
        **{name: getattr(account, name) for name in told},
        "stuck": stuck,
        "settled": round(settled, 1),
        "struck": dict(sorted(chaos.struck.items())),
        "kept": account.kept and not stuck,
    }


def main() -> None:
    """Run a cluster once."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # all that was started ends, too
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos")
    parser.add_argument("--minutes", type=float, default=10, help="how long parts are killed")
    parser.add_argument("--seed", type=int, default=0, help="of the sequence of kills")
    parser.add_argument("--analyses", type=int, default=200)
    parser.add_argument("--rows", type=int, default=600, help="of the study")
    asked = parser.parse_args()
    bodies = load_of(asked.analyses, asked.rows)
    with tempfile.TemporaryDirectory(prefix="headscope-chaos-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        models = small_models(folder / "models")
        with Server(folder / "reference", models) as server:
            expected = reference(server, bodies)
        (folder / "cluster").mkdir()
        with Cluster(folder / "cluster" / "home", models, servers=2, workers=2) as cluster:
            found = run(cluster, expected, bodies, seconds=60 * asked.minutes, seed=asked.seed)
    print(json.dumps({"minutes": asked.minutes, "seed": asked.seed, **found}, indent=1))
    sys.exit(not found["kept"])


if __name__ == "__main__":
    main()
