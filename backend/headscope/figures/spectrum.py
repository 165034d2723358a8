"""How few singular values hold how much of what the query-key products of a layer can do."""

from __future__ import annotations

import numpy as np

from ..core.declarations import NoParams
from ..measures.projections import COUNTS
from .figure import Drawing, Figure, Numbers, column, values
from .paper import Palette, axis, layout, listed, plain

NAME = "qk_spectrum_layer"


def draw(numbers: Numbers, params: NoParams, palette: Palette) -> Drawing:
    """A line per layer, from light (first) to strong (last): the share of the energy that the first 1, 2, 4, ... singular values hold."""
    found, layers = values(numbers, NAME), list(numbers.document["layers"])  # [L, C]
    most = int(np.nanmax(found[:, column(NAME, "most")], initial=1))
    counts = [count for count in COUNTS if count <= most]
    shares = found[:, [column(NAME, f"share_{count}") for count in counts]]  # [L, counts]
    half = found[:, column(NAME, "dims_90")]
    colours = palette.ramp(len(layers))
    lines = [
        {
            "type": "scatter",
            "name": f"layer {layer}",
            "showlegend": place in (0, len(layers) - 1),
            "x": counts,
            "y": plain(shares[place]),
            "mode": "lines+markers",
            "line": {"color": colours[place], "width": 1.5},
            "marker": {"size": 4},
            "customdata": [[layer, None]] * len(counts),
            "hovertemplate": f"Layer {layer}<br>first %{{x}} singular values: %{{y:.1%}}<extra></extra>",
        }
        for place, layer in enumerate(layers)
    ]
    x = axis(palette, "number of singular values, largest first", type="log", tickvals=counts)
    return Drawing(
        lines,
        layout(
            palette,
            x | {"ticktext": [str(count) for count in counts], "tickangle": 0},
            axis(palette, "share of the energy (sum of squares)", grid=True, range=[0, 1.02], tickformat=".0%"),
            legend={"x": 1, "y": 0.02, "xanchor": "right", "yanchor": "bottom"} if len(layers) > 1 else None,
        ),
        listed("Singular values that hold 90 % of the energy of the query-key product", layers, half.tolist(), "layer"),
        ("layer", *(f"share_{count}" for count in counts), "values_for_90_percent"),
        [[layer, *plain([*shares[at], half[at]], 7)] for at, layer in enumerate(layers)],
    )


SPECTRUM = Figure(
    name="spectrum",
    title="Spectrum",
    doc="How few singular values of a layer's query-key product (all heads together) hold how much of its energy; a line per layer, from light to strong. "
    "A line that rises early is a layer whose heads share directions.",
    not_="Not about this text: it reads the weights alone, without biases and without the distribution of hidden states.",
    citation="Cordonnier, Loukas & Jaggi 2020, Multi-Head Attention: Collaborate Instead of Concatenate, fig. 1",
    range=(0.0, 1.0),
    measures=(NAME,),
    draw=draw,
)
