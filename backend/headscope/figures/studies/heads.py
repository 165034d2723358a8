"""A mark or a cell for every head: entropies and special tokens by layer, and the six metrics of HeadVis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...study.results.summary import Summary
from ..figure import Cell, Drawing
from ..paper import ABOVE, Palette, listed, plain, positions, said
from .figure import BOUNDS, Array, Means, StudyFigure, VariantParams, column, mean_of, means, picked
from .lines import line
from .panels import Panel, Scale, head_columns, heads_map, laid, layer_rows, plain_axis, reach

SPREAD = 0.6


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


def head_entropy(study: Summary, params: VariantParams, palette: Palette) -> Drawing:
    """Left a dot per head at its mean entropy, right attention to [CLS] and [SEP]; lines at the means of the layers."""
    one = study.variant(params.variant)
    layers, heads = one["layers"], one["heads"]
    spread = means(study, "entropy", "weights", params.variant)
    special = means(study, "special_tokens", "weights", params.variant)
    columns = {
        "[CLS] or first": (column("special_tokens", "first"), palette.more),
        "[SEP]": (column("special_tokens", "separator"), palette.less),
    }
    rows = _head_rows("entropy", spread, layers, heads)
    left = [
        dots(spread, layers, heads, palette.tint(palette.more, 0.8), "entropy"),
        *line("mean of the layer", _layers(spread), layers, palette.ink, palette, "entropy", named=False),
    ]
    right = list[dict[str, Any]]()
    for name, (at, colour) in columns.items():
        each = special.of(picked(at))
        if np.isfinite(each.mean).any():
            right += [
                dots(each, layers, heads, palette.tint(colour, 0.5), f"attention to {name}"),
                *line(name, _layers(each), layers, colour, palette, "attention"),
            ]
            rows += _head_rows(f"attention to {name}", each, layers, heads)
    panels = [
        Panel(
            "Entropy",
            left,
            positions(palette, "layer", layers),
            plain_axis(palette, "mean entropy (nats)", rangemode="tozero"),
        ),
        Panel(
            "Special tokens",
            right,
            positions(palette, "layer", layers),
            plain_axis(palette, "mean attention", rangemode="tozero"),
        ),
    ]
    traces, arranged = laid(palette, panels, 2, legend={**ABOVE, "y": 1.12})
    return Drawing(
        traces,
        arranged,
        listed("Mean entropy of the heads in nats", layers, _layers(spread).mean.tolist(), "layer"),
        ("number", "layer", "head", "mean", "low", "high"),
        rows,
    )


def _layers(found: Means) -> Means:
    """Means over the heads of each layer."""
    return found.of(lambda values: mean_of(values, -1))


def _head_rows(name: str, found: Means, layers: Sequence[int], heads: Sequence[int]) -> list[list[Cell]]:
    low, high = found.interval()
    return [
        [name, layer, head, *plain([found.mean[i, j], low[i, j], high[i, j]], 10)]
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
    ]


HEAD_ENTROPY = StudyFigure(
    name="head-entropy",
    title="Entropy and special tokens by head",
    doc="A dot for every head at its mean entropy, and at its mean attention to [CLS] (or a special first token) and [SEP], layer by layer, with the mean of each "
    "layer and its 95 % bootstrap interval.",
    not_="Not smoothed, where the paper mixes 1/n into every row, and without rows of special tokens in the right picture. Longer texts have higher entropies.",
    citation="Clark et al. 2019, What Does BERT Look At?, figs. 2 and 4",
    params=VariantParams,
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


def metric(study: Summary, name: str, number: int) -> Means:
    """One of METRICS, [L, H]; the variance of the distance is over all queries of all inputs."""
    _, measure, at = METRICS[name]
    found = means(study, measure, "weights", number)
    if at is None:
        return found
    if name != "qk_distance_variance":
        return found.of(lambda values: values[..., column(measure, at)])
    first, second = column(measure, "mean"), column(measure, "square")
    return found.of(lambda values: np.maximum(values[..., second] - values[..., first] ** 2, 0))


def head_metrics(study: Summary, params: VariantParams, palette: Palette) -> Drawing:
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
    draw=head_metrics,
)
