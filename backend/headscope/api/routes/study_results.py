"""Routes of a finished study: heads, example inputs, figures, tables and exports."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from ...core.streams import Chunks
from ...figures.studies import STUDY_FIGURES, build_table
from ...store import Stored, export
from ...studies.results import finding, headvis, table_files
from ...studies.results.summary import StudySummary
from ..dependencies import ResourceDep, limit_by
from ..error_responses import media
from ..http.conditional import CONDITIONAL, READS
from ..http.negotiation import choose_media
from ..http.response_cache import CachedRoute
from ..schemas.common import Page
from ..schemas.queries import FoundHeads
from ..schemas.studies import Example, StudyHead
from . import figures
from .exports import BINARY, send_file

router = APIRouter(prefix="/studies/{id}", tags=["studies"], responses=READS, route_class=CachedRoute)

Variant = Annotated[int, Query(ge=0, le=1, description="Index of the variant: 0, or 1 for the second of two.")]
Index = Annotated[int, InPath(ge=0, le=100_000)]
Row = Annotated[int, Field(ge=0, le=10**12)]
Lens = Annotated[str, Query(max_length=100, description="Lens of the measures.")]

TABLES = media(*table_files.MEDIA.values())


def summary_of(stored: Stored) -> StudySummary:
    """Return the summary of a stored study that figures and tables read."""
    return StudySummary(stored.document, stored.arrays)


@router.get("/heads", responses={**CONDITIONAL, 200: {"model": FoundHeads}}, response_class=Response)
async def heads(
    study: ResourceDep,
    where: Annotated[str, Query(description="The query; empty for all heads.")] = "",
    lens: Lens = "weights",
    variant: Variant = 0,
) -> Response:
    """Find the heads whose means over all inputs satisfy a query such as `vertical and entropy < 1`, ranked. The class of a head is the most frequent one over inputs."""

    def search(stored: Stored) -> FoundHeads:
        return FoundHeads.model_validate(finding.find(summary_of(stored), where, lens, variant), from_attributes=True)

    return await study.respond_json(search)


@router.get("/heads/{layer}/{head}", responses={**CONDITIONAL, 200: {"model": StudyHead}}, response_class=Response)
async def head(
    study: ResourceDep,
    layer: Index,
    head: Index,
    lens: Lens = "weights",
    variant: Variant = 0,
) -> Response:
    """Return the results of one head over all inputs: measures with 95 % intervals, distributions and top inputs; classes; and heads with similar maps."""

    def describe(stored: Stored) -> StudyHead:
        return StudyHead.model_validate(finding.head(summary_of(stored), layer, head, lens, variant))

    return await study.respond_json(describe)


@router.get("/examples", responses={**CONDITIONAL, 200: {"model": Page[Example]}}, response_class=Response)
async def examples(
    study: ResourceDep,
    row: Annotated[
        list[Row] | None,
        Query(max_length=100, description="Rows of the source; by default, the evenly drawn sample."),
    ] = None,
) -> Response:
    """Return inputs that the study has kept: an evenly drawn sample, and the top inputs of measures."""

    def show(stored: Stored) -> Page[Example]:
        summary = summary_of(stored)
        return Page[Example](items=[Example(**summary.example(number)) for number in (row or summary.sample())])

    return await study.respond_json(show)


@router.get("/tables/{table}", responses={**CONDITIONAL, **TABLES}, response_class=Response)
async def table(
    study: ResourceDep,
    table: str,
    format_: Annotated[
        table_files.TableFormat | None,
        Query(alias="format", description="Overrides the Accept header. The LaTeX table requires booktabs."),
    ] = None,
) -> Response:
    """Return a table of the study: heads, inputs, failed, or the data of a figure. Further query parameters are those of the figure."""
    format_ = choose_media(study.request, format_, table_files.MEDIA)
    params = figures.parse_params(STUDY_FIGURES[table], study.request).model_dump() if table in STUDY_FIGURES else {}

    def write(stored: Stored) -> Response:
        content = build_table(summary_of(stored), table, params)
        return Response(table_files.WRITERS[format_](content), media_type=table_files.MEDIA[format_])

    response = await study.respond(format_, write)
    if format_ != "json":
        name = f"headscope-{study.id[:8]}-{table}.{table_files.SUFFIXES[format_]}"
        response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@router.get(
    "/export",
    responses=media(BINARY, "application/zip"),
    response_class=StreamingResponse,
    dependencies=[limit_by("exports")],
)
async def export_file(
    study: ResourceDep,
    format_: Annotated[Literal["safetensors", "headvis"], Query(alias="format")] = "safetensors",
    variant: Variant = 0,
) -> Response:
    """Export the study as one file: safetensors with all numbers, which `Study.open` of the Python library reads, or a zip file with one variant for HeadVis."""

    def stream(stored: Stored) -> Chunks:
        if format_ == "headvis":
            return headvis.stream(summary_of(stored), variant)
        return export.stream_safetensors(export.Flat({**stored.document, "id": study.id}, stored.arrays))

    return await send_file(study, stream, format_)
