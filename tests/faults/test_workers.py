"""The worker dies, hangs or is stopped: every accepted job ends exactly once, and no other job is affected."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.extent import extent
from tests.support.server import SLOW, Server, eventually, gone

Start = Callable[..., Server]
QUICK = {"model": "bert", "text": "The cat sat."}
TERMINAL = {"done", "failed", "cancelled"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, models: Any) -> Any:
    """One server whose workers crash, hang or receive SIGTERM."""
    with Server(tmp_path_factory.mktemp("workers") / "home", models) as server:
        yield server


def jobs_by_status(server: Server) -> Counter[str]:
    """Return the number of jobs in each state."""
    lines = [line for line in server.client.get("/metrics").text.splitlines() if "headscope_jobs{" in line]
    return Counter({line.split('"')[1]: int(float(line.split()[-1])) for line in lines})


def accounted(server: Server, jobs: int) -> None:
    """Check that every accepted job has ended."""
    counts = jobs_by_status(server)
    assert sum(counts[status] for status in TERMINAL) == counts.total() == jobs


def staging(server: Server) -> list[Path]:
    """Return the folders of results that are being written."""
    return list((server.home / "incoming").iterdir())


def test_killed_worker_costs_nothing_but_time(shared: Server) -> None:
    """SIGKILL during a job: it is done on its second attempt and ends once; the next job is not affected, nor is one after an idle kill.

    The files of the first attempt are removed before the second one ends.
    """
    server, before = shared, jobs_by_status(shared).total()
    counters = server.settled("worker_losses_total"), server.settled("forward_passes_total")
    slow, other = server.submit(**{**SLOW, "max_tokens": 278}), server.submit(**{**QUICK, "text": "After it."})
    server.forward(slow)
    server.kill_child()
    server.forward(slow, 2)
    assert len(staging(server)) == 1
    events = list(server.events(slow))
    assert [event["status"] for event in events if event["status"] in TERMINAL] == ["done"]
    assert events[-1]["attempts"] == 2
    assert server.ended(slow)["attempts"] == 2
    unharmed = server.ended(other)
    assert (unharmed["status"], unharmed["attempts"]) == ("done", 1)
    assert (server.metric("worker_losses_total"), server.metric("forward_passes_total")) == (
        counters[0] + 1,
        counters[1] + 2,
    )
    server.kill_child()
    assert server.analyse(**{**QUICK, "text": "Another one."})["status"] == "done"
    accounted(server, before + 3)


def test_the_process_that_forks_workers_is_killed(shared: Server) -> None:
    """The worker ends with it, and the next job runs in one of a new process."""
    server, before = shared, jobs_by_status(shared).total()
    assert server.analyse(**{**QUICK, "text": "Before it."})["status"] == "done"
    (forks,) = server.forks()
    child = server.child()
    forks.kill()
    eventually(lambda: gone(child), "the end of the worker that it forked")
    assert server.analyse(**{**QUICK, "text": "One more."})["status"] == "done"
    accounted(server, before + 2)


@pytest.mark.long
def test_poison_job_fails_after_three_workers(shared: Server) -> None:
    """A job whose worker dies each time fails with worker-lost; the next job runs."""
    server, before = shared, jobs_by_status(shared).total()
    poison, other = server.submit(**{**SLOW, "max_tokens": 279}), server.submit(**{**QUICK, "text": "Beside it."})
    for attempt in (1, 2, 3):
        server.forward(poison, attempt)
        server.kill_child()
    document = server.ended(poison)
    assert (document["status"], document["error"]["code"], document["attempts"]) == ("failed", "worker-lost", 3)
    told = list(server.events(poison))[-1]
    again = list(server.events(poison, last=told["event_id"]))[-1]
    assert told["error"] == again["error"] == document["error"]
    assert server.ended(other)["status"] == "done"
    accounted(server, before + 2)


def test_failed_job_can_be_sent_again(new_server: Start) -> None:
    """A job beyond its time limit fails with timed-out and is not retried, and the server continues."""
    server = new_server(job_seconds=0.3, preloaded=True)
    document = server.ended(server.submit(**SLOW))
    assert (document["status"], document["error"]["code"], document["attempts"]) == ("failed", "timed-out", 1)
    child = server.child()
    assert server.submit(**SLOW) == document["id"]
    assert server.ended(document["id"])["error"]["code"] == "timed-out"
    assert server.child() == child
    accounted(server, 1)


def test_server_stopped_mid_job(shared: Server) -> None:
    """After a kill or a stop, running and queued jobs are done by the next start, stored results remain, and the worker has exited, even one that stood still."""
    server, jobs = shared, jobs_by_status(shared).total()
    for number, how in enumerate(extent((signal.SIGKILL, signal.SIGTERM), (signal.SIGTERM,))):
        before = server.analyse(**{**QUICK, "text": f"Stored before stop {number}."})
        slow = server.submit(**{**SLOW, "max_tokens": 270 - number})
        waiting = server.submit(**{**QUICK, "text": f"Waits during stop {number}."})
        server.forward(slow)
        child = server.child()
        child.suspend()
        server.kill(how)
        eventually(lambda child=child: gone(child), "the orphan's end")
        server.start()
        assert server.get(f"/analyses/{before['id']}").json() == before
        document = server.ended(slow)
        assert (document["status"], document["attempts"]) == ("done", 1)
        assert server.ended(waiting)["status"] == "done"
        assert server.metric("forward_passes_total") == 2  # of this process
        accounted(server, jobs + 3 * (number + 1))
    assert "Traceback" not in server.log()


def cancel(server: Server, id_: str) -> int:
    """DELETE an analysis; return the status of the response."""
    return server.client.delete(f"/api/v1/analyses/{id_}").status_code


def test_cancel_queued(shared: Server) -> None:
    """A queued job is cancelled at once and never runs; the running one continues."""
    passes = shared.settled("forward_passes_total")
    running = shared.submit(**SLOW)
    waiting = shared.submit(**QUICK)
    shared.forward(running)
    assert cancel(shared, waiting) == 202
    assert shared.get(f"/analyses/{waiting}").json()["status"] == "cancelled"
    assert shared.ended(running)["status"] == "done"
    assert shared.metric("forward_passes_total") == passes + 1


def test_cancel_running(shared: Server) -> None:
    """A running job stops between two layers; the same worker runs the next job."""
    passes = shared.settled("forward_passes_total")
    running = shared.submit(**{**SLOW, "max_tokens": 280})
    shared.forward(running)
    child = shared.child()
    assert cancel(shared, running) == 202
    assert shared.get(f"/analyses/{running}").json()["status"] == "cancelled"
    shared.analyse(**{**QUICK, "text": "The next one."})
    assert shared.child() == child
    assert shared.metric("forward_passes_total") == passes + 1
    assert shared.get(f"/analyses/{running}").json()["status"] == "cancelled"


def test_cancel_a_worker_that_hangs(shared: Server) -> None:
    """A worker that ignores a cancellation is killed, and the next job runs in a new one."""
    running = shared.submit(**{**SLOW, "max_tokens": 281})
    shared.forward(running)
    child = shared.child()
    child.suspend()
    assert cancel(shared, running) == 202
    shared.analyse(**{**QUICK, "text": "After the hang."})
    assert gone(child)
    assert not staging(shared)
    assert shared.get(f"/analyses/{running}").json()["status"] == "cancelled"


@pytest.mark.long
def test_cancel_twice_and_again(shared: Server) -> None:
    """The second DELETE forgets the ended job, the third returns 404; sent again it runs."""
    body = {**SLOW, "max_tokens": 282}
    id_ = shared.submit(**body)
    assert [cancel(shared, id_) for _ in range(3)] == [202, 204, 404]
    assert shared.get(f"/analyses/{id_}").status_code == 404
    assert shared.submit(**body) == id_
    assert shared.ended(id_)["status"] == "done"


def test_cancel_and_ask_again_at_once(shared: Server) -> None:
    """An analysis sent again while it is being stopped is done."""
    body = {**SLOW, "max_tokens": 283}
    id_ = shared.submit(**body)
    shared.forward(id_)
    assert cancel(shared, id_) == 202
    assert shared.submit(**body) == id_
    assert shared.ended(id_)["status"] == "done"


def test_delete_after_done(shared: Server) -> None:
    """Deleting a finished analysis returns 204, then 404 everywhere; sent again it is computed again."""
    body = {**QUICK, "text": "To be forgotten."}
    id_ = shared.analyse(**body)["id"]
    assert cancel(shared, id_) == 204
    for path in ("", "/events", "/maps/weights", "/grid/weights", "/measures/entropy", "/export"):
        assert shared.get(f"/analyses/{id_}{path}").status_code == 404, path
    assert shared.analyse(**body)["id"] == id_
