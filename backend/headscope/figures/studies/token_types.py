"""Attention of the first token in one layer by head and type of token, one lens next to another."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from ...core.csv_text import Cell
from ...lenses import LENSES
from ...measures.token_types import APART, KINDS, PARTS_OF_SPEECH
from ...studies.results.summary import Means, StudySummary, column_index
from ..figure import Drawing, index_of_layer
from ..theme import Palette, format_number, rows_by_head
from .figure import CLS, SEP, StudyFigure, VariantParams, comparable_lenses
from .panels import Panel, arrange_panels, color_range, head_columns, head_grid, name_axis

NAME = "token_types"
WORDS = {"first": CLS, "separator": SEP, "punct": "punctuation", "word": "words", "subword": "pieces"}
# The order in the paper's figure; other types follow.
PAPER = ("NOUN", "PRON", "VERB", "separator", "first", "PUNCT")


class FirstTokenParams(VariantParams):
    """Which variant, and which layer."""

    layer: int | None = Field(default=None, ge=0, description="The layer; by default the last one, as in the paper.")


def draw_token_types(study: StudySummary, params: FirstTokenParams, palette: Palette) -> Drawing:
    """Draw a panel per lens: a row per type, a column per head of one layer."""
    variant, lenses = study.variant(params.variant), comparable_lenses(study.lenses_of(NAME))
    layers, heads = variant["layers"], variant["heads"]
    layer = layers[-1] if params.layer is None else params.layer
    at = index_of_layer(layers, layer)
    by_lens = {
        lens: study.stat(NAME, lens, params.variant).means.map(lambda each: each[..., at, :, :]) for lens in lenses
    }
    kinds = _kinds(list(by_lens.values()))
    columns, names = [column_index(NAME, kind) for kind in kinds], [WORDS.get(kind, kind) for kind in kinds]
    panels, rows, words = list[Panel](), list[list[Cell]](), list[str]()
    for lens, each in by_lens.items():
        found = each.map(lambda values: np.moveaxis(values[..., columns], -1, -2))  # [H, C] -> [types, H]
        bounds, what = color_range(found.mean), "mean of the largest entry"
        cells = head_grid(palette, found, [layer] * len(kinds), heads, what=what, bounds=bounds)
        cells["text"] = [[name] * len(heads) for name in names]
        cells["hovertemplate"] = f"%{{text}}, {cells['hovertemplate']}"
        across = head_columns(palette, heads, f"head of layer {layer}", 12 // len(lenses))
        down = name_axis(names if lens == lenses[0] else [""] * len(names), down=True)
        panels.append(Panel(LENSES[lens].title, [cells], across, down, has_color_bar=True))
        by_head = rows_by_head(kinds, heads, found.mean, *found.interval())
        rows += [[lens, kind, layer, *numbers] for kind, *numbers in by_head]
        shown = (f"{name} {format_number(float(np.nanmean(row)))}" for name, row in zip(names, found.mean, strict=True))
        words.append(f"{LENSES[lens].title}: {', '.join(shown)}")
    traces, arranged = arrange_panels(palette, panels, len(lenses))
    return Drawing(
        traces,
        arranged,
        f"Attention of the first token in layer {layer}, mean over heads. {'; '.join(words)}.",
        ("lens", "type", "layer", "head", "mean", "low", "high"),
        rows,
    )


def _kinds(found: list[Means]) -> list[str]:
    """Return the types that occur in any input: parts of speech if the data set has them, else kinds of tokens."""
    present = [
        kind
        for kind in (*PAPER, *PARTS_OF_SPEECH, *KINDS, *APART)
        if kind != "special" and any(np.isfinite(each.mean[..., column_index(NAME, kind)]).any() for each in found)
    ]
    tagged = any(kind in PARTS_OF_SPEECH for kind in present)
    return list(dict.fromkeys(kind for kind in present if not (tagged and kind in KINDS)))


TOKEN_TYPES = StudyFigure(
    name="token-types",
    title="Token types from [CLS]",
    doc="What the first token ([CLS]) attends to in the last layer, for every head: the largest entry among the tokens of each type, averaged over the inputs that have the "
    "type, through each lens. Types are parts of speech if the data set has them (CoNLL-U), else kinds of tokens.",
    not_="Not comparable between types: the maximum over many tokens is larger, which favours frequent types such as nouns. Negative entries stay negative, where the "
    "published code takes the magnitude of the mean. Parts of speech come from the data set, not from a tagger run over the padded input.",
    citation="Sun & Marasović 2021, fig. 1; after Kovaleva et al. 2019, sec. 4.4",
    params=FirstTokenParams,
    of_one=True,
    draw=draw_token_types,
)
