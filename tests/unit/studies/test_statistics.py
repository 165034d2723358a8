"""Chunks merged in order give what all inputs give at once, against sums written out with math.fsum and draws made one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.studies import statistics
from headscope.studies.results.summary import STAT_PARTS, Stat

Array = NDArray[Any]
SEED = 7
EDGES = statistics.edges_for(None, None, "1", columns=False)


@st.composite
def inputs(draw: Any) -> tuple[list[Array], list[int]]:
    """Inputs of 1 to 6 entries for each of two heads, some of them NaN or infinite, and where chunks end."""
    numbers = st.one_of(st.floats(-1e4, 1e4, width=32), st.sampled_from([0.0, 0.5, 1.0, 1.0, math.nan, math.inf]))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=25))
    values = [np.array(draw(st.lists(numbers, min_size=2 * n, max_size=2 * n))).reshape(2, n) for n in sizes]
    cuts = draw(st.lists(st.integers(1, max(1, len(sizes) - 1)), max_size=4))
    return values, sorted({cut for cut in cuts if cut < len(sizes)})


def described(values: list[Array], first: int) -> tuple[dict[str, Array], Array, Array]:
    """Parts, means and rows of inputs that begin with row `first`."""
    sizes = [one.shape[-1] for one in values]
    rows = np.arange(first, first + len(values))
    starts = [0, *np.cumsum(sizes[:-1]).tolist()]
    return *statistics.describe(np.concatenate(values, -1), starts, rows, SEED, EDGES), rows


def in_chunks(values: list[Array], cuts: list[int]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Statistics and largest inputs of chunks, merged in order."""
    parts: dict[str, Array] = {}
    largest: dict[str, Array] = {}
    for low, high in zip([0, *cuts], [*cuts, len(values)], strict=True):
        more, means, rows = described(values[low:high], low + 1)
        parts = statistics.merge(parts, more) if parts else more
        ranked = statistics.top(means, rows)
        largest = statistics.merge_top(largest, ranked) if largest else ranked
    return parts, largest


def defined(values: list[Array], head: int) -> list[list[float]]:
    return [[float(x) for x in one[head] if math.isfinite(x)] for one in values]


def reference(numbers: list[float]) -> tuple[int, float, float]:
    """Number, mean and sum of squared differences, each correctly rounded but for a few ulps."""
    if not numbers:
        return 0, math.nan, 0.0
    mean = math.fsum(numbers) / len(numbers)
    return len(numbers), mean, math.fsum((x - mean) ** 2 for x in numbers)


def agree(found: tuple[float, float, float], expected: tuple[int, float, float], scale: float) -> None:
    """Mean to 1e-12 of the largest number, variance to 1e-12 of its square."""
    assert found[0] == expected[0]
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-12 * scale)
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-12, atol=1e-12 * scale**2 * max(1, expected[0]))


@given(inputs())
@settings(max_examples=60, deadline=None)
def test_merged_chunks_against_sums_of_everything(given_: tuple[list[Array], list[int]]) -> None:
    values, cuts = given_
    parts, _ = in_chunks(values, cuts)
    for head in range(2):
        each = defined(values, head)
        flat = [x for one in each for x in one]
        scale = max([abs(x) for x in flat], default=1.0)
        agree(tuple(parts[name][head] for name in ("count", "mean", "m2")), reference(flat), scale)
        means = [math.fsum(one) / len(one) for one in each if one]
        agree(tuple(parts[name][head] for name in ("inputs", "input_mean", "input_m2")), reference(means), scale)
        assert parts["low"][head] == min(flat, default=math.nan) or not flat
        assert parts["high"][head] == max(flat, default=math.nan) or not flat
        counts = np.histogram(np.clip(flat, EDGES[0], EDGES[-1]), EDGES)[0]
        # numpy counts the very last edge in the last bin, as we do; every other value on an edge belongs above.
        np.testing.assert_array_equal(parts["histogram"][head], counts)


@given(inputs())
@settings(max_examples=60, deadline=None)
def test_bootstrap_and_rankings_against_one_pass(given_: tuple[list[Array], list[int]]) -> None:
    values, cuts = given_
    parts, largest = in_chunks(values, cuts)
    at_once, means, rows = described(values, 1)
    np.testing.assert_array_equal(parts["boot_weight"], at_once["boot_weight"])
    np.testing.assert_allclose(parts["boot_sum"], at_once["boot_sum"], rtol=1e-12, atol=1e-7)
    for head in range(2):
        ranked = sorted((-mean, row) for mean, row in zip(means[head], rows, strict=True) if math.isfinite(mean))
        expected = [(-value, row) for value, row in ranked[: statistics.TOP]]
        found = zip(largest["value"][head].tolist(), largest["row"][head].tolist(), strict=True)
        assert [pair for pair in found if pair[1] >= 0] == expected


def test_mean_and_variance_to_twelve_digits() -> None:
    """Numbers as measures give them, in 40 chunks."""
    draw = np.random.default_rng(0)
    values = [draw.gamma(2, 1, (2, draw.integers(1, 60))).astype(np.float32) for _ in range(2_000)]
    parts, _ = in_chunks(values, list(range(50, 2_000, 50)))
    for head in range(2):
        count, mean, m2 = reference([x for one in defined(values, head) for x in one])
        assert parts["count"][head] == count
        np.testing.assert_allclose([parts["mean"][head], parts["m2"][head]], [mean, m2], rtol=1e-12)


def test_each_bootstrap_replicate_is_a_draw_with_replacement() -> None:
    """Against the weights of single rows, and their distribution against Poisson(1)."""
    rows = np.arange(1, 4_001)
    weights = statistics.bootstrap_weights(SEED, rows, 100)
    single = np.stack([statistics.bootstrap_weights(SEED, np.array([row]), 100)[:, 0] for row in rows[::500]], -1)
    np.testing.assert_array_equal(weights[:, ::500], single)
    assert np.abs(np.corrcoef(weights[:20]) - np.eye(20)).max() < 0.1
    shares = np.bincount(weights.ravel(), minlength=8)[:8] / weights.size
    np.testing.assert_allclose(shares, [math.exp(-1) / math.factorial(k) for k in range(8)], atol=3e-3)
    assert (statistics.bootstrap_weights(SEED + 1, rows, 100) != weights).mean() > 0.5


def test_sample_is_that_of_all_rows_however_they_are_cut() -> None:
    rows = np.arange(1, 10_001)
    whole = statistics.draw_rows(3, rows)
    assert len(whole) == statistics.SAMPLE
    assert list(whole) == sorted(whole)
    parts = [statistics.draw_rows(3, part) for part in np.array_split(rows[::-1], 13)]
    np.testing.assert_array_equal(statistics.draw_rows(3, np.concatenate(parts)), whole)
    drawn = np.concatenate([statistics.draw_rows(seed, rows) for seed in range(40)])
    assert abs(drawn.mean() - 5_000) < 4 * 10_000 / math.sqrt(12 * len(drawn))


def test_intervals_cover_the_truth() -> None:
    """The 95 % interval holds the true mean in about 95 of 100 samples."""
    draw, held = np.random.default_rng(1), 0
    for number in range(200):
        values = [draw.gamma(2, 1, (1, 1)) for _ in range(100)]
        parts = statistics.describe(np.concatenate(values, -1), range(100), np.arange(100), number, EDGES)[0]
        low, high = Stat(**parts).interval()
        held += bool(low[0] <= 2 <= high[0])
    assert 175 <= held <= 199


def test_quantiles_of_a_histogram() -> None:
    """Right to the width of a bin, and to the ends."""
    values = np.random.default_rng(2).uniform(0, 0.8, (3, 5_000))
    parts = statistics.describe(values, range(5_000), np.arange(5_000), SEED, EDGES)[0]
    stat = Stat(**parts)
    width = 0.01
    for q in (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0):
        np.testing.assert_allclose(stat.quantile(q), np.quantile(values, q, axis=-1), atol=width)
    np.testing.assert_array_equal(stat.quantile(0.0), values.min(-1))
    np.testing.assert_allclose(stat.std, values.std(-1, ddof=1), rtol=1e-12)


def test_a_quantile_is_no_finer_than_its_bin() -> None:
    """Values far below the first edge: a median in the middle of the bin would be ten times the mean."""
    values = np.random.default_rng(2).exponential(0.0014, (2, 5_000))
    values[0, :10] = 1.2  # a few large ones, so that the largest value does not bound the median
    edges = statistics.edges_for(0.0, None, "nats", columns=False)
    stat = Stat(**statistics.describe(values, range(5_000), np.arange(5_000), SEED, edges)[0])
    below, above = stat.within(0.5)
    np.testing.assert_array_equal(below, stat.low)
    np.testing.assert_array_equal(above, [edges[1], stat.high[1]])
    for q in (0.0, 0.3, 0.5, 0.99, 1.0):
        below, above = stat.within(q)
        exact = np.quantile(values, q, axis=-1, method="inverted_cdf")
        assert ((below <= exact) & (exact <= above)).all()
        assert ((below <= stat.quantile(q)) & (stat.quantile(q) <= above)).all()


@pytest.mark.parametrize(
    ("declared", "columns"),
    [((0.0, None, "nats"), False), ((0.0, 1.0, "1"), True), ((0.0, None, "edges"), True), ((None, None, "1"), False)],
)
def test_edges_rise_and_have_the_bins_they_say(declared: Any, columns: bool) -> None:
    edges = statistics.edges_for(*declared, columns=columns)
    assert len(edges) == (statistics.COLUMN_BINS if columns else statistics.BINS) + 1
    assert (np.diff(edges) > 0).all()


def test_nothing_defined_is_nothing() -> None:
    parts, means = statistics.describe(np.full((2, 3), np.nan), [0, 2], np.array([1, 2]), SEED, EDGES)
    stat = Stat(**parts)
    assert set(parts) == set(STAT_PARTS)
    for values in (
        stat.mean,
        stat.std,
        stat.low,
        stat.quantile(0.5),
        *stat.within(0.5),
        stat.input_mean,
        *stat.interval(),
        means[..., 0],
    ):
        assert np.isnan(values).all()
    assert (statistics.top(means, np.array([1, 2]))["row"] == -1).all()
