"""The parts of a mechanism: its declaration, its forward pass, and what the pass receives. Axis letters are those of `core.attention`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import frexp
from typing import Any

from ..core.declarations import Declaration
from ..core.lazy import Tensor, torch
from ..core.tokens import Axes


@dataclass(frozen=True, slots=True)
class Scores:
    """The inputs from which some heads of one layer compute their weights [H, Q, K].

    In training all tensors have a batch axis before these: query [B, H, Q, D'], blocked [B, 1 or H, Q, K], weights [B, H, Q, K].

    query [H, Q, D'], key [H, K, D']  as the model multiplies them (after rotary embeddings, for example)
    scaling   factor of their products, 1 / sqrt(D') in most models
    softcap   c in c * tanh(x / c), applied to the scaled products
    bias      [1 or H, Q, K]  added to the scaled products, such as relative positions
    blocked   [1 or H, Q, K - free]  True where a query may not attend, without the first `free` keys, to which all may; None if it may attend everywhere
    sink      [H, 1 or Q, 1]  logit of a learned sink, which is not a key: it takes a share of every row, so rows sum to less than 1
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
    free: int = 0

    def rows(self, queries: slice, keys: slice, blocked: Tensor | None, free: int) -> Scores:
        """Return the scores of some queries with some keys; of those from the `free`-th on, they are `blocked` [1 or H, R, K - free] from some.

        A factor that changes no digits, such as 1/8, is applied to the queries, which are fewer numbers than their products.
        """
        sink, bias = self.sink, self.bias
        exact = frexp(self.scaling)[0] == 0.5
        return replace(
            self,
            query=self.query[:, queries] * self.scaling if exact else self.query[:, queries],
            key=self.key[:, keys],
            scaling=1.0 if exact else self.scaling,
            bias=None if bias is None else bias[:, queries, keys],
            blocked=blocked,
            sink=sink if sink is None or sink.shape[1] == 1 else sink[:, queries],
            free=free,
        )

    def products(self, out: Tensor | None = None) -> Tensor:
        """Return query · key, [H, Q, K], neither scaled nor masked, in `out` or a new tensor."""
        return torch.matmul(self.query, self.key.mT, out=out)

    def logits(self, products: Tensor) -> Tensor:
        """Scale, cap and bias products [H, Q, K], in place where gradients allow it; no mask."""
        logits = products if self.scaling == 1 else products.mul_(self.scaling)
        if self.softcap is not None:
            logits = logits.div_(self.softcap).tanh().mul(self.softcap)
        return logits if self.bias is None else logits.add_(self.bias)

    def softmax(self, logits: Tensor, out: Tensor | None = None) -> Tensor:
        """Mask logits [H, Q, K] in place and normalise them over the keys each query may see: the weights, in `out` or a new tensor."""
        if self.blocked is not None:
            logits[..., self.free :].masked_fill_(self.blocked, torch.finfo(logits.dtype).min)
        if self.sink is None:
            return torch.softmax(logits, -1, out=out)
        sink = self.sink.to(logits.dtype).expand(*logits.shape[:-1], 1)
        return torch.cat([logits, sink], dim=-1).softmax(-1)[..., :-1]


class Pass:
    """A forward pass under a mechanism. This one changes nothing; mechanisms override what they change. Layers run in order, heads in blocks."""

    def enter(self, layer: int, hidden: Tensor) -> Tensor:
        """Return the hidden states [Q, d] that a layer reads, given those that it would read."""
        return hidden

    def attend(self, scores: Scores) -> Tensor:
        """Return the weights [H, Q, K] of a block of heads."""
        return scores.softmax(scores.logits(scores.products()))

    def leave(self, layer: int, heads: tuple[int, ...], output: Tensor) -> Tensor:
        """Return what goes into the output projection, given the outputs [H, Q, D] of a block of heads."""
        return output


@dataclass(frozen=True, slots=True)
class PassContext:
    """What a mechanism knows before the forward pass: the number of heads of every layer with attention, by its index, the model's width, and the tokens.

    `vectors` [layers, specials, d] are those of a model tuned by vectors at special tokens. In training each row of a batch has its own tokens, so `axes` are
    empty; if needed, `special` [B, S] are the positions of the special tokens. `continued` if the tokens follow others whose keys and values are in a cache.
    """

    heads: Mapping[int, int]
    width: int
    axes: Axes
    vectors: list[list[list[float]]] | None = None
    special: Tensor | None = None
    continued: bool = False


@dataclass(frozen=True, kw_only=True)
class Mechanism(Declaration):
    """A way for the model to attend. `begin` takes its parameters and the context and returns the pass.

    `begin` raises InvalidRequest for parameters that do not fit the model, and Unsupported for models that it does not work with.
    With `softmax`, weights are the softmax of scores: passes of the mechanism do not override `attend`.
    """

    begin: Callable[[Any, PassContext], Pass]
    softmax: bool = True
