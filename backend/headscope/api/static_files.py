"""Routes that serve the page's files."""

from __future__ import annotations

import asyncio
import gzip
import mimetypes
from functools import lru_cache
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from .documents.standalone import page_folder
from .http.negotiation import accepts_gzip


def serve_page(app: FastAPI) -> None:
    """Serve the page at / and its scripts and styles below /assets."""
    folder = page_folder()

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        if not (folder / "index.html").is_file():
            raise HTTPException(404)
        return FileResponse(folder / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str, request: Request) -> Response:
        path = _find_file(folder / "assets", name)
        if path is None:
            raise HTTPException(404)
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if not accepts_gzip(request):
            return FileResponse(path, headers=headers)
        body = await asyncio.to_thread(_compress, path)
        return Response(body, media_type=mimetypes.guess_type(name)[0], headers=headers | {"Content-Encoding": "gzip"})


@lru_cache(16)
def _compress(path: Path) -> bytes:
    """Return a file compressed. Its name contains a hash of its content, so the cache is never stale."""
    return gzip.compress(path.read_bytes(), mtime=0)


def _find_file(folder: Path, name: str) -> Path | None:
    """Return the file of this name if it is directly inside the folder, after resolving links and relative parts."""
    try:
        path = (folder / name).resolve(strict=True)
    except (OSError, ValueError):
        return None
    return path if path.parent == folder.resolve() and path.is_file() else None
