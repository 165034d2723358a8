"""Routes: which heads of a finished analysis satisfy a query, and what a sentence asks to see."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...core.tokens import Token
from ...query import Scene, Subject, find, heads_there, understand
from ...query.grammar import MOST_CHARACTERS
from ...store import Stored
from ..dependencies import AnalysisId, ServiceDep, check_lens
from ..http.conditional import FIXED, fixed
from ..http.tensors import MEDIA
from ..schemas.queries import Asked, FoundHeads

router = APIRouter(prefix="/analyses/{id}", tags=["results"], responses=FIXED)


@router.get("/heads", responses={200: {"model": FoundHeads}}, response_class=Response)
async def heads(
    id_: AnalysisId,
    request: Request,
    service: ServiceDep,
    where: Annotated[str, Query(description=f"At most {MOST_CHARACTERS} characters; empty for every head.")] = "",
    lens: Annotated[
        str, Query(max_length=100, description="What measures are read under that name no lens.")
    ] = "weights",
) -> Response:
    """The heads that satisfy a query such as `vertical and layer < 4 and null_share > 0.5`, ranked, with the numbers that decided it."""

    def search(stored: Stored) -> Response:
        check_lens(stored, lens)
        found = FoundHeads.model_validate(find(subject_of(stored, lens), where), from_attributes=True)
        return Response(found.model_dump_json(), media_type=MEDIA["json"])

    return await fixed(request, service, id_, "json", search)


@router.get("/ask", responses={200: {"model": Asked}}, response_class=Response)
async def ask(
    id_: AnalysisId,
    request: Request,
    service: ServiceDep,
    q: Annotated[str, Query(description=f"A query, or plain words in English: at most {MOST_CHARACTERS} characters.")],
) -> Response:
    """What a query or a sentence asks to see of this analysis, or the question to ask back where that is not certain."""

    def answer(stored: Stored) -> Response:
        asked = Asked.model_validate(understand(q, scene_of(stored.document)), from_attributes=True)
        return Response(asked.model_dump_json(), media_type=MEDIA["json"])

    return await fixed(request, service, id_, "json", answer)


def subject_of(stored: Stored, lens: str) -> Subject:
    """A stored analysis, as queries see it."""
    document, arrays = stored.document, stored.arrays
    shape = (len(document["layers"]), len(document["heads"]))
    return Subject(
        layers=document["layers"],
        heads=document["heads"],
        there=heads_there((arrays[f"tile/{name}/scale"] for name in document["lenses"]), shape),
        computed=document["measures"],
        values=lambda measure, of: arrays[f"measure/{measure}/{of}"],
        lens=lens,
    )


def scene_of(document: dict[str, Any]) -> Scene:
    """What sentences may speak of in an analysis."""
    tokens, keys = (
        [Token(**{**token, "box": None}) for token in document[side] or document["tokens"]]
        for side in ("tokens", "key_tokens")
    )
    return Scene(document["layers"], document["heads"], tokens, keys)
