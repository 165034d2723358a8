"""Each fault of the matrix once, with a few jobs. `make faults` repeats all of them with many jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.load import reference, requests
from tests.faults.matrix import CLUSTER, EMBEDDED, FAULTS
from tests.faults.stage import Stage, open_deployment
from tests.support.cluster import Cluster
from tests.support.server import Server

JOBS = 4
# These take less time there.
QUICKER = frozenset({"disk-full", "files-damaged"})
# These have tests of their own beside this one, which look closer.
ELSEWHERE = frozenset(
    "none model-killed poison worker-killed worker-restarted worker-told-to-stop server-killed server-told-to-stop "
    "broker-killed broker-stands-still broker-emptied database-killed database-stands-still same-request cancelled".split()
)


@pytest.fixture(scope="module")
def expected(embedded: Server) -> dict[str, str]:
    """The responses of an undisturbed server."""
    return reference(embedded, requests(JOBS))


@pytest.fixture(scope="module")
def stages(
    tmp_path_factory: pytest.TempPathFactory, models: Path, expected: dict[str, str], disturbed: Cluster
) -> Iterator[dict[str, Stage]]:
    """A stage of each deployment."""
    with open_deployment(EMBEDDED, tmp_path_factory.mktemp(EMBEDDED), models) as server:
        yield {EMBEDDED: Stage(server, expected, JOBS), CLUSTER: Stage(disturbed, expected, JOBS)}


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ELSEWHERE])
def test_nothing_is_lost(name: str, stages: dict[str, Stage]) -> None:
    """All jobs end once with the right result, and no response is an undocumented error."""
    fault = FAULTS[name]
    account = fault.run(stages[EMBEDDED if name in QUICKER else CLUSTER])
    assert account.kept, account
