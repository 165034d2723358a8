"""Shares of heads by pattern class, stacked, for each layer and for all layers."""

from __future__ import annotations

import numpy as np

from ..measures import MEASURES
from ..studies.results.summary import pick_column
from .figure import Drawing, Figure, FigureData, LensParams, values
from .theme import ABOVE, Palette, axis, layout, positions, to_json

NAME = "patterns"
# Names in the legend that differ from those of the classes.
SHORT = {"vertical+diagonal": "both"}


def draw(data: FigureData, params: LensParams, palette: Palette) -> Drawing:
    """Draw stacked bars that sum to 1; the last one covers all layers."""
    kinds = pick_column(NAME, "class")(values(data, NAME, params.lens))  # [L, H]
    classes, layers = MEASURES[NAME].classes, list(data.document["layers"])
    counts = np.array([[(row == number).sum() for row in kinds] for number in range(len(classes))])  # [classes, L]
    counts = np.column_stack([counts, counts.sum(1)])
    shares = counts / np.maximum(counts.sum(0), 1)
    names: list[int | str] = [*layers, "all"]
    places = [*range(len(layers)), len(layers) + 0.4]
    bars = [
        {
            "type": "bar",
            "name": SHORT.get(name, name),
            "x": places,
            "y": to_json(shares[number]),
            "width": 0.82,
            "marker": {"color": colour, "line": {"width": 0}},
            "customdata": [
                [layer, None, int(count)] for layer, count in zip([*layers, None], counts[number], strict=True)
            ],
            "hovertemplate": f"{name}<br>%{{customdata[2]}} heads, %{{y:.0%}}<extra></extra>",
        }
        for number, (name, colour) in enumerate(zip(classes, class_colours(palette), strict=True))
        if counts[number].any()
    ]
    x = positions(palette, "layer", names[:-1])
    x |= {
        "tickvals": [*x["tickvals"], places[-1]],
        "ticktext": [*x["ticktext"], "all"],
        "range": [-0.6, places[-1] + 0.6],
    }
    words = [f"{name} {100 * share:.0f} %" for name, share in zip(classes, shares[:, -1], strict=True) if share > 0]
    return Drawing(
        bars,
        layout(
            palette,
            x,
            axis(palette, "share of heads", range=[0, 1], tickformat=".0%"),
            barmode="stack",
            legend=ABOVE,
        ),
        f"Of {counts[:, -1].sum()} heads: {', '.join(words)}.",
        ("layer", "class", "heads", "share"),
        [
            [name, kind, int(counts[number, at]), *to_json([shares[number, at]], 7)]
            for at, name in enumerate(names)
            for number, kind in enumerate(classes)
        ],
    )


def class_colours(palette: Palette) -> list[str]:
    """Return one colour per class, distinguishable without colour vision: dark for vertical, medium for both, light for diagonal, pale grey for the rest."""
    blues = [palette.more_end, palette.tint(palette.more, 0.4), palette.more]
    return [*blues, palette.less, palette.tint(palette.muted, 0.45), palette.tint(palette.muted, 0.2)]


PATTERN_SHARES = Figure(
    name="patterns",
    title="Patterns",
    doc="What the maps of the heads look like, for each layer and for all layers: shares of heads that are vertical, diagonal, both, block or heterogeneous.",
    not_="Not a property of the heads: the classes are those of one text, by documented thresholds. Compare several texts, and look at the margins of the measure.",
    citation="Stacked shares as in Kovaleva et al. 2019, fig. 2; classes by the measure patterns",
    params=LensParams,
    range=(0.0, 1.0),
    measures=(NAME,),
    draw=draw,
)
