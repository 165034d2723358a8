"""What the first token attends to in the last layer, head by head and type by type, through one lens beside another."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from ...core.csv_text import Cell
from ...errors import Unknown
from ...lenses import LENSES
from ...measures.token_types import APART, KINDS, PARTS_OF_SPEECH
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import Palette, plain, said
from .figure import BOUNDS, Means, StudyFigure, VariantParams, column, maps_of_heads, means
from .panels import Panel, Scale, head_columns, heads_map, laid, reach

NAME = "token_types"
WORDS = {"first": "[CLS] or first", "separator": "[SEP]", "punct": "punctuation", "word": "words", "subword": "pieces"}
# The order of the paper's figure, then all others.
PAPER = ("NOUN", "PRON", "VERB", "separator", "first", "PUNCT")


class FirstTokenParams(VariantParams):
    """Which variant, and which layer."""

    layer: int | None = Field(default=None, ge=0, description="The layer; without it the last one, as in the paper.")


def token_types(study: StudySummary, params: FirstTokenParams, palette: Palette) -> Drawing:
    """A panel per lens: a row per type, a column per head of one layer."""
    one, lenses = study.variant(params.variant), maps_of_heads(study.lenses_of(NAME))
    layers, heads = one["layers"], one["heads"]
    layer = layers[-1] if params.layer is None else params.layer
    if layer not in layers:
        raise Unknown("layer", f"The study has the layers {layers[0]} to {layers[-1]}.", pointer="/layer")
    at = layers.index(layer)
    found = {lens: means(study, NAME, lens, params.variant).of(lambda each: each[..., at, :, :]) for lens in lenses}
    kinds = _kinds(list(found.values()))
    panels, rows, words = list[Panel](), list[list[Cell]](), list[str]()
    for number, (lens, each) in enumerate(found.items()):
        chosen = each.of(lambda values: np.stack([values[..., column(NAME, kind)] for kind in kinds], -2))  # [T, H]
        low, high = chosen.interval()
        cells = heads_map(
            palette, chosen.mean, [layer] * len(kinds), heads, what="mean of the largest entry",
            bounds=reach(chosen.mean), about=np.stack([low, high], -1), says=BOUNDS,
        )  # fmt: skip
        names = [WORDS.get(kind, kind) for kind in kinds]
        cells["text"] = [[name] * len(heads) for name in names]
        cells["hovertemplate"] = f"%{{text}}, {cells['hovertemplate']}"
        down = {"tickvals": list(range(len(kinds))), "ticktext": names if number == 0 else [""] * len(kinds)}
        down |= {"range": [len(kinds) - 0.5, -0.5], "showgrid": False, "zeroline": False, "title": {"text": ""}}
        across = head_columns(palette, heads, f"head of layer {layer}")
        panels.append(
            Panel(LENSES[lens].title, [cells], across, {**down, "automargin": True, "fixedrange": True}, Scale())
        )
        rows += [
            [lens, kind, layer, head, *plain([chosen.mean[i, j], low[i, j], high[i, j]], 10)]
            for i, kind in enumerate(kinds)
            for j, head in enumerate(heads)
        ]
        by_kind = zip(names, chosen.mean, strict=True)
        words.append(
            f"{LENSES[lens].title}: {', '.join(f'{name} {said(float(np.nanmean(row)))}' for name, row in by_kind)}"
        )
    traces, arranged = laid(palette, panels, len(lenses))
    columns = ("lens", "type", "layer", "head", "mean", "low", "high")
    return Drawing(
        traces,
        arranged,
        f"Attention of the first token in layer {layer}, mean over heads. {'; '.join(words)}.",
        columns,
        rows,
    )


def _kinds(found: list[Means]) -> list[str]:
    """The types that any input has: parts of speech where the data set gives them, else kinds of tokens."""
    there = [
        kind
        for kind in (*PAPER, *PARTS_OF_SPEECH, *KINDS, *APART)
        if kind != "special" and any(np.isfinite(each.mean[..., column(NAME, kind)]).any() for each in found)
    ]
    tagged = any(kind in PARTS_OF_SPEECH for kind in there)
    return list(dict.fromkeys(kind for kind in there if not (tagged and kind in KINDS)))


TOKEN_TYPES = StudyFigure(
    name="token-types",
    title="Token types from [CLS]",
    doc="What the first token ([CLS]) attends to in the last layer, for every head: the largest entry among the tokens of each type, averaged over the inputs that "
    "have the type, through each lens. "
    "Types are parts of speech where the data set gives them (CoNLL-U), else kinds of tokens.",
    not_="Not comparable between types: of many tokens the largest is larger, so nouns gain by their number. Negative entries stay negative, where the published "
    "code takes the magnitude of the mean; "
    "parts of speech are those of the data set, not of a tagger run over the padded input.",
    citation="Sun & Marasović 2021, fig. 1; after Kovaleva et al. 2019, sec. 4.4",
    params=FirstTokenParams,
    measures=(NAME,),
    lenses=("weights", "effective"),
    of_one=True,
    draw=token_types,
)
