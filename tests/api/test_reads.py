"""Repeated reads: responses are the same, stay valid only while they are true, and respect access."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import httpx
import httpx2
import pytest

from tests.api.users import Users, refused
from tests.faults.test_storage import folder
from tests.support.cluster import Cluster, cluster_long
from tests.support.server import API, Server, eventually
from tests.support.variants import variants

BODY = {"model": "bert", "lenses": ["weights"], "measures": ["entropy"]}
PATHS = ["", "/maps/weights?layer=0", "/maps/weights?layer=0&format=json", "/grid/weights", "/measures/entropy", "/edges/weights?layer=0&head=0"]  # fmt: skip


def shown(answer: httpx.Response) -> tuple[Any, ...]:
    """Return everything that a response contains except for its request id."""
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    return answer.status_code, headers, answer.content


def decoded(answer: httpx.Response) -> bytes:
    """Return the body of a response: httpx decodes gzip, and httpx2 zstd."""
    if answer.headers.get("content-encoding") != "zstd":
        return answer.content
    return httpx2.Response(200, headers={"Content-Encoding": "zstd"}, content=answer.content).content


def test_a_long_document_travels_compressed(embedded: Server) -> None:
    """Documents and results in JSON are compressed for clients that accept it, the first time and again, and plain for all others."""
    id_ = embedded.analyse(**BODY, text="The cat sat on the mat because it was tired. " * 20)["id"]
    for path, share in (("", 5), ("/measures/entropy?format=json", 2)):
        for coding in ("zstd", "gzip"):
            headers = [{"Accept-Encoding": name} for name in (coding, "identity")]
            told = [embedded.get(f"/analyses/{id_}{path}", headers=one) for one in headers * 2]
            assert [answer.headers.get("content-encoding") for answer in told] == [coding, None] * 2
            assert all("Accept-Encoding" in answer.headers["vary"] for answer in told)
            assert len({decoded(answer) for answer in told}) == 1
            assert share * int(told[0].headers["content-length"]) < len(told[1].content)


@cluster_long
@variants("path", PATHS)
def test_the_second_answer_is_the_first(server: Server, path: str) -> None:
    """A repeated read has the same bytes and headers, its own request id, and is counted under the same route."""
    address = f"/analyses/{server.analyse(**BODY, text='Asked again.')['id']}{path}"
    first, second, third = (server.get(address) for _ in range(3))
    assert first.status_code == 200
    assert shown(second)[:2] == shown(third)[:2] == shown(first)[:2]
    if "safetensors" not in first.headers["content-type"]:  # safetensors orders tensors arbitrarily
        assert second.content == third.content == first.content
    assert len({answer.headers["x-request-id"] for answer in (first, second, third)}) == 3
    if path:
        had = {"If-None-Match": first.headers["etag"]}
        told = [server.get(address, headers=had) for _ in range(3)]
        assert [answer.status_code for answer in told] == [304] * 3
        assert shown(told[0]) == shown(told[1]) == shown(told[2])
    assert [server.client.head(f"{API}{address}").status_code for _ in range(2)] == [405] * 2


def test_every_server_of_a_cluster_knows_at_once_what_is_gone(cluster: Cluster) -> None:
    """A result that is deleted on one server is gone on both, even if one has it in memory."""
    id_ = cluster.analyse(**BODY, text="Forgotten elsewhere.")["id"]
    one, other = cluster.servers
    for path in PATHS:
        assert {one.get(f"/analyses/{id_}{path}").status_code for _ in range(3)} == {200}
    assert other.client.delete(f"{API}/analyses/{id_}").status_code == 204
    assert {one.get(f"/analyses/{id_}{path}").status_code for path in PATHS for _ in range(2)} == {404}


@pytest.mark.parametrize("path", PATHS)
def test_what_one_user_asks_again_stays_theirs(lab: Users, path: str) -> None:
    """Another user gets no cached response, a share key works until it is revoked, and a lost grant ends access."""
    id_ = lab.submit(lab.ada, f"Ada asks again for {path}.")
    address, share = f"{API}/analyses/{id_}{path}", f"{API}/analyses/{id_}/share"
    with_key = f"{address}{'&' if '?' in path else '?'}share={lab.ada.post(share).json()['key']}"
    assert {lab.ada.get(address).status_code for _ in range(3)} == {200}
    assert {lab.emmy.get(address).status_code for _ in range(3)} == {404}
    refused(lab.anonymous.get(address))
    assert {who.get(with_key).status_code for who in (lab.anonymous, lab.emmy) for _ in range(3)} == {200}
    assert lab.ada.delete(share).status_code == 204
    refused(lab.anonymous.get(with_key))
    assert lab.emmy.get(with_key).status_code == 404
    assert lab.ada.delete(f"{API}/analyses/{id_}").status_code == 204
    assert {lab.ada.get(address).status_code for _ in range(2)} == {404}


def test_slices_that_are_rejected(embedded: Server) -> None:
    """Invalid requests are rejected, also by a result that was read before; unknown and repeated parameters are ignored."""
    document = f"/analyses/{embedded.analyse(**BODY, text='Cut wrongly.')['id']}"
    assert {embedded.get(document).status_code for _ in range(2)} == {200}
    wrong = {
        "layer=9": 404,
        "layer=x": 422,
        "layer=": 422,
        "layer=0&layer=1": 200,
        "layers=0": 200,
        f"layer={'0' * 21}": 422,
    }
    assert {query: embedded.get(f"{document}/maps/weights?{query}").status_code for query in wrong} == wrong
    assert embedded.get(f"{document}/maps/norm?layer=0").json()["code"] == "unknown-lens"


@pytest.mark.parametrize("path", PATHS)
def test_what_is_in_memory_does_not_hide_damage(embedded: Server, path: str) -> None:
    """A file that has changed since it was cached is verified, quarantined and computed again; the response is the same."""
    id_ = embedded.analyse(**BODY, text=f"Damaged behind {path}.")["id"]
    address, counted = f"/analyses/{id_}{path}", embedded.settled("corrupt_results_total")
    before = [embedded.get(address) for _ in range(3)][-1]
    small = path in ("", "/grid/weights", "/measures/entropy")
    next(folder(embedded, id_).glob("small.*" if small else "weights.*")).write_bytes(b"cut")
    embedded.get(f"/analyses/{id_}/{'maps/weights?layer=1' if small else 'grid/weights'}")  # which is intact
    embedded.get(address)
    embedded.ended(id_)
    after = embedded.get(address)
    assert embedded.metric("corrupt_results_total") == counted + 1
    assert after.status_code == 200
    if path:
        assert after.headers["etag"] != before.headers["etag"]
        assert sorted(after.content) == sorted(before.content)


def test_what_may_still_be_cancelled_is_asked_of_the_record(embedded: Server) -> None:
    """A result may exist before its job has ended; if the job is then cancelled, there is no result."""
    embedded.analyse(**{**BODY, "text": "Before it."})
    child = embedded.child()
    child.suspend()  # no read sees the end of the job
    id_ = embedded.submit(**{**BODY, "text": "Cancelled at the last moment."})
    child.resume()
    paths = [f"/analyses/{id_}{path}" for path in PATHS]

    def change(statement: str) -> int:
        with closing(sqlite3.connect(embedded.home / "headscope.db", timeout=60)) as record, record:
            return record.execute(f"UPDATE jobs SET {statement} AND id = ?", (id_,)).rowcount

    def cancel_at_the_last_moment() -> int:
        if not change("status = 'running' WHERE status = 'done'"):
            return 0
        assert {embedded.get(path).status_code for path in paths for _ in range(2)} == {200}
        return change(
            "status = 'cancelled' WHERE status = 'running'"
        )  # none if the job was taken for a lost one by now

    eventually(cancel_at_the_last_moment, "a job that is cancelled at the last moment")
    assert embedded.get(paths[0]).json()["status"] == "cancelled"
    assert {embedded.get(path).json()["code"] for path in paths[1:]} == {"not-ready"}
