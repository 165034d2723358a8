"""The services of docker-compose.yml, each with its own command and environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from headscope.settings import Settings
from tests.support.compose import PASSWORDS, ROOT, Stack, image, read
from tests.support.server import eventually, gone

ASKED = {"model": "bert", "text": "The cat sat on the mat.", "lenses": ["weights", "effective"]}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Stack]:
    """Database, broker and cache, healthy."""
    with Stack(tmp_path_factory.mktemp("lab"), models) as running:
        for name in ("db", "broker", "cache"):
            running.start(name)
        for name in ("db", "broker", "cache"):
            running.wait(name)
        yield running


@pytest.fixture(scope="module")
def lab(stack: Stack) -> Iterator[httpx.Client]:
    """All services of the default profile, healthy, and a client with ada's token."""
    made = stack.run("api", ["headscope", "token", "create", "ada"])
    assert made.returncode == 0, made.stderr
    for name in ("api", "worker"):
        stack.start(name)
    token = next(word for word in made.stdout.split() if len(word) > 40)
    address = f"http://127.0.0.1:{stack.ports['api']}"
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        eventually(lambda: _workers(client) == 1, "a worker")  # each health check is a process
        for name in ("api", "worker"):
            stack.wait(name)
        yield client


def _workers(client: httpx.Client) -> int | None:
    """The number of listed workers, None before the server listens."""
    with suppress(httpx.TransportError):
        return client.get("/readyz").json()["workers"]
    return None


def _analysed(lab: httpx.Client, **asked: object) -> dict:
    """The document of an analysis, done."""
    id_ = lab.post("/api/v1/analyses", json={**ASKED, **asked}).raise_for_status().json()["id"]

    def ended() -> dict | None:
        document = lab.get(f"/api/v1/analyses/{id_}").json()
        return document if document["status"] in ("done", "failed", "cancelled") else None

    document = eventually(ended, "the analysis")
    assert document["status"] == "done", document
    return document


def test_every_setting_of_the_files_is_one() -> None:
    services = read(**PASSWORDS)["services"].values()
    used = {name for service in services for name in service["environment"]}
    used |= set(image("Dockerfile")["env"]) | set(image("Dockerfile.gpu")["env"])
    known = {f"HEADSCOPE_{name.upper()}" for name in Settings.model_fields}
    assert {name for name in used if name.startswith("HEADSCOPE_")} <= known


def test_the_service_does_not_start_before_there_is_a_user(stack: Stack) -> None:
    refused = stack.run("api", stack.services["api"]["command"])
    assert refused.returncode == 1
    assert "headscope token create" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_main_job(stack: Stack, lab: httpx.Client) -> None:
    """With a token, an analysis is computed by the worker and can be read; without one, only the liveness probe answers."""
    document = _analysed(lab)
    assert document["layers"] >= 1
    grid = lab.get(f"/api/v1/analyses/{document['id']}/grid/effective")
    assert grid.status_code == 200
    assert len(grid.content) > 500
    assert lab.get("/readyz").json()["workers"] == 1
    assert 'headscope_workers{device="cpu"} 1.0' in lab.get("/metrics").text
    anonymous = httpx.Client(base_url=lab.base_url)
    assert anonymous.get("/healthz").status_code == 200
    for path in ("/readyz", "/metrics", "/api/v1/models", f"/api/v1/analyses/{document['id']}"):
        assert anonymous.get(path).status_code == 401
    anonymous.close()


def test_the_doctor_finds_nothing_around_it(stack: Stack, lab: httpx.Client) -> None:
    shown = json.loads(stack.run("api", ["headscope", "doctor", "--json"]).stdout)
    found = {check["name"]: check for check in shown}
    for name in ("database", "workers", "broker", "clock", "cache", "broker and cache"):
        assert found[name]["ok"], found[name]


def test_reads_come_from_the_cache(lab: httpx.Client) -> None:
    """The second read of a response is a hit in the cache if the server's own cache misses, here because of another encoding."""
    id_ = _analysed(lab)["id"]

    def hits() -> float:
        lines = lab.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("headscope_cache_hits_total ")).split()[-1])

    before = hits()
    path = f"/api/v1/analyses/{id_}/edges/weights?layer=0&head=0"
    assert lab.get(path).content == lab.get(path, headers={"Accept-Encoding": "identity"}).content
    assert hits() > before


@pytest.mark.long
def test_a_second_worker_joins_and_leaves(stack: Stack, lab: httpx.Client) -> None:
    """--scale worker=2; docker stops a container by SIGTERM, after which the worker is no longer listed."""
    stack.start("worker-2", service="worker")
    eventually(lambda: lab.get("/readyz").json()["workers"] == 2, "two workers")
    assert stack.stop("worker-2") == 0
    eventually(lambda: lab.get("/readyz").json()["workers"] == 1, "one worker")
    _analysed(lab, text="The worker is still there.")


def test_every_line_of_every_headscope_process_is_json(stack: Stack, lab: httpx.Client) -> None:
    id_ = _analysed(lab, text="To be found in no log.")["id"]
    for name in ("api", "worker"):
        lines = [json.loads(line) for line in stack.log(name).read_text().splitlines()]
        assert any(id_ in (event.get("job"), event.get("first")) for event in lines), name
    for path in stack.folder.glob("*.log"):
        shown = path.read_text()
        assert not [password for password in PASSWORDS.values() if password in shown]
        assert "To be found" not in shown
        assert lab.headers["Authorization"].split()[1] not in shown


def test_a_service_whose_process_hangs_is_unhealthy(stack: Stack, lab: httpx.Client) -> None:
    """The health check sends a request, and does not only look for a process."""
    process = stack.process("api")
    process.send_signal(signal.SIGSTOP)
    try:
        assert not stack.healthy("api")
    finally:
        process.send_signal(signal.SIGCONT)
    eventually(lambda: stack.healthy("api"), "healthy again")


def test_gpu_service_without_a_gpu_says_so(stack: Stack) -> None:
    refused = stack.run("gpu", stack.services["gpu"]["command"], CUDA_VISIBLE_DEVICES="")
    assert refused.returncode == 1
    assert "No GPU is visible." in refused.stderr


def test_gpu_workers_end_together(tmp_path: Path) -> None:
    """Of two stand-ins for workers one is killed: the other one is stopped, and the container exits."""
    stand_in = tmp_path / "headscope"
    stand_in.write_text(f'#!/bin/sh\necho "$$" "$@" > {tmp_path}/$$.worker\nexec sleep 300\n')
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "DEVICES": "cpu cuda:1"}
    with subprocess.Popen(["bash", ROOT / "deploy" / "workers.sh"], env=environment) as container:

        def started() -> list[list[str]] | None:
            found = [path.read_text().split() for path in tmp_path.glob("*.worker")]
            return found if [len(words) for words in found] == [4, 4] else None

        workers = eventually(started, "two workers")
        assert sorted(words[1:] for words in workers) == [["worker", "--device", name] for name in ("cpu", "cuda:1")]
        first, second = (psutil.Process(int(words[0])) for words in workers)
        first.kill()
        assert container.wait(30) != 0
        assert gone(second)


@pytest.mark.long
def test_gpu_service_starts_one_worker_per_device_and_ends_with_any_of_them(stack: Stack, lab: httpx.Client) -> None:
    """Two workers, with device names that exist on every machine. When one dies, the other is stopped and the container exits."""
    stack.start("gpu", DEVICES="cpu cpu")
    eventually(lambda: lab.get("/readyz").json()["workers"] == 3, "three workers")
    assert stack.healthy("gpu")
    gpu = psutil.Process(stack.process("gpu").pid)
    workers = gpu.children()
    assert len(workers) == 2
    for port in (stack.ports["gpu"], stack.ports["gpu"] + 1):
        assert "headscope_model_loads_total" in httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    workers[0].kill()
    assert gpu.wait(30) != 0
    assert gone(workers[1])
    eventually(lambda: lab.get("/readyz").json()["workers"] <= 2, "the stopped worker has left")
