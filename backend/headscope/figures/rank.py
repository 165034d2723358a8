"""How many dimensions each head uses, head by head and layer by layer."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from pydantic import Field

from .figure import Array, Drawing, Figure, LensParams, Numbers, column, values
from .paper import Palette, axis, layout, listed, plain, positions

NAME = "rank"
# Width that the heads of a layer take, in distances between layers.
SPREAD = 0.72
# Of more heads than this the dots are smaller.
MANY = 200


class RankFigureParams(LensParams):
    """Which map, and which of the numbers."""

    kind: Literal["numerical", "stable", "effective", "participation"] = Field(
        default="effective", description="Which answer to how many dimensions; see the measure."
    )


def draw(numbers: Numbers, params: RankFigureParams, palette: Palette) -> Drawing:
    """A dot per head, by number from left to right within its layer, and a line at the median of the layer."""
    found = values(numbers, NAME, params.lens)[..., column(NAME, params.kind)]  # [L, H]
    layers, heads = list(numbers.document["layers"]), list(numbers.document["heads"])
    offsets = np.linspace(-SPREAD / 2, SPREAD / 2, found.shape[1]) if found.shape[1] > 1 else np.zeros(1)
    places = np.arange(len(layers))[:, None] + offsets  # [L, H]
    middles = _medians(found)
    dots = {
        "type": "scatter",
        "x": plain(places),
        "y": plain(found),
        "mode": "markers",
        "marker": {
            "size": 6 if found.size <= MANY else 4,
            "color": palette.tint(palette.more, 0.8),
            "line": {"width": 0},
        },
        "customdata": [[layer, head] for layer in layers for head in heads],
        "hovertemplate": "Head %{customdata[0]}.%{customdata[1]}<br>%{y:.3g} dimensions<extra></extra>",
    }
    ends = [end for place in range(len(layers)) for end in (place - 0.45, place + 0.45, None)]
    levels = [level for middle in plain(middles) for level in (middle, middle, None)]
    lines = {"type": "scatter", "x": ends, "y": levels, "mode": "lines", "hoverinfo": "skip"}
    title = f"{params.kind} rank (dimensions)"
    return Drawing(
        [dots, lines | {"line": {"color": palette.ink, "width": 1.5}}],
        layout(palette, positions(palette, "layer", layers), axis(palette, title, grid=True, rangemode="tozero")),
        listed(f"Median {params.kind} rank of the heads", layers, middles.tolist(), "layer"),
        ("layer", "head", f"{params.kind}_rank"),
        [[layer, head, *plain([found[at, to]], 7)] for at, layer in enumerate(layers) for to, head in enumerate(heads)],
    )


def _medians(found: Array) -> Array:
    """Median of what is defined in each row; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without any value
        medians: Array = np.nanmedian(found, axis=1)
    return medians


RANK = Figure(
    name="rank",
    title="Rank",
    doc="How many dimensions the map of each head uses: a dot per head, by number from left to right within its layer, and a line at the median of the layer.",
    not_="Not a judgement on heads: attending to one token at every query is rank 1 and may be all that is needed. Compare texts of the same length.",
    citation="Effective rank: Roy & Vetterli 2007; stable rank: Rudelson & Vershynin 2007",
    params=RankFigureParams,
    unit="dimensions",
    range=(0.0, None),
    measures=(NAME,),
    draw=draw,
)
