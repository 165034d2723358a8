"""Responses cached in a server's memory belong to the current result."""

from __future__ import annotations

from headscope.api.http.response_cache import ResponseCache
from tests.support.cluster import both_deployments
from tests.support.server import API, Server


def test_the_least_recently_used_response_is_evicted() -> None:
    """A response that is larger than the cache is not cached and evicts nothing."""
    cache = ResponseCache(max_bytes=10)
    cache.put("a", b"1234", 4)
    cache.put("b", b"1234", 4)
    assert cache.get("a") == b"1234"
    cache.put("c", b"1234", 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (b"1234", None, b"1234")
    cache.put("a", b"12345", 5)
    assert (cache.get("a"), cache.get("c")) == (b"12345", b"1234")
    cache.put("d", b"x" * 11, 11)
    assert [cache.get(key) for key in "acd"] == [b"12345", b"1234", None]
    cache.put("e", b"1234567890", 10)
    assert [cache.get(key) for key in "ace"] == [None, None, b"1234567890"]


@both_deployments
def test_the_document_belongs_to_the_current_result(server: Server) -> None:
    """Repeated requests have the same bytes; a deleted analysis is gone; a recomputed one has its new document."""
    body = {"model": "bert", "text": "Shown, forgotten and shown again."}
    first = server.analyse(**body)
    path = f"/analyses/{first['id']}"
    assert server.get(path).content == server.get(path).content
    assert server.client.delete(f"{API}{path}").status_code == 204
    assert server.get(path).status_code == 404
    again = server.analyse(**body)
    assert {**again, "timing_ms": {}} == {**first, "timing_ms": {}}
    batch = server.post({"model": "bert", "inputs": [{"text": body["text"]}, {"text": "Another."}]}, "/analyses/batch")
    assert batch.status_code == 202
    assert server.get(path).json()["status"] == "done"
    for id_ in batch.json()["ids"]:
        server.ended(id_)
