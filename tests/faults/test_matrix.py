"""The faults of the matrix that no other test has, once each and with few jobs. `make faults` repeats all of them with many jobs, in both deployments."""

from __future__ import annotations

import pytest

from tests.faults.load import reference, requests
from tests.faults.matrix import FAULTS
from tests.faults.stage import Stage
from tests.support.cluster import Cluster
from tests.support.server import Server

JOBS = 4
# These have tests of their own beside this one, which look closer: test_chaos kills everything, test_storage fills disks and damages files.
ELSEWHERE = frozenset(
    "none model-killed memory-killed all-killed disk-full files-damaged poison worker-killed worker-restarted "
    "worker-told-to-stop server-killed server-told-to-stop broker-killed broker-stands-still broker-emptied "
    "database-killed database-stands-still same-request cancelled".split()
)


@pytest.fixture(scope="module")
def expected(embedded: Server) -> dict[str, str]:
    """The responses of an undisturbed server."""
    return reference(embedded, requests(JOBS))


@pytest.fixture(scope="module")
def stage(expected: dict[str, str], disturbed: Cluster) -> Stage:
    """A stage of the cluster."""
    return Stage(disturbed, expected, JOBS)


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in ELSEWHERE])
def test_nothing_is_lost(name: str, stage: Stage) -> None:
    """All jobs end once with the right result, and no response is an undocumented error."""
    account = FAULTS[name].run(stage)
    assert account.kept, account
