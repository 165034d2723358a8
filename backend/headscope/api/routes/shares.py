"""Routes of share keys, which let people without a token read one analysis or study."""

from __future__ import annotations

from contextlib import suppress

from fastapi import APIRouter, Response

from ...jobs.job import LOCAL
from ...store.map_file import Corrupt
from ..dependencies import ResourceDep
from ..schemas.server import Share

router = APIRouter(tags=["users"])

# The page's URL for an analysis or study, before its id.
PAGES = {"analysis": "/#analysis", "study": "/?studies#study"}


@router.post("/analyses/{id}/share", status_code=201)
@router.post("/studies/{id}/share", status_code=201)
def share(shared: ResourceDep) -> Share:
    """Create a key that grants read access to this analysis or study only, including the texts that it shows. Add `?share=KEY` to requests that read it.

    Repeated calls return the same key.
    """
    _require(shared)
    key = shared.service.database.share(shared.id, shared.visitor.owner or LOCAL)
    return Share(key=key, link=f"{PAGES[shared.kind]}={shared.id}&share={key}")


@router.delete("/analyses/{id}/share", status_code=204)
@router.delete("/studies/{id}/share", status_code=204)
def unshare(shared: ResourceDep) -> Response:
    """Revoke your share key of this analysis or study. Keys of other users who requested the same one stay valid."""
    _require(shared)
    shared.service.database.unshare(shared.id, shared.visitor.owner or LOCAL)
    return Response(status_code=204)


def _require(shared: ResourceDep) -> None:
    """Raise Unknown unless there is an analysis or study of this id."""
    with suppress(Corrupt):  # it exists, and is computed again when it is read
        shared.service.find(shared.id, shared.kind)
