"""Route: how alike two analyses of the same tokens are, head by head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query

from ..errors import InvalidRequest
from ..lenses import LENSES
from ..measures.compare import COMPARISONS
from ..runtime import Service
from ..store import Stored
from .deps import AnalysisId, OtherId, ServiceDep, check_kept, heads_of, read
from .schemas import ComparedAnalyses
from .tensors import Array, plain

router = APIRouter(prefix="/analyses/{id}", tags=["results"])

LensQuery = Annotated[str, Query(max_length=100)]


@router.get("/compare/{other}")
async def compare(
    id_: AnalysisId,
    other: OtherId,
    service: ServiceDep,
    lens: LensQuery = "weights",
    other_lens: Annotated[
        str | None, Query(max_length=100, description="Lens of the other analysis, where it is another one.")
    ] = None,
) -> ComparedAnalyses:
    """Cosine and Jensen-Shannon divergence (in bits) of the two maps of every head, [L][H]; null where one is all zeros or has no reading.

    Both analyses must have the same tokens, layers and heads. The divergence is null for signed lenses.
    """
    lenses = (lens, other_lens or lens)
    one = await read(service, id_, _describer(lenses[0]))
    second = await read(service, other, _describer(lenses[1]))
    _check_alike(one, second, *lenses)
    rows = [await _layer(service, (id_, other), lenses, layer) for layer in range(len(one["layers"]))]
    found = {name: [plain(row[name]) for row in rows] for name in rows[0]}
    return ComparedAnalyses(
        lens=lenses[0],
        other_lens=lenses[1],
        layer_numbers=one["layers"],
        head_numbers=heads_of(one, lens),
        cosine=found["cosine"],
        js_divergence=found.get("js_divergence"),
    )


async def _layer(service: Service, ids: tuple[str, str], lenses: tuple[str, str], layer: int) -> dict[str, Array]:
    """Every comparison of one layer, [H]: two layers in memory at a time."""
    a = await read(service, ids[0], _reader(lenses[0], layer))
    b = await read(service, ids[1], _reader(lenses[1], layer))
    return await asyncio.to_thread(_compared, a, b, any(LENSES[name].signed for name in lenses))


def _describer(lens: str) -> Callable[[Stored], dict[str, Any]]:
    def describe(stored: Stored) -> dict[str, Any]:
        check_kept(stored, lens)
        return stored.document

    return describe


def _reader(lens: str, layer: int) -> Callable[[Stored], Array]:
    def map_of(stored: Stored) -> Array:
        maps: Array = stored.maps(lens, slice(layer, layer + 1), slice(None))[0]
        return maps

    return map_of


def _compared(a: Array, b: Array, signed: bool) -> dict[str, Array]:
    """Those that make sense: some are defined for maps without negative entries only."""
    chosen = {name: comparison for name, comparison in COMPARISONS.items() if comparison.signed or not signed}
    return {name: comparison(a, b).astype(np.float32) for name, comparison in chosen.items()}


def _check_alike(one: dict[str, Any], other: dict[str, Any], lens: str, other_lens: str) -> None:
    """Raise InvalidRequest unless two maps of the analyses stand for the same tokens and heads."""
    if any(_spelled(one, side) != _spelled(other, side) for side in ("tokens", "key_tokens")):
        raise InvalidRequest(
            "The two analyses have different tokens, so their maps can't be laid over each other. Analyse the same text, with models that cut it alike.",
            pointer="/other",
        )
    if one["layers"] != other["layers"] or heads_of(one, lens) != heads_of(other, other_lens):
        raise InvalidRequest(
            "The two analyses have different layers or heads. Choose the same ones (layers, heads), and two lenses per head or two of whole layers.",
            pointer="/other",
        )


def _spelled(document: dict[str, Any], side: str) -> list[tuple[str, int]]:
    tokens = document[side] or document["tokens"]
    return [(token["text"], token["segment"]) for token in tokens]
