"""Routes of figures: as plotly JSON, CSV or images; and plotly.js for the page."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from ...core import arrow
from ...errors import FigureNotDrawn, QueueFull, TimedOut
from ...figures import Figure, Theme, find_figure
from ...figures.images import MEDIA, ImageFormat, render
from ...figures.plotly_script import load_script
from ...figures.studies import StudyFigure
from ...figures.studies import find_figure as find_study_figure
from ...store import Stored
from ...studies.results import table_files
from ...studies.results.summary import StudySummary
from ..dependencies import ResourceDep
from ..error_responses import media, raises
from ..http.conditional import CONDITIONAL
from ..http.negotiation import accepts_gzip
from ..http.response_cache import CachedRoute, ResponseCache
from ..schemas.methods import PlotlyFigure

router = APIRouter(route_class=CachedRoute)
page = APIRouter(include_in_schema=False)

AnyFigure = Figure | StudyFigure
CSV = "text/csv; charset=utf-8"
# Parameters of the route; all others are parameters of the figure.
ROUTE_PARAMS = frozenset({"format", "width", "height", "theme", "share"})


class Style(BaseModel):
    """The format, size and theme of a figure."""

    format: Literal["json", "csv", "arrow", "svg", "png", "pdf"] = Field(
        default="json",
        description="plotly JSON, the data as CSV or as an Arrow stream, or an image rendered by the server's browser.",
    )
    width: int = Field(default=640, ge=160, le=4000, description="Width of an image in px (1/96 inch).")
    height: int = Field(default=360, ge=120, le=4000, description="Height of an image in px (1/96 inch).")
    theme: Theme = Field(default="light", description="Dark on light, or light on dark.")


RESPONSES = {
    **CONDITIONAL,
    **raises(QueueFull, FigureNotDrawn, TimedOut),
    200: {"model": PlotlyFigure, **media(CSV, arrow.MEDIA, *MEDIA.values())[200]},
}


@router.get("/analyses/{id}/figures/{figure}", tags=["results"], responses=RESPONSES, response_class=Response)
@router.get("/studies/{id}/figures/{figure}", tags=["studies"], responses=RESPONSES, response_class=Response)
async def figure(resource: ResourceDep, figure: str, style: Annotated[Style, Query()]) -> Response:
    """Draw a figure of the analysis or study. Further query parameters are those of the figure (see /figures).

    JSON is a plotly figure whose layout.meta.sentence describes it in words. PNG has 3 pixels per px.
    """
    declared: AnyFigure = find_study_figure(figure) if resource.kind == "study" else find_figure(figure)
    params = parse_params(declared, resource.request)

    def draw(stored: Stored) -> Response:
        numbers: Any = StudySummary(stored.document, stored.arrays) if resource.kind == "study" else stored
        drawing = declared.build(numbers, params, style.theme)
        if style.format == "csv":
            return Response(drawing.csv(), media_type=CSV)
        if style.format == "arrow":
            table = table_files.ResultTable(declared.name, declared.title, drawing.columns, drawing.rows)
            return Response(table_files.as_arrow(table), media_type=arrow.MEDIA)
        return Response(json.dumps(drawing.figure(), allow_nan=False), media_type="application/json")

    response = await resource.respond(style.format, draw)
    if style.format == "json" or response.status_code == 304:
        return response
    if style.format in MEDIA:
        async with resource.service.limiters.pictures.slot():
            response.body = await _render(resource.request, response, style.format, style.width, style.height)
        response.headers["Content-Length"] = str(len(response.body))
        response.headers["Content-Type"] = MEDIA[style.format]
    suffix = "arrows" if style.format == "arrow" else style.format
    response.headers["Content-Disposition"] = (
        f'attachment; filename="headscope-{resource.id[:8]}-{declared.name}.{suffix}"'
    )
    return response


def parse_params(figure: AnyFigure, request: Request) -> BaseModel:
    """Parse the figure's own parameters from the query. Raises RequestValidationError."""
    params = {name: value for name, value in request.query_params.items() if name not in ROUTE_PARAMS}
    try:
        return figure.params.model_validate_strings(params)
    except ValidationError as error:
        raise RequestValidationError([{**item, "loc": ("query", *item["loc"])} for item in error.errors()]) from None


async def _render(request: Request, response: Response, image: ImageFormat, width: int, height: int) -> bytes:
    """Render the plotly JSON of a response as an image, or return the cached image."""
    cache: ResponseCache = request.app.state.response_cache
    key = ("picture", response.headers["ETag"])
    rendered: bytes | None = cache.get(key)
    if rendered is None:
        rendered = await render(json.loads(bytes(response.body)), image, width, height)
        cache.put(key, rendered, len(rendered))
    return rendered


@page.get("/assets/plotly.js")
async def plotly(request: Request) -> Response:
    """Serve plotly.js, which the page loads when a figure is opened."""
    source = await asyncio.to_thread(load_script)
    headers = {"Cache-Control": "no-cache", "ETag": f'"{source.tag}"', "Vary": "Accept-Encoding"}
    if source.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    zipped = accepts_gzip(request)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(source.zipped if zipped else source.body, media_type="text/javascript", headers=headers)
