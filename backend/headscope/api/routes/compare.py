"""Routes: how alike two analyses are, head by head, and which of their tokens stand for the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query

from ...core.alignment import Alignment, align, check_enough, laid
from ...core.tokens import Token
from ...errors import InvalidRequest
from ...lenses import LENSES
from ...measures.compare import COMPARISONS
from ...server.service import Service
from ...store import Stored
from ..dependencies import READS, AnalysisId, OtherId, ServiceDep, check_kept, heads_of, limited, places, read
from ..http.tensors import Array, plain
from ..schemas.analyses import AlignedTokens, ComparedAnalyses, TokenPair

router = APIRouter(prefix="/analyses/{id}/compare/{other}", tags=["results"], responses=READS)

LensQuery = Annotated[str, Query(max_length=100)]
By = Literal["token", "word"]
One = Annotated[int | None, Query(ge=0, le=10**6)]
EVERY = slice(None)


@dataclass(frozen=True)
class _Side:
    """One of the two analyses, the lens it is read through, and the runs of its tokens that have a counterpart."""

    id: str
    document: dict[str, Any]
    lens: str
    queries: list[range]
    keys: list[range]

    @property
    def heads(self) -> list[int]:
        return heads_of(self.document, self.lens)

    async def maps(self, service: Service, layer: slice, heads: slice = EVERY) -> Array:
        """Maps [H, V, W] of one layer: two layers in memory at a time."""

        def maps_of(stored: Stored) -> Array:
            maps: Array = stored.maps(self.lens, layer, heads)[0]
            return laid(maps, self.queries, self.keys)

        return await read(service, self.id, maps_of)


@router.get("", dependencies=[limited("comparisons")])
async def compare(
    id_: AnalysisId,
    other: OtherId,
    service: ServiceDep,
    lens: LensQuery = "weights",
    other_lens: Annotated[
        str | None, Query(max_length=100, description="Lens of the other analysis, where it is another one.")
    ] = None,
    layer: One = None,
    head: One = None,
) -> ComparedAnalyses:
    """Cosine and Jensen-Shannon divergence (in bits) of the two maps of every head, [L][H]; null where one is all zeros or has no reading.

    Both analyses must have the same layers and heads; or name a `layer` and a `head`, and that head of the first is compared with every head of the other.
    Where the two have different tokens, words are compared, as far as both have them. The divergence is null for signed lenses.
    """
    sides, by = await _sides(service, (id_, other), (lens, other_lens or lens))
    if layer is None and head is None:
        _check_alike(*sides)
        rows = [await _layer(service, *sides, place) for place in range(len(sides[1].document["layers"]))]
    elif layer is None or head is None:
        raise InvalidRequest("One head is named by its layer and its head. Send both, or neither.", pointer="/head")
    else:
        rows = await _one_head(service, *sides, layer, head)
    found = {name: [plain(row[name]) for row in rows] for name in rows[0]}
    return ComparedAnalyses(
        lens=sides[0].lens,
        other_lens=sides[1].lens,
        by=by,
        layer_numbers=sides[1].document["layers"],
        head_numbers=sides[1].heads,
        cosine=found["cosine"],
        js_divergence=found.get("js_divergence"),
    )


@router.get("/tokens")
async def aligned_tokens(id_: AnalysisId, other: OtherId, service: ServiceDep) -> AlignedTokens:
    """Which tokens of two analyses stand for the same: one by one where both are cut alike, else word by word, as far as both have them."""
    queries, keys = _aligned(await read(service, id_, _document), await read(service, other, _document))
    return AlignedTokens(
        by=_by(queries, keys),
        share=min(queries.share, keys.share),
        queries=_pairs(queries),
        keys=None if queries == keys else _pairs(keys),
    )


async def _sides(service: Service, ids: tuple[str, str], lenses: tuple[str, str]) -> tuple[tuple[_Side, _Side], By]:
    """Both analyses, as far as their tokens have counterparts. Raises InvalidRequest where those are too few."""
    one, second = [await read(service, *asked) for asked in zip(ids, map(_describer, lenses), strict=True)]
    queries, keys = _aligned(one, second)
    check_enough(queries, keys)
    runs = [[getattr(pair, name) for pair in side.pairs] for name in ("tokens", "others") for side in (queries, keys)]
    return (
        _Side(ids[0], one, lenses[0], *runs[:2]),
        _Side(ids[1], second, lenses[1], *runs[2:]),
    ), _by(queries, keys)


async def _layer(service: Service, one: _Side, other: _Side, place: int) -> dict[str, Array]:
    """Every comparison of one layer, [H]."""
    at = slice(place, place + 1)
    return await _compared(service, one, other, await one.maps(service, at), await other.maps(service, at))


async def _one_head(service: Service, one: _Side, other: _Side, layer: int, head: int) -> list[dict[str, Array]]:
    """Every comparison of one head with those of each layer of the other, [L'] of [H']."""
    at = places("layer", str(layer), one.document["layers"]), places("head", str(head), one.heads)
    alone = await one.maps(service, *at)
    rows = []
    for place in range(len(other.document["layers"])):
        maps = await other.maps(service, slice(place, place + 1))
        rows.append(await _compared(service, one, other, np.broadcast_to(alone, maps.shape), maps))
    return rows


async def _compared(service: Service, one: _Side, other: _Side, a: Array, b: Array) -> dict[str, Array]:
    """Those that make sense: some are defined for maps without negative entries only."""
    signed = any(LENSES[side.lens].signed for side in (one, other))
    chosen = {name: comparison for name, comparison in COMPARISONS.items() if comparison.signed or not signed}
    return await service.limiters.results.run(
        lambda: {name: comparison(a, b).astype(np.float32) for name, comparison in chosen.items()}
    )


def _document(stored: Stored) -> dict[str, Any]:
    return stored.document


def _describer(lens: str) -> Callable[[Stored], dict[str, Any]]:
    def describe(stored: Stored) -> dict[str, Any]:
        check_kept(stored, lens)
        return stored.document

    return describe


def _aligned(one: dict[str, Any], other: dict[str, Any]) -> tuple[Alignment, Alignment]:
    """Of the queries and of the keys: one and the same, but for cross-attention."""
    queries = align(_tokens(one, "tokens"), _tokens(other, "tokens"))
    if one["key_tokens"] is None and other["key_tokens"] is None:
        return queries, queries
    return queries, align(_tokens(one, "key_tokens"), _tokens(other, "key_tokens"))


def _tokens(document: dict[str, Any], side: str) -> list[Token]:
    return [Token(**token) for token in document[side] or document["tokens"]]


def _by(*alignments: Alignment) -> By:
    return "word" if any(alignment.by == "word" for alignment in alignments) else "token"


def _pairs(alignment: Alignment) -> list[TokenPair]:
    return [
        TokenPair(tokens=list(pair.tokens), other_tokens=list(pair.others), text=pair.text, other_text=pair.other_text)
        for pair in alignment.pairs
    ]


def _check_alike(one: _Side, other: _Side) -> None:
    """Raise InvalidRequest unless both maps stand for the same heads."""
    if one.document["layers"] != other.document["layers"] or one.heads != other.heads:
        raise InvalidRequest(
            "The two analyses have different layers or heads. Choose the same ones (layers, heads), and two lenses per head or two of whole layers; "
            "or compare one head with all of the other analysis.",
            pointer="/other",
        )
