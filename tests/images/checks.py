"""What an image and the services from it have to fulfil. Every check raises AssertionError, and returns what it found in a few words."""

from __future__ import annotations

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx

from tests.support.compose import image as written
from tests.support.server import API, eventually

from .engine import PATIENCE, Engine, Stack

# Unpacked, with a CPU build of torch.
LIMIT = 2_200_000_000
LABELS = ("title", "description", "licenses", "version", "revision")
USER = "10001:10001"
ASKED = {"model": "minilm", "lenses": ["weights", "effective"], "measures": ["entropy"]}
# Analyses that are queued when a worker is killed.
QUEUED = 24


def size(engine: Engine, image: str) -> str:
    """The image is small. With CUDA, its size is reported only."""
    bytes_ = engine.unpacked(image)
    cuda = engine.contained(image, "python", "-c", "import torch; print(torch.version.cuda or '')").strip()
    assert cuda or bytes_ <= LIMIT, f"{bytes_:,} bytes are more than {LIMIT:,}"
    return f"{bytes_ / 1e9:.2f} GB unpacked, torch {f'with CUDA {cuda}' if cuda else 'for the CPU'}"


def configuration(engine: Engine, image: str, dockerfile: str) -> str:
    """The image has the user, variables, command and labels of its Dockerfile, and the version of the package in it."""
    config, wanted = engine.inspect(image)["Config"], written(dockerfile)
    assert (config["User"], config["Cmd"]) == (wanted["user"], wanted["cmd"])
    found = dict(line.split("=", 1) for line in config["Env"])
    assert {name: found[name] for name in wanted["env"] if name != "PATH"} == {
        name: value for name, value in wanted["env"].items() if name != "PATH"
    }
    labels = {name: config["Labels"].get(f"org.opencontainers.image.{name}") for name in LABELS}
    assert all(labels.values()), labels
    version = engine.contained(image, "headscope", "--version").split()[-1]
    assert labels["version"] == version, (labels, version)
    return f"version {version}, revision {labels['revision']}"


def bill_of_materials(engine: Engine, image: str) -> str:
    """The list of packages in the image names all of them, each with a version and a package URL."""
    document = json.loads(engine.contained(image, "cat", "/usr/share/headscope/sbom.cdx.json"))
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "headscope")
    listed = {part["purl"]: part["version"] for part in document["components"]}
    assert all(listed.values())
    names = {re.split(r"[@?]", purl)[0] for purl in listed}
    assert {"pkg:pypi/torch", "pkg:pypi/transformers", "pkg:deb/debian/libc6"} <= names
    program = "import importlib.metadata as m; print(len({d.metadata['Name'] for d in m.distributions()}))"
    python = sum(purl.startswith("pkg:pypi/") for purl in listed) + 1
    assert int(engine.contained(image, "python", "-c", program)) == python
    return f"{python} Python and {len(listed) - python + 1} system packages"


def confinement(engine: Engine, image: str) -> str:
    """A process is not root, has no capabilities and cannot get any, and writes to the volume and to /tmp only."""
    program = "id -u; id -g; grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; touch /tmp/x /var/lib/headscope/x"
    volume = ("--volume", "/var/lib/headscope")
    lines = engine.contained(image, "sh", "-ec", program, options=volume).split()
    assert lines == ["10001", "10001", "CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"], lines
    for path in ("/x", "/opt/headscope/x", "/etc/x"):
        shown = engine.contained(image, "touch", path, check=False)
        assert "Read-only file system" in shown, shown
    return "user 10001, no capabilities, root read-only"


def no_gpu(engine: Engine, image: str) -> str:
    """Without a GPU, the workers' script says so."""
    shown = engine.contained(image, "headscope-workers", check=False)
    assert "No GPU is visible." in shown, shown
    return "refused with a reason"


class Lab:
    """The services of docker-compose.yml with one user, and a client with that user's token."""

    def __init__(self, engine: Engine, stack: Stack) -> None:
        self._engine, self._stack = engine, stack
        token = stack.compose("run", "--rm", "-T", "api", "headscope", "token", "create", "ada").split()
        self._client = stack.client(next(word for word in token if len(word) > 40))

    def start(self) -> str:
        """All services become healthy, with two workers, and the doctor finds nothing wrong."""
        began = time.monotonic()
        self._stack.compose("up", "--detach", "--scale", "worker=2")
        self._stack.wait()
        eventually(lambda: self._workers() == 2, "two workers", PATIENCE)
        checks = json.loads(self._stack.compose("exec", "-T", "api", "headscope", "doctor", "--json"))
        wrong = [check for check in checks if not check["ok"] and check["name"] != "hub"]
        assert not wrong, wrong
        return f"healthy after {time.monotonic() - began:.0f} s"

    def main_job(self) -> str:
        """An analysis is computed by a worker and read, as numbers and as a picture drawn by the image's browser."""
        id_ = self._submit("The main job runs on a worker.")
        document = self._done(id_)
        grid = self._get(f"/analyses/{id_}/grid/effective")
        assert len(grid) > 500
        picture = self._get(f"/analyses/{id_}/figures/entropy?format=png&width=400&height=300")
        assert picture.startswith(b"\x89PNG")
        anonymous = httpx.get(f"{self._client.base_url}/api/v1/models", trust_env=False)
        assert anonymous.status_code == 401
        return f"{document['layers']} layers, grid of {len(grid):,} bytes, figure of {len(picture):,} bytes"

    def restart(self) -> str:
        """After a restart of every service, results are still there, byte for byte, and new analyses run."""
        id_ = self._submit("Results outlive a restart.")
        self._done(id_)
        before = self._get(f"/analyses/{id_}/grid/effective")
        self._stack.compose("restart", "--timeout", "30")
        self._stack.wait()
        assert self._get(f"/analyses/{id_}/grid/effective") == before
        self._done(self._submit("A new analysis after the restart."))
        return "same bytes, and a new analysis"

    def killed_worker(self) -> str:
        """A worker is killed while analyses are queued and running: all of them are done, and its container is started again."""
        (victim, _) = self._stack.containers("worker")
        restarts = self._engine.inspect(victim)["RestartCount"]
        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(self._submit, (f"Analysis {n} of a busy afternoon. " * 12 for n in range(QUEUED))))
        # -1: every process but the container's first, which then ends by itself.
        self._engine("exec", victim, "sh", "-c", "kill -KILL -1", check=False)
        unfinished = sum(self._document(id_)["status"] != "done" for id_ in ids)
        assert unfinished, "the analyses were done before the worker was killed"
        for id_ in ids:
            self._done(id_)
        eventually(lambda: self._engine.inspect(victim)["RestartCount"] > restarts, "a restart", PATIENCE)
        eventually(lambda: self._workers() == 2, "two workers again", PATIENCE)
        return f"{len(ids)} of {len(ids)} done, {unfinished} of them after the kill"

    def logs(self) -> str:
        """Every line of Headscope's containers is JSON, and holds neither texts nor the token."""
        count = 0
        for id_ in (*self._stack.containers("api"), *self._stack.containers("worker")):
            for line in self._engine.log(id_):
                assert line.startswith("{"), line
                json.loads(line)
                count += 1
                assert "busy afternoon" not in line
                assert self._client.headers["Authorization"].split()[1] not in line
        return f"{count} lines"

    def _workers(self) -> int | None:
        with suppress(httpx.TransportError):
            return self._client.get("/readyz").json()["workers"]
        return None

    def _submit(self, text: str) -> str:
        answer = self._client.post(f"{API}/analyses", json={**ASKED, "text": text})
        return answer.raise_for_status().json()["id"]

    def _document(self, id_: str) -> dict[str, Any]:
        return self._client.get(f"{API}/analyses/{id_}").raise_for_status().json()

    def _done(self, id_: str) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            document = self._document(id_)
            return document if document["status"] in ("done", "failed", "cancelled") else None

        document = eventually(ended, "an analysis", PATIENCE)
        assert document["status"] == "done", document
        return document

    def _get(self, path: str) -> bytes:
        return self._client.get(f"{API}{path}").raise_for_status().content
