"""Immutable responses: each has an ETag, and the cache and the store return the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from tests.support.compose import Redis, redis_server
from tests.support.server import Server, eventually
from tests.support.variants import variants

# Every kind of cached response, once for each relevant query.
PATHS = [
    "maps/weights?layer=0&dtype=float16",
    "maps/weights?layer=0&dtype=uint8",
    "maps/effective?head=1&format=json",
    "maps/effective?by=word&format=npy",
    "maps/effective?by=word&format=open-inference",
    "grid/weights",
    "grid/weights?tile=4",
    "edges/weights?layer=1&head=0",
    "edges/weights?layer=1&head=0&rule=top-k&k=1",
    "measures/entropy?format=json",
    "measures/entropy?summary=head",
    "measures/entropy?unit=bits",
]
BODY = {"model": "bert", "text": "The cat sat.", "lenses": ["weights", "effective"], "measures": ["entropy"]}


@pytest.fixture(scope="module")
def cache() -> Iterator[Redis]:
    """A Redis that is only used as a cache."""
    with redis_server(service="cache") as running:
        yield running


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory, models: Path, cache: Redis) -> Iterator[Server]:
    """A server with a cache."""
    with Server(tmp_path_factory.mktemp("cached") / "home", models, cache_url=cache.url) as running:
        yield running


@pytest.fixture(scope="module")
def id_(cached: Server) -> str:
    """A finished analysis."""
    return str(cached.analyse(**BODY)["id"])


def seen(server: Server, path: str, **headers: str) -> tuple[Any, ...]:
    """Return everything that a client sees of a response."""
    answer = server.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    names = ("content-type", "etag", "cache-control", "vary", "inference-header-content-length")
    return (*(answer.headers.get(name) for name in names), answer.content)


def hits(cache: Redis) -> int:
    """Return the number of cache hits in Redis."""
    with cache.client() as client:
        return int(client.info("stats")["keyspace_hits"])


@variants("path", PATHS)
def test_the_cache_answers_as_the_store_does(cached: Server, server: Server, cache: Redis, id_: str, path: str) -> None:
    """A restarted server responds from the cache with the same bytes, and so does a server without a cache."""
    first = seen(cached, f"/analyses/{id_}/{path}")

    def is_kept() -> bool:
        before = hits(cache)
        assert seen(cached, f"/analyses/{id_}/{path}") == first
        return hits(cache) == before

    eventually(is_kept, "a response that this process has kept")  # not one while it checked the files again
    before = hits(cache)
    assert seen(cached, f"/analyses/{id_}/{path}", **{"Accept-Encoding": "identity"}) == first  # another question
    assert hits(cache) == before + 1
    assert server.analyse(**BODY)["id"] == id_
    elsewhere = server.get(f"/analyses/{id_}/{path}")
    assert elsewhere.headers["content-type"] == first[0]
    if "safetensors" in first[0]:
        one, other = load(elsewhere.content), load(first[-1])
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
    else:
        assert elsewhere.content == first[-1]


def test_what_is_only_read_is_not_kept(cached: Server, cache: Redis, id_: str) -> None:
    """A slice that is on the local disk is read from there each time."""
    path, before = f"/analyses/{id_}/maps/weights?layer=0", hits(cache)
    assert seen(cached, path) == seen(cached, path)
    assert hits(cache) == before


def test_every_answer_has_a_name_of_its_own(cached: Server, id_: str) -> None:
    """ETags differ between requests, and between analyses for the same request."""
    other = cached.analyse(**{**BODY, "text": "The dog sat."})["id"]
    tags = [cached.get(f"/analyses/{named}/{path}").headers["etag"] for named in (id_, other) for path in PATHS]
    assert len(set(tags)) == 2 * len(PATHS)
    accepted = [
        cached.get(f"/analyses/{id_}/grid/weights", headers={"Accept": media}).headers["etag"]
        for media in ("application/json", "application/x-npy", "application/vnd.safetensors")
    ]
    assert len(set(accepted)) == 3


@variants("path", PATHS)
def test_a_current_etag_gets_304(server: Server, path: str) -> None:
    """A response is not sent again to a client that sends its ETag."""
    path = f"/analyses/{server.analyse(**BODY)['id']}/{path}"
    tag = server.get(path).headers["etag"]
    for names, status in ((tag, 304), ("*", 304), (f'"other", {tag.removeprefix("W/")}', 304), ('"other"', 200)):
        answer = server.get(path, headers={"If-None-Match": names})
        assert (answer.status_code, answer.headers["etag"]) == (status, tag)
        assert bool(answer.content) == (status == 200)


def test_refusals_are_not_kept(cached: Server, id_: str) -> None:
    """Errors are not cached."""
    for _ in range(2):
        answer = cached.get(f"/analyses/{id_}/grid/norm")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-lens")
        assert "etag" not in answer.headers


def test_a_cache_is_never_stale(cached: Server, id_: str) -> None:
    """A deleted result is gone whatever the cache contains; a recomputed one has new responses."""
    body = {**BODY, "text": "Forgotten."}
    path = f"/analyses/{cached.analyse(**body)['id']}/grid/weights"
    first = cached.get(path)
    assert cached.client.delete(first.request.url.path.rpartition("/grid")[0]).status_code == 204
    assert cached.get(path).status_code == 404
    cached.analyse(**body)
    again = cached.get(path)
    assert again.content == first.content
    assert again.headers["etag"] != first.headers["etag"]


def test_without_the_cache_everything_goes_on(cached: Server, cache: Redis, id_: str) -> None:
    """While the cache is down, every response is the same, from the store; afterwards it is used again."""
    path = f"/analyses/{id_}/edges/weights?layer=0&head=0"
    before = seen(cached, path)
    cache.kill()
    for _ in range(3):
        assert seen(cached, path) == before
    cache.start()
    assert seen(cached, path) == before
