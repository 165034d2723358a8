"""The outputs of a model when one head reads a change of another head's output on the direct path, and nothing else does.

Two parts of a pass for each batch of senders. In the first, which ends at the receiver's attention, feed-forward parts give and output projections read what they did
before, but for the senders': so the change reaches the receiver through the residual stream and the normalisations on it alone. The second begins at the
receiver's layer, as it was before, and exchanges the receiver's query, key or value only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.attention import Kind
from ..errors import Unsupported
from ..models.loading import Model
from ..models.tokens import Encoded
from .closeness import is_close, tolerance
from .direct import PlainRecorder, added_parts
from .interface import NAME, AttentionCall, Reached, attending_with
from .replaced import NOT_AGAIN, Replace, ReplacedLogits, Runner, replaced_forward
from .sites import AttentionSites

Side = Literal["query", "key", "value"]


def path_logits(
    model: Model,
    encoded: Encoded,
    sites: AttentionSites,
    kind: Kind,
    exchange: Replace,
    ids: Sequence[int],
    position: int | None,
    receiver: tuple[int, int],
    side: Side,
) -> ReplacedLogits:
    """Return the logits `ids`, by default the largest, when the receiver reads each earlier head replaced; those of later ones are as they were.

    `receiver` is the number of a site and a head. Otherwise as replaced_logits.
    """
    runner = _HeldRunner(model, encoded, sites, kind, position, receiver, side)
    with torch.inference_mode(), attending_with(NAME, model.module), runner.hooks():
        logits = runner.first()
        ids = list(ids) or [int(logits.argmax())]
        runner.check(logits[ids], ids)
        runner.check_still()
        found = []
        for number, site in enumerate(runner.sites):
            rows = logits[ids].expand(site.heads, -1).clone()
            for part in runner.batches(range(site.heads) if number < receiver[0] else ()):
                rows[list(part)] = runner.send({number: [(head,) for head in part]}, exchange)[:, ids]
            found.append(rows)
    return ReplacedLogits(logits, tuple(ids), found)


class _HeldRunner(Runner):
    """A model in which one head, the receiver, reads something else."""

    def __init__(
        self,
        model: Model,
        encoded: Encoded,
        sites: AttentionSites,
        kind: Kind,
        position: int | None,
        receiver: tuple[int, int],
        side: Side,
    ) -> None:
        super().__init__(model, encoded, sites, kind, position)
        self._number, self._head = receiver
        self._side = side
        self._still: Tensor | None = None  # the receiver's side as it is, [1, n, D]
        # By name and number of the layer's call, what parts gave and projections read.
        self._before: dict[tuple[str, int], Any] = {}
        self._mode: Literal["as it is", "on the path", "after it"] = "as it is"
        self._given: Tensor | None = None  # the receiver's side in each copy, [B, n, D]
        self._size, self._within = 1, False

    def send(self, heads: dict[int, Sequence[Sequence[int]]], exchange: Replace) -> Tensor:
        """Return the logits [B, vocabulary] when the receiver reads some heads of one site replaced, in each copy."""
        self._given = self._arrive(heads, exchange)
        self._mode = "after it"
        return self.again({self._number: [()] * len(self._given)}, lambda number, written, heads: written)

    def check_still(self) -> None:
        """Raise Unsupported unless the receiver reads what it did when nothing is replaced."""
        arrived, still = self._arrive({0: [()]}, lambda number, written, heads: written), self._still
        if still is None or not is_close(arrived, still, 10 * tolerance(still.dtype)):
            raise Unsupported(NOT_AGAIN, pointer="/model")

    def _arrive(self, heads: dict[int, Sequence[Sequence[int]]], exchange: Replace) -> Tensor:
        self._mode, self._given = "on the path", None
        with suppress(Reached):
            self.again(heads, exchange)
        if self._given is None:
            raise Unsupported(NOT_AGAIN, pointer="/model")
        return self._given

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Also watch the parts that add to the stream."""
        parts = list(added_parts(dict(self.model.module.named_modules()), self.sites))
        with super().hooks(), ExitStack() as stack:
            for name, part in parts:
                stack.enter_context(replaced_forward(part, partial(self._add, name, part.forward)))
            yield

    def recorder(self, size: int) -> PlainRecorder:
        """Return a recorder that hands the call of the receiver's site to `receive`."""
        self._size = size
        modules = {id(self.model.module.get_submodule(str(site.module))) for site in self.sites}
        before = self._number - (self.upcoming if self.changes else 0)
        return _ReceiverRecorder(self.model, self.all, size, modules, before, self._receive)

    def _receive(self, call: AttentionCall, attend: Callable[[AttentionCall], Tensor]) -> Tensor:
        """Return the outputs [B, H, Q, D] of the receiver's site. Raises Reached where a path ends."""
        one = _of_head(call, self._head)
        if self._mode == "on the path":
            self._given = getattr(one, self._side)[:, 0]
            raise Reached
        outputs = attend(call)
        if self._mode == "after it" and self._given is not None:
            given: dict[str, Any] = {self._side: self._given[:, None]}
            outputs[:, self._head] = attend(replace(one, **given))[:, 0]
        elif self._mode == "as it is":
            self._still = getattr(one, self._side)[:, 0]
        return outputs

    def _read(self, name: str, part: Any, args: Any) -> Any:
        sends = self.upcoming in self.changes
        changed = super()._read(name, part, args)
        return changed if sends else self._hold(name, part, args)

    def _hold(self, name: str, part: Any, args: Any) -> Any:
        """Let a projection on the path read what it did before."""
        if self._mode == "as it is":
            self._before[name, self._calls] = args[0]
        if self._mode != "on the path":
            return None
        return _repeated(self._before[name, self._calls], self._size), *args[1:]

    def _add(self, name: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a part, or return what it gave before if it is on the path. One that reads two things adds to one of them itself, so its own parts are held."""
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor) and one.is_floating_point()]
        if self._within or self._mode == "after it" or len(given) != 1:
            return forward(*args, **kwargs)
        if self._mode == "on the path":
            return _repeated(self._before[name, self._calls], self._size)
        self._within = True
        try:
            self._before[name, self._calls] = forward(*args, **kwargs)
        finally:
            self._within = False
        return self._before[name, self._calls]


class _ReceiverRecorder(PlainRecorder):
    """Hands one call of some modules to `receive`: the one after `before` others."""

    def __init__(
        self,
        model: Model,
        sites: AttentionSites,
        size: int,
        modules: set[int],
        before: int,
        receive: Callable[[AttentionCall, Callable[[AttentionCall], Tensor]], Tensor],
    ) -> None:
        super().__init__(model, sites, size=size)
        self._modules, self._before, self._receive = modules, before, receive

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [B, H, Q, D]."""
        if id(call.module) not in self._modules:
            return super().attend(call)
        self._before -= 1
        return self._receive(call, super().attend) if self._before == -1 else super().attend(call)


def _repeated(value: Any, size: int) -> Any:
    """Repeat tensors whose first axis is that of the inputs, or of the inputs and tokens together, as some models flatten them."""
    if isinstance(value, tuple):
        return tuple(_repeated(one, size) for one in value)
    return value.repeat(size, *[1] * (value.dim() - 1)) if isinstance(value, Tensor) else value


def _of_head(call: AttentionCall, head: int) -> AttentionCall:
    """Return the call of one head, with its own keys and values."""
    group, mask = slice(head // call.per_group, head // call.per_group + 1), call.masks[0]
    own = slice(head, head + 1)
    if mask.bias is not None and mask.bias.shape[0] > 1:
        mask = replace(mask, bias=mask.bias[own])
    return replace(
        call,
        query=call.query[:, own],
        key=call.key[:, group],
        value=call.value[:, group],
        masks=[mask] * len(call.masks),
        sink=None if call.sink is None else call.sink[own],
    )
