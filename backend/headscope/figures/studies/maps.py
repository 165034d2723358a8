"""Numbers of every head as a coloured cell: attention to special tokens by each lens, and how alike two variants are."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ...core.csv_text import Cell
from ...errors import NotReady
from ...lenses import LENSES
from ...measures.compare import COMPARISONS
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import Palette, layout, plain, said
from .figure import BOUNDS, Means, StudyFigure, VariantParams, column, maps_of_heads, means, picked, resampled, titles
from .panels import Panel, Scale, head_columns, heads_map, laid, layer_rows, reach, scale

TOKENS = {"first": "[CLS] or first", "separator": "[SEP]"}


def special_maps(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """A map of heads for each token and lens: rows of panels are tokens, columns lenses, and every lens has one scale."""
    one, lenses = study.variant(params.variant), maps_of_heads(study.lenses_of("special_tokens"))
    layers, heads = one["layers"], one["heads"]
    found = {lens: means(study, "special_tokens", lens, params.variant) for lens in lenses}
    panels, rows, words = list[Panel](), list[list[Cell]](), list[str]()
    for kind, title in TOKENS.items():
        at = column("special_tokens", kind)
        for number, lens in enumerate(lenses):
            each = found[lens].of(picked(at))
            low, high = each.interval()
            both = [found[lens].mean[..., column("special_tokens", name)] for name in TOKENS]
            cells = heads_map(
                palette, each.mean, layers, heads, what=f"mean attention to {title}", bounds=reach(*both), about=np.stack([low, high], -1), says=BOUNDS,
            )  # fmt: skip
            across = head_columns(palette, heads, "head" if kind == "separator" else "")
            panels.append(
                Panel(
                    f"{title}, {LENSES[lens].title}",
                    [cells],
                    across,
                    layer_rows(palette, layers, "layer" if number == 0 else ""),
                    Scale(),
                )
            )
            rows += [
                [kind, lens, layer, head, *plain([each.mean[i, j], low[i, j], high[i, j]], 10)]
                for i, layer in enumerate(layers)
                for j, head in enumerate(heads)
            ]
            words.append(
                f"{title} by {LENSES[lens].title}: {said(float(np.nanmean(each.mean)))}"
                if np.isfinite(each.mean).any()
                else f"{title} by {LENSES[lens].title}: not there"
            )
    traces, arranged = laid(palette, panels, len(lenses))
    columns = ("token", "lens", "layer", "head", "mean", "low", "high")
    return Drawing(
        traces, arranged, f"Mean over heads of the attention of other tokens. {'; '.join(words)}.", columns, rows
    )


SPECIAL_MAPS = StudyFigure(
    name="special-maps",
    title="Attention to [CLS] and [SEP]",
    doc="How much of their attention other tokens give to [CLS] (or a special first token) and to the [SEP] that gets most, for every layer and head, through each "
    "lens: the mean over queries, then over inputs.",
    not_="Not the published code's average, which counts padding and the special tokens' own rows. Signed for effective attention, where entries of different "
    "queries cancel; "
    "each lens has a scale of its own.",
    citation="Sun & Marasović 2021, figs. 5 and 6; after Kovaleva et al. 2019, fig. 6",
    params=VariantParams,
    measures=("special_tokens",),
    lenses=("weights", "effective"),
    of_one=True,
    draw=special_maps,
)


class TuningParams(BaseModel):
    """Which comparison, of which map."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    lens: str = Field(default="weights", max_length=100, description="The lens whose maps were compared.")
    comparison: Literal["cosine", "js_divergence"] = Field(default="cosine", description="How alike two maps are.")


def tuning(study: StudySummary, params: TuningParams, palette: Palette) -> Drawing:
    """A cell per head, darker the more its maps differ."""
    found, one, what = compared(study, params), study.variants[0], COMPARISONS[params.comparison]
    low, high = found.interval()
    layers, heads, alike = one["layers"], one["heads"], params.comparison == "cosine"
    defined = found.mean[np.isfinite(found.mean)]
    bounds = (float(defined.min(initial=1.0)), 1.0) if alike else (0.0, float(defined.max(initial=1e-6)))
    cells = heads_map(
        palette, found.mean, layers, heads, what=what.title.lower(), bounds=(min(bounds[0], bounds[1] - 1e-6), bounds[1]),
        about=np.stack([low, high], -1), says=BOUNDS,
    )  # fmt: skip
    if alike:
        colours = [palette.paper, palette.more, palette.more_end]
        cells["colorscale"] = [[at / 2, colour] for at, colour in enumerate(reversed(colours))]
    cells |= {"showscale": True, "colorbar": scale(palette, what.title.lower())}
    by_layer = [float(np.nanmean(row)) for row in found.mean]
    names = " and ".join(titles(study))
    return Drawing(
        [cells],
        layout(palette, head_columns(palette, heads), layer_rows(palette, layers)),
        f"{what.title} of the maps of {names}, mean over heads by layer: {', '.join(said(number) for number in by_layer)}.",
        ("layer", "head", params.comparison, "low", "high"),
        [
            [layer, head, *plain([found.mean[i, j], low[i, j], high[i, j]], 10)]
            for i, layer in enumerate(layers)
            for j, head in enumerate(heads)
        ],
    )


def compared(study: StudySummary, params: TuningParams) -> Means:
    """The means of a comparison, [L, H]. Raises NotReady for a study of one variant, Unsupported for a lens that was not compared."""
    if len(study.variants) < 2:
        raise NotReady(
            "This figure compares two variants. Send the study again with something to compare with (against)."
        )
    return resampled(study.pair(params.comparison, params.lens))


TUNING = StudyFigure(
    name="tuning",
    title="Before and after fine-tuning",
    doc="How alike the maps of each head are in two models (or under two mechanisms) on the same texts: the mean over inputs of the cosine between the two maps. "
    "The stronger the colour, the more different (darker, in the papers).",
    not_="Not near 0 for unrelated heads: weights are never negative and share stripes, which raises the cosine; the Jensen-Shannon divergence does not have that. "
    "Maps are cropped to the tokens; "
    "the published notebook flattens padded ones.",
    citation="Sun & Marasović 2021, fig. 3; after Kovaleva et al. 2019, fig. 5",
    params=TuningParams,
    range=(-1.0, 1.0),
    lenses=("weights",),
    asks=("against",),
    draw=tuning,
)
