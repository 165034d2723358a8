"""A worker loses its connection to the database after a transaction has arrived: it takes effect once, and its jobs are not delayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.lossy import Lossy
from tests.support.server import DEADLINE, SLOW

Parts = tuple[Cluster, Lossy]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Parts]:
    """A cluster, and the proxy between its worker and the database."""
    with (
        Cluster(tmp_path_factory.mktemp("lossy") / "home", models, workers=0) as cluster,
        Lossy(cluster.db.url) as way,
    ):
        cluster.add_worker(database_url=way.url)
        cluster.ready()
        cluster.analyse(model="bert", text="The cat sat.")
        yield cluster, way


@pytest.mark.parametrize("word", [b"loading", b"forward", b"done"], ids=["claim", "progress", "end"])
def test_done_once(parts: Parts, word: bytes) -> None:
    """With any lost response there is one attempt."""
    cluster, way = parts
    lost = way.lose(word, b"COMMIT")
    document = cluster.analyse(**{**SLOW, "text": f"{SLOW['text']} The cat lost {word!r}."})
    assert lost.wait(DEADLINE)
    assert document["attempts"] == 1
