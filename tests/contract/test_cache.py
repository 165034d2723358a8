"""The cache: a lookup returns what was cached or nothing, without a long wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from headscope.core import optional_redis
from headscope.store import Cache
from headscope.store import cache as cache_module
from tests.support.compose import Redis, redis_server
from tests.support.server import eventually

TENSORS = {"content-type": "application/octet-stream", "inference-header-content-length": "120"}
TEXT = {"content-type": "text/plain"}


@pytest.fixture
def cache() -> Iterator[Redis]:
    """A Redis for one test."""
    with redis_server(service="cache") as running:
        yield running


def test_what_is_put_in_comes_out(cache: Redis) -> None:
    """A hit returns headers and bytes, in every process, and lookups are counted."""
    here, there = Cache(cache.url), Cache(cache.url)
    assert here.get("a") is None
    for key, body in (("a", b"\x00\nbytes\n"), ("b", b""), ("c", bytes(cache_module.LARGEST))):
        here.put(key, TENSORS, body)
        assert there.get(key) == (TENSORS, body)
    assert (here.hits, here.misses) == (0, 1)
    assert (there.hits, there.misses) == (3, 0)


def test_large_answers_stay_out_and_nothing_stays_for_ever(cache: Redis) -> None:
    """Responses above the limit are not cached; cached ones expire within a day."""
    kept = Cache(cache.url)
    kept.put("large", TEXT, bytes(cache_module.LARGEST + 1))
    assert kept.get("large") is None
    kept.put("small", TEXT, b"small")
    with redis.Redis.from_url(cache.url) as client:
        assert [client.ttl(name) > 0 for name in client.scan_iter()] == [True]


def test_an_answer_for_somebody_else_is_none(cache: Redis) -> None:
    """A value that was not cached for this key is a miss."""
    kept = Cache(cache.url)
    kept.put("mine", TEXT, b"mine")
    with redis.Redis.from_url(cache.url) as client:
        (mine,) = client.scan_iter()
        kept.put("yours", TEXT, b"yours")
        (yours,) = set(client.scan_iter()) - {mine}
        for wrong in (client.get(mine), b"", b"garbage"):
            client.set(yours, wrong)
            assert kept.get("yours") is None
    assert kept.get("mine") == (TEXT, b"mine")


def test_without_a_cache() -> None:
    """Nothing is cached and nothing counted."""
    none = Cache(None)
    none.put("a", TEXT, b"a")
    assert none.get("a") is None
    assert (none.hits, none.misses) == (0, 0)


@pytest.mark.parametrize("how", ["killed", "stopped", "full"])
def test_a_cache_that_is_away_is_a_miss(
    cache: Redis, how: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a failure the cache is not asked for a while; it works again once Redis is back."""
    kept = Cache(cache.url)
    kept.put("a", TEXT, b"a")
    if how == "killed":
        cache.kill()
    elif how == "stopped":
        cache.pause()
    else:
        cache.restart("--maxmemory", "1")
        kept.put("a", TEXT, b"a")
    assert [kept.get("a") for _ in range(50)] == [None] * 50
    assert caplog.text.count("did not answer") == 1
    monkeypatch.setattr(optional_redis, "PAUSE_SECONDS", 0.1)
    kept._redis._retry_at = 0.0
    if how == "stopped":
        cache.resume()
    else:
        cache.kill()
        cache.start()
    eventually(lambda: kept.get("a") or kept.put("a", TEXT, b"a"), "the cache to be back")
    assert kept.get("a") == (TEXT, b"a")
