"""Rules of papers for the pattern of a head, exactly as published: every query counts, including special ones, and no key is left out."""

from __future__ import annotations

from collections.abc import Callable
from math import log
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..core.attention import Layer
from ..core.lazy import Tensor, torch
from ._classes import DIAGONAL, HETEROGENEOUS, UNCLASSIFIED, VERTICAL, settle
from ._maps import mean, separators
from .concentration import row_entropy

MARKS = (".", ",")  # tokens of Clark's rules
CLARK_BROAD = 3.8  # nats, meant for some 128 tokens


def classify(
    rules: Literal["pasta", "voita", "clark"], layer: Layer, rows: Tensor, there: Tensor
) -> tuple[Tensor, Tensor]:
    """Return class and margin [H] of maps [H, Q, K] by published rules. Heads without any row are unclassified."""
    decide, score, thresholds = RULES[rules]
    kind, margin = settle(decide, score(layer, rows, there).double(), thresholds(rows.shape[-1]))
    nothing = ~there.any(-1)
    return kind.masked_fill(nothing, UNCLASSIFIED), margin.float().masked_fill(nothing, torch.nan)


def pasta(layer: Layer, rows: Tensor, there: Tensor) -> Tensor:
    """Share of queries whose largest weight is on the first or the last token, [H, 1]."""
    best = rows.argmax(-1)
    return mean(((best == 0) | (best == rows.shape[-1] - 1)).double(), there)[:, None]


def voita(layer: Layer, rows: Tensor, there: Tensor) -> Tensor:
    """Largest share of queries whose largest weight is at the same relative position, [H, 1]."""
    queries, keys = rows.shape[1:]
    offsets = rows.argmax(-1) - torch.arange(queries) + queries - 1  # [H, Q], from 0
    counts = torch.zeros(len(rows), queries + keys - 1, dtype=torch.float64).scatter_add_(1, offsets, there.double())
    return (counts.amax(-1) / there.sum(-1))[:, None]


def clark(layer: Layer, rows: Tensor, there: Tensor) -> Tensor:
    """Mean weight on the next token, the previous token, [CLS], [SEP], commas and full stops, and mean entropy as a share of ln K: [H, 6], in this order."""
    tokens, keys = layer.axes.keys, rows.shape[-1]
    first = [place for place, token in enumerate(tokens[:1]) if token.kind == "special"]
    marks = [place for place, token in enumerate(tokens) if token.text in MARKS]
    number = there.sum(-1)
    smooth = 0.9999 * rows + 0.0001 / keys
    entropy = mean(-(smooth.log() * smooth).sum(-1), there) / max(log(keys), 1e-9)
    found = [rows.diagonal(offset, 1, 2).sum(-1) / number for offset in (1, -1)]
    found += [rows[..., places].sum((-1, -2)) / number for places in (first, separators(tokens), marks)]
    return torch.stack([*found, entropy], -1)


def vertical(reached: bool) -> int:
    """Apply PASTA's rule."""
    return VERTICAL if reached else HETEROGENEOUS


def diagonal(reached: bool) -> int:
    """Apply Voita's rule."""
    return DIAGONAL if reached else HETEROGENEOUS


def clark_class(following: bool, previous: bool, first: bool, separator: bool, marks: bool, broad: bool) -> int:
    """Apply Clark's rules. If several labels fit, special tokens and marks win over broad, and broad over positions, as in their notebook."""
    if first or separator or marks:
        return VERTICAL
    return DIAGONAL if (following or previous) and not broad else HETEROGENEOUS


def _clark_thresholds(keys: int) -> list[float]:
    return [0.5, 0.5, 0.6, 0.6, 0.6, CLARK_BROAD / max(log(keys), 1e-9)]


RULES: dict[str, tuple[Callable[..., int], Callable[[Layer, Any, Any], Any], Callable[[int], list[float]]]] = {
    "pasta": (vertical, pasta, lambda keys: [0.9]),
    "voita": (diagonal, voita, lambda keys: [0.9]),
    "clark": (clark_class, clark, _clark_thresholds),
}


def yang(rows: Tensor, there: Tensor) -> Tensor:
    """Globalness, verticality and diagonality, [H, 3]: mean entropy of the rows, minus the entropy of the mean row (both in nats), and minus the mean distance / Q."""
    queries, keys = rows.shape[1:]
    averages = torch.stack([row[chosen].mean(0) for row, chosen in zip(rows, there, strict=True)])  # [H, K]
    distances = (torch.arange(queries)[:, None] - torch.arange(keys)).abs().to(rows.dtype)  # [Q, K]
    spread = mean(torch.einsum("hqk,qk->hq", rows, distances), there) / queries
    return torch.stack([mean(row_entropy(rows), there), -row_entropy(averages), -spread], -1)


def yang_classes(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return Yang's classes of all heads of a model from their globalness, verticality and diagonality: [L, H, 3] -> numbers of CLASSES [L, H].

    A head belongs to the quantity in which it ranks highest among all heads: global (here heterogeneous), vertical or diagonal. Ties go to the first.
    """
    flat = np.asarray(values).reshape(-1, 3)
    ranks = flat.argsort(0, kind="stable").argsort(0, kind="stable")
    kinds: NDArray[np.int64] = np.array([HETEROGENEOUS, VERTICAL, DIAGONAL], np.int64)[ranks.argmax(-1)]
    kinds[np.isnan(flat).any(-1)] = UNCLASSIFIED
    return kinds.reshape(np.shape(values)[:-1])
