"""Figures of analyses: their declarations, their input, and their output, which is plotly data, a table and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, Field

from ..core.arrays import Array
from ..core.csv_text import Cell, csv_text
from ..core.declarations import Declaration, Params
from ..errors import NotReady, Unknown, Unsupported
from ..measures import MEASURES
from .theme import PALETTES, Palette, Theme


class FigureData(Protocol):
    """What figures read of an analysis: its document, and its measures by flat name (measure/entropy/weights)."""

    @property
    def document(self) -> dict[str, Any]:
        """The document, as in the store and in saved files."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Arrays by name, among them measures."""


class LensParams(Params):
    """The lens of the measure."""

    lens: str = Field(default="weights", max_length=100, description="The lens whose maps were measured.")


@dataclass(frozen=True)
class Drawing:
    """A drawn figure. `traces` and `layout` are plotly's; `columns` and `rows` are its numbers as a table; `sentence` summarises them."""

    traces: Sequence[dict[str, Any]]
    layout: dict[str, Any]
    sentence: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def figure(self) -> dict[str, Any]:
        """Return the plotly figure as JSON, with the sentence in layout.meta."""
        return {"data": list(self.traces), "layout": {**self.layout, "meta": {"sentence": self.sentence}}}

    def csv(self) -> str:
        """Return the table as CSV; undefined cells are empty."""
        return csv_text([self.columns, *self.rows])


@dataclass(frozen=True, kw_only=True)
class Figure(Declaration):
    """A figure of one analysis. `draw` maps data, parameters and palette to a drawing, from measures that must have been computed.

    `draw` raises NotReady, Unsupported or Unknown if the analysis lacks what the figure needs.
    """

    draw: Callable[[FigureData, Any, Palette], Drawing]
    measures: tuple[str, ...]

    def build(self, data: FigureData, params: BaseModel, theme: Theme = "light") -> Drawing:
        """Draw the figure in a theme. Raises what `draw` raises."""
        return self.draw(data, params, PALETTES[theme])

    @property
    def lenses(self) -> tuple[str, ...]:
        """The lenses to choose from, if the figure has a choice."""
        return MEASURES[self.measures[0]].lenses if "lens" in self.params.model_fields else ()

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), "measures": list(self.measures), "lenses": list(self.lenses)}


def lenses_of(data: FigureData, measure: str) -> list[str]:
    """Return the lenses that a measure was computed for. Raises NotReady if it was not computed."""
    computed = data.document["measures"]
    if measure not in computed:
        raise NotReady(
            f"This figure needs the measure {measure}, which this analysis lacks. Send the request again with it."
        )
    return list(computed[measure])


def values(data: FigureData, measure: str, lens: str = "weights") -> Array:
    """Return a measure in float64. Raises NotReady if it was not computed, Unsupported if it was not computed for the lens."""
    known = lenses_of(data, measure)
    if lens not in known:
        raise Unsupported(f"{measure} was computed for: {', '.join(known)}.", pointer="/lens")
    measured: Array = data.arrays[f"measure/{measure}/{lens}"].astype(float)
    return measured


def index_of_layer(layers: Sequence[int], layer: int) -> int:
    """Return the index of a layer on axis L. Raises Unknown."""
    if layer not in layers:
        raise Unknown("layer", f"Available layers: {layers[0]} to {layers[-1]}.", pointer="/layer")
    return layers.index(layer)
