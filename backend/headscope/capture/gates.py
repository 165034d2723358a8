"""What multiplies the heads' outputs before the output projection: gates, and normalisations with their statistics held fixed.

A model computes such a factor from the hidden state in its own way, so it is never recomputed here. The module that attends is run again, up to the output
projection, with outputs that are known: what reaches the projection, divided by them, is the factor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

import torch
from torch import Tensor

from .closeness import is_close
from .interface import AttentionCall, Masks, Reached, recording

# What a factor depends on, besides the query's hidden state: nothing, the root mean square of all heads' outputs, or that of the head's own output.
# They are tried in this order: outputs that keep the root mean square of every head keep that of all, too.
Follows = Literal["query", "heads", "head"]
FOLLOWS: tuple[Follows, ...] = ("query", "heads", "head")
SMALLEST = 1e-20  # root mean square of outputs that are all 0: small for any normalisation, and far from underflow

Arguments = tuple[Any, Any]


class _Substitute:
    """A recorder that gives known outputs [B, H, Q, D] instead of attending."""

    def __init__(self, outputs: Tensor) -> None:
        self.masks, self.size, self.home, self._outputs = Masks(), len(outputs), outputs.device, outputs

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the outputs."""
        return self._outputs

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor:
        """Return the outputs [B, Q, H, D]."""
        return self._outputs.transpose(1, 2).contiguous()


def reaching(module: Any, arguments: Arguments, outputs: Tensor, projection: Any) -> Tensor | None:
    """Return what the projection is given, [B, H, Q, D], if the module's attention gives these outputs; None if it is not called on such vectors."""
    size, heads, queries, width = outputs.shape
    seen: list[Tensor] = []

    def stop(part: Any, args: Any, kwargs: Any) -> None:
        seen.extend(one for one in (*args, *kwargs.values()) if isinstance(one, Tensor))
        raise Reached

    handle = projection.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with recording(_Substitute(outputs)), suppress(Reached):
            module.forward(*arguments[0], **arguments[1])
    finally:
        handle.remove()
    if not seen or seen[0].numel() != outputs.numel() or seen[0].shape[-1] != heads * width:
        return None
    reached = seen[0].to(outputs.device).reshape(size, queries, heads, width)  # from [B, Q, H D] or [B Q, H D]
    return reached.transpose(1, 2)  # [B, Q, H, D] -> [B, H, Q, D]


def factors(module: Any, arguments: Arguments, outputs: Tensor, projection: Any, follows: Follows) -> Tensor | None:
    """Return what multiplies the heads' outputs [B, H, Q, D] before the projection, of the same shape. None if nothing reaches the projection."""
    level = torch.ones_like(outputs[..., :1])
    if follows != "query":
        axes = (1, 3) if follows == "heads" else (3,)
        level = outputs.float().square().mean(axes, keepdim=True).sqrt().expand(level.shape).to(outputs.dtype)
        level = level.clamp_min(max(SMALLEST, torch.finfo(outputs.dtype).tiny))
    found = reaching(module, arguments, level.expand(outputs.shape), projection)
    return found if found is None or follows == "query" else found / level


def find_factor(module: Any, arguments: Arguments, outputs: Tensor, projection: Any) -> tuple[Follows, Tensor] | None:
    """Return what a factor between the heads' outputs [1, H, Q, D] and the projection depends on, and the factor for these outputs, if there is one.

    There is if it explains what reaches the projection from these outputs, and from random ones, entry by entry.
    """
    drawn = torch.randn(outputs.shape, generator=torch.Generator("cpu").manual_seed(0), device="cpu").to(outputs.device)
    sizes = torch.arange(1, outputs.shape[1] + 1, device=outputs.device)[:, None, None]  # heads differ
    for follows in FOLLOWS:
        found = _explaining(module, arguments, outputs, projection, follows)
        if (
            found is None
            or _explaining(module, arguments, (drawn * sizes).to(outputs.dtype), projection, follows) is None
        ):
            continue
        return follows, found
    return None


def _explaining(module: Any, arguments: Arguments, outputs: Tensor, projection: Any, follows: Follows) -> Tensor | None:
    """Return the factor for these outputs, None if it does not give what reaches the projection."""
    try:
        found = factors(module, arguments, outputs, projection, follows)
        reached = reaching(module, arguments, outputs, projection)
    except Exception:  # noqa: BLE001 - a module that is run again may raise anything
        return None
    return None if found is None or reached is None or not is_close(found * outputs, reached) else found


class GateReader:
    """Reads the factors of a pass with `size` inputs, at the sites that have them."""

    def __init__(self, modules: Mapping[str, Any], sites: Sequence[Any], size: int) -> None:
        self._modules, self._size = modules, size
        self._names = {site.module for site in sites if site.follows is not None}
        self._arguments: dict[int, Arguments] = {}
        self._last: tuple[Any, Tensor] | None = (
            None  # of factors that follow the query alone: they are the same for all blocks
        )

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Remember what the modules that attend are called with."""
        handles = [
            self._modules[name].register_forward_pre_hook(self._remember, with_kwargs=True) for name in self._names
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _remember(self, module: Any, args: Any, kwargs: Any) -> None:
        self._arguments = {id(module): (args, kwargs)}
        self._last = None

    def read(self, site: Any, outputs: Tensor, places: Sequence[int], heads: slice) -> Tensor:
        """Return the factors of a block of heads of some inputs, [b, h, Q, D], given those heads' outputs."""
        module = self._modules[site.module]
        if self._last is not None and self._last[0] is module:
            return self._last[1][list(places), heads]
        whole = outputs.new_zeros(self._size, site.heads, *outputs.shape[2:])
        whole[list(places), heads] = outputs
        found = factors(module, self._arguments[id(module)], whole, self._modules[site.projection], site.follows)
        if found is None:
            raise RuntimeError("the output projection was not reached")
        if site.follows == "query":
            self._last = (module, found)
        return found[list(places), heads]
