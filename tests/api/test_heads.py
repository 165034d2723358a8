"""Heads are found over REST as in the library, and sentences are interpreted or answered with a question."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.cluster import cluster_long
from tests.support.server import Server
from tests.support.variants import variants

pytestmark = cluster_long
TEXT = "The cat sat on the mat because the cat was tired."


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    return server.analyse(
        model="bert", text=TEXT, lenses=["weights", "max-entropy"], measures=["entropy", "patterns", "null_share"]
    )


def get(server: Server, document: dict[str, Any], path: str, **query: str) -> dict[str, Any]:
    answer = server.get(f"/analyses/{document['id']}/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_heads_that_satisfy_a_query(server: Server, document: dict[str, Any]) -> None:
    """The heads whose own values satisfy the query, ranked by the measure named last."""
    values = np.array(get(server, document, "measures/entropy", summary="head", format="json")["values"])
    middle = float(np.median(values))
    found = get(server, document, "heads", where=f"entropy < {middle:.12f} and layer <= 1")
    assert found["ranked_by"] == "entropy"
    assert (found["direction"], found["of"]) == ("asc", 8)
    order = [(head["layer"], head["head"]) for head in found["heads"]]
    assert set(order) == {(layer, head) for layer, head in np.argwhere(values < middle).tolist()}
    assert [head["values"]["entropy"] for head in found["heads"]] == sorted(values[values < middle].tolist())


def test_the_lens_asked_about(server: Server, document: dict[str, Any]) -> None:
    under = get(server, document, "heads", where="order by entropy", lens="max-entropy")["heads"][0]["values"]
    named = get(server, document, "heads", where="order by entropy@max-entropy")["heads"][0]["values"]
    assert list(under.values()) == list(named.values())
    # A measure of the model's weights has the same value for every lens.
    assert get(server, document, "heads", where="order by null_share", lens="max-entropy")["ranked_by"] == "null_share"
    assert len(get(server, document, "heads")["heads"]) == 8


@variants(
    ("query", "status", "code"),
    [
        ({"where": "entropy <"}, 422, "invalid-query"),
        ({"where": "(" * 2000}, 422, "invalid-query"),
        ({"where": "vertical or " * 4000 + "vertical"}, 422, "invalid-query"),
        ({"where": "entropy < 1\x00"}, 422, "invalid-query"),
        ({"where": "<script>alert(1)</script>"}, 422, "invalid-query"),
        ({"where": "sink.value > 0.3"}, 404, "unknown-measure"),
        ({"where": "like.0.0@norm > 0.5"}, 404, "unknown-lens"),
        ({"lens": "effective"}, 404, "unknown-lens"),
        ({"lens": "nonsense"}, 404, "unknown-lens"),
    ],
    ids=lambda value: next(iter(value.items()))[1][:20] if isinstance(value, dict) else value,
)
def test_refusals(server: Server, document: dict[str, Any], query: dict[str, str], status: int, code: str) -> None:
    answer = server.get(f"/analyses/{document['id']}/heads", params=query)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code)
    assert "script" not in answer.text
    if code == "invalid-query":
        assert problem["position"] >= 0
    if code == "unknown-measure":
        assert "sink" in problem["detail"]


def test_sentences(server: Server, document: dict[str, Any]) -> None:
    asked = get(server, document, "ask", q="vertical heads in the first layer under max entropy")
    view = asked["view"]
    assert (view["query"], view["measures"], asked["question"]) == ("vertical and layer = 0", ["patterns"], None)
    assert {part["slot"]: part["value"] for part in view["parts"]}["lens"] == "max-entropy"
    assert len(get(server, document, "heads", where=view["query"])["heads"]) <= 4
    question = get(server, document, "ask", q="what does cat attend to")["question"]
    for choice in question["choices"]:
        assert get(server, document, "ask", q=choice["ask"])["view"]["parts"][0]["slot"] == "query"


def test_sentences_by_meaning(server: Server, document: dict[str, Any]) -> None:
    """No name is mentioned; the server process itself compares the words, with MiniLM."""
    assert get(server, document, "ask", q="")["view"]["parts"] == []
    view = get(server, document, "ask", q="heads that gaze at punctuation marks")["view"]
    assert view["query"] == "order by token_norms.attention_punct desc limit 5"
    choices = get(server, document, "ask", q="heads that understand syntax")["question"]["choices"]
    assert len(choices) == 3
    it = get(server, document, "ask", q="what does it look at", pinned="2 4")["view"]
    assert [(part["slot"], part["value"]) for part in it["parts"]] == [("query", "2 4")]
    assert get(server, document, "ask", q="what does it look at", pinned="99999")["question"]
    assert server.get(f"/analyses/{document['id']}/ask", params={"q": "it", "pinned": "x"}).status_code == 422


def test_heads_like_another(server: Server, document: dict[str, Any]) -> None:
    found = get(server, document, "heads", where="order by like.0.1 desc limit 3", lens="max-entropy")["heads"]
    assert len(found) == 3
    assert (0, 1) not in [(head["layer"], head["head"]) for head in found]
    values = [head["values"]["like.0.1"] for head in found]
    assert values == sorted(values, reverse=True)
    answer = server.get(f"/analyses/{document['id']}/heads", params={"where": "order by like.7.1"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-query")


def test_a_sentence_that_is_a_broken_query(server: Server, document: dict[str, Any]) -> None:
    answer = server.get(f"/analyses/{document['id']}/ask", params={"q": "vertical and (layer < 4"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-query")
    assert server.get(f"/analyses/{document['id']}/ask").status_code == 422


def test_nothing_of_an_analysis_that_is_not_there(server: Server) -> None:
    for path in ("heads", "ask?q=vertical"):
        assert server.get(f"/analyses/{'0' * 32}/{path}").status_code == 404
