"""Figures hold the numbers of the measures: against slow references, and as figures that plotly takes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import headscope
import headscope.figures
from headscope import FIGURES
from headscope.errors import InvalidRequest, NotReady, Unknown, Unsupported
from headscope.figures.theme import PALETTES, format_number
from headscope.figures.violin import POINTS, density
from headscope.measures import MEASURES
from headscope.store.export import Flat
from tests.support.variants import variants
from tests.unit.figures import fixed

NEEDED = sorted({measure for figure in FIGURES.values() for measure in figure.measures})
TEXT = "The boats lay by the river bank while Headscope and the bank in town kept the money they had earned."
STYLES = Path(__file__).parents[3] / "frontend" / "src" / "app" / "styles.css"


@pytest.fixture(scope="module")
def analysis(minilm: headscope.Model) -> headscope.Analysis:
    """An analysis with everything that figures need."""
    return headscope.analyze(minilm, TEXT, lenses=("weights", "effective", "max-entropy"), measures=NEEDED)


def rows(analysis: headscope.Analysis, name: str, **params: Any) -> list[dict[str, str]]:
    """The figure's table."""
    figure = FIGURES[name]
    held = Flat(analysis.to_document(), analysis.to_arrays())
    return list(csv.DictReader(io.StringIO(figure.build(held, figure.params(**params)).csv())))


def slow_density(values: list[float], places: list[float]) -> list[float]:
    """The definition, kernel by kernel."""
    ordered, n = sorted(values), len(values)
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / n)

    def quantile(share: float) -> float:
        place = share * (n - 1)
        low = math.floor(place)
        high = min(low + 1, n - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    width = 0.9 * min(deviation, (quantile(0.75) - quantile(0.25)) / 1.34) * n**-0.2
    scale = n * width * math.sqrt(2 * math.pi)
    return [math.fsum(math.exp(-(((at - value) / width) ** 2) / 2) for value in values) / scale for at in places]


@pytest.mark.parametrize("kind", ["normal", "two hills", "skewed", "few"])
def test_density_is_the_kernel_density(kind: str) -> None:
    """To 1 % of its highest place: values are counted in cells first."""
    random = np.random.default_rng(0)
    values = {
        "normal": random.normal(3, 0.5, 700),
        "two hills": np.concatenate([random.normal(0, 1, 300), random.normal(6, 0.5, 200)]),
        "skewed": random.exponential(2, 500),
        "few": np.array([0.1, 0.5, 0.9, 2.2]),
    }[kind]
    places, found = density(values)
    assert (places[0], places[-1], len(places)) == (values.min(), values.max(), POINTS)
    reference = slow_density(values.tolist(), places.tolist())
    assert np.allclose(found, reference, atol=0.01 * max(reference))


def test_density_of_equal_values_is_nothing() -> None:
    assert not density(np.full(9, 1.5))[1].any()
    assert not density(np.array([2.0]))[1].any()


@variants("theme", PALETTES)
@variants("name", FIGURES)
def test_plotly_takes_every_figure(analysis: headscope.Analysis, name: str, theme: Any) -> None:
    """Every property is one of plotly's, every number is finite, the axes are named, and there are words for it."""
    figure = analysis.figure(name, theme=theme)
    assert isinstance(figure, go.Figure)
    json.dumps(json.loads(figure.to_json()), allow_nan=False)
    assert figure.layout.xaxis.title.text
    assert figure.layout.yaxis.title.text
    assert re.search(r"\d", figure.layout.meta["sentence"])
    assert figure.layout.paper_bgcolor == PALETTES[theme].paper
    assert len(figure.data) >= 1


@pytest.mark.parametrize("unit", ["nats", "bits", "perplexity", "normalised"])
def test_entropy_by_layer_and_by_head(analysis: headscope.Analysis, unit: Any) -> None:
    """Quantiles of what the rows themselves give."""
    maps = analysis.maps["weights"].astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        rows_ = -np.where(maps > 0, maps * np.log(maps), 0).sum(-1)  # [L, H, Q]
    n = maps.shape[-1]
    expected = {"nats": rows_, "bits": rows_ / np.log(2), "perplexity": np.exp(rows_), "normalised": rows_ / np.log(n)}
    by_layer = rows(analysis, "entropy", unit=unit)
    assert [row["layer"] for row in by_layer] == [str(layer) for layer in range(6)]
    for layer, row in enumerate(by_layer):
        of = expected[unit][layer]
        found = [float(row[name]) for name in ("minimum", "lower_quartile", "median", "upper_quartile", "maximum")]
        assert np.allclose(found, np.quantile(of, [0, 0.25, 0.5, 0.75, 1]), rtol=1e-3, atol=2e-4)
        assert float(row["mean"]) == pytest.approx(of.mean(), rel=1e-3)
        assert int(row["queries"]) == of.size
    for head, row in enumerate(rows(analysis, "entropy", unit=unit, layer=2)):
        assert (row["layer"], row["head"]) == ("2", str(head))
        assert float(row["median"]) == pytest.approx(np.median(expected[unit][2, head]), rel=1e-3)


def test_rows_without_a_reading_are_left_out(analysis: headscope.Analysis) -> None:
    defined = np.isfinite(analysis.measures["entropy"]["max-entropy"]).sum((1, 2))
    assert [int(row["queries"]) for row in rows(analysis, "entropy", lens="max-entropy")] == defined.tolist()


def test_residual_ratio_and_similarity_are_the_measures(analysis: headscope.Analysis) -> None:
    found = [float(row["residual_ratio"]) for row in rows(analysis, "residual_ratio")]
    assert np.allclose(found, analysis.measures["residual_ratio"]["weights"], rtol=1e-5)
    figure = analysis.figure("residual_ratio")
    low, high = figure.layout.yaxis.range
    assert all(low < math.log10(value) < high for value in found)
    assert len(figure.layout.yaxis.tickvals) >= 2
    similar = analysis.measures["token_similarity"]["weights"]
    for layer, row in enumerate(rows(analysis, "token_similarity")):
        assert np.allclose([float(value) for value in list(row.values())[1:]], similar[layer], rtol=1e-5, atol=1e-7)


def test_a_head_has_the_same_place_in_every_layer(analysis: headscope.Analysis) -> None:
    """Each dot is the effective rank of its map; customdata names its head."""
    dots = analysis.figure("rank", lens="effective").data[0]
    for (layer, head), x, y in zip(dots.customdata, dots.x, dots.y, strict=True):
        sigma = np.linalg.svd(analysis.maps["effective"][layer, head].astype(float), compute_uv=False)
        shares = sigma / sigma.sum()
        shares = shares[shares > 0]
        assert y == pytest.approx(math.exp(-(shares * np.log(shares)).sum()), rel=1e-3)
        assert x == pytest.approx(layer - 0.36 + 0.72 * head / 11, abs=1e-4)


def test_patterns_are_counted(analysis: headscope.Analysis) -> None:
    """Shares of each layer and of all sum to 1 and are the classes of the measure."""
    classes = analysis.measures["patterns"]["weights"][..., MEASURES["patterns"].columns.index("class")]
    table = rows(analysis, "patterns")
    for layer in [*range(6), "all"]:
        of = classes if layer == "all" else classes[layer]
        here = [row for row in table if row["layer"] == str(layer)]
        assert [int(row["heads"]) for row in here] == [(of == kind).sum() for kind in range(6)]
        assert sum(float(row["share"]) for row in here) == pytest.approx(1)
    bars = analysis.figure("patterns").data
    assert np.allclose(np.sum([bar.y for bar in bars], axis=0), 1)
    assert len({bar.marker.color for bar in bars}) == len(bars)


def test_token_types_are_means_over_heads(analysis: headscope.Analysis) -> None:
    """The largest weight from the first token to a token of each kind."""
    weights = analysis.maps["weights"][:, :, 0].reshape(72, -1)
    table = {(row["lens"], row["type"]): row for row in rows(analysis, "token_types")}
    for kind in ("special", "punct", "word", "subword"):
        here = [place for place, token in enumerate(analysis.tokens) if token.kind == kind]
        assert float(table["weights", kind]["mean"]) == pytest.approx(weights[:, here].max(-1).mean(), rel=1e-4)
    assert analysis.figure("token_types").layout.yaxis.title.text == "largest attention of the first token"
    assert ("effective", "special") in table


def test_title_of_token_types_says_its_parameters(minilm: headscope.Model) -> None:
    measure = {"name": "token_types", "query": "all", "aggregate": "sum"}
    a = headscope.analyze(minilm, TEXT, lenses=("weights",), measures=(measure,))
    assert a.figure("token_types").layout.yaxis.title.text == "summed attention of all tokens"
    assert sum(float(row["mean"]) for row in rows(a, "token_types")) == pytest.approx(1, abs=1e-4)


def test_spectrum_is_that_of_the_weights(analysis: headscope.Analysis, minilm: headscope.Model) -> None:
    """Of W_Q W_Kᵀ over all heads, layer by layer."""
    table = rows(analysis, "spectrum")
    for layer, row in enumerate(table):
        attention = minilm.module.encoder.layer[layer].attention.self
        product = attention.query.weight.detach().double().T @ attention.key.weight.detach().double()
        energy = np.linalg.svd(product.numpy(), compute_uv=False) ** 2
        for count in (1, 8, 64):
            assert float(row[f"share_{count}"]) == pytest.approx(energy[:count].sum() / energy.sum(), rel=1e-4)
    assert "share_256" in table[0]
    assert "share_512" not in table[0], "there are 384 singular values"


def test_figures_of_part_of_a_model(ids: Callable[[int], list[int]], tiny: headscope.Model) -> None:
    """Layers and heads keep their numbers; a figure of one layer and one head is drawn like any other."""
    a = headscope.analyze(tiny, token_ids=ids(9), layers=[1], heads=[2], measures=("entropy", "patterns", "rank"))
    assert [tuple(place) for place in a.figure("rank").data[0].customdata] == [(1, 2)]
    assert rows(a, "entropy", layer=1)[0]["head"] == "2"
    assert rows(a, "patterns")[0]["layer"] == "1"
    with pytest.raises(Unknown, match="layers: 1 to 1"):
        a.figure("entropy", layer=0)


def test_one_token(minilm: headscope.Model) -> None:
    """Nothing is spread, no pair is there: figures are drawn all the same, and say so."""
    a = headscope.analyze(minilm, token_ids=[101], lenses=("weights",), measures=NEEDED)
    for name in FIGURES:
        assert isinstance(a.figure(name), go.Figure)
    assert "not defined" in a.figure("token_similarity").layout.meta["sentence"]


def test_what_is_refused(minilm: headscope.Model) -> None:
    a = headscope.analyze(minilm, "The cat sat.", measures=("entropy",))
    with pytest.raises(Unknown, match="entropy, token_similarity"):
        a.figure("no-such-figure")
    with pytest.raises(NotReady, match="needs the measure rank"):
        a.figure("rank")
    with pytest.raises(Unsupported, match="computed for: weights"):
        a.figure("entropy", lens="max-entropy")
    with pytest.raises(InvalidRequest, match="colour"):
        a.figure("entropy", colour="red")


@variants("name", FIGURES)
def test_declarations(name: str) -> None:
    """Measures that exist, words, and a source."""
    described = FIGURES[name].describe()
    assert set(described["measures"]) <= set(MEASURES)
    assert all(described[field] for field in ("title", "doc", "not", "citation"))


@pytest.mark.parametrize("theme", PALETTES)
def test_colours_are_those_of_the_page(theme: Any) -> None:
    """Written down twice, for two languages; they must not drift apart."""
    styles = STYLES.read_text("utf-8")
    light, dark = styles.index("--paper:"), styles.index("--paper:", styles.index('[data-theme="dark"]'))
    block = styles[light if theme == "light" else dark :].partition("}")[0]
    page = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    assert vars(PALETTES[theme]) == {name: page[name.replace("_", "-")] for name in vars(PALETTES[theme])}


def test_ramp_is_distinct_at_any_length() -> None:
    for palette in PALETTES.values():
        for count in (1, 2, 6, 36):
            assert len(set(palette.ramp(count))) == count


def alike(one: Any, other: Any) -> bool:
    """The same data, but for the last digits of numbers, which differ between processors."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-6)
    return bool(one == other)


def test_figures_of_the_gallery_are_what_is_drawn() -> None:
    """Else: .venv/bin/python -m tests.unit.figures.fixed"""
    assert alike(json.loads(fixed.FILE.read_text("utf-8")), json.loads(json.dumps(fixed.drawn())))


def test_numbers_of_sentences_are_written_in_one_way() -> None:
    """Three digits, a real minus sign, and powers of ten instead of e-notation."""
    numbers = [0, 1, -0.25, 12345, 0.00123, 7.29e-5, -1e-6, 1.234e9, float("nan")]
    written = [
        "0",
        "1",
        "\u22120.25",
        "12300",
        "0.00123",
        "7.29\u00b710\u207b\u2075",
        "\u221210\u207b\u2076",
        "1.23\u00b710\u2079",
        "not defined",
    ]
    assert [format_number(number) for number in numbers] == written
