"""How the model attends: one file per mechanism and one line per mechanism here."""

from __future__ import annotations

from .ablate import ABLATE
from .base import Mechanism
from .hopfield import HOPFIELD
from .jump import JUMP
from .pasta import PASTA
from .softmax import SOFTMAX

MECHANISMS: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (SOFTMAX, HOPFIELD, JUMP, PASTA, ABLATE)}

__all__ = ["MECHANISMS"]
