"""Entropy of attention: one violin per layer, or per head of a layer."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from ..core.arrays import Array
from ..measures import MEASURES
from ..measures.concentration import Unit, convert
from .figure import Drawing, Figure, FigureData, LensParams, index_of_layer, values
from .theme import Palette, describe_values, layout, positions, to_json, value_axis
from .violin import Violin, density, draw_violins, group_by

EntropyLens: Any = Literal[MEASURES["entropy"].lenses]
TITLES: dict[Unit, str] = {
    "nats": "entropy (nats)",
    "bits": "entropy (bits)",
    "perplexity": "perplexity (tokens)",
    "normalised": "entropy / ln(number of keys)",
}


class EntropyFigureParams(LensParams):
    """Which rows, and in which unit."""

    lens: EntropyLens = Field(default="weights", description="The lens whose maps were measured.")
    layer: int | None = Field(
        default=None, ge=0, description="Draw one violin for each head of this layer; by default one for each layer."
    )
    unit: Unit = Field(default="nats", description="Unit of the entropy.")


def draw(data: FigureData, params: EntropyFigureParams, palette: Palette) -> Drawing:
    """Draw violins of the entropies of all queries."""
    nats = values(data, "entropy", params.lens)  # [L, H, Q]
    converted = convert(nats, params.unit, data.arrays["keys"][:, None, :])
    layers, heads = list(data.document["layers"]), list(data.document["heads"])
    of, names, about = group_by(layers, heads, params.layer)
    chosen = converted if params.layer is None else converted[index_of_layer(layers, params.layer)]  # [groups, ...]
    groups = [group[np.isfinite(group)] for group in chosen]
    violins = [_violin(group, f"{of} {name}", each) for group, name, each in zip(groups, names, about, strict=True)]
    title = TITLES[params.unit]
    what = f"Median {title}" if params.layer is None else f"Median {title} in layer {params.layer}"
    return Drawing(
        draw_violins(violins, palette, "quartiles"),
        layout(
            palette,
            positions(palette, of if params.layer is None else f"head of layer {params.layer}", names),
            value_axis(palette, title, rangemode="tozero"),
        ),
        describe_values(what, names, [np.nan if violin is None else violin.middle for violin in violins], of),
        ("layer", "head", "queries", "minimum", "lower_quartile", "median", "upper_quartile", "maximum", "mean"),
        [[*each, *_quantiles(group)] for each, group in zip(about, groups, strict=True)],
    )


def _violin(group: Array, label: str, about: list[int | None]) -> Violin | None:
    if group.size == 0:
        return None
    low, middle, high = np.quantile(group, [0.25, 0.5, 0.75])
    return Violin(*density(group), low, middle, high, label.capitalize(), about)


def _quantiles(group: Array) -> list[int | float | None]:
    """Return number of queries, five quantiles and mean of a group."""
    if group.size == 0:
        return [0, *[None] * 6]
    return [group.size, *to_json([*np.quantile(group, [0, 0.25, 0.5, 0.75, 1]), group.mean()], 7)]


ENTROPY = Figure(
    name="entropy",
    title="Entropy",
    doc="How widely queries spread their attention: one violin per layer, or per head of one layer, over all queries. The dot is the median, the bar spans the quartiles.",
    not_="Not comparable between texts of different length unless normalised. A violin is smoothed: with few queries it also covers values that no query has.",
    citation="Entropy: Shannon 1948; violins: Hintze & Nelson 1998; bandwidth: Silverman 1986, eq. 3.31",
    params=EntropyFigureParams,
    unit="nats",
    range=(0.0, None),
    measures=("entropy",),
    draw=draw,
)
