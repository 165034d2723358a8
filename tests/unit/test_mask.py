"""Tokens of the input that are replaced by the mask token before the forward pass."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
import transformers

import headscope
from headscope.analysis.request import AnalysisRequest, versions
from headscope.errors import InvalidRequest, Unsupported


def test_masked_tokens() -> None:
    """The maps are those of the changed token ids, and have an id of their own."""
    model = headscope.load("minilm")
    plain = headscope.analyze(model, "The cat sat.")
    masked = headscope.analyze(model, "The cat sat.", mask=[2])
    written = headscope.analyze(model, token_ids=[token.id for token in masked.tokens])
    assert [token.text for token in masked.tokens] == ["[CLS]", "The", "[MASK]", "sat", ".", "[SEP]"]
    assert [(token.start, token.end) for token in masked.tokens] == [(token.start, token.end) for token in plain.tokens]
    np.testing.assert_array_equal(masked.maps["effective"], written.maps["effective"])
    assert masked.tokens[2].id == 103
    assert len({plain.id, masked.id, written.id}) == 3
    assert [warning.code for warning in masked.warnings if warning.code == "masked"] == ["masked"]
    with pytest.raises(InvalidRequest, match="0 to 5"):
        headscope.analyze(model, "The cat sat.", mask=[6])


def test_what_cannot_be_masked() -> None:
    """Without a mask token nothing is replaced."""
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=400, n_positions=32)
    model = headscope.load(transformers.GPT2LMHeadModel(config))
    with pytest.raises(Unsupported, match="no mask token"):
        headscope.analyze(model, token_ids=[1, 2], mask=[0])
    with pytest.raises(InvalidRequest, match="given text"):
        headscope.analyze(model, token_ids=[1, 2], mask=[0], generate={"max_new_tokens": 2})


def test_ids_without_a_mask() -> None:
    """A request without a mask has the id that it had before the field existed."""
    before = {
        "model": "minilm", "text": "The cat sat.", "text_pair": None, "token_ids": None, "image": None,
        "target_ids": None, "generate": None, "pos": None, "labels": None, "mechanism": None,
        "lenses": [{"name": "weights"}, {"name": "effective"}], "measures": [{"name": "entropy"}],
        "layers": None, "heads": None, "kind": "self", "max_tokens": None, "dtype": "float32", "maps": True,
    }  # fmt: skip
    record = {**versions(), "model_digest": "0" * 64, "request": before}
    known = hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:32]
    assert AnalysisRequest(model="minilm", text="The cat sat.").key("0" * 64) == known
    assert AnalysisRequest(model="minilm", text="The cat sat.", mask=None).key("0" * 64) == known
    assert AnalysisRequest(model="minilm", text="The cat sat.", mask=[2]).key("0" * 64) != known
