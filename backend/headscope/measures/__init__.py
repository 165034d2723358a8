"""Numbers computed from maps. One family per file, one line per measure here; nothing in this package knows models or files."""

from __future__ import annotations

from ..types import Measure
from .entropy import ENTROPY
from .null import LEVERAGE, NULL_SHARE, NULL_SHARE_ROWS

MEASURES: dict[str, Measure] = {measure.name: measure for measure in (ENTROPY, NULL_SHARE, NULL_SHARE_ROWS, LEVERAGE)}

__all__ = ["MEASURES"]
