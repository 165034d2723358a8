"""What mechanisms, lenses, measures and figures have in common: a declaration, and what they may need of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

# A head by its name, layer.head, both counted from 0.
HeadName = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$", max_length=9)]

# The axes of a shape that are tokens: queries and keys.
TOKEN_AXES = frozenset({"Q", "K"})

# What a method may need of a model. Mechanisms, lenses and measures name these in `needs`, but for the weights, which every method needs.
CAPABILITIES = {
    "weights": "an attention weight for every pair of tokens",
    "capture": "attention that goes through transformers' AttentionInterface, so that it can be changed",
    "values": "the value vectors of every head",
    "scores": "the query and key vectors of every head",
    "projection": "one linear projection after the heads, directly, or after a gate or a normalisation of their outputs",
    "gate": "a gate on the outputs of the heads",
    "residual": "a residual connection around attention whose sum is normalised after it (post-LN) or before the next part (pre-LN)",
    "hidden": "the hidden states after every layer",
    "replay": "layers that can be run a second time on their own",
    "bilinear": "queries and keys that are linear maps of hidden states, but for a rotation by the distance of two tokens and for a normalisation",
    "additive": "queries and keys that are not normalised head by head, so that the products of heads have a common scale",
    "unembedding": "an output matrix over the tokens that the model embeds, and values that are linear maps of hidden states, but for a normalisation before each",
    "same-tokens": "queries and keys that are the same tokens",
    "one-text": "tokens that are made of tokens of one text only, so that they can be traced to these",
    "bidirectional": "queries that may attend to every key (no causal mask)",
    "padding": "a padding token and queries that may attend to every key, so that the input can be padded",
    "causal": "queries that attend to themselves and to tokens before them only",
    "equal-heads": "the same number of heads in every layer",
    "distribution": "rows that sum to 1",
    "kinds": "tokens whose kinds are known (special, punctuation, part of a word): a tokenizer, or an image",
}


class Params(BaseModel):
    """The parameters of a method: immutable, without unknown names or conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NoParams(Params):
    """A method without parameters."""


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The description of a mechanism, lens, measure or figure, from which the API, the page and the docs are generated.

    `doc` tells in one or two plain sentences what it is, `not_` what it is not. `range` is [low, high], None where unbounded. `needs` are names of CAPABILITIES.
    `phrases` are other words for it, by which a search finds it, under "". A measure has them by column or class, `-column` for what its smallest values are
    called (`local`: a small distance), and `column = 1` for a condition.
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
    phrases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return the declaration as plain JSON."""
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
class Quantity(Declaration):
    """The description of numbers: axis letters of their `shape`, and what is along an axis C.

    An axis C holds `columns`, by name, each in `unit` unless `units` gives it another; one named class holds numbers of `classes`.
    """

    shape: str
    columns: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()

    def unit_of(self, column: str | None) -> str:
        """Return the unit of a column, or of the one number."""
        return self.unit if column is None else self.units.get(column, self.unit)
