"""Models with a mechanism of their own, over HTTP: listed, used by default, in both deployments."""

from __future__ import annotations

from tests.support import studies
from tests.support.cluster import cluster_long
from tests.support.models import HOPFIELD, HOPFIELD_IN_FULL
from tests.support.server import Server

TWIN, PLAIN = "twin-bert-hopfield", "twin-bert-softmax"
TEXT = "The cat sat on the mat."


def test_what_is_on_offer(server: Server) -> None:
    """Cards list the mechanism and the siblings; ordinary models have softmax and none."""
    cards = {card["name"]: card for card in server.get("/models").json()["items"]}
    assert cards[TWIN]["mechanism"] == HOPFIELD_IN_FULL
    assert cards[PLAIN]["mechanism"] == cards["bert"]["mechanism"] == {"name": "softmax"}
    assert PLAIN in cards[TWIN]["siblings"]
    assert TWIN in cards[PLAIN]["siblings"]
    assert cards["bert"]["siblings"] == []
    assert server.get(f"/models/{TWIN}").json()["mechanism"] == HOPFIELD_IN_FULL


@cluster_long
def test_its_own_mechanism_is_the_default(server: Server) -> None:
    """No mechanism, null and its own by name are the same analysis; softmax is another one, with a warning that it is hypothetical."""
    asked = {"model": TWIN, "text": TEXT, "lenses": ["weights"]}
    document = server.analyse(**asked)
    assert document["mechanism"] == HOPFIELD_IN_FULL
    assert document["warnings"] == []
    assert server.analyse(**asked, mechanism=HOPFIELD)["id"] == document["id"]
    assert server.analyse(**asked, mechanism=None)["id"] == document["id"]
    softmax = server.analyse(**asked, mechanism="softmax")
    assert softmax["id"] != document["id"]
    assert [warning["code"] for warning in softmax["warnings"]] == ["trained-otherwise"]
    batch = server.post({"model": TWIN, "lenses": ["weights"], "inputs": [{"text": TEXT}]}, "/analyses/batch").json()
    assert batch["ids"] == [document["id"]]


def test_ordinary_models_are_as_ever(server: Server) -> None:
    """For ordinary models, no mechanism means softmax, with the same id and no new warning."""
    asked = {"model": "bert", "text": TEXT, "lenses": ["weights"]}
    document = server.analyse(**asked)
    assert (document["mechanism"], document["warnings"]) == ({"name": "softmax"}, [])
    assert server.analyse(**asked, mechanism={"name": "softmax"})["id"] == document["id"]
    assert server.analyse(**asked, mechanism=HOPFIELD)["warnings"] == []


@cluster_long
def test_a_study_of_twins(server: Server) -> None:
    """Variants attend as their models were trained, before and after the study is done; two identical variants are rejected, however they are written."""
    asked = {**studies.asked(10, figures=["entropy"]), "model": TWIN}
    accepted = server.post({**asked, "against": {"model": PLAIN}}, "/studies").json()
    mechanisms = [HOPFIELD_IN_FULL, {"name": "softmax"}]
    assert [one["mechanism"] for one in accepted["variants"]] == mechanisms
    assert [one["mechanism"] for one in studies.ended(server, accepted["id"])["variants"]] == mechanisms
    refused = server.post({**asked, "against": {"mechanism": HOPFIELD}}, "/studies")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/against")
