"""Means over inputs, columns of measures, and the six metrics per head that HeadVis defines."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from ...core.arrays import Array
from ...measures import MEASURES
from .summary import Means, StudySummary

# Metric -> its title, its measure, and the column of the measure (None if it has none).
METRICS: dict[str, tuple[str, str, str | None]] = {
    "self_attention_score": ("Self-attention", "head_roles", "self"),
    "prev_token_score": ("Previous token", "head_roles", "previous_matched"),
    "pattern_entropy": ("Entropy (nats)", "entropy", None),
    "qk_distance": ("Distance (tokens)", "qk_distance", "mean"),
    "qk_distance_variance": ("Variance of the distance", "qk_distance", "square"),
    "induction_score": ("Induction", "head_roles", "induction_matched"),
}


def metric(study: StudySummary, name: str, variant: int) -> Means:
    """Return one of METRICS, [L, H]. The variance of the distance is over all queries of all inputs."""
    _, measure, column = METRICS[name]
    found = study.stat(measure, "weights", variant).means
    if column is None:
        return found
    if name != "qk_distance_variance":
        return found.map(pick_column(measure, column))
    mean, square = pick_column(measure, "mean"), pick_column(measure, "square")
    return found.map(lambda values: np.maximum(square(values) - mean(values) ** 2, 0))


def mean_over(values: Array, axis: int) -> Array:
    """Return the mean of the defined values along an axis; NaN where there are none."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
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
