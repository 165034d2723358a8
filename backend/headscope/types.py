"""The nouns that everything else speaks of. Axis letters: L layers, H heads, G key/value heads, Q queries, K keys, D head width."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from torch import Tensor

# Weights computed at once: larger layers go through in blocks of heads. Small enough for the cache, so faster than whole layers, and memory stays that of
# a few blocks whatever the length.
BLOCK_BYTES = 4 * 1024 * 1024

TokenKind = Literal["special", "punct", "word", "subword"]
ModelKind = Literal["encoder", "decoder", "encoder-decoder", "vision"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the input.

    `text` is what stands at [start, end) of the text (of the second text when `segment` is 1), in characters; special and unknown tokens
    carry their own name. `word` counts the words of both texts from 0 and is None for special tokens.
    """

    text: str
    id: int
    start: int
    end: int
    word: int | None
    segment: int
    kind: TokenKind
    pos: str | None = None


@dataclass(frozen=True, slots=True)
class Keys:
    """Which keys a query may attend to: all, the prefix up to itself (causal), or whatever `mask` [Q, K] (bool) says."""

    rule: Literal["all", "prefix", "mask"]
    mask: Tensor | None = None

    def counts(self, queries: int, keys: int) -> Tensor:
        """Number of allowed keys per query, [Q]."""
        import torch

        if self.mask is not None:
            return self.mask.sum(-1)
        if self.rule == "all":
            return torch.full((queries,), keys)
        return torch.arange(1, queries + 1)


@dataclass(frozen=True, slots=True)
class Layer:
    """Some heads of one layer, as the model computed them: `heads` names them. Head i of H reads key/value head i // (H // G).

    weights [H, Q, K]  rows sum to 1 over the allowed keys and are 0 elsewhere
    values  [G, K, D]
    output  [H, Q, D]  weights @ values
    `epsilon` is the machine epsilon of the arithmetic that made them: it decides what counts as zero.
    """

    index: int
    heads: tuple[int, ...]
    weights: Tensor
    values: Tensor
    output: Tensor
    keys: Keys
    epsilon: float

    def select(self, heads: frozenset[int]) -> Layer | None:
        """Only these heads, each with a key/value head of its own; None if none of them is here."""
        chosen = [place for place, head in enumerate(self.heads) if head in heads]
        if len(chosen) == len(self.heads):
            return self
        group = self.weights.shape[0] // self.values.shape[0]
        if not chosen:
            return None
        return replace(
            self,
            heads=tuple(self.heads[place] for place in chosen),
            weights=self.weights[chosen],
            values=self.values[[place // group for place in chosen]],
            output=self.output[chosen],
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What a lens makes of a layer: the map, and what has to be said about it.

    map       [H, Q, K]
    rank      [H]     numerical rank of the head's values, where the lens decides one
    condition [H]     upper bound of their condition number (largest over smallest non-zero singular value)
    identical [H]     True where the map is the weights themselves, exactly
    kept      [H, Q]  share of the squared row norm of the weights that the map keeps, 0..1
    leverage  [H, K]  diagonal of the projection, 0..1
    """

    map: Tensor
    rank: Tensor | None = None
    condition: Tensor | None = None
    identical: Tensor | None = None
    kept: Tensor | None = None
    leverage: Tensor | None = None


class NoParams(BaseModel):
    """A method without parameters."""

    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a mechanism, lens or measure says of itself; the API, the page and the docs are drawn from it.

    `doc` says what it is in one or two plain sentences, `not_` what it is not. `range` is [low, high], None where unbounded.
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
class Mechanism(Declaration):
    """How the model attends: scores [H, Q, K] (masked, float32 or wider) -> weights [H, Q, K]."""

    attend: Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Lens(Declaration):
    """How the attention is read: a layer -> its reading. `signed` maps may be negative and need not sum to 1."""

    read: Callable[[Layer], Reading]
    signed: bool = False
    shape: str = "L H Q K"

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), "signed": self.signed, "shape": self.shape}


@dataclass(frozen=True, kw_only=True)
class Measure(Declaration):
    """Numbers computed from maps: (layer, readings by lens) -> values by lens, each of `shape` without L.

    `needs` names the lenses that must have been read; `lenses` those it can be asked about (empty: every lens that is not signed).
    """

    compute: Callable[[Layer, Mapping[str, Reading]], dict[str, Tensor]]
    shape: str
    lenses: tuple[str, ...] = field(default=())

    def describe(self) -> dict[str, Any]:
        return {**Declaration.describe(self), "shape": self.shape, "lenses": list(self.lenses)}


@dataclass(frozen=True, slots=True)
class Warned:
    """Something to say about a result, in one sentence, next to what it is about."""

    code: str
    message: str
    lens: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        return {"code": self.code, "lens": self.lens, "message": self.message}
