"""Shares of classes, stacked: what the maps of heads look like through each lens, and what their strong connections join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ...core.csv_text import Cell
from ...errors import NotReady
from ...lenses import LENSES
from ...measures import MEASURES
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import ABOVE, Palette, axis, layout, plain, positions, said
from ..patterns import SHORT, class_colours
from .figure import Array, MapParams, Means, StudyFigure, column, maps_of_heads, means, shares, titles
from .panels import Panel, laid, plain_axis

NAME = "patterns"


class PatternSharesParams(MapParams):
    """One bar per lens, or per layer of one lens."""

    by: Literal["lens", "layer"] = Field(default="lens", description="A bar per lens and variant, or per layer of one.")


@dataclass(frozen=True)
class StackedBar:
    """Classes of some maps: how many inputs times heads are of each, [classes], and the same of the bootstrap's samples [B, classes]."""

    name: str
    layer: int | None
    counts: Array
    drawn: Array

    @property
    def shares(self) -> Means:
        """Share of each class."""
        return Means(shares(self.counts, self.counts.sum()), shares(self.drawn, self.drawn.sum(-1, keepdims=True)))


def pattern_shares(study: StudySummary, params: PatternSharesParams, palette: Palette) -> Drawing:
    """Stacked bars that sum to 1, over all heads and inputs."""
    bars = _by_layer(study, params) if params.by == "layer" else _by_lens(study)
    classes = MEASURES[NAME].classes
    shown = [kind for kind in range(len(classes)) if any(bar.counts[kind] > 0 for bar in bars)]
    names = [bar.name for bar in bars]
    words = [
        f"{bar.name}: {', '.join(f'{classes[kind]} {100 * bar.shares.mean[kind]:.1f} %' for kind in shown)}"
        for bar in bars
    ]
    return Drawing(
        [_stacked(bars, kind, class_colours(palette)[kind]) for kind in shown],
        layout(
            palette,
            positions(palette, params.by, [name.replace(", ", "<br>") for name in names]),
            axis(palette, "share of maps (heads × inputs)", range=[0, 1], tickformat=".0%"),
            barmode="stack",
            legend=ABOVE,
        ),
        f"Shares of maps by pattern. {'; '.join(words)}.",
        (params.by, "class", "maps", "share", "low", "high"),
        [row for bar in bars for row in _rows(bar)],
    )


def _stacked(bars: list[StackedBar], kind: int, colour: str) -> dict[str, Any]:
    name = MEASURES[NAME].classes[kind]
    bounds = [[float(end[kind]) for end in bar.shares.interval()] for bar in bars]
    return {
        "type": "bar",
        "name": SHORT.get(name, name),
        "x": list(range(len(bars))),
        "y": plain([bar.shares.mean[kind] for bar in bars]),
        "width": 0.6 if len(bars) < 6 else 0.82,
        "marker": {"color": colour, "line": {"width": 0}},
        "customdata": [[bar.layer, None, *plain(ends, 3), name] for bar, ends in zip(bars, bounds, strict=True)],
        "hovertemplate": "%{customdata[4]}: %{y:.1%} of maps<br>95 % interval %{customdata[2]:.1%} to %{customdata[3]:.1%}<extra></extra>",
    }


def _by_lens(study: StudySummary) -> list[StackedBar]:
    """A bar for each lens of each variant."""
    several = len(study.variants) > 1
    return [
        _bar(study, f"{LENSES[lens].title}, {title}" if several else LENSES[lens].title, number, lens, None)
        for lens in maps_of_heads(study.lenses_of(NAME))
        for number, title in enumerate(titles(study))
    ]


def _by_layer(study: StudySummary, params: PatternSharesParams) -> list[StackedBar]:
    """A bar for each layer of one lens, and one for all."""
    layers = [*study.variant(params.variant)["layers"], None]
    return [_bar(study, "all" if layer is None else str(layer), params.variant, params.lens, layer) for layer in layers]


def _bar(study: StudySummary, name: str, number: int, lens: str, layer: int | None) -> StackedBar:
    counts = study.classes(NAME, lens, number)  # [L, H, classes]
    drawn = study.arrays[f"class_boot/{number}/{NAME}/{lens}"]  # [B, L, classes]
    if layer is not None:
        at = study.variants[number]["layers"].index(layer)
        counts, drawn = counts[at : at + 1], drawn[:, at : at + 1]
    return StackedBar(name, layer, counts.sum((0, 1)), drawn.sum(1))


def _rows(bar: StackedBar) -> list[list[Cell]]:
    low, high = bar.shares.interval()
    return [
        [bar.name, kind, int(bar.counts[at]), *plain([bar.shares.mean[at], low[at], high[at]], 10)]
        for at, kind in enumerate(MEASURES[NAME].classes)
    ]


PATTERN_SHARES = StudyFigure(
    name="pattern-shares",
    title="Shares of patterns by lens",
    doc="What the maps of the heads look like through each lens: the share of all maps (one per head and input) that is vertical, diagonal, both, block or "
    "heterogeneous. "
    "With the 95 % bootstrap interval over inputs in the table.",
    not_="Not the paper's classifier: its network and annotations were never published, so the classes are those of the documented rules of the measure patterns. "
    "Inputs are not padded, "
    "so on short texts both lenses agree where the paper's do not; its Table 2 can't be reproduced by anybody.",
    citation="Sun & Marasović 2021, table 2 and fig. 4",
    params=PatternSharesParams,
    range=(0.0, 1.0),
    measures=(NAME,),
    lenses=("weights", "effective"),
    draw=pattern_shares,
)

# Class of connections -> what the legend says.
JOINED = {
    "special": "special",
    "PER": "PERs",
    "LOC": "LOCs",
    "ORG": "ORGs",
    "MISC": "MISCs",
    "same_other": "another type",
    "cross": "CROSS",
    "other": "other",
}


def connections(study: StudySummary, params: MapParams, palette: Palette) -> Drawing:
    """Stacked counts by layer: of all, and without special tokens and tokens that have no entity; a row of panels for each variant."""
    panels, rows = list[Panel](), list[Sequence[Cell]]()
    words = []
    several = len(study.variants) > 1
    for number, title in enumerate(titles(study)):
        each = means(study, "connections", params.lens, number)  # [L, H, C]
        if not np.isfinite(each.mean[..., column("connections", "PER")]).any():
            raise NotReady("The texts of this study have no entity labels. Name the column that holds them (labels).")
        found = each.of(lambda values: np.nansum(values, axis=-2))  # [L, C]
        inputs = study.inputs
        layers = study.variants[number]["layers"]
        for names, what in ((list(JOINED), "all"), (list(JOINED)[1:-1], "between entities only")):
            bars = [
                _counted(name, found.mean[:, column("connections", name)] * inputs, layers, palette, not panels)
                for name in names
            ]
            panels.append(
                Panel(
                    f"{title}, {what}" if several else what.capitalize(),
                    bars,
                    positions(palette, "layer", layers),
                    plain_axis(palette, "connections"),
                )
            )
        rows += _connection_rows(title, layers, found, inputs)
        cross = found.mean[:, column("connections", "cross")].sum() * inputs
        special = found.mean[:, column("connections", "special")].sum() * inputs
        words.append(f"{title}: {said(special)} join special tokens, {said(cross)} two different entity types")
    traces, arranged = laid(palette, panels, 2, barmode="stack", legend={**ABOVE, "y": 1.12})
    head = ("variant", "layer", "class", "connections", "mean_per_input", "low", "high")
    return Drawing(traces, arranged, f"Connections of all heads and inputs. {'; '.join(words)}.", head, rows)


def _counted(name: str, counts: Array, layers: list[int], palette: Palette, named: bool) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": JOINED[name],
        "legendgroup": name,
        "showlegend": named,
        "x": list(range(len(layers))),
        "y": plain(counts, 7),
        "width": 0.82,
        "marker": {"color": _colours(palette)[name], "line": {"width": 0}},
        "customdata": [[layer, None, JOINED[name]] for layer in layers],
        "hovertemplate": "Layer %{customdata[0]}<br>%{customdata[2]}: %{y:,.0f}<extra></extra>",
    }


def _colours(palette: Palette) -> dict[str, str]:
    """Special tokens grey, the four entity types blue, different types orange, and what has no type pale."""
    blues = [
        palette.more_end,
        palette.tint(palette.more, 1.0),
        palette.tint(palette.more, 0.65),
        palette.tint(palette.more, 0.35),
    ]
    pale = {"same_other": palette.tint(palette.more, 0.18), "other": palette.tint(palette.muted, 0.2)}
    kinds = dict(zip(("PER", "LOC", "ORG", "MISC"), blues, strict=True))
    return {"special": palette.tint(palette.muted, 0.6), **kinds, "cross": palette.less, **pale}


def _connection_rows(title: str, layers: list[int], found: Means, inputs: int) -> list[list[Cell]]:
    low, high = found.interval()
    places = [(name, column("connections", name)) for name in JOINED]
    return [
        [title, layer, name, *plain([found.mean[at, to] * inputs, found.mean[at, to], low[at, to], high[at, to]], 10)]
        for at, layer in enumerate(layers)
        for name, to in places
    ]


CONNECTIONS = StudyFigure(
    name="connections",
    title="Connections by entity type",
    doc="What the strong connections of each layer join, over all heads and inputs: special tokens, two tokens of one entity type, tokens of different types "
    "(CROSS), or tokens without one; "
    "of all, and of those between entities only, without special tokens.",
    not_="Not counted as the paper may have: it leaves open over what mean and standard deviation are taken and what becomes of tokens without an entity. Here both "
    "are those of the "
    "head's own map, over all entries, and such connections are a class of their own (other). Counts grow with the length of the texts.",
    citation="Zhou et al. 2022, Jump Self-attention, figs. 2 and 7 of the appendix",
    params=MapParams,
    unit="connections",
    range=(0.0, None),
    measures=("connections",),
    asks=("labels",),
    draw=connections,
)
