"""The distribution of largest entropy against a search among all distributions with the same output, and against what proves it to be the largest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.core.attention import Reading
from headscope.core.declarations import NoParams
from headscope.errors import Unsupported
from headscope.lenses import LENSES, _newton
from headscope.measures import MEASURES
from tests.support.extent import extent

from .heads import EPSILON, FEW, RULES, SIZES, VALUES, Array, by_head, head_layer, mask_of

LENS = LENSES["max-entropy"]
DEFAULT = LENS.params()
TOLERANCE = 1e-6  # of each probability: rounding of the map to float32 and 1e-9 of its means


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many small matrices: threads would spend more time on meeting each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def entropy(p: Array) -> float:
    return -sum(x * np.log(x) for x in p if x > 0)


def searched(row: Array, V: Array) -> Array:
    """Entropy's maximum among row + {x : x [V, 1] = 0}: Newton's method in those directions, starting at the row, halved until inside and uphill."""
    sigma = np.linalg.svd(V, compute_uv=False)
    U, spread, _ = np.linalg.svd(V - V.mean(0), full_matrices=True)
    span = np.hstack([U[:, : (spread > sigma[0] * max(V.shape) * EPSILON).sum()], np.ones((len(V), 1))])
    free = np.linalg.qr(span, mode="complete")[0][:, span.shape[1] :]
    p = row.copy()
    for _ in range(200 if free.size else 0):
        slope = free.T @ (np.log(p) + 1)
        step = -free @ np.linalg.solve(free.T @ (free / p[:, None]), slope)
        length = 1.0
        while (p + length * step).min() <= 0 or entropy(p + length * step) < entropy(p) - 1e-15:
            length /= 2
            if length < 1e-12:
                return p
        p = p + length * step
    return p


def rows_of(layer, found: Reading):
    """(row of weights, row of the map, values, mask) of every head and query."""
    weights, V, mask = layer.weights.double().numpy(), by_head(layer), mask_of(layer)
    for head in range(weights.shape[0]):
        for query in range(weights.shape[1]):
            seen = mask[query]
            assert not found.map[head, query].numpy()[~seen].any()
            yield weights[head, query, seen], found.map[head, query].double().numpy()[seen], V[head, seen]


@pytest.mark.parametrize("rule", RULES)
@FEW
@given(n=SIZES, kind=VALUES, seed=st.integers(0, 99), sharpness=st.sampled_from([0.5, 2.0, 4.0]))
def test_is_a_distribution_with_the_same_output(rule: str, n: int, kind: str, seed: int, sharpness: float) -> None:
    """At least 0, sums to 1, same output, no less entropy; the weights themselves, exactly, where nothing else has their output."""
    layer = head_layer(n, rule, kind=kind, seed=seed, sharpness=sharpness)
    found = LENS.read(layer, DEFAULT)
    assert not found.signed
    assert found.undefined.tolist() == [0] * 4
    for row, p, V in rows_of(layer, found):
        assert p.min() >= 0
        assert p.sum() == pytest.approx(1, abs=1e-6)
        assert np.linalg.norm(p @ V - row @ V) <= 1e-6 * max(np.linalg.norm(V, 2), 1e-30)
        assert entropy(p) >= entropy(row) - 1e-6
    alike = [bool((found.map[head] == layer.weights[head]).all()) for head in range(4)]
    assert all(same for same, said in zip(alike, found.identical.tolist(), strict=True) if said)


@pytest.mark.parametrize("rule", RULES)
@settings(FEW, max_examples=extent(25, 4))
@given(n=st.sampled_from([3, 5, 8, 12]), kind=VALUES, seed=st.integers(0, 99))
def test_is_what_a_search_finds(rule: str, n: int, kind: str, seed: int) -> None:
    """The same distribution as a search that never leaves those with the same output."""
    layer = head_layer(n, rule, kind=kind, seed=seed, heads=2, groups=1, width=3, sharpness=1.5)
    for row, p, V in rows_of(layer, LENS.read(layer, DEFAULT)):
        np.testing.assert_allclose(p, searched(row, V), atol=TOLERANCE * 10)


@pytest.mark.parametrize("rule", RULES)
def test_logarithms_lie_in_the_span_of_the_values(rule: str) -> None:
    """ln p = v λ + c proves that no other distribution with this output has more entropy."""
    layer = head_layer(40, rule, sharpness=1.0)
    for _, p, V in rows_of(layer, LENS.read(layer, DEFAULT)):
        if len(p) > 9:
            A = np.hstack([V, np.ones((len(V), 1))])
            fitted = A @ np.linalg.lstsq(A, np.log(p), rcond=None)[0]
            np.testing.assert_allclose(np.log(p), fitted, atol=1e-4)


def test_is_the_weights_up_to_one_more_token_than_dimensions() -> None:
    """8 dimensions: 9 tokens have one distribution for each output, 10 have many. In a causal model that holds row by row."""
    for n, same in ((1, True), (8, True), (9, True), (10, False)):
        layer = head_layer(n)
        found = LENS.read(layer, DEFAULT)
        assert found.identical.tolist() == [same] * 4
        assert torch.equal(found.map, layer.weights) is same
    layer = head_layer(12, "prefix")
    found = LENS.read(layer, DEFAULT).map
    assert torch.equal(found[:, :9], layer.weights[:, :9])
    assert not torch.isclose(found[:, 9:], layer.weights[:, 9:], atol=1e-4).all(-1).any()


def test_closed_forms() -> None:
    """Values that say nothing: uniform. Equal values: the weight is shared evenly among them. Weights that are even already stay."""
    np.testing.assert_allclose(LENS.read(head_layer(12, kind="zero"), DEFAULT).map[:2], 1 / 12, atol=1e-7)
    causal = LENS.read(head_layer(12, "prefix", kind="equal"), DEFAULT).map
    np.testing.assert_allclose(causal[0], np.tril(np.ones((12, 12))) / np.arange(1, 13)[:, None], atol=1e-7)
    layer = head_layer(6, kind="repeated")
    pairs = layer.weights[..., :3] + layer.weights[..., 3:]
    np.testing.assert_allclose(LENS.read(layer, DEFAULT).map, torch.cat([pairs, pairs], -1) / 2, atol=1e-6)
    even = replace(head_layer(20), weights=torch.full((4, 20, 20), 1 / 20))
    np.testing.assert_allclose(LENS.read(even, DEFAULT).map, 1 / 20, atol=1e-7)


def test_leaves_a_distribution_of_that_form_alone() -> None:
    """softmax(V λ) is the distribution of largest entropy already, and reading twice changes nothing."""
    layer = head_layer(30)
    V = layer.values.repeat_interleave(2, 0)
    tilted = replace(layer, weights=(0.5 * torch.randn(4, 30, 8) @ V.mT).softmax(-1))
    np.testing.assert_allclose(LENS.read(tilted, DEFAULT).map, tilted.weights, atol=1e-6)
    once = LENS.read(layer, DEFAULT).map
    np.testing.assert_allclose(LENS.read(replace(layer, weights=once), DEFAULT).map, once, atol=1e-6)


def test_ignores_the_value_bias_and_the_scale() -> None:
    """Values moved and scaled allow the same distributions."""
    layer = head_layer(30)
    moved = replace(layer, values=layer.values * 100 + torch.linspace(-3, 3, 8))
    np.testing.assert_allclose(LENS.read(moved, DEFAULT).map, LENS.read(layer, DEFAULT).map, atol=1e-5)


@pytest.mark.parametrize("sharpness", [8.0, 30.0, 200.0])
@pytest.mark.parametrize("rule", RULES)
def test_peaked_rows_converge_or_say_so(rule: str, sharpness: float) -> None:
    """Weights of nearly 1, and of exactly 0: every row is right or NaN, and those are counted."""
    layer = head_layer(40, rule, sharpness=sharpness)
    found = LENS.read(layer, DEFAULT)
    undefined = found.map.isnan().any(-1)
    assert found.undefined.tolist() == undefined.sum(-1).tolist()
    assert undefined.float().mean() < 0.02
    right = found.map[~undefined]
    np.testing.assert_allclose(right.sum(-1), 1, atol=1e-5)
    outputs = (found.map @ layer.values.repeat_interleave(2, 0) - layer.output)[~undefined]
    assert outputs.norm(dim=-1).max() < 1e-4


def test_rows_that_do_not_converge_have_no_reading() -> None:
    """One step is too few for a peaked row: NaN, counted, and without entropy."""
    layer = head_layer(30, sharpness=6.0)
    found = LENS.read(layer, LENS.params(iterations=1))
    undefined = found.map.isnan()
    assert found.undefined.sum() > 0
    assert torch.equal(undefined.any(-1), undefined.all(-1))
    assert found.undefined.tolist() == undefined.all(-1).sum(-1).tolist()
    entropies = MEASURES["entropy"].compute(layer, "max-entropy", {"max-entropy": found}, NoParams())
    assert torch.equal(entropies.isnan(), undefined.all(-1))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [5, 24])
def test_rows_of_zeros_have_no_reading(rule: str, n: int) -> None:
    """They are no distributions: NaN and counted, also where no other row has their output; the other rows are what they were."""
    layer = head_layer(n, rule)
    whole = LENS.read(layer, DEFAULT)
    weights = layer.weights.clone()
    weights[0] = 0
    weights[2, ::3] = 0
    found = LENS.read(replace(layer, weights=weights), DEFAULT)
    empty = weights.sum(-1) == 0
    assert torch.equal(found.map.isnan().all(-1), empty)
    assert torch.equal(found.map.isnan().any(-1), empty)
    assert found.undefined.tolist() == empty.sum(-1).tolist()
    np.testing.assert_allclose(found.map[~empty], whole.map[~empty], atol=TOLERANCE)
    assert found.identical.tolist() == [False, whole.identical[1], False, whole.identical[3]]


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done at once, rows or products."""
    layer = head_layer(16, "prefix")
    whole = LENS.read(layer, DEFAULT).map
    for name, bound in (("ROWS", 100), ("HESSIANS", 300), ("PRODUCTS", 100), ("KEPT", 10)):
        monkeypatch.setattr(_newton, name, bound)
        np.testing.assert_allclose(LENS.read(layer, DEFAULT).map, whole, atol=1e-7)


def test_reads_cross_attention_and_refuses_half_precision() -> None:
    """Fewer queries than keys; values whose rank can't be decided."""
    assert LENS.read(head_layer(20, queries=7), DEFAULT).map.shape == (4, 7, 20)
    with pytest.raises(Unsupported, match="float32"):
        LENS.read(replace(head_layer(20), epsilon=float(torch.finfo(torch.bfloat16).eps)), DEFAULT)
