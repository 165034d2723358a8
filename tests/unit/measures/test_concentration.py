"""Participation ratio, entropy of magnitudes and negative share against plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.core.declarations import NoParams
from headscope.measures import concentration
from headscope.measures.concentration import ABSOLUTE_ENTROPY, NEGATIVE_SHARE, PARTICIPATION_RATIO

from .layers import layer_of, random_rows, readings

MEASURES = [PARTICIPATION_RATIO, ABSOLUTE_ENTROPY, NEGATIVE_SHARE]


def slow(row: list[float]) -> tuple[float, float, float]:
    """The three numbers of one row."""
    total = math.fsum(abs(w) for w in row)
    if total == 0:
        return math.nan, math.nan, math.nan
    shares = [abs(w) / total for w in row if w]
    return (
        total**2 / math.fsum(w * w for w in row),
        -math.fsum(p * math.log(p) for p in shares),
        math.fsum(-w for w in row if w < 0) / total,
    )


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([1, 2, 9, 40]),
    st.sampled_from(["all", "prefix", "window"]),
    st.booleans(),
    st.sampled_from([1e-20, 1.0]),
)
def test_rows_against_loops(seed: int, n: int, rule: str, signed: bool, scale: float) -> None:
    """Within 1e-6, whatever the size of the entries, for weights and for signed maps with zeros."""
    rows = random_rows(seed, 2, n, n, rule=rule)
    if signed:
        rows = rows * np.sign(np.random.default_rng(seed).normal(0.5, 1, rows.shape)).astype(np.float32)
    rows *= np.float32(scale)
    layer = layer_of(rows)
    for place, measure in enumerate(MEASURES):
        found = measure.compute(layer, "effective", readings(layer, effective=rows), NoParams())
        assert found.shape == (2, n)
        expected = [[slow(row)[place] for row in head] for head in rows.astype(np.float64).tolist()]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-7)


def test_closed_forms() -> None:
    """m equal magnitudes give m and ln m; half of the magnitude negative gives a half; a row of zeros has no answer."""
    row = torch.tensor([[[0.2, -0.2, 0.2, -0.2, 0.0]]])
    assert concentration.participation(row).item() == pytest.approx(4)
    assert concentration.absolute_entropy(row).item() == pytest.approx(math.log(4))
    assert concentration.negative_share(row).item() == pytest.approx(0.5)
    for function in (concentration.participation, concentration.absolute_entropy, concentration.negative_share):
        assert function(torch.zeros(1, 2, 3)).isnan().all()
        assert function(torch.full((1, 2, 3), torch.nan)).isnan().all()


def test_of_a_distribution_it_is_the_plain_entropy_and_the_ratio_is_never_larger() -> None:
    """exp(H) >= PR, and no weight is negative."""
    rows = torch.as_tensor(random_rows(0, 3, 20, 20))
    entropy = concentration.absolute_entropy(rows)
    np.testing.assert_allclose(entropy, torch.special.entr(rows.double()).sum(-1), atol=1e-6)
    assert (concentration.participation(rows) <= entropy.exp() + 1e-9).all()
    assert not concentration.negative_share(rows).any()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 2, 3, 20]), st.floats(1e-3, 1))
def test_rows_beside_a_learned_sink(seed: int, n: int, left: float) -> None:
    """Rows that sum to s < 1 are not scaled: -sum a ln a is s H - s ln s of the scaled row, at most ln K, or K / e for one or two keys."""
    rows = torch.as_tensor(random_rows(seed, 1, 4, n)).double() * left
    found = concentration.row_entropy(rows)[0]
    expected = [-math.fsum(a * math.log(a) for a in row if a) for row in rows[0].tolist()]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    scaled = concentration.absolute_entropy(rows)[0]
    np.testing.assert_allclose(found, left * scaled - left * math.log(left), atol=1e-6)
    assert (found <= (math.log(n) if n > 2 else n / math.e) + 1e-9).all()


def test_the_bounds_beside_a_learned_sink_are_reached() -> None:
    """One key: 1 / e, not 0. Two keys: more than ln 2, by 6 %. Nearly everything to the sink: a perplexity of 1, below the participation ratio."""
    found = [concentration.row_entropy(torch.full((1, n), 1 / math.e)).item() for n in (1, 2)]
    assert found == pytest.approx([1 / math.e, 2 / math.e], rel=1e-6)
    normalised = concentration.convert(np.array([2 / math.e]), "normalised", np.array([2]))
    assert normalised[0] == pytest.approx(1.0615, abs=1e-4)
    assert "learned sink" in concentration.ENTROPY.not_
    row = torch.full((1, 5), 1e-4)
    assert concentration.row_entropy(row).exp().item() < 1.01
    assert concentration.participation(row).item() == pytest.approx(5)


def test_long_maps_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers whatever the size of the parts."""
    layer = layer_of(random_rows(0, 2, 30, 30))
    whole = PARTICIPATION_RATIO.compute(layer, "weights", readings(layer), NoParams())
    monkeypatch.setattr(concentration, "ENTRIES", 100)
    assert torch.equal(PARTICIPATION_RATIO.compute(layer, "weights", readings(layer), NoParams()), whole)
