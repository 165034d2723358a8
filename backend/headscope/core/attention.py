"""Attention of one layer as the model computed it, and what lenses make of it.

Axis letters: L layers, H heads, G key/value heads, Q queries, K keys, D head width, d model width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from .lazy import Tensor, torch
from .tokens import Axes, BatchTokens, Marks

# Weights computed at once: larger layers go through in blocks of heads. Small enough for the cache, so faster than whole layers, and memory stays that of
# a few blocks whatever the length.
BLOCK_BYTES = 4 * 1024 * 1024

ModelKind = Literal["encoder", "decoder", "encoder-decoder", "vision"]
Kind = Literal["self", "encoder", "decoder", "cross"]


@dataclass(frozen=True, slots=True)
class Keys:
    """Which keys a query may attend to: all, the prefix up to itself (causal), or whatever `mask` [Q, K] (bool) says."""

    rule: Literal["all", "prefix", "mask"]
    mask: Tensor | None = None

    def counts(self, queries: int, keys: int) -> Tensor:
        """Number of allowed keys per query, [Q]."""
        if self.mask is not None:
            return self.mask.sum(-1)
        if self.rule == "all":
            return torch.full((queries,), keys)
        return torch.arange(1, queries + 1)

    def allowed(self, queries: int, keys: int) -> Tensor:
        """The same as a mask [Q, K] (bool)."""
        if self.mask is not None:
            return self.mask
        every = torch.ones(queries, keys, dtype=torch.bool)
        return every if self.rule == "all" else every.tril()


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation at the statistics it had on this input, which makes it linear: y -> gain * (y - mean(y)) * scale (without the mean unless centred).

    gain [d], shift [d], scale [Q] = 1 / sqrt(variance + epsilon) of what was normalised.
    """

    gain: Tensor
    shift: Tensor
    scale: Tensor
    centred: bool

    def linear(self, vectors: Tensor, scale: Tensor) -> Tensor:
        """Vectors [..., d] through the linear part; `scale` is that of their queries, broadcastable to [..., 1]."""
        if self.centred:
            vectors = vectors - vectors.mean(-1, keepdim=True)
        return vectors * scale * self.gain


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream around one layer's attention; what the needs of lenses and measures did not ask for is None.

    before [Q, d]  what the output of attention is added to
    bias   [d]     bias of the output projection
    norm           the normalisation of that sum, in models that normalise after it (post-LN); None in those that do not (pre-LN)
    after  [Q, d]  the hidden states after the whole layer
    replay         outputs of the heads [B, H, Q, D] -> hidden states [B, Q, d] that the layer would have given with them
    projected [Q, d]  what the output projection gave, bias included: the proof that the heads' outputs went into it as they are
    """

    before: Tensor | None = None
    bias: Tensor | None = None
    norm: Norm | None = None
    after: Tensor | None = None
    replay: Callable[[Tensor], Tensor] | None = None
    projected: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """Some heads of one layer, or all of them, as the model computed them: `heads` names them. Head i of H reads key/value head i // (H // G).

    weights [H, Q, K]  rows sum to 1 over the allowed keys (less with a learned sink) and are 0 elsewhere
    values  [G, K, D]
    output  [H, Q, D]  weights @ values
    query   [H, Q, D'], key [G, K, D']
    projection [H, D, d]  each head's part of the output projection
    projection_factors [H, D, D]  of every W in `projection` an R with ||x R|| = ||x W|| for all x, in float64
    query_weights, key_weights [H, d, D']  what makes a query or key of a hidden state, where that is one matrix
    padded_values [N, P, D]  values of all N heads of the layer, one per query head whatever `heads` names, when the same input is padded to P tokens, real
                  tokens first
    inputs        the tokens of every input, where the heads are those of several, one input's after the other's; `axes` are then those of the first
    `epsilon` is the machine epsilon of the arithmetic that made them: it decides what counts as zero. What the needs of a lens or measure did not
    name may be missing: empty tensors, or None.
    """

    index: int
    heads: tuple[int, ...]
    weights: Tensor
    values: Tensor
    output: Tensor
    keys: Keys
    epsilon: float
    axes: Axes
    query: Tensor
    key: Tensor
    projection: Tensor | None = None
    projection_factors: Tensor | None = None
    query_weights: Tensor | None = None
    key_weights: Tensor | None = None
    padded_values: Tensor | None = None
    stream: Stream = Stream()
    inputs: BatchTokens | None = None

    def select(self, heads: frozenset[int]) -> Layer | None:
        """Only these heads, each with a key/value head of its own; None if none of them is here."""
        chosen = [place for place, head in enumerate(self.heads) if head in heads]
        if len(chosen) == len(self.heads):
            return self
        if not chosen:
            return None
        group = self.weights.shape[0] // max(1, self.values.shape[0])
        shared = [place // group for place in chosen] if self.values.shape[0] else []
        return replace(
            self,
            heads=tuple(self.heads[place] for place in chosen),
            weights=self.weights[chosen],
            values=self.values[shared],
            output=self.output[chosen] if shared else self.output,
            query=self.query[chosen] if shared else self.query,
            key=self.key[shared],
            projection=None if self.projection is None else self.projection[chosen],
            projection_factors=None if self.projection_factors is None else self.projection_factors[chosen],
            query_weights=None if self.query_weights is None else self.query_weights[chosen],
            key_weights=None if self.key_weights is None else self.key_weights[chosen],
        )

    @property
    def special(self) -> tuple[Tensor, Tensor]:
        """Which queries [Q] and which keys [K] are special tokens, as bool tensors."""
        queries, keys = ([token.kind == "special" for token in side] for side in (self.axes.queries, self.axes.keys))
        return torch.tensor(queries), torch.tensor(keys)

    def marked(self, which: Marks) -> tuple[Tensor, Tensor]:
        """Which queries [1 or H, Q] and which keys [1 or H, K] are some tokens, as bool tensors: heads may be those of inputs in which they stand elsewhere."""
        inputs = self.inputs or BatchTokens((self.axes,))
        queries, keys = inputs.marked(which)
        each = len(self.heads) // len(inputs.axes)
        return (
            (queries, keys)
            if len(queries) == 1
            else (queries.repeat_interleave(each, 0), keys.repeat_interleave(each, 0))
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """What a lens makes of a layer: the map, and what has to be said about it.

    map       [H, Q, K]  NaN in rows that have no reading; H is 1 for lenses of whole layers
    signed               whether entries may be negative
    rank      [H]     numerical rank of the head's values, where the lens decides one
    condition [H]     upper bound of their condition number (largest over smallest non-zero singular value)
    identical [H]     True where the map is the weights themselves, exactly
    undefined [H]     number of rows without a reading
    kept      [H, Q]  share of the squared row norm of the weights that the map keeps, 0..1
    leverage  [H, K]  diagonal of the projection, 0..1
    """

    map: Tensor
    signed: bool = False
    rank: Tensor | None = None
    condition: Tensor | None = None
    identical: Tensor | None = None
    undefined: Tensor | None = None
    kept: Tensor | None = None
    leverage: Tensor | None = None
    _made: dict[Callable[[Tensor], Tensor], Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, make: Callable[[Tensor], Tensor]) -> Tensor:
        """What `make` makes of the map: computed for the first measure that asks, and handed to the others."""
        if make not in self._made:
            self._made[make] = make(self.map)
        return self._made[make]


@dataclass(frozen=True, slots=True)
class ResultWarning:
    """Something to say about a result, in one sentence, next to what it is about."""

    code: str
    message: str
    lens: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        return {"code": self.code, "lens": self.lens, "message": self.message}
