"""The cluster that most of these tests disturb."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.stage import CLUSTER, open_deployment
from tests.support.cluster import IMPATIENT, Cluster
from tests.support.server import Server


@pytest.fixture(autouse=True)
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are started by their command, as they are shipped: what ends with a process and what outlives it is tested here."""
    monkeypatch.setattr(Server, "preloading", False)


@pytest.fixture(scope="session")
def disturbed(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Cluster]:
    """Two servers and two workers. Every test leaves them running, and no job behind."""
    with open_deployment(CLUSTER, tmp_path_factory.mktemp("disturbed"), models, **IMPATIENT) as running:
        assert isinstance(running, Cluster)
        yield running
