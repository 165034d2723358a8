"""How the model attends. One file per mechanism, one line per mechanism here; pure tensors."""

from __future__ import annotations

from ..types import Mechanism
from .softmax import SOFTMAX

MECHANISMS: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (SOFTMAX,)}

__all__ = ["MECHANISMS"]
