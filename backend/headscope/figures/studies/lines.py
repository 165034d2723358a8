"""Lines over the layers with bootstrap intervals as bands: residual ratio, mixing ratio, and norms by class of token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.csv_text import Cell
from ...core.declarations import NoParams
from ...studies.results.summary import Means, StudySummary, mean_over, pick_column
from ..figure import Drawing
from ..theme import ABOVE, Palette, describe_values, layout, log_axis, positions, to_json, value_axis
from .figure import CLS, INTERVAL_TIP, SEP, StudyFigure, VariantParams, describe_interval, of_variant, variant_names
from .panels import Panel, arrange_panels


def draw_line(
    name: str, found: Means, layers: Sequence[int], colour: str, palette: Palette, what: str, named: bool = True
) -> list[dict[str, Any]]:
    """Draw a line with dots at the means, [L], on a band that spans their intervals."""
    low, high = found.interval()
    places = list(range(len(layers)))
    band = {
        "type": "scatter",
        "x": [*places, *reversed(places)],
        "y": [*to_json(high), *reversed(to_json(low))],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillcolor": palette.veil(colour, 0.25),
        "hoverinfo": "skip",
        "showlegend": False,
    }
    dots = {
        "type": "scatter",
        "name": name,
        "legendgroup": name,
        "showlegend": named,
        "x": places,
        "y": to_json(found.mean),
        "mode": "lines+markers",
        "line": {"color": colour, "width": 1.5},
        "marker": {"size": 6, "color": colour},
        "customdata": [[layer, None, describe_interval(*ends)] for layer, *ends in zip(layers, low, high, strict=True)],
        "hovertemplate": f"{name}, layer %{{customdata[0]}}<br>{what} %{{y:.3~r}}{INTERVAL_TIP}<extra></extra>",
    }
    return [band, dots]


def bands_first(traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort bands before lines and dots, because later traces cover earlier ones."""
    return sorted(traces, key=lambda trace: "fill" not in trace)


def _rows_by_layer(name: str, layers: Sequence[int], found: Means) -> list[list[Cell]]:
    """Return rows of a table: name, layer, mean and interval."""
    low, high = found.interval()
    return [[name, layer, *to_json([found.mean[at], low[at], high[at]], 10)] for at, layer in enumerate(layers)]


def _longest_layers(study: StudySummary) -> list[int]:
    """Return the layers of the variant that has most."""
    return max((variant["layers"] for variant in study.variants), key=len)


def draw_residual_ratio(study: StudySummary, params: NoParams, palette: Palette) -> Drawing:
    """Draw a line per variant on a logarithmic axis, where rank collapse is a straight fall."""
    traces, rows, words = list[dict[str, Any]](), list[list[Cell]](), list[str]()
    found = [study.stat("residual_ratio", "weights", number).means for number in range(len(study.variants))]
    for number, (name, each) in enumerate(zip(variant_names(study), found, strict=True)):
        layers = study.variants[number]["layers"]
        line = draw_line(name, each, layers, (palette.more, palette.less)[number], palette, "residual ratio")
        traces += of_variant(line, number)
        rows += _rows_by_layer(name, layers, each)
        words.append(describe_values(f"Residual ratio of {name} after each layer", layers, each.mean.tolist(), "layer"))
    plotted = np.concatenate([part for each in found for part in (each.mean, *each.interval())])
    return Drawing(
        bands_first(traces),
        layout(
            palette,
            positions(palette, "after layer", _longest_layers(study)),
            log_axis(palette, "residual ratio (log scale)", plotted),
            legend=ABOVE if len(found) > 1 else None,
        ),
        " ".join(words),
        ("variant", "layer", "residual_ratio", "low", "high"),
        rows,
    )


RESIDUAL_RATIO = StudyFigure(
    name="residual-ratio",
    title="Residual ratio by layer",
    doc="How much the hidden states of tokens still differ after each layer: the mean over inputs with its 95 % bootstrap interval. A straight fall on this logarithmic axis "
    "is rank collapse.",
    not_="Not comparable below about 1e-6, where differences vanish in float32 rounding (the plateau in the paper's table). A trained model with skip connections differs from "
    "the paper's untrained one without.",
    citation="Masumura & Taki 2025, On the Role of Hidden States of Modern Hopfield Network in Transformer, table 1; measure of Dong et al. 2021",
    range=(0.0, None),
    draw=draw_residual_ratio,
)


def draw_mixing_ratio(study: StudySummary, params: NoParams, palette: Palette) -> Drawing:
    """Draw a line per variant, in per cent; the table includes the smallest and the largest token."""
    traces, rows, words = list[dict[str, Any]](), list[list[Cell]](), list[str]()
    for number, name in enumerate(variant_names(study)):
        stat = study.stat("mixing_ratio", "norm-residual", number)
        found = study.stat("mixing_ratio", "norm-residual", number).means  # [L]
        layers = study.variants[number]["layers"]
        line = draw_line(name, found, layers, (palette.more, palette.less)[number], palette, "mixing ratio")
        traces += of_variant(line, number)
        by_layer = zip(_rows_by_layer(name, layers, found), stat.low, stat.high, strict=True)
        rows += [[*row, *to_json(ends, 10)] for row, *ends in by_layer]
        whole = found.map(lambda each: mean_over(each, -1))
        rows.append([name, "all", *to_json([whole.mean, *whole.interval(), stat.low.min(), stat.high.max()], 10)])
        words.append(f"Mixing ratio of {name}: {100 * float(whole.mean):.2f} % over all layers.")
    return Drawing(
        bands_first(traces),
        layout(
            palette,
            positions(palette, "layer", _longest_layers(study)),
            value_axis(palette, "mixing ratio", rangemode="tozero", tickformat=".0%"),
            legend=ABOVE if len(study.variants) > 1 else None,
        ),
        " ".join(words),
        ("variant", "layer", "mean", "low", "high", "smallest", "largest"),
        rows,
    )


MIXING_RATIO = StudyFigure(
    name="mixing-ratio",
    title="Mixing ratio by layer",
    doc="How much of a token's vector after the attention block comes from other tokens rather than from itself: the mean over tokens and inputs by layer, with its 95 % "
    "bootstrap interval.",
    not_="Not a share of a whole: it compares two norms. The paper masks 12 % of the tokens of 992 Wikipedia sequences; here texts are used as they are, so the numbers come "
    "close, but are not equal.",
    citation="Kobayashi et al. 2021, Incorporating Residual and Normalization Layers, table 1 and fig. 3",
    range=(0.0, 1.0),
    draw=draw_mixing_ratio,
)

# Class of tokens -> name in the legend.
CLASSES = {"first": CLS, "separator": SEP, "punct": "punctuation", "other": "other tokens"}
PARTS = {"attention": "attention α", "norm": "norm ‖α f(x)‖", "vector": "vector ‖f(x)‖"}


def draw_norms(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Draw three panels (weight, norm of the weighted vector, norm of the vector) with a line per class of tokens."""
    found = study.stat("token_norms", "norm", params.variant).means  # [L, H, C]
    layers = study.variant(params.variant)["layers"]
    shades = dict(zip(CLASSES, (palette.more_end, palette.more, palette.less, palette.muted), strict=True))
    panels, rows = list[Panel](), list[list[Cell]]()
    for part, title in PARTS.items():
        traces = list[dict[str, Any]]()
        for kind, name in CLASSES.items():
            each = _mean_over_heads(found, f"{part}_{kind}")
            if not np.isfinite(each.mean).any():
                continue
            traces += draw_line(name, each, layers, shades[kind], palette, title, part == "attention")
            rows += [[part, *row] for row in _rows_by_layer(kind, layers, each)]
        value = value_axis(palette, "", rangemode="tozero")
        panels.append(Panel(title, bands_first(traces), positions(palette, "layer", layers), value))
    traces, arranged = arrange_panels(palette, panels, 3, legend={**ABOVE, "y": 1.14})
    attention = _mean_over_heads(found, "attention_separator").mean.tolist()
    norm = _mean_over_heads(found, "norm_separator").mean.tolist()
    return Drawing(
        traces,
        arranged,
        f"{describe_values('Attention to [SEP], mean over heads', layers, attention, 'layer')} "
        f"{describe_values('Norm of its weighted vector', layers, norm, 'layer')}",
        ("part", "class", "layer", "mean", "low", "high"),
        rows,
    )


def _mean_over_heads(found: Means, column: str) -> Means:
    """Return a column's mean over heads, [L, H, C] -> [L]."""
    pick = pick_column("token_norms", column)
    return found.map(lambda values: mean_over(pick(values), -1))


NORMS = StudyFigure(
    name="norms",
    title="Norms by class of token",
    doc="How much attention a query gives to tokens of each class, the norm of the weighted vectors that it receives from them, and their norm before weighting; by layer, "
    "mean over queries, heads and inputs. A token with much attention but a short vector passes on little.",
    not_="Not influence on the output: vectors may cancel each other, whatever their norms. Classes are disjoint, and tokens of a class are summed for each query (norms "
    "before weighting are averaged).",
    citation="Kobayashi et al. 2020, Attention is Not Only a Weight, figs. 3 and 4",
    params=VariantParams,
    range=(0.0, None),
    of_one=True,
    draw=draw_norms,
)
