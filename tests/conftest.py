"""Servers and models that the tests share."""

from __future__ import annotations

import atexit
import gc
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.support import extent
from tests.support.cluster import Cluster
from tests.support.collector import Collector
from tests.support.hub import Hub
from tests.support.models import small_models, tiny_model
from tests.support.server import Program, Server

# Several tests run at a time, and each may start processes that compute: threads of one that wait for a core keep the others' from theirs.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Benchmarks start every process by its command, and so do faults.
Server.preloading = True
# What takes longest. It runs first, so that no process is left alone with a long file at the end; pytest-xdist hands out files in this order.
FIRST = ("browser", "attacks", "sweep", "test_benchmarks.py", "deploy", "docs", "cli", "api")

# The tests of the fixtures `cluster` and `disturbed`.
CLUSTERS = {
    "cluster": re.compile(r"^tests/api/.*cluster|cluster\]$"),
    "disturbed": re.compile(r"^tests/faults/test_(celery|chaos|cluster|matrix|studies|users)\.py"),
}

gc.disable()  # until all tests are imported, which stay
atexit.register(gc.freeze)  # so they need not be traversed at the end


def pytest_configure(config: pytest.Config) -> None:
    """Shorten tests where long ones are left out (addopts in pyproject.toml)."""
    extent.shortened = "not long" in config.option.markexpr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files by FIRST, and after the browser's, which share a server, add a file of faults to every second one: it waits more than it computes.

    Within a file the order stays.
    """

    def part(file: Path) -> str:
        return file.relative_to(Path(__file__).parent).parts[0]

    files = list(dict.fromkeys(item.path for item in items))
    waiting = [file for file in files if part(file) == "faults"]
    others = [file for file in files if part(file) != "faults"]
    others.sort(key=lambda file: FIRST.index(part(file)) if part(file) in FIRST else len(FIRST))
    place = {file: number for number, file in enumerate(others)}
    first = sum(part(file) == FIRST[0] for file in others)
    place |= {file: first + 2 * number - 0.5 for number, file in enumerate(waiting)}
    items.sort(key=lambda item: place[item.path])
    gc.freeze()
    gc.enable()


class FewFixtures(LoadFileScheduling):
    """Distributes files, so that what takes long to start is started once.

    One process runs all tests of a shared cluster, ten seconds of processor time to start, and one all files with a browser, which share it and a server with models, 15
    seconds: they take three quarters of the time of all tests. Any other file is one process's, too.
    """

    def _split_scope(self, nodeid: str) -> str:
        for name, tests in CLUSTERS.items():
            if tests.search(nodeid):
                return name
        return "browser" if nodeid.startswith("tests/browser/") else str(super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewFixtures:
    """Distribute the tests over the processes."""
    return FewFixtures(config, log)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model per family, and `slow`, whose forward pass takes seconds."""
    return small_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Server]:
    """A server that does its jobs itself."""
    with Server(tmp_path_factory.mktemp("shared") / "home", models) as running:
        running.analyse(model="bert", text="The first analysis waits for torch to be imported.")
        yield running


@pytest.fixture(scope="session")
def factored(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Server]:
    """A server that keeps factors of short texts too."""
    with Server(tmp_path_factory.mktemp("factored") / "home", models, keep="factors") as running:
        yield running


@pytest.fixture(scope="session")
def cluster_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with one model, org/shared."""
    top = tmp_path_factory.mktemp("cluster-hub")
    tiny_model(top / "org" / "shared")
    with Hub(top) as running:
        yield running


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """The collector of the traces of `cluster`."""
    with Collector() as running:
        yield running


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, models: Path, cluster_hub: Hub, collector: Collector
) -> Iterator[Cluster]:
    """Two servers and two workers, which log every request, may download from a hub, and send traces."""
    home = tmp_path_factory.mktemp("cluster") / "home"
    logs = {"log_format": "json", "log_level": "debug"}
    hub = {"hub": "any", "HF_ENDPOINT": cluster_hub.url}
    with Cluster(home, models, servers=2, workers=2, prewarm=True, **logs, **hub, **collector.environment) as running:
        running.warm()
        yield running


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Server:
    """A server for tests that leave it as they find it. With `pytestmark = both_deployments` one of each home, one after the other."""
    running: Server = request.getfixturevalue(getattr(request, "param", "embedded"))
    return running


@pytest.fixture
def new_server(tmp_path: Path, models: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers of the test's own, each time on the test's home; settings as keywords."""
    started: list[Server] = []

    def start(models: Path = models, **settings: Any) -> Server:
        started.append(Server(tmp_path / "home", models, **settings).start())
        return started[-1]

    yield start
    for server in started:
        server.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """The end of every living server's log beside the failure, what was written last at the end, and below it once more what failed."""
    report = yield
    if report.failed:
        latest = sorted(Program.living, key=Program.written)
        report.sections += [(f"log of {program}", program.log()[-2000:]) for program in latest]
        if call.excinfo is not None:
            report.sections.append(("what failed", call.excinfo.exconly()[-2000:]))
    return report
