"""What a figure says of itself, what it reads, and what it gives: a plotly figure as plain data, its numbers as a table, and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ..core.csv_text import Cell, csv_text
from ..core.declarations import Declaration
from ..errors import NotReady, Unsupported
from ..measures import MEASURES
from .paper import PALETTES, Palette, Theme

Array = NDArray[Any]


class Numbers(Protocol):
    """What figures read of an analysis: what is said about it in JSON, and its measures by flat name (measure/entropy/weights)."""

    @property
    def document(self) -> dict[str, Any]:
        """As the store and saved files have it."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Measures among them."""


@dataclass(frozen=True)
class Held:
    """Numbers in memory."""

    document: dict[str, Any]
    arrays: Mapping[str, Array]


class LensParams(BaseModel):
    """Which map was measured."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    lens: str = Field(default="weights", max_length=100, description="The lens whose maps were measured.")


@dataclass(frozen=True)
class Drawing:
    """A drawn figure. `traces` and `layout` are plotly's; `rows` are the numbers in it, under `columns`; `sentence` says them in words."""

    traces: Sequence[dict[str, Any]]
    layout: dict[str, Any]
    sentence: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def figure(self) -> dict[str, Any]:
        """The plotly figure as JSON takes it; the sentence stands in layout.meta."""
        return {"data": list(self.traces), "layout": {**self.layout, "meta": {"sentence": self.sentence}}}

    def csv(self) -> str:
        """The numbers as comma-separated values; what is undefined is empty."""
        return csv_text([self.columns, *self.rows])


@dataclass(frozen=True, kw_only=True)
class Figure(Declaration):
    """A figure of one analysis: (its numbers, parameters, colours) -> drawing. `measures` must have been computed for it.

    `draw` raises NotReady, Unsupported or Unknown where the analysis lacks what is asked for.
    """

    draw: Callable[[Numbers, Any, Palette], Drawing]
    measures: tuple[str, ...]

    def drawn(self, numbers: Numbers, params: BaseModel, theme: Theme = "light") -> Drawing:
        """The figure of an analysis, with its own parameters. Raises what `draw` raises."""
        return self.draw(numbers, params, PALETTES[theme])

    @property
    def lenses(self) -> tuple[str, ...]:
        """The lenses it can be drawn for, where that is a choice."""
        return MEASURES[self.measures[0]].lenses if "lens" in self.params.model_fields else ()

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), "measures": list(self.measures), "lenses": list(self.lenses)}


def lenses_of(numbers: Numbers, measure: str) -> list[str]:
    """The lenses that a measure was computed for. Raises NotReady if it was not computed at all."""
    computed = numbers.document["measures"]
    if measure not in computed:
        raise NotReady(
            f"This figure is drawn from {measure}, which this analysis lacks. Send its request again with it."
        )
    return list(computed[measure])


def values(numbers: Numbers, measure: str, lens: str = "weights") -> Array:
    """What was measured, in float64. Raises NotReady for a measure that was not computed, Unsupported for a lens that it was not computed for."""
    known = lenses_of(numbers, measure)
    if lens not in known:
        raise Unsupported(f"{measure} was computed for: {', '.join(known)}.", pointer="/lens")
    found: Array = numbers.arrays[f"measure/{measure}/{lens}"].astype(float)
    return found


def column(measure: str, name: str) -> int:
    """The place of a named column on axis C."""
    return MEASURES[measure].columns.index(name)
