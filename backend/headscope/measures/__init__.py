"""Numbers computed from maps: one family per file and one line per measure here. This package knows neither models nor files."""

from __future__ import annotations

from .base import Measure
from .concentration import ABSOLUTE_ENTROPY, ENTROPY, NEGATIVE_SHARE, PARTICIPATION_RATIO
from .connections import CONNECTIONS
from .copying import OV_COPYING
from .distance import MAX_ACTIVATION, QK_DISTANCE
from .frequency import FREQUENCY
from .gate import GATE
from .hidden import RESIDUAL_RATIO, TOKEN_SIMILARITY
from .norms import MIXING_RATIO, TOKEN_NORMS
from .null import LEVERAGE, NULL_SHARE, NULL_SHARE_ROWS
from .patterns import PATTERNS
from .projections import HEAD_DIMENSION, OUTPUT_OVERLAP, QK_OFFSET, QK_SPECTRUM, QK_SPECTRUM_LAYER
from .rank import RANK
from .roles import HEAD_ROLES
from .sink import SINK
from .special_tokens import SPECIAL_BROADCAST, SPECIAL_TOKENS
from .token_types import TOKEN_TYPES

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        ENTROPY,
        NULL_SHARE,
        NULL_SHARE_ROWS,
        LEVERAGE,
        SPECIAL_BROADCAST,
        PARTICIPATION_RATIO,
        ABSOLUTE_ENTROPY,
        NEGATIVE_SHARE,
        RANK,
        RESIDUAL_RATIO,
        TOKEN_SIMILARITY,
        FREQUENCY,
        OUTPUT_OVERLAP,
        QK_SPECTRUM,
        QK_SPECTRUM_LAYER,
        QK_OFFSET,
        OV_COPYING,
        HEAD_DIMENSION,
        PATTERNS,
        SPECIAL_TOKENS,
        TOKEN_TYPES,
        CONNECTIONS,
        SINK,
        HEAD_ROLES,
        MIXING_RATIO,
        QK_DISTANCE,
        MAX_ACTIVATION,
        TOKEN_NORMS,
        GATE,
    )
}

__all__ = ["MEASURES"]
