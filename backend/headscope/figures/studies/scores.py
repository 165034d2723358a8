"""How often each lens puts its largest entry where the labels of the inputs say that a head should look."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.csv_text import Cell
from ...core.right_key import SCORES
from ...errors import NotReady
from ...lenses import LENSES
from ...studies.results.summary import Means, StudySummary, mean_over, pick_column
from ...studies.scores import BASELINES
from ..figure import Drawing
from ..theme import Palette, axis, format_number, layout, to_json, value_axis
from .figure import INTERVAL_TIP, StudyFigure, VariantParams, describe_interval

NAMES = {name: name.replace("-", " ") for name in BASELINES}


@dataclass(frozen=True)
class LensScore:
    """The scores of a lens: its best head, or layer, on one half of the inputs, scored on the other half, and the mean of all its heads on all inputs."""

    lens: str
    layer: int | None
    head: int | None
    accuracy: Means
    reciprocal_rank: Means
    every: Means

    @property
    def title(self) -> str:
        """The lens and its head, or the baseline."""
        if self.lens in NAMES:
            return NAMES[self.lens]
        head = f"layer {self.layer}" if self.head is None else f"{self.layer}.{self.head}"
        return f"{LENSES[self.lens].title}, {head}"


def lens_scores(study: StudySummary, variant: int) -> list[LensScore]:
    """Return the scores of every lens and baseline. Raises NotReady without inputs in both halves that mark a query and a key."""
    described = study.variant(variant)
    found = []
    for lens in study.lenses_of(SCORES.name):
        means = study.stat(SCORES.name, lens, variant).means  # [L, H, C]
        chosen, held_out = (means.map(pick_column(SCORES.name, name)) for name in ("selection", "held_out_accuracy"))
        if not np.isfinite(chosen.mean).any() or not np.isfinite(held_out.mean).any():
            raise NotReady(
                "Too few inputs mark a query and a key that it sees. Label the words of the inputs, and use more inputs."
            )
        i, j = np.unravel_index(np.nanargmax(chosen.mean), chosen.mean.shape)
        named = lens not in NAMES
        one_per_layer = chosen.mean.shape[1] < len(described["heads"])
        rank = means.map(pick_column(SCORES.name, "held_out_reciprocal_rank"))
        found.append(
            LensScore(
                lens,
                described["layers"][int(i)] if named else None,
                described["heads"][int(j)] if named and not one_per_layer else None,
                held_out.map(_pick_head(int(i), int(j))),
                rank.map(_pick_head(int(i), int(j))),
                means.map(pick_column(SCORES.name, "accuracy")).map(_mean_of_heads),
            )
        )
    return found


def _pick_head(i: int, j: int) -> Callable[[Array], Array]:
    return lambda values: np.asarray(values[..., i, j])


def _mean_of_heads(values: Array) -> Array:
    return mean_over(mean_over(values, -1), -1)


def draw_scores(study: StudySummary, params: VariantParams, palette: Palette) -> Drawing:
    """Draw a dot per lens and baseline, with its interval. Raises NotReady for a study without scores."""
    found = lens_scores(study, params.variant)
    base = next(one for one in found if one.lens == "weights").accuracy
    rows = [_row(one, base) for one in found]
    traces = [_dots(palette, found, rows, lenses=True), _dots(palette, found, rows, lenses=False)]
    names = [one.title for one in found]
    down = {**axis(palette, ""), "categoryorder": "array", "categoryarray": names[::-1], "ticks": "", "showline": False}
    across = value_axis(palette, "accuracy of the best head", range=[-0.02, 1.02])
    words = [f"{one.title}: {format_number(float(one.accuracy.mean))}" for one in found]
    return Drawing(
        traces,
        layout(palette, across, down),
        f"Share of queries whose largest entry is on the right key, of the head that is best on the other half of the inputs. {'; '.join(words)}.",
        (
            *("lens", "layer", "head"),
            *("accuracy", "low", "high"),
            *("reciprocal_rank", "reciprocal_rank_low", "reciprocal_rank_high"),
            *("against_weights", "against_weights_low", "against_weights_high"),
            *("mean_accuracy", "mean_accuracy_low", "mean_accuracy_high"),
        ),
        rows,
    )


def _row(one: LensScore, base: Means) -> list[Cell]:
    against = Means(one.accuracy.mean - base.mean, one.accuracy.replicates - base.replicates)
    numbers = [(each.mean, *each.interval()) for each in (one.accuracy, one.reciprocal_rank, against, one.every)]
    return [one.lens, one.layer, one.head, *to_json(np.array(numbers), 10)]


def _dots(palette: Palette, found: list[LensScore], rows: list[list[Any]], *, lenses: bool) -> dict[str, Any]:
    """Draw the lenses, or the baselines."""
    shown = [(one, row) for one, row in zip(found, rows, strict=True) if (one.lens not in NAMES) is lenses]
    values = [row[3] for _, row in shown]
    colour = palette.more if lenses else palette.muted
    ends = [[None if end is None else abs(end - row[3]) for _, row in shown for end in [row[at]]] for at in (5, 4)]
    return {
        "type": "scatter",
        "mode": "markers",
        "x": values,
        "y": [one.title for one, _ in shown],
        "error_x": {"array": ends[0], "arrayminus": ends[1], "color": colour, "thickness": 1, "width": 0},
        "marker": {"color": colour, "size": 8},
        "customdata": [
            [one.layer, one.head, describe_interval(*map(float, one.accuracy.interval())), *to_json(row[6], 4)]
            for one, row in shown
        ],
        "hovertemplate": f"%{{y}}<br>accuracy %{{x:.3f}}{INTERVAL_TIP}<br>reciprocal rank %{{customdata[3]:.3f}}<extra></extra>",
        "showlegend": False,
    }


SCORES_FIGURE = StudyFigure(
    name="scores",
    title="Scores of the lenses",
    doc="How often each lens puts the largest entry of a row on the key that the labels of the data set mark as right. The best head of each lens is chosen on one half of "
    "the inputs and scored on the other.",
    not_="Not the quality of a lens, which answers its own question, and not what the model uses: the labels say where a person would look.",
    citation="Clark et al. 2019, What Does BERT Look At?, sec. 4, which scores the weights of single heads in this way",
    params=VariantParams,
    range=(0.0, 1.0),
    of_one=True,
    draw=draw_scores,
)
