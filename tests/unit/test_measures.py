"""Measures, thumbnails and edges against closed forms and plain loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headscope
from headscope import LENSES, MEASURES, MECHANISMS, Model
from headscope.capture import examine
from headscope.core.attention import Keys, Layer, Reading
from headscope.core.tokens import Axes
from headscope.errors import Unsupported
from headscope.measures import connections, edges
from headscope.measures.concentration import convert, entropy_of_rows, entropy_without_first, row_entropy
from headscope.measures.thumbnail import pool, quantise
from tests.support.variants import variants

from .measures.layers import tokens


def test_entropy_closed_forms() -> None:
    """Uniform: ln n. One-hot: 0. Half and half: ln 2. Against a loop in float64 on random rows, with weights below the normal numbers of float32, too."""
    rows = torch.stack([torch.full((8,), 1 / 8), torch.eye(8)[3], torch.tensor([0.5, 0.5, 0, 0, 0, 0, 0, 0])])
    np.testing.assert_allclose(row_entropy(rows[None]).numpy(), [[math.log(8), 0, math.log(2)]], atol=1e-6)
    for scale in (6, 40):
        random = torch.randn(3, 5, 40, generator=torch.Generator().manual_seed(0)).mul(scale).softmax(-1)
        np.testing.assert_allclose(row_entropy(random).numpy(), _entropies(random), atol=1e-5)


@pytest.mark.parametrize("first", [-60.0, 0.0, 4.0, 12.0, 200.0])
def test_entropy_of_scores(first: float) -> None:
    """With and without the first key, against a loop in float64: however much the first key takes, and where nothing is left for the others."""
    scores = torch.randn(2, 6, 80, generator=torch.Generator().manual_seed(0)).mul(3)
    scores[..., 0] = first
    weights, empty = scores.softmax(-1), torch.empty(0)
    logs = (scores - scores.amax(-1, keepdim=True)) * weights
    layer = Layer(0, (0, 1), weights, empty, empty, Keys("all"), 1e-7, Axes((), ()), empty, empty, weighted_logs=logs)
    rest = weights[..., 1:].sum(-1)
    without = weights.double()[..., 1:]
    without /= without.sum(-1, keepdim=True).clamp_min(1e-300)
    found = entropy_of_rows(layer, "weights", {"weights": Reading(weights)}, None)
    np.testing.assert_allclose(found, _entropies(weights), atol=1e-5)
    np.testing.assert_allclose(entropy_without_first(layer, rest), _entropies(without), atol=1e-5)


def _entropies(rows: torch.Tensor) -> list[list[float]]:
    return [[-sum(w * math.log(w) for w in row if w > 0) for row in head] for head in rows.double().tolist()]


def test_entropy_units() -> None:
    """Bits, perplexity and normalised; a query with one key has no normalised entropy."""
    nats, keys = np.log(np.array([[1.0, 2.0, 2.0]])), np.array([1, 2, 4])
    np.testing.assert_allclose(convert(nats, "bits", keys), [[0, 1, 1]])
    np.testing.assert_allclose(convert(nats, "perplexity", keys), [[1, 2, 2]])
    np.testing.assert_allclose(convert(nats, "normalised", keys), [[np.nan, 1, 0.5]])
    assert convert(nats, "nats", keys) is nats


def test_null_share_is_what_the_difference_says(tiny: Model) -> None:
    """||A - A_eff||² / ||A||², per head and per query, from the maps themselves."""
    ids = np.random.default_rng(0).integers(0, 200, 50).tolist()
    a = headscope.analyze(tiny, token_ids=ids, measures=("null_share", "null_share_rows", "leverage"))
    weights, effective = a.maps["weights"].astype(np.float64), a.maps["effective"].astype(np.float64)
    lost, norms = np.square(weights - effective).sum(-1), np.square(weights).sum(-1)
    np.testing.assert_allclose(a.measures["null_share"]["weights"], lost.sum(-1) / norms.sum(-1), atol=1e-5)
    np.testing.assert_allclose(a.measures["null_share_rows"]["weights"], lost / norms, atol=1e-5)
    leverage = a.measures["leverage"]["weights"]
    assert leverage.shape == (3, 4, 50)
    np.testing.assert_allclose(leverage.sum(-1), a.notes["effective"]["rank"], atol=1e-3)


def supported(model: Model, needs: tuple[str, ...]) -> bool:
    """Whether the model has what is needed."""
    return not set(needs) & {*examine(model).missing("self"), *model.missing}


def ran(model: Model, needs: tuple[str, ...], **asked: Any) -> headscope.Analysis | None:
    """The analysis of 20 random tokens; None where the model can't give what a method needs, which is then said in a sentence."""
    ids = np.random.default_rng(1).integers(0, 200, 20).tolist()
    if supported(model, needs):
        return headscope.analyze(model, token_ids=ids, **asked)
    with pytest.raises(Unsupported, match=r"\.$"):
        headscope.analyze(model, token_ids=ids, **asked)
    return None


@pytest.fixture(scope="module")
def every_lens(tiny: Model) -> headscope.Analysis:
    """All lenses that the model supports, of the tokens of `ran`."""
    able = [name for name, lens in LENSES.items() if supported(tiny, lens.needs)]
    analysis = ran(tiny, (), lenses=able, measures=())
    assert analysis
    return analysis


@variants("name", LENSES)
def test_every_lens_keeps_its_promises(tiny: Model, every_lens: headscope.Analysis, name: str) -> None:
    """Shape, type, finiteness, range, and that a map which is not signed is not negative. For every entry of LENSES."""
    lens = LENSES[name]
    a = every_lens if supported(tiny, lens.needs) else ran(tiny, lens.needs, lenses=(name,), measures=())
    if a is None:
        return
    found = a.maps[name]
    assert found.shape == (3, 4 if lens.of == "heads" else 1, 20, 20)
    assert found.dtype == np.float32
    undefined = a.notes.get(name, {}).get("undefined", np.zeros(1))
    assert np.isnan(found).all(-1).sum() == undefined.sum()
    found = np.nan_to_num(found, nan=0.0)
    assert np.isfinite(found).all()
    low, high = lens.range
    assert low is None or found.min() >= low - 1e-6
    assert high is None or found.max() <= high + 1e-6
    assert lens.signed or found.min() >= 0


@variants("name", MEASURES)
def test_every_measure_keeps_its_promises(tiny: Model, name: str) -> None:
    """Shape by its declaration, range, no infinities. For every entry of MEASURES, through the first of its lenses and effective attention."""
    measure = MEASURES[name]
    lenses = {measure.lenses[0], *({"effective"} & set(measure.lenses))}
    needs = (*measure.needs, *(need for lens in {*lenses, *measure.reads} for need in LENSES[lens].needs))
    a = ran(tiny, needs, lenses=sorted(lenses), measures=(name,))
    if a is None:
        return
    found = a.measures[name]
    sizes = {"L": 3, "H": 4, "Q": 20, "K": 20, "C": len(measure.columns)}
    low, high = measure.range
    assert set(found) == lenses
    for values in found.values():
        assert values.shape == tuple(sizes[axis] for axis in measure.shape.split())
        assert not np.isinf(values).any()
        values = values[np.isfinite(values)]
        assert low is None or values.min(initial=low) >= low - 1e-6
        assert high is None or values.max(initial=high) <= high + 1e-6


@variants("name", MEASURES)
def test_lenses_and_columns_of_measures_exist(name: str) -> None:
    """Every lens that a measure names is there; it has columns if and only if it has an axis for them, each named once."""
    measure = MEASURES[name]
    assert {*measure.lenses, *measure.reads} <= set(LENSES)
    assert bool(measure.columns) == ("C" in measure.shape.split())
    assert len(set(measure.columns)) == len(measure.columns)
    assert set(measure.units) <= set(measure.columns)


def test_columns_have_units_of_their_own() -> None:
    """Shares are no distances, and counts of dimensions no singular values."""
    units = MEASURES["qk_distance"].describe()["units"]
    assert (units["mean"], units["square"], {units[name] for name in units if "from" in name}) == (
        "tokens",
        "tokens²",
        {"1"},
    )
    units = MEASURES["token_norms"].describe()["units"]
    assert {unit for name, unit in units.items() if name.startswith("attention_")} == {"1"}
    lengths = {unit for name, unit in units.items() if not name.startswith("attention_")}
    assert lengths == {LENSES["norm"].unit} == {LENSES["norm-residual"].unit} == {"norm of hidden states"}
    units = MEASURES["qk_spectrum"].describe()["units"]
    assert [units[name] for name in ("largest", "stable", "dims_90", "most", "share_1")] == [
        "1",
        *["dimensions"] * 3,
        "1",
    ]


@variants("entry", [*LENSES.values(), *MEASURES.values(), *MECHANISMS.values()], ids=lambda entry: entry.name)
def test_every_declaration_says_what_it_is(entry: headscope.declarations.Declaration) -> None:
    """Title, what it is, what it is not, source, and parameters as a JSON Schema."""
    described = entry.describe()
    assert all(len(described[key]) > 10 for key in ("doc", "not", "citation"))
    assert described["doc"].endswith(".")
    assert described["not"].startswith("Not ")
    assert described["params"]["type"] == "object"


@variants("n", [1, 5, 31, 32, 33, 64, 100])
@variants("signed", [False, True])
def test_thumbnails(n: int, signed: bool) -> None:
    """Every cell is the entry of largest magnitude of its patch, every entry is in some patch, bytes are off by half a step at most."""
    maps = torch.randn(3, n, n, generator=torch.Generator().manual_seed(n))
    maps = maps if signed else maps.abs()
    tiles, size = pool(maps, 32, signed), min(n, 32)
    assert tiles.shape == (3, size, size)
    width = -(-n // size)
    starts = [i * (n - width) // (size - 1) if n % size else i * width for i in range(size)]
    for i, top in enumerate(starts):
        for j, left in enumerate(starts):
            patch = maps[:, top : top + width, left : left + width].reshape(3, -1)
            expected = patch[torch.arange(3), patch.abs().argmax(1)]
            assert torch.equal(tiles[:, i, j], expected)
    assert {row for top in starts for row in range(top, top + width)} == set(range(n))
    bytes_, scale, offset = quantise(tiles, signed)
    restored = offset[:, None, None] + scale[:, None, None] * bytes_
    assert ((restored - tiles).abs() <= scale[:, None, None] * 0.501).all()
    zero = 128 if signed else 0
    np.testing.assert_allclose((offset + scale * zero).numpy(), 0, atol=1e-7)


def slow_edges(weights: np.ndarray, rule: edges.Rule, k: int, mass: float, value: float) -> set[tuple[int, int]]:
    chosen: set[tuple[int, int]] = set()
    for q, row in enumerate(weights):
        order = sorted(range(len(row)), key=lambda j: -abs(row[j]))
        total, seen = sum(abs(w) for w in row), 0.0
        for place, j in enumerate(order):
            keep = {
                "top-k": place < k,
                "mass": seen < mass * total,
                "value": abs(row[j]) >= value,
                "mean+std": row[j] > weights[weights != 0].mean() + weights[weights != 0].std(),
            }[rule]
            seen += abs(row[j])
            if keep and row[j] != 0:
                chosen.add((q, j))
    return chosen


@variants("signed", [False, True])
@variants("rule", ["top-k", "mass", "value", "mean+std"])
def test_edges(rule: edges.Rule, signed: bool) -> None:
    """The same edges as a plain loop, strongest first, never a zero."""
    weights = np.random.default_rng(0).dirichlet(np.full(12, 0.4), 12)
    weights = np.tril(weights - 0.05) if signed else weights
    found = edges.select(weights, rule, k=2, mass=0.7, value=0.2)
    assert {(int(q), int(j)) for q, j in found} == slow_edges(weights, rule, 2, 0.7, 0.2)
    strengths = [abs(weights[q, j]) for q, j in found]
    assert strengths == sorted(strengths, reverse=True)


@variants("seed", range(6))
def test_edges_of_a_map_in_which_zeros_are_readings(seed: int) -> None:
    """A map of ties has no hidden keys: mean and deviation are over every entry with a reading, as `connections` takes them, by rows as well."""
    rng = np.random.default_rng(seed)
    ties = (rng.random((9, 9)) * (rng.random((9, 9)) < 0.4)).astype(np.float32)
    ties[3] = np.nan
    counted = ties[~np.isnan(ties)].astype(np.float64)
    expected = {(q, k) for q, k in np.ndindex(9, 9) if ties[q, k] > counted.mean() + counted.std()}
    assert {(int(q), int(k)) for q, k in edges.select(ties, "mean+std", unmasked=True)} == expected
    assert {(int(q), int(k)) for q, k in edges.select(ties, "mean+std")} != expected
    blocks = [(low, ties[low : low + 2]) for low in range(0, 9, 2)]
    found = edges.find_strongest(lambda: iter(blocks), "mean+std", 81, unmasked=True)
    assert {(int(q), int(k)) for q, k in found.pairs} == expected
    empty, layer = torch.empty(0), torch.from_numpy(ties)[None]
    axes = Axes(tokens(9), tokens(9))
    whole = Layer(0, (0,), layer, empty, empty, Keys("all"), 1e-7, axes, empty, empty)
    connected = connections.edges(whole, Reading(layer), connections.ConnectionsParams(self_edges=True))[0]
    assert {(int(q), int(k)) for q, k in connected.nonzero().tolist()} == expected


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    seed=st.integers(0, 1000),
    rule=st.sampled_from(["top-k", "mass", "mean+std", "value"]),
    step=st.integers(1, 12),
    limit=st.integers(1, 60),
)
def test_edges_of_rows_that_come_one_after_another(
    shape: tuple[int, int], seed: int, rule: edges.Rule, step: int, limit: int
) -> None:
    """They are those of sorting every row, with ties in reading order, however many rows come at once."""
    rng = np.random.default_rng(seed)
    weights = (rng.integers(-4, 5, shape) / 8).astype(np.float32)
    magnitude = np.abs(weights)
    order = np.argsort(-magnitude, axis=1, kind="stable")
    ranked = np.take_along_axis(magnitude, order, 1).astype(np.float64)
    before = ranked.cumsum(1) - ranked
    kept = before < 0.6 * ranked.sum(1, keepdims=True) if rule == "mass" else np.arange(shape[1]) < 2
    chosen = np.zeros(shape, bool)
    np.put_along_axis(chosen, order, np.broadcast_to(kept, shape), 1)
    some = weights[weights != 0].astype(np.float64)
    if rule == "value":
        chosen = magnitude >= 0.25
    elif rule == "mean+std":
        chosen = weights > (some.mean() + some.std() if some.size else 0.0)
    pairs = np.argwhere(chosen & (magnitude > 0))
    expected = pairs[np.argsort(-magnitude[pairs[:, 0], pairs[:, 1]], kind="stable")]

    blocks = [(low, weights[low : low + step]) for low in range(0, shape[0], step)]
    found = edges.find_strongest(lambda: iter(blocks), rule, limit, k=2, mass=0.6, value=0.25)
    assert found.total == len(expected)
    np.testing.assert_array_equal(found.pairs, expected[:limit])
    np.testing.assert_array_equal(found.weights, weights[tuple(expected[:limit].T)])
