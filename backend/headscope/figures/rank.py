"""Rank of the maps: how many dimensions each head uses, by layer."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
from pydantic import Field

from ..core.arrays import Array
from ..studies.results.summary import pick_column
from .figure import Drawing, Figure, FigureData, LensParams, values
from .theme import Palette, describe_values, head_dots, layout, positions, rows_by_head, to_json, value_axis

NAME = "rank"
# Width of the heads of a layer, in units of the distance between layers.
SPREAD = 0.72
# Dots are smaller for more heads than this.
MANY = 200


class RankFigureParams(LensParams):
    """Which lens, and which rank."""

    kind: Literal["numerical", "stable", "effective", "participation"] = Field(
        default="effective", description="Which rank; see the measure."
    )


def draw(data: FigureData, params: RankFigureParams, palette: Palette) -> Drawing:
    """Draw a dot per head, by number from left to right within its layer, and a line at the median of the layer."""
    ranks = pick_column(NAME, params.kind)(values(data, NAME, params.lens))  # [L, H]
    layers, heads = list(data.document["layers"]), list(data.document["heads"])
    middles = _medians(ranks)
    dots = head_dots(ranks, layers, heads, SPREAD) | {
        "marker": {
            "size": 6 if ranks.size <= MANY else 4,
            "color": palette.tint(palette.more, 0.8),
            "line": {"width": 0},
        },
        "customdata": rows_by_head(layers, heads),
        "hovertemplate": "Head %{customdata[0]}.%{customdata[1]}<br>%{y:.3~r} dimensions<extra></extra>",
    }
    ends = [end for place in range(len(layers)) for end in (place - 0.45, place + 0.45, None)]
    levels = [level for middle in to_json(middles) for level in (middle, middle, None)]
    lines = {"type": "scatter", "x": ends, "y": levels, "mode": "lines", "hoverinfo": "skip"}
    title = f"{params.kind} rank (dimensions)"
    return Drawing(
        [dots, lines | {"line": {"color": palette.ink, "width": 1.5}}],
        layout(palette, positions(palette, "layer", layers), value_axis(palette, title, rangemode="tozero")),
        describe_values(f"Median {params.kind} rank of the heads", layers, middles.tolist(), "layer"),
        ("layer", "head", f"{params.kind}_rank"),
        rows_by_head(layers, heads, ranks, digits=7),
    )


def _medians(ranks: Array) -> Array:
    """Return the median of the defined values in each row; NaN where there are none."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # rows without any value
        medians: Array = np.nanmedian(ranks, axis=1)
    return medians


RANK = Figure(
    name="rank",
    title="Rank",
    doc="How many dimensions the map of each head uses: one dot per head, ordered by number within its layer, and a line at the median of the layer.",
    not_="Not a quality score: a head that attends to one token at every query has rank 1, which may be all that is needed. Compare texts of the same length.",
    citation="Effective rank: Roy & Vetterli 2007; stable rank: Rudelson & Vershynin 2007",
    params=RankFigureParams,
    unit="dimensions",
    range=(0.0, None),
    measures=(NAME,),
    draw=draw,
)
