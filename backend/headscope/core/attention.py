"""Attention of one layer as the model computed it, and what lenses make of it.

Axis letters: L layers, H heads, G key/value heads, Q queries, K keys, D head width, d model width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from .lazy import Tensor, torch
from .tokens import Axes, BatchTokens, Marks

# Weights computed at once: larger layers are processed in blocks of heads. A block fits the processor's cache, which is faster than a whole layer, and
# memory does not grow with the number of heads.
BLOCK_BYTES = 4 * 1024 * 1024
# How many times as much is computed at once on a GPU, where starting an operation takes longer than a small operation itself.
GPU_TIMES = 16
# Tensors of a Layer with an axis of heads, besides its weights; empty or None where they are missing.
OF_PROJECTIONS = ("projection", "projection_factors", "query_weights", "key_weights", "value_weights")
BY_HEAD = ("output", "gate", "query", "weighted_logs", *OF_PROJECTIONS)

ModelKind = Literal["encoder", "decoder", "encoder-decoder", "vision"]
Kind = Literal["self", "encoder", "decoder", "cross"]
T = TypeVar("T")


def at_once(most: int, device: torch.device) -> int:
    """Return how much is computed at once on a device: `most` on a processor, which has it in its cache, and GPU_TIMES as much elsewhere."""
    return most if device.type == "cpu" else GPU_TIMES * most


def required(value: T | None) -> T:
    """Return a value that a method needs. Raises ValueError where it was not captured."""
    if value is None:
        raise ValueError("a lens or measure needs what was not captured, or another lens that was not read")
    return value


@dataclass(frozen=True)
class Keys:
    """Which keys a query may attend to: all, the prefix up to itself (causal), an interval of its own, or those that are True in `mask` [Q, K] (bool).

    `interval` has the first key of every query and the key after its last one, [Q] each: a sliding window, or a chunk. `first` is the number of the first of the
    queries, if the input has others before them; `whole_causal` is then whether all of them together see no later key.
    """

    rule: Literal["all", "prefix", "interval", "mask"]
    mask: Tensor | None = None
    first: int = 0
    interval: tuple[Tensor, Tensor] | None = None
    whole_causal: bool | None = field(default=None, compare=False)

    @cached_property
    def causal(self) -> bool:
        """Whether no query of the input sees a later key; a part of the queries says the same as all of them."""
        if self.whole_causal is not None:
            return self.whole_causal
        if self.mask is not None:
            return not bool(self.mask.triu(self.first + 1).any())
        if self.interval is not None:
            end = self.interval[1]
            return bool((end <= torch.arange(len(end), device=end.device) + self.first + 1).all())
        return self.rule == "prefix"

    @classmethod
    def of(cls, mask: Tensor) -> Keys:
        """Describe a mask [Q, K] (bool) as briefly as possible; every query sees a key."""
        found = cls.within(*interval_of(mask), mask.shape[1])
        return found if torch.equal(found.allowed(*mask.shape).to(mask.device), mask) else cls("mask", mask)

    @classmethod
    def within(cls, begin: Tensor, end: Tensor, keys: int) -> Keys:
        """Describe the intervals from `begin` [Q] to before `end` [Q] as briefly as possible."""
        queries = len(begin)
        if not bool(begin.any()):
            if bool((end == keys).all()):
                return cls("all")
            if queries == keys and torch.equal(end, torch.arange(1, queries + 1, device=end.device)):
                return cls("prefix")
        return cls("interval", interval=(begin, end))

    def counts(self, queries: int, keys: int) -> Tensor:
        """Return the number of allowed keys per query, [Q]."""
        if self.mask is not None:
            return self.mask.sum(-1)
        if self.interval is not None:
            return self.interval[1] - self.interval[0]
        if self.rule == "all":
            return torch.full((queries,), keys)
        return torch.arange(1, queries + 1) + self.first

    def allowed(self, queries: int, keys: int) -> Tensor:
        """Return the same as a mask [Q, K] (bool)."""
        return self.sees(torch.arange(queries)[:, None], torch.arange(keys)) if self.mask is None else self.mask

    def sees(self, queries: Tensor, places: Tensor) -> Tensor:
        """Return whether queries, counted from the first of them, may attend to the keys `places`, which are broadcast with them (bool)."""
        if self.mask is not None:
            return self.mask[queries, places]
        if self.interval is not None:
            begin, end = (one[queries] for one in self.interval)
            places = places.to(begin.device)
            return (places >= begin) & (places < end)
        return places <= (torch.maximum(queries, places) if self.rule == "all" else queries + self.first)

    def extent(self, queries: slice, keys: int) -> int:
        """Return the number of keys beyond which none of these queries attends to any."""
        if self.mask is not None:
            return int(self.mask[queries].any(0).nonzero()[-1]) + 1
        if self.interval is not None:
            return int(self.interval[1][queries].max())
        return keys if self.rule == "all" else self.first + queries.stop

    def start(self, queries: slice) -> int:
        """Return the number of keys before the first one that any of these queries attends to."""
        return 0 if self.interval is None else int(self.interval[0][queries].min())

    def cut(self, queries: slice, keys: int) -> Keys:
        """Return the same for some queries and the first `keys` keys, their extent."""
        mask = None if self.mask is None else self.mask[queries, :keys]
        interval = None if self.interval is None else (self.interval[0][queries], self.interval[1][queries])
        return Keys(self.rule, mask, self.first + queries.start, interval, self.causal)


def interval_of(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first key that each query sees, and the one after the last, of a mask [Q, K] (bool)."""
    seen = mask.byte()
    return seen.argmax(-1), mask.shape[-1] - seen.flip(-1).argmax(-1)


@dataclass(frozen=True, slots=True)
class ScoreTerms:
    """What makes weights of query · key, if they are the softmax of scores: cap(query · key * scaling) + bias, with a learned sink beside the keys.

    bias [1 or H, Q, K], sink [H, 1 or Q, 1]
    """

    scaling: float
    softcap: float | None = None
    bias: Tensor | None = None
    sink: Tensor | None = None

    def cut(self, places: slice | list[int]) -> ScoreTerms:
        """Return the terms of some heads."""
        bias = self.bias if self.bias is None or self.bias.shape[0] == 1 else self.bias[places]
        return replace(self, bias=bias, sink=None if self.sink is None else self.sink[places])

    def rows(self, queries: slice, keys: int) -> ScoreTerms:
        """Return the terms of some queries and the first `keys` keys."""
        bias = None if self.bias is None else self.bias[:, queries, :keys]
        sink = self.sink if self.sink is None or self.sink.shape[1] == 1 else self.sink[:, queries]
        return replace(self, bias=bias, sink=sink)


@dataclass(frozen=True, slots=True)
class Norm:
    """A normalisation with the statistics of this input held fixed, which makes it linear: y -> gain * (y - mean(y)) * scale (no mean unless centred).

    gain [d], shift [d], scale [Q] = 1 / sqrt(variance + epsilon) of its input.
    """

    gain: Tensor
    shift: Tensor
    scale: Tensor
    centred: bool

    def linear(self, vectors: Tensor, scale: Tensor) -> Tensor:
        """Apply the linear part to vectors [..., d]; `scale` is that of their queries, broadcastable to [..., 1]."""
        if self.centred:
            vectors = vectors - vectors.mean(-1, keepdim=True)
        return vectors * scale * self.gain


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream around one layer's attention. Fields that no lens or measure needs are None.

    before [Q, d]  what the output of attention is added to
    bias   [d]     bias of the output projection
    branch_norm    what the result of the projection goes through before it is added: a normalisation (sandwich norm), or a gain alone (layer scale)
    norm           the normalisation of that sum in models that normalise after it (post-LN); None in the others (pre-LN, parallel blocks)
    after  [Q, d]  the hidden states after the whole layer
    replay         outputs of the heads [B, H, Q, D] -> the hidden states [B, Q, d] that the layer gives for them
    projected [Q, d]  result of the output projection, bias included: shows whether the heads' outputs reached it unchanged
    """

    before: Tensor | None = None
    bias: Tensor | None = None
    norm: Norm | None = None
    after: Tensor | None = None
    replay: Callable[[Tensor], Tensor] | None = None
    projected: Tensor | None = None
    branch_norm: Norm | None = None

    def linear(self, vectors: Tensor) -> Tensor:
        """Apply the normalisations between the projection and the end of the block, without their scales, to vectors [..., d]; the type stays."""
        return _unscaled(self.norm, _unscaled(self.branch_norm, vectors))

    def add_stream(self, vectors: Tensor) -> Tensor:
        """Add the stream to what attention gives it [Q, d] and apply the normalisations without their scales, in float64.

        The stream is divided by the scale that is left out before it; bias and shift are the caller's.
        """
        before = required(self.before).double()
        if self.branch_norm is not None:
            before = before / self.branch_norm.scale.double()[:, None]
        return _unscaled(self.norm, _unscaled(self.branch_norm, vectors) + before)

    def resultant(self, vectors: Tensor) -> Tensor:
        """Return the output of the block divided by `scale`, [Q, d] in float64, from what attention gives it without the bias."""
        output = self.add_stream(vectors + required(self.bias).double())
        if self.branch_norm is not None:
            shift = self.branch_norm.shift.double() / self.branch_norm.scale.double()[:, None]
            output = output + _unscaled(self.norm, shift)
        if self.norm is None:
            return output
        return output + self.norm.shift.double() / required(self.scale(torch.float64))

    def scale(self, dtype: torch.dtype) -> Tensor | None:
        """Return the factor of each row that `linear` leaves out, [Q, 1]; None without a normalisation."""
        scales = [norm.scale.to(dtype)[:, None] for norm in (self.branch_norm, self.norm) if norm is not None]
        return torch.stack(scales).prod(0) if scales else None


def _unscaled(norm: Norm | None, vectors: Tensor) -> Tensor:
    if norm is None:
        return vectors
    return norm.linear(vectors, torch.ones((), device=vectors.device)).to(vectors.dtype)


@dataclass(frozen=True, slots=True)
class Layer:
    """Some or all heads of one layer as the model computed them; `heads` are their indices. Head i of H reads key/value head i // (H // G).

    weights [H, Q, K]  rows sum to 1 over the allowed keys (less with a learned sink) and are 0 elsewhere
    values  [G, K, D]
    output  [H, Q, D]  weights @ values
    gate    [H, Q, D]  what multiplies the output before the projection: a gate, or a normalisation with its statistics held fixed; None where nothing does
    query   [H, Q, D'], key [G, K, D']
    projection [H, D, d]  each head's part of the output projection
    projection_factors [H, D, D]  of every W in `projection` an R with ||x R|| = ||x W|| for all x, in float64
    query_weights, key_weights [H, d, D']  the projections of hidden states to queries and keys, where each is one matrix
    turn [D', D']  the rotation by which a position encoding takes queries and keys from one token to the next, None if there is none: y at n tokens before x
            has the score x query_weights turnⁿ key_weightsᵀ yᵀ, before scaling and without biases
    normalised    whether that score holds up to a positive factor of the query and one of the key
    value_weights [H, d, D], token_map [d, d]  in float64, by weights alone: a query that attends to one token gets the logits W_E value_weights projection N W_Uᵀ,
            up to the scales of normalisations, with the embedding W_E and the output matrix W_U; token_map = N W_Uᵀ W_E, N the normalisations
            before W_U, and W_U less its mean over the tokens, which changes no probability
    padded_values [N, P, D]  values of all N heads of the layer, one per query head whatever `heads` are, with the input padded to P tokens at its end
    weighted_logs  [H, Q, K]  A ln(A / max A) of every weight A and the largest of its row; None where they were not made of scores
    terms         None where a mechanism computes weights in another way, and for several inputs
    inputs        the tokens of every input if the heads of several inputs follow one another; `axes` are then those of the first input
    `epsilon` is the machine epsilon of the arithmetic that computed them: it decides what counts as zero. `rounding` is by how much what a quantised model adds to
    the stream differs from what `projection` gives. Tensors that no lens or measure needs may be missing: empty, or None.
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
    gate: Tensor | None = None
    projection: Tensor | None = None
    projection_factors: Tensor | None = None
    query_weights: Tensor | None = None
    key_weights: Tensor | None = None
    turn: Tensor | None = None
    normalised: bool = False
    value_weights: Tensor | None = None
    token_map: Tensor | None = None
    padded_values: Tensor | None = None
    stream: Stream = Stream()
    inputs: BatchTokens | None = None
    rounding: float = 0.0
    terms: ScoreTerms | None = None
    weighted_logs: Tensor | None = None
    _made: dict[Callable[[Layer], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def causal(self) -> bool:
        """Whether queries see only themselves and earlier tokens."""
        return self.keys.causal and (self.axes.same or self.keys.rule == "prefix")

    def once(self, make: Callable[[Layer], T]) -> T:
        """Return `make(layer)`, computed once for all lenses and measures that use it."""
        if make not in self._made:
            self._made[make] = make(self)
        found: T = self._made[make]
        return found

    def select(self, heads: frozenset[int]) -> Layer | None:
        """Return only these heads, each with a key/value head of its own, or None if the layer has none of them."""
        chosen = [place for place, head in enumerate(self.heads) if head in heads]
        if len(chosen) == len(self.heads):
            return self
        if not chosen:
            return None
        group = len(self.heads) // max(1, self.values.shape[0])
        shared = [place // group for place in chosen] if self.values.shape[0] else []
        weights = self.weights[chosen] if self.weights.numel() else self.weights
        return self.cut(chosen, shared, tuple(self.heads[place] for place in chosen), weights)

    def cut(
        self, places: slice | list[int], groups: slice | list[int], heads: tuple[int, ...], weights: Tensor
    ) -> Layer:
        """Return the `heads` at some places, with their weights [h, Q, K] and the key/value heads at the places `groups`."""
        by_axis = {**dict.fromkeys(BY_HEAD, places), "values": groups, "key": groups}
        tensors = {name: getattr(self, name) for name in by_axis}
        chosen = {name: part[by_axis[name]] for name, part in tensors.items() if part is not None and part.numel()}
        terms = None if self.terms is None else self.terms.cut(places)
        return replace(self, heads=heads, weights=weights, terms=terms, **chosen)

    def rows(self, queries: slice, weights: Tensor, output: Tensor, weighted_logs: Tensor | None = None) -> Layer:
        """Return some queries of the layer, with their weights and weighted logs [H, R, K'], output [H, R, D], and the first K' keys; `axes` and `inputs` stay whole."""
        seen = weights.shape[2]
        return replace(
            self,
            weights=weights,
            output=output,
            weighted_logs=weighted_logs,
            keys=self.keys.cut(queries, seen),
            query=self.query[:, queries],
            key=self.key[:, :seen],
            values=self.values[:, :seen],
            gate=None if self.gate is None else self.gate[:, queries],
            terms=None if self.terms is None else self.terms.rows(queries, seen),
        )

    @property
    def special(self) -> tuple[Tensor, Tensor]:
        """Which queries [Q] and which keys [K] are special tokens, as bool tensors."""
        queries, keys = ([token.kind == "special" for token in side] for side in (self.axes.queries, self.axes.keys))
        return torch.tensor(queries), torch.tensor(keys)

    @property
    def values_by_head(self) -> Tensor:
        """The values that each head reads, [H, K, D]: those of a key/value head are repeated for every head of its group."""
        group = self.weights.shape[0] // self.values.shape[0]
        return self.values if group == 1 else self.values.repeat_interleave(group, dim=0)  # [G, K, D] -> [H, K, D]

    @property
    def written(self) -> Tensor:
        """The outputs of the heads as the output projection reads them: after the gate, if there is one. [H, Q, D]."""
        return self.output if self.gate is None else self.output * self.gate

    def project(self, outputs: Tensor) -> Tensor:
        """Apply the gate and the output projection, without its bias, to outputs of the heads [H, Q, D] and add them up: [Q, d] in float64."""
        projection = required(self.projection)  # [H, D, d]
        result = outputs.new_zeros(outputs.shape[1], projection.shape[2], dtype=torch.float64)
        # Head by head, since all of it in float64 can be large.
        for head, (output, part) in enumerate(zip(outputs, projection, strict=True)):
            gated = output.double() if self.gate is None else output.double() * self.gate[head].double()
            result.addmm_(gated, part.double())
        return result

    def marked(self, which: Marks) -> tuple[Tensor, Tensor]:
        """Return which queries [1 or H, Q] and which keys [1 or H, K] of the whole input are such tokens: one row, or one per head if inputs differ in them."""
        inputs = self.inputs or BatchTokens((self.axes,))
        queries, keys = inputs.marked(which)
        each = 1 if len(queries) == 1 else len(self.heads) // len(inputs.axes)
        return queries.repeat_interleave(each, 0), keys.repeat_interleave(each, 0)


@dataclass(frozen=True, slots=True)
class Span:
    """A projected map as coefficients · basisᵀ, without the keys that a causal row does not see.

    coefficients [H, Q - F, D], basis [G, K, D]; the first F rows are those of the map.
    """

    coefficients: Tensor
    basis: Tensor
    causal: bool = False

    def part(self, size: int, number: int) -> Span:
        """Return the span of one of `size` inputs whose heads follow one another."""
        coefficients, basis = (one.chunk(size)[number] for one in (self.coefficients, self.basis))
        return Span(coefficients, basis, self.causal)

    @property
    def first(self) -> int:
        """The number F of rows without coefficients."""
        return self.basis.shape[1] - self.coefficients.shape[1] if self.causal else 0


@dataclass(frozen=True, slots=True)
class Reading:
    """What a lens computes from a layer: the map, and facts about it.

    map       [H, Q, K]  NaN in rows that have no reading; H is 1 for lenses of whole layers
    signed               whether entries may be negative
    rank      [H]     numerical rank of the head's values, where the lens decides one
    condition [H]     upper bound of their condition number (largest over smallest non-zero singular value)
    identical [H]     True where the map is the weights themselves, exactly
    undefined [H]     number of rows without a reading
    kept      [H, Q]  share of the squared row norm of the weights that the map keeps, 0..1
    leverage  [H, K]  diagonal of the projection, 0..1
    span              what determines the projection, where it is less than the map
    """

    map: Tensor
    signed: bool = False
    rank: Tensor | None = None
    condition: Tensor | None = None
    identical: Tensor | None = None
    undefined: Tensor | None = None
    kept: Tensor | None = None
    leverage: Tensor | None = None
    span: Span | None = None
    _made: dict[Callable[[Tensor], Tensor], Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, make: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `make(map)`, computed once for all measures that use it."""
        if make not in self._made:
            self._made[make] = make(self.map)
        return self._made[make]

    def row_sums(self) -> Tensor:
        """Return the sum of every row, [H, Q]."""
        return self.once(_row_sums)


def _row_sums(rows: Tensor) -> Tensor:
    return rows.sum(-1)


@dataclass(frozen=True, slots=True)
class ResultWarning:
    """A warning about a result or one of its lenses, in one sentence."""

    code: str
    message: str
    lens: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        return {"code": self.code, "lens": self.lens, "message": self.message}
