"""Lenses of whole layers against plain loops in float64: norm-residual, rollout, ALTI, value zeroing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.core.attention import Layer, Reading, Stream
from headscope.core.declarations import NoParams
from headscope.errors import Unsupported
from headscope.lenses import _contributions, alti, norm_residual, norm_rollout, rollout, value_zeroing
from headscope.lenses._joined import join
from headscope.lenses.base import Lens
from tests.support.variants import variants

from .whole import Shape, added, array, of_no_token, random_layer, shapes, single, through

few = settings(max_examples=25, deadline=None)
SMALL = Shape(7, 4, 2, 3, "prefix", "centred", special=True, seed=3)
# Results in float32, as shares of what they are measured against.
TOLERANCE = 2e-6


def shares(contributions: NDArray[Any]) -> NDArray[Any]:
    """Rows over their sum; NaN where that is 0."""
    with np.errstate(invalid="ignore"):
        return contributions / contributions.sum(-1, keepdims=True)


# Norms with the residual stream


@few
@given(shapes())
def test_norms_are_those_of_the_vectors(shape: Shape) -> None:
    """||g(y_ij)|| of vectors added up head by head."""
    layer = random_layer(shape)
    expected = np.linalg.norm(added(layer), axis=-1)
    found = norm_residual.read(layer, NoParams()).map
    assert found.shape == (1, shape.n, shape.n)
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-7 * max(1, expected.max()))
    inexact = norm_residual.read(single(layer), NoParams()).map
    assert inexact.dtype == torch.float32
    np.testing.assert_allclose(inexact[0], expected, rtol=1e-5, atol=TOLERANCE * max(1, expected.max()))


@few
@given(shapes(), st.integers(1, 200))
def test_norms_do_not_depend_on_blocks(shape: Shape, size: int) -> None:
    """Blocks of one key, of a few keys and of all keys give the same."""
    layer = random_layer(shape)
    whole = norm_residual.read(layer, NoParams()).map
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_contributions.blocks, "__defaults__", (50 * size,))
        torch.testing.assert_close(norm_residual.read(layer, NoParams()).map, whole, rtol=1e-9, atol=1e-9)


@variants("branch", [None, "centred", "root-mean-square", "gain"])
@variants("norm", [None, "centred", "root-mean-square"])
def test_vectors_add_up_to_what_is_normalised(branch: str | None, norm: str | None) -> None:
    """The y_ij of a row, the biases and the shifts sum to the output of the block; so the decomposition leaves nothing out."""
    layer = random_layer(replace(SMALL, branch=branch, norm=norm))
    stream = layer.stream
    given = layer.project(layer.output) + stream.bias
    expected = array(through(stream.norm, through(stream.branch_norm, given) + stream.before))
    rest = np.stack([of_no_token(layer, i) for i in range(SMALL.n)])
    np.testing.assert_allclose(added(layer).sum(1) + rest, expected, atol=1e-12)


def test_norms_of_heads_that_cancel() -> None:
    """Two heads that add opposite vectors leave the residual stream alone: zeros off the diagonal, not square roots of rounding errors."""
    layer = random_layer(replace(SMALL, heads=2, groups=1, norm=None))
    layer = replace(layer, weights=layer.weights[:1].expand(2, -1, -1).clone())
    projected = torch.zeros_like(layer.stream.before) + layer.stream.bias
    layer = replace(layer, output=(layer.weights @ layer.values), stream=replace(layer.stream, projected=projected))
    layer = replace(layer, projection=torch.stack([layer.projection[0], -layer.projection[0]]))
    found = norm_residual.read(single(layer), NoParams()).map[0]
    assert float((found - torch.diag(found.diagonal())).abs().max()) < 1e-6
    torch.testing.assert_close(found.diagonal(), layer.stream.before.norm(dim=-1).float())


# Rollout


def rolled(layers: list[Layer], residual: float) -> list[NDArray[Any]]:
    """Rollout by its definition."""
    result: list[NDArray[Any]] = []
    for layer in layers:
        n = layer.weights.shape[1]
        mixed = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                mean = sum(float(head[i, j]) for head in layer.weights) / len(layer.weights)
                mixed[i, j] = (1 - residual) * mean + residual * (i == j)
            mixed[i] /= mixed[i].sum()
        result.append(mixed @ result[-1] if result else mixed)
    return result


def joined(lens: Any, layers: list[Layer], params: Any) -> list[torch.Tensor]:
    """Maps of all layers as the engine joins them."""
    maps: list[torch.Tensor] = []
    joining = lens.joining(params)
    for layer in layers:
        here = lens.read(layer, params).map
        maps.append(joining(here, maps[-1]) if joining and maps else here)
    return maps


def test_rollout_counts_rows_of_which_nothing_is_left() -> None:
    """Without a residual connection, rows that are zero in all heads, and no others; with one, every token keeps itself."""
    layer = random_layer(SMALL)
    weights = layer.weights.clone()
    weights[:, [1, 4]] = 0
    weights[0, 2] = 0
    layer = replace(layer, weights=weights)
    found = rollout.read(layer, rollout.RolloutParams(residual=0.0))
    assert found.undefined.tolist() == [2]
    assert found.map[0].isnan().all(-1).nonzero().flatten().tolist() == [1, 4]
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found.map[0], rolled([layer], 0.0)[0], atol=1e-12)
    kept = rollout.read(layer, rollout.RolloutParams())
    assert kept.undefined.tolist() == [0]
    np.testing.assert_allclose(kept.map[0, 4], np.eye(SMALL.n)[4])


@few
@given(shapes(), st.floats(0, 0.95), st.booleans())
def test_rollout_is_the_product_of_its_layers(shape: Shape, residual: float, sink: bool) -> None:
    """R_l = A_l R_{l-1}; rows sum to 1, also beside a learned sink; causal maps stay causal."""
    layers = [random_layer(shape, index) for index in range(3)]
    if sink:
        layers = [replace(layer, weights=layer.weights * torch.linspace(0.1, 1, shape.n)[:, None]) for layer in layers]
    params = rollout.RolloutParams(residual=residual)
    for found, expected in zip(joined(rollout.ROLLOUT, layers, params), rolled(layers, residual), strict=True):
        np.testing.assert_allclose(found[0], expected, atol=1e-12)
        np.testing.assert_allclose(found.sum(-1), 1, atol=1e-12)
        assert shape.rule == "all" or not found.triu(1).any()
    for found, expected in zip(
        joined(rollout.ROLLOUT, [single(layer) for layer in layers], params), rolled(layers, residual), strict=True
    ):
        np.testing.assert_allclose(found[0], expected, atol=TOLERANCE)


def test_rollout_of_identities_and_of_uniform_rows() -> None:
    """Heads that look at themselves move nothing. Uniform heads leave (1 + 1/n)/2 on the token in one layer."""
    layer = random_layer(replace(SMALL, rule="all"))
    n = SMALL.n
    still = replace(layer, weights=torch.eye(n).expand(4, n, n))
    assert all(
        torch.equal(found[0], torch.eye(n)) for found in joined(rollout.ROLLOUT, [still] * 3, rollout.RolloutParams())
    )
    even = replace(layer, weights=torch.full((4, n, n), 1 / n))
    np.testing.assert_allclose(
        rollout.read(even, rollout.RolloutParams()).map[0].diagonal(), (1 + 1 / n) / 2, rtol=1e-6
    )


def test_rollout_refuses_negative_weights() -> None:
    """A share can't be negative."""
    layer = random_layer(SMALL)
    with pytest.raises(Unsupported, match="negative"):
        rollout.read(replace(layer, weights=-layer.weights), rollout.RolloutParams())


@pytest.mark.parametrize("residual", [-0.1, 1.0, 1])
def test_rollout_refuses_shares_out_of_bounds(residual: float) -> None:
    """Nothing but the residual connection is no rollout."""
    with pytest.raises(ValueError, match="residual"):
        rollout.RolloutParams(residual=residual)


# Value-weighted rollout


@few
@given(shapes())
def test_value_weighted_rollout_multiplies_shares_of_norms(shape: Shape) -> None:
    """R_l = S_l R_{l-1} with S the norms over their row; rows sum to 1, or are undefined from the layer on that has nothing to share."""
    layers = [random_layer(shape, index) for index in range(3)]
    expected: list[NDArray[Any]] = []
    for layer in layers:
        here = shares(np.linalg.norm(added(layer), axis=-1))
        expected.append(here @ expected[-1] if expected else here)
    for found, one in zip(joined(norm_rollout.NORM_ROLLOUT, layers, NoParams()), expected, strict=True):
        clear = ~np.isnan(one).any(-1)
        np.testing.assert_allclose(found[0][clear], one[clear], atol=1e-9)
        np.testing.assert_allclose(found[0][clear].sum(-1), 1, atol=1e-9)
        assert shape.rule == "all" or not found.nan_to_num().triu(1).any()


def test_value_weighted_rollout_leaves_out_tokens_without_values() -> None:
    """A token whose values are 0 gives nothing to any other one, whatever its weight."""
    layer = random_layer(replace(SMALL, rule="all", norm=None))
    shared = norm_rollout.read(layer, NoParams()).map[0]
    assert (layer.weights[:, :-1, -1] > 0).all()
    assert not shared[:-1, -1].any()
    assert shared[-1, -1] > 0


# ALTI


def nearer(layer: Layer) -> NDArray[Any]:
    """max(0, ||y_i||₁ - ||y_i - y_ij||₁), by loops."""
    vectors, n = added(layer), layer.weights.shape[1]
    result = np.zeros((n, n))
    for i in range(n):
        resultant = vectors[i].sum(0) + of_no_token(layer, i)
        for j in range(n):
            result[i, j] = max(0.0, np.abs(resultant).sum() - np.abs(resultant - vectors[i, j]).sum())
    return result


@few
@given(shapes())
def test_alti_is_what_brings_the_output_nearer(shape: Shape) -> None:
    """Shares of the distances that tokens close; rows sum to 1 or are undefined; weights of 0 give exactly 0."""
    layer = random_layer(shape)
    expected = shares(nearer(layer))
    found = alti.read(layer, alti.AltiParams())
    np.testing.assert_allclose(found.map[0], expected, atol=1e-9)
    assert found.undefined is not None
    assert int(found.undefined) == np.isnan(expected[:, 0]).sum()
    assert shape.rule == "all" or not found.map.nan_to_num().triu(1).any()
    again = alti.read(single(layer), alti.AltiParams())
    assert again.map.dtype == torch.float32
    np.testing.assert_allclose(again.map[0], expected, atol=5 * TOLERANCE)


@few
@given(shapes(), st.integers(1, 20), st.integers(1, 8))
def test_alti_does_not_depend_on_blocks(shape: Shape, size: int, keys: int) -> None:
    """Any cut into blocks of keys and queries gives the same."""
    layer = random_layer(shape)
    whole = alti.read(layer, alti.AltiParams()).map
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alti, "CACHE_BYTES", 100 * size)
        patch.setattr(alti, "KEYS", keys)
        torch.testing.assert_close(
            alti.read(layer, alti.AltiParams()).map, whole, rtol=1e-9, atol=1e-12, equal_nan=True
        )


def test_alti_keeps_small_contributions_exact() -> None:
    """A weight of 1e-6 has its share to six digits in float32, where a difference of two norms would have none."""
    layer = random_layer(replace(SMALL, n=2, rule="all", special=False))
    weights = torch.tensor([[1 - 1e-6, 1e-6], [0.5, 0.5]], dtype=torch.float64).expand(4, 2, 2)
    output = weights @ layer.values.repeat_interleave(2, dim=0)
    layer = replace(layer, stream=replace(layer.stream, projected=None))
    for sign in (1, -1):  # one of the two comes nearer
        layer = replace(layer, weights=weights, output=output, projection=sign * layer.projection)
        expected = shares(nearer(layer))
        np.testing.assert_allclose(alti.read(single(layer), alti.AltiParams()).map[0], expected, rtol=1e-4)


def test_alti_is_joined_without_an_identity() -> None:
    """C_l ... C_1 with rollout, C_l without."""
    layers = [random_layer(replace(SMALL, rule="all", norm=None), index) for index in range(3)]
    alone = [alti.read(layer, alti.AltiParams()).map for layer in layers]
    torch.testing.assert_close(
        joined(alti.ALTI, layers, alti.AltiParams()), [alone[0], alone[1] @ alone[0], alone[2] @ alone[1] @ alone[0]]
    )
    torch.testing.assert_close(joined(alti.ALTI, layers, alti.AltiParams(rollout=False)), alone)


# Value zeroing


def turned(layer: Layer) -> NDArray[Any]:
    """1 - cos(x_i, x_i without v_j): for every key the values are set to 0 and the heads' outputs are recomputed."""
    replay, (heads, queries, keys) = layer.stream.replay, layer.weights.shape
    assert replay is not None
    before, result = array(layer.stream.after), np.zeros((queries, keys))
    for j in range(keys):
        values = layer.values.clone()
        values[:, j] = 0
        output = layer.weights @ values.repeat_interleave(heads // values.shape[0], dim=0)
        after = array(replay(output[None])[0])
        for i in range(queries):
            cosine = before[i] @ after[i] / (np.linalg.norm(before[i]) * np.linalg.norm(after[i]))
            result[i, j] = 1 - cosine if np.abs(before[i] - after[i]).max() > 1e-13 else 0
    return result


@few
@given(shapes())
def test_value_zeroing_is_how_far_states_turn(shape: Shape) -> None:
    """Shares of the cosine distances; keys that a query can't see or that have no values count exactly nothing."""
    layer = random_layer(shape)
    expected = turned(layer)
    sums = expected.sum(-1, keepdims=True)
    found = value_zeroing.read(layer, value_zeroing.ValueZeroingParams())
    assert found.undefined is not None
    clear = sums[:, 0] > 1e-3  # the reference subtracts cosines, and what turns a state by less than 4e-6 counts as 0
    np.testing.assert_allclose(found.map[0][clear], (expected / np.maximum(sums, 1e-300))[clear], atol=1e-8)
    assert int(found.undefined) == int(found.map[0, :, 0].isnan().sum())
    assert shape.rule == "all" or not found.map.nan_to_num().triu(1).any()
    if shape.special:
        assert not found.map[0, :, -1].nan_to_num().any()
    np.testing.assert_allclose(
        value_zeroing.read(single(layer), value_zeroing.ValueZeroingParams()).map[0][clear],
        found.map[0][clear],
        atol=1e-4,
    )


@few
@given(shapes(), st.integers(1, 20))
def test_value_zeroing_does_not_depend_on_blocks(shape: Shape, size: int) -> None:
    """One key at a time or all at once."""
    layer = random_layer(shape)
    whole = value_zeroing.read(layer, value_zeroing.ValueZeroingParams()).map
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_zeroing, "BLOCK_BYTES", 2000 * size)
        torch.testing.assert_close(
            value_zeroing.read(layer, value_zeroing.ValueZeroingParams()).map,
            whole,
            rtol=1e-9,
            atol=1e-9,
            equal_nan=True,
        )


def test_value_zeroing_of_values_that_are_zero() -> None:
    """Nothing changes anything: all rows are undefined, and said to be."""
    layer = random_layer(SMALL)
    replay = layer.stream.replay
    assert replay is not None
    stream = replace(layer.stream, after=replay(torch.zeros_like(layer.output)[None])[0])
    layer = replace(layer, values=torch.zeros_like(layer.values), output=torch.zeros_like(layer.output), stream=stream)
    found = value_zeroing.read(layer, value_zeroing.ValueZeroingParams())
    assert found.map.isnan().all()
    assert found.undefined is not None
    assert found.undefined.tolist() == [SMALL.n]


def test_value_zeroing_does_not_draw_rounding_errors() -> None:
    """A layer whose second run is off by an epsilon here and there has the map of one that is not."""
    layer = random_layer(replace(SMALL, rule="all"))
    replay = layer.stream.replay
    assert replay is not None
    noise = torch.Generator().manual_seed(0)

    def rough(outputs: torch.Tensor) -> torch.Tensor:
        states = replay(outputs.double())
        return states * (1 + 2e-7 * torch.randn(states.shape, generator=noise, dtype=states.dtype))

    expected = value_zeroing.read(layer, value_zeroing.ValueZeroingParams()).map
    layer = replace(layer, epsilon=torch.finfo(torch.float32).eps, stream=replace(layer.stream, replay=rough))
    found = value_zeroing.read(layer, value_zeroing.ValueZeroingParams()).map
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert not found[0, :, -1].any()  # its values are 0


@pytest.mark.parametrize(
    ("changed", "params", "said"),
    [
        ({"epsilon": torch.finfo(torch.bfloat16).eps}, value_zeroing.ValueZeroingParams(), "half precision"),
        ({"stream": Stream(after=torch.ones(7, 6), replay=lambda outputs: torch.zeros(len(outputs), 7, 6))}, value_zeroing.ValueZeroingParams(), "second time"),
    ],
)  # fmt: skip
def test_value_zeroing_refuses_what_would_be_noise(changed: dict[str, Any], params: Any, said: str) -> None:
    """Half precision, and layers that do not repeat themselves."""
    with pytest.raises(Unsupported, match=said):
        value_zeroing.read(replace(random_layer(SMALL), **changed), params)


def test_value_zeroing_joins_only_the_same_tokens() -> None:
    """Between different queries and keys there are maps, but no rollout."""
    layer = random_layer(SMALL)
    layer = replace(layer, axes=replace(layer.axes, keys=layer.axes.keys[:3]))
    assert value_zeroing.read(layer, value_zeroing.ValueZeroingParams()).map.shape == (1, 7, 7)
    with pytest.raises(Unsupported, match="same tokens"):
        value_zeroing.read(layer, value_zeroing.ValueZeroingParams(rollout=True))


def test_value_zeroing_is_joined_on_request() -> None:
    """C_l ... C_1 with rollout, C_l without."""
    layers = [random_layer(replace(SMALL, special=False), index) for index in range(3)]
    alone = [value_zeroing.read(layer, value_zeroing.ValueZeroingParams()).map for layer in layers]
    torch.testing.assert_close(joined(value_zeroing.VALUE_ZEROING, layers, value_zeroing.ValueZeroingParams()), alone)
    expected = [alone[0], alone[1] @ alone[0], alone[2] @ alone[1] @ alone[0]]
    torch.testing.assert_close(
        joined(value_zeroing.VALUE_ZEROING, layers, value_zeroing.ValueZeroingParams(rollout=True)), expected
    )


# What they share


@pytest.mark.parametrize("lens", [norm_residual.NORM_RESIDUAL, alti.ALTI])
def test_outputs_that_do_not_arrive_are_refused(lens: Lens) -> None:
    """Outputs that are rescaled after attention, or projected otherwise: no sum over tokens would be the model's."""
    layer = random_layer(SMALL)
    stream = layer.stream
    rescaled = replace(stream, projected=(stream.projected - stream.bias) * 4 / 3 + stream.bias)
    for wrong in (
        replace(layer, stream=rescaled),
        single(replace(layer, stream=rescaled)),
        replace(layer, projection=layer.projection.flip(0)),
        replace(layer, stream=replace(stream, bias=-stream.bias)),
    ):
        with pytest.raises(Unsupported, match="add up"):
            lens.read(wrong, lens.params())
    assert lens.read(replace(layer, stream=replace(stream, projected=None)), lens.params()).map.shape == (1, 7, 7)


def test_rows_that_rest_on_undefined_rows_are_undefined() -> None:
    """A share of an undefined row is undefined; a row that takes nothing from it is not."""
    nan = torch.nan
    before = torch.tensor([[[1.0, 0.0], [nan, nan]]])
    current = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    assert torch.equal(join(current, before)[0, 0], torch.tensor([1.0, 0.0]))
    assert join(current, before)[0, 1].isnan().all()
    assert join(before, current)[0].isnan().tolist() == [[False, False], [True, True]]


def test_shares_of_tiny_contributions() -> None:
    """What is far below the range of float32 still has shares."""
    reading: Reading = _contributions.shares(
        torch.tensor([[1e-300, 3e-300], [0, 0]], dtype=torch.float64), single(random_layer(SMALL))
    )
    np.testing.assert_allclose(reading.map[0, 0], [0.25, 0.75])
    assert reading.undefined is not None
    assert reading.undefined.tolist() == [1]
