"""Routes: the figures of a finished analysis, as plotly draws them, as pictures and as numbers; and plotly.js for the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from ...errors import FigureNotDrawn, QueueFull, TimedOut
from ...figures import FIGURES, Figure, Theme, named
from ...figures.rendering import MEDIA, Image, Renderer
from ...figures.script import script
from ...figures.studies import STUDY_FIGURES, StudyFigure
from ...jobs import JobKind
from ...server.service import Service
from ...store import Stored
from ...studies.results.summary import StudySummary
from ..dependencies import AnalysisId, ServiceDep
from ..error_responses import media, raises
from ..http.conditional import FIXED, fixed
from ..http.negotiation import takes_gzip
from ..http.paging import Cursor, Limit
from ..http.paging import page as paged
from ..http.recent import RecentAnswers
from ..schemas.analyses import DeclarationSchema, Page

router = APIRouter(prefix="/analyses/{id}", tags=["results"])
declared = APIRouter(tags=["what there is"])
page = APIRouter(include_in_schema=False)

Drawn = Figure | StudyFigure
CSV = "text/csv; charset=utf-8"
# What the route takes itself; everything else in a query is a parameter of the figure.
OURS = frozenset({"format", "width", "height", "theme", "share"})


class FigureSchema(DeclarationSchema):
    """A figure of one analysis, or of a study.

    `measures` must have been computed for it. `lenses`: of an analysis those it can be drawn for (empty: there is no choice), of a study those it is read through.
    `asks` is what a study must have: two variants (against), entity labels, or all of its lenses.
    """

    of: Literal["analysis", "study"]
    measures: list[str]
    lenses: list[str]
    asks: tuple[str, ...] = ()


class Style(BaseModel):
    """How a figure is wanted: as plotly's JSON, as numbers, or as a picture drawn by the server's browser."""

    format: Literal["json", "csv", "svg", "png", "pdf"] = Field(
        default="json", description="plotly's JSON, the numbers, or a picture drawn by the server's browser."
    )
    width: int = Field(default=640, ge=160, le=4000, description="Of a picture, in px of 1/96 inch.")
    height: int = Field(default=360, ge=120, le=4000, description="Of a picture, in px of 1/96 inch.")
    theme: Theme = Field(default="light", description="Ink on paper, or light on dark.")


class PlotlyFigure(BaseModel):
    """What plotly draws; layout.meta.sentence says it in words."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]


ANSWERS = {
    **FIXED,
    **raises(QueueFull, FigureNotDrawn, TimedOut),
    200: {"model": PlotlyFigure, **media(CSV, *MEDIA.values())[200]},
}


@declared.get("/figures")
def figures(limit: Limit = 100, cursor: Cursor = 0) -> Page[FigureSchema]:
    """What can be drawn of an analysis, and of a study."""
    listed: dict[str, Iterable[Drawn]] = {"analysis": FIGURES.values(), "study": STUDY_FIGURES.values()}
    described = [
        FigureSchema(**{**figure.describe(), "of": of}) for of, figures in listed.items() for figure in figures
    ]
    return paged(described, limit, cursor)


@router.get("/figures/{figure}", responses=ANSWERS, response_class=Response)
async def figure(
    id_: AnalysisId, figure: str, request: Request, service: ServiceDep, style: Annotated[Style, Query()]
) -> Response:
    """A figure of the analysis, from the measures that it names. Its own parameters (see /figures) go into the query, too.

    The JSON is a plotly figure: data, layout, and in layout.meta.sentence what it shows in words. A PNG has 3 pixels per px.
    """
    wanted = named(figure)
    return await drawn(request, service, id_, wanted, style)


async def drawn(
    request: Request, service: Service, id_: str, figure: Drawn, style: Style, kind: JobKind = "analysis"
) -> Response:
    """The answer to whoever asks for a figure of an analysis, or study, with the figure's own parameters in the query."""
    params = params_of(figure, request)

    def draw(stored: Stored) -> Response:
        numbers: Any = StudySummary(stored.document, stored.arrays) if kind == "study" else stored
        drawing = figure.drawn(numbers, params, style.theme)
        if style.format == "csv":
            return Response(drawing.csv(), media_type=CSV)
        return Response(json.dumps(drawing.figure(), allow_nan=False), media_type="application/json")

    answer = await fixed(request, service, id_, style.format, draw, whole=style.format == "json", kind=kind)
    if style.format == "json" or answer.status_code == 304:
        return answer
    if style.format != "csv":
        async with service.limiters.pictures.slot():
            answer.body = await _picture(request, answer, style.format, style.width, style.height)
        answer.headers["Content-Length"] = str(len(answer.body))
        answer.headers["Content-Type"] = MEDIA[style.format]
    answer.headers["Content-Disposition"] = f'attachment; filename="headscope-{id_[:8]}-{figure.name}.{style.format}"'
    return answer


def params_of(figure: Drawn, request: Request) -> BaseModel:
    """The figure's own parameters, as the query has them."""
    given = {name: value for name, value in request.query_params.items() if name not in OURS}
    try:
        return figure.params.model_validate_strings(given)
    except ValidationError as error:
        raise RequestValidationError([{**item, "loc": ("query", *item["loc"])} for item in error.errors()]) from None


async def _picture(request: Request, answer: Response, image: Image, width: int, height: int) -> bytes:
    """The file drawn from a figure's JSON, or drawn from it lately."""
    recent, renderer = cast("RecentAnswers", request.app.state.recent), cast("Renderer", request.app.state.renderer)
    key = ("picture", answer.headers["ETag"])
    drawn: bytes | None = recent.get(key)
    if drawn is None:
        drawn = await renderer.render(json.loads(bytes(answer.body)), image, width, height)
        recent.put(key, drawn, len(drawn))
    return drawn


@page.get("/assets/plotly.js")
async def plotly(request: Request) -> Response:
    """plotly.js for the page, loaded once a figure is opened."""
    found = await asyncio.to_thread(script)
    headers = {"Cache-Control": "no-cache", "ETag": f'"{found.tag}"', "Vary": "Accept-Encoding"}
    if found.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    zipped = takes_gzip(request)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    return Response(found.zipped if zipped else found.body, media_type="text/javascript", headers=headers)
