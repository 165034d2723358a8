"""What shapes the maps of a layer's heads have: shares of heads by class, stacked, layer by layer and in all."""

from __future__ import annotations

import numpy as np

from ..measures import MEASURES
from .figure import Drawing, Figure, LensParams, Numbers, column, values
from .paper import ABOVE, Palette, axis, layout, plain, positions

NAME = "patterns"
# What the legend says, where that is not the name of the class.
SHORT = {"vertical+diagonal": "both"}


def draw(numbers: Numbers, params: LensParams, palette: Palette) -> Drawing:
    """Stacked bars that sum to 1; the last one is all layers together."""
    kinds = values(numbers, NAME, params.lens)[..., column(NAME, "class")]  # [L, H]
    classes, layers = MEASURES[NAME].classes, list(numbers.document["layers"])
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
            "y": plain(shares[number]),
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
    said = [f"{name} {100 * share:.0f} %" for name, share in zip(classes, shares[:, -1], strict=True) if share > 0]
    return Drawing(
        bars,
        layout(
            palette,
            x,
            axis(palette, "share of heads", range=[0, 1], tickformat=".0%"),
            barmode="stack",
            legend=ABOVE,
        ),
        f"Of {counts[:, -1].sum()} heads: {', '.join(said)}.",
        ("layer", "class", "heads", "share"),
        [
            [name, kind, int(counts[number, at]), *plain([shares[number, at]], 7)]
            for at, name in enumerate(names)
            for number, kind in enumerate(classes)
        ],
    )


def class_colours(palette: Palette) -> list[str]:
    """One per class, told apart without colour vision, too: columns dark, columns with diagonals between, diagonals light; the rest pale grey."""
    blues = [palette.more_end, palette.tint(palette.more, 0.4), palette.more]
    return [*blues, palette.less, palette.tint(palette.muted, 0.45), palette.tint(palette.muted, 0.2)]


PATTERN_SHARES = Figure(
    name="patterns",
    title="Patterns",
    doc="What the maps of the heads look like, layer by layer and in all: shares of heads that are vertical, diagonal, both, block or heterogeneous.",
    not_="Not what the heads are: classes of one text by documented thresholds. Look at several texts, and at the margins of the measure.",
    citation="Stacked shares as in Kovaleva et al. 2019, fig. 2; classes by the measure patterns",
    params=LensParams,
    range=(0.0, 1.0),
    measures=(NAME,),
    draw=draw,
)
