"""Lines over the layers, with a band at the bootstrap interval: residual ratio, mixing ratio, and norms by class of token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.csv_text import Cell
from ...core.declarations import NoParams
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import ABOVE, Palette, layout, listed, plain, positions
from ..residual import log_ticks
from .figure import Array, Means, StudyFigure, VariantParams, column, mean_of, means, titles
from .panels import Panel, laid, plain_axis


def line(
    name: str, found: Means, layers: Sequence[int], colour: str, palette: Palette, what: str, named: bool = True
) -> list[dict[str, Any]]:
    """A line with dots at the means, [L], on a band that spans their intervals."""
    low, high = found.interval()
    places = list(range(len(layers)))
    band = {
        "type": "scatter",
        "x": [*places, *reversed(places)],
        "y": [*plain(high), *reversed(plain(low))],
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
        "y": plain(found.mean),
        "mode": "lines+markers",
        "line": {"color": colour, "width": 1.5},
        "marker": {"size": 6, "color": colour},
        "customdata": [
            [layer, None, *plain([one, other], 3)] for layer, one, other in zip(layers, low, high, strict=True)
        ],
        "hovertemplate": f"{name}, layer %{{customdata[0]}}<br>{what} %{{y:.3g}} (%{{customdata[2]:.3g}} to %{{customdata[3]:.3g}})<extra></extra>",
    }
    return [band, dots]


def bands_first(traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same traces with all bands below all lines and dots: what is drawn later covers what is there."""
    return sorted(traces, key=lambda trace: "fill" not in trace)


def colours(palette: Palette) -> list[str]:
    """Of the first and the second variant."""
    return [palette.more, palette.less]


def by_layer(name: str, layers: Sequence[int], found: Means) -> list[list[Cell]]:
    """Rows of a table: name, layer, mean and interval."""
    low, high = found.interval()
    return [[name, layer, *plain([found.mean[at], low[at], high[at]], 10)] for at, layer in enumerate(layers)]


def residual_ratio(study: StudySummary, params: NoParams, palette: Palette) -> Drawing:
    """A line for each variant on a logarithmic axis, where rank collapse is a straight fall."""
    traces, rows, words = list[dict[str, Any]](), list[list[Cell]](), list[str]()
    found = [means(study, "residual_ratio", "weights", number) for number in range(len(study.variants))]
    for number, (name, each) in enumerate(zip(titles(study), found, strict=True)):
        layers = study.variants[number]["layers"]
        traces += line(name, each, layers, colours(palette)[number], palette, "residual ratio")
        rows += by_layer(name, layers, each)
        words.append(listed(f"Residual ratio of {name} after each layer", layers, each.mean.tolist(), "layer"))
    spans = np.concatenate([part for each in found for part in (each.mean, *each.interval())])
    marks = log_ticks(spans)
    ends = [float(np.log10(tick)) for tick in (marks[0] * 0.95, marks[-1] * 1.05)]
    ratio = plain_axis(palette, "residual ratio (log scale)", type="log", tickvals=marks, range=ends)
    return Drawing(
        bands_first(traces),
        layout(
            palette,
            positions(palette, "after layer", study.variants[0]["layers"]),
            ratio | {"ticktext": [f"{tick:g}" for tick in marks]},
            legend=ABOVE if len(found) > 1 else None,
        ),
        " ".join(words),
        ("variant", "layer", "residual_ratio", "low", "high"),
        rows,
    )


RESIDUAL_RATIO = StudyFigure(
    name="residual-ratio",
    title="Residual ratio by layer",
    doc="How much of the hidden states still differs from token to token after each layer, the mean over inputs with its 95 % bootstrap interval; a straight fall on "
    "this logarithmic axis is rank collapse.",
    not_="Not comparable below about 1e-6, where float32 rounds the differences away (the plateau of the paper's table is that). A trained model with its skip "
    "connections is not the paper's untrained one without.",
    citation="Masumura & Taki 2025, On the Role of Hidden States of Modern Hopfield Network in Transformer, table 1; measure of Dong et al. 2021",
    range=(0.0, None),
    measures=("residual_ratio",),
    draw=residual_ratio,
)


def mixing_ratio(study: StudySummary, params: NoParams, palette: Palette) -> Drawing:
    """A line for each variant, in per cent; the table has the smallest and the largest token, too."""
    traces, rows, words = list[dict[str, Any]](), list[list[Cell]](), list[str]()
    number_of = len(study.variants)
    for number, name in enumerate(titles(study)):
        found = means(study, "mixing_ratio", "norm-residual", number)
        prefix, layers = f"stat/{number}/mixing_ratio/norm-residual", study.variants[number]["layers"]
        traces += line(name, found, layers, colours(palette)[number], palette, "mixing ratio")
        bounds = zip(study.arrays[f"{prefix}/low"], study.arrays[f"{prefix}/high"], strict=True)
        rows += [[*row, *plain(ends, 10)] for row, ends in zip(by_layer(name, layers, found), bounds, strict=True)]
        whole = found.of(lambda each: mean_of(each, -1))
        low, high = whole.interval()
        rows.append(
            [
                name,
                "all",
                *plain(
                    [whole.mean, low, high, study.arrays[f"{prefix}/low"].min(), study.arrays[f"{prefix}/high"].max()],
                    10,
                ),
            ]
        )
        words.append(f"Mixing ratio of {name}: {100 * float(whole.mean):.2f} % over all layers.")
    return Drawing(
        bands_first(traces),
        layout(
            palette,
            positions(palette, "layer", study.variants[0]["layers"]),
            plain_axis(palette, "mixing ratio", rangemode="tozero", tickformat=".0%"),
            legend=ABOVE if number_of > 1 else None,
        ),
        " ".join(words),
        ("variant", "layer", "mean", "low", "high", "smallest", "largest"),
        rows,
    )


MIXING_RATIO = StudyFigure(
    name="mixing-ratio",
    title="Mixing ratio by layer",
    doc="How much of a token after the attention block comes from other tokens, against what stays its own: the mean over tokens and inputs by layer, with its 95 % "
    "bootstrap interval.",
    not_="Not a share of a whole: two norms are compared. The paper masks 12 % of the tokens of 992 Wikipedia sequences; here the texts are taken as they are, so "
    "its numbers come close but not equal.",
    citation="Kobayashi et al. 2021, Incorporating Residual and Normalization Layers, table 1 and fig. 3",
    range=(0.0, 1.0),
    measures=("mixing_ratio",),
    lenses=("norm-residual",),
    draw=mixing_ratio,
)

# Class of tokens -> what the legend says.
CLASSES = {"first": "[CLS] or first", "separator": "[SEP]", "punct": "punctuation", "other": "other tokens"}
PARTS = {"attention": "attention α", "norm": "norm ‖α f(x)‖", "vector": "vector ‖f(x)‖"}


def norms(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Three panels (weight, norm of the weighted vector, norm of the vector), a line per class of tokens in each."""
    found = means(study, "token_norms", "norm", params.variant)  # [L, H, C]
    layers = study.variant(params.variant)["layers"]
    shades = dict(zip(CLASSES, (palette.more_end, palette.more, palette.less, palette.muted), strict=True))
    panels, rows = list[Panel](), list[list[Cell]]()
    for part, title in PARTS.items():
        traces = list[dict[str, Any]]()
        for kind, name in CLASSES.items():
            each = found.of(_averaged(column("token_norms", f"{part}_{kind}")))
            if not np.isfinite(each.mean).any():
                continue
            traces += line(name, each, layers, shades[kind], palette, title, part == "attention")
            rows += [[part, kind, *row[1:]] for row in by_layer(name, layers, each)]
        panels.append(
            Panel(
                title,
                bands_first(traces),
                positions(palette, "layer", layers),
                plain_axis(palette, "", rangemode="tozero"),
            )
        )
    traces, arranged = laid(palette, panels, 3, legend={**ABOVE, "y": 1.14})
    heavy = found.of(_averaged(column("token_norms", "attention_separator"))).mean
    light = found.of(_averaged(column("token_norms", "norm_separator"))).mean
    return Drawing(
        traces,
        arranged,
        f"{listed('Attention to [SEP], mean over heads', layers, heavy.tolist(), 'layer')} {listed('Norm of what it passes on', layers, light.tolist(), 'layer')}",
        ("part", "class", "layer", "mean", "low", "high"),
        rows,
    )


def _averaged(at: int) -> Any:
    """Takes a column, and its mean over heads: [..., H, C] -> [...]."""

    def reduce(values: Array) -> Array:
        return mean_of(values[..., at], -1)

    return reduce


NORMS = StudyFigure(
    name="norms",
    title="Norms by class of token",
    doc="How much attention a query gives to tokens of each class, how long the vectors are that reach it from there, and how long they are before weighting; by "
    "layer, mean over queries, heads and inputs. "
    "A token that is attended to but has a short vector passes little on.",
    not_="Not influence on the output: lengths of vectors, which may cancel each other. Classes are disjoint, and tokens of a class are summed for each query (the "
    "vectors' own lengths are averaged).",
    citation="Kobayashi et al. 2020, Attention is Not Only a Weight, figs. 3 and 4",
    params=VariantParams,
    range=(0.0, None),
    measures=("token_norms",),
    lenses=("norm",),
    of_one=True,
    draw=norms,
)
