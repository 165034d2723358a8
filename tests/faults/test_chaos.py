"""A short form of `make chaos`: parts of a cluster are killed and stopped at random, and every analysis and study completes."""

from __future__ import annotations

import pytest

from tests.faults.chaos import load_of, run
from tests.faults.load import reference
from tests.support.cluster import Cluster
from tests.support.server import Server


@pytest.mark.long
def test_nothing_is_lost(embedded: Server, disturbed: Cluster) -> None:
    """Every job ends once with the right result, and every response of 500 and above is documented."""
    bodies = load_of(analyses=8, rows=300)
    expected = reference(embedded, bodies)
    account = run(disturbed, expected, bodies, seconds=6, seed=5, between=(0.5, 1.0), longest=2.0)
    assert account["kept"], account
    assert account["struck"]["broker emptied"] == 2
