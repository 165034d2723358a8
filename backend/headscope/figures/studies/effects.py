"""What heads do to the predictions of a data set: for each method a grid of mean effects, and one of the inputs where the head raises the target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...core.arrays import Array, largest_places
from ...core.csv_text import Cell
from ...effects.quantities import EFFECT_COLUMNS, JUDGES
from ...errors import NotReady
from ...studies.results.summary import StudySummary, pick_column
from ..figure import Drawing
from ..theme import Palette, format_number, rows_by_head
from .figure import StudyFigure, VariantParams
from .panels import Panel, arrange_panels, color_scale, head_columns, head_grid, layer_rows

# Heads with the largest effects that the sentence names.
NAMED = 3
SHARE = "target raised"
# Numbers of layers along the axes of all grids below each other.
LABELS = 14


def draw_effects(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Draw a row of two grids of heads per method. Raises NotReady for a study without effects."""
    methods = [name for name in JUDGES if name in study.document["measures"]]
    if not methods:
        raise NotReady("This figure needs effects. Run the study again with a method in effects.")
    variant = study.variant(params.variant)
    layers, heads = variant["layers"], variant["heads"]
    panels, rows, words = list[Panel](), list[list[Cell]](), list[str]()
    for method in methods:
        stat = study.stat(method, "weights", params.variant)
        effect, share = (stat.means.map(pick_column(method, column)) for column in EFFECT_COLUMNS)
        title, last = JUDGES[method].title, method == methods[-1]
        across = head_columns(palette, heads, "head" if last else "", 6)
        for what, found, bounds in (("logits", effect, _symmetric(effect.mean)), (SHARE, share, (0.0, 1.0))):
            # Both scales have a middle that says nothing: no effect, and half of the inputs.
            diverging = {"colorscale": color_scale(palette, -1.0)}
            cells = head_grid(palette, found, layers, heads, what=what, bounds=bounds) | diverging
            down = layer_rows(palette, layers, "layer" if what == "logits" else "", max(2, LABELS // len(methods)))
            panels.append(Panel(f"{title}: {what}", [cells], across, down, has_color_bar=True))
        low, high = stat.interval()
        rows += [
            [method, *row] for row in rows_by_head(layers, heads, effect.mean, low[..., 0], high[..., 0], share.mean)
        ]
        words.append(f"{title}: {_largest(effect.mean, share.mean, layers, heads)}")
    traces, arranged = arrange_panels(palette, panels, 2)
    columns = ("method", "layer", "head", "effect", "low", "high", "raises")
    return Drawing(
        traces, arranged, f"Heads with the largest mean effects, in logits. {'; '.join(words)}.", columns, rows
    )


def _symmetric(values: Array) -> tuple[float, float]:
    """Return bounds about 0 within which all values are."""
    largest = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    return -largest, largest


def _largest(effects: Array, shares: Array, layers: Sequence[int], heads: Sequence[int]) -> str:
    """Name the heads with the largest mean effects [L, H], whatever their sign."""
    return ", ".join(
        f"{layers[i]}.{heads[j]} {format_number(float(effects[i, j]))} "
        f"(raises it in {format_number(100 * float(shares[i, j]))} % of inputs)"
        for i, j in largest_places(np.abs(effects), NAMED)
    )


EFFECTS = StudyFigure(
    name="effects",
    title="Effects of heads",
    doc="What each head does to a prediction, over all inputs: the mean effect by each method, and the share of inputs in which the head raises the target.",
    not_="Not what a head does in one input: effects of both signs cancel in the mean, which the share shows. Not additive, except for contributions.",
    citation="Each method's own; Wang et al. 2023, Interpretability in the Wild, for means over a data set",
    params=VariantParams,
    of_one=True,
    draw=draw_effects,
)
