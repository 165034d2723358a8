"""Weights of 16 bits that stay so in memory while the model computes in a wider type: a large part widens its own, and only while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

from ..core.lazy import Tensor, torch
from .dispatch import hooks_of
from .parts import every_part
from .quantisation import is_plain

# Weights are widened part by part if all together would take more bytes than this in addition.
MOST_ADDED = 2**30
# Numbers of a weight from which on a part is large: the others are vectors, and what models may use outside of the module that holds it.
LEAST = 2**18
# Numbers of a linear layer's weight that are widened at a time.
BLOCK = 2**22

# Models that use a large weight outside of the module that holds it, so that it has to be there in the wide type.
_at_once: WeakSet[Any] = WeakSet()


class WideningHook:
    """A hook in the form of accelerate's, see `dispatch`: the part's weights are present in the wide type, and at other times a stand-in for each.

    narrow    name -> weight as it is in memory
    """

    offload = True

    def __init__(self, part: Any, dtype: torch.dtype) -> None:
        self._table = part._parameters  # noqa: SLF001 - as accelerate does
        self.dtype, self.narrow = dtype, {name: one for name, one in self._table.items() if _is_narrow(one, dtype)}
        self.execution_device = next(iter(self.narrow.values())).device
        self._stand_ins = {name: _parameter(one.to("meta", dtype)) for name, one in self.narrow.items()}

        self._table.update(self._stand_ins)
        self._running = 0  # also more than once: what attends is run again while it runs, to see its gate

    def pre_forward(self, part: Any, *args: Any, **kwargs: Any) -> None:
        """Put the widened weights in place."""
        if not self._running:
            self._table.update({name: _parameter(one.to(self.dtype)) for name, one in self.narrow.items()})
        self._running += 1

    def post_forward(self, part: Any, output: Any) -> None:
        """Put the stand-ins in place."""
        self._running -= 1
        if not self._running:
            self._table.update(self._stand_ins)

    def remove(self) -> None:
        """Put the weights themselves in place."""
        self._table.update(self.narrow)


class _Hooks:
    """Hooks of a part, in their order."""

    def __init__(self, *hooks: Any) -> None:
        self.hooks = hooks


def _is_narrow(tensor: Tensor | None, dtype: torch.dtype) -> bool:
    return (
        tensor is not None
        and not tensor.is_meta
        and is_plain(tensor)
        and torch.finfo(tensor.dtype).bits < torch.finfo(dtype).bits
    )


def _parameter(data: Tensor) -> Any:
    return torch.nn.Parameter(data.detach(), requires_grad=False)


def is_large(numbers: int, stored: torch.dtype, dtype: torch.dtype) -> bool:
    """Return whether so many weights are widened part by part."""
    return numbers * (dtype.itemsize - stored.itemsize) > MOST_ADDED


def large_parts(module: Any, parts: list[Any], dtype: torch.dtype) -> list[Any]:
    """Return those of the module's parts that widen their weights to `dtype` only while they run; none if all weights can be widened at once."""
    tables = [part._parameters.values() for part in parts]  # noqa: SLF001 - many times faster than parameters()
    narrow = {id(one): one for table in tables for one in table if _is_narrow(one, dtype)}
    added = sum(one.numel() * (dtype.itemsize - one.element_size()) for one in narrow.values())
    if added <= MOST_ADDED or module in _at_once:
        return []
    large = {name for name, one in narrow.items() if one.numel() >= LEAST}
    return [part for part, table in zip(parts, tables, strict=True) if any(id(one) in large for one in table)]


def widen_at_once(module: Any, dtype: torch.dtype) -> bool:
    """Widen all weights of the module at once from now on. Return whether that is a change."""
    changed = bool(large_parts(module, every_part(module), dtype))
    if changed:
        _at_once.add(module)
    return changed


@contextmanager
def widened(parts: list[Any], dtype: torch.dtype) -> Iterator[None]:
    """Let these parts compute in `dtype`; their weights, hooks and methods are restored on exit."""
    changed = list[tuple[Any, WideningHook, dict[str, Any]]]()
    try:
        for part in parts:
            before = {name: vars(part)[name] for name in ("forward", "_hf_hook") if name in vars(part)}
            hook = WideningHook(part, dtype)
            changed.append((part, hook, before))
            part.forward, part._hf_hook = _forward(part, hook), _Hooks(*hooks_of(part), hook)  # noqa: SLF001
        yield
    finally:
        for part, hook, before in changed:
            hook.remove()
            for name in ("forward", "_hf_hook"):
                vars(part).pop(name, None)
            vars(part).update(before)


def _forward(part: Any, hook: WideningHook) -> Callable[..., Any]:
    """Return the forward method of a part: if it is torch's own, without the whole weight in the wide type."""
    own = "forward" not in vars(part) and "weight" in hook.narrow
    if own and type(part) is torch.nn.Linear:
        return partial(_linear, part, hook)
    if own and type(part) is torch.nn.Embedding and part.max_norm is None:
        return partial(_embed, part, hook)
    return partial(_run, part, hook, part.forward)


def _run(part: Any, hook: WideningHook, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    hook.pre_forward(part)
    try:
        return forward(*args, **kwargs)
    finally:
        hook.post_forward(part, None)


def _linear(part: Any, hook: WideningHook, vectors: Tensor) -> Tensor:
    weight, bias = hook.narrow["weight"], hook.narrow.get("bias", part.bias)
    size = max(1, BLOCK // weight.shape[1])
    blocks = [slice(low, low + size) for low in range(0, len(weight), size)]
    outputs = [
        torch.nn.functional.linear(
            vectors, weight[rows].to(hook.dtype), None if bias is None else bias[rows].to(hook.dtype)
        )
        for rows in blocks
    ]
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)


def _embed(part: Any, hook: WideningHook, ids: Tensor) -> Tensor:
    found: Tensor = torch.nn.functional.embedding(ids, hook.narrow["weight"], part.padding_idx).to(hook.dtype)
    return found
