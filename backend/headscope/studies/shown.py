"""The one input whose maps a study keeps, so that a head can be shown as it is: shown/{v}/{s}/map [L, H, Q, K] float16, with its row, tokens and keys as JSON, and rank."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.tokens import Token
from . import statistics

Array = NDArray[Any]
# Inputs of more tokens are not shown: their maps would outweigh everything else.
MOST = 96


def rank(row: int, tokens: int, width: int, seed: int) -> int:
    """What decides between two inputs, the lower one: those of more tokens than the head has dimensions first, where lenses differ; then a hash of the row."""
    place = int(statistics.hashed(seed, np.array([row]))[0]) >> 1
    return place if tokens > width else place + 2**63


def arrays(
    variant: int, maps: Mapping[str, Array], tokens: Sequence[Token], keys: Sequence[Token], row: int, ranked: int
) -> dict[str, Array]:
    """The maps of an input by lens, as flat arrays."""
    found = dict[str, Array]()
    for lens, values in maps.items():
        prefix = f"shown/{variant}/{lens}"
        found[f"{prefix}/map"] = values.astype(np.float16)
        found[f"{prefix}/row"] = np.array([row], np.int64)
        found[f"{prefix}/rank"] = np.array([ranked], np.uint64)
        found[f"{prefix}/tokens"] = _packed(tokens)
        found[f"{prefix}/keys"] = _packed(keys)
    return found


def better(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    """That of two inputs which is shown."""
    return a if a["rank"][0] <= b["rank"][0] else b


def _packed(tokens: Sequence[Token]) -> Array:
    return np.frombuffer(json.dumps([token.text for token in tokens]).encode(), np.uint8)
