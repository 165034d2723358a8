"""What every method for effects declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from ..core.declarations import Declaration, HeadName, Params


@dataclass(frozen=True, kw_only=True)
class EffectMethod(Declaration):
    """A method for effects. While it runs, about `activations` numbers are in memory for every token, layer and dimension of all heads: of the tokens of the
    input, or of `tokens` if that is more, because copies of a short input are computed at once.

    It judges heads by a `prediction`, or by a `score` of another head. With `maps`, it gives a map for every head, [L, H, Q, K], and effects are the sums of the maps.
    """

    activations: int
    maps: bool = False
    tokens: int = 0
    of: Literal["prediction", "score"] = "prediction"

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), "shape": "L H Q K" if self.maps else "L H"}


class EffectParams(Params):
    """Parameters of a method for effects."""

    @property
    def compares_texts(self) -> bool:
        """Whether the method needs another text."""
        return False

    @property
    def reads_reference(self) -> bool:
        """Whether the method needs reference texts."""
        return False


class HeadsParams(EffectParams):
    """Which heads are replaced."""

    heads: list[HeadName] = Field(
        default=[],
        max_length=10_000,
        description='Only these heads, as layer.head counted from 0 ("4.5"): each on its own, and all of them together. By default every head on its own.',
    )
