"""Attention to types of tokens, one lens next to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.declarations import NoParams
from ..lenses import LENSES
from ..measures.token_types import APART, COLUMNS, TokenTypesParams
from .figure import Drawing, Figure, FigureData, lenses_of, values
from .theme import ABOVE, Palette, axis, format_number, layout, to_json, value_axis

NAME = "token_types"
WORDS = {
    "special": "special",
    "punct": "punctuation",
    "word": "words",
    "subword": "pieces of words",
    "image": "the image",
}
QUERIES = {"first": "of the first token", "last": "of the last token", "all": "of all tokens"}
AGGREGATES = {"max": "largest", "min": "smallest", "sum": "summed", "mean": "mean"}
QUANTILES = (0.25, 0.75)


def draw(data: FigureData, params: NoParams, palette: Palette) -> Drawing:
    """Draw a group of bars per type, one for each lens: the mean over all heads, with whiskers at their quartiles."""
    lenses = lenses_of(data, NAME)
    by_lens = {lens: values(data, NAME, lens).reshape(-1, len(COLUMNS)) for lens in lenses}  # [L H, C] each
    present = [
        place
        for place, name in enumerate(COLUMNS)
        if name not in APART and any(np.isfinite(each[:, place]).any() for each in by_lens.values())
    ]
    names = [WORDS.get(COLUMNS[place], COLUMNS[place]) for place in present]
    # Light enough for whiskers to stand out.
    colours = [palette.tint(palette.more, share) for share in np.linspace(0.4, 1.0, len(lenses))]
    bars, rows, words = [], list[list[Any]](), []
    for lens, colour in zip(lenses, colours, strict=True):
        summaries = [_summary(by_lens[lens][:, place]) for place in present]
        bars.append(_bar(LENSES[lens].title, names, summaries, colour, palette))
        rows += [
            [lens, COLUMNS[place], *to_json(summary, 7)] for place, summary in zip(present, summaries, strict=True)
        ]
        means = ", ".join(f"{name} {format_number(summary[0])}" for name, summary in zip(names, summaries, strict=True))
        words.append(f"{LENSES[lens].title}: {means}.")
    return Drawing(
        bars,
        layout(
            palette,
            axis(palette, "type of the token attended to", ticks=""),
            value_axis(palette, _title(data), rangemode="tozero"),
            barmode="group",
            legend=ABOVE if len(lenses) > 1 else None,
        ),
        f"Mean over heads, {_title(data)}, by type of token. {' '.join(words)}",
        ("lens", "type", "mean", "lower_quartile", "upper_quartile"),
        rows,
    )


def _summary(numbers: Array) -> tuple[float, float, float]:
    """Return mean and quartiles over the heads that have a value."""
    defined = numbers[np.isfinite(numbers)]
    if defined.size == 0:
        return (np.nan, np.nan, np.nan)
    low, high = np.quantile(defined, QUANTILES)
    return (float(defined.mean()), float(low), float(high))


def _bar(
    name: str, types: list[str], summaries: list[tuple[float, float, float]], colour: str, palette: Palette
) -> dict[str, Any]:
    means, lows, highs = (np.array(each) for each in zip(*summaries, strict=True))
    # A few very large heads can pull the mean beyond the quartiles; that whisker then has no length.
    whiskers = {"array": to_json(np.maximum(highs - means, 0)), "arrayminus": to_json(np.maximum(means - lows, 0))}
    return {
        "type": "bar",
        "name": name,
        "x": types,
        "y": to_json(means),
        "marker": {"color": colour, "line": {"width": 0}},
        "error_y": {"type": "data", "symmetric": False, **whiskers, "color": palette.ink, "thickness": 1, "width": 3},
        "customdata": [[None, None, *to_json([low, high], 3)] for low, high in zip(lows, highs, strict=True)],
        "hovertemplate": f"{name}, %{{x}}<br>mean %{{y:.3~r}}<br>quartiles of heads %{{customdata[2]}} to %{{customdata[3]}}<extra></extra>",
    }


def _title(data: FigureData) -> str:
    """Describe the measure by its parameters in the request."""
    chosen: dict[str, Any] = next((each for each in data.document["request"]["measures"] if each["name"] == NAME), {})
    params = TokenTypesParams.model_validate({name: value for name, value in chosen.items() if name != "name"})
    return f"{AGGREGATES[params.aggregate]} attention {QUERIES[params.query]}"


TOKEN_TYPES = Figure(
    name="token_types",
    title="Token types",
    doc="What heads attend to: special tokens, punctuation, words, pieces of words, and parts of speech if the request has them: for each lens, the mean over all heads with "
    "the quartiles of heads.",
    not_="Not comparable between frequent and rare types if the measure takes the largest entry of a type, as in the paper: the maximum over many tokens is larger.",
    citation="Sun & Marasovi\u0107 2021, fig. 1",
    measures=(NAME,),
    draw=draw,
)
