"""Routes that find heads of a finished analysis: by a query, or by a sentence in plain English."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from ...core.arrays import Array
from ...core.tokens import TOKENS
from ...query import SearchSpace, SentenceContext, existing_heads, find, known_phrases, understand
from ...query.grammar import MAX_CHARACTERS
from ...store import Stored
from ..dependencies import ResourceDep, check_lens
from ..http.conditional import CONDITIONAL
from ..http.response_cache import CachedRoute
from ..schemas.queries import Asked, FoundHeads

router = APIRouter(prefix="/analyses/{id}", tags=["results"], responses=CONDITIONAL, route_class=CachedRoute)


@router.get("/heads", responses={200: {"model": FoundHeads}}, response_class=Response)
async def heads(
    analysis: ResourceDep,
    where: Annotated[
        str, Query(description=f"The query, at most {MAX_CHARACTERS} characters; empty for all heads.")
    ] = "",
    lens: Annotated[
        str, Query(max_length=100, description="Lens of the measures in the query that do not name one.")
    ] = "weights",
) -> Response:
    """Find the heads that satisfy a query such as `vertical and layer < 4 and null_share > 0.5`, ranked, with the values that the query refers to."""

    def search(stored: Stored) -> FoundHeads:
        check_lens(stored, lens)
        return FoundHeads.model_validate(find(search_space_of(stored, lens), where), from_attributes=True)

    return await analysis.respond_json(search)


@router.get("/ask", responses={200: {"model": Asked}}, response_class=Response)
async def ask(
    analysis: ResourceDep,
    q: Annotated[
        str, Query(description=f"A query, or a sentence in plain English: at most {MAX_CHARACTERS} characters.")
    ],
    pinned: Annotated[
        str,
        Query(
            pattern=r"^(\d{1,5}( \d{1,5})*)?$",
            max_length=500,
            description='Indices of the pinned tokens, which "it" means.',
        ),
    ] = "",
) -> Response:
    """Interpret a query or a sentence about this analysis. The response is a view to show, or a question if the sentence is ambiguous or unknown.

    Phrases are understood by meaning, with the model MiniLM, which is loaded when this is first called; an empty `q` only prepares that.
    """
    encoder = analysis.service.encoder
    encoder.prepare(known_phrases())

    def interpret(stored: Stored) -> Asked:
        context = context_of(stored.document, [int(number) for number in pinned.split()])
        return Asked.model_validate(understand(q, context, encoder), from_attributes=True)

    return await analysis.respond_json(interpret)


def search_space_of(stored: Stored, lens: str) -> SearchSpace:
    """Return the heads and measures of an analysis that queries refer to."""
    document, arrays = stored.document, stored.arrays
    shape = (len(document["layers"]), len(document["heads"]))

    def tiles(of: str) -> dict[str, Array]:
        check_lens(stored, of)
        return {part: arrays[f"tile/{of}/{part}"] for part in ("tiles", "scale", "offset")}

    return SearchSpace(
        layers=document["layers"],
        heads=document["heads"],
        exists=existing_heads((arrays[f"tile/{name}/scale"] for name in document["lenses"]), shape),
        computed=document["measures"],
        values=lambda measure, of: arrays[f"measure/{measure}/{of}"],
        lens=lens,
        tiles=tiles,
    )


def context_of(document: dict[str, Any], pinned: Sequence[int] = ()) -> SentenceContext:
    """Return the layers, heads and tokens of an analysis that sentences refer to."""
    tokens, keys = (TOKENS.validate_python(document[side] or document["tokens"]) for side in ("tokens", "key_tokens"))
    known = [number for number in pinned if number < len(tokens)]
    return SentenceContext(document["layers"], document["heads"], tokens, keys, known)
