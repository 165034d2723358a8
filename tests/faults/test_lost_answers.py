"""A worker loses its connection to Redis after a command has arrived: the command takes effect once, and its jobs are not delayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.lossy import Lossy
from tests.support.server import DEADLINE, eventually

Parts = tuple[Cluster, Lossy]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Parts]:
    """A cluster, and the proxy between its worker and Redis."""
    with (
        Cluster(tmp_path_factory.mktemp("lossy") / "home", models, workers=0) as cluster,
        Lossy(cluster.broker.url) as way,
    ):
        cluster.add_worker(redis_url=way.url)
        cluster.ready()
        cluster.analyse(model="bert", text="The cat sat.")
        yield cluster, way


def observed(cluster: Cluster) -> int:
    """Return the number of timed analyses, which a worker reports last."""
    return sum(sum(found.counts) for found in cluster.database().histograms() if found.name == "run_seconds")


@pytest.mark.parametrize("word", [b"\r\ntake\r\n", b"forward_passes", b"run_seconds", b"\r\nfinish\r\n"])
def test_done_and_counted_once(parts: Parts, word: bytes) -> None:
    """With any lost response there is one attempt, one forward pass and one observation."""
    cluster, way = parts
    eventually(lambda: observed(cluster) == cluster.settled("forward_passes_total"), "the counts of the test before")
    passes = observed(cluster)
    lost = way.lose(word)
    document = cluster.analyse(model="bert", text=f"The cat lost {word!r}.")
    assert lost.wait(DEADLINE)
    assert document["attempts"] == 1
    eventually(lambda: observed(cluster) > passes, "the last report")
    assert (cluster.metric("forward_passes_total"), observed(cluster)) == (passes + 1, passes + 1)
