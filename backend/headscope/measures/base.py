"""What every measure declares, and the kinds of maps that measures read. Axis letters are those of `core.attention`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core.attention import Layer, Reading
from ..core.declarations import Declaration, Quantity
from ..core.lazy import Tensor
from ..core.tokens import Token
from ..lenses import LENSES
from ..lenses.base import Lens

Accepts = Callable[[Lens], bool]


def only(name: str) -> Accepts:
    """Accept one lens, for measures that depend on how its map is made."""
    return lambda lens: lens.name == name


def is_weights(lens: Lens) -> bool:
    """Accept the weights themselves."""
    return lens.name == "weights"


def is_of_heads(lens: Lens) -> bool:
    """Accept any map of a head."""
    return lens.of == "heads"


def is_signed(lens: Lens) -> bool:
    """Accept maps of heads whose entries may be negative."""
    return is_of_heads(lens) and lens.signed


def is_connection(lens: Lens) -> bool:
    """Accept maps of heads whose large entries join a query and a key."""
    return is_of_heads(lens) and lens.shows != "remainder"


def is_attention(lens: Lens) -> bool:
    """Accept maps of heads that show how much of a key a query takes in, in whatever unit."""
    return is_of_heads(lens) and lens.shows == "attention"


def is_on_weight_scale(lens: Lens) -> bool:
    """Accept the same on the scale of attention weights."""
    return is_attention(lens) and lens.unit == "1"


def is_distribution(lens: Lens) -> bool:
    """Accept maps of heads whose rows are distributions over the keys."""
    return is_of_heads(lens) and lens.distribution


@dataclass(frozen=True)
class ByRows:
    """How a measure is computed while maps are read row by row.

    statistics  as `compute`, of some rows: numbers for each of them, [H, R, ...]. Without `combine` they are the values.
    combine     (layer without weights, facts about heads by lens, statistics of all rows [H, Q, ...], parameters) -> values
    reads_map   whether statistics need the map of the lens; they can always read the layer's weights
    summed      whether statistics are sums over the rows instead, [H, N], to be added up; those of fewer keys may be shorter, and lack zeros at their end
    able        whether parameters allow it
    """

    statistics: Callable[[Layer, str, Mapping[str, Reading], Any], Tensor]
    combine: Callable[[Layer, Mapping[str, Reading], Tensor, Any], Tensor] | None = None
    reads_map: bool = True
    summed: bool = False
    able: Callable[[Any], bool] = lambda params: True


@dataclass(frozen=True, kw_only=True)
class Measure(Quantity):
    """Numbers computed from maps: (layer, lens, readings by lens, parameters) -> values of `shape` without L.

    `accepts` says which lenses it can read. It is computed for each of them that was read; one that reads no map is computed once, as if for the weights.
    `reads` names lenses that must have been read for it.
    A measure of `heads` gets blocks of heads. A measure of a `layer` gets all heads of a layer at once, with the residual stream; its values may have no axis H.
    A `fixed` measure reads the model's weights alone: all inputs give the same.
    `looks` is what it looks at in a token (given its parameters): heads of inputs whose tokens look alike are computed at once, with the tokens of the first; what
    Layer.marked says may differ between them. Without it every input is computed by itself.
    Without `by_rows` it needs whole maps.
    """

    compute: Callable[[Layer, str, Mapping[str, Reading], Any], Tensor]
    accepts: Accepts = is_weights
    reads: tuple[str, ...] = ()
    of: Literal["heads", "layer"] = "heads"
    looks: Callable[[Token, Any], object] | None = None
    fixed: bool = False
    by_rows: ByRows | None = None

    @property
    def lenses(self) -> tuple[str, ...]:
        """Names of the lenses that it accepts, in the order of LENSES."""
        return tuple(name for name, lens in LENSES.items() if self.accepts(lens))

    def reads_rows(self, params: Any) -> bool:
        """Return whether it can be computed from some rows after others."""
        return self.by_rows is not None and self.by_rows.able(params)

    def describe(self) -> dict[str, Any]:
        return {
            **Declaration.describe(self),
            "shape": self.shape,
            "lenses": list(self.lenses),
            "reads": list(self.reads),
            "columns": list(self.columns),
            "units": {column: self.unit_of(column) for column in self.columns},
            "classes": list(self.classes),
        }
