"""Routes for liveness and readiness probes."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from ..._version import __version__
from ...errors import HeadscopeError
from ..dependencies import ServiceDep
from ..schemas.server import Health

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Response:
    """Return 200 if the server is alive."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", response_model=Health, responses={503: {"model": Health}})
def readyz(service: ServiceDep) -> Response:
    """Return 200 if the server accepts work, and 503 otherwise."""
    try:
        count, size = service.results.usage()
        queued, workers = service.database.waiting(), service.workers()
        status: Literal["ok", "degraded"] = "ok" if service.jobs.alive() else "degraded"
    except HeadscopeError:
        status, queued, workers, count, size = "degraded", None, None, None, None
    health = Health(
        status=status, version=__version__, queued=queued, workers=workers, results=count, result_bytes=size
    )
    return JSONResponse(health.model_dump(), 200 if status == "ok" else 503)
