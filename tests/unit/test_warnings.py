"""Warnings about projections: how many tokens fit into a head, and where values are linearly dependent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralModel

import headscope
from headscope import Model
from headscope.library.analysis import Analysis
from tests.sweep.build import build

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


@pytest.mark.parametrize(("condition", "heads"), [(9500.0, 0), (10500.0, 2), (30000.0, 2)])
def test_values_are_ill_conditioned_by_their_condition_number(condition: float, heads: int) -> None:
    """Above 10,000, not where only the bound of it is: of two equal singular values and a small one that is 1.19 times as large."""
    random = np.random.default_rng(0)
    U, _, W = np.linalg.svd(random.standard_normal((2, 20, WIDTH)), full_matrices=False)
    values = U * [1, 1, 1 / condition] @ W
    weights, tokens = random.dirichlet(np.ones(20), size=(2, 20)), [f"token{place}" for place in range(20)]
    a = headscope.from_attentions([weights], tokens, [values], causal=False, lenses=["effective"])
    found = [warning.message for warning in a.warnings if warning.code == "ill-conditioned"]
    assert [message.split(" of ")[1].split()[-1] for message in found] == ([str(heads)] if heads else [])
    np.testing.assert_allclose(a.notes["effective"]["condition"], condition, rtol=1e-5)


SWITCHED_OFF = {"name": "ablate", "heads": [f"1.{head}" for head in range(4)], "how": "zero"}


def test_rows_of_zeros_are_undefined(tiny: Model) -> None:
    """Where all heads of a layer are switched off: all queries of them for max-entropy, and without a residual connection all rows of rollout from there on."""
    lenses = [{"name": "rollout", "residual": 0.0}, "max-entropy"]
    a = headscope.analyze(tiny, token_ids=list(range(1, 21)), mechanism=SWITCHED_OFF, lenses=lenses)
    found = {warning.lens: warning.message for warning in a.warnings if warning.code == "undefined-rows"}
    assert found.keys() == {"rollout", "max-entropy"}
    assert found["rollout"].startswith("40 rows have no reading")
    assert "weights are zero" in found["rollout"]
    assert "weights are zero" in found["max-entropy"]
    undefined = a.notes["max-entropy"]["undefined"]
    assert undefined[1].tolist() == [20] * 4
    assert a.notes["rollout"]["undefined"].tolist() == [[0], [20], [20]]
    assert np.isnan(a.maps["max-entropy"][1]).all()
    kept = headscope.analyze(tiny, token_ids=list(range(1, 21)), mechanism=SWITCHED_OFF, lenses=["rollout"])
    assert not [warning for warning in kept.warnings if warning.lens == "rollout"]


@pytest.mark.parametrize("lens", ["effective", "effective-simplex"])
def test_dependent_values_are_counted(lens: str) -> None:
    """Two tokens with the same values leave a head one dimension short, in both heads."""
    found = said(lens, FITS[lens], twins=True)
    assert found.keys() == {"rank-deficient"}
    assert "2 of 2 heads" in found["rank-deficient"]


def test_why_a_map_is_the_weights_under_windows() -> None:
    """A query sees a window of the text, which fits into the head; the text does not."""
    config = MistralConfig(
        vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, sliding_window=8,
    )  # fmt: skip
    torch.manual_seed(0)
    a = headscope.analyze(MistralModel(config), token_ids=list(range(1, 41)), lenses=["effective"])
    said = {warning.code: warning.message for warning in a.warnings}
    assert said["identical-to-weights"] == (
        "Identical to the weights: the 8 tokens that a query sees at most fit into the head's 16 dimensions."
    )


def test_heads_that_do_not_exist_are_not_counted() -> None:
    """A layer with fewer heads than others has empty ones, whose values are not linearly dependent."""
    a = headscope.analyze(build("inkling_text").module, token_ids=list(range(1, 7)), lenses=["effective"])
    said = {warning.code: warning.message for warning in a.warnings}
    assert np.isnan(a.maps["effective"]).any()
    assert "rank-deficient" not in said
    assert said["identical-to-weights"].startswith("Identical to the weights: 6 tokens fit into")
