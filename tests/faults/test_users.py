"""Users of a cluster: the same on every server, with fair turns, and without access while grants cannot be checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import httpx
import pytest

from headscope.jobs.queries import AHEAD
from tests.api.users import OF_ONE, Users, ask, refused, users_of
from tests.support import studies
from tests.support.cluster import Cluster
from tests.support.server import API, SLOW, Server, eventually


@pytest.fixture(scope="module")
def lab(disturbed: Cluster) -> Iterator[Users]:
    """Two servers, two workers, two users."""
    with users_of(disturbed) as running:
        yield running
        logs = "".join(part.log() for part in (*cluster(running).servers, *cluster(running).workers))
        assert not [name for name, token in running.tokens.items() if token in logs]


def cluster(lab: Users) -> Cluster:
    """The lab's servers and workers."""
    return cast("Cluster", lab.server)


@contextmanager
def elsewhere(lab: Users, name: str | None) -> Iterator[httpx.Client]:
    """Return a user's client of the other server."""
    other: Server = cluster(lab).others[0]
    with other.visitor(lab.tokens[name] if name else None) as client:
        yield client


def test_every_server_knows_who_may_read_what(lab: Users) -> None:
    """An analysis sent to one server belongs to the same user on the other; equal requests of two users are computed once; a share key works on both."""
    id_ = lab.submit(lab.ada, "Ada asks the first server.")
    address, before = f"{API}/analyses/{id_}", lab.server.settled("forward_passes_total")
    with elsewhere(lab, "ada") as ada, elsewhere(lab, "emmy") as emmy, elsewhere(lab, None) as visitor:
        assert ada.get(f"{address}/maps/weights").status_code == 200
        for route in OF_ONE:
            assert ask(emmy, *route, id_).status_code == 404
        key = ada.post(f"{address}/share").json()["key"]
        for stranger in (visitor, lab.anonymous):
            assert stranger.get(f"{address}/grid/weights", params={"share": key}).status_code == 200
            refused(stranger.get(f"{API}/analyses", params={"share": key}))
        assert lab.submit(emmy, "Ada asks the first server.") == id_
        assert lab.ada.delete(address).status_code == 204
        assert (ada.get(address).status_code, lab.emmy.get(address).status_code) == (404, 200)
        refused(visitor.get(address, params={"share": key}))
    assert lab.server.metric("forward_passes_total") == before


def test_a_key_to_a_study_opens_it_on_every_server(lab: Users) -> None:
    """A revoked key works on neither."""
    made = lab.ada.post(f"{API}/studies", json=studies.asked(10), headers={"Prefer": "wait=60"})
    assert made.status_code == 200, made.text
    address = f"{API}/studies/{made.json()['id']}"
    key = lab.ada.post(f"{address}/share").json()["key"]
    with elsewhere(lab, "emmy") as emmy, elsewhere(lab, None) as visitor:
        for stranger in (visitor, lab.anonymous, emmy):
            assert stranger.get(f"{address}/heads", params={"share": key}).status_code == 200
        assert lab.ada.delete(f"{address}/share").status_code == 204
        refused(visitor.get(address, params={"share": key}))


@pytest.mark.long
def test_users_take_turns(lab: Users) -> None:
    """A user with one job waits for no more jobs of another user than may be at the broker."""
    batch = {name: value for name, value in SLOW.items() if name != "text"}
    flood = {**batch, "inputs": [{"text": f"{SLOW['text']} {number}."} for number in range(100)]}
    ids = lab.ada.post(f"{API}/analyses/batch", json=flood).json()["ids"]
    with elsewhere(lab, "emmy") as emmy:
        answer = emmy.post(f"{API}/analyses", json={**SLOW, "text": "Emmy has one question."}).json()
        assert answer["progress"]["position"] in (None, *range(AHEAD + 1))
        assert emmy.delete(f"{API}/analyses/{answer['id']}").status_code == 202
    for id_ in ids:
        lab.ada.delete(f"{API}/analyses/{id_}")
    eventually(lambda: lab.ada.get("/readyz").json()["queued"] == 0, "an empty queue")


def test_nothing_is_let_out_while_the_record_is_away(lab: Users) -> None:
    """Without grants users get 503 and others 401; afterwards everything works as before."""
    id_ = lab.submit(lab.ada, "Ada keeps this over an outage.")
    key = lab.ada.post(f"{API}/analyses/{id_}/share").json()["key"]
    reading = [route for route in OF_ONE if route[0] == "GET"]
    cluster(lab).db.kill()
    try:
        for route in reading:
            answers = [ask(who, *route, id_) for who in (lab.ada, lab.emmy)]
            answers.append(ask(lab.anonymous, *route, id_, params={"share": key}))
            assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {
                (503, "database-unavailable")
            }
            refused(ask(lab.anonymous, *route, id_))
        assert lab.anonymous.get("/healthz").status_code == 200
    finally:
        cluster(lab).db.start()
    cluster(lab).back()
    assert lab.ada.get(f"{API}/analyses/{id_}").json()["status"] == "done"
    assert lab.emmy.get(f"{API}/analyses/{id_}").status_code == 404
    assert lab.anonymous.get(f"{API}/analyses/{id_}", params={"share": key}).status_code == 200


def test_a_revoked_token_opens_no_server(lab: Users) -> None:
    """A new user is known to every server at once, and a revoked one to none."""
    token = lab.server.create_user("grace")
    for server in cluster(lab).servers:
        with server.visitor(token) as grace:
            assert grace.get(f"{API}/models").status_code == 200
    lab.server.revoke_user("grace")
    for server in cluster(lab).servers:
        with server.visitor(token) as grace:
            refused(grace.get(f"{API}/models"))
