"""A cluster with one worker: it runs alike inputs together, and loses its connection to the database after a transaction has arrived, which takes effect once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

import headscope
from tests.support.cluster import Cluster
from tests.support.lossy import Lossy
from tests.support.server import DEADLINE, SLOW, eventually

Parts = tuple[Cluster, Lossy]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Parts]:
    """A cluster, and the proxy between its worker and the database. The default model is loaded at start-up."""
    settings = {"workers": 0, "batch_tokens": 4096, "prewarm": True}
    with (
        Cluster(tmp_path_factory.mktemp("lossy") / "home", models, **settings) as cluster,
        Lossy(cluster.db.url) as way,
    ):
        cluster.add_worker(database_url=way.url)
        cluster.ready()
        eventually(lambda: cluster.metric("model_loads_total") == 1, "the default model")
        yield cluster, way


def test_alike_inputs_share_a_pass(parts: Parts, models: Path) -> None:
    """A worker claims several jobs of one recipe and length at once; each has its own result."""
    cluster, _ = parts
    texts = [f"The cat sat on mat {number}." for number in range(8)]
    running = cluster.submit(**SLOW)
    cluster.forward(running)
    passes = cluster.metric("forward_passes_total")
    body = {"model": "bert", "inputs": [{"text": text} for text in texts]}
    ids = cluster.post(body, "/analyses/batch").json()["ids"]
    assert cluster.ended(running)["status"] == "done"
    documents = [cluster.ended(id_) for id_ in ids]
    assert [(document["status"], document["text"]) for document in documents] == [("done", text) for text in texts]
    assert cluster.metric("forward_passes_total") == passes + 2
    alone = headscope.analyze(headscope.load(models / "bert"), texts[3])
    got = load(cluster.get(f"/analyses/{ids[3]}/maps/effective").content)["map"]
    assert np.allclose(got, alone.maps["effective"], atol=1e-5)


@pytest.mark.parametrize("word", [b"loading", b"forward", b"done"], ids=["claim", "progress", "end"])
def test_done_once(parts: Parts, word: bytes) -> None:
    """With any lost response there is one attempt, and its job is not delayed."""
    cluster, way = parts
    lost = way.lose(word, b"COMMIT")
    document = cluster.analyse(**{**SLOW, "text": f"{SLOW['text']} The cat lost {word!r}."})
    assert lost.wait(DEADLINE)
    assert document["attempts"] == 1
