"""A mark or a cell for every head: entropies and special tokens by layer, and the six metrics of HeadVis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.csv_text import Cell
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import ABOVE, Palette, listed, plain, positions, said
from .figure import (
    BOUNDS,
    Array,
    EitherVariantParams,
    Means,
    StudyFigure,
    VariantParams,
    column,
    mean_of,
    means,
    picked,
    titles,
)
from .lines import bands_first, line
from .panels import Panel, Scale, head_columns, heads_map, laid, layer_rows, plain_axis, reach

SPREAD = 0.6
# What the legend calls a special token -> its column.
SPECIAL = {"[CLS] or first": "first", "[SEP]": "separator"}


def dots(found: Means, layers: Sequence[int], heads: Sequence[int], colour: str, what: str) -> dict[str, Any]:
    """A dot per head, [L, H], by number from left to right within its layer."""
    low, high = found.interval()
    offsets = np.linspace(-SPREAD / 2, SPREAD / 2, len(heads)) if len(heads) > 1 else np.zeros(1)
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": plain(np.arange(len(layers))[:, None] + offsets),
        "y": plain(found.mean),
        "marker": {"size": 5, "color": colour, "line": {"width": 0}},
        "customdata": [
            [layer, head, *plain([low[i, j], high[i, j]], 3)]
            for i, layer in enumerate(layers)
            for j, head in enumerate(heads)
        ],
        "hovertemplate": f"Head %{{customdata[0]}}.%{{customdata[1]}}<br>{what} %{{y:.3g}}{BOUNDS}<extra></extra>",
    }


def head_entropy(study: StudySummary, params: EitherVariantParams, palette: Palette) -> Drawing:
    """For each variant, left a dot per head at its mean entropy, right attention to [CLS] and [SEP]; lines at the means of the layers."""
    study.variant(params.variant or 0)
    panels, rows, words = list[Panel](), list[list[Cell]](), list[str]()
    several = len(study.variants) > 1
    for number, title in enumerate(titles(study)):
        if params.variant not in (None, number):
            continue
        layers = study.variants[number]["layers"]
        spread = means(study, "entropy", "weights", number)
        special = {
            name: means(study, "special_tokens", "weights", number).of(picked(column("special_tokens", at)))
            for name, at in SPECIAL.items()
        }
        special = {name: each for name, each in special.items() if np.isfinite(each.mean).any()}
        where = f", {title}" if several else ""
        panels += [
            _dots_panel(f"Entropy{where}", {"entropy": spread}, study.variants[number], palette, named=False),
            _dots_panel(f"Special tokens{where}", special, study.variants[number], palette, named=len(panels) == 0),
        ]
        rows += _head_rows(title, "entropy", spread, study.variants[number])
        for name, each in special.items():
            rows += _head_rows(title, f"attention to {name}", each, study.variants[number])
        told = f"Mean entropy of the heads in nats{f' with {title}' if several else ''}"
        words.append(listed(told, layers, _layers(spread).mean.tolist(), "layer"))
    traces, arranged = laid(palette, panels, 2, legend={**ABOVE, "y": 1.12})
    return Drawing(
        traces, arranged, " ".join(words), ("variant", "number", "layer", "head", "mean", "low", "high"), rows
    )


def _dots_panel(
    title: str, found: Mapping[str, Means], one: Mapping[str, Any], palette: Palette, *, named: bool
) -> Panel:
    """A dot per head and a line at the means of the layers, for each of several numbers; the legend names them if `named`."""
    layers, heads, traces = one["layers"], one["heads"], list[dict[str, Any]]()
    alone = "entropy" in found
    shades = dict(zip(found, (palette.more, palette.less), strict=False))
    for name, each in found.items():
        what = name if alone else f"attention to {name}"
        traces.append(dots(each, layers, heads, palette.tint(shades[name], 0.8 if alone else 0.5), what))
        traces += line(name, _layers(each), layers, palette.ink if alone else shades[name], palette, what, named)
    value = plain_axis(palette, "mean entropy (nats)" if alone else "mean attention", rangemode="tozero")
    return Panel(title, bands_first(traces), positions(palette, "layer", layers), value)


def _layers(found: Means) -> Means:
    """Means over the heads of each layer."""
    return found.of(lambda values: mean_of(values, -1))


def _head_rows(variant: str, name: str, found: Means, one: Mapping[str, Any]) -> list[list[Cell]]:
    low, high = found.interval()
    return [
        [variant, name, layer, head, *plain([found.mean[i, j], low[i, j], high[i, j]], 10)]
        for i, layer in enumerate(one["layers"])
        for j, head in enumerate(one["heads"])
    ]


HEAD_ENTROPY = StudyFigure(
    name="head-entropy",
    title="Entropy and special tokens by head",
    doc="A dot for every head at its mean entropy, and at its mean attention to [CLS] (or a special first token) and [SEP], layer by layer, with the mean of each "
    "layer and its 95 % bootstrap interval. Two variants stand below each other.",
    not_="Not smoothed, where the paper mixes 1/n into every row, and without rows of special tokens in the right picture. Longer texts have higher entropies.",
    citation="Clark et al. 2019, What Does BERT Look At?, figs. 2 and 4",
    params=EitherVariantParams,
    range=(0.0, None),
    measures=("entropy", "special_tokens"),
    draw=head_entropy,
)

# Metric -> its title, its measure, and its column (None: it has none).
METRICS: dict[str, tuple[str, str, str | None]] = {
    "self_attention_score": ("Self-attention", "head_roles", "self"),
    "prev_token_score": ("Previous token", "head_roles", "previous_matched"),
    "pattern_entropy": ("Entropy (nats)", "entropy", None),
    "qk_distance": ("Distance (tokens)", "qk_distance", "mean"),
    "qk_distance_variance": ("Variance of the distance", "qk_distance", "square"),
    "induction_score": ("Induction", "head_roles", "induction_matched"),
}


def metric(study: StudySummary, name: str, number: int) -> Means:
    """One of METRICS, [L, H]; the variance of the distance is over all queries of all inputs."""
    _, measure, at = METRICS[name]
    found = means(study, measure, "weights", number)
    if at is None:
        return found
    if name != "qk_distance_variance":
        return found.of(lambda values: values[..., column(measure, at)])
    first, second = column(measure, "mean"), column(measure, "square")
    return found.of(lambda values: np.maximum(values[..., second] - values[..., first] ** 2, 0))


def head_metrics(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """A map of heads per metric, each on a scale of its own; those that no input defines are left out."""
    one = study.variant(params.variant)
    layers, heads = one["layers"], one["heads"]
    found = {name: metric(study, name, params.variant) for name in METRICS}
    there = [name for name, each in found.items() if np.isfinite(each.mean).any()]
    panels = [
        _metric_panel(palette, METRICS[name][0], found[name], layers, heads, number)
        for number, name in enumerate(there)
    ]
    traces, arranged = laid(palette, panels, 3)
    words = [f"{title}: {_largest(found[name].mean, layers, heads)}" for name, (title, _, _) in METRICS.items()]
    table = [part for each in found.values() for part in (each.mean, *each.interval())]
    return Drawing(
        traces,
        arranged,
        f"Heads with the largest value. {'; '.join(words)}.",
        ("layer", "head", *(f"{name}{part}" for name in METRICS for part in ("", "_low", "_high"))),
        [
            [layer, head, *plain([each[i, j] for each in table], 10)]
            for i, layer in enumerate(layers)
            for j, head in enumerate(heads)
        ],
    )


def _metric_panel(
    palette: Palette, title: str, found: Means, layers: Sequence[int], heads: Sequence[int], number: int
) -> Panel:
    low, high = found.interval()
    cells = heads_map(
        palette, found.mean, layers, heads, what=title.lower(), bounds=reach(found.mean),
        about=np.stack([low, high], -1), says=BOUNDS,
    )  # fmt: skip
    down = layer_rows(palette, layers, "" if number % 3 else "layer")
    return Panel(title, [cells], head_columns(palette, heads, "head" if number >= 2 else "", 6), down, Scale())


def _largest(values: Array, layers: Sequence[int], heads: Sequence[int]) -> str:
    if not np.isfinite(values).any():
        return "not defined"
    i, j = np.unravel_index(np.nanargmax(values), values.shape)
    return f"{said(float(values[i, j]))} (head {layers[int(i)]}.{heads[int(j)]})"


HEAD_METRICS = StudyFigure(
    name="head-metrics",
    title="Six metrics of every head",
    doc="Attention to the token itself, to the one before, entropy, distance between query and key and its variance, and induction, for every head: means over "
    "inputs, each on a scale of its own.",
    not_="Not pooled over tokens as in the published pipeline: every input counts once, with texts of any length. Induction (attention to what followed an earlier "
    "occurrence of the same token, in rows that have one) "
    "is for causal models and without the pipeline's threshold of 0.01.",
    citation="Luger, Kamath et al. 2026, Visualizing Attention Heads (HeadVis); metrics as in Neuronpedia's pipeline",
    params=VariantParams,
    measures=("entropy", "head_roles", "qk_distance", "max_activation"),
    of_one=True,
    draw=head_metrics,
)
