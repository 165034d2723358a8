"""Spectrum of the query-key products: the share of the energy in the first singular values of each layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.declarations import NoParams
from ..measures.projections import COUNTS
from ..studies.results.summary import column_index
from .figure import Drawing, Figure, FigureData, values
from .theme import Palette, axis, describe_values, layout, to_json, value_axis

NAME = "qk_spectrum_layer"


def draw(data: FigureData, params: NoParams, palette: Palette) -> Drawing:
    """Draw a line per layer, from light (first) to strong (last): the share of the energy in the first 1, 2, 4, ... singular values."""
    measured, layers = values(data, NAME), list(data.document["layers"])  # [L, C]
    largest = int(np.nanmax(measured[:, column_index(NAME, "most")], initial=1))
    counts = [count for count in COUNTS if count <= largest]
    shares = measured[:, [column_index(NAME, f"share_{count}") for count in counts]]  # [L, counts]
    needed = measured[:, column_index(NAME, "dims_90")]
    colours = palette.ramp(len(layers))
    lines = [
        {
            "type": "scatter",
            "name": f"layer {layer}",
            "showlegend": place in (0, len(layers) - 1),
            "x": counts,
            "y": to_json(shares[place]),
            "mode": "lines+markers",
            "line": {"color": colours[place], "width": 1.5},
            "marker": {"size": 4},
            "customdata": [[layer, None]] * len(counts),
            "hovertemplate": f"Layer {layer}<br>first %{{x}} singular values: %{{y:.1%}}<extra></extra>",
        }
        for place, layer in enumerate(layers)
    ]
    offset = _offset(data)
    at = f", at offset {offset}" if offset else ""
    x = axis(palette, f"number of singular values, largest first{at}", type="log", tickvals=counts)
    return Drawing(
        lines,
        layout(
            palette,
            x | {"ticktext": [str(count) for count in counts], "tickangle": 0},
            value_axis(palette, "share of the energy (sum of squares)", range=[0, 1.02], tickformat=".0%"),
            legend={"x": 1, "y": 0.02, "xanchor": "right", "yanchor": "bottom"} if len(layers) > 1 else None,
        ),
        describe_values(
            "Singular values needed for 90 % of the energy of the query-key product", layers, needed.tolist(), "layer"
        ),
        ("layer", *(f"share_{count}" for count in counts), "values_for_90_percent"),
        [[layer, *to_json([*shares[at], needed[at]], 7)] for at, layer in enumerate(layers)],
    )


def _offset(data: FigureData) -> int:
    """Return the offset between query and key at which the products were taken."""
    chosen: dict[str, Any] = next((each for each in data.document["request"]["measures"] if each["name"] == NAME), {})
    return int(chosen.get("offset", 0))


SPECTRUM = Figure(
    name="spectrum",
    title="Spectrum",
    doc="The share of the energy in the first singular values of a layer's query-key product (all heads together), one line per layer from light to strong. A line that rises "
    "early belongs to a layer whose heads share directions.",
    not_="Not about this text: it reads the model's weights alone, without biases and without the distribution of hidden states.",
    citation="Cordonnier, Loukas & Jaggi 2020, Multi-Head Attention: Collaborate Instead of Concatenate, fig. 1",
    range=(0.0, 1.0),
    measures=(NAME,),
    draw=draw,
)
