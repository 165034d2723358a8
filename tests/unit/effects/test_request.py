"""Requests for effects: their ids, what they refuse, and the document of a result."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import headscope
from headscope.analysis.effect_request import EffectRequest
from headscope.errors import InvalidRequest
from tests.support.variants import variants

from .test_contribution import TOKENS


def test_a_document_is_json(tiny: headscope.Model) -> None:
    """Heads that are left out are null, and so is what a method does not give."""
    method = {"name": "ablation", "heads": ["0.1", "1.2"]}
    e = headscope.effect(tiny, token_ids=TOKENS, target=(7, 9), position=4, method=method, predictions=3)
    document = e.to_document()
    assert json.loads(json.dumps(document)) == document
    assert (document["effects"][0][0], document["sources"], document["baseline"]) == (None, None, None)
    assert document["effects"][1][2] == pytest.approx(float(e.effects[1, 2]))
    assert (document["target"]["ids"], document["together"]["heads"]) == ([7, 9], ["0.1", "1.2"])
    logits = headscope.analyze(tiny, token_ids=TOKENS, keep_logits=True).logits[4]
    assert [one["id"] for one in document["predictions"]] == np.argsort(-logits)[:3].tolist()


def test_heads_are_named_once() -> None:
    """Beside the method or among its parameters; contributions are those of all heads."""
    one = EffectRequest(method="ablation", heads=["9.6"])
    other = EffectRequest(method={"name": "ablation", "heads": ["9.6"]})
    assert one.params == other.params
    assert one.key("a", "m") == other.key("a", "m")
    for method in ("contribution", {"name": "ablation", "heads": ["0.1"]}):
        with pytest.raises(InvalidRequest, match=r"Omit heads|Name heads once"):
            EffectRequest(method=method, heads=["9.6"])


def test_another_text_is_asked_for() -> None:
    """Where two texts are compared, and there only."""
    for method in ("patching", "attribution-patching", {"name": "attribution-patching", "of": "noise"}):
        with pytest.raises(InvalidRequest, match="Give the other one"):
            EffectRequest(method=method)
        EffectRequest(method=method, against="A text.")
    EffectRequest(method={"name": "attribution-patching", "of": "mean"})
    for method in ("contribution", "ablation", {"name": "attribution-patching", "of": "mean"}):
        with pytest.raises(InvalidRequest, match="reads no other text"):
            EffectRequest(method=method, against="A text.")


def test_an_id_depends_on_what_is_asked() -> None:
    """Not on whether a default is written out."""
    same = [{}, {"method": "contribution"}, {"method": {"name": "contribution", "sources": False}}, {"predictions": 5}]
    assert len({EffectRequest.model_validate(one).key("a", "m") for one in same}) == 1
    others = [
        {},
        {"target": 3},
        {"target": [3]},
        {"target": "3"},
        {"position": 3},
        {"method": "ablation"},
        {"method": "ablation", "heads": ["1.1"]},
        {"predictions": 4},
    ]
    keys = [EffectRequest.model_validate(one).key("a", "m") for one in others]
    assert len({*keys, EffectRequest().key("b", "m"), EffectRequest().key("a", "n")}) == len(others) + 2


@variants(
    ("given", "said"),
    [
        ({"token_ids": [101, 102]}, "Give one of text"),
        ({"text": None, "text_pair": "it", "token_ids": [101, 102]}, "text_pair needs a text"),
        ({"text": 5}, "text: Input should be a valid string"),
        ({"method": {}}, "method: Give a name, or a mapping"),
        ({"against": []}, "against: List should have at least 1 item"),
    ],
    ids=str,
)
def test_effects_of_inputs_that_do_not_fit(minilm: headscope.Model, given: dict[str, Any], said: str) -> None:
    """They are refused as those of analyses are, and nothing that was given is left out."""
    with pytest.raises(InvalidRequest, match=said):
        headscope.effect(minilm, **{"text": "A text.", **given})


@variants(("name", "value"), [("against", ""), ("against", "a\0"), ("reference", ["a\0"])], ids=str)
def test_errors_of_another_text_point_at_it(minilm: headscope.Model, name: str, value: Any) -> None:
    method = "patching" if name == "against" else {"name": "ablation", "how": "reference"}
    with pytest.raises(InvalidRequest) as refused:
        headscope.effect(minilm, "A text.", method=method, **{name: value})
    assert refused.value.pointer == f"/{name}"
