"""What a figure of a study says of itself, what the study must hold for it, and how its means and intervals are read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from ...core.declarations import Declaration
from ...lenses import LENSES
from ...measures import MEASURES
from ...studies.results.summary import Stat, StudySummary
from ..figure import Drawing
from ..paper import PALETTES, Palette, Theme

Array = NDArray[Any]
LEVEL = 0.95
# What follows a mean when it is pointed at, where the interval is the third and fourth of customdata.
BOUNDS = "<br>95 % interval %{customdata[2]:.3g} to %{customdata[3]:.3g}"


class VariantParams(BaseModel):
    """Which of the two variants of a study."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    variant: int = Field(default=0, ge=0, le=1, description="0 is the model of the study, 1 what it is compared with.")


class EitherVariantParams(BaseModel):
    """Which of the two variants of a study, or both."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    variant: int | None = Field(
        default=None,
        ge=0,
        le=1,
        description="0 is the model of the study, 1 what it is compared with; without it both are drawn.",
    )


class MapParams(VariantParams):
    """Which variant, and which map was measured."""

    lens: str = Field(default="weights", max_length=100, description="The lens whose maps were measured.")


@dataclass(frozen=True, kw_only=True)
class StudyFigure(Declaration):
    """A figure of a study: (its aggregates, parameters, colours) -> drawing. `measures` are computed and `lenses` read for it.

    `asks` says what a study must be: of any texts, of two variants, of texts with entity labels, or read through all of `lenses`. A figure `of_one` variant
    names it where there are two. `draw` raises NotReady, Unsupported or Unknown where the study lacks what is asked for.
    """

    draw: Callable[[StudySummary, Any, Palette], Drawing]
    measures: tuple[str, ...] = ()
    lenses: tuple[str, ...] = ("weights",)
    asks: tuple[Literal["against", "labels", "lenses"], ...] = ()
    of_one: bool = False

    def drawn(self, study: StudySummary, params: BaseModel, theme: Theme = "light") -> Drawing:
        """The figure of a study, with its own parameters. Raises what `draw` raises."""
        palette = PALETTES[theme]
        drawing = self.draw(study, params, palette)
        if len(study.variants) == 1 or not self.of_one:
            return drawing
        name = titles(study)[getattr(params, "variant", 0)]
        return replace(drawing, layout=_signed(drawing.layout, name, palette), sentence=f"{name}: {drawing.sentence}")

    def describe(self) -> dict[str, Any]:
        return {
            **Declaration.describe(self),
            "measures": list(self.measures),
            "lenses": list(self.lenses),
            "asks": list(self.asks),
        }


def _signed(layout: dict[str, Any], name: str, palette: Palette) -> dict[str, Any]:
    """The layout with the name of the variant that is drawn in its lower right corner."""
    corner = {"x": 1, "xref": "container", "xanchor": "right", "y": 0, "yref": "container", "yanchor": "bottom"}
    font = {"size": 12, "color": palette.muted}
    return {**layout, "title": {"text": name, "font": font, "pad": {"r": 12, "b": 6}, "automargin": False, **corner}}


def maps_of_heads(lenses: Iterable[str]) -> list[str]:
    """Those lenses that give every head a map in the unit of weights, so that they can stand side by side."""
    return [name for name in lenses if LENSES[name].of == "heads" and LENSES[name].unit == LENSES["weights"].unit]


def titles(study: StudySummary) -> list[str]:
    """What tells the variants apart: their models, or their mechanisms where the model is the same."""
    variants = study.variants
    same = len({each["model"] for each in variants}) == 1
    return [_mechanism(each) if same and len(variants) > 1 else str(each["model"]) for each in variants]


def _mechanism(one: dict[str, Any]) -> str:
    chosen = one["mechanism"]
    return str(chosen["name"] if isinstance(chosen, dict) else chosen)


@dataclass(frozen=True)
class Means:
    """Means over inputs of what was measured, [...]; `replicates` [B, ...] are the same means of the bootstrap's samples."""

    mean: Array
    replicates: Array

    def of(self, reduce: Callable[[Array], Array]) -> Means:
        """Means of something computed from them; `reduce` may only touch the last axes."""
        return Means(reduce(self.mean), reduce(self.replicates))

    def interval(self) -> tuple[Array, Array]:
        """The bounds of the 95 % percentile intervals, each of the shape of `mean`; NaN where there is nothing to draw from."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # entries without any value
            low, high = np.nanquantile(self.replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return low, high


def means(study: StudySummary, measure: str, lens: str = "weights", number: int = 0) -> Means:
    """Means over inputs, each input counted once, and their bootstrap. Raises what Summary.stat raises."""
    return resampled(study.stat(measure, lens, number))


def resampled(found: Stat) -> Means:
    """Means over inputs with those of the bootstrap's samples."""
    return Means(found.input_mean.astype(float), shares(found.boot_sum, found.boot_weight))


def shares(parts: Array, whole: Array) -> Array:
    """parts / whole, NaN where the whole is 0."""
    above = np.asarray(parts, float)
    below = np.broadcast_to(np.asarray(whole, float), above.shape)
    found: Array = np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)
    return found


def mean_of(values: Array, axis: int) -> Array:
    """Mean along an axis of what is defined; NaN where nothing is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found: Array = np.nanmean(values, axis=axis)
    return found


def picked(at: int) -> Callable[[Array], Array]:
    """Takes one column: [..., C] -> [...]."""

    def pick(values: Array) -> Array:
        chosen: Array = values[..., at]
        return chosen

    return pick


def column(measure: str, name: str) -> int:
    """The place of a named column on axis C."""
    return MEASURES[measure].columns.index(name)
