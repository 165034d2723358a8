"""Effects of heads on a prediction, input by input, as numbers that a study keeps beside its measures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..analysis import memory
from ..analysis.effect import compute
from ..analysis.effect_methods import Means
from ..analysis.result import Result
from ..core.arrays import Array
from ..effects.quantities import JUDGES
from ..models.loading import Model
from .data.dataset import Row
from .request import StudyRequest


def effects_of(
    model: Model,
    row: Row,
    request: StudyRequest,
    result: Result,
    *,
    means: Means | None = None,
    limit: int | None = None,
    step: Callable[[float], None] = lambda fraction: None,
) -> dict[str, dict[str, Array]]:
    """Return the effects of all heads on a row's target, method -> "weights" -> [L, H, 2] in the order of EFFECT_COLUMNS. `result` is its analysis. `means` keeps what was
    read of reference texts for the next row.

    Raises the errors of `headscope.effect`, and BudgetExceeded for a method that takes more memory than `limit` bytes.
    """
    given = request.with_row(request.analysis, row).input
    found = dict[str, dict[str, Array]]()
    for choice in request.judges:
        if limit is not None:
            memory.check_effect(JUDGES[choice.name], model.facts.tower(request.kind), *result.shape[2:], limit)
        effects = compute(
            model, given, request.effect_on(row, choice), kind=request.kind, step=step, means=means
        ).effects
        raises = np.where(np.isnan(effects), np.nan, effects > 0)
        found[choice.name] = {"weights": np.stack([effects, raises], axis=-1).astype(np.float32)}
    return found
