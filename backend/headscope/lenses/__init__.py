"""How attention is read. One file per lens, one line per lens here; nothing in this package knows models or files."""

from __future__ import annotations

from ..types import Lens
from .effective import EFFECTIVE
from .effective_simplex import EFFECTIVE_SIMPLEX
from .weights import WEIGHTS

LENSES: dict[str, Lens] = {lens.name: lens for lens in (WEIGHTS, EFFECTIVE, EFFECTIVE_SIMPLEX)}

__all__ = ["LENSES"]
