"""Figures of studies: their declarations and parameters, and the names of variants and lenses in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import BaseModel, Field

from ...core.declarations import Declaration, Params
from ...lenses import LENSES
from ...studies.figure_needs import FIGURE_NEEDS
from ...studies.results.summary import StudySummary
from ..figure import Drawing, LensParams
from ..theme import PALETTES, Palette, Theme

# The second line of a tooltip, if the interval is the third and fourth entry of customdata.
INTERVAL_TIP = "<br>95 % interval %{customdata[2]:.3~r} to %{customdata[3]:.3~r}"
# Names of special tokens in titles and legends.
CLS, SEP = "[CLS] or first", "[SEP]"


class VariantParams(Params):
    """Which of the two variants of a study."""

    variant: int = Field(
        default=0, ge=0, le=1, description="0 is the model of the study, 1 the one it is compared with."
    )


class EitherVariantParams(Params):
    """Which of the two variants of a study, or both."""

    variant: int | None = Field(
        default=None,
        ge=0,
        le=1,
        description="0 is the model of the study, 1 the one it is compared with; by default both are drawn.",
    )


class MapParams(LensParams, VariantParams):
    """Which variant, and the lens of the measure."""


@dataclass(frozen=True, kw_only=True)
class StudyFigure(Declaration):
    """A figure of a study. `draw` maps its summary, parameters and palette to a drawing. What it needs is in FIGURE_NEEDS under its name.

    A figure `of_one` variant names it if the study has two. `draw` raises NotReady, Unsupported or Unknown if the study lacks what the figure needs.
    """

    draw: Callable[[StudySummary, Any, Palette], Drawing]
    of_one: bool = False

    def build(self, study: StudySummary, params: BaseModel, theme: Theme = "light") -> Drawing:
        """Draw the figure in a theme. Raises what `draw` raises."""
        palette = PALETTES[theme]
        drawing = self.draw(study, params, palette)
        if len(study.variants) == 1 or not self.of_one:
            return drawing
        name = variant_names(study)[getattr(params, "variant", 0)]
        return replace(
            drawing, layout=_add_corner_name(drawing.layout, name, palette), sentence=f"{name}: {drawing.sentence}"
        )

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), **asdict(FIGURE_NEEDS[self.name])}


def _add_corner_name(layout: dict[str, Any], name: str, palette: Palette) -> dict[str, Any]:
    """Return the layout with the name of the variant in its lower right corner."""
    corner = {"x": 1, "xref": "container", "xanchor": "right", "y": 0, "yref": "container", "yanchor": "bottom"}
    font = {"size": 12, "color": palette.muted}
    return {**layout, "title": {"text": name, "font": font, "pad": {"r": 12, "b": 6}, "automargin": False, **corner}}


def comparable_lenses(lenses: Iterable[str]) -> list[str]:
    """Return the lenses that give each head a map in the unit of weights, so that they can be shown side by side."""
    return [name for name in lenses if LENSES[name].of == "heads" and LENSES[name].unit == LENSES["weights"].unit]


def variant_names(study: StudySummary) -> list[str]:
    """Return names that distinguish the variants: their models; of one model their mechanisms, and of one mechanism also the parameters that differ."""
    models = [str(variant["model"]) for variant in study.variants]
    if len(set(models)) == len(models):
        return models
    chosen = [variant["mechanism"] for variant in study.variants]
    if len({_mechanism(one) for one in chosen}) == len(chosen):
        return [_mechanism(one) for one in chosen]
    differ = [name for name in chosen[0] if len({str(one.get(name)) for one in chosen}) > 1]
    return [" ".join([_mechanism(one), *(f"{name}={one.get(name)}" for name in differ)]) for one in chosen]


def _mechanism(chosen: Any) -> str:
    return str(chosen["name"] if isinstance(chosen, dict) else chosen)
