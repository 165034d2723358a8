"""Energy by period against sums of cosines written out."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.measures import frequency
from headscope.measures.frequency import BANDS, FREQUENCY, FrequencyParams
from tests.support.variants import variants

from .layers import states_layer

BOUNDS = [(2, 4), (4, 8), (8, 16), (16, 32), (32, 64), (64, 128), (128, math.inf)]


def states(seed: int, n: int, d: int) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(1, 1, (n, d)).astype(np.float32)


def slow_spectrum(X: NDArray[Any], transform: str) -> tuple[list[float], list[float]]:
    """Energies and periods of all frequencies, 0 included, from the definition of the transform."""
    n, d = X.shape
    energies, periods = [], []
    for k in range(n if transform == "dct" else n // 2 + 1):
        energy = 0.0
        for c in range(d):
            if transform == "dct":
                total = sum(X[i, c] * math.cos(math.pi * (i + 0.5) * k / n) for i in range(n))
                energy += total**2 * (1 if k == 0 else 2) / n
            else:
                sums = sum(X[i, c] * cmath.exp(-2j * math.pi * i * k / n) for i in range(n))
                energy += abs(sums) ** 2 / n * (1 if k == 0 or 2 * k == n else 2)
        energies.append(energy)
        periods.append(math.inf if k == 0 else (2 * n if transform == "dct" else n) / k)
    return energies, periods


def slow(X: NDArray[Any], transform: str, window: str) -> list[float]:
    """Share of the mean and shares by band."""
    X = X.astype(np.float64)
    n = len(X)
    rest = X - X.mean(0)
    share = (rest**2).sum() / (X**2).sum()
    if window == "hann":
        rest = rest * np.array([math.sin(math.pi * (i + 1) / (n + 1)) ** 2 for i in range(n)])[:, None]
    energies, periods = slow_spectrum(rest, transform)
    total = sum(energies[1:])
    bands = [sum(e for e, p in zip(energies[1:], periods[1:], strict=True) if low <= p < high) for low, high in BOUNDS]
    return [1 - share, *(share * band / total if total else 0.0 for band in bands)]


def measured(X: NDArray[Any], special: tuple[int, ...] = (), **params: Any) -> NDArray[Any]:
    return FREQUENCY.compute(states_layer(X, special), "weights", {}, FrequencyParams(**params)).numpy()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(2, 24),
    st.integers(1, 4),
    st.sampled_from(["dct", "dft"]),
    st.sampled_from(["none", "hann"]),
)
def test_shares_against_sums(seed: int, n: int, d: int, transform: str, window: str) -> None:
    """Within 1e-10; the shares sum to 1, those of shuffled tokens too."""
    X = states(seed, n, d)
    found = measured(X, transform=transform, window=window)
    np.testing.assert_allclose(found[:8], slow(X, transform, window), atol=1e-10)
    assert found[:8].sum() == pytest.approx(1)
    assert found[0] + found[8:].sum() == pytest.approx(1)


@variants("n", [1, 2, 5, 300])
@variants("transform", ["dct", "dft"])
def test_parseval(n: int, transform: str) -> None:
    """The spectrum sums to the energy, and its first entry is that of the mean: 1 - ||Res||² / ||X||²."""
    X = torch.as_tensor(states(n, n, 7)).double()
    energy = frequency.spectrum(X, transform)
    torch.testing.assert_close(energy.sum(), X.square().sum())
    torch.testing.assert_close(energy[0], X.square().sum() - (X - X.mean(0)).square().sum())


@variants("period", [2.5, 5, 10, 20, 40, 80, 160])
def test_a_pure_wave_is_in_its_band(period: float) -> None:
    """A cosine of 320 tokens with a whole number of periods."""
    wave = np.cos(2 * math.pi * (np.arange(320) + 0.5) / period)[:, None] @ np.ones((1, 3))
    band = sum(period >= low for low, _ in BOUNDS)
    for transform in ("dct", "dft"):
        found = measured(wave, transform=transform)
        assert found[band] == pytest.approx(1, abs=1e-9)
        assert found[0] == pytest.approx(0, abs=1e-9)


@variants("window", ["none", "hann"])
@variants("transform", ["dct", "dft"])
@variants("n", [9, 40])
def test_shuffled_shares_are_the_mean_over_orders(n: int, transform: str, window: str) -> None:
    """4,000 random orders, drawn with a seed and put side by side as channels, agree within their spread."""
    X, generator = states(0, n, 1), np.random.default_rng(0)
    orders = np.concatenate([X[generator.permutation(n)] for _ in range(4000)], axis=1)
    found = measured(orders, transform=transform, window=window)
    np.testing.assert_allclose(found[1:8], found[8:], atol=0.006)
    np.testing.assert_allclose(measured(X, transform=transform, window=window)[8:], found[8:], atol=1e-9)


def test_special_tokens_are_left_out_unless_asked_for() -> None:
    """As if they were not there."""
    X = states(0, 12, 4)
    X[0] *= 50
    np.testing.assert_allclose(measured(X, special=(0, 11)), measured(X[1:-1]), atol=1e-12)
    kept = FREQUENCY.compute(states_layer(X, (0, 11)), "weights", {}, FrequencyParams(special=True))
    np.testing.assert_allclose(kept, measured(X), atol=1e-12)


def test_edges() -> None:
    """One token is its own mean. No token, or only zeros: no answer. Equal tokens: all in the mean."""
    X = states(0, 5, 4)
    np.testing.assert_allclose(measured(X[:1]), [1, *[0] * 14])
    np.testing.assert_allclose(measured(np.repeat(X[:1], 6, 0)), [1, *[0] * 14], atol=1e-12)
    assert np.isnan(measured(np.zeros((4, 3)))).all()
    assert np.isnan(measured(X, special=tuple(range(5)))).all()
    assert len(FREQUENCY.columns) == 1 + 2 * len(BANDS)


def test_wide_states_are_transformed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers whatever the size of the parts."""
    X = states(0, 16, 30)
    whole = [measured(X, transform=transform, window="hann") for transform in ("dct", "dft")]
    monkeypatch.setattr(frequency, "ENTRIES", 64)
    parts = [measured(X, transform=transform, window="hann") for transform in ("dct", "dft")]
    np.testing.assert_allclose(parts, whole, atol=1e-12)
