"""The page's files: where they are, and the routes that serve them."""

from __future__ import annotations

import asyncio
import gzip
import mimetypes
from functools import lru_cache
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from .http.negotiation import takes_gzip

_HERE = Path(__file__).resolve().parent


def page_folder() -> Path:
    """Where the built page is: in an installed package beside this file, in a checkout in frontend/dist."""
    packaged = _HERE / "page"
    return packaged if packaged.is_dir() else _HERE.parents[2] / "frontend" / "dist"


def serve_page(app: FastAPI) -> None:
    """The page at /, its scripts and styles below /assets."""
    folder = page_folder()

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        if not (folder / "index.html").is_file():
            raise HTTPException(404)
        return FileResponse(folder / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/assets/{name}", include_in_schema=False)
    async def asset(name: str, request: Request) -> Response:
        path = _file_in(folder / "assets", name)
        if path is None:
            raise HTTPException(404)
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if not takes_gzip(request):
            return FileResponse(path, headers=headers)
        body = await asyncio.to_thread(_zipped, path)
        return Response(body, media_type=mimetypes.guess_type(name)[0], headers=headers | {"Content-Encoding": "gzip"})


@lru_cache(16)
def _zipped(path: Path) -> bytes:
    """The file, compressed once: its name changes with its content."""
    return gzip.compress(path.read_bytes(), mtime=0)


def _file_in(folder: Path, name: str) -> Path | None:
    """The file of that name, if there is one in the folder itself, whatever links and odd names are tried."""
    try:
        path = (folder / name).resolve(strict=True)
    except (OSError, ValueError):
        return None
    return path if path.parent == folder.resolve() and path.is_file() else None
