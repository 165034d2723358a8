"""Routes that compare two analyses head by head, and align their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query

from ...core.alignment import Alignment, align, check_enough, select_aligned
from ...core.arrays import Array, to_lists
from ...core.tokens import TOKENS, Token
from ...errors import InvalidRequest
from ...lenses import LENSES
from ...measures.compare import COMPARISONS
from ...store import Stored
from ...store.map_file import blocks
from ..dependencies import OtherDep, ResourceDep, check_kept, heads_of, limit_by, parse_slice
from ..http.conditional import READS
from ..resources import Resource
from ..schemas.results import AlignedTokens, ComparedAnalyses, TokenPair

router = APIRouter(prefix="/analyses/{id}/compare/{other}", tags=["results"], responses=READS)

By = Literal["token", "word"]


@dataclass(frozen=True)
class _Side:
    """One of the two analyses: its lens, and the runs of its tokens that have a counterpart in the other."""

    analysis: Resource
    document: dict[str, Any]
    lens: str
    queries: list[range]
    keys: list[range]

    @property
    def heads(self) -> list[int]:
        return heads_of(self.document, self.lens)

    async def maps(self, layer: slice, heads: slice) -> Array:
        """Read the maps [h, V, W] of some heads of one layer, so that only a few of both analyses are in memory at a time."""

        def read_maps(stored: Stored) -> Array:
            maps: Array = stored.maps(self.lens, layer, heads)[0]
            return select_aligned(maps, self.queries, self.keys)

        return await self.analysis.read(read_maps)


@router.get("", dependencies=[limit_by("comparisons")])
async def compare(
    analysis: ResourceDep,
    other: OtherDep,
    lens: Annotated[str, Query(max_length=100, description="Lens of the first analysis.")] = "weights",
    other_lens: Annotated[
        str | None, Query(max_length=100, description="Lens of the other analysis; the same by default.")
    ] = None,
    layer: Annotated[
        int | None, Query(ge=0, le=10**6, description="Layer of a single head of the first analysis.")
    ] = None,
    head: Annotated[int | None, Query(ge=0, le=10**6, description="A single head of the first analysis.")] = None,
) -> ComparedAnalyses:
    """Compare the two maps of every head: cosine and Jensen-Shannon divergence (in bits), [L][H]. Values are null if a map is all zeros or undefined.

    Both analyses must have the same layers and heads. Alternatively, `layer` and `head` compare one head of the first analysis with every head of the
    other. If the tokens differ, maps are compared by word, over the words that correspond: the same ones, and up to three in a row in place of as many others.
    The divergence is null for signed lenses.
    """
    (first, second), by = await _sides((analysis, other), (lens, other_lens or lens))
    single = None
    if layer is not None and head is not None:
        layers = parse_slice("layer", str(layer), first.document["layers"])
        single = await first.maps(layers, parse_slice("head", str(head), first.heads))  # [1, V, W]
    elif layer is not None or head is not None:
        raise InvalidRequest("A single head needs both layer and head. Send both, or neither.", pointer="/head")
    else:
        _check_same_heads(first, second)
    rows: list[list[dict[str, Array]]] = [[] for _ in second.document["layers"]]
    for layers, heads in blocks(second.document["shapes"][second.lens]):
        theirs = await second.maps(layers, heads)  # [h, V, W]
        ours = await first.maps(layers, heads) if single is None else np.broadcast_to(single, theirs.shape)
        rows[layers.start].append(await _compare_maps(first, second, ours, theirs))
    values = {name: [to_lists(np.concatenate([part[name] for part in row])) for row in rows] for name in rows[0][0]}
    return ComparedAnalyses(
        lens=first.lens,
        other_lens=second.lens,
        by=by,
        layer_numbers=second.document["layers"],
        head_numbers=second.heads,
        cosine=values["cosine"],
        js_divergence=values.get("js_divergence"),
    )


@router.get("/tokens", dependencies=[limit_by("comparisons")])
async def aligned_tokens(analysis: ResourceDep, other: OtherDep) -> AlignedTokens:
    """Align the tokens of two analyses: token by token if their tokenisation agrees, otherwise by word, over the words that correspond."""
    documents = [await each.read(lambda stored: stored.document) for each in (analysis, other)]
    queries, keys = await analysis.service.limiters.results.run(partial(_align, *documents))
    return AlignedTokens(
        by=_by(queries, keys),
        share=min(queries.share, keys.share),
        queries=_to_pairs(queries),
        keys=None if queries == keys else _to_pairs(keys),
    )


async def _sides(analyses: tuple[Resource, Resource], lenses: tuple[str, str]) -> tuple[tuple[_Side, _Side], By]:
    """Return both sides and the units they are compared by. Raises InvalidRequest if too few tokens have a counterpart."""
    first, second = [
        await analysis.read(partial(_checked_document, lens)) for analysis, lens in zip(analyses, lenses, strict=True)
    ]
    queries, keys = await analyses[0].service.limiters.results.run(partial(_align, first, second))
    check_enough(queries, keys)
    sides = (
        _Side(analyses[0], first, lenses[0], *([pair.tokens for pair in each.pairs] for each in (queries, keys))),
        _Side(analyses[1], second, lenses[1], *([pair.others for pair in each.pairs] for each in (queries, keys))),
    )
    return sides, _by(queries, keys)


async def _compare_maps(first: _Side, other: _Side, a: Array, b: Array) -> dict[str, Array]:
    """Compute every comparison that is defined; for signed lenses, only those that allow negative entries."""
    signed = any(LENSES[side.lens].signed for side in (first, other))
    comparisons = {name: comparison for name, comparison in COMPARISONS.items() if comparison.signed or not signed}
    return await first.analysis.service.limiters.results.run(
        lambda: {name: comparison(a, b).astype(np.float32) for name, comparison in comparisons.items()}
    )


def _checked_document(lens: str, stored: Stored) -> dict[str, Any]:
    check_kept(stored, lens)
    return stored.document


def _align(first: dict[str, Any], other: dict[str, Any]) -> tuple[Alignment, Alignment]:
    """Align the queries and the keys. They only differ in cross-attention."""
    queries = align(_tokens_of(first, "tokens"), _tokens_of(other, "tokens"))
    if first["key_tokens"] is None and other["key_tokens"] is None:
        return queries, queries
    return queries, align(_tokens_of(first, "key_tokens"), _tokens_of(other, "key_tokens"))


def _tokens_of(document: dict[str, Any], side: str) -> list[Token]:
    return TOKENS.validate_python(document[side] or document["tokens"])


def _by(*alignments: Alignment) -> By:
    return "word" if any(alignment.by == "word" for alignment in alignments) else "token"


def _to_pairs(alignment: Alignment) -> list[TokenPair]:
    return [
        TokenPair(tokens=list(pair.tokens), other_tokens=list(pair.others), text=pair.text, other_text=pair.other_text)
        for pair in alignment.pairs
    ]


def _check_same_heads(first: _Side, other: _Side) -> None:
    """Raise InvalidRequest unless the maps of both sides have the same layers and heads."""
    if first.document["layers"] != other.document["layers"] or first.heads != other.heads:
        raise InvalidRequest(
            "The two maps have different layers or heads. Analyse the same layers and heads, and choose two lenses with maps per head, or two with maps "
            "per layer; or set layer and head to compare one head with all heads of the other analysis.",
            pointer="/other",
        )
