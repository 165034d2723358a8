"""The nouns that everything else speaks of. Axis letters: L layers, H heads, G key/value heads, Q queries, K keys, D head width, d model width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

# Weights computed at once: larger layers go through in blocks of heads. Small enough for the cache, so faster than whole layers, and memory stays that of
# a few blocks whatever the length.
BLOCK_BYTES = 4 * 1024 * 1024

TokenKind = Literal["special", "punct", "word", "subword"]
ModelKind = Literal["encoder", "decoder", "encoder-decoder", "vision"]
Kind = Literal["self", "encoder", "decoder", "cross"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the input.

    `text` is what stands at [start, end) of the text (of the second text when `segment` is 1), in characters; special and unknown tokens
    carry their own name. `word` counts the words of both texts from 0 and is None for special tokens. `pos` and `label` are the part of speech and the
    entity label that came with the request. A patch of an image has a `box` [left, top, right, bottom) in pixels of the image as the model sees it.
    """

    text: str
    id: int
    start: int
    end: int
    word: int | None
    segment: int
    kind: TokenKind
    pos: str | None = None
    label: str | None = None
    box: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Axes:
    """The tokens along axes Q and K of a map: the same ones, but for cross-attention."""

    queries: tuple[Token, ...]
    keys: tuple[Token, ...]

    @property
    def same(self) -> bool:
        """Whether queries and keys are the same tokens."""
        return self.queries == self.keys


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

    def allowed(self, queries: int, keys: int) -> Tensor:
        """The same as a mask [Q, K] (bool)."""
        import torch

        if self.mask is not None:
            return self.mask
        every = torch.ones(queries, keys, dtype=torch.bool)
        return every if self.rule == "all" else every.tril()


@dataclass(frozen=True, slots=True)
class Scores:
    """What some heads of one layer are about to turn into weights. A mechanism gets this and gives the weights [H, Q, K].

    In training all tensors have an axis of the batch before these: query [B, H, Q, D'], blocked [B, 1 or H, Q, K], weights [B, H, Q, K].

    query [H, Q, D'], key [H, K, D']  as the model multiplies them (after rotary embeddings and the like)
    scaling   what their products are multiplied by, 1 / sqrt(D') in most models
    softcap   c in c * tanh(x / c), applied to the scaled products
    bias      [1 or H, Q, K]  relative positions and the like, added to the scaled products
    blocked   [1 or H, Q, K]  True where a query may not attend; None if it may attend everywhere
    sink      [H, 1 or Q, 1]  logit of a learned sink that is no key: it takes its share of every row, so rows sum to less than 1
    """

    layer: int
    heads: tuple[int, ...]
    query: Tensor
    key: Tensor
    scaling: float
    softcap: float | None
    bias: Tensor | None
    blocked: Tensor | None
    sink: Tensor | None

    def products(self) -> Tensor:
        """query · key, [H, Q, K]: neither scaled nor masked. A new tensor at every call."""
        return self.query @ self.key.mT

    def logits(self, products: Tensor) -> Tensor:
        """Products [H, Q, K] scaled, capped and biased, in place where gradients allow it; not masked."""
        logits = products.mul_(self.scaling)
        if self.softcap is not None:
            logits = logits.div_(self.softcap).tanh().mul(self.softcap)
        return logits if self.bias is None else logits.add_(self.bias)

    def softmax(self, logits: Tensor) -> Tensor:
        """Logits [H, Q, K] masked, in place, and normalised over the keys each query may see: the weights."""
        import torch

        if self.blocked is not None:
            logits = logits.masked_fill_(self.blocked, torch.finfo(logits.dtype).min)
        if self.sink is None:
            return logits.softmax(-1)
        sink = self.sink.to(logits.dtype).expand(*logits.shape[:-1], 1)
        return torch.cat([logits, sink], dim=-1).softmax(-1)[..., :-1]


class Pass:
    """One forward pass under a mechanism. This one changes nothing; mechanisms override what they change. Layers come in order, heads in blocks."""

    def enter(self, layer: int, hidden: Tensor) -> Tensor:
        """Hidden states [Q, d] that a layer is about to read -> those that it shall read."""
        return hidden

    def attend(self, scores: Scores) -> Tensor:
        """Weights [H, Q, K] of a block of heads."""
        return scores.softmax(scores.logits(scores.products()))

    def leave(self, layer: int, heads: tuple[int, ...], output: Tensor) -> Tensor:
        """Outputs [H, Q, D] of a block of heads -> those that go into the output projection."""
        return output


@dataclass(frozen=True, slots=True)
class Setting:
    """What a mechanism may know before the forward pass: heads of every layer, model width, kind of attention, whether it is causal, and the tokens.

    `layers` are the numbers of the layers that attend, for models in which some do not; None stands for 0, 1, 2, ... `vectors` [layers, specials, d] are
    those that the model was tuned with, if it was tuned by special tokens. In training there are no axes, since each row of a batch has its own tokens, but
    `special` [B, S]: the places of their special tokens, if they were asked for.
    """

    heads: tuple[int, ...]
    width: int
    kind: Kind
    causal: bool
    axes: Axes
    layers: tuple[int, ...] | None = None
    vectors: list[list[list[float]]] | None = None
    special: Tensor | None = None

    @property
    def heads_of(self) -> dict[int, int]:
        """Number of heads of every layer that attends, by the layer's number."""
        numbers = range(len(self.heads)) if self.layers is None else self.layers
        return dict(zip(numbers, self.heads, strict=True))


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


# Which tokens of an input are of some kind.
Marks = Callable[[tuple[Token, ...]], list[bool]]


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The tokens of several inputs that are equally long. What is said of them is made once: layers share it."""

    axes: tuple[Axes, ...]
    _made: dict[Marks, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def marked(self, which: Marks) -> tuple[Tensor, Tensor]:
        """Which queries [1 or B, Q] and which keys [1 or B, K] are some tokens, as bool tensors; 1 where it is the same of all inputs."""
        import torch

        if which not in self._made:
            every = [(which(axes.queries), which(axes.keys)) for axes in self.axes]
            queries, keys = zip(*(every[:1] if all(one == every[0] for one in every) else every), strict=True)
            self._made[which] = torch.tensor(queries), torch.tensor(keys)
        return self._made[which]


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
        import torch

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
class Warned:
    """Something to say about a result, in one sentence, next to what it is about."""

    code: str
    message: str
    lens: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        return {"code": self.code, "lens": self.lens, "message": self.message}
