"""Figures of studies: their declarations and parameters, and the names of variants and lenses in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from ...core.declarations import Declaration, Params
from ...lenses import LENSES
from ...studies.figure_needs import FIGURE_NEEDS
from ...studies.results.summary import Means, StudySummary
from ..figure import Drawing, LensParams
from ..theme import PALETTES, Palette, Theme, format_number

# The second line of a tooltip, if the third entry of customdata is what `describe_interval` returns.
INTERVAL_TIP = "%{customdata[2]}"
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
    """Return names that distinguish the variants: their models, or of one model the mechanisms, of one mechanism with the parameters that differ."""
    models = [str(variant["model"]) for variant in study.variants]
    if len(set(models)) == len(models):
        return models
    return _mechanism_names([variant["mechanism"] for variant in study.variants])


def of_variant(traces: Iterable[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Return traces that say which variant they are about: the page opens its heads when a mark is clicked."""
    return [{**trace, "meta": {"variant": number}} for trace in traces]


def _mechanism_names(chosen: list[dict[str, Any]]) -> list[str]:
    """Return the names of mechanisms; if they are one mechanism, with the parameters that differ."""
    names = [str(mechanism["name"]) for mechanism in chosen]
    if len(set(names)) > 1:
        return names
    differ = [key for key in chosen[0] if any(mechanism.get(key) != chosen[0][key] for mechanism in chosen)]
    return [" ".join([names[0], *(f"{key}={mechanism.get(key)}" for key in differ)]) for mechanism in chosen]


def tips_by_head(layers: Sequence[Any], heads: Sequence[Any], found: Means) -> list[list[Any]]:
    """Return one row per head, [L, H], for INTERVAL_TIP: its layer, its number, and the interval of its mean."""
    low, high = found.interval()
    return [
        [layer, head, describe_interval(low[i, j], high[i, j])]
        for i, layer in enumerate(layers)
        for j, head in enumerate(heads)
    ]


def describe_interval(low: float, high: float, *, share: bool = False) -> str:
    """Return a line of a tooltip with an interval, as a number or a `share` in percent; nothing if there is no interval, which plotly would write as 0 to 0."""
    if not np.isfinite([low, high]).all():
        return ""
    ends = (f"{100 * end:.1f} %" if share else format_number(float(end)) for end in (low, high))
    return f"<br>95 % interval {' to '.join(ends)}"
