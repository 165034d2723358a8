"""The operations of the REST interface, as methods that both clients have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack

from numpy.typing import NDArray
from pydantic import BaseModel
from safetensors.numpy import load

from ..analysis.effect_request import EffectRequest
from ..analysis.head_scores_request import HeadScoresRequest
from ..analysis.request import AnalysisRequest
from ..api.schemas.analyses import AnalysisDocument, AnalysisItem, BatchAccepted
from ..api.schemas.common import Page
from ..api.schemas.effects import EffectDocument
from ..api.schemas.head_scores import HeadScoresDocument
from ..api.schemas.methods import (
    BatterySchema,
    DeclarationSchema,
    EffectMethodSchema,
    FigureSchema,
    LensSchema,
    MeasureSchema,
    PlotlyFigure,
)
from ..api.schemas.models import ModelCard, ModelDetail
from ..api.schemas.queries import Asked, FoundHeads
from ..api.schemas.results import AlignedTokens, ComparedAnalyses, Edges, MeasureValues
from ..api.schemas.server import Share
from ..api.schemas.studies import (
    DatasetDocument,
    DatasetItem,
    Example,
    StudyDocument,
    StudyHead,
    StudyItem,
)
from ..core import arrow
from ..measures.edges import Rule
from ..studies.request import StudyRequest
from .call import SAFETENSORS, Call, Operation, reading

P = ParamSpec("P")
M = TypeVar("M", bound=BaseModel)
Tensors = dict[str, NDArray[Any]]
# A number, or a half-open range such as "2:5".
Part = int | str | None
By = Literal["token", "word"]


class MapSelection(TypedDict, total=False):
    """A part of maps, and how it is sent."""

    layer: Part
    head: Part
    query: Part
    key: Part
    dtype: Literal["float32", "float16", "uint8"]
    by: By
    groups: str
    key_groups: str
    pool: int


def _get(model: type[M], path: str, params: Mapping[str, Any] | None = None, /, **names: str | int) -> Call[M]:
    return Call("GET", path, reading(model), names, params or {})


def _tensors(path: str, params: Mapping[str, Any], /, **names: str | int) -> Call[Tensors]:
    return Call("GET", path, load, names, params, accept=SAFETENSORS)


def _post(model: type[M], path: str, body: Any, wait: float | None = None, /, **names: str | int) -> Call[M]:
    sent = body.model_dump(mode="json", exclude_unset=True) if isinstance(body, BaseModel) else body
    return Call("POST", path, reading(model), names, body=sent, wait=wait)


def _delete(path: str, /, **names: str | int) -> Call[None]:
    return Call("DELETE", path, lambda _: None, names)


def _as_arrow(operation: Operation[P, Any], doc: str) -> Operation[P, Any]:
    """Return the method that reads the same as a table of pyarrow."""

    @wraps(operation.call)
    def call(*args: P.args, **kwargs: P.kwargs) -> Call[Any]:
        return replace(operation.call(*args, **kwargs), read=arrow.from_stream, accept=arrow.MEDIA)

    call.__doc__ = doc
    return Operation(call)


def _listed(page: type[M], path: str) -> Operation[..., M]:
    """Return the method that lists a collection."""

    def call(limit: int | None = None, cursor: str | int | None = None) -> Call[M]:
        """Return a page of the list; `cursor` is the `next` of the page before."""
        return _get(page, path, {"limit": limit, "cursor": cursor})

    return Operation(call)


class Operations:
    """What a server can be asked. Arguments are those of the REST interface, under the same names; those that are None have the server's default.

    With `wait`, the server holds its response for up to so many seconds (60 at most), until the job has ended.
    """

    models = _listed(Page[ModelCard], "/models")
    lenses = _listed(Page[LensSchema], "/lenses")
    mechanisms = _listed(Page[DeclarationSchema], "/mechanisms")
    measures = _listed(Page[MeasureSchema], "/measures")
    effects = _listed(Page[EffectMethodSchema], "/effects")
    batteries = _listed(Page[BatterySchema], "/batteries")
    figures = _listed(Page[FigureSchema], "/figures")
    analyses = _listed(Page[AnalysisItem], "/analyses")
    studies = _listed(Page[StudyItem], "/studies")
    datasets = _listed(Page[DatasetItem], "/datasets")

    @Operation
    @staticmethod
    def model(model: str) -> Call[ModelDetail]:
        """Return a model, and the methods that it supports."""
        return _get(ModelDetail, "/models/{model}", model=model)

    @Operation
    @staticmethod
    def add_model(model: str, wait: float | None = None) -> Call[ModelDetail]:
        """Download a model from the hub."""
        return _post(ModelDetail, "/models", {"model": model}, wait)

    @Operation
    @staticmethod
    def delete_model(model: str) -> Call[None]:
        """Stop the download of a model, or remove it."""
        return _delete("/models/{model}", model=model)

    @Operation
    @staticmethod
    def create_head_scores(
        model: str, request: HeadScoresRequest | Mapping[str, Any], wait: float | None = None
    ) -> Call[HeadScoresDocument]:
        """Submit batteries, which test what every head of a model is for."""
        return _post(HeadScoresDocument, "/models/{model}/head-scores", request, wait, model=model)

    @Operation
    @staticmethod
    def head_scores(model: str, id: str) -> Call[HeadScoresDocument]:
        """Return head scores in their current state."""
        return _get(HeadScoresDocument, "/models/{model}/head-scores/{id}", model=model, id=id)

    @Operation
    @staticmethod
    def delete_head_scores(model: str, id: str) -> Call[None]:
        """Cancel head scores, or delete them once they have ended."""
        return _delete("/models/{model}/head-scores/{id}", model=model, id=id)

    @Operation
    @staticmethod
    def create_analysis(
        request: AnalysisRequest | Mapping[str, Any], wait: float | None = None
    ) -> Call[AnalysisDocument]:
        """Submit an analysis. The same request has the same id, and is computed once."""
        return _post(AnalysisDocument, "/analyses", request, wait)

    @Operation
    @staticmethod
    def create_batch(request: Mapping[str, Any]) -> Call[BatchAccepted]:
        """Submit up to 1,000 analyses: `inputs`, and what they have in common."""
        return _post(BatchAccepted, "/analyses/batch", request)

    @Operation
    @staticmethod
    def analysis(id: str) -> Call[AnalysisDocument]:
        """Return an analysis in its current state."""
        return _get(AnalysisDocument, "/analyses/{id}", id=id)

    @Operation
    @staticmethod
    def delete_analysis(id: str) -> Call[None]:
        """Cancel an analysis, or delete it once it has ended."""
        return _delete("/analyses/{id}", id=id)

    @Operation
    @staticmethod
    def share_analysis(id: str) -> Call[Share]:
        """Make a key with which others can read an analysis."""
        return _post(Share, "/analyses/{id}/share", None, id=id)

    @Operation
    @staticmethod
    def unshare_analysis(id: str) -> Call[None]:
        """Revoke the share key of an analysis."""
        return _delete("/analyses/{id}/share", id=id)

    @Operation
    @staticmethod
    def maps(id: str, lens: str, **part: Unpack[MapSelection]) -> Call[Tensors]:
        """Return `map` [L', H', Q', K'], and for uint8 `scale`, `offset` and `max_error`."""
        return _tensors("/analyses/{id}/maps/{lens}", part, id=id, lens=lens)

    @Operation
    @staticmethod
    def grid(
        id: str,
        lens: str,
        *,
        tile: int | None = None,
        without: Literal["special", "sinks", "both"] | None = None,
    ) -> Call[Tensors]:
        """Return a thumbnail of every head: `tiles` uint8 [L, H, t, t'], with `scale` and `offset` [L, H]."""
        params = {"tile": tile, "without": without}
        return _tensors("/analyses/{id}/grid/{lens}", params, id=id, lens=lens)

    @Operation
    @staticmethod
    def sums(id: str, lens: str, *, layer: int, head: int) -> Call[Tensors]:
        """Return the sums of a map over all keys, `queries` [Q], and over all queries, `keys` [K]."""
        return _tensors("/analyses/{id}/sums/{lens}", {"layer": layer, "head": head}, id=id, lens=lens)

    @Operation
    @staticmethod
    def edges(
        id: str,
        lens: str,
        *,
        layer: int,
        head: int,
        rule: Rule | None = None,
        k: int | None = None,
        mass: float | None = None,
        value: float | None = None,
        limit: int | None = None,
        by: By | None = None,
        groups: str | None = None,
        key_groups: str | None = None,
    ) -> Call[Edges]:
        """Return the connections of a head, strongest first."""
        params = {
            "layer": layer, "head": head, "rule": rule, "k": k, "mass": mass, "value": value, "limit": limit, "by": by,
            "groups": groups, "key_groups": key_groups,
        }  # fmt: skip
        return _get(Edges, "/analyses/{id}/edges/{lens}", params, id=id, lens=lens)

    edges_arrow = _as_arrow(edges, "Return the connections of a head as a pyarrow.Table.")

    @Operation
    @staticmethod
    def measure(
        id: str,
        measure: str,
        *,
        lens: str | None = None,
        layer: Part = None,
        head: Part = None,
        summary: Literal["none", "head"] | None = None,
        unit: str | None = None,
    ) -> Call[MeasureValues]:
        """Return the values of a measure, with `summary="head"` averaged over tokens."""
        params = {"lens": lens, "layer": layer, "head": head, "summary": summary, "unit": unit}
        return _get(MeasureValues, "/analyses/{id}/measures/{measure}", params, id=id, measure=measure)

    measure_arrow = _as_arrow(
        measure, "Return the values of a measure as a pyarrow.Table, with a column for each axis."
    )

    @Operation
    @staticmethod
    def heads(id: str, where: str | None = None, *, lens: str | None = None) -> Call[FoundHeads]:
        """Return the heads of an analysis that satisfy a query, ranked."""
        return _get(FoundHeads, "/analyses/{id}/heads", {"where": where, "lens": lens}, id=id)

    @Operation
    @staticmethod
    def ask(id: str, q: str, *, pinned: Sequence[int] | None = None) -> Call[Asked]:
        """Interpret a sentence about an analysis."""
        numbers = None if pinned is None else " ".join(map(str, pinned))
        return _get(Asked, "/analyses/{id}/ask", {"q": q, "pinned": numbers}, id=id)

    @Operation
    @staticmethod
    def compare(
        id: str,
        other: str,
        *,
        lens: str | None = None,
        other_lens: str | None = None,
        layer: Part = None,
        head: Part = None,
    ) -> Call[ComparedAnalyses]:
        """Compare the maps of two analyses of the same tokens, head by head."""
        params = {"lens": lens, "other_lens": other_lens, "layer": layer, "head": head}
        return _get(ComparedAnalyses, "/analyses/{id}/compare/{other}", params, id=id, other=other)

    @Operation
    @staticmethod
    def aligned_tokens(id: str, other: str) -> Call[AlignedTokens]:
        """Align the tokens of two analyses."""
        return _get(AlignedTokens, "/analyses/{id}/compare/{other}/tokens", id=id, other=other)

    @Operation
    @staticmethod
    def figure(
        id: str, figure: str, *, theme: Literal["light", "dark"] | None = None, **params: Any
    ) -> Call[PlotlyFigure]:
        """Return a figure of an analysis for plotly; `params` are its own parameters."""
        return _get(PlotlyFigure, "/analyses/{id}/figures/{figure}", {"theme": theme, **params}, id=id, figure=figure)

    @Operation
    @staticmethod
    def create_effect(
        id: str, request: EffectRequest | Mapping[str, Any], wait: float | None = None
    ) -> Call[EffectDocument]:
        """Submit what heads do to a prediction of an analysis."""
        return _post(EffectDocument, "/analyses/{id}/effects", request, wait, id=id)

    @Operation
    @staticmethod
    def effect(id: str, effect: str) -> Call[EffectDocument]:
        """Return an effect in its current state."""
        return _get(EffectDocument, "/analyses/{id}/effects/{effect}", id=id, effect=effect)

    @Operation
    @staticmethod
    def delete_effect(id: str, effect: str) -> Call[None]:
        """Cancel an effect, or delete it once it has ended."""
        return _delete("/analyses/{id}/effects/{effect}", id=id, effect=effect)

    @Operation
    @staticmethod
    def effect_maps(id: str, effect: str, **part: Unpack[MapSelection]) -> Call[Tensors]:
        """Return `map` [L', H', Q', K'] of an effect with a map for every head."""
        return _tensors("/analyses/{id}/effects/{effect}/maps", part, id=id, effect=effect)

    @Operation
    @staticmethod
    def create_dataset(name: str, data: bytes, *, format: str | None = None) -> Call[DatasetDocument]:
        """Upload a data set, or a Jacobian lens for effects; the suffix of its name determines the format."""
        params = {"name": name, "format": format}
        return Call("POST", "/datasets", reading(DatasetDocument), params=params, body=data)

    @Operation
    @staticmethod
    def dataset(
        id: str,
        *,
        format: str | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> Call[DatasetDocument]:
        """Return how a data set is read, and its first rows; `columns` are names by role."""
        params = {"format": format, "columns": None if columns is None else json.dumps(dict(columns))}
        return _get(DatasetDocument, "/datasets/{id}", params, id=id)

    @Operation
    @staticmethod
    def delete_dataset(id: str) -> Call[None]:
        """Delete an uploaded data set."""
        return _delete("/datasets/{id}", id=id)

    @Operation
    @staticmethod
    def create_study(request: StudyRequest | Mapping[str, Any], wait: float | None = None) -> Call[StudyDocument]:
        """Submit a study of a data set."""
        return _post(StudyDocument, "/studies", request, wait)

    @Operation
    @staticmethod
    def study(id: str) -> Call[StudyDocument]:
        """Return a study in its current state."""
        return _get(StudyDocument, "/studies/{id}", id=id)

    @Operation
    @staticmethod
    def delete_study(id: str) -> Call[None]:
        """Cancel a study, or delete it once it has ended."""
        return _delete("/studies/{id}", id=id)

    @Operation
    @staticmethod
    def share_study(id: str) -> Call[Share]:
        """Make a key with which others can read a study."""
        return _post(Share, "/studies/{id}/share", None, id=id)

    @Operation
    @staticmethod
    def unshare_study(id: str) -> Call[None]:
        """Revoke the share key of a study."""
        return _delete("/studies/{id}/share", id=id)

    @Operation
    @staticmethod
    def study_heads(
        id: str, where: str | None = None, *, lens: str | None = None, variant: int | None = None
    ) -> Call[FoundHeads]:
        """Return the heads that satisfy a query about their means over inputs, ranked."""
        return _get(FoundHeads, "/studies/{id}/heads", {"where": where, "lens": lens, "variant": variant}, id=id)

    @Operation
    @staticmethod
    def study_head(
        id: str, layer: int, head: int, *, lens: str | None = None, variant: int | None = None
    ) -> Call[StudyHead]:
        """Return the numbers of one head over all inputs."""
        path, params = "/studies/{id}/heads/{layer}/{head}", {"lens": lens, "variant": variant}
        return _get(StudyHead, path, params, id=id, layer=layer, head=head)

    @Operation
    @staticmethod
    def examples(id: str, row: Sequence[int] | None = None) -> Call[Page[Example]]:
        """Return inputs of a study, by row, or some drawn at random."""
        return _get(Page[Example], "/studies/{id}/examples", {"row": row}, id=id)

    @Operation
    @staticmethod
    def study_figure(
        id: str, figure: str, *, theme: Literal["light", "dark"] | None = None, **params: Any
    ) -> Call[PlotlyFigure]:
        """Return a figure of a study for plotly; `params` are its own parameters."""
        return _get(PlotlyFigure, "/studies/{id}/figures/{figure}", {"theme": theme, **params}, id=id, figure=figure)

    @Operation
    @staticmethod
    def table(id: str, table: str) -> Call[dict[str, Any]]:
        """Return a table of a study: `columns` and `rows`."""
        return Call("GET", "/studies/{id}/tables/{table}", json.loads, {"id": id, "table": table})

    table_arrow = _as_arrow(table, "Return a table of a study as a pyarrow.Table.")
