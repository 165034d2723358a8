"""Routes that export an analysis as one file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from ...core import arrow
from ...core.streams import PIECE, Chunks
from ...errors import InvalidRequest, NotReady, Unknown
from ...lenses import LENSES
from ...server.service import Service
from ...store import Stored, export
from ...store.export import Source
from ...studies.results import headvis
from ..dependencies import NO_MAPS, ResourceDep, check_kept, limit_by
from ..documents.selection import select
from ..documents.standalone import stream_page
from ..error_responses import media
from ..http.conditional import READS
from ..resources import Resource
from ..schemas.models import ModelCard

router = APIRouter(prefix="/analyses/{id}", tags=["results"], responses=READS)

Format = Literal["safetensors", "npz", "parquet", "arrow", "csv", "html", "headvis"]
BY_LAYER = [name for name, lens in LENSES.items() if lens.of == "layer"]
BINARY = "application/octet-stream"
MEDIA = {
    "parquet": "application/vnd.apache.parquet",
    "arrow": arrow.MEDIA,
    "csv": "text/csv; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "headvis": "application/zip",
}


@router.get(
    "/export",
    responses=media(BINARY, *MEDIA.values()),
    response_class=StreamingResponse,
    dependencies=[limit_by("exports")],
)
async def export_file(
    analysis: ResourceDep,
    format_: Annotated[Format, Query(alias="format")] = "safetensors",
    view: Annotated[
        str,
        Query(
            max_length=4_000,
            description="For html: what the page shows first, as in its address, such as head=4.5&lens=effective.",
        ),
    ] = "",
    heads: Annotated[
        str,
        Query(
            max_length=4_000,
            description="The heads that the file has, such as 4.5,7.2; all by default. HeadVis needs all.",
        ),
    ] = "",
) -> Response:
    """Export the analysis, or chosen heads of it, as one file. `html` is a self-contained page with the viewer; `csv`, `parquet` and `arrow` have one row per entry of
    every map; `headvis` is a zip file for HeadVis and requires the measures head_roles, qk_distance, entropy and max_activation.
    """
    chosen = heads.split(",") if heads else []
    streams: dict[Format, Callable[[Source], Chunks]] = {
        "safetensors": export.stream_safetensors,
        "npz": export.stream_npz,
        "parquet": partial(_stream_entries, export.stream_parquet),
        "arrow": partial(_stream_entries, export.stream_arrow),
        "csv": partial(_stream_entries, export.stream_csv),
        "html": partial(_stream_page, analysis, view),
        "headvis": _stream_headvis,
    }
    if chosen and format_ == "headvis":
        raise InvalidRequest("HeadVis needs all heads. Leave out heads, or choose another format.", pointer="/heads")
    return await send_file(analysis, lambda stored: streams[format_](select(stored, chosen)), format_)


async def send_file(resource: Resource, stream: Callable[[Stored], Chunks], format_: str) -> Response:
    """Send the stream of an analysis or study as an attachment, without writing it to the server's disk.

    The result is verified first. If it is removed while it is sent, the connection closes early. Raises what read() raises, and what `stream` raises
    before its first byte.
    """

    def start(stored: Stored) -> Chunks:
        stored.verify()
        chunks = stream(stored)
        return chain([next(chunks)], chunks)

    chunks = await resource.read(start)
    suffix = {"headvis": "-headvis.zip", "arrow": ".arrows"}.get(format_, f".{format_}")
    return StreamingResponse(
        _iterate_body(resource.service, chunks),
        media_type=MEDIA.get(format_, BINARY),
        headers={"Content-Disposition": f'attachment; filename="headscope-{resource.id[:8]}{suffix}"'},
    )


async def _iterate_body(service: Service, chunks: Chunks) -> AsyncIterator[bytes]:
    while piece := await service.limiters.results.run(partial(_next_piece, chunks)):
        yield piece


def _next_piece(chunks: Chunks) -> bytes:
    """Join the next chunks up to PIECE bytes; empty at the end."""
    parts, size = list[bytes](), 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= PIECE:
            break
    return b"".join(parts)


def _stream_entries(stream: Callable[..., Chunks], source: Source) -> Chunks:
    """Stream a table of the entries of every map. Raises NotReady if there is none."""
    if not source.document["kept"]:
        raise NotReady(NO_MAPS)
    return stream(source, by_layer=BY_LAYER)


def _stream_headvis(source: Source) -> Chunks:
    check_kept(source, "weights")
    return headvis.stream(headvis.summary_of_analysis(source))


def _stream_page(analysis: Resource, view: str, source: Source) -> Chunks:
    models = []
    with suppress(Unknown):  # it has been removed from the catalog
        models.append(ModelCard(**analysis.service.catalog.describe(source.document["request"]["model"])))
    return stream_page(analysis.id, source, models, view)
