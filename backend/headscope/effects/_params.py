"""What the parameters of several methods have in common."""

from __future__ import annotations

from pydantic import Field

from ..core.declarations import HeadName, Params


class EffectParams(Params):
    """Parameters of a method for effects."""

    @property
    def compares_texts(self) -> bool:
        """Whether the method needs another text."""
        return False


class HeadsParams(EffectParams):
    """Which heads are replaced."""

    heads: list[HeadName] = Field(
        default=[],
        max_length=10_000,
        description='Only these heads, as layer.head counted from 0 ("4.5"): each on its own, and all of them together. By default every head on its own.',
    )
