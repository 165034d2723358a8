"""Warnings about projections: how many tokens fit into a head, and where values are linearly dependent."""

from __future__ import annotations

import numpy as np
import pytest

import headscope
from headscope.library.analysis import Analysis

WIDTH = 3
# Tokens up to which a head of three dimensions loses nothing: one more for lenses that keep the sums of rows.
FITS = {"effective": 3, "effective-simplex": 4, "max-entropy": 4}


def analysed(lens: str, n: int, *, twins: bool = False) -> Analysis:
    """Two heads over n tokens; with `twins` the last two have the same values."""
    random = np.random.default_rng(n)
    weights = random.dirichlet(np.ones(n), size=(2, n))
    values = random.standard_normal((2, n, WIDTH))
    if twins:
        values[:, -1] = values[:, -2]
    tokens = [f"token{place}" for place in range(n)]
    return headscope.from_attentions([weights], tokens, [values], causal=False, lenses=[lens])


def said(lens: str, n: int, *, twins: bool = False) -> dict[str, str]:
    """Warnings about the lens, by code."""
    warnings = analysed(lens, n, twins=twins).warnings
    return {warning.code: warning.message for warning in warnings if warning.lens == lens}


@pytest.mark.parametrize(("lens", "most"), FITS.items())
def test_as_many_tokens_fit_as_the_lens_tells_apart(lens: str, most: int) -> None:
    """Up to that length the map is the weights, with a warning; one token more gives neither."""
    sentence = f"Identical to the weights: {most} tokens fit into the head's {most} dimensions."
    assert said(lens, most) == {"identical-to-weights": sentence}
    assert said(lens, most + 1) == {}


@pytest.mark.parametrize("lens", ["effective", "effective-simplex"])
def test_dependent_values_are_counted(lens: str) -> None:
    """Two tokens with the same values leave a head one dimension short, in both heads."""
    found = said(lens, FITS[lens], twins=True)
    assert found.keys() == {"rank-deficient"}
    assert "2 of 2 heads" in found["rank-deficient"]
