"""The strongest entries of the maps of a few inputs, for tools that show texts by head: sparse/{v}/{row}/key value [L, H, Q, TOP], and tokens as JSON.

`key` is which key, `value` the weight in ten thousandths; 0 is an entry that was left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import statistics
from .shown import MOST

Array = NDArray[Any]
# Inputs kept, entries of a row kept, and the least of them: the last two are those of Neuronpedia's pipeline.
KEPT, TOP, LEAST = 8, 8, 0.005
SCALE = 10_000


def arrays(variant: int, row: int, texts: Sequence[str], weights: Array, most: int = MOST) -> dict[str, Array]:
    """The strongest entries of an input's weights [L, H, Q, K], by row of the map; nothing for an input of more than `most` tokens, or whose keys are others.

    `texts` are those of the tokens.
    """
    if weights.shape[-1] > most or weights.shape[-1] != len(texts):
        return {}
    top = min(TOP, weights.shape[-1])
    keys = np.sort(np.argsort(-np.nan_to_num(weights), axis=-1, kind="stable")[..., :top], axis=-1)
    values = np.take_along_axis(np.nan_to_num(weights), keys, -1)
    prefix = f"sparse/{variant}/{row}"
    return {
        f"{prefix}/key": keys.astype(np.min_scalar_type(weights.shape[-1])),
        f"{prefix}/value": np.where(values < LEAST, 0, np.round(values * SCALE)).astype(np.uint16),
        f"{prefix}/tokens": np.frombuffer(json.dumps(list(texts)).encode(), np.uint8),
    }


def pruned(found: dict[str, Array], seed: int) -> dict[str, Array]:
    """Without the inputs beyond KEPT, which are drawn evenly by hashes, so that the order of merging changes nothing."""
    rows = kept_rows(found)
    kept = set(statistics.drawn(seed, np.array(rows, np.int64), KEPT).tolist())
    return {name: values for name, values in found.items() if not name.startswith("sparse/") or _row(name) in kept}


def kept_rows(found: Mapping[str, Array]) -> list[int]:
    """The rows whose entries are kept, in order."""
    return sorted({_row(name) for name in found if name.startswith("sparse/")})


def _row(name: str) -> int:
    return int(name.split("/")[2])
