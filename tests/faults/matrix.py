"""Faults: functions that strike a stage under load, and end the fault only as an operator would."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import psutil

from headscope.jobs.outbox import STEPS
from headscope.jobs.sending import queue_name
from tests.faults.load import Load
from tests.faults.stage import CLUSTER, EMBEDDED, Account, Stage
from tests.faults.test_same_request import ask as crowd
from tests.faults.test_same_request import hang_up
from tests.faults.test_storage import flip
from tests.support.clock import shifted
from tests.support.cluster import Cluster
from tests.support.compose import Redis
from tests.support.postgres import Postgres
from tests.support.server import API, Server, eventually, gone

Strike = Callable[[Stage, Load], None]
BOTH = (EMBEDDED, CLUSTER)
# The lists of a queue, one for each step of priority.
QUEUES = [queue_name("cpu") + step for step in STEPS]
UNLIMITED = (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY)
# Takes seconds and a lot of memory.
LARGE = {"text": "The cat sat on the mat because it was tired. " * 60, "max_tokens": 400}


@dataclass(frozen=True)
class Fault:
    """A fault, its deployments and documented errors."""

    title: str
    strike: Strike
    deployments: tuple[str, ...]
    documented: frozenset[str]

    def run(self, stage: Stage) -> Account:
        """Run a fault on a stage."""
        return stage.run(self.strike, self.documented)


FAULTS: dict[str, Fault] = {}


def fault(title: str, *deployments: str, documented: tuple[str, ...] = ()) -> Callable[[Strike], Strike]:
    """Add a function to the matrix under its name."""

    def enter(strike: Strike) -> Strike:
        name = strike.__name__.replace("_", "-")
        FAULTS[name] = Fault(title, strike, deployments, frozenset(documented))
        return strike

    return enter


@fault("nothing, for comparison", *BOTH)
def none(stage: Stage, load: Load) -> None:
    stage.midway(load)
    stage.struck()


@fault("the process that runs a model is killed", *BOTH)
def model_killed(stage: Stage, load: Load) -> None:
    runner = stage.runner(stage.midway(load))
    stage.struck()
    runner.kill()


@fault("it is killed in a large job, as the kernel does it when memory is short", *BOTH)
def memory_killed(stage: Stage, load: Load) -> None:
    id_ = stage.ask(1, **LARGE)
    stage.server.forward(id_)
    stage.struck()
    stage.runner(id_).kill()
    ends(stage, id_, "done")


@fault("it hangs (SIGSTOP)", *BOTH, documented=("timed-out",))
def model_hangs(stage: Stage, load: Load) -> None:
    runner = stage.runner(stage.midway(load))
    stage.struck()
    runner.suspend()
    eventually(lambda: gone(runner), "the end of what hangs", 90)


@fault("a job kills three processes in a row", *BOTH)
def poison(stage: Stage, load: Load) -> None:
    id_ = stage.ask()
    for attempt in (1, 2, 3):
        stage.server.forward(id_, attempt)
        stage.struck()
        stage.runner(id_).kill()
    ends(stage, id_, "failed", "worker-lost")


@fault("a worker is killed, and stays away", CLUSTER)
def worker_killed(stage: Stage, load: Load) -> None:
    worker = stage.cluster.holder(stage.midway(load))
    stage.struck()
    worker.kill()
    load.wait()


@fault("a worker is killed, and started again", CLUSTER)
def worker_restarted(stage: Stage, load: Load) -> None:
    worker = stage.cluster.holder(stage.midway(load))
    stage.struck()
    worker.kill()
    worker.start()


@fault("a worker gets SIGTERM, and is started again", CLUSTER)
def worker_told_to_stop(stage: Stage, load: Load) -> None:
    worker = stage.cluster.holder(stage.midway(load))
    stage.struck()
    worker.kill(signal.SIGTERM)
    worker.start()


@fault("a worker stands still until others have its job, and goes on", CLUSTER)
def worker_stands_still(stage: Stage, load: Load) -> None:
    id_ = stage.midway(load)
    worker = stage.cluster.holder(id_)
    child = worker.child()
    stage.struck()
    for process in (worker.process, child):
        process.send_signal(signal.SIGSTOP)
    try:
        # The worker may have been stopped with a lock on the job: until the database ends its transaction, a request may get 503.
        eventually(lambda: stage.server.get(f"/analyses/{id_}").json().get("attempts", 0) > 1, "another worker")
    finally:
        for process in (worker.process, child):
            process.send_signal(signal.SIGCONT)


@fault("the clock of a worker is ten minutes ahead, that of another one ten minutes behind", CLUSTER)
def clocks_off(stage: Stage, load: Load) -> None:
    stage.midway(load)
    workers = stage.cluster.workers
    stage.struck()
    for worker, offset in zip(workers, (600, -600), strict=True):
        worker.kill()
        worker.start(**shifted(offset))
    try:
        load.wait()
        latest = [
            json.loads([line for line in worker.log().splitlines() if line.startswith("{")][-1]) for worker in workers
        ]
        logged = [datetime.fromisoformat(line["timestamp"]).timestamp() for line in latest]
        # One of them may have come too late for any job.
        off = {round((time - worker.written()) / 600) for time, worker in zip(logged, workers, strict=True)}
        assert off in ({1, -1}, {1, 0}, {0, -1}), latest
    finally:
        for worker in workers:
            worker.kill()
            worker.start()


@fault("a server is killed, and started again", *BOTH)
def server_killed(stage: Stage, load: Load) -> None:
    restart(stage, load, signal.SIGKILL)


@fault("a server gets SIGTERM, and is started again", *BOTH)
def server_told_to_stop(stage: Stage, load: Load) -> None:
    restart(stage, load, signal.SIGTERM)


def restart(stage: Stage, load: Load, how: signal.Signals) -> None:
    """Stop the last server and start it again."""
    stage.midway(load)
    server = stage.servers[-1]
    stage.struck()
    server.restart(how)


@fault("everything is killed at once, and started again", CLUSTER)
def all_killed(stage: Stage, load: Load) -> None:
    stage.midway(load)
    cluster = stage.cluster
    stage.struck()
    for part in (*cluster.workers, *cluster.others, cluster.broker, cluster.db):
        part.kill()
    Server.kill(cluster)
    for part in (cluster.db, cluster.broker, *cluster.workers, *cluster.others):
        part.start()
    Server.start(cluster)


def kill_for_a_moment(stage: Stage, load: Load, part: Redis | Postgres) -> None:
    """Kill a part in the middle of a job, and start it again after 2 s."""
    stage.midway(load)
    stage.struck()
    part.kill()
    time.sleep(2)
    part.start()


def stand_still(stage: Stage, load: Load, part: Redis | Postgres) -> None:
    """Stop a part in the middle of a job for as long as an outage lasts."""
    stage.midway(load)
    stage.struck()
    part.pause()
    time.sleep(stage.outage)
    part.resume()


def fill_up(stage: Stage, load: Load, part: Redis | Postgres) -> None:
    """Leave a part no room in the middle of a job, for 3 s."""
    stage.midway(load)
    stage.struck()
    with part.full():
        time.sleep(3)


@fault("the broker is killed, and started again after 2 s", CLUSTER)
def broker_killed(stage: Stage, load: Load) -> None:
    kill_for_a_moment(stage, load, stage.cluster.broker)


@fault("the broker stands still for 10 s", CLUSTER)
def broker_stands_still(stage: Stage, load: Load) -> None:
    stand_still(stage, load, stage.cluster.broker)


@fault("the broker loses everything it knows", CLUSTER)
def broker_emptied(stage: Stage, load: Load) -> None:
    stage.midway(load)
    stage.struck()
    stage.cluster.broker.empty()


@fault("the broker's memory is full for 3 s", CLUSTER)
def broker_full(stage: Stage, load: Load) -> None:
    fill_up(stage, load, stage.cluster.broker)


@fault("the broker's disk is full for 3 s; it is started again if it ends", CLUSTER)
def broker_disk_full(stage: Stage, load: Load) -> None:
    stage.midway(load)
    broker = stage.cluster.broker
    process = psutil.Process(broker.process.pid)
    stage.struck()
    process.rlimit(psutil.RLIMIT_FSIZE, (1000, psutil.RLIM_INFINITY))
    time.sleep(3)
    if broker.process.poll() is None:
        process.rlimit(psutil.RLIMIT_FSIZE, UNLIMITED)
    else:
        broker.restart()


@fault("the database is killed, and started again after 2 s", CLUSTER)
def database_killed(stage: Stage, load: Load) -> None:
    kill_for_a_moment(stage, load, stage.cluster.db)


@fault("the database stands still for 10 s", CLUSTER)
def database_stands_still(stage: Stage, load: Load) -> None:
    stand_still(stage, load, stage.cluster.db)


@fault("the database's disk is full for 3 s", CLUSTER)
def database_disk_full(stage: Stage, load: Load) -> None:
    fill_up(stage, load, stage.cluster.db)


@fault("the cache is killed, and stays away", CLUSTER)
def cache_killed(stage: Stage, load: Load) -> None:
    stage.midway(load)
    stage.struck()
    stage.cluster.cache.kill()
    load.wait()
    read_all(stage, load)


@fault("the cache stands still", CLUSTER)
def cache_stands_still(stage: Stage, load: Load) -> None:
    stage.midway(load)
    stage.struck()
    stage.cluster.cache.pause()
    try:
        load.wait()
        read_all(stage, load)
    finally:
        stage.cluster.cache.resume()


def read_all(stage: Stage, load: Load) -> None:
    """Read a tile of every analysis."""
    for client in load.clients:
        assert stage.server.get(f"/analyses/{client.id}/grid/weights").status_code == 200


@fault("messages are delivered twice, and again", CLUSTER)
def messages_doubled(stage: Stage, load: Load) -> None:
    stage.midway(load)
    stage.struck()
    with stage.cluster.broker.client() as broker:
        for key in QUEUES:
            for message in broker.lrange(key, 0, -1):
                broker.lpush(key, message, message)
        for tag in broker.zrange("unacked_index", 0, -1):
            broker.zadd("unacked_index", {tag: 0})  # so old that it is delivered again


@fault("all messages are lost", CLUSTER)
def messages_lost(stage: Stage, load: Load) -> None:
    stage.midway(load)
    stage.struck()
    with stage.cluster.broker.client() as broker:
        broker.delete(*QUEUES, "unacked", "unacked_index")


@fault("no file can be written (RLIMIT_FSIZE)", *BOTH, documented=("storage-full",))
def disk_full(stage: Stage, load: Load) -> None:
    stage.midway(load)
    runners = stage.runners()
    stage.struck()
    for runner in runners:
        runner.rlimit(psutil.RLIMIT_FSIZE, (1000, psutil.RLIM_INFINITY))
    if isinstance(stage.server, Cluster):
        eventually(lambda: any(client.failures for client in load.clients), "a write that fails")
    else:  # the child process cannot record that a job failed before it can write again
        eventually(lambda: rests(runners[0]), "the worker to wait")
    for runner in runners:
        runner.rlimit(psutil.RLIMIT_FSIZE, UNLIMITED)
    eventually(lambda: any(client.failures for client in load.clients), "a job that failed")


def rests(process: psutil.Process) -> bool:
    """Return whether a process computes nothing for half a second: between two jobs it sleeps for a moment, too."""
    before = sum(process.cpu_times()[:2])
    time.sleep(0.5)
    return process.status() == psutil.STATUS_SLEEPING and sum(process.cpu_times()[:2]) - before < 0.05


@fault("stored files change by one bit each", *BOTH)
def files_damaged(stage: Stage, load: Load) -> None:
    done = load.done(len(load.clients) // 4)
    stage.struck()
    for client in done:
        folder = stage.server.home / "results" / client.id[:2] / client.id
        for file in [*folder.glob("*.safetensors"), *folder.glob("*.factors")]:
            flip(file)
        client.version = "0"  # it is computed again
        stage.others[client.id] = 1


@fault("500 ask for the same, the first of them hangs up", *BOTH)
def same_request(stage: Stage, load: Load) -> None:
    body = {"model": "bert", "text": "All of these ask the same."}
    stage.others[stage.server.submit(**body)] = 1
    stage.struck()
    hang_up(stage.server, body)
    answers = asyncio.run(crowd(stage.servers, body, stage.crowd))
    assert {(answer.status_code, answer.json()["status"]) for answer in answers} == {(200, "done")}


@fault("analyses are cancelled at every stage", *BOTH)
def cancelled(stage: Stage, load: Load) -> None:
    stage.struck()
    for number, at in enumerate(("queued", "loading", "forward", "writing", "done")):
        text = f"Cancelled while {at}. " * 20
        id_ = stage.ask(model="t5" if at == "loading" else "slow", text=text, max_tokens=60 + number)
        reached(stage, id_, at)
        answer = stage.server.client.delete(f"{API}/analyses/{id_}")
        status = stage.server.get(f"/analyses/{id_}")
        told = (answer.status_code, status.status_code, status.json().get("status"))
        assert told in ((202, 200, "cancelled"), (204, 404, 404)), f"cancelled while {at}: {told}"
        stage.others[id_] = int(at in ("writing", "done"))


def reached(stage: Stage, id_: str, wanted: str) -> None:
    """Wait until a job has reached a stage."""
    stages = ("queued", "loading", "forward", "writing", "done")

    def now() -> str:
        return str(stage.server.get(f"/analyses/{id_}").json()["progress"]["stage"])

    eventually(lambda: stages.index(now()) >= stages.index(wanted), wanted)


def ends(stage: Stage, id_: str, status: str, code: str | None = None) -> None:
    """Check how a job beside the load ends."""
    document = stage.server.ended(id_)
    told = (document["status"], (document["error"] or {}).get("code"))
    assert told == (status, code), f"{told} instead of {(status, code)}"
