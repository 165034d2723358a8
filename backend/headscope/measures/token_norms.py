"""Weight and norm of the contributions of each class of tokens: a token may receive attention and pass nothing on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.attention import Layer, Reading
from ..core.lazy import Tensor, torch
from ..core.tokens import Token
from ._maps import separators, special
from .base import Measure, only

CLASSES = ("first", "separator", "punct", "other")
PARTS = ("attention", "norm", "vector")
COLUMNS = tuple(f"{part}_{kind}" for part in PARTS for kind in CLASSES)


def looks(token: Token, params: Any) -> object:
    """Look at whether a token is punctuation, and at the names of special tokens, since those that end a text share theirs."""
    return token.kind == "punct", special(token, params)


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return for each class its weight and the norm of its contributions, summed over tokens and averaged over queries, and the mean norm of its projected values: [H, C].

    C is in the order of COLUMNS. NaN where the input has no token of the class, and for vectors of tokens that no query attends to.
    """
    weight = layer.weights.double().sum(1)  # [H, K]
    norm = readings[lens].map.double().sum(1)
    lengths = norm / weight  # |A| ||f|| summed over queries, by the sum of |A|
    queries = layer.weights.shape[1]
    found = torch.full((len(weight), len(COLUMNS)), torch.nan, dtype=torch.float64)
    for place, tokens in enumerate(_classes(layer.axes.keys)):
        if tokens:
            found[:, place] = weight[:, tokens].sum(-1) / queries
            found[:, place + len(CLASSES)] = norm[:, tokens].sum(-1) / queries
            found[:, place + 2 * len(CLASSES)] = lengths[:, tokens].nanmean(-1)
    return found.to(readings[lens].map.dtype)


def _classes(tokens: tuple[Token, ...]) -> list[list[int]]:
    """Return the indices of the tokens of each class; every token is in one class."""
    closing = set(separators(tokens))
    kinds = [_kind(token, place, closing) for place, token in enumerate(tokens)]
    return [[place for place, kind in enumerate(kinds) if kind == name] for name in CLASSES]


def _kind(token: Token, place: int, closing: set[int]) -> str:
    if place in closing:
        return "separator"
    if place == 0 and token.kind == "special":
        return "first"
    return "punct" if token.kind == "punct" else "other"


TOKEN_NORMS = Measure(
    name="token_norms",
    title="Norms by class of token",
    doc="For [CLS] (or a special first token), separators, punctuation and all other tokens: how much attention a query gives them, how long the vectors are that "
    "they contribute, and how long these are before they are weighted.",
    not_="Not influence: lengths of vectors that may cancel, for one head before the heads are added up. Weight and norm are sums over the tokens of a class, "
    "so a class of many tokens has more; the vectors' own length is a mean.",
    citation="Kobayashi et al. 2020, Attention is Not Only a Weight, sec. 4",
    range=(0.0, None),
    needs=("kinds",),
    shape="L H C",
    columns=COLUMNS,
    accepts=only("norm"),
    reads=("norm",),
    compute=compute,
    looks=looks,
)
