"""How widely queries spread their attention: one violin per layer, or per head of a layer."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from ..errors import Unknown
from ..measures import MEASURES
from ..measures.entropy import Unit, convert
from .figure import Array, Drawing, Figure, LensParams, Numbers, values
from .paper import Palette, axis, layout, listed, plain, positions
from .violin import Violin, density, violins

EntropyLens: Any = Literal[MEASURES["entropy"].lenses]
TITLES: dict[Unit, str] = {
    "nats": "entropy (nats)",
    "bits": "entropy (bits)",
    "perplexity": "perplexity (tokens)",
    "normalised": "entropy / ln(number of keys)",
}


class EntropyFigureParams(LensParams):
    """Which rows, and in what unit."""

    lens: EntropyLens = Field(default="weights", description="The lens whose maps were measured.")
    layer: int | None = Field(
        default=None, ge=0, description="One violin for each head of this layer. Without it one for each layer."
    )
    unit: Unit = Field(default="nats", description="Unit of the entropy.")


def draw(numbers: Numbers, params: EntropyFigureParams, palette: Palette) -> Drawing:
    """Violins of the entropies of all queries."""
    nats = values(numbers, "entropy", params.lens)  # [L, H, Q]
    found = convert(nats, params.unit, numbers.arrays["keys"][:, None, :])
    layers, heads = list(numbers.document["layers"]), list(numbers.document["heads"])
    if params.layer is None:
        of, names, groups = "layer", layers, list(found)
        about: list[list[int | None]] = [[layer, None] for layer in layers]
    else:
        if params.layer not in layers:
            raise Unknown("layer", f"The analysis has the layers {layers[0]} to {layers[-1]}.", pointer="/layer")
        of, names, groups = "head", heads, list(found[layers.index(params.layer)])
        about = [[params.layer, head] for head in heads]
    drawn = [_violin(group, f"{of} {name}", one) for group, name, one in zip(groups, names, about, strict=True)]
    title = TITLES[params.unit]
    what = f"Median {title}" if params.layer is None else f"Median {title} in layer {params.layer}"
    return Drawing(
        violins(drawn, palette, "quartiles"),
        layout(
            palette,
            positions(palette, of if params.layer is None else f"head of layer {params.layer}", names),
            axis(palette, title, grid=True, rangemode="tozero"),
        ),
        listed(what, names, [np.nan if one is None else one.middle for one in drawn], of),
        ("layer", "head", "queries", "minimum", "lower_quartile", "median", "upper_quartile", "maximum", "mean"),
        [[*one, *_row(group)] for one, group in zip(about, groups, strict=True)],
    )


def _defined(group: Array) -> Array:
    flat: Array = group[np.isfinite(group)]
    return flat


def _violin(group: Array, label: str, about: list[int | None]) -> Violin | None:
    defined = _defined(group)
    if defined.size == 0:
        return None
    low, middle, high = np.quantile(defined, [0.25, 0.5, 0.75])
    return Violin(*density(defined), low, middle, high, label.capitalize(), about)


def _row(group: Array) -> list[int | float | None]:
    """Number of queries, five quantiles and the mean of a group."""
    defined = _defined(group)
    if defined.size == 0:
        return [0, *[None] * 6]
    return [defined.size, *plain([*np.quantile(defined, [0, 0.25, 0.5, 0.75, 1]), defined.mean()], 7)]


ENTROPY = Figure(
    name="entropy",
    title="Entropy",
    doc="How widely queries spread their attention: one violin per layer, or per head of one layer, over all queries. The dot is the median, the bar spans the quartiles.",
    not_="Not comparable between texts of different length unless normalised, and a violin is a smoothed outline: between few queries it shows values that none of them has.",
    citation="Entropy: Shannon 1948; violins: Hintze & Nelson 1998; bandwidth: Silverman 1986, eq. 3.31",
    params=EntropyFigureParams,
    unit="nats",
    range=(0.0, None),
    measures=("entropy",),
    draw=draw,
)
