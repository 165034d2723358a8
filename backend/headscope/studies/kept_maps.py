"""Maps that a study keeps: all maps of one input, to show heads as they are, and the strongest entries of a few inputs, for tools that show texts by head.

shown/{v}/{s}/map is [L, H, Q, K] float16; beside it are row, rank, and the texts of tokens and keys as JSON.
sparse/{v}/{row}/key and value are [L, H, Q, TOP]: the index of a key, and its weight times SCALE (0: left out). sparse/{v}/{row}/tokens is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from ..core.arrays import Array
from ..core.tokens import Token
from . import statistics

# Maps of longer inputs are not kept: they would outweigh everything else.
MAX_TOKENS = 96
# Inputs kept, entries kept per row, and the smallest weight kept: the last two are those of Neuronpedia's pipeline.
SPARSE_INPUTS, TOP, MIN_WEIGHT = 8, 8, 0.005
SCALE = 10_000
# Weights of which the strongest are found at once.
AT_ONCE = 2**18


def shown_rank(row: int, tokens: int, width: int, seed: int) -> int:
    """Return the rank of an input; the lowest is shown. Inputs with more tokens than the head has dimensions come first (lenses differ there), then a hash of the row decides."""
    place = int(statistics.hash_rows(seed, np.array([row]))[0]) >> 1
    return place if tokens > width else place + 2**63


def shown_arrays(
    variant: int, maps: Mapping[str, Array], tokens: Sequence[Token], keys: Sequence[Token], row: int, rank: int
) -> dict[str, Array]:
    """Return the maps of an input, by lens, as flat arrays."""
    arrays = dict[str, Array]()
    for lens, values in maps.items():
        prefix = f"shown/{variant}/{lens}"
        arrays[f"{prefix}/map"] = values.astype(np.float16)
        arrays[f"{prefix}/row"] = np.array([row], np.int64)
        arrays[f"{prefix}/rank"] = np.array([rank], np.uint64)
        arrays[f"{prefix}/tokens"] = _as_json([token.text for token in tokens])
        arrays[f"{prefix}/keys"] = _as_json([token.text for token in keys])
    return arrays


def choose_shown(a: dict[str, Array], b: dict[str, Array]) -> dict[str, Array]:
    """Return the one of two inputs that is shown."""
    return a if a["rank"][0] <= b["rank"][0] else b


def sparse_arrays(
    variant: int, row: int, texts: Sequence[str], weights: Array, max_tokens: int = MAX_TOKENS
) -> dict[str, Array]:
    """Return the strongest entries in each row of an input's weights [L, H, Q, K].

    Empty for inputs of more than `max_tokens` tokens, and where keys are not the queries' tokens. `texts` are those of the tokens.
    """
    if weights.shape[-1] > max_tokens or weights.shape[-1] != len(texts):
        return {}
    keys, values = strongest(weights)
    return name_sparse(variant, row, texts, keys, values)


def name_sparse(variant: int, row: int, texts: Sequence[str], keys: Array, values: Array) -> dict[str, Array]:
    """Return the strongest entries in each row of an input's weights as flat arrays."""
    prefix = f"sparse/{variant}/{row}"
    return {f"{prefix}/key": keys, f"{prefix}/value": values, f"{prefix}/tokens": _as_json(list(texts))}


def strongest(weights: Array) -> tuple[Array, Array]:
    """Return the keys of the strongest entries in each row of weights [..., K], in order, and these weights times SCALE, both [..., min(TOP, K)]."""
    rows = weights.reshape(-1, weights.shape[-1])
    sides = len(rows), min(TOP, rows.shape[1])
    keys, values = np.empty(sides, np.min_scalar_type(rows.shape[1])), np.empty(sides, np.uint16)
    step = max(1, AT_ONCE // rows.shape[1])
    for low in range(0, len(rows), step):
        some = np.nan_to_num(rows[low : low + step])
        places = np.sort(np.argsort(-some, axis=-1, kind="stable")[:, : sides[1]], axis=-1)
        chosen = np.take_along_axis(some, places, -1)
        keys[low : low + step] = places
        values[low : low + step] = np.where(chosen < MIN_WEIGHT, 0, np.round(chosen * SCALE))
    return keys.reshape(*weights.shape[:-1], -1), values.reshape(*weights.shape[:-1], -1)


def prune_sparse(arrays: dict[str, Array], seed: int) -> dict[str, Array]:
    """Drop sparse entries of all but SPARSE_INPUTS inputs, drawn by hashes so that the order of merging does not matter."""
    rows = sparse_rows(arrays)
    kept = set(statistics.draw_rows(seed, np.array(rows, np.int64), SPARSE_INPUTS).tolist())
    return {name: values for name, values in arrays.items() if not name.startswith("sparse/") or _row(name) in kept}


def sparse_rows(arrays: Mapping[str, Array]) -> list[int]:
    """Return the rows whose strongest entries are kept, in order."""
    return sorted({_row(name) for name in arrays if name.startswith("sparse/")})


def _row(name: str) -> int:
    return int(name.split("/")[2])


def _as_json(texts: Sequence[str]) -> Array:
    return np.frombuffer(json.dumps(texts).encode(), np.uint8)
