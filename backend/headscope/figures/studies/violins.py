"""Violins from what a study counts: entropies of rows by layer or head, and cosines between tokens by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from ...core.csv_text import Cell
from ...errors import Unknown
from ...measures.hidden import BINS
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import ABOVE, Palette, layout, listed, plain, positions
from ..violin import Violin, density_of_counts, violins
from .figure import Array, MapParams, StudyFigure, VariantParams, column, mean_of, means
from .panels import plain_axis

QUARTILES = (0.25, 0.5, 0.75)


class StudyEntropyParams(MapParams):
    """Which map, and of which layer."""

    layer: int | None = Field(
        default=None, ge=0, description="One violin for each head of this layer. Without it one for each layer."
    )


def entropy(study: StudySummary, params: StudyEntropyParams, palette: Palette) -> Drawing:
    """Violins of the entropies of all rows of all inputs."""
    stat = study.stat("entropy", params.lens, params.variant)
    one = study.variant(params.variant)
    found = means(study, "entropy", params.lens, params.variant)  # [L, H]
    counts, layers, heads = stat.histogram, one["layers"], one["heads"]
    about: list[list[int | None]]
    if params.layer is None:
        of, names, about = "layer", layers, [[layer, None] for layer in layers]
        counts, found = counts.sum(1), found.of(lambda values: mean_of(values, -1))
        bounds = np.nanmin(stat.low, 1), np.nanmax(stat.high, 1)
    else:
        if params.layer not in layers:
            raise Unknown("layer", f"The study has the layers {layers[0]} to {layers[-1]}.", pointer="/layer")
        at = layers.index(params.layer)
        of, names, about = "head", heads, [[params.layer, head] for head in heads]
        counts, found = counts[at], found.of(lambda values: values[..., at, :])
        bounds = stat.low[at], stat.high[at]
    quantiles = np.array([[quantile(row, stat.edges, q) for q in QUARTILES] for row in counts]).clip(
        bounds[0][:, None], bounds[1][:, None]
    )
    drawn = [
        _smoothed(row, stat.edges, ends, middle, f"{of.capitalize()} {name}", each)
        for row, ends, middle, name, each in zip(
            counts, zip(*bounds, strict=True), quantiles, names, about, strict=True
        )
    ]
    where = "" if params.layer is None else f" in layer {params.layer}"
    low, high = found.interval()
    return Drawing(
        violins(drawn, palette, "quartiles"),
        layout(
            palette,
            positions(palette, of if params.layer is None else f"head of layer {params.layer}", names),
            plain_axis(palette, "entropy of a row (nats)", rangemode="tozero"),
        ),
        listed(f"Median entropy in nats{where}, to {stat.edges[1] - stat.edges[0]:g}", names, quantiles[:, 1].tolist(), of),
        ("layer", "head", "rows", "minimum", "lower_quartile", "median", "upper_quartile", "maximum", "bin_width", "mean", "low", "high"),
        [
            [*each, int(counts[at].sum()), *plain([bounds[0][at], *quantiles[at], bounds[1][at], stat.edges[1] - stat.edges[0], found.mean[at], low[at], high[at]], 10)]
            for at, each in enumerate(about)
        ],
    )  # fmt: skip


def _smoothed(
    counts: Array, edges: Array, ends: tuple[float, float], quartiles: Array, label: str, about: list[int | None]
) -> Violin | None:
    """A violin of values that were counted, between the smallest and the largest one."""
    if not counts.any():
        return None
    low, middle, high = quartiles
    return Violin(*density_of_counts(counts, edges, *ends), low, middle, high, label, about)


def quantile(counts: Array, edges: Array, q: float) -> float:
    """A quantile of what was counted between edges, evenly spread within a bin; NaN of nothing."""
    total = np.concatenate([[0.0], np.cumsum(counts)])
    if total[-1] == 0:
        return np.nan
    return float(np.interp(q * total[-1], total, edges))


def _violin(counts: Array, edges: Array, bounds: Sequence[float], label: str, about: list[int | None]) -> Violin | None:
    """A violin whose outline are the counts themselves, from the empty bin before the first to that after the last."""
    known = np.flatnonzero(counts)
    if known.size == 0:
        return None
    span = slice(max(0, known[0] - 1), known[-1] + 2)
    low, middle, high = bounds
    middles = (edges[:-1] + edges[1:]) / 2
    return Violin(middles[span], counts[span].astype(float), low, middle, high, label, about)


ENTROPY = StudyFigure(
    name="entropy",
    title="Entropy by layer and head",
    doc="How widely queries spread their attention over all inputs: a violin per layer, or per head of one layer. The dot is the median, the bar spans the "
    "quartiles, the outline is a histogram. "
    "The table has the mean over inputs with its 95 % bootstrap interval.",
    not_="Not comparable between texts of different length: a row over n tokens can have ln n nats at most. The paper's axis is in nats, too, for 197 tokens of an "
    "image.",
    citation="Masumura & Taki 2025, figs. 13 to 20",
    params=StudyEntropyParams,
    unit="nats",
    range=(0.0, None),
    measures=("entropy",),
    of_one=True,
    draw=entropy,
)

SIMILARITY = "token_similarity"
EDGES = np.linspace(-1, 1, BINS + 1)
SIGNS = (("mode", "diamond-open"), ("mean", "x-thin"))


def token_similarity(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Violins of the mean histogram over inputs; the dot is the median, a diamond the mode, a cross the mean."""
    found = means(study, SIMILARITY, "weights", params.variant)  # [L, C]
    layers = study.variant(params.variant)["layers"]
    first = column(SIMILARITY, "bin_00")
    middles = found.of(lambda values: values[..., column(SIMILARITY, "mean")])
    low, high = middles.interval()
    rows, drawn, modes = list[list[Cell]](), list[Violin | None](), list[float]()
    for at, layer in enumerate(layers):
        parts = np.nan_to_num(found.mean[at, first : first + BINS])
        bounds = [quantile(parts, EDGES, q) for q in (0.05, 0.5, 0.95)]
        mode = float(EDGES[parts.argmax()] + 1 / BINS) if parts.any() else np.nan
        modes.append(mode)
        drawn.append(_violin(parts, EDGES, bounds, f"Layer {layer}", [layer, None]))
        numbers = [mode, bounds[1], middles.mean[at], low[at], high[at], bounds[0], bounds[2], EDGES[1] - EDGES[0]]
        rows.append([layer, *plain(numbers, 10)])
    marks = [
        _marks(name, sign, values, layers, palette)
        for (name, sign), values in zip(SIGNS, (modes, middles.mean.tolist()), strict=True)
    ]
    outlines = [{**each, "showlegend": False} for each in violins(drawn, palette, "5 % to 95 % of pairs:")]
    return Drawing(
        [*outlines, *marks],
        layout(
            palette,
            positions(palette, "after layer", layers),
            plain_axis(palette, "cosine of two tokens"),
            legend=ABOVE,
        ),
        f"{listed(f'Mode of the cosine of two tokens after each layer, to {EDGES[1] - EDGES[0]:g}', layers, modes, 'layer')} "
        f"{listed('Mean', layers, middles.mean.tolist(), 'layer')}",
        ("layer", "mode", "median", "mean", "low", "high", "quantile_5", "quantile_95", "bin_width"),
        rows,
    )


def _marks(name: str, sign: str, values: Sequence[float], layers: Sequence[int], palette: Palette) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "mode": "markers",
        "x": list(range(len(layers))),
        "y": plain(values),
        "marker": {"symbol": sign, "size": 9, "color": palette.less, "line": {"color": palette.less, "width": 2}},
        "customdata": [[layer, None] for layer in layers],
        "hovertemplate": f"Layer %{{customdata[0]}}<br>{name} %{{y:.3g}}<extra></extra>",
    }


TOKEN_SIMILARITY = StudyFigure(
    name="token-similarity",
    title="Token similarity by layer",
    doc="How alike the tokens have become after each layer: violins of the cosines between all pairs of hidden states of an input, averaged over inputs. The dot is "
    "the median, the bar spans 5 % to 95 % of the pairs, "
    "a diamond marks the mode and a cross the mean.",
    not_="Not similarity of meaning: a few large dimensions can put every cosine near 1. Every input counts once, whatever its length; the mode is the middle of the "
    "fullest of 40 bins, "
    "where the paper does not say how it smooths, nor how many inputs it pools.",
    citation="Masumura & Taki 2025, figs. 4 to 12",
    params=VariantParams,
    range=(-1.0, 1.0),
    measures=(SIMILARITY,),
    of_one=True,
    draw=token_similarity,
)
