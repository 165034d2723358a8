"""Files damaged, removed or impossible to write: responses are right or clear errors, and the server recovers once there is space."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import load

from tests.support import studies
from tests.support.server import SLOW, Server, environment, eventually

Start = Callable[..., Server]
NO_LIMIT = (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY)
# Fills the 256 tokens of the tiny models, so that its maps are some megabytes.
LONG = {"model": "gpt2", "text": "cats sat on mats. " * 60, "max_tokens": 256, "lenses": ["weights"]}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Server]:
    """One server whose files are damaged."""
    with Server(tmp_path_factory.mktemp("storage") / "home", models) as server:
        yield server


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Server]:
    """A server with a small store and a limit on its file sizes."""
    with Server(tmp_path_factory.mktemp("small") / "home", models, quota_bytes=10_000_000, keep="maps") as server:
        yield server


def folder(server: Server, id_: str) -> Path:
    """Return the folder of a result."""
    return server.home / "results" / id_[:2] / id_


def flip(path: Path) -> None:
    """Flip a bit near the end of a file."""
    data = bytearray(path.read_bytes())
    data[-10] ^= 4
    path.write_bytes(data)


def weights_of(place: Path) -> Path:
    """Return the file of the weights: of maps, or of factors if the text is longer."""
    return next(place.glob("weights.*"))


def read_map(server: Server, id_: str) -> np.ndarray:
    """Return the whole map of the weights."""
    answer = server.get(f"/analyses/{id_}/maps/weights")
    assert answer.status_code == 200, answer.text
    return load(answer.content)["map"]


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "map-bit": lambda place: flip(weights_of(place)),
    "map-cut": lambda place: weights_of(place).write_bytes(b"cut"),
    "map-missing": lambda place: weights_of(place).unlink(),
    "manifest-bit": lambda place: flip(place / "manifest.json"),
    "manifest-missing": lambda place: (place / "manifest.json").unlink(),
    "folder-missing": shutil.rmtree,
    "folder-is-a-file": lambda place: (shutil.rmtree(place), place.write_bytes(b"")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_maps_are_computed_again(shared: Server, damage: str) -> None:
    """Reading a damaged result returns the recomputed map and counts the damage."""
    id_ = shared.analyse(model="bert", text=f"Damaged by {damage}.")["id"]
    before, counted = read_map(shared, id_), shared.settled("corrupt_results_total")
    DAMAGE[damage](folder(shared, id_))
    assert np.array_equal(read_map(shared, id_), before)
    assert shared.metric("corrupt_results_total") == counted + 1
    assert np.array_equal(read_map(shared, id_), before)
    assert shared.metric("corrupt_results_total") == counted + 1


def test_damaged_factors_are_computed_again(shared: Server) -> None:
    """The same for a long text, of which factors are kept."""
    id_ = shared.analyse(**LONG)["id"]
    before, counted = read_map(shared, id_), shared.settled("corrupt_results_total")
    flip(folder(shared, id_) / "weights.factors")
    assert np.array_equal(read_map(shared, id_), before)
    assert shared.metric("corrupt_results_total") == counted + 1


def test_events_of_a_damaged_result(shared: Server) -> None:
    """Events report that it is recomputed, and when it is done."""
    id_ = shared.analyse(model="bert", text="Damaged and followed.")["id"]
    before = read_map(shared, id_)
    flip(folder(shared, id_) / "manifest.json")
    assert list(shared.events(id_))[-1]["status"] == "done"
    assert np.array_equal(read_map(shared, id_), before)


@pytest.mark.parametrize(
    "path",
    ["grid/weights", "measures/entropy", "export", "edges/weights?layer=0&head=0"],
    ids=lambda p: p.split("/")[0],
)
def test_other_answers_survive_damage_too(shared: Server, path: str) -> None:
    """Thumbnails, measures, edges and exports of a damaged result are recomputed."""
    id_ = shared.analyse(model="bert", text=f"Damaged before {path}.")["id"]
    before = shared.get(f"/analyses/{id_}/{path}")
    for file in (folder(shared, id_) / "small.safetensors", weights_of(folder(shared, id_))):
        flip(file)
    after = shared.get(f"/analyses/{id_}/{path}")
    assert (before.status_code, after.status_code) == (200, 200)
    if path.startswith("edges"):
        assert after.json() == before.json()
        return
    one, other = load(before.content), load(after.content)
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def test_damaged_document_is_computed_again(shared: Server) -> None:
    """Reading the analysis itself finds the damage and reports it as queued; it is done soon."""
    id_ = shared.analyse(model="bert", text="Damaged document.")["id"]
    flip(folder(shared, id_) / "small.safetensors")
    assert shared.get(f"/analyses/{id_}").json()["status"] in ("queued", "running", "done")
    assert shared.ended(id_)["status"] == "done"


def test_sending_the_request_again_finds_the_damage(shared: Server) -> None:
    """A damaged result does not count as stored."""
    body = {"model": "bert", "text": "Damaged and asked for again."}
    id_ = shared.analyse(**body)["id"]
    shutil.rmtree(folder(shared, id_))
    assert shared.submit(**body) == id_
    assert shared.ended(id_)["status"] == "done"


def test_an_index_that_promises_too_much(shared: Server) -> None:
    """A result that exists only in the index is computed on request."""
    body = {"model": "bert", "text": "Only in the index."}
    id_ = shared.analyse(**body)["id"]
    assert shared.client.delete(f"/api/v1/analyses/{id_}").status_code == 204
    with closing(sqlite3.connect(shared.home / "headscope.db")) as index, index:
        index.execute("INSERT INTO results VALUES ('results', ?, 1000, 0)", (id_,))
    assert shared.analyse(**body)["id"] == id_


def test_many_readers_one_repair(shared: Server) -> None:
    """Sixteen readers find the same damage: all get the right map, which is recomputed once."""
    id_ = shared.analyse(model="bert", text="Damaged for many.")["id"]
    before, passes = read_map(shared, id_), shared.settled("forward_passes_total")
    flip(weights_of(folder(shared, id_)))
    with ThreadPoolExecutor(16) as threads:
        for got in threads.map(lambda _: read_map(shared, id_), range(16)):
            assert np.array_equal(got, before)
    assert shared.metric("forward_passes_total") == passes + 1


# In `make test`, tests/api/test_studies.py holds it in test_nothing_is_left_of_its_chunks.
@pytest.mark.long
def test_the_index_follows_the_child_process(shared: Server) -> None:
    """A study stores its chunks and removes them at the end; the index has what is stored, without a restart."""

    def indexed() -> int:
        return int(shared.client.get("/readyz").json()["results"])

    before = indexed()
    studies.done(shared, studies.asked(300))
    assert len(list((shared.home / "results").glob("*/*"))) == before + 1
    eventually(lambda: indexed() == before + 1, "the index")


def test_lost_index_entry(shared: Server) -> None:
    """A result that the index has lost is still read and not recomputed; the next start indexes it."""
    body = {"model": "bert", "text": "Lost from the index."}
    id_ = shared.analyse(**body)["id"]
    before, passes = read_map(shared, id_), shared.settled("forward_passes_total")
    with closing(sqlite3.connect(shared.home / "headscope.db")) as index, index:
        index.execute("DELETE FROM results")
    assert np.array_equal(read_map(shared, id_), before)
    assert shared.analyse(**body)["id"] == id_
    assert shared.metric("forward_passes_total") == passes
    shared.restart()
    assert shared.client.get("/readyz").json()["results"] == len(list((shared.home / "results").glob("*/*")))
    assert np.array_equal(read_map(shared, id_), before)


def test_no_room_for_a_result(small: Server) -> None:
    """If files cannot grow, the job fails with storage-full and leaves nothing; it succeeds once there is space."""
    server = small
    server.analyse(model="gpt2", text="A small one, to start the worker.")
    child = server.child()
    child.rlimit(psutil.RLIMIT_FSIZE, (1_000_000, psutil.RLIM_INFINITY))
    document = server.ended(server.submit(**LONG))
    assert (document["status"], document["error"]["code"], document["error"]["status"]) == (
        "failed",
        "storage-full",
        507,
    )
    assert not list((server.home / "incoming").iterdir())
    assert server.analyse(model="gpt2", text="Small ones still fit.")["status"] == "done"
    child.rlimit(psutil.RLIMIT_FSIZE, NO_LIMIT)
    assert server.analyse(**LONG)["id"] == document["id"]


def test_no_room_for_the_record(small: Server) -> None:
    """If the server cannot write, reads work, and new requests get 507; it recovers once there is space."""
    server = small
    stored = server.analyse(model="bert", text="Stored before.")["id"]
    before = read_map(server, stored)
    running = server.submit(**{**SLOW, "max_tokens": 110})
    server.forward(running)
    process = psutil.Process(server.process.pid)
    process.rlimit(psutil.RLIMIT_FSIZE, (1, psutil.RLIM_INFINITY))
    assert np.array_equal(read_map(server, stored), before)
    answer = server.post({"model": "bert", "text": "No room for this one."})
    assert (answer.status_code, answer.json()["code"]) == (507, "storage-full")
    eventually(lambda: server.child().status() == psutil.STATUS_SLEEPING, "the worker to be idle")
    process.rlimit(psutil.RLIMIT_FSIZE, NO_LIMIT)
    assert server.ended(running)["status"] == "done"
    assert server.analyse(model="bert", text="No room for this one.")["status"] == "done"


def test_databases_damaged_while_the_server_runs(new_server: Start) -> None:
    """Responses are right or 503, never 500, and the log has no stack trace; the next start has every result and accepts jobs."""
    server = new_server(preloaded=True)
    body = {"model": "bert", "text": "Stored before the damage."}
    stored = server.analyse(**body)["id"]
    before = read_map(server, stored)
    for name in ("headscope.db", "headscope.db-wal"):
        path = server.home / name
        path.write_bytes(b"\xff" * path.stat().st_size)
    answers = [
        server.post({"model": "bert", "text": "Sent after the damage."}),
        server.get("/analyses"),
        server.client.get("/readyz"),
        server.client.get("/metrics"),
        server.get(f"/analyses/{stored}/grid/weights"),
    ]
    codes = [(answer.status_code, answer.json().get("code")) for answer in answers if answer.status_code >= 400]
    assert (503, "database-damaged") in codes
    eventually(lambda: server.client.get("/readyz").status_code == 503, "the server to notice")
    assert {status for status, _ in codes} == {503}
    assert 'File "' not in server.log()
    server.restart()
    assert "headscope.db is damaged and was renamed to headscope.db.damaged-" in server.log()
    assert np.array_equal(read_map(server, stored), before)
    assert server.submit(**body) == stored
    assert server.analyse(model="bert", text="Sent after the restart.")["status"] == "done"
    assert 'File "' not in server.log()


def test_quota_makes_room(small: Server) -> None:
    """The store never exceeds its quota; evicted results are 404 and can be computed again."""
    server = small
    first = server.analyse(**LONG)["id"]
    for number in range(6):
        server.analyse(**{**LONG, "text": f"{number} {LONG['text']}"})
        assert server.client.get("/readyz").json()["result_bytes"] <= 10_000_000
    answer = server.get(f"/analyses/{first}")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-analysis")
    assert server.analyse(**LONG)["id"] == first
    refused = server.post({**LONG, "lenses": ["weights", "effective", "effective-simplex"]})
    assert (refused.status_code, refused.json()["code"]) == (422, "attention-budget-exceeded")
    assert refused.json()["limit"] == 10_000_000 < refused.json()["actual"]


def test_two_servers_on_one_home(shared: Server, models: Path) -> None:
    """The second one exits with one clear sentence; the first is not affected."""
    server = shared
    second = subprocess.run(
        [sys.executable, "-m", "headscope", "serve", "--port", "0", "--no-open"],
        env=environment(server.home, models),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr.startswith("headscope: Another Headscope server uses this data directory.")
    assert len(second.stderr.splitlines()) == 1
    assert server.client.get("/readyz").json()["status"] == "ok"
