"""How attention is read: one file per lens and one line per lens here. This package knows neither models nor files."""

from __future__ import annotations

from .alti import ALTI
from .base import Lens
from .effective import EFFECTIVE
from .effective_published import EFFECTIVE_PUBLISHED
from .effective_simplex import EFFECTIVE_SIMPLEX
from .jump_map import JUMP_MAP
from .max_entropy import MAX_ENTROPY
from .norm import NORM
from .norm_residual import NORM_RESIDUAL
from .norm_rollout import NORM_ROLLOUT
from .null import NULL
from .rollout import ROLLOUT
from .value_zeroing import VALUE_ZEROING
from .weights import WEIGHTS

LENSES: dict[str, Lens] = {
    lens.name: lens
    for lens in (
        WEIGHTS,
        EFFECTIVE,
        EFFECTIVE_SIMPLEX,
        NULL,
        EFFECTIVE_PUBLISHED,
        MAX_ENTROPY,
        NORM,
        NORM_RESIDUAL,
        ROLLOUT,
        NORM_ROLLOUT,
        ALTI,
        VALUE_ZEROING,
        JUMP_MAP,
    )
}

__all__ = ["LENSES"]
