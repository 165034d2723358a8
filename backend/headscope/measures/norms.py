"""Norms of contributions by class of token, and how much of a token comes from others (Kobayashi et al. 2020, 2021). An attended token may pass nothing on."""

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


def token_norms(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
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
    units={f"{part}_{kind}": "norm of hidden states" for part in ("norm", "vector") for kind in CLASSES},
    accepts=only("norm"),
    reads=("norm",),
    phrases={
        "attention_punct": (
            "punctuation",
            "punctuation marks",
            "commas and full stops",
            "periods",
            "full stops",
            "commas and periods",
            "commas",
        ),
        "norm_first": ("norm of [CLS]", "norm of contributions from [CLS]"),
        "norm_separator": ("norm of [SEP]", "norm of contributions from [SEP]"),
        "norm_punct": ("norm of punctuation", "norm of contributions from punctuation"),
        "attention_other": ("ordinary words", "content words", "attention to normal tokens"),
    },
    compute=token_norms,
    looks=looks,
)


def mixing_ratio(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return ||sum_{j != i} g(y_ij)|| / (||sum_{j != i} g(y_ij)|| + ||g(y_ii)||), [Q], 0..1; NaN where both are 0. The error is at most 1e-6.

    It is the norm of the sum, not the sum of the norms. ||g(y_ii)|| is the diagonal of the lens.
    """
    preserved = readings[lens].map[0].diagonal().double()
    mixed = torch.linalg.vector_norm(_mixed(layer), dim=-1)
    ratio: Tensor = mixed / (mixed + preserved)
    return ratio.to(readings[lens].map.dtype)


def _mixed(layer: Layer) -> Tensor:
    """Return sum_{j != i} g(y_ij) of every query: [Q, d] in float64."""
    own = layer.weights.diagonal(dim1=1, dim2=2)[..., None].double()  # [H, Q, K] -> [H, Q, 1]
    mixed = layer.project(layer.output.double() - own * layer.values_by_head.double())  # [H, Q, D] -> [Q, d]
    scale = layer.stream.scale(torch.float64)
    return layer.stream.linear(mixed) if scale is None else layer.stream.linear(mixed) * scale


MIXING_RATIO = Measure(
    name="mixing_ratio",
    title="Mixing ratio",
    doc="How much of a token after the attention block comes from other tokens, compared with what comes from itself through its own values and the residual connection.",
    not_="Not a share of a whole: it compares two norms, and the vectors may cancel or point the same way. It ends before the feed-forward part.",
    citation="Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, sec. 3.3",
    range=(0.0, 1.0),
    shape="L Q",
    of="layer",
    accepts=only("norm-residual"),
    reads=("norm-residual",),
    needs=("values", "projection", "residual", "same-tokens"),
    compute=mixing_ratio,
)
