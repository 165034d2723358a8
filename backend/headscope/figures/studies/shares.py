"""Stacked bars of classes: patterns of maps through each lens, and types of tokens that strong connections join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ...core.arrays import Array, divide
from ...core.csv_text import Cell
from ...errors import NotReady
from ...lenses import LENSES
from ...measures import MEASURES
from ...studies.results.summary import Means, StudySummary, column_index
from ..figure import Drawing
from ..patterns import SHORT, class_colours
from ..theme import ABOVE, Palette, axis, format_number, layout, positions, to_json, value_axis
from .figure import INTERVAL_TIP, MapParams, StudyFigure, comparable_lenses, describe_interval, variant_names
from .panels import Panel, arrange_panels

NAME = "patterns"


class PatternSharesParams(MapParams):
    """One bar per lens, or one per layer of a lens."""

    by: Literal["lens", "layer"] = Field(
        default="lens", description="One bar per lens and variant, or one per layer of a lens and variant."
    )


@dataclass(frozen=True)
class StackedBar:
    """Classes of some maps: inputs times heads by class, [classes], and the same in every bootstrap replicate [B, classes], NaN for one input."""

    name: str
    lens: str
    variant: int
    layer: int | None
    counts: Array
    replicates: Array

    @property
    def shares(self) -> Means:
        """The share of each class."""
        return Means(
            divide(self.counts, self.counts.sum()), divide(self.replicates, self.replicates.sum(-1, keepdims=True))
        )


def draw_pattern_shares(study: StudySummary, params: PatternSharesParams, palette: Palette) -> Drawing:
    """Draw stacked bars that sum to 1, over all heads and inputs."""
    bars = _by_layer(study, params) if params.by == "layer" else _by_lens(study)
    classes = MEASURES[NAME].classes
    shown = [kind for kind in range(len(classes)) if any(bar.counts[kind] > 0 for bar in bars)]
    names = [bar.name for bar in bars]
    words = [
        f"{bar.name}: {', '.join(f'{classes[kind]} {100 * bar.shares.mean[kind]:.1f} %' for kind in shown)}"
        for bar in bars
    ]
    return Drawing(
        [_draw_share(bars, kind, class_colours(palette)[kind]) for kind in shown],
        layout(
            palette,
            positions(palette, params.by, [name.replace(", ", "<br>") for name in names]),
            axis(palette, "share of maps (heads × inputs)", range=[0, 1], tickformat=".0%"),
            barmode="stack",
            legend=ABOVE,
        ),
        f"Shares of maps by pattern. {'; '.join(words)}.{_explain_equal(study, bars)}",
        (params.by, "class", "maps", "share", "low", "high"),
        [row for bar in bars for row in _rows(bar)],
    )


def _explain_equal(study: StudySummary, bars: list[StackedBar]) -> str:
    """Return why weights and effective attention have equal bars, if they do."""
    weights = {bar.variant: bar.counts for bar in bars if bar.lens == "weights"}
    equal = [
        bar.variant
        for bar in bars
        if (bar.lens, bar.layer) == ("effective", None)
        and bar.variant in weights
        and np.array_equal(bar.counts, weights[bar.variant])
    ]
    if not equal:
        return ""
    width = " or ".join(dict.fromkeys(str(study.variant(number)["head_width"]) for number in equal))
    return (
        " Weights and effective attention have equal bars: "
        f"of an input with no more tokens than the {width} dimensions of a head, both maps are usually the same."
    )


def _draw_share(bars: list[StackedBar], kind: int, colour: str) -> dict[str, Any]:
    name = MEASURES[NAME].classes[kind]
    bounds = [[float(end[kind]) for end in bar.shares.interval()] for bar in bars]
    return {
        "type": "bar",
        "name": SHORT.get(name, name),
        "x": list(range(len(bars))),
        "y": to_json([bar.shares.mean[kind] for bar in bars]),
        "width": 0.6 if len(bars) < 6 else 0.82,
        "marker": {"color": colour, "line": {"width": 0}},
        "customdata": [
            [bar.layer, None, describe_interval(*ends, share=True), name]
            for bar, ends in zip(bars, bounds, strict=True)
        ],
        "hovertemplate": f"%{{customdata[3]}}: %{{y:.1%}} of maps{INTERVAL_TIP}<extra></extra>",
    }


def _by_lens(study: StudySummary) -> list[StackedBar]:
    """Return a bar for each lens of each variant."""
    several = len(study.variants) > 1
    return [
        _bar(study, f"{LENSES[lens].title}, {name}" if several else LENSES[lens].title, number, lens, None)
        for lens in comparable_lenses(study.lenses_of(NAME))
        for number, name in enumerate(variant_names(study))
    ]


def _by_layer(study: StudySummary, params: PatternSharesParams) -> list[StackedBar]:
    """Return a bar for each layer of a lens, and one for all layers."""
    layers = [*study.variant(params.variant)["layers"], None]
    return [_bar(study, "all" if layer is None else str(layer), params.variant, params.lens, layer) for layer in layers]


def _bar(study: StudySummary, name: str, variant: int, lens: str, layer: int | None) -> StackedBar:
    counts = study.classes(NAME, lens, variant)  # [L, H, classes]
    replicates = study.arrays[f"class_boot/{variant}/{NAME}/{lens}"]  # [B, L, classes]
    if layer is not None:
        at = study.variants[variant]["layers"].index(layer)
        counts, replicates = counts[at : at + 1], replicates[:, at : at + 1]
    several = counts.sum(-1).max() > 1  # inputs
    drawn = replicates.sum(1) if several else np.full(replicates[:, 0].shape, np.nan)
    return StackedBar(name, lens, variant, layer, counts.sum((0, 1)), drawn)


def _rows(bar: StackedBar) -> list[list[Cell]]:
    low, high = bar.shares.interval()
    return [
        [bar.name, kind, int(bar.counts[at]), *to_json([bar.shares.mean[at], low[at], high[at]], 10)]
        for at, kind in enumerate(MEASURES[NAME].classes)
    ]


PATTERN_SHARES = StudyFigure(
    name="pattern-shares",
    title="Shares of patterns by lens",
    doc="What the maps of the heads look like through each lens: the share of all maps (one per head and input) that is vertical, diagonal, both, block or heterogeneous. The "
    "table has 95 % bootstrap intervals over inputs.",
    not_="Not the paper's classifier: its network and annotations were never published, so the classes are those of the documented rules of the measure patterns. Inputs are "
    "not padded, so on short texts both lenses agree where the paper's do not; its table 2 cannot be reproduced.",
    citation="Sun & Marasović 2021, table 2 and fig. 4",
    params=PatternSharesParams,
    range=(0.0, 1.0),
    draw=draw_pattern_shares,
)

# Class of connections -> name in the legend.
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


def draw_connections(study: StudySummary, params: MapParams, palette: Palette) -> Drawing:
    """Draw stacked counts by layer: all connections, and those between entities only; a row of panels for each variant."""
    panels, rows = list[Panel](), list[Sequence[Cell]]()
    words = []
    several = len(study.variants) > 1
    for number, title in enumerate(variant_names(study)):
        stat = study.stat("connections", params.lens, number)  # [L, H, C]
        if not np.isfinite(stat.input_mean[..., column_index("connections", "PER")]).any():
            raise NotReady("The texts of this study have no entity labels. Choose the column that holds them (labels).")
        # An input without labels has no entities: each column has inputs of its own.
        counts, layers = np.nansum(stat.input_mean * stat.inputs, axis=-2), study.variants[number]["layers"]  # [L, C]
        by_class = {name: counts[:, column_index("connections", name)] for name in JOINED}  # [L] each
        for names, what in ((list(JOINED), "all"), (list(JOINED)[1:-1], "between entities only")):
            bars = [_draw_counts(name, by_class[name], layers, palette, not panels) for name in names]
            heading = f"{title}, {what}" if several else what.capitalize()
            layer_axis, value = positions(palette, "layer", layers), value_axis(palette, "connections")
            panels.append(Panel(heading, bars, layer_axis, value))
        rows += _connection_rows(title, layers, counts, stat.means.map(_sum_of_heads))
        special, cross = (by_class[name].sum() for name in ("special", "cross"))
        words.append(
            f"{title}: {format_number(special)} join special tokens, {format_number(cross)} join two different entity types"
        )
    traces, arranged = arrange_panels(palette, panels, 2, barmode="stack", legend={**ABOVE, "y": 1.12})
    head = ("variant", "layer", "class", "connections", "mean_per_input", "low", "high")
    return Drawing(traces, arranged, f"Connections of all heads and inputs. {'; '.join(words)}.", head, rows)


def _draw_counts(name: str, counts: Array, layers: list[int], palette: Palette, named: bool) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": JOINED[name],
        "legendgroup": name,
        "showlegend": named,
        "x": list(range(len(layers))),
        "y": to_json(counts, 7),
        "width": 0.82,
        "marker": {"color": _colours(palette)[name], "line": {"width": 0}},
        "customdata": [[layer, None, JOINED[name]] for layer in layers],
        "hovertemplate": "Layer %{customdata[0]}<br>%{customdata[2]}: %{y:,.0f}<extra></extra>",
    }


def _colours(palette: Palette) -> dict[str, str]:
    """Return grey for special tokens, blues for the four entity types, orange for different types, and pale colours for other connections."""
    blues = [palette.more_end, *(palette.tint(palette.more, share) for share in (1.0, 0.65, 0.35))]
    pale = {"same_other": palette.tint(palette.more, 0.18), "other": palette.tint(palette.muted, 0.2)}
    kinds = dict(zip(("PER", "LOC", "ORG", "MISC"), blues, strict=True))
    return {"special": palette.tint(palette.muted, 0.6), **kinds, "cross": palette.less, **pale}


def _sum_of_heads(values: Array) -> Array:
    """Sum over heads, [..., L, H, C] -> [..., L, C]; NaN where no head has a value."""
    return np.where(np.isnan(values).all(-2), np.nan, np.nansum(values, axis=-2))


def _connection_rows(title: str, layers: list[int], counts: Array, found: Means) -> list[list[Cell]]:
    low, high = found.interval()
    columns = [(name, column_index("connections", name)) for name in JOINED]
    return [
        [title, layer, name, *to_json([counts[at, to], found.mean[at, to], low[at, to], high[at, to]], 10)]
        for at, layer in enumerate(layers)
        for name, to in columns
    ]


CONNECTIONS = StudyFigure(
    name="connections",
    title="Connections by entity type",
    doc="What the strong connections of each layer join, over all heads and inputs: special tokens, two tokens of one entity type, tokens of different types (CROSS), or "
    "tokens without one. All connections, and those between entities only. Means per input of entity types are over the inputs with labels.",
    not_="Possibly not counted as in the paper, which does not say over what mean and standard deviation are taken, nor how tokens without an entity count. Here both are over "
    "all entries of the head's own map, and such connections are a separate class (other). Counts grow with the length of the texts.",
    citation="Zhou et al. 2022, Jump Self-attention, figs. 2 and 7 of the appendix",
    params=MapParams,
    unit="connections",
    range=(0.0, None),
    draw=draw_connections,
)
