"""What a mechanism, lens or measure says of itself, and what it may ask of a model. Axis letters are those of `types`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from .attention import Layer, Reading
from .lazy import Tensor
from .tokens import Token

# What a method may ask of a model, and what that means. Mechanisms, lenses and measures name these in `needs`.
CAPABILITIES = {
    "capture": "attention that goes through transformers' AttentionInterface, so that it can be changed",
    "values": "the value vectors of every head",
    "scores": "the query and key vectors of every head",
    "projection": "one linear projection right after the heads",
    "residual": "a residual connection around attention whose sum is normalised after it (post-LN) or before the next part (pre-LN)",
    "hidden": "the hidden states after every layer",
    "replay": "layers that can be run a second time on their own",
    "bilinear": "query and key projections without position encoding or normalisation in between",
    "same-tokens": "queries and keys that are the same tokens",
    "bidirectional": "queries that may attend to every key (no causal mask)",
    "padding": "a padding token and queries that may attend to every key, so that the input can be padded",
    "causal": "queries that attend to themselves and to tokens before them only",
    "equal-heads": "the same number of heads in every layer",
    "distribution": "rows that sum to 1",
    "kinds": "tokens whose kinds are known (special, punctuation, part of a word): a tokenizer, or an image",
}


class NoParams(BaseModel):
    """A method without parameters."""

    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a mechanism, lens or measure says of itself; the API, the page and the docs are drawn from it.

    `doc` says what it is in one or two plain sentences, `not_` what it is not. `range` is [low, high], None where unbounded. `needs` are names of CAPABILITIES.
    """

    name: str
    title: str
    doc: str
    not_: str
    citation: str
    params: type[BaseModel] = NoParams
    unit: str = "1"
    range: tuple[float | None, float | None] = (None, None)
    needs: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """The declaration as plain JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "doc": self.doc,
            "not": self.not_,
            "citation": self.citation,
            "params": self.params.model_json_schema(),
            "unit": self.unit,
            "range": list(self.range),
            "needs": list(self.needs),
        }


@dataclass(frozen=True, kw_only=True)
class Lens(Declaration):
    """How the attention is read: a layer and the parameters -> its reading. `signed` maps may be negative and need not sum to 1.

    `of` heads: reads blocks of heads, one map per head. `of` layer: reads all heads of a layer at once and gives one map (H = 1); if it has `join`, each
    layer's map is joined with the joined map of the layer before (this layer's map, the map before -> map), from layer 0 on.
    """

    read: Callable[[Layer, Any], Reading]
    of: Literal["heads", "layer"] = "heads"
    join: Callable[[Tensor, Tensor], Tensor] | None = None
    signed: bool = False
    undefined: str = ""  # why a row may have no reading
    beyond: int = 0  # dimensions it has beyond the head's own: 1 where rows keep their sum

    def joining(self, params: Any) -> Callable[[Tensor, Tensor], Tensor] | None:
        """What joins layers, None if nothing does: a parameter named rollout can switch it off."""
        return self.join if getattr(params, "rollout", True) else None

    @property
    def shape(self) -> str:
        """Axes of the map."""
        return "L H Q K" if self.of == "heads" else "L 1 Q K"

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), "signed": self.signed, "shape": self.shape}


@dataclass(frozen=True, kw_only=True)
class Measure(Declaration):
    """Numbers computed from maps: (layer, lens, readings by lens, parameters) -> values of `shape` without L.

    It is computed for those of `lenses` that were read, and for the weights if they are among them. `reads` names the lenses that must have been read for it.
    `of` heads: gets blocks of heads. `of` layer: gets all heads of a layer at once, with the residual stream; values may have no axis H. An axis C
    holds `columns`, by name, each in `unit` unless `units` gives it another; one named class holds numbers of `classes`. One that is `fixed` reads the
    model's weights alone: all inputs give the same.
    `looks` is what it looks at in a token (given its parameters): heads of inputs whose tokens look alike are computed at once, with the tokens of the first; what
    Layer.marked says may differ between them. Without it every input is computed by itself.
    """

    compute: Callable[[Layer, str, Mapping[str, Reading], Any], Tensor]
    shape: str
    looks: Callable[[Token, Any], object] | None = None
    of: Literal["heads", "layer"] = "heads"
    lenses: tuple[str, ...] = ("weights",)
    reads: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    fixed: bool = False

    def unit_of(self, column: str | None) -> str:
        """The unit of a column, or of the one number."""
        return self.unit if column is None else self.units.get(column, self.unit)

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
