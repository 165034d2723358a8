"""Maps as factors: every tile against the map written out in float64, on random heads and on real models."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import (
    Gemma2Config,
    Gemma2Model,
    GptOssConfig,
    GptOssModel,
    T5Config,
    T5ForConditionalGeneration,
)

import headscope
from headscope import LENSES, Model
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Keys, Kind, Layer, ScoreTerms
from headscope.core.factors import Bias, Factors, ProjectionFactors, Remainder, Visible, WeightFactors
from headscope.core.tokens import Axes
from headscope.lenses._factors import visible, weight_factors
from headscope.mechanisms.base import Pass, PassContext, Scores
from headscope.mechanisms.hopfield import HOPFIELD, HopfieldParams
from tests.support.extent import extent
from tests.support.variants import variants

from .test_rowspace import hard_values, make_layer

Array = NDArray[Any]
HEADS, GROUPS, WIDTH = 4, 2, 8
WINDOWS = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda ends: slice(min(ends), max(ends)))


def softmax(scores: Array, sink: Array | None) -> Array:
    """The definition: exponentials divided by their sum, with the sink as one more key."""
    if sink is not None:
        scores = np.concatenate([scores, np.broadcast_to(sink, (*scores.shape[:2], 1))], axis=2)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    weights: Array = scores / scores.sum(-1, keepdims=True)
    return weights if sink is None else weights[..., :-1]


def random_bias(kind: str, queries: int, keys: int, rng: np.random.Generator) -> Array | None:
    """A bias [1 or H, Q, K] of each kind."""
    offset = np.arange(keys) - np.arange(queries)[:, None]
    match kind:
        case "none":
            return None
        case "key":
            return np.broadcast_to(rng.normal(size=(HEADS, 1, keys)), (HEADS, queries, keys)).copy()
        case "offset":
            return rng.normal(size=(HEADS, queries + keys))[:, offset + queries]
        case "slopes":
            return -np.abs(offset) * np.array([0.5, 0.25, 0.125, 0.0625])[:, None, None]
        case _:
            return rng.normal(size=(1, queries, keys))


@settings(max_examples=extent(80, 25), deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    queries=st.integers(1, 60),
    rule=st.sampled_from(["all", "prefix", "window", "mask", "cross"]),
    bias=st.sampled_from(["none", "key", "offset", "slopes", "matrix"]),
    softcap=st.sampled_from([None, 5.0]),
    with_sink=st.booleans(),
    sharpness=st.sampled_from([0.1, 1.0, 6.0]),
    rows=WINDOWS,
    columns=WINDOWS,
)
def test_tiles_of_weights(
    seed: int, queries: int, rule: str, bias: str, softcap: float | None, with_sink: bool, sharpness: float,
    rows: slice, columns: slice,
) -> None:  # fmt: skip
    """Every tile equals the softmax of all scores, for every mask, bias, cap and sink, and grouped heads; also if the sums follow from float32 weights."""
    rng = np.random.default_rng(seed)
    keys = queries + 7 if rule == "cross" else queries
    query = (sharpness * rng.normal(size=(HEADS, queries, WIDTH))).astype(np.float32)
    key = (sharpness * rng.normal(size=(GROUPS, keys, WIDTH))).astype(np.float32)
    back = np.arange(queries)[:, None] - np.arange(keys)
    every = np.ones((queries, keys), bool)
    patched = (rng.random((queries, keys)) < 0.5) | (back == 0)
    mask = {"all": every, "cross": every, "prefix": back >= 0, "window": (back >= 0) & (back < 5), "mask": patched}[
        rule
    ]
    added, sink = random_bias(bias, queries, keys, rng), rng.normal(size=(HEADS, 1, 1)) if with_sink else None

    scores = query.astype(np.float64) @ key.repeat(2, 0).astype(np.float64).transpose(0, 2, 1) * 0.35
    scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
    scores = np.where(mask, scores if added is None else scores + added, -np.inf)
    expected = softmax(scores, sink)

    found = WeightFactors.of(
        query, key, 0.35, Visible.of(mask), softcap=softcap, bias=added, sink=None if sink is None else sink[..., 0]
    )
    given = [None if one is None else torch.from_numpy(one).float() for one in (added, sink)]
    q, k = torch.from_numpy(query), torch.from_numpy(key)
    blocked = ~torch.from_numpy(mask)[None]
    parts = Scores(0, (0, 1, 2, 3), q, k.repeat_interleave(2, 0), 0.35, softcap, given[0], blocked, given[1])
    layer = SimpleNamespace(
        query=q, key=k, keys=Keys("mask", ~blocked[0]), terms=ScoreTerms(0.35, softcap, *given),
        epsilon=torch.finfo(torch.float32).eps, weights=Pass().attend(parts),
    )  # fmt: skip
    from_weights: Any = weight_factors(layer, None)  # type: ignore[arg-type]
    largest = np.abs(np.where(mask, scores, 0)).max(-1)
    bound = (1e-6 + 1.2e-7 * largest) * expected.max(-1)
    for head in range(HEADS):
        for one in (found, from_weights):
            error = np.abs(one.tile(head, rows, columns) - expected[head, rows, columns])
            assert (error <= bound[head, rows, None]).all()
            assert not one.tile(head)[~mask].any()


@pytest.mark.parametrize(
    ("kind", "stored"), [("key", "key"), ("offset", "offset"), ("slopes", "offset"), ("matrix", "matrix")]
)
def test_a_bias_is_described_briefly(kind: str, stored: str) -> None:
    """By key or by offset where it depends on nothing else."""
    bias = random_bias(kind, 9, 12, np.random.default_rng(0))
    assert bias is not None
    found = Bias.of(bias)
    assert found.by == stored
    np.testing.assert_array_equal(
        np.broadcast_to(found.tile(0, np.arange(2, 9), np.arange(3, 12)), (7, 9)), bias[0, 2:, 3:]
    )


def test_a_mask_is_described_briefly() -> None:
    """By a rule where one gives the same keys."""
    back = np.arange(9)[:, None] - np.arange(9)
    masks = (back > -9, back >= 0, (back >= 0) & (back < 3), np.abs(back) < 3, np.abs(back) != 3)
    rules = ["all", "prefix", "interval", "interval", "mask"]
    assert [Visible.of(mask).rule for mask in masks] == rules
    assert [visible(Keys.of(torch.from_numpy(mask))).rule for mask in masks] == rules


@variants("rule", ["all", "prefix"])
@variants(
    "kind",
    ["random", "repeated tokens", "dead dimension", "ill-conditioned", "tiny first token", "large common offset"],
)
def test_tiles_of_effective_attention(kind: str, rule: str) -> None:
    """Where effective attention has factors, its tiles are the map; values that lack rank in some prefixes only have none in a causal model."""
    layer = make_layer(200, rule, values=None if kind == "random" else hard_values(kind, 200, 16))
    reading, factors = LENSES["effective"].read(layer, None), factors_of("effective", layer)
    if factors is None:
        assert rule == "prefix"
        assert kind in {"dead dimension", "ill-conditioned"}
        return
    assert factors.nbytes < reading.map.nbytes
    for head in range(4):
        np.testing.assert_allclose(factors.tile(head), reading.map[head].numpy(), atol=1e-5)
        np.testing.assert_array_equal(factors.tile(head, slice(7, 90), slice(50, 55)), factors.tile(head)[7:90, 50:55])


def test_few_distinct_tokens() -> None:
    """Where all rows are averages over equal tokens, factors hold what each token gets."""
    tokens = torch.randint(9, (120,), generator=torch.Generator().manual_seed(0))
    values = torch.randn(2, 9, 16, generator=torch.Generator().manual_seed(1))[:, tokens]
    layer = make_layer(120, "prefix", values=values)
    factors = factors_of("effective", layer)
    assert factors is not None
    for head in range(4):
        np.testing.assert_allclose(
            factors.tile(head), LENSES["effective"].read(layer, None).map[head].numpy(), atol=1e-6
        )


@pytest.mark.parametrize("rule", ["all", "prefix"])
def test_large_windows_are_computed_in_blocks(rule: Literal["all", "prefix"], monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks of a few entries every lens has the same tiles, and what no query of a block sees is 0."""
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(4, 90, 16)).astype(np.float32) for _ in range(2))
    weights, effective = (
        WeightFactors.of(query, key, 0.25, Visible(rule)),
        factors_of("effective", make_layer(90, rule)),
    )
    assert isinstance(effective, ProjectionFactors)
    for one in (weights, effective, Remainder(weights, effective)):
        whole, rows, columns = one.tile(1), slice(3, 88, 2), slice(5, 90)
        monkeypatch.setattr("headscope.core.factors.BLOCK", 60)
        monkeypatch.setattr("headscope.core.factors.ROWS", 7)
        np.testing.assert_allclose(one.tile(1), whole, atol=1e-7)
        np.testing.assert_allclose(one.tile(1, rows, columns), whole[rows, columns], atol=1e-7)
        assert one.tile(1, slice(0, 0)).shape == (0, 90)
        monkeypatch.undo()


def factors_of(lens: str, layer: Layer) -> Factors | None:
    """What determines the maps of a lens."""
    factoring = LENSES[lens].factoring
    assert factoring is not None
    return factoring.factor(layer, LENSES[lens].read(layer, None))


SHAPE: dict[str, Any] = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED: dict[str, Any] = {
    **SHAPE,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 32,
    "sliding_window": 20,
}
MODELS: dict[str, Callable[[], Any]] = {
    "caps and windows": lambda: Gemma2Model(Gemma2Config(**GROUPED)),
    "sinks": lambda: GptOssModel(GptOssConfig(**GROUPED, num_local_experts=2, num_experts_per_tok=1)),
}


def layers_of(model: Model, tokens: int, kind: Kind = "self", begin: Callable[[], Pass] = Pass) -> list[Layer]:
    """Capture all layers of random tokens."""
    ids = np.random.default_rng(tokens).integers(0, 100, tokens).tolist()
    target = {} if kind == "self" else {"target_ids": ids[: tokens - 3], "kind": kind}
    layers: list[Layer] = []
    capture(model, model.encode(token_ids=ids, **target), examine(model), CaptureSpec(layers.append), kind, begin)
    return layers


def check(layers: list[Layer]) -> int:
    """Compare tiles with the maps of the three lenses; return how many effective maps have factors."""
    for layer in layers:
        for name in ("weights", "effective", "null"):
            factors = factors_of(name, layer)
            if factors is None:
                assert name != "weights"
                continue
            found = np.stack([factors.tile(head) for head in range(len(layer.heads))])
            np.testing.assert_allclose(found, LENSES[name].read(layer, None).map.numpy(), atol=1e-5, err_msg=name)
    return sum(factors_of("effective", layer) is not None for layer in layers)


def test_tiles_of_tiny_models(tiny: Model) -> None:
    """Bidirectional, causal, and with rotary embeddings and grouped heads."""
    assert check(layers_of(tiny, 120)) == 3


@pytest.mark.parametrize("name", list(MODELS))
def test_tiles_of_models_with_terms(name: str) -> None:
    """Capped scores in sliding windows, and learned sinks."""
    torch.manual_seed(0)
    layers = layers_of(headscope.load(MODELS[name]()), 60)
    check(layers)
    terms = [layer.terms for layer in layers if layer.terms is not None]
    assert len(terms) == len(layers)
    assert {(term.softcap is not None, term.sink is not None) for term in terms} == {(name != "sinks", name == "sinks")}
    assert {visible(layer.keys).rule for layer in layers} == {"prefix", "interval"}


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_tiles_of_two_stacks(kind: Kind) -> None:
    """Relative positions, which are kept by offset, and queries and keys of different texts."""
    torch.manual_seed(0)
    config = T5Config(vocab_size=100, d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=64, decoder_start_token_id=0)
    layers = layers_of(headscope.load(T5ForConditionalGeneration(config)), 60, kind)
    assert check(layers) == 2
    biases = [factors_of("weights", layer).bias for layer in layers]  # type: ignore[union-attr]
    assert [bias.by if bias else None for bias in biases] == [None if kind == "cross" else "offset"] * 2


def test_a_mechanism_that_attends_in_another_way_has_no_factors(tiny: Model) -> None:
    """Weights that are not the softmax of the scores of their layer are kept as maps."""
    context = PassContext({0: 4, 1: 4, 2: 4}, 32, Axes((), ()))
    layers = layers_of(tiny, 20, begin=lambda: HOPFIELD.begin(HopfieldParams(alpha=0.5), context))
    assert [factors_of("weights", layer) for layer in layers] == [None] * 3


def test_tiles_of_minilm(minilm: Model) -> None:
    text = "The committee that approved the plans for the new bridges was never told who would pay for them. " * 3
    layers: list[Layer] = []
    capture(minilm, minilm.encode(text), examine(minilm), CaptureSpec(layers.append))
    assert check(layers) == 6
