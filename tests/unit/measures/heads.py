"""Heads to measure: small sentences with every kind of token, random maps under every mask, and what a loop would make of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headscope.core.attention import Keys, Layer, Reading
from headscope.core.tokens import Axes, Token
from headscope.measures import MEASURES
from tests.support.extent import extent

Array = NDArray[Any]
RULES = ("all", "prefix", "window", "band")
FEW = settings(max_examples=extent(25, 5), deadline=None)


def sentence(
    names: str | Iterable[str], pos: dict[str, str] | None = None, labels: dict[str, str] | None = None
) -> tuple[Token, ...]:
    """Tokens by name: [x] is special and ends a text unless it is the first one, ##x goes on with the word before, . and , are punctuation."""
    names = names.split() if isinstance(names, str) else list(names)
    found, word, segment = [], -1, 0
    for place, name in enumerate(names):
        special, more = name.startswith("["), name.startswith("##")
        word += not special and not (more and found and found[-1].word is not None)
        follows = place + 1 < len(names) and names[place + 1].startswith("##")
        kind = "special" if special else "punct" if name in ".," else "subword" if more or follows else "word"
        number = None if special else word
        id_ = sum(ord(letter) * 31**i for i, letter in enumerate(name))
        tag, label = ((given or {}).get(name) for given in (pos, labels))
        found.append(Token(name, id_, place, place + 1, number, segment, kind, tag, label))  # type: ignore[arg-type]
        segment = 1 if special and place > 0 else segment
    return tuple(found)


def allowed(rule: str, n: int) -> Array:
    """The mask [Q, K] of each rule; window and band are given to the layer as intervals."""
    queries, keys = np.indices((n, n))
    return {
        "all": keys >= 0,
        "prefix": keys <= queries,
        "window": (keys <= queries) & (keys > queries - 4),
        "band": abs(keys - queries) <= 3,
    }[rule]


def rows(seed: int, heads: int, mask: Array, sharpness: float = 2.0) -> Array:
    """Random rows that sum to 1 over the allowed keys, [H, Q, K], float32."""
    weights = np.exp(np.random.default_rng(seed).normal(0, sharpness, (heads, *mask.shape))) * mask
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def head_layer(weights: Any, tokens: tuple[Token, ...], rule: str = "all") -> Layer:
    """A layer with these weights [H, Q, K] between these tokens."""
    weights, n, none = torch.as_tensor(weights, dtype=torch.float32), len(tokens), torch.zeros(0)
    keys = Keys.of(torch.as_tensor(allowed(rule, n))) if rule in ("window", "band") else Keys(rule)  # type: ignore[arg-type]
    return Layer(0, tuple(range(len(weights))), weights, none, none, keys, 1e-7, Axes(tokens, tokens), none, none)


def measure(name: str, layer: Layer, lens: str = "weights", map_: Any = None, **params: Any) -> dict[str, Array]:
    """Columns of a measure, each [H], in float64."""
    declared = MEASURES[name]
    reading = Reading(
        layer.weights if map_ is None else torch.as_tensor(map_, dtype=torch.float32), lens.startswith("effective")
    )
    values = declared.compute(
        layer, lens, {"weights": Reading(layer.weights), lens: reading}, declared.params(**params)
    )
    assert values.shape == (len(layer.heads), len(declared.columns))
    return dict(zip(declared.columns, values.double().numpy().T, strict=True))


SENTENCES = st.lists(st.sampled_from(["a", "b", "cat", "dog", "##s", "##ly", ".", ","]), min_size=1, max_size=24)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Layer, str, Array, Array]:
    """A layer with a random text or pair of texts; a lens with its map (weights, or a signed map with some rows missing), and the mask, [Q, K]."""
    rule = draw(st.sampled_from(RULES))
    names = draw(SENTENCES)
    if rule in ("all", "band") or draw(st.booleans()):
        cut = draw(st.integers(0, len(names)))
        pair = [] if cut == len(names) else [*names[cut:], "[SEP]"]
        names = ["[CLS]", *names[:cut], "[SEP]", *pair]
    pos, labels = (
        {"cat": "NOUN", "dog": "NOUN", "a": "DET", ".": "PUNCT"},
        {"cat": "B-PER", "dog": "I-PER", "a": "B-LOC", "b": "B-time", ".": "O"},
    )
    tokens = sentence(names, *((pos, labels) if draw(st.booleans()) else ({}, {})))
    mask = allowed(rule, len(tokens))
    seed = draw(st.integers(0, 10**6))
    weights = rows(seed, 3, mask, draw(st.sampled_from([0.0, 0.5, 2.0, 6.0])))
    layer = head_layer(weights, tokens, rule)
    if draw(st.booleans()):
        return layer, "weights", weights, mask
    random = np.random.default_rng(seed + 1)
    signed = (weights + random.normal(0, 0.1, weights.shape) * mask).astype(np.float32)
    signed[random.random(signed.shape[:2]) < 0.1] = np.nan
    signed[random.random(signed.shape[:2]) < 0.1] = 0
    return layer, "effective", signed, mask


def distribution(lens: str, map_: Array) -> list[list[list[float] | None]]:
    """Rows as distributions, by a loop; None for rows with nothing in them. Weights stay as they are."""
    found: list[list[list[float] | None]] = []
    for head in map_.astype(np.float64).tolist():
        found.append([])
        for row in head:
            total = sum(abs(entry) for entry in row)
            if not total > 0:  # NaN too
                found[-1].append(None)
            else:
                found[-1].append(row if lens == "weights" else [abs(entry) / total for entry in row])
    return found


def average(values: Iterable[float]) -> float:
    """The mean; NaN of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def agree(found: dict[str, Array], expected: list[dict[str, float]], tolerance: float) -> None:
    """Every column that is expected, head by head."""
    for head, columns in enumerate(expected):
        for name, value in columns.items():
            np.testing.assert_allclose(
                found[name][head], value, rtol=tolerance, atol=tolerance, err_msg=f"{name} of head {head}"
            )
