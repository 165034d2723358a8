"""Head scores over REST: computed by a job, stored once, read by those who asked for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import headscope
from headscope.analysis.head_scores_request import NOT_CAUSAL
from headscope.analysis.request import versions
from tests.api.users import Users
from tests.support.cluster import cluster_long
from tests.support.server import API, Server, eventually

WAIT = {"Prefer": "wait=60"}
PATH = "/models/gpt2/head-scores"
BODY: dict[str, Any] = {"batteries": ["previous-token", "induction"], "prompts": 2}


@cluster_long
def test_head_scores_from_request_to_document(server: Server, models: Path) -> None:
    """What the library computes, as a resource: the same request is the same one, in whatever order, and it can be cached for ever."""
    answer = server.post(BODY, PATH, headers=WAIT)
    document = answer.json()
    assert (answer.status_code, document["status"], document["model"]) == (200, "done", "gpt2")
    assert document["versions"] == versions()
    expected = headscope.head_scores(models / "gpt2", BODY["batteries"], prompts=2).to_document()
    for part in ("scores", "controls"):
        found, wanted = document["result"].pop(part), expected.pop(part)
        assert list(found) == list(wanted) == BODY["batteries"]
        for name in wanted:
            np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)
    assert document["result"] == {**expected, "model": "gpt2"}
    again = server.post({**BODY, "batteries": ["induction", "previous-token"], "seed": 0}, PATH)
    assert (again.status_code, again.json()["id"]) == (200, document["id"])
    own = again.headers["location"]
    assert own == document["links"]["self"] == f"{API}{PATH}/{document['id']}"
    read = server.client.get(own)
    assert read.json() == again.json()
    assert "immutable" in read.headers["cache-control"]
    assert server.client.get(own, headers={"If-None-Match": read.headers["etag"]}).status_code == 304
    for other in ("/models/llama/head-scores", "/analyses"):
        assert server.get(f"{other}/{document['id']}").status_code == 404
    assert server.client.delete(own).status_code == 204
    assert server.client.get(own).json()["code"] == "unknown-head-scores"


def test_bad_requests(server: Server) -> None:
    """Refused at once, with a pointer to the field."""
    for body, pointer in (
        ({"batteries": ["name-mover"]}, "/batteries/0"),
        ({"batteries": []}, "/batteries"),
        ({"prompts": 0}, "/prompts"),
        ({"seed": -1}, "/seed"),
        ({"text": "A cat."}, ""),
    ):
        problem = server.post(body, PATH).json()
        assert (problem["code"], problem["errors"][0]["pointer"]) == ("invalid-request", pointer), body
    assert server.post({}, "/models/none/head-scores").json()["code"] == "unknown-model"
    problem = server.post({}, "/models/bert/head-scores").json()
    assert (problem["code"], problem["detail"]) == ("unsupported", NOT_CAUSAL)


def test_every_battery(server: Server) -> None:
    """By default, all of those that are listed."""
    result = server.post({"prompts": 1}, PATH, headers=WAIT).json()["result"]
    listed = server.get("/batteries").json()["items"]
    assert [one["name"] for one in listed] == list(result["scores"]) == list(headscope.BATTERIES)
    assert listed[0]["not"] == headscope.BATTERIES[listed[0]["name"]].not_
    assert result["missing"] == {}


def test_cancelled(server: Server) -> None:
    """A running job stops between prompts."""
    path = "/models/slow/head-scores"
    running = server.post({**BODY, "prompts": 500}, path)
    assert running.status_code == 202
    own = f"{path}/{running.json()['id']}"
    eventually(lambda: server.get(own).json()["progress"]["stage"] == "forward", "the first prompt")
    cancelled = server.client.delete(f"{API}{own}")
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "cancelled")
    server.idle()
    assert server.get(own).json()["status"] == "cancelled"


def test_scores_are_read_by_those_who_asked(lab: Users) -> None:
    """The scores that another user has computed are found by the same request, not by their id."""
    document = lab.ada.post(f"{API}{PATH}", json=BODY, headers=WAIT).json()
    own = document["links"]["self"]
    for answer in (lab.emmy.get(own), lab.emmy.delete(own)):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-head-scores")
    assert lab.emmy.post(f"{API}{PATH}", json=BODY).json() == document
    assert lab.emmy.delete(own).status_code == 204
    assert lab.ada.get(own).json() == document
