"""Routes: what a finished study found: its heads, and the inputs behind a mark."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from ...core.streams import Chunks
from ...figures.studies import STUDY_FIGURES, named
from ...store import Stored, export
from ...studies.results import finding, headvis, tables, writing
from ...studies.results.summary import StudySummary
from ..dependencies import READS, ServiceDep, StudyId, limited
from ..error_responses import media
from ..http.conditional import FIXED, fixed
from ..http.tensors import MEDIA
from ..schemas.analyses import Page
from ..schemas.queries import FoundHeads
from ..schemas.studies import Example, StudyHead
from . import figures
from .exports import BINARY, sent

router = APIRouter(prefix="/studies/{id}", tags=["studies"], responses=READS)

Variant = Annotated[int, Query(ge=0, le=1, description="0, or 1 for the second of two variants.")]
Place = Annotated[int, InPath(ge=0, le=100_000)]
Row = Annotated[int, Field(ge=0, le=10**12)]
Lens = Annotated[str, Query(max_length=100, description="What measures are read under that have it.")]

TABLES = media(*writing.MEDIA.values())


def summary_of(stored: Stored) -> StudySummary:
    """A stored study, as figures and tables read it."""
    return StudySummary(stored.document, stored.arrays)


@router.get("/heads", responses={**FIXED, 200: {"model": FoundHeads}}, response_class=Response)
async def heads(
    id_: StudyId,
    request: Request,
    service: ServiceDep,
    where: Annotated[str, Query(description="The query; empty for every head.")] = "",
    lens: Lens = "weights",
    variant: Variant = 0,
) -> Response:
    """The heads whose means over all inputs satisfy a query such as `vertical and entropy < 1`, ranked. The class of a head is that of most inputs."""

    def search(stored: Stored) -> Response:
        found = finding.find(summary_of(stored), where, lens, variant)
        shown = FoundHeads.model_validate(found, from_attributes=True)
        return Response(shown.model_dump_json(), media_type=MEDIA["json"])

    return await fixed(request, service, id_, "json", search, kind="study")


@router.get("/heads/{layer}/{head}", responses={**FIXED, 200: {"model": StudyHead}}, response_class=Response)
async def head(
    id_: StudyId,
    layer: Place,
    head: Place,
    request: Request,
    service: ServiceDep,
    lens: Lens = "weights",
    variant: Variant = 0,
) -> Response:
    """A head over all inputs: its numbers with 95 % intervals, distributions and top inputs, its classes, and the heads whose maps are alike."""

    def describe(stored: Stored) -> Response:
        found = StudyHead.model_validate(finding.head(summary_of(stored), layer, head, lens, variant))
        return Response(found.model_dump_json(), media_type=MEDIA["json"])

    return await fixed(request, service, id_, "json", describe, kind="study")


@router.get("/examples", responses={**FIXED, 200: {"model": Page[Example]}}, response_class=Response)
async def examples(
    id_: StudyId,
    request: Request,
    service: ServiceDep,
    row: Annotated[
        list[Row] | None,
        Query(max_length=100, description="Rows of the source; without any those that were drawn evenly."),
    ] = None,
) -> Response:
    """Inputs that the study has kept: those drawn evenly from all, and those that are at the top of a measure."""

    def show(stored: Stored) -> Response:
        summary = summary_of(stored)
        items = [Example(**summary.example(one)) for one in (row or summary.sample())]
        return Response(Page[Example](items=items).model_dump_json(), media_type=MEDIA["json"])

    return await fixed(request, service, id_, "json", show, kind="study")


@router.get("/figures/{figure}", responses=figures.ANSWERS, response_class=Response)
async def figure(
    id_: StudyId, figure: str, request: Request, service: ServiceDep, style: Annotated[figures.Style, Query()]
) -> Response:
    """A figure of the study. Its own parameters (see /figures) go into the query, too: variant, lens and the like.

    The JSON is a plotly figure: data, layout, and in layout.meta.sentence what it shows in words. A PNG has 3 pixels per px.
    """
    wanted = named(figure)
    return await figures.drawn(request, service, id_, wanted, style, "study")


@router.get("/tables/{table}", responses={**FIXED, **TABLES}, response_class=Response)
async def table(
    id_: StudyId,
    table: str,
    request: Request,
    service: ServiceDep,
    format_: Annotated[writing.TableFormat, Query(alias="format", description="LaTeX wants booktabs.")] = "json",
) -> Response:
    """A table of the study: heads, inputs, failed, or the numbers of the figure of that name, whose parameters go into the query, too."""
    given = figures.params_of(STUDY_FIGURES[table], request).model_dump() if table in STUDY_FIGURES else {}

    def write(stored: Stored) -> Response:
        made = tables.table(summary_of(stored), table, given)
        return Response(writing.WRITERS[format_](made), media_type=writing.MEDIA[format_])

    answer = await fixed(request, service, id_, format_, write, kind="study", whole=format_ == "json")
    if format_ != "json":
        name = f"headscope-{id_[:8]}-{table}.{writing.SUFFIXES[format_]}"
        answer.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


@router.get(
    "/export",
    responses=media(BINARY, "application/zip"),
    response_class=StreamingResponse,
    dependencies=[limited("exports")],
)
async def export_file(
    id_: StudyId,
    service: ServiceDep,
    format_: Annotated[Literal["safetensors", "headvis"], Query(alias="format")] = "safetensors",
    variant: Variant = 0,
) -> Response:
    """The whole study as one file: all its numbers, which `Study.open` of the Python library reads; `headvis` is a variant as a zip for HeadVis."""

    def stream(stored: Stored) -> Chunks:
        if format_ == "headvis":
            return headvis.stream(summary_of(stored), variant)
        return export.stream_safetensors(export.Flat({**stored.document, "id": id_}, stored.arrays))

    return await sent(service, id_, stream, format_, "study")
