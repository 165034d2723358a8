"""Numbers per head as grids of coloured cells: attention to special tokens through each lens, similarity of two variants, and the metrics of HeadVis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from ...core.arrays import Array
from ...core.csv_text import Cell
from ...core.declarations import Params
from ...errors import NotReady
from ...lenses import LENSES
from ...measures.compare import COMPARISONS
from ...studies.results.summary import METRICS, StudySummary, metric, pick_column
from ..figure import Drawing
from ..theme import Palette, format_number, layout, rows_by_head
from .figure import CLS, SEP, StudyFigure, VariantParams, comparable_lenses, variant_names
from .panels import Panel, arrange_panels, color_bar, color_range, head_columns, head_grid, layer_rows

# Column of the measure -> title.
TOKENS = {"first": CLS, "separator": SEP}


def draw_special_maps(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Draw a grid of heads for each token (rows of panels) and lens (columns); each lens has one scale."""
    variant, lenses = study.variant(params.variant), comparable_lenses(study.lenses_of("special_tokens"))
    layers, heads = variant["layers"], variant["heads"]
    found = {
        (kind, lens): study.stat("special_tokens", lens, params.variant).means.map(pick_column("special_tokens", kind))
        for kind in TOKENS
        for lens in lenses
    }  # [L, H] each
    panels, rows, words = list[Panel](), list[list[Cell]](), list[str]()
    for (kind, lens), each in found.items():
        title, bounds = TOKENS[kind], color_range(*(found[other, lens].mean for other in TOKENS))
        cells = head_grid(palette, each, layers, heads, what=f"mean attention to {title}", bounds=bounds)
        across = head_columns(palette, heads, "head" if kind == "separator" else "", 12 // len(lenses))
        down = layer_rows(palette, layers, "layer" if lens == lenses[0] else "")
        panels.append(Panel(f"{title}, {LENSES[lens].title}", [cells], across, down, has_color_bar=True))
        rows += [[kind, lens, *row] for row in rows_by_head(layers, heads, each.mean, *each.interval())]
        known = np.isfinite(each.mean).any()
        shown = format_number(float(np.nanmean(each.mean))) if known else "not present"
        words.append(f"{title} by {LENSES[lens].title}: {shown}")
    traces, arranged = arrange_panels(palette, panels, len(lenses))
    columns = ("token", "lens", "layer", "head", "mean", "low", "high")
    return Drawing(
        traces, arranged, f"Mean over heads of the attention from other tokens. {'; '.join(words)}.", columns, rows
    )


SPECIAL_MAPS = StudyFigure(
    name="special-maps",
    title="Attention to [CLS] and [SEP]",
    doc="How much attention other tokens give to [CLS] (or a special first token) and to the [SEP] that receives most, for every layer and head, through each lens: the mean "
    "over queries, then over inputs.",
    not_="Not the average of the published code, which counts padding and the rows of special tokens. Signed for effective attention, where entries of different queries "
    "cancel; each lens has its own scale.",
    citation="Sun & Marasović 2021, figs. 5 and 6; after Kovaleva et al. 2019, fig. 6",
    params=VariantParams,
    of_one=True,
    draw=draw_special_maps,
)


class TuningParams(Params):
    """Which comparison, of which map."""

    lens: str = Field(default="weights", max_length=100, description="The lens whose maps were compared.")
    comparison: Literal["cosine", "js_divergence"] = Field(default="cosine", description="How maps are compared.")


def draw_tuning(study: StudySummary, params: TuningParams, palette: Palette) -> Drawing:
    """Draw a cell per head, darker the more its maps differ. Raises NotReady for a study of one variant, Unsupported for a lens that was not compared."""
    if len(study.variants) < 2:
        raise NotReady("This figure compares two variants. Run the study again with a second variant (against).")
    found, comparison = study.pair(params.comparison, params.lens).means, COMPARISONS[params.comparison]  # [L, H]
    layers, heads, name = study.layers, study.heads, comparison.title.lower()
    defined = found.mean[np.isfinite(found.mean)]
    low, high = (
        (float(defined.min(initial=1.0)), 1.0) if comparison.similar else (0.0, float(defined.max(initial=1e-6)))
    )
    cells = head_grid(palette, found, layers, heads, what=name, bounds=(min(low, high - 1e-6), high))
    if comparison.similar:
        colours = [palette.paper, palette.more, palette.more_end]
        cells["colorscale"] = [[at / 2, colour] for at, colour in enumerate(reversed(colours))]
    cells |= {"showscale": True, "colorbar": color_bar(palette, name)}
    by_layer = ", ".join(format_number(float(np.nanmean(row))) for row in found.mean)
    return Drawing(
        [cells],
        layout(palette, head_columns(palette, heads), layer_rows(palette, layers)),
        f"{comparison.title} of the maps of {' and '.join(variant_names(study))}, mean over heads by layer: {by_layer}.",
        ("layer", "head", params.comparison, "low", "high"),
        rows_by_head(layers, heads, found.mean, *found.interval()),
    )


TUNING = StudyFigure(
    name="tuning",
    title="Before and after fine-tuning",
    doc="How similar the maps of each head are in two models (or under two mechanisms) on the same texts: the mean over inputs of the cosine between the two maps. The "
    "stronger the colour, the larger the difference (darker, as in the papers).",
    not_="Not near 0 for unrelated heads: weights are never negative and share vertical stripes, which raises the cosine; the Jensen-Shannon divergence avoids this. Maps are "
    "cropped to the tokens; the published notebook flattens padded ones.",
    citation="Sun & Marasović 2021, fig. 3; after Kovaleva et al. 2019, fig. 5",
    params=TuningParams,
    range=(-1.0, 1.0),
    draw=draw_tuning,
)


def draw_head_metrics(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Draw a grid of heads per metric, each with its own scale; metrics that no input defines are left out."""
    variant = study.variant(params.variant)
    layers, heads = variant["layers"], variant["heads"]
    found = {name: metric(study, name, params.variant) for name in METRICS}
    present = [name for name, each in found.items() if np.isfinite(each.mean).any()]
    panels = list[Panel]()
    for place, name in enumerate(present):
        title, each = METRICS[name][0], found[name]
        cells = head_grid(palette, each, layers, heads, what=title.lower(), bounds=color_range(each.mean))
        across = head_columns(palette, heads, "head" if place >= 2 else "", 6)
        down = layer_rows(palette, layers, "" if place % 3 else "layer")
        panels.append(Panel(title, [cells], across, down, has_color_bar=True))
    traces, arranged = arrange_panels(palette, panels, 3)
    words = [
        f"{title}: {_describe_largest(found[name].mean, layers, heads)}" for name, (title, _, _) in METRICS.items()
    ]
    columns = [part for each in found.values() for part in (each.mean, *each.interval())]
    return Drawing(
        traces,
        arranged,
        f"Heads with the largest values. {'; '.join(words)}.",
        ("layer", "head", *(f"{name}{part}" for name in METRICS for part in ("", "_low", "_high"))),
        rows_by_head(layers, heads, *columns),
    )


def _describe_largest(values: Array, layers: Sequence[int], heads: Sequence[int]) -> str:
    if not np.isfinite(values).any():
        return "not defined"
    i, j = np.unravel_index(np.nanargmax(values), values.shape)
    return f"{format_number(float(values[i, j]))} (head {layers[int(i)]}.{heads[int(j)]})"


HEAD_METRICS = StudyFigure(
    name="head-metrics",
    title="Six metrics per head",
    doc="Attention to the token itself, to the previous token, entropy, distance between query and key and its variance, and induction, for every head: means over inputs, "
    "each with its own scale.",
    not_="Not pooled over tokens as in the published pipeline: each input counts once, whatever its length. Induction (attention to the token after an earlier occurrence of "
    "the same token, in rows that have one) is for causal models, and without the pipeline's threshold of 0.01.",
    citation="Luger, Kamath et al. 2026, Visualizing Attention Heads (HeadVis); metrics as in Neuronpedia's pipeline",
    params=VariantParams,
    of_one=True,
    draw=draw_head_metrics,
)
