"""What every mechanism is made of: its declaration, the pass it runs, and what that pass is given. Axis letters are those of `core.attention`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.attention import Kind
from ..core.declarations import Declaration
from ..core.lazy import Tensor, torch
from ..core.tokens import Axes


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
class PassContext:
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


@dataclass(frozen=True, kw_only=True)
class Mechanism(Declaration):
    """How the model attends. `begin` takes its parameters and the setting and gives the pass.

    `begin` raises InvalidRequest (parameters that do not fit the model) or Unsupported (models that it can't be combined with).
    """

    begin: Callable[[Any, PassContext], Pass]
