"""The fast projection against a full SVD per row, on random and on hard inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.core.attention import Keys, Layer, Reading
from headscope.core.declarations import NoParams
from headscope.core.tokens import Axes
from headscope.errors import Unsupported
from headscope.lenses import LENSES
from headscope.lenses.base import ILL_CONDITIONED
from tests.support.extent import extent, mostly_long
from tests.support.variants import variants

from .conftest import projected, relative

EPSILON = float(np.finfo(np.float32).eps)


MASKS: dict[str, Callable[[int], torch.Tensor]] = {
    "all": lambda n: torch.ones(n, n),
    "prefix": lambda n: torch.ones(n, n).tril(),
    "mask": lambda n: torch.ones(n, n).tril().triu(-7),
    "narrow window": lambda n: torch.ones(n, n).tril().triu(-7),
    "window": lambda n: torch.ones(n, n).tril().triu(-50),
    "window on both sides": lambda n: torch.ones(n, n).tril(40).triu(-40),
    "chunks": lambda n: torch.block_diag(*[torch.ones(38, 38)] * (n // 38 + 1))[:n, :n].tril(),
}
LOCAL = ["narrow window", "window", "window on both sides", "chunks"]


def make_layer(
    n: int,
    rule: str,
    *,
    heads: int = 4,
    groups: int = 2,
    width: int = 16,
    seed: int = 0,
    values: torch.Tensor | None = None,
) -> Layer:
    generator = torch.Generator().manual_seed(seed)
    mask = MASKS[rule](n).bool()
    scores = 2 * torch.randn(heads, n, n, generator=generator)
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    values = torch.randn(groups, n, width, generator=generator) if values is None else values
    output = weights @ values.repeat_interleave(heads // groups, 0)
    keys, empty = Keys("mask", mask) if rule == "mask" else Keys.of(mask), torch.empty(0)
    return Layer(0, tuple(range(heads)), weights, values, output, keys, EPSILON, Axes((), ()), empty, empty)


def allowed(layer: Layer) -> np.ndarray:
    return layer.keys.allowed(*layer.weights.shape[1:]).numpy()


def reference(layer: Layer, ones: bool) -> np.ndarray:
    values = layer.values.repeat_interleave(layer.weights.shape[0] // layer.values.shape[0], 0)
    return projected(layer.weights.numpy(), values.numpy(), allowed(layer), ones)


def read(layer: Layer, ones: bool) -> Reading:
    return LENSES["effective-simplex" if ones else "effective"].read(layer, NoParams())


@pytest.mark.parametrize("ones", [False, True], ids=["effective", "simplex"])
@pytest.mark.parametrize("rule", ["all", "prefix", "mask", *LOCAL])
@settings(max_examples=extent(15, 4), deadline=None, derandomize=True)
@given(n=st.integers(1, 90), seed=st.integers(0, 1000))
def test_equals_svd(rule: str, ones: bool, n: int, seed: int) -> None:
    """Map, kept share and output agree with the float64 reference; nothing falls on forbidden keys."""
    layer = make_layer(n, rule, seed=seed)
    found, expected = read(layer, ones), reference(layer, ones)
    assert relative(found.map.numpy(), expected) < 1e-5
    norms = np.square(layer.weights.numpy().astype(np.float64)).sum(-1)
    assert found.kept is not None
    np.testing.assert_allclose(found.kept.numpy(), np.square(expected).sum(-1) / norms, atol=1e-5)
    assert not found.map.numpy()[:, ~allowed(layer)].any()
    values = layer.values.repeat_interleave(2, 0)
    assert relative((found.map @ values).numpy(), layer.output.numpy()) < 1e-5
    if ones:
        np.testing.assert_allclose(found.map.numpy().sum(-1), 1, atol=1e-4)


def repeating(draw: st.DataObject, n: int, width: int, groups: int) -> torch.Tensor:
    """Return values of tokens that are repeated, drawn from up to n different ones, whose columns are scaled by up to 1e-4."""
    seed, distinct = draw.draw(st.integers(0, 1000)), draw.draw(st.integers(1, n))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(distinct, (n,), generator=generator)
    scales = torch.logspace(0, draw.draw(st.sampled_from([0, -1, -2, -4])), width)
    return torch.randn(groups, distinct, width, generator=generator)[:, labels] * scales


@pytest.mark.parametrize(
    "rule", mostly_long(["all", "prefix", "mask", *LOCAL], "all", "prefix", "mask", "narrow window", "chunks")
)
@settings(max_examples=extent(40, 5), deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(1, 120), groups=st.sampled_from([1, 2, 6]))
def test_repeated_tokens(rule: str, data: st.DataObject, n: int, groups: int) -> None:
    """Equal tokens have equal values, so prefixes are singular; also with all tokens equal, and with one, some or all heads in a group."""
    layer = make_layer(n, rule, heads=6, groups=groups, values=repeating(data, n, 16, groups))
    found, expected = read(layer, ones=False), reference(layer, ones=False)
    assert relative(found.map.numpy(), expected) < 1e-5
    norms = np.square(layer.weights.numpy().astype(np.float64)).sum(-1)
    assert found.kept is not None
    np.testing.assert_allclose(found.kept.numpy(), np.square(expected).sum(-1) / norms, atol=1e-5)
    assert not found.map.numpy()[:, ~allowed(layer)].any()


@settings(max_examples=extent(40, 10), deadline=None, derandomize=True)
@given(n=st.integers(17, 160), rank=st.integers(1, 15), full=st.integers(0, 160), seed=st.integers(0, 1000))
def test_prefixes_that_lack_rank(n: int, rank: int, full: int, seed: int) -> None:
    """The first rows' values span a subspace only, and full rank comes late or never."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, n, 16, generator=generator)
    few = min(full, n)
    values[:, :few] = torch.randn(2, few, rank, generator=generator) @ torch.randn(2, rank, 16, generator=generator)
    layer = make_layer(n, "prefix", values=values)
    assert relative(read(layer, ones=False).map.numpy(), reference(layer, ones=False)) < 1e-5


@variants("condition", [30, 300, 3000, 20000], crossed=False)
@variants("n", [65, 100, 161, 240])
def test_long_rows_of_any_condition(n: int, condition: int) -> None:
    """Well-conditioned values are solved from the output, others after their columns were made orthonormal: the map is as exact."""
    scales = torch.logspace(0, -np.log10(condition), 16)
    layer = make_layer(n, "prefix", values=torch.randn(2, n, 16, generator=torch.Generator().manual_seed(n)) * scales)
    found, expected = read(layer, ones=False), reference(layer, ones=False)
    assert relative(found.map.numpy(), expected) < 1e-5
    rows = np.linalg.norm(found.map.numpy() - expected, axis=-1) / np.linalg.norm(layer.weights.numpy(), axis=-1)
    assert rows.max() < 1e-4


def test_equal_tokens_share_their_weights() -> None:
    """With as many independent values as different tokens, a causal row keeps what it gives to each of them, evenly."""
    tokens = torch.tensor([0, 1, 0, 2, 1, 0])
    layer = make_layer(6, "prefix", values=torch.randn(2, 3, 16)[:, tokens])
    found = read(layer, ones=False).map
    for row in range(6):
        for token in range(3):
            same = (tokens == token) & (torch.arange(6) <= row)
            if same.any():
                expected = layer.weights[:, row, same].mean(-1, keepdim=True).expand(4, int(same.sum()))
                torch.testing.assert_close(found[:, row, same], expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("rule", ["all", "prefix"])
def test_identical_up_to_the_head_width(rule: str) -> None:
    """As many independent values as tokens: the map is the weights, bit for bit, and says so. One token more and it is not."""
    for n, same in ((15, True), (16, True), (17, False)):
        layer = make_layer(n, rule)
        found = read(layer, ones=False)
        assert found.identical is not None
        assert bool(found.identical.all()) is same
        assert torch.equal(found.map, layer.weights) is same


def hard_values(kind: str, n: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(2, n, width, generator=generator)
    match kind:
        case "repeated tokens":
            values[:, n // 2 :] = values[:, : n - n // 2]
        case "dead dimension":
            values[0, :, 3] = 0
        case "dependent dimensions":
            values[1, :, 5] = values[1, :, 6] * 2
        case "ill-conditioned":
            values = values * torch.logspace(0, -5, width)
        case "below the threshold":
            values = values * torch.logspace(0, -9, width)
        case "tiny first token":
            values[:, 0] *= 1e-4
        case "huge last tokens":
            values[:, n // 2 :] *= 1e4
        case "all zero":
            values[0] = 0
        case "large common offset":
            values = values + 300
    return values


@variants("rule", ["all", "prefix", "window"], crossed=False)
@variants("n", [10, 16, 40, 150])
@variants(
    "kind",
    [
        "repeated tokens",
        "dead dimension",
        "dependent dimensions",
        "ill-conditioned",
        "below the threshold",
        "tiny first token",
        "huge last tokens",
        "all zero",
        "large common offset",
    ],
)
def test_hard_values(kind: str, n: int, rule: str) -> None:
    """Dependent and badly scaled values take the way of the decomposition and still agree with the reference."""
    layer = make_layer(n, rule, values=hard_values(kind, n, 16))
    found, expected = read(layer, ones=False), reference(layer, ones=False)
    # The reference decides ranks with the same threshold, on the same float32 values.
    assert relative(found.map.numpy(), expected) < 1e-4
    ranks = [
        np.linalg.matrix_rank(v.double().numpy(), tol=np.linalg.norm(v.double().numpy(), 2) * max(n, 16) * EPSILON)
        for v in layer.values
    ]
    assert found.rank is not None
    assert found.rank.tolist() == [ranks[0], ranks[0], ranks[1], ranks[1]]


def test_condition_is_an_upper_bound() -> None:
    """The reported condition number is never below the true one, nor far above it."""
    layer = make_layer(60, "all", seed=3)
    found = read(layer, ones=False)
    true = np.array([np.linalg.cond(v.double().numpy()) for v in layer.values]).repeat(2)
    assert found.condition is not None
    assert (found.condition.numpy() >= true * (1 - 1e-9)).all()
    assert (found.condition.numpy() <= true * 16).all()


def spread(condition: float, n: int, width: int) -> torch.Tensor:
    """Values [2, N, D] of a condition number, all of whose singular values but the smallest are equal: the bound is as loose as it gets."""
    generator = torch.Generator().manual_seed(n)
    U, _, W = torch.linalg.svd(torch.randn(2, n, width, generator=generator).double(), full_matrices=False)
    sigma = torch.ones(min(n, width), dtype=torch.float64)
    sigma[-1] = 1 / condition
    return (U * sigma @ W).float()


@variants("rule", ["all", "prefix", "narrow window"])
@variants("n", [12, 16, 30])
@variants("condition", [100.0, 6000.0, 9500.0, 10500.0, 30000.0])
def test_large_conditions_are_exact(rule: str, n: int, condition: float) -> None:
    """Above 10,000 the condition number itself is reported, so no bound decides who is ill-conditioned; a bound is never larger than that."""
    layer = make_layer(n, rule, values=spread(condition, n, 16))
    found = read(layer, ones=False).condition
    assert found is not None
    true = np.linalg.cond(layer.values.double().numpy()).repeat(2)
    assert (found.numpy() >= true * (1 - 1e-6)).all()
    ill = true > ILL_CONDITIONED
    np.testing.assert_allclose(found.numpy()[ill], true[ill], rtol=1e-6)
    assert (found.numpy()[~ill] <= ILL_CONDITIONED).all()


def test_leverage_is_the_diagonal_of_the_projection() -> None:
    """0..1, sums to the rank, equals the diagonal of V V⁺."""
    layer = make_layer(40, "all")
    found = read(layer, ones=False)
    assert found.leverage is not None
    for head, values in enumerate(layer.values.repeat_interleave(2, 0).double().numpy()):
        np.testing.assert_allclose(found.leverage[head].numpy(), np.diag(values @ np.linalg.pinv(values)), atol=1e-6)
        assert found.leverage[head].sum().item() == pytest.approx(16, abs=1e-4)


def test_simplex_ignores_the_value_bias() -> None:
    """Adding the same vector to every value changes the effective map but not the simplex one."""
    layer = make_layer(40, "all")
    moved = make_layer(40, "all", values=layer.values + torch.linspace(-2, 2, 16))
    assert relative(read(layer, ones=True).map.numpy(), read(moved, ones=True).map.numpy()) < 1e-5
    assert relative(read(layer, ones=False).map.numpy(), read(moved, ones=False).map.numpy()) > 1e-2


@variants("rule", ["all", "prefix", "mask", "window"])
@variants("n", [10, 17, 40, 150])
def test_rows_that_sum_to_less_than_one(rule: str, n: int) -> None:
    """Beside a learned sink, or of a head that was switched off: a row keeps its own sum, by every route."""
    layer = make_layer(n, rule)
    left = torch.rand(4, n, 1, generator=torch.Generator().manual_seed(3))
    left[2], left[3] = 1, 0
    layer = replace(layer, weights=layer.weights * left, output=layer.output * left)
    found = read(layer, ones=True).map.numpy()
    assert relative(found, reference(layer, ones=True)) < 1e-5
    np.testing.assert_allclose(found.sum(-1), left[..., 0].expand(4, n).numpy(), atol=1e-4)
    assert not found[3].any()


def test_equivariant_to_the_order_of_tokens() -> None:
    """Permuting the tokens permutes the map."""
    layer = make_layer(40, "all")
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    weights, values = layer.weights[:, order][:, :, order], layer.values[:, order]
    moved = replace(layer, weights=weights, values=values, output=layer.output[:, order])
    assert (
        relative(read(moved, ones=False).map.numpy(), read(layer, ones=False).map[:, order][:, :, order].numpy()) < 1e-5
    )


def test_refuses_half_precision() -> None:
    """With bfloat16's epsilon no singular value can be told from zero."""
    layer = make_layer(40, "all")
    coarse = replace(layer, epsilon=float(torch.finfo(torch.bfloat16).eps))
    with pytest.raises(Unsupported):
        read(coarse, ones=False)
