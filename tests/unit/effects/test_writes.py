"""The logit lens of heads' outputs: the logits that each of them raises and lowers most, against all logits in float64."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertForSequenceClassification, BertModel

import headscope
from headscope import Effect
from headscope.capture import head_logits
from headscope.errors import InvalidRequest, Unsupported
from tests.support.extent import mostly_long

from ..conftest import TINY, VOCABULARY
from . import reference
from .test_contribution import FAMILIES, SMALL, TOKENS, _t5, perturbed


def writes(count: int) -> dict[str, Any]:
    return {"name": "contribution", "writes": count}


def arrays(e: Effect) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ids and logits, [L, H, N]."""
    assert e.writes is not None
    found = [[[(one.id, one.logit) for one in head] for head in layer] for layer in e.writes]
    ids, logits = np.moveaxis(np.array(found), -1, 0)
    return ids.astype(int), logits


@pytest.mark.parametrize("family", mostly_long(FAMILIES, "bert", "gemma2"))
def test_is_what_the_head_adds_to_every_logit(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All logits, if as many are asked for, whatever the number of heads at once; a few are the first and the last of them."""
    torch.manual_seed(0)
    module, place = perturbed(FAMILIES[family]()), 3
    model = headscope.load(module)
    _, expected, _, _ = getattr(reference, family)(module, TOKENS, place)
    e = headscope.effect(model, token_ids=TOKENS, target=7, position=place, method=writes(VOCABULARY // 2))
    ids, logits = arrays(e)
    assert ids.shape == expected.shape
    assert (np.sort(ids) == np.arange(VOCABULARY)).all()
    assert (np.diff(logits) <= 0).all()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(logits, np.take_along_axis(expected, ids, -1), rtol=1e-4, atol=1e-4 * scale)
    np.testing.assert_allclose(logits[ids == 7].reshape(e.effects.shape), e.effects, rtol=1e-4, atol=1e-4 * scale)
    monkeypatch.setattr(head_logits, "MOST_NUMBERS", 1)
    few = headscope.effect(model, token_ids=TOKENS, target=(3, 8), position=place, method=writes(3))
    some, values = arrays(few)
    for found, whole in ((some, ids), (values, logits)):
        np.testing.assert_allclose(found, whole[..., [0, 1, 2, -3, -2, -1]], rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("kind", mostly_long(["decoder", "cross"], "cross"))
def test_of_an_encoder_decoder(kind: str) -> None:
    """Of the heads of one kind of attention."""
    torch.manual_seed(0)
    module, target = perturbed(_t5()), [0, 9, 31]
    _, expected = reference.t5(module, TOKENS, target, 2, kind == "cross")
    e = headscope.effect(module, token_ids=TOKENS, target_ids=target, kind=kind, method=writes(4))
    ids, logits = arrays(e)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(logits, np.take_along_axis(expected, ids, -1), rtol=1e-4, atol=1e-4 * scale)
    ranked = np.sort(expected)[..., ::-1]
    np.testing.assert_allclose(logits, ranked[..., [0, 1, 2, 3, -4, -3, -2, -1]], rtol=1e-4, atol=1e-4 * scale)


def test_of_classes() -> None:
    """Each by its name, through the pooler; they are the contributions to it."""
    torch.manual_seed(0)
    model = headscope.load(
        perturbed(BertForSequenceClassification(BertConfig(**SMALL, id2label={0: "bad", 1: "good"})))
    )
    e = headscope.effect(model, token_ids=TOKENS, method=writes(5))
    assert e.writes is not None
    found = np.array([[[one.logit for one in sorted(head, key=lambda x: x.id)] for head in row] for row in e.writes])
    for number, name in enumerate(("bad", "good")):
        np.testing.assert_allclose(
            found[..., number], headscope.effect(model, token_ids=TOKENS, target=name).effects, atol=1e-6
        )
    assert {one.text for one in e.writes[0][0]} == {"bad", "good"}


def test_a_document_is_json() -> None:
    """One object per logit; null if none are asked for."""
    model = headscope.load(TINY["gpt2"]())
    document = headscope.effect(model, token_ids=TOKENS, method=writes(2)).to_document()
    assert json.loads(json.dumps(document)) == document
    assert (len(document["writes"]), len(document["writes"][0]), len(document["writes"][0][0])) == (3, 4, 4)
    assert document["writes"][0][0][0].keys() == {"id", "text", "logit"}
    assert headscope.effect(model, token_ids=TOKENS).to_document()["writes"] is None


def test_refusals() -> None:
    """Without an output head, and of more logits than are allowed."""
    with pytest.raises(Unsupported, match="no head that returns logits"):
        headscope.effect(BertModel(BertConfig(**SMALL)), token_ids=TOKENS, method=writes(3))
    with pytest.raises(InvalidRequest, match="writes"):
        headscope.effect(TINY["gpt2"](), token_ids=TOKENS, method=writes(101))
