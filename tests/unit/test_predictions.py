"""The most likely tokens or classes: against the model's own logits, kept in files, refused without a head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

import headscope
from headscope import Model
from headscope.errors import Unsupported
from tests.support.models import tiny_model

SMALL = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def test_are_the_largest_of_the_softmax(tiny: Model) -> None:
    """Of every position, in float64; the logits are kept only if they are asked for."""
    tokens = [5, 17, 5, 42]
    a = headscope.analyze(tiny, token_ids=tokens, predictions=3, keep_logits=True)
    assert a.predictions is not None
    assert a.logits is not None
    exact = np.exp(a.logits.astype(float))
    exact /= exact.sum(-1, keepdims=True)
    order = np.argsort(-exact, axis=-1)[:, :3]
    np.testing.assert_array_equal(a.predictions.ids, order)
    np.testing.assert_array_equal(a.predictions.logits, np.take_along_axis(a.logits, order, -1))
    np.testing.assert_allclose(a.predictions.probabilities, np.take_along_axis(exact, order, -1), rtol=1e-5)
    assert a.predictions.texts == [[str(one) for one in row] for row in order.tolist()]
    light = headscope.analyze(tiny, token_ids=tokens, predictions=3)
    assert light.logits is None
    assert light.id == a.id == headscope.analyze(tiny, token_ids=tokens).id


def test_have_the_text_of_tokens_and_return_from_a_file(tmp_path: Path) -> None:
    model = headscope.load(tiny_model(tmp_path / "tiny", "gpt2"))
    a = headscope.analyze(model, "The cat sat.", predictions=400)
    assert a.predictions is not None
    assert {"The", " cat", " the"} <= set(a.predictions.texts[0])
    a.save(tmp_path / "a.safetensors")
    again = headscope.open(tmp_path / "a.safetensors").predictions
    assert again is not None
    assert again.texts == a.predictions.texts
    for name in ("ids", "logits", "probabilities"):
        np.testing.assert_array_equal(getattr(again, name), getattr(a.predictions, name))


def test_of_a_classifier_are_classes() -> None:
    """One row, with the names of the configuration; no more than there are."""
    torch.manual_seed(0)
    module = BertForSequenceClassification(BertConfig(**SMALL, id2label={0: "bad", 1: "good", 2: "neither"}))
    found = headscope.analyze(module, token_ids=[1, 2, 3], predictions=9).predictions
    assert found is not None
    assert found.ids.shape == (1, 3)
    assert sorted(found.texts[0]) == ["bad", "good", "neither"]
    assert found.probabilities.sum() == pytest.approx(1)


def test_need_a_head() -> None:
    with pytest.raises(Unsupported, match="no head that returns logits"):
        headscope.analyze(BertModel(BertConfig(**SMALL)), token_ids=[1, 2, 3], predictions=1)
