"""What a user does first with an installed Headscope. Every check raises AssertionError at the first difference."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec

from tests.support.collector import Collector
from tests.support.compose import database_server, redis_server
from tests.support.server import Program, Server, environment, eventually
from tests.support.stores import object_store

ANALYSE = "import headscope; a = headscope.analyze('minilm', 'The cat sat.', lenses=['weights', 'effective'])\n"
LOADED = (
    "import sys, headscope; print(sorted({'celery', 'fastapi', 'redis', 'torch', 'transformers'} & set(sys.modules)))"
)
ERROR = "import headscope\ntry: {}\nexcept headscope.errors.HeadscopeError as error: print(error)"
PROVIDER = {"oidc_issuer": "http://127.0.0.1:1", "oidc_client_id": "headscope"}
# Nothing is there, and nothing is asked before the packages are looked for.
ADDRESSES = {"database_url": "postgresql://a:b@127.0.0.1:1/c", "redis_url": "redis://127.0.0.1:1/0"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "smoke", "version": "1"},
    },
}


class Installed:
    """Headscope in the environment of `python`: its commands run in `folder`, and see neither this checkout nor what is configured here."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.programs, self.folder = python.parent, folder
        folder.mkdir(parents=True, exist_ok=True)

    def variables(self, **settings: Any) -> dict[str, str]:
        """Return the environment of its processes."""
        values = environment(self.folder / "home", **settings)
        return {name: value for name, value in values.items() if not name.startswith("PYTHON")}

    def run(self, program: str, *words: str, fails: bool = False, given: str = "", **settings: Any) -> str:
        """Run a program of the environment with `given` as its input, and return its output. It must succeed, or fail with a sentence if it `fails`."""
        done = subprocess.run(
            [self.programs / program, *words],
            env=self.variables(**settings),
            cwd=self.folder,
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        shown = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, f"{program} {' '.join(words)}: status {done.returncode}\n{shown}"
        assert "Traceback" not in shown, shown
        return shown

    def python(self, program: str) -> str:
        """Run a Python program and return its output."""
        return self.run("python", "-c", program)

    def server(self, home: str = "home", token: str | None = None, **settings: Any) -> Server:
        """Return a server, not started yet."""
        command = [str(self.programs / "headscope"), "serve", "--port", "0", "--no-open"]
        return Server(self.folder / home, token=token, process=(command, self.variables(**settings)))


def check_server(server: Server) -> None:
    """The page is there, and the default model analyses."""
    cards = server.get("/models").json()["items"]
    assert {card["name"] for card in cards if card["local"]} == {"minilm", "rxnmapper"}
    (default,) = [card for card in cards if card["default"]]
    assert (default["name"], default["local"], default["available"]) == ("minilm", True, True)
    done = server.analyse(model="minilm", text="The cat sat.", lenses=["weights"], measures=["entropy"])
    assert len(done["tokens"]) == 6
    assert "<title>Headscope" in server.client.get("/").text


def check_base(headscope: Installed) -> None:
    """Everything that needs no extra: import, help, doctor, an analysis in Python and by the command, a server."""
    loaded = headscope.python(LOADED).strip()
    assert loaded == "[]", f"import headscope loads {loaded}"
    assert headscope.run("headscope", "--version").startswith("headscope, version ")
    assert "analyze" in headscope.run("headscope", "--help")
    assert "BAD" not in headscope.run("headscope", "doctor")
    shape = headscope.python(ANALYSE + "print(a.maps['effective'].shape, len(a.tokens))").strip()
    assert shape == "(6, 12, 6, 6) 6"
    document = json.loads(headscope.run("headscope", "analyze", "The cat sat.", "--json"))
    assert document["model"] == "minilm"
    with headscope.server() as server:
        check_server(server)


def check_refusals(headscope: Installed) -> None:
    """Without an extra, what needs it is refused with the command that installs it; traces are not sent, and a log line says why."""
    wanted = 'pip install "headscope[{}]"'.format
    for words in (["worker"], ["serve", "--no-open"], ["token", "create", "ada"]):
        assert wanted("cluster") in headscope.run("headscope", *words, fails=True, **ADDRESSES)
    assert wanted("s3") in headscope.run("headscope", "doctor", fails=True, store_url="s3://bucket/prefix")
    assert wanted("mcp") in headscope.run("headscope", "mcp", fails=True)
    assert wanted("oidc") in headscope.run("headscope", "serve", "--no-open", fails=True, **PROVIDER)
    assert wanted("large") in headscope.python(ERROR.format("headscope.load('minilm', device_map='auto')"))
    shown = headscope.python(ANALYSE + ERROR.format("headscope.show(a, widget=True)"))
    assert wanted("notebook") in shown
    with Collector() as collector, headscope.server(**collector.environment) as server:
        eventually(lambda: "install headscope[otel]" in server.log(), "the log line about traces")


def check_cluster(headscope: Installed) -> None:
    """A server and a worker with PostgreSQL and Redis, and the package that shows the tasks of Celery."""
    with _services() as addresses:
        assert "up to date" in headscope.run("headscope", "database", "upgrade", **addresses)
        _analyse_in_cluster(headscope, addresses)
    assert "Flower" in headscope.python("import flower.command; print('Flower')")


def check_s3(headscope: Installed) -> None:
    """The results of a cluster are in the object store."""
    with tempfile.TemporaryDirectory() as folder, object_store(Path(folder)), _services() as addresses:
        files = fsspec.filesystem("s3")
        files.mkdir("results")
        _analyse_in_cluster(headscope, {**addresses, "store_url": "s3://results/lab"})
        assert files.glob("results/lab/results/**/manifest.json")


def check_mcp(headscope: Installed) -> None:
    """The server of tools introduces itself."""
    shown = headscope.run("headscope", "mcp", given=json.dumps(HELLO) + "\n")
    answer = json.loads(next(line for line in shown.splitlines() if line.startswith('{"jsonrpc"')))
    assert answer["result"]["serverInfo"]["name"] == "headscope"


def check_notebook(headscope: Installed) -> None:
    """The widget can be made, and knows its head."""
    shown = headscope.python(ANALYSE + "print(headscope.show(a, '4.5', widget=True).head)")
    assert shown.split()[-1] == "4.5"


def check_large(headscope: Installed) -> None:
    """A placed model analyses."""
    placed = (
        "import headscope; m = headscope.load('minilm', device_map='auto'); a = headscope.analyze(m, 'The cat sat.')\n"
    )
    assert "(6, 12, 6, 6)" in headscope.python(placed + "print(a.maps['effective'].shape)")


def check_oidc(headscope: Installed) -> None:
    """The page offers the identity provider. While it is away, users with a token are served."""
    token = headscope.run("headscope", "token", "create", "ada").split()[0]
    with headscope.server(token=token, **PROVIDER) as server:
        assert server.get("/session/oidc").json() == {"issuer": PROVIDER["oidc_issuer"]}
        assert server.client.post("/api/v1/session/oidc").json()["code"] == "provider-unavailable"


def check_otel(headscope: Installed) -> None:
    """The spans of a request and of its job reach a collector."""
    with Collector() as collector, headscope.server(**collector.environment) as server:
        server.analyse(model="minilm", text="The cat sat.")
        names = {"POST /api/v1/analyses", "queue analysis", "run analysis"}
        eventually(lambda: {span.name for span in list(collector.spans)} >= names, "the spans")


# Extra, with those that it builds on -> its check.
EXTRAS: Mapping[str, Callable[[Installed], None]] = {
    "cluster": check_cluster,
    "cluster,s3": check_s3,
    "large": check_large,
    "mcp": check_mcp,
    "notebook": check_notebook,
    "oidc": check_oidc,
    "otel": check_otel,
}


@contextmanager
def _services() -> Iterator[dict[str, str]]:
    """Run PostgreSQL and Redis; yield the settings of a cluster that uses them."""
    with database_server("-c", "fsync=off") as database, redis_server() as broker:
        yield {"database_url": database.url, "redis_url": broker.url}


def _analyse_in_cluster(headscope: Installed, addresses: Mapping[str, str]) -> None:
    token = headscope.run("headscope", "token", "create", "ada", **addresses).split()[0]
    worker = Program(headscope.folder / "worker.log")
    worker.launch(
        [headscope.programs / "headscope", "worker"], env=headscope.variables(**addresses), cwd=headscope.folder
    )
    try:
        with headscope.server(token=token, **addresses) as server:
            check_server(server)
    finally:
        worker.kill()


def hidden(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of pip in another environment: without what is of this Python."""
    return {name: value for name, value in environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
