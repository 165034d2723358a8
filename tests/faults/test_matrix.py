"""Some faults of the matrix, once each and with few jobs. `make faults` repeats all of them with many jobs, in both deployments."""

from __future__ import annotations

import pytest

from tests.faults.load import reference, requests
from tests.faults.matrix import FAULTS
from tests.faults.stage import Stage
from tests.support.cluster import Cluster
from tests.support.extent import mostly_long
from tests.support.server import Server

JOBS = 4
# What no other test does and takes seconds.
SMOKE = ["messages-lost"]
LONGER = (
    "cache-stands-still messages-doubled worker-stands-still broker-disk-full database-disk-full cache-killed".split()
)


@pytest.fixture(scope="module")
def expected(embedded: Server) -> dict[str, str]:
    """The responses of an undisturbed server."""
    return reference(embedded, requests(JOBS))


@pytest.fixture(scope="module")
def stage(expected: dict[str, str], disturbed: Cluster) -> Stage:
    """A stage of the cluster."""
    return Stage(disturbed, expected, JOBS)


@pytest.mark.parametrize("name", mostly_long(SMOKE + LONGER, *SMOKE))
def test_nothing_is_lost(name: str, stage: Stage) -> None:
    """All jobs end once with the right result, and no response is an undocumented error."""
    account = FAULTS[name].run(stage)
    assert account.kept, account
