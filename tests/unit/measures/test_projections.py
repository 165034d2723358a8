"""Numbers of weights and head outputs against plain decompositions of the matrices written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.errors import Unsupported
from headscope.measures.base import Measure
from headscope.measures.projections import (
    COUNTS,
    HEAD_DIMENSION,
    OUTPUT_OVERLAP,
    QK_SPECTRUM,
    QK_SPECTRUM_LAYER,
    SHARES,
    SPECTRUM,
    HeadDimensionParams,
)

from .layers import layer_of, random_rows

CASES = given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 6), st.integers(1, 16))


def random(seed: int, *shape: int) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def computed(measure: Measure, params: Any = None, **fields: Any) -> NDArray[Any]:
    heads = next(iter(fields.values())).shape[0]
    layer = layer_of(random_rows(0, heads, 3, 3), **fields)
    return measure.compute(layer, "weights", {}, params or measure.params()).numpy()


def slow_basis(matrix: NDArray[Any]) -> NDArray[Any]:
    """Orthonormal rows that span those of the matrix, by Gram and Schmidt twice over."""
    basis: list[NDArray[Any]] = []
    for row in matrix.astype(np.float64):
        rest = row
        for _ in range(2):
            for direction in basis:
                rest = rest - (rest @ direction) * direction
        if np.linalg.norm(rest) > 1e-4 * np.linalg.norm(row):
            basis.append(rest / np.linalg.norm(rest))
    return np.array(basis).reshape(len(basis), matrix.shape[1])


def slow_overlap(one: NDArray[Any], other: NDArray[Any]) -> float:
    U, V = slow_basis(one), slow_basis(other)
    return math.fsum((u @ v) ** 2 for u in U for v in V) / min(len(U), len(V))


@settings(max_examples=25, deadline=None)
@CASES
def test_overlap_against_loops(seed: int, heads: int, width: int, d: int) -> None:
    """Within 1e-6 for full and lower rank, heads wider than the model included; symmetric, in 0..1, 1 with itself."""
    projection = random(seed, heads, width, d)
    if width > 1:
        projection[0, -1] = projection[0, 0]
    found = computed(OUTPUT_OVERLAP, projection=projection)
    expected = [[slow_overlap(one, other) for other in projection] for one in projection]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found, found.T, atol=1e-12)
    np.testing.assert_allclose(np.diag(found), 1, atol=1e-12)


def test_overlap_closed_forms() -> None:
    """Orthogonal spaces: 0. The same space, whatever its basis: 1. One of two directions shared: a half. A pruned head: no answer. Random ones: D / d."""
    eye = np.eye(8, dtype=np.float32)
    turned = random(0, 2, 2) @ eye[:2]
    found = computed(OUTPUT_OVERLAP, projection=np.stack([eye[:2], eye[2:4], turned, eye[[1, 5]], 0 * eye[:2]]))
    np.testing.assert_allclose(found[0, :4], [1, 0, 1, 0.5], atol=1e-12)
    assert np.isnan(found[4]).all()
    many = computed(OUTPUT_OVERLAP, projection=random(1, 40, 4, 64))
    assert many[~np.eye(40, dtype=bool)].mean() == pytest.approx(4 / 64, rel=0.05)


def test_overlap_does_not_depend_on_the_scale_of_a_head() -> None:
    projection = random(3, 3, 4, 16)
    scaled = projection * np.array([1e-6, 1, 1e6], np.float32)[:, None, None]
    np.testing.assert_allclose(
        computed(OUTPUT_OVERLAP, projection=projection), computed(OUTPUT_OVERLAP, projection=scaled), atol=1e-6
    )


def slow_summary(matrix: NDArray[Any], most: int) -> dict[str, float]:
    """The columns, from all singular values of the matrix written out; `most` is the largest rank it could have."""
    sigma = [float(s) for s in np.linalg.svd(matrix.astype(np.float64), compute_uv=False)][:most]
    energy = [s * s for s in sigma]
    total, shares = math.fsum(energy), [s / math.fsum(sigma) for s in sigma]
    found = {
        "largest": sigma[0],
        "stable": total / energy[0],
        "effective": math.exp(-math.fsum(p * math.log(p) for p in shares if p > 1e-300)),
        "participation": total**2 / math.fsum(e * e for e in energy),
        "most": most,
    }
    for percent in SHARES:
        found[f"dims_{percent}"] = next(
            k for k in range(1, most + 1) if math.fsum(energy[:k]) >= percent / 100 * total * (1 - 1e-9)
        )
    for count in COUNTS:
        found[f"share_{count}"] = math.fsum(energy[:count]) / total
    return found


@settings(max_examples=25, deadline=None)
@CASES
def test_query_key_spectra_against_the_products_written_out(seed: int, heads: int, width: int, d: int) -> None:
    """Within 1e-8: each head's W_Q W_Kᵀ and their sum."""
    query, key = random(seed, heads, d, width), random(seed + 1, heads, d, width)
    products = query.astype(np.float64) @ key.astype(np.float64).transpose(0, 2, 1)
    each = computed(QK_SPECTRUM, query_weights=query, key_weights=key)
    summed = computed(QK_SPECTRUM_LAYER, query_weights=query, key_weights=key)
    for found, product, most in [
        *zip(each, products, [min(width, d)] * heads, strict=True),
        (summed, products.sum(0), min(heads * width, d)),
    ]:
        expected = slow_summary(product, most)
        np.testing.assert_allclose(found, [expected[name] for name in SPECTRUM], rtol=1e-8)


def test_equal_heads_add_up_to_one_of_them() -> None:
    """The sum of H equal products has H times its singular values, and the same shares."""
    query, key = np.repeat(random(0, 1, 16, 4), 3, 0), np.repeat(random(1, 1, 16, 4), 3, 0)
    one = dict(zip(SPECTRUM, computed(QK_SPECTRUM, query_weights=query, key_weights=key)[0], strict=True))
    total = dict(zip(SPECTRUM, computed(QK_SPECTRUM_LAYER, query_weights=query, key_weights=key), strict=True))
    assert total["largest"] == pytest.approx(3 * one["largest"])
    for name in ("stable", "participation", "dims_90", "share_2"):
        assert total[name] == pytest.approx(one[name])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 2, 9, 30]), st.integers(1, 6), st.integers(1, 16), st.booleans())
def test_head_dimension_against_the_outputs_written_out(seed: int, n: int, width: int, d: int, centred: bool) -> None:
    """Within 1e-6: principal components of Z W_O, and the effective rank of W_O."""
    output, projection = random(seed, 2, n, width) + 1, random(seed + 1, 2, width, d)
    found = computed(HEAD_DIMENSION, HeadDimensionParams(centred=centred), output=output, projection=projection)
    for head in range(2):
        written = output[head].astype(np.float64) @ projection[head].astype(np.float64)
        if n == 1 and centred:
            assert not found[head, :5].any()
            continue
        written = written - written.mean(0) if centred else written
        expected = slow_summary(written, min(n, width, d))
        columns = [expected[name] for name in ("effective", "participation", "dims_90", "dims_95", "dims_99")]
        alone = slow_summary(projection[head], min(width, d))["effective"]
        np.testing.assert_allclose(found[head], [*columns, alone], rtol=1e-6)


def test_head_dimension_of_equal_outputs_is_0() -> None:
    """Nothing varies; uncentred it is one direction."""
    output, projection = np.repeat(random(0, 1, 1, 5), 7, 1), random(1, 1, 5, 12)
    assert not computed(HEAD_DIMENSION, HeadDimensionParams(), output=output, projection=projection)[0, :5].any()
    found = computed(HEAD_DIMENSION, HeadDimensionParams(centred=False), output=output, projection=projection)
    np.testing.assert_allclose(found[0, :5], 1, atol=1e-6)


def test_projections_that_were_not_found_are_refused() -> None:
    for measure in (OUTPUT_OVERLAP, QK_SPECTRUM, QK_SPECTRUM_LAYER, HEAD_DIMENSION):
        with pytest.raises(Unsupported):
            computed(measure, query=random(0, 2, 3, 4))
    layer = layer_of(random_rows(0, 2, 3, 3), projection=torch.ones(2, 3, 4))
    with pytest.raises(Unsupported, match="outputs"):
        HEAD_DIMENSION.compute(layer, "weights", {}, HeadDimensionParams())
