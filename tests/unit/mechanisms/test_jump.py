"""Jump attention and its adjacency against three nested loops in float64."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headscope.core.ties import adjacency, count_ties
from headscope.errors import InvalidRequest, Unsupported
from headscope.mechanisms.base import Pass
from headscope.mechanisms.jump import JUMP, JumpParams, jump_layers

from .scores import scores, setting, softmax

# Products that are nearer than this to their threshold, relative to it, may be decided either way in float32.
TIE = 1e-6


def bound(S, y, z, j, threshold, signed):
    return S[y, j] * S[z, j] >= threshold and not (signed and S[y, j] < 0 and S[z, j] < 0)


def counted(S, thresholds, signed, shift=0.0):
    """Keys that bind each pair; thresholds are moved by the relative `shift`."""
    n, keys = S.shape
    return np.array(
        [
            [sum(bound(S, y, z, j, thresholds[j] * (1 + shift), signed) for j in range(keys)) for z in range(n)]
            for y in range(n)
        ]
    )


def normalised(S, K, rho, signed):
    """A~ by its definition."""
    n = len(S)
    thresholds = [rho * K.shape[1] * max(np.sqrt((key**2).sum()), 1) for key in K]
    A = counted(S, thresholds, signed) / n
    for y in range(n):
        A[y, y] = 1
    degree = A.sum(1)
    return np.array([[A[y, z] / np.sqrt(degree[y] * degree[z]) for z in range(n)] for y in range(n)])


def jumped(Q, K, rho, mix, order, signed):
    """(1 - mix) S + mix sum_t A~^t S (A~^T)^t."""
    S = Q @ K.T
    A = normalised(S, K, rho, signed)
    total, power = np.zeros_like(S), np.eye(len(S))
    for _ in range(order):
        power = A @ power
        total += power @ S @ power.T
    return (1 - mix) * S + mix * total


def parts(of, head):
    return of.query[head].double().numpy(), of.key[head].double().numpy()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 9),
    keys=st.integers(1, 9),
    signed=st.booleans(),
    scale=st.sampled_from([0.1, 1, 10]),
    whole=st.booleans(),
)
def test_bonds_are_those_of_the_loop(seed, n, keys, signed, scale, whole):
    random = np.random.default_rng(seed)
    S = scale * random.standard_normal((n, keys))
    thresholds = random.uniform(0.05, 3, keys) * scale**2
    if whole:  # products equal to the threshold, scores of zero, equal rows
        S, thresholds = np.round(S * 3), np.ceil(thresholds * 9)
        S[0] = S[-1]
    S32, t32 = torch.from_numpy(S).float(), torch.from_numpy(thresholds).float()
    found = count_ties(S32, t32, signed).numpy()
    S, thresholds = S32.double().numpy(), t32.double().numpy()
    assert np.array_equal(found, found.T)
    if whole:
        assert np.array_equal(found, counted(S, thresholds, signed))
    assert (counted(S, thresholds, signed, TIE) <= found).all()
    assert (found <= counted(S, thresholds, signed, -TIE)).all()


def test_bonds_of_hundreds_of_rows_are_those_of_the_definition():
    random = np.random.default_rng(0)
    S, thresholds = random.standard_normal((150, 130)), random.uniform(0.2, 4, 130)
    for signed in (False, True):
        products = S[:, None, :] * S[None, :, :]
        if signed:
            products[(S[:, None, :] < 0) & (S[None, :, :] < 0)] = 0
        expected = (products >= thresholds).sum(-1)
        assert np.array_equal(count_ties(torch.from_numpy(S), torch.from_numpy(thresholds), signed).numpy(), expected)


def test_two_negative_scores_bind_unless_signed():
    S, thresholds = torch.tensor([[-3.0], [-2.0], [3.0]]), torch.tensor([6.0])
    assert count_ties(S, thresholds, False).tolist() == [[1, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert count_ties(S, thresholds, True).tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 9), rho=st.sampled_from([0.1, 1.0, 5.0]), signed=st.booleans())
def test_adjacency_is_that_of_the_loop(seed, n, rho, signed):
    of = scores(seed, n, scale=2)
    Q, K = parts(of, 0)
    found = adjacency(torch.from_numpy(Q @ K.T), torch.from_numpy(K), rho, signed).numpy()
    assert np.abs(found - normalised(Q @ K.T, K, rho, signed)).max() < 1e-12
    assert np.array_equal(found, found.T) or np.abs(found - found.T).max() < 1e-15
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-12


def test_adjacency_without_bonds_is_the_identity():
    found = adjacency(torch.full((4, 4), 0.01), torch.ones(4, 2), 5.0, False)
    assert torch.equal(found, torch.eye(4))


def test_adjacency_ignores_nan():
    products = torch.full((3, 3), 100.0)
    products[0] = torch.nan
    found = adjacency(products, torch.ones(3, 2), 5.0, False)
    assert found.isfinite().all()
    assert found[0].tolist() == [1, 0, 0]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 8),
    rho=st.sampled_from([0.3, 1.0]),
    mix=st.sampled_from([0.0, 0.5, 1.0]),
    order=st.integers(1, 3),
    signed=st.booleans(),
)
def test_jump_is_that_of_the_loop(seed, n, rho, mix, order, signed):
    of = scores(seed, n, scale=1.5)
    of = dataclasses.replace(of, query=of.query.double(), key=of.key.double(), layer=1)
    params = JumpParams(rho=rho, mix=mix, order=order, signed=signed, layers=[1], heads=[0, 3])
    found = JUMP.begin(params, setting()).attend(of).numpy()
    plain = Pass().attend(of).numpy()
    mixed = np.stack([jumped(*parts(of, head), rho, mix, order, signed) for head in range(4)])
    expected = softmax(of, mixed * of.scaling)
    assert np.abs(found[[0, 3]] - expected[[0, 3]]).max() < 1e-10
    assert np.array_equal(found[[1, 2]], plain[[1, 2]])


def test_float32_is_near_float64():
    of = scores(11, 40, width=16, scale=1.5)
    params = JumpParams(rho=0.5, layers=[0], heads=[0, 1, 2, 3])
    found = JUMP.begin(params, setting()).attend(of).numpy()
    mixed = np.stack([jumped(*parts(of, head), 0.5, 0.5, 1, False) for head in range(4)])
    assert np.abs(found - softmax(of, mixed * of.scaling)).max() < 1e-5


@pytest.mark.parametrize("params", [{"heads": []}, {"layers": []}, {"layers": [2]}])
def test_without_a_jump_head_nothing_changes(params):
    of = scores(7, 6, scale=3)
    assert torch.equal(JUMP.begin(JumpParams(**params), setting()).attend(of), Pass().attend(of))


def test_blocks_of_heads_are_known_by_their_names():
    whole = scores(8, 6, scale=3)
    pass_ = JUMP.begin(JumpParams(layers=[0], heads=[2]), setting())
    half = dataclasses.replace(whole, heads=(2, 3), query=whole.query[2:], key=whole.key[2:])
    assert torch.allclose(pass_.attend(half), pass_.attend(whole)[2:])


def test_default_layers_are_the_published_ones_at_any_depth():
    assert jump_layers(range(12)) == {1, 2, 3, 8, 9, 10}
    assert jump_layers(range(24)) == {*range(2, 8), *range(16, 22)}
    assert jump_layers(range(6)) == {0, 1, 4}
    assert jump_layers((3, 7, 11)) == {3, 11}  # a model in which only some layers attend
    assert all(jump_layers(range(depth)) for depth in range(1, 100))


def test_default_heads_are_every_second_one():
    pass_ = JUMP.begin(JumpParams(), setting((12,) * 12))
    assert pass_.heads == {0, 2, 4, 6, 8, 10}
    assert pass_.layers == {1, 2, 3, 8, 9, 10}


@pytest.mark.parametrize("params", [{"layers": [3]}, {"heads": [4]}, {"layers": [0], "heads": [0, 9]}])
def test_layers_and_heads_beyond_the_model_are_refused(params):
    with pytest.raises(InvalidRequest):
        JUMP.begin(JumpParams(**params), setting())


@pytest.mark.parametrize("rule", ["prefix", "window"])
def test_hidden_tokens_are_refused(rule):
    with pytest.raises(Unsupported):
        JUMP.begin(JumpParams(layers=[0]), setting()).attend(scores(0, 5, rule=rule))


def test_padding_is_cropped_first():
    padded = scores(9, 7, scale=3, blocked=(torch.arange(7) >= 5).expand(1, 7, 7))
    cropped = dataclasses.replace(padded, query=padded.query[:, :5], key=padded.key[:, :5], blocked=None)
    pass_ = JUMP.begin(JumpParams(layers=[0], heads=[0, 1]), setting())
    assert torch.allclose(pass_.attend(padded)[:, :5, :5], pass_.attend(cropped), atol=1e-6)


@pytest.mark.parametrize("params", [{"rho": 0.0}, {"mix": 1.1}, {"order": 0}, {"layers": [-1]}, {"binary": True}])
def test_parameters_out_of_range_are_refused(params):
    with pytest.raises(ValidationError):
        JumpParams(**params)
