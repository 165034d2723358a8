"""Measures of heads on whole models: the loops of their tests on the model's own eager weights, and what is known of MiniLM's heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope import MEASURES, Model
from headscope.measures.patterns import CLASSES
from tests.support.models import wordpiece

from ..conftest import eager
from . import test_connections as connections
from . import test_head_roles as roles
from . import test_patterns as patterns
from . import test_sink as sink
from . import test_special_tokens as special_tokens
from . import test_token_types as token_types
from .heads import Array, agree, head_layer

NAMES = ("patterns", "special_tokens", "token_types", "connections", "sink", "head_roles")
TEXT, SECOND = (
    "The chef who cooked for the Danish king, Ann, was happily surprised.",
    "She thanked him for the dumplings.",
)
WORDS = "The chef who cooked for the Danish king , Ann , was happily surprised . She thanked him for the dumplings ."
POS = "DET NOUN PRON VERB ADP DET ADJ NOUN PUNCT PROPN PUNCT AUX ADV VERB PUNCT PRON VERB PRON ADP DET NOUN PUNCT"


def columns(a: Any, name: str, lens: str, layer: int) -> dict[str, Array]:
    """A measure's columns of one layer, each [H], in float64."""
    values = a.measures[name][lens][layer].astype(np.float64)
    return dict(zip(MEASURES[name].columns, values.T, strict=True))


def check(a: Any, lens: str, layer: int, weights: Array, mask: Array) -> None:
    """Every measure of a layer against the loops of its own test, on weights [H, Q, K] that Headscope has not touched."""
    one = head_layer(weights, tuple(a.tokens), "all" if mask.all() else "prefix")
    agree(columns(a, "patterns", lens, layer), patterns.slow_scores(one, lens, weights, mask), 1e-4)
    agree(columns(a, "special_tokens", lens, layer), special_tokens.slow(one, weights, "other"), 1e-5)
    agree(columns(a, "token_types", lens, layer), token_types.slow(one, weights, mask, "first", "max", "first"), 1e-5)
    agree(
        columns(a, "sink", lens, layer),
        [{"value": head["value"]} for head in sink.slow(one, weights, mask, None)],
        1e-5,
    )
    agree(columns(a, "head_roles", lens, layer), roles.slow(one, weights, mask, False, False), 1e-5)
    # An entry within rounding of the threshold may fall on either side.
    found = columns(a, "connections", lens, layer)
    for head, expected in enumerate(connections.slow(one, weights, mask, False, 1.0)):
        assert abs(found["edges"][head] - expected["edges"]) <= 1


def test_against_eager_weights(tiny: Model) -> None:
    """Tokens without specials, bidirectional and causal, from the weights that the model itself gives."""
    chosen = np.random.default_rng(0).integers(5, 40, 18).tolist()
    a = headscope.analyze(
        headscope.load(tiny.module, wordpiece()), token_ids=chosen, lenses=("weights",), measures=NAMES
    )
    n = len(chosen)
    mask = np.ones((n, n), bool) if hasattr(tiny.module, "bert") else np.tri(n, dtype=bool)
    with torch.no_grad():
        attentions = eager(tiny, {"input_ids": torch.tensor([chosen])}).attentions
    for layer in (0, 2):
        check(a, "weights", layer, attentions[layer][0].double().numpy(), mask)


def annotated(minilm: Model, **more: Any) -> Any:
    """Two texts with parts of speech and labels."""
    labels = [
        "B-PER" if word == "Ann" else "I-MISC" if word == "Danish" else "B-PER" if word == "She" else "O"
        for word in WORDS.split()
    ]
    return headscope.analyze(minilm, TEXT, SECOND, pos=POS.split(), labels=labels, measures=NAMES, **more)


@pytest.mark.parametrize("lens", ["weights", "effective"])
def test_two_texts_with_tags(minilm: Model, lens: str) -> None:
    """Special tokens, two segments, words of several tokens, parts of speech and labels. The maps themselves have tests of their own."""
    a = annotated(minilm, lenses=("weights", "effective"))
    assert {token.kind for token in a.tokens} >= {"special", "punct", "word", "subword"}
    n = len(a.tokens)
    check(a, lens, 3, a.maps[lens][3], np.ones((n, n), bool))
    occurring = {
        name for name in MEASURES["token_types"].columns if not np.isnan(columns(a, "token_types", lens, 0)[name]).any()
    }
    assert {*POS.split(), "special", "punct", "word", "subword", "first", "separator"} == occurring


def test_what_is_known_of_minilm(minilm: Model) -> None:
    """Head 0.2 looks at the token before, head 4.5 at [CLS]."""
    text = "The old clock on the town hall stopped at noon, and nobody noticed at first: the baker opened his shop when the bread was done."
    a = headscope.analyze(minilm, text, lenses=("weights",), measures=NAMES)
    first, later = columns(a, "patterns", "weights", 0), columns(a, "patterns", "weights", 4)
    assert CLASSES[int(first["class"][2])] == "diagonal"
    assert first["offset"][2] == -1
    assert first["unstable"][2] == 0
    assert CLASSES[int(later["class"][5])] == "vertical"
    assert columns(a, "special_tokens", "weights", 4)["first"][5] > 0.7
    assert columns(a, "sink", "weights", 4)["position"][5] == 0
    assert columns(a, "head_roles", "weights", 0)["previous"].argmax() == 2
    for rules, kind in (("voita", "diagonal"), ("clark", "diagonal"), ("pasta", "heterogeneous")):
        b = headscope.analyze(minilm, text, lenses=("weights",), measures=({"name": "patterns", "rules": rules},))
        assert CLASSES[int(columns(b, "patterns", "weights", 0)["class"][2])] == kind
