"""How much of a head's attention goes to tokens of each type: special, punctuation, words, pieces of words, patches of an image, parts of speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..core.tokens import Token
from ._maps import clean, separators, special
from .base import Measure, is_attention

KINDS = ("special", "punct", "word", "subword", "image")
# The universal parts of speech (https://universaldependencies.org/u/pos/).
PARTS_OF_SPEECH = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
# Two kinds of special tokens on their own: the first token, and those that end a text.
APART = ("first", "separator")
# The image comes last because results without it are stored.
COLUMNS = (*KINDS[:-1], *PARTS_OF_SPEECH, *APART, KINDS[-1])


class TokenTypesParams(Params):
    """Which query, and how the tokens of a type are aggregated."""

    query: Literal["first", "last", "all"] = Field(
        "first",
        description="The query: the `first` token, [CLS] in the paper; the `last`, which sees every token in a causal model; or the mean over `all`.",
    )
    aggregate: Literal["max", "min", "sum", "mean"] = Field(
        "max",
        description="How the tokens of a type are combined: the paper's `max` grows with their number, `mean` does not; `min` is for signed maps.",
    )
    pieces: Literal["first", "sum", "mean", "max"] = Field(
        "first",
        description="The value of a word of several tokens, for parts of speech: that of its `first` token (the paper), or of all its tokens.",
    )


def looks(token: Token, params: TokenTypesParams) -> object:
    """Look at a token's type and word, and at the names of special tokens, since those that end a text share theirs."""
    return token.kind, token.word, token.pos, special(token, params)


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: TokenTypesParams) -> Tensor:
    """Return one number per type, [H, C] in the order of COLUMNS; NaN for types that the query does not see.

    Every token has a kind, so with `sum` the kinds add up to the row. Parts of speech are counted by word, for words that have one. A query sees those tokens
    of a type or word that its mask allows. The mean over `all` queries is over those that see the type.
    """
    rows, there = clean(readings[lens])
    place = {"first": slice(0, 1), "last": slice(-1, None), "all": slice(None)}[params.query]
    rows, there = rows[:, place], there[:, place]
    visible = layer.keys.allowed(*layer.weights.shape[1:])[place]  # [Q, K]
    found = torch.full((rows.shape[0], len(COLUMNS)), torch.nan, dtype=rows.dtype)
    apart = {name: places for name, places in _apart(layer.axes.keys).items() if places}
    for kind, places in {**_places([token.kind for token in layer.axes.keys]), **apart}.items():
        found[:, COLUMNS.index(kind)] = _over_type(rows[..., places], visible[:, places], there, params.aggregate)
    words = _words(layer.axes.keys)
    if words:
        words_rows, seen = _by_word(rows, visible, [places for _, places in words], params.pieces)
        for tag, places in _places([tag for tag, _ in words]).items():
            found[:, COLUMNS.index(tag)] = _over_type(words_rows[..., places], seen[:, places], there, params.aggregate)
    return found


def _apart(tokens: Sequence[Token]) -> dict[str, list[int]]:
    """Return the index of the first token if it is special, and the indices of those that end a text."""
    return {"first": [0] if tokens and tokens[0].kind == "special" else [], "separator": separators(tuple(tokens))}


def _places(names: Sequence[str]) -> dict[str, list[int]]:
    """Return the indices of each name that has a column."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name in COLUMNS and name not in APART:
            places.setdefault(name, []).append(place)
    return places


def _words(tokens: Sequence[Token]) -> list[tuple[str, list[int]]]:
    """Return words with a part of speech: that of their first token, and the indices of their tokens."""
    words: dict[int, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.word is not None:
            words.setdefault(token.word, []).append(place)
    tags = [(tokens[places[0]].pos, places) for places in words.values()]
    return [(tag, places) for tag, places in tags if tag is not None]


def _by_word(rows: Tensor, visible: Tensor, words: list[list[int]], pieces: str) -> tuple[Tensor, Tensor]:
    """Aggregate entries and visibility by word: [H, Q, K], [Q, K] -> [H, Q, W], [Q, W]. A query sees a word if it sees its first token."""
    first = torch.tensor([places[0] for places in words])
    if pieces == "first":
        return rows[..., first], visible[:, first]
    places = torch.tensor([place for word in words for place in word])
    owner = torch.tensor([number for number, word in enumerate(words) for _ in word])
    entries = rows[..., places].where(visible[:, places], -torch.inf if pieces == "max" else 0)
    index = owner.expand(entries.shape)
    how: Literal["amax", "sum"] = "amax" if pieces == "max" else "sum"
    found = entries.new_zeros(*entries.shape[:2], len(words))
    found = found.scatter_reduce_(-1, index, entries, how, include_self=False)
    if pieces == "mean":
        numbers = torch.zeros(len(visible), len(words)).index_add_(1, owner, visible[:, places].float())
        found /= numbers.clamp_min(1)
    return found, visible[:, first]


def _over_type(entries: Tensor, visible: Tensor, there: Tensor, aggregate: str) -> Tensor:
    """Aggregate entries [H, Q, T], visible at [Q, T], over T, and return the mean over queries with a reading [H, Q]: [H]."""
    fill = {"max": -torch.inf, "min": torch.inf}.get(aggregate, 0.0)
    entries = entries if bool(visible.all()) else entries.where(visible, fill)
    if aggregate in ("max", "min"):
        values = entries.amax(-1) if aggregate == "max" else entries.amin(-1)
    else:
        values = entries.sum(-1)
        values = values / visible.sum(-1).clamp_min(1) if aggregate == "mean" else values
    seen = there & visible.any(-1)
    return values.where(seen, 0).sum(-1) / seen.sum(-1)


TOKEN_TYPES = Measure(
    name="token_types",
    title="Attention by token type",
    doc="How much the first token (or every token) attends to each type of token: special ([CLS] and [SEP] also on their own), punctuation, whole words, pieces of words, "
    "patches of an image that is read beside a text, and the universal parts of speech where the request contains them. By default the largest attention of the first token only.",
    not_="Not comparable between types with different numbers of tokens under the paper's `max`: the largest of many is larger. `mean` does not depend on the number, "
    "and times the number of tokens it is the factor over uniform attention.",
    citation="Sun & Marasović 2021, sec. 3.2 and fig. 1; after Kovaleva et al. 2019, sec. 4.4",
    params=TokenTypesParams,
    needs=("kinds",),
    shape="L H C",
    columns=COLUMNS,
    accepts=is_attention,
    phrases={
        "subword": ("pieces of words", "subwords", "word pieces", "word fragments"),
        "word": ("whole words",),
        "image": ("the image", "image patches", "patches of the image", "image tokens"),
        "ADJ": ("adjectives",),
        "ADP": ("prepositions",),
        "ADV": ("adverbs",),
        "AUX": ("auxiliary verbs",),
        "CCONJ": ("conjunctions",),
        "DET": ("determiners", "articles"),
        "NOUN": ("nouns",),
        "NUM": ("numerals", "numbers in the text"),
        "PRON": ("pronouns",),
        "PROPN": ("proper nouns", "names of people"),
        "VERB": ("verbs",),
    },
    compute=compute,
    looks=looks,
)
