"""What types of tokens heads attend to, through one lens beside another."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.declarations import NoParams
from ..lenses import LENSES
from ..measures.token_types import APART, COLUMNS, TokenTypesParams
from .figure import Array, Drawing, Figure, Numbers, lenses_of, values
from .paper import ABOVE, Palette, axis, layout, plain, said

NAME = "token_types"
WORDS = {"special": "special", "punct": "punctuation", "word": "words", "subword": "pieces of words"}
QUERIES = {"first": "of the first token", "last": "of the last token", "all": "of all tokens"}
AGGREGATES = {"max": "largest", "min": "smallest", "sum": "summed", "mean": "mean"}
QUANTILES = (0.25, 0.75)


def draw(numbers: Numbers, params: NoParams, palette: Palette) -> Drawing:
    """A group of bars per type, one for each lens: the mean over all heads, with whiskers at their quartiles."""
    lenses = lenses_of(numbers, NAME)
    found = {lens: _heads(values(numbers, NAME, lens)) for lens in lenses}  # [heads, C] each
    shown = [
        place
        for place, name in enumerate(COLUMNS)
        if name not in APART and any(np.isfinite(each[:, place]).any() for each in found.values())
    ]
    names = [WORDS.get(COLUMNS[place], COLUMNS[place]) for place in shown]
    # No darker than that: whiskers must stand out from them.
    colours = [palette.tint(palette.more, share) for share in np.linspace(0.4, 1.0, len(lenses))]
    bars, rows, words = [], list[list[Any]](), []
    for lens, colour in zip(lenses, colours, strict=True):
        summaries = [_summary(found[lens][:, place]) for place in shown]
        bars.append(_bar(LENSES[lens].title, names, summaries, colour, palette))
        rows += [[lens, COLUMNS[place], *plain(summary, 7)] for place, summary in zip(shown, summaries, strict=True)]
        told = ", ".join(f"{name} {said(summary[0])}" for name, summary in zip(names, summaries, strict=True))
        words.append(f"{LENSES[lens].title}: {told}.")
    return Drawing(
        bars,
        layout(
            palette,
            axis(palette, "type of the token attended to", ticks=""),
            axis(palette, _title(numbers), grid=True, rangemode="tozero"),
            barmode="group",
            legend=ABOVE if len(lenses) > 1 else None,
        ),
        f"Mean over heads, {_title(numbers)}, by type of token. {' '.join(words)}",
        ("lens", "type", "mean", "lower_quartile", "upper_quartile"),
        rows,
    )


def _heads(found: Array) -> Array:
    """[L, H, C] -> [L H, C]."""
    return found.reshape(-1, found.shape[-1])


def _summary(numbers: Array) -> tuple[float, float, float]:
    """Mean and quartiles over the heads that have a value."""
    defined = numbers[np.isfinite(numbers)]
    if defined.size == 0:
        return (np.nan, np.nan, np.nan)
    low, high = np.quantile(defined, QUANTILES)
    return (float(defined.mean()), float(low), float(high))


def _bar(
    name: str, types: list[str], summaries: list[tuple[float, float, float]], colour: str, palette: Palette
) -> dict[str, Any]:
    means, lows, highs = (np.array(each) for each in zip(*summaries, strict=True))
    # Few very large heads can pull a mean beyond the quartiles; a whisker then has no length on that side.
    whiskers = {"array": plain(np.maximum(highs - means, 0)), "arrayminus": plain(np.maximum(means - lows, 0))}
    return {
        "type": "bar",
        "name": name,
        "x": types,
        "y": plain(means),
        "marker": {"color": colour, "line": {"width": 0}},
        "error_y": {"type": "data", "symmetric": False, **whiskers, "color": palette.ink, "thickness": 1, "width": 3},
        "customdata": [[None, None, *plain([low, high], 3)] for low, high in zip(lows, highs, strict=True)],
        "hovertemplate": f"{name}, %{{x}}<br>mean %{{y:.3g}}<br>quartiles of heads %{{customdata[2]}} to %{{customdata[3]}}<extra></extra>",
    }


def _title(numbers: Numbers) -> str:
    """What the measure's parameters made of it."""
    asked: dict[str, Any] = next((each for each in numbers.document["request"]["measures"] if each["name"] == NAME), {})
    params = TokenTypesParams.model_validate({name: value for name, value in asked.items() if name != "name"})
    return f"{AGGREGATES[params.aggregate]} attention {QUERIES[params.query]}"


TOKEN_TYPES = Figure(
    name="token_types",
    title="Token types",
    doc="What heads attend to: special tokens, punctuation, words, pieces of words, and parts of speech where the request gave them; for every lens that was read, "
    "the mean over all heads with the quartiles of heads.",
    not_="Not comparable between types of different number where the measure takes the largest entry of a type, as the paper does: of many tokens the largest is larger.",
    citation="Sun & Marasovi\u0107 2021, fig. 1",
    measures=(NAME,),
    draw=draw,
)
