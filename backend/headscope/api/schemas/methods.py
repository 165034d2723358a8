"""Schemas of methods: mechanisms, lenses, measures and figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ...core.declarations import Declaration


class _Described(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str
    title: str
    doc: str
    not_: str = Field(alias="not")
    citation: str


class BatterySchema(_Described):
    """A battery: what it finds (`doc`), what it does not show (`not`), and its source."""


class DeclarationSchema(_Described):
    """A mechanism, lens or measure: what it is (`doc`), what it is not (`not`), the JSON Schema of its parameters, unit, range and source."""

    params: Annotated[dict[str, Any], Field(description="JSON Schema of the parameters.")]
    unit: str
    range: tuple[float | None, float | None]
    needs: list[str]


class LensSchema(DeclarationSchema):
    """A lens. Maps of a `signed` lens may have negative entries."""

    signed: bool
    shape: str


class MeasureSchema(DeclarationSchema):
    """A measure. `lenses` can be combined with it; `reads` are the lenses it requires; `columns` names the entries of axis C.

    `units` has the unit of each column, `classes` the meaning of the numbers in a column of classes.
    """

    shape: str
    lenses: list[str]
    reads: list[str]
    columns: list[str]
    units: dict[str, str]
    classes: list[str]


class NeededTextsSchema(BaseModel):
    """The parameter that decides whether a field of the request is needed, and the values with which it is."""

    parameter: str
    values: list[str]


class EffectMethodSchema(DeclarationSchema):
    """A method for effects. `shape` is L H, or L H Q K if it also gives a map for every head.

    It judges heads by a prediction, or by the score of a cell (`of`). `texts` are the fields of a request that hold the other texts it needs: `against`, `reference`.
    """

    shape: str
    of: Literal["prediction", "score"]
    texts: dict[str, NeededTextsSchema]


class FigureSchema(DeclarationSchema):
    """A figure of an analysis or of a study.

    `measures` must have been computed. `lenses`: for figures of an analysis, the lenses to choose from (empty: no choice); for figures of a study, the lenses
    it must be read through. `asks` is what a study needs: two variants (`against`), entity labels, all of these lenses,
    effects of heads, or labels that mark queries and keys (`truth`).
    """

    of: Literal["analysis", "study"]
    measures: list[str]
    lenses: list[str]
    asks: tuple[str, ...] = ()


class PlotlyFigure(BaseModel):
    """A plotly figure. `layout.meta.sentence` describes it in words."""

    data: list[dict[str, Any]]
    layout: dict[str, Any]


Schema = TypeVar("Schema", bound=DeclarationSchema)


def describe(methods: Mapping[str, Declaration], schema: type[Schema], **more: str) -> list[Schema]:
    """Describe every method by its schema, with `more` fields."""
    return [schema.model_validate({**method.describe(), **more}) for method in methods.values()]
