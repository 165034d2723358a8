"""During attacks, other users are served and the server's memory stays within its limit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.attacks import ATTACKS
from tests.attacks.stage import LATENCY_SECONDS, MEMORY_BYTES, Target, Watch, target
from tests.support.extent import extent, mostly_long

SECONDS = extent(3.0, 0.5)
# One of each kind: connections, files, requests that cost much to read, responses that are not read.
SHORT = "strangers-withhold-bodies many-keys deep-nesting image-bombs many-streams slow-map-readers".split()
# Without the limits, others wait for 6 to 85 s. The bound is five times the target, because other tests may run on the machine.
BUSY = 5


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server that survives all attacks."""
    with target(tmp_path_factory.mktemp("attacked")) as running:
        yield running
        assert running.server.process.poll() is None


@pytest.mark.parametrize("name", mostly_long(ATTACKS, *SHORT))
def test_others_are_served(attacked: Target, name: str) -> None:
    """Every request of another user is answered within the bound."""
    with Watch(attacked) as seen:
        ATTACKS[name](attacked, SECONDS)
    assert not seen.failures
    assert seen.requests
    assert seen.memory < MEMORY_BYTES
    assert seen.latency < LATENCY_SECONDS * BUSY
