"""A dot per head by layer: entropy, and attention to special tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.csv_text import Cell
from ...studies.results.summary import Means, StudySummary, mean_over, pick_column
from ..figure import Drawing
from ..theme import ABOVE, Palette, describe_values, head_dots, positions, rows_by_head, value_axis
from .figure import CLS, INTERVAL_TIP, SEP, EitherVariantParams, StudyFigure, of_variant, tips_by_head, variant_names
from .lines import bands_first, draw_line
from .panels import Panel, arrange_panels

SPREAD = 0.6
# Name in the legend -> column of the measure.
SPECIAL = {CLS: "first", SEP: "separator"}


def draw_head_entropy(study: StudySummary, params: EitherVariantParams, palette: Palette) -> Drawing:
    """Draw for each variant a dot per head at its mean entropy (left) and its attention to [CLS] and [SEP] (right), with lines at the means of the layers."""
    study.variant(params.variant or 0)
    panels, rows, words = list[Panel](), list[list[Cell]](), list[str]()
    several, legend = len(study.variants) > 1, False
    for number, name in enumerate(variant_names(study)):
        if params.variant not in (None, number):
            continue
        variant = study.variants[number]
        layers, heads = variant["layers"], variant["heads"]
        entropy = study.stat("entropy", "weights", number).means  # [L, H]
        special = {
            token: study.stat("special_tokens", "weights", number).means.map(pick_column("special_tokens", column))
            for token, column in SPECIAL.items()
        }
        special = {token: each for token, each in special.items() if np.isfinite(each.mean).any()}
        where = f", {name}" if several else ""
        shown = {"Entropy": {"entropy": entropy}, **({"Special tokens": special} if special else {})}
        for title, found in shown.items():
            panel = _dots_panel(f"{title}{where}", found, variant, palette, named=found is special and not legend)
            panels.append(replace(panel, traces=of_variant(panel.traces, number)))
        legend = legend or bool(special)
        numbers = {"entropy": entropy, **{f"attention to {token}": each for token, each in special.items()}}
        for what, each in numbers.items():
            rows += [[name, what, *row] for row in rows_by_head(layers, heads, each.mean, *each.interval())]
        what = f"Mean entropy of the heads in nats{f' with {name}' if several else ''}"
        words.append(describe_values(what, layers, _by_layer(entropy).mean.tolist(), "layer"))
        if not special:
            words.append(f"The inputs{f' of {name}' if several else ''} have no special tokens.")
    traces, arranged = arrange_panels(palette, panels, 2, legend={**ABOVE, "y": 1.12})
    return Drawing(
        traces, arranged, " ".join(words), ("variant", "number", "layer", "head", "mean", "low", "high"), rows
    )


def _dots_panel(
    title: str, found: Mapping[str, Means], variant: Mapping[str, Any], palette: Palette, *, named: bool
) -> Panel:
    """Draw a dot per head and a line at the means of the layers, for each of several numbers; `named` ones are in the legend."""
    layers, heads, traces = variant["layers"], variant["heads"], list[dict[str, Any]]()
    is_entropy = "entropy" in found
    shades = dict(zip(found, (palette.more, palette.less), strict=False))
    for name, each in found.items():
        what = name if is_entropy else f"attention to {name}"
        traces.append(_draw_dots(each, layers, heads, palette.tint(shades[name], 0.8 if is_entropy else 0.5), what))
        colour = palette.ink if is_entropy else shades[name]
        traces += draw_line(name, _by_layer(each), layers, colour, palette, what, named)
    value = value_axis(palette, "mean entropy (nats)" if is_entropy else "mean attention", rangemode="tozero")
    return Panel(title, bands_first(traces), positions(palette, "layer", layers), value)


def _draw_dots(found: Means, layers: Sequence[int], heads: Sequence[int], colour: str, what: str) -> dict[str, Any]:
    """Draw a dot per head, [L, H], by number from left to right within its layer."""
    return head_dots(found.mean, layers, heads, SPREAD) | {
        "showlegend": False,
        "marker": {"size": 5, "color": colour, "line": {"width": 0}},
        "customdata": tips_by_head(layers, heads, found),
        "hovertemplate": f"Head %{{customdata[0]}}.%{{customdata[1]}}<br>{what} %{{y:.3~r}}{INTERVAL_TIP}<extra></extra>",
    }


def _by_layer(found: Means) -> Means:
    """Return means over the heads of each layer, [L, H] -> [L]."""
    return found.map(lambda values: mean_over(values, -1))


HEAD_ENTROPY = StudyFigure(
    name="head-entropy",
    title="Entropy and special tokens by head",
    doc="A dot for every head at its mean entropy, and at its mean attention to [CLS] (or a special first token) and [SEP], by layer, with the mean of each layer and its 95 % "
    "bootstrap interval. Two variants are shown one below the other.",
    not_="Not smoothed, where the paper mixes 1/n into every row, and without rows of special tokens on the right. Longer texts have higher entropies.",
    citation="Clark et al. 2019, What Does BERT Look At?, figs. 2 and 4",
    params=EitherVariantParams,
    range=(0.0, None),
    draw=draw_head_entropy,
)
