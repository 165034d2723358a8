"""Violins from the histograms of a study: entropies of rows by layer or head, and cosines between tokens by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from ...core.arrays import Array
from ...core.csv_text import Cell
from ...measures.hidden import BINS
from ...studies.results.summary import StudySummary, column_index, mean_over, pick_column
from ..figure import Drawing, index_of_layer
from ..hidden import EDGES
from ..theme import ABOVE, Palette, describe_values, layout, positions, to_json, value_axis
from ..violin import Violin, density_of_counts, draw_violins, group_by, histogram_violin
from .figure import MapParams, StudyFigure, VariantParams

QUARTILES = (0.25, 0.5, 0.75)


class StudyEntropyParams(MapParams):
    """Which map, and which layer."""

    layer: int | None = Field(
        default=None,
        ge=0,
        description="Draw one violin for each head of this layer; by default one for each layer.",
    )


def draw_entropy(study: StudySummary, params: StudyEntropyParams, palette: Palette) -> Drawing:
    """Draw violins of the entropies of all rows of all inputs."""
    stat = study.stat("entropy", params.lens, params.variant)
    variant = study.variant(params.variant)
    counts, found = stat.histogram, stat.means  # [L, H, BINS], [L, H]
    of, names, about = group_by(variant["layers"], variant["heads"], params.layer)
    if params.layer is None:
        counts, found = counts.sum(1), found.map(lambda values: mean_over(values, -1))
        ends = np.stack([np.nanmin(stat.low, 1), np.nanmax(stat.high, 1)], -1)
    else:
        at = index_of_layer(variant["layers"], params.layer)
        counts, found = counts[at], found.map(lambda values: values[..., at, :])
        ends = np.stack([stat.low[at], stat.high[at]], -1)  # [groups, 2]
    quantiles = np.array([[_quantile(row, stat.edges, q) for q in QUARTILES] for row in counts])  # [groups, 3]
    quantiles = quantiles.clip(ends[:, :1], ends[:, 1:])
    violins = [
        _violin(row, stat.edges, span, quartiles, f"{of.capitalize()} {name}", each)
        for row, span, quartiles, name, each in zip(counts, ends, quantiles, names, about, strict=True)
    ]
    where = "" if params.layer is None else f" in layer {params.layer}"
    width = stat.edges[1] - stat.edges[0]
    means = (found.mean, *found.interval())
    numbers = np.column_stack([ends[:, :1], quantiles, ends[:, 1:], np.full(len(names), width), *means])  # [groups, 9]
    return Drawing(
        draw_violins(violins, palette, "quartiles"),
        layout(
            palette,
            positions(palette, of if params.layer is None else f"head of layer {params.layer}", names),
            value_axis(palette, "entropy of a row (nats)", rangemode="tozero"),
        ),
        describe_values(f"Median entropy in nats{where}, to {width:g}", names, quantiles[:, 1].tolist(), of),
        (
            *("layer", "head", "rows", "minimum", "lower_quartile", "median", "upper_quartile", "maximum"),
            *("bin_width", "mean", "low", "high"),
        ),
        [
            [*each, int(row.sum()), *to_json(values, 10)]
            for each, row, values in zip(about, counts, numbers, strict=True)
        ],
    )


def _violin(
    counts: Array, edges: Array, ends: Array, quartiles: Array, label: str, about: list[int | None]
) -> Violin | None:
    """Return a violin of binned values between the smallest and the largest one."""
    if not counts.any():
        return None
    low, middle, high = quartiles
    return Violin(*density_of_counts(counts, edges, *ends), low, middle, high, label, about)


def _quantile(counts: Array, edges: Array, q: float) -> float:
    """Return a quantile of binned values, which count as uniform within a bin; NaN without values."""
    total = np.concatenate([[0.0], np.cumsum(counts)])
    if total[-1] == 0:
        return np.nan
    return float(np.interp(q * total[-1], total, edges))


ENTROPY = StudyFigure(
    name="entropy",
    title="Entropy by layer and head",
    doc="How widely queries spread their attention over all inputs: one violin per layer, or per head of one layer. The dot is the median, the bar spans the quartiles, the "
    "outline is a smoothed histogram. The table has the mean over inputs with its 95 % bootstrap interval.",
    not_="Not comparable between texts of different length: a row over n tokens has at most ln n nats. The paper's axis is in nats as well, but for 197 tokens of an image.",
    citation="Masumura & Taki 2025, figs. 13 to 20",
    params=StudyEntropyParams,
    unit="nats",
    range=(0.0, None),
    of_one=True,
    draw=draw_entropy,
)

SIMILARITY = "token_similarity"
SYMBOLS = (("mode", "diamond-open"), ("mean", "x-thin"))


def draw_token_similarity(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Draw violins of the mean histogram over inputs; the dot is the median, a diamond the mode, a cross the mean."""
    found = study.stat(SIMILARITY, "weights", params.variant).means  # [L, C]
    layers = study.variant(params.variant)["layers"]
    first = column_index(SIMILARITY, "bin_00")
    mean = found.map(pick_column(SIMILARITY, "mean"))
    low, high = mean.interval()
    width = EDGES[1] - EDGES[0]
    rows, violins, modes = list[list[Cell]](), list[Violin | None](), list[float]()
    for at, layer in enumerate(layers):
        shares = np.nan_to_num(found.mean[at, first : first + BINS])
        bounds = [_quantile(shares, EDGES, q) for q in (0.05, 0.5, 0.95)]
        mode = float(EDGES[shares.argmax()] + 1 / BINS) if shares.any() else np.nan
        modes.append(mode)
        violins.append(histogram_violin(shares, EDGES, bounds, f"Layer {layer}", [layer, None]))
        numbers = [mode, bounds[1], mean.mean[at], low[at], high[at], bounds[0], bounds[2], width]
        rows.append([layer, *to_json(numbers, 10)])
    marks = [
        _draw_marks(name, symbol, values, layers, palette)
        for (name, symbol), values in zip(SYMBOLS, (modes, mean.mean.tolist()), strict=True)
    ]
    outlines = [{**trace, "showlegend": False} for trace in draw_violins(violins, palette, "5 % to 95 % of pairs:")]
    return Drawing(
        [*outlines, *marks],
        layout(
            palette,
            positions(palette, "after layer", layers),
            value_axis(palette, "cosine of two tokens"),
            legend=ABOVE,
        ),
        f"{describe_values(f'Mode of the cosine of two tokens after each layer, to {width:g}', layers, modes, 'layer')} "
        f"{describe_values('Mean', layers, mean.mean.tolist(), 'layer')}",
        ("layer", "mode", "median", "mean", "low", "high", "quantile_5", "quantile_95", "bin_width"),
        rows,
    )


def _draw_marks(
    name: str, symbol: str, values: Sequence[float], layers: Sequence[int], palette: Palette
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "mode": "markers",
        "x": list(range(len(layers))),
        "y": to_json(values),
        "marker": {"symbol": symbol, "size": 9, "color": palette.less, "line": {"color": palette.less, "width": 2}},
        "customdata": [[layer, None] for layer in layers],
        "hovertemplate": f"Layer %{{customdata[0]}}<br>{name} %{{y:.3~r}}<extra></extra>",
    }


TOKEN_SIMILARITY = StudyFigure(
    name="token-similarity",
    title="Token similarity by layer",
    doc="How similar the tokens have become after each layer: violins of the cosines between all pairs of hidden states of an input, averaged over inputs. The dot is the "
    "median, the bar spans 5 % to 95 % of the pairs, a diamond marks the mode and a cross the mean.",
    not_="Not similarity of meaning: a few large dimensions can put every cosine near 1. Each input counts once, whatever its length. The mode is the middle of the fullest of "
    "40 bins; the paper says neither how it smooths nor how many inputs it pools.",
    citation="Masumura & Taki 2025, figs. 4 to 12",
    params=VariantParams,
    range=(-1.0, 1.0),
    of_one=True,
    draw=draw_token_similarity,
)
