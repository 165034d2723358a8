"""Routes: a whole analysis as one file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from ...core.streams import PIECE, Chunks, save
from ...errors import Unknown
from ...jobs import JobKind
from ...lenses import LENSES
from ...server.service import Service
from ...store import Stored, export
from ...store.export import Source
from ...studies import single
from ...studies.results import headvis
from ..dependencies import READS, AnalysisId, ServiceDep, check_kept, limited, read
from ..documents import analyses
from ..documents.standalone import stream_html
from ..error_responses import media
from ..schemas.analyses import ModelCard, Page
from ..static_files import page_folder
from . import declarations
from .maps import picture

router = APIRouter(prefix="/analyses/{id}", tags=["results"], responses=READS)

Format = Literal["safetensors", "npz", "parquet", "csv", "html", "headvis"]
BY_LAYER = [name for name, lens in LENSES.items() if lens.of == "layer"]
BINARY = "application/octet-stream"
MEDIA = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "headvis": "application/zip",
}


@router.get(
    "/export",
    responses=media(BINARY, *MEDIA.values()),
    response_class=StreamingResponse,
    dependencies=[limited("exports")],
)
async def export_file(
    id_: AnalysisId, service: ServiceDep, format_: Annotated[Format, Query(alias="format")] = "safetensors"
) -> Response:
    """The whole analysis as one file. `html` is a page with the viewer that needs no network; `csv` and `parquet` have a line per entry of every map; `headvis` is a
    zip for HeadVis, and wants the measures head_roles, qk_distance, entropy and max_activation.
    """
    streams: dict[Format, Callable[[Stored], Chunks]] = {
        "safetensors": export.stream_safetensors,
        "npz": export.stream_npz,
        "parquet": partial(export.stream_parquet, by_layer=BY_LAYER),
        "csv": partial(export.stream_csv, by_layer=BY_LAYER),
        "html": partial(_stream_page, service, id_),
        "headvis": _stream_headvis,
    }
    return await sent(service, id_, streams[format_], format_)


async def sent(
    service: Service, id_: str, stream: Callable[[Stored], Chunks], format_: str, kind: JobKind = "analysis"
) -> Response:
    """Send what `stream` makes of an analysis or study, as a file to keep. Nothing of it is written to the server's disk.

    The result is verified before the answer begins; if it is removed while it is sent, the connection is closed early. Raises as read() does, and what `stream` raises before its
    first byte.
    """

    def begin(stored: Stored) -> Chunks:
        stored.verify()
        chunks = stream(stored)
        return chain([next(chunks)], chunks)

    chunks = await read(service, id_, begin, kind)
    suffix = "-headvis.zip" if format_ == "headvis" else f".{format_}"
    return StreamingResponse(
        _body(service, chunks),
        media_type=MEDIA.get(format_, BINARY),
        headers={"Content-Disposition": f'attachment; filename="headscope-{id_[:8]}{suffix}"'},
    )


async def _body(service: Service, chunks: Chunks) -> AsyncIterator[bytes]:
    while piece := await service.limiters.results.run(partial(_piece, chunks)):
        yield piece


def _piece(chunks: Chunks) -> bytes:
    """The next chunks that have PIECE bytes together; empty at the end."""
    parts, size = list[bytes](), 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size >= PIECE:
            break
    return b"".join(parts)


def _stream_headvis(stored: Stored) -> Chunks:
    check_kept(stored, "weights")
    return headvis.stream(single.summary_of(stored, headvis.MEASURES))


def _stream_page(service: Service, id_: str, stored: Stored) -> Chunks:
    return stream_page(id_, stored, _card(service, stored.document["request"]["model"]))


def stream_page(id_: str, source: Source, models: list[ModelCard], fragment: str = "") -> Chunks:
    """The page with the viewer; `models` says what is known of the model, if anything; `fragment` what to show first. Raises what stream_html raises."""
    answers = {
        "/analysis": analyses.analysis(id_, None, source).model_dump_json(),
        "/models": Page(items=models, next=None).model_dump_json(),
        "/lenses": declarations.lenses().model_dump_json(by_alias=True),
        "/mechanisms": declarations.mechanisms().model_dump_json(by_alias=True),
        "/measures": declarations.measures().model_dump_json(by_alias=True),
    }
    image = {"/image": picture(source)} if "picture" in source.arrays else {}
    found = {name: text.encode() for name, text in answers.items()} | image
    return stream_html(source, page_folder() / "viewer", found, fragment)


def write_page(id_: str, source: Source, path: Path, models: list[ModelCard], fragment: str = "") -> None:
    """A file of stream_page. Raises as that does."""
    save(stream_page(id_, source, models, fragment), path)


def _card(service: Service, model: str) -> list[ModelCard]:
    """What the catalog says about the model; it may not be there any more."""
    try:
        return [ModelCard(**service.catalog.describe(model))]
    except Unknown:
        return []
