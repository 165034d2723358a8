"""Means over inputs with their bootstrap replicates, and the six metrics per head that HeadVis defines."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...measures import MEASURES
from .summary import Stat, StudySummary

Array = NDArray[Any]
LEVEL = 0.95
# Metric -> its title, its measure, and the column of the measure (None if it has none).
METRICS: dict[str, tuple[str, str, str | None]] = {
    "self_attention_score": ("Self-attention", "head_roles", "self"),
    "prev_token_score": ("Previous token", "head_roles", "previous_matched"),
    "pattern_entropy": ("Entropy (nats)", "entropy", None),
    "qk_distance": ("Distance (tokens)", "qk_distance", "mean"),
    "qk_distance_variance": ("Variance of the distance", "qk_distance", "square"),
    "induction_score": ("Induction", "head_roles", "induction_matched"),
}


@dataclass(frozen=True)
class Means:
    """Means over inputs [...], and the same means in every bootstrap replicate [B, ...]."""

    mean: Array
    replicates: Array

    def map(self, reduce: Callable[[Array], Array]) -> Means:
        """Apply a function to the means and to every replicate; `reduce` may only touch the last axes."""
        return Means(reduce(self.mean), reduce(self.replicates))

    def interval(self) -> tuple[Array, Array]:
        """Return the bounds of the 95 % percentile intervals, each shaped like `mean`; NaN where nothing is defined."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # entries without any value
            low, high = np.nanquantile(self.replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
        return low, high


def means(study: StudySummary, measure: str, lens: str = "weights", variant: int = 0) -> Means:
    """Return means over inputs, each input counted once, with their bootstrap. Raises what StudySummary.stat raises."""
    return means_of(study.stat(measure, lens, variant))


def means_of(stat: Stat) -> Means:
    """Return the means over inputs of a statistic, with their bootstrap."""
    return Means(stat.input_mean.astype(float), divide(stat.boot_sum, stat.boot_weight))


def metric(study: StudySummary, name: str, variant: int) -> Means:
    """Return one of METRICS, [L, H]. The variance of the distance is over all queries of all inputs."""
    _, measure, column = METRICS[name]
    found = means(study, measure, "weights", variant)
    if column is None:
        return found
    if name != "qk_distance_variance":
        return found.map(pick_column(measure, column))
    mean, square = pick_column(measure, "mean"), pick_column(measure, "square")
    return found.map(lambda values: np.maximum(square(values) - mean(values) ** 2, 0))


def divide(parts: Array, whole: Array) -> Array:
    """Return parts / whole; NaN where the whole is 0."""
    above = np.asarray(parts, float)
    below = np.broadcast_to(np.asarray(whole, float), above.shape)
    found: Array = np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)
    return found


def mean_over(values: Array, axis: int) -> Array:
    """Return the mean of the defined values along an axis; NaN where there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found: Array = np.nanmean(values, axis=axis)
    return found


def column_index(measure: str, column: str) -> int:
    """Return the index of a named column on axis C."""
    return MEASURES[measure].columns.index(column)


def pick_column(measure: str, column: str) -> Callable[[Array], Array]:
    """Return a function that picks one column: [..., C] -> [...]."""
    index = column_index(measure, column)

    def pick(values: Array) -> Array:
        picked: Array = values[..., index]
        return picked

    return pick
