"""Routes: the figures of a finished analysis, as plotly draws them, as pictures and as numbers; and plotly.js for the page."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from ..figures import FIGURES, Figure, Theme, named
from ..figures.rendering import MEDIA, Image, Renderer
from ..figures.script import script
from ..store import Stored
from .deps import AnalysisId, ServiceDep
from .fixed import fixed
from .recent import Recent
from .schemas import DeclarationSchema, Page

router = APIRouter(prefix="/analyses/{id}", tags=["results"])
declared = APIRouter(tags=["what there is"])
page = APIRouter(include_in_schema=False)

Format = Literal["json", "csv", "svg", "png", "pdf"]
CSV = "text/csv; charset=utf-8"
# What the route takes itself; everything else in a query is a parameter of the figure.
OURS = frozenset({"format", "width", "height", "theme", "share"})


class FigureSchema(DeclarationSchema):
    """A figure; `measures` must have been computed for it, `lenses` are those it can be drawn for (empty: there is no choice)."""

    measures: list[str]
    lenses: list[str]


class PlotlyFigure(BaseModel):
    """What plotly draws; layout.meta.sentence says it in words."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]


ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": PlotlyFigure, "content": {media: {} for media in ("text/csv", *MEDIA.values())}}
}


@declared.get("/figures")
def figures() -> Page[FigureSchema]:
    """What can be drawn of an analysis."""
    return Page(items=[FigureSchema.model_validate(figure.describe()) for figure in FIGURES.values()])


@router.get("/figures/{figure}", responses=ANSWERS, response_class=Response)
async def figure(
    id_: AnalysisId,
    figure: str,
    request: Request,
    service: ServiceDep,
    format_: Annotated[
        Format,
        Query(alias="format", description="plotly's JSON, the numbers, or a picture drawn by the server's browser."),
    ] = "json",
    width: Annotated[int, Query(ge=160, le=4000, description="Of a picture, in px of 1/96 inch.")] = 640,
    height: Annotated[int, Query(ge=120, le=4000, description="Of a picture, in px of 1/96 inch.")] = 360,
    theme: Annotated[Theme, Query(description="Ink on paper, or light on dark.")] = "light",
) -> Response:
    """A figure of the analysis, from the measures that it names. Its own parameters (see /figures) go into the query, too.

    The JSON is a plotly figure: data, layout, and in layout.meta.sentence what it shows in words. A PNG has 3 pixels per px.
    """
    wanted = named(figure)
    params = _params(wanted, request)

    def draw(stored: Stored) -> Response:
        drawing = wanted.drawn(stored, params, theme)
        if format_ == "csv":
            return Response(drawing.csv(), media_type=CSV)
        return Response(json.dumps(drawing.figure(), allow_nan=False), media_type="application/json")

    answer = await fixed(request, service, id_, format_, draw, whole=format_ == "json")
    if format_ == "json" or answer.status_code == 304:
        return answer
    if format_ != "csv":
        answer.body = await _picture(request, answer, format_, width, height)
        answer.headers["Content-Length"] = str(len(answer.body))
        answer.headers["Content-Type"] = MEDIA[format_]
    answer.headers["Content-Disposition"] = f'attachment; filename="headscope-{id_[:8]}-{wanted.name}.{format_}"'
    return answer


def _params(figure: Figure, request: Request) -> BaseModel:
    """The figure's own parameters, as the query has them."""
    given = {name: value for name, value in request.query_params.items() if name not in OURS}
    try:
        return figure.params.model_validate_strings(given)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


async def _picture(request: Request, answer: Response, image: Image, width: int, height: int) -> bytes:
    """The file drawn from a figure's JSON, or drawn from it lately."""
    recent, renderer = cast("Recent", request.app.state.recent), cast("Renderer", request.app.state.renderer)
    key = ("picture", answer.headers["ETag"])
    drawn = recent.get(key)
    if drawn is None:
        drawn = await renderer.render(json.loads(bytes(answer.body)), image, width, height)
        recent.put(key, drawn)
    return drawn


@page.get("/assets/plotly.js")
async def plotly(request: Request) -> Response:
    """plotly.js for the page, loaded once a figure is opened."""
    found = await asyncio.to_thread(script)
    headers = {"Cache-Control": "no-cache", "ETag": f'"{found.tag}"', "Vary": "Accept-Encoding"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    zipped = "gzip" in request.headers.get("accept-encoding", "")
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(found.zipped if zipped else found.body, media_type="text/javascript", headers=headers)
