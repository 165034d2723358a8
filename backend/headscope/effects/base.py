"""What every method for effects declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from pydantic import Field

from ..core.declarations import Declaration, HeadName, Params

# Fields of a request, beside the method, that hold other texts -> the parameter that decides, and the values with which the method needs them.
NeededTexts = Mapping[Literal["against", "reference"], tuple[str, tuple[str, ...]]]


class EffectParams(Params):
    """Parameters of a method for effects."""

    texts: ClassVar[NeededTexts] = {}

    def needs(self, field: Literal["against", "reference"]) -> bool:
        """Return whether the method needs these texts."""
        name, values = self.texts.get(field, ("", ()))
        return getattr(self, name, None) in values


class ChosenEffect(Protocol):
    """A method for effects with its parameters, as requests hold it: parameters that also have its name."""

    @property
    def name(self) -> str:
        """The method."""

    def needs(self, field: Literal["against", "reference"]) -> bool:
        """Return whether it needs these texts."""

    def model_dump(self) -> dict[str, Any]:
        """Return it as JSON."""


@dataclass(frozen=True, kw_only=True)
class EffectMethod(Declaration):
    """A method for effects. While it runs, about `activations` numbers are in memory for every token, layer and dimension of all heads: of the tokens of the
    input, or of `tokens` if that is more, because copies of a short input are computed at once.

    It judges heads by a `prediction`, or by a `score` of another head. With `maps`, it gives a map for every head, [L, H, Q, K], and effects are the sums of the maps.
    """

    params: type[EffectParams]
    activations: int
    maps: bool = False
    tokens: int = 0
    of: Literal["prediction", "score"] = "prediction"

    def describe(self) -> dict[str, Any]:
        texts = {
            field: {"parameter": name, "values": list(values)} for field, (name, values) in self.params.texts.items()
        }
        shape = "L H Q K" if self.maps else "L H"
        return {**Declaration.describe(self), "shape": shape, "of": self.of, "texts": texts}


class HeadsParams(EffectParams):
    """Which heads are replaced."""

    heads: list[HeadName] = Field(
        default=[],
        max_length=10_000,
        description='Only these heads, as layer.head counted from 0 ("4.5"): each on its own, and all of them together. By default every head on its own.',
    )
