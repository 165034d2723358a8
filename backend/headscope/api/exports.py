"""Routes: a whole analysis as one file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from ..errors import Unknown
from ..jobs import JobKind
from ..lenses import LENSES
from ..runtime import Service
from ..store import Stored, export
from ..store.export import Source
from ..study import single
from ..study.results import headvis
from . import declarations, documents
from .answers import media
from .deps import READS, AnalysisId, ServiceDep, check_kept, read
from .frontpage import page_folder
from .maps import picture
from .schemas import ModelCard, Page
from .standalone import write_html

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


@router.get("/export", responses=media(BINARY, *MEDIA.values()), response_class=FileResponse)
async def export_file(
    id_: AnalysisId, service: ServiceDep, format_: Annotated[Format, Query(alias="format")] = "safetensors"
) -> Response:
    """The whole analysis as one file. `html` is a page with the viewer that needs no network; `csv` and `parquet` have a line per entry of every map; `headvis` is a
    zip for HeadVis, and wants the measures head_roles, qk_distance, entropy and max_activation.
    """
    writers: dict[Format, Callable[[Stored, Path], None]] = {
        "safetensors": export.write_safetensors,
        "npz": export.write_npz,
        "parquet": partial(export.write_parquet, by_layer=BY_LAYER),
        "csv": partial(export.write_csv, by_layer=BY_LAYER),
        "html": partial(_write_page, service, id_),
        "headvis": _write_headvis,
    }
    return await sent(service, id_, writers[format_], format_)


async def sent(
    service: Service, id_: str, write: Callable[[Stored, Path], None], format_: str, kind: JobKind = "analysis"
) -> Response:
    """What `write` makes of an analysis or study, as a file to keep. Raises as read() does, and what `write` raises."""
    handle, name = tempfile.mkstemp(prefix="export-", dir=service.results.staging)
    os.close(handle)
    path = Path(name)
    try:
        await read(service, id_, lambda stored: write(stored, path), kind)
    except BaseException:
        os.unlink(path)  # noqa: PTH108 - a local file, gone at once
        raise
    suffix = "-headvis.zip" if format_ == "headvis" else f".{format_}"
    return FileResponse(
        path,
        media_type=MEDIA.get(format_, BINARY),
        filename=f"headscope-{id_[:8]}{suffix}",
        background=BackgroundTask(path.unlink, missing_ok=True),
    )


def _write_headvis(stored: Stored, path: Path) -> None:
    check_kept(stored, "weights")
    headvis.write(single.summary_of(stored, headvis.MEASURES), path)


def _write_page(service: Service, id_: str, stored: Stored, path: Path) -> None:
    write_page(id_, stored, path, _card(service, stored.document["request"]["model"]))


def write_page(id_: str, source: Source, path: Path, models: list[ModelCard]) -> None:
    """The page with the viewer; `models` says what is known of the model, if anything. Raises what write_html raises."""
    answers = {
        "/analysis": documents.analysis(id_, None, source).model_dump_json(),
        "/models": Page(items=models, next=None).model_dump_json(),
        "/lenses": declarations.lenses().model_dump_json(by_alias=True),
        "/mechanisms": declarations.mechanisms().model_dump_json(by_alias=True),
        "/measures": declarations.measures().model_dump_json(by_alias=True),
    }
    image = {"/image": picture(source)} if "picture" in source.arrays else {}
    write_html(source, path, page_folder() / "viewer", {name: text.encode() for name, text in answers.items()} | image)


def _card(service: Service, model: str) -> list[ModelCard]:
    """What the catalog says about the model; it may not be there any more."""
    try:
        return [ModelCard(**service.catalog.describe(model))]
    except Unknown:
        return []
