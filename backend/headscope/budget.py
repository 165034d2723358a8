"""Whether an analysis fits, told before it is queued, and what would fit instead. Plain arithmetic on shapes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .errors import BudgetExceeded, Unknown
from .models.facts import Facts
from .request import AnalysisRequest
from .types import BLOCK_BYTES

FLOAT = 4
# Blocks alive at once while a layer is read: scores, weights, one projected map per lens, their scratch.
BLOCKS = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be computed: layer and head numbers, and the number of tokens."""

    layers: list[int]
    heads: list[int]
    tokens: int
    lenses: int

    @property
    def map_bytes(self) -> int:
        """Size of the maps that are kept."""
        return len(self.layers) * len(self.heads) * self.tokens**2 * FLOAT * self.lenses

    @property
    def work_bytes(self) -> int:
        """Memory for the layer at work."""
        return BLOCKS * max(min(len(self.heads) * self.tokens**2 * FLOAT, BLOCK_BYTES), self.tokens**2 * FLOAT)

    @property
    def bytes(self) -> int:
        """Both together."""
        return self.map_bytes + self.work_bytes


def plan(request: AnalysisRequest, facts: Facts, tokens: int) -> Plan:
    """Which heads of which layers. Raises Unknown for a number the model does not have."""
    layers = _chosen("layer", request.layers, facts.layers)
    heads = _chosen("head", request.heads, facts.heads)
    return Plan(layers, heads, tokens, len(request.lenses) if request.maps else 0)


def check(planned: Plan, limit: int) -> None:
    """Raise BudgetExceeded when the maps kept and the memory at work exceed `limit` bytes, and say what would fit."""
    actual = planned.bytes
    if actual <= limit:
        return
    fitting_tokens = bisect_right(range(planned.tokens), limit, key=lambda n: replace(planned, tokens=n).bytes) - 1
    hints = []
    if planned.lenses and planned.work_bytes <= limit:
        per_layer = len(planned.heads) * planned.tokens**2 * FLOAT * planned.lenses
        if fitting_layers := (limit - planned.work_bytes) // per_layer:
            hints.append(f"{fitting_layers} layers at a time (layers)")
        hints.append("measures and thumbnails without the maps (maps: false)")
    if fitting_tokens > 0:
        hints.append(f"{fitting_tokens} tokens (max_tokens)")
    raise BudgetExceeded(
        f"{planned.tokens} tokens need {_size(actual)}; one analysis may take {_size(limit)}. What would fit: {', or '.join(hints) or 'nothing'}.",
        pointer="/text",
        limit=limit,
        actual=actual,
    )


def _chosen(what: str, asked: Iterable[int] | None, count: int) -> list[int]:
    numbers = list(range(count)) if asked is None else list(asked)
    if any(not 0 <= number < count for number in numbers):
        raise Unknown(what, f"The model has {what}s 0 to {count - 1}.", pointer=f"/{what}s")
    return numbers


def _size(number: int) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
