"""What every lens declares. Axis letters are those of `core.attention`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..core.attention import Layer, Reading
from ..core.declarations import Declaration
from ..core.factors import Factors
from ..core.lazy import Tensor

# Values of a larger condition number, their largest over their smallest singular value that is not zero, are ill-conditioned.
ILL_CONDITIONED = 1e4


class RowLens(Protocol):
    """A lens on some heads of a layer, which reads their rows: at once the `first` ones, if there are any, and the others in parts of a multiple of rows."""

    first: int
    multiple: int

    def read(self, rows: Layer) -> tuple[Reading, Any]:
        """Return what it reads of some rows, with the kept share [H, R] and the map [H, R, K'] if that is there already, and what their factors are made of.

        May run in any thread.
        """

    def map(self, rows: Layer, part: Any, keys: slice, out: Tensor | None = None) -> Tensor:
        """Return the map [H, R, k] of these rows and some keys, of what `read` returned for their factors; `out` is a tensor of this size that may be used for it."""

    def facts(self) -> Reading:
        """Return what it knows about the heads themselves, without a map."""

    def factors(self, parts: Sequence[Any]) -> Factors:
        """Return the factors of the maps, made of what `read` returned of all rows, in order."""


@dataclass(frozen=True)
class Factoring:
    """How the maps of a lens factor: `factor` takes a layer of one input and its reading, and returns None where the maps of these heads have no factors.

    `rows` makes the lens on rows of a layer, from which the same factors follow, and returns None where it has to read whole maps.

    A head has about `pairs` pairs of factors [Q, D] and [K, D]. With `softmax`, only mechanisms whose weights are the softmax of scores have factors.
    """

    factor: Callable[[Layer, Reading], Factors | None]
    rows: Callable[[Layer, Any], RowLens | None]
    pairs: int = 1
    softmax: bool = False


@dataclass(frozen=True, kw_only=True)
class Lens(Declaration):
    """A way to read attention: a layer and the parameters -> its reading.

    A lens of `heads` reads blocks of heads and gives one map per head. A lens of a `layer` reads all heads of a layer at once and gives one map (H = 1); if it
    has `join`, each layer's map is joined with the joined map of the layer before (this layer's map, the map before -> map), from layer 0 on.

    The other properties say what its maps are, and so which measures can read them:
    shows         what an entry tells: how much of a key a query takes in (`attention`), how closely two tokens are related (`ties`), or what another lens
                  leaves out (`remainder`)
    signed        entries may be negative, and rows need not sum to 1
    distribution  rows are distributions over the keys
    """

    read: Callable[[Layer, Any], Reading]
    of: Literal["heads", "layer"] = "heads"
    shows: Literal["attention", "ties", "remainder"] = "attention"
    signed: bool = False
    distribution: bool = False
    join: Callable[[Tensor, Tensor], Tensor] | None = None
    undefined: str = ""  # why a row may have no reading
    factoring: Factoring | None = (
        None  # how fewer numbers determine its maps of a long text; None: nothing less than the maps does
    )
    beyond: int = 0  # dimensions it has beyond the head's own: 1 where rows keep their sum

    def joining(self, params: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
        """Return what joins layers, or None if nothing does: a parameter named rollout can switch it off."""
        return self.join if getattr(params, "rollout", True) else None

    @property
    def shape(self) -> str:
        """Axes of the map."""
        return "L H Q K" if self.of == "heads" else "L 1 Q K"

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), "signed": self.signed, "shape": self.shape}


def is_precise(values: Tensor, epsilon: float) -> bool:
    """Return whether the rank of values [G, K, D] can be decided in arithmetic with this machine epsilon."""
    return max(values.shape[1:]) * epsilon <= 0.05
