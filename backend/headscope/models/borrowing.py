"""Modules on loan from their owner: one thread uses a module at a time, and every setting is restored afterwards, also after an exception."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from operator import itemgetter
from threading import RLock
from typing import Any
from weakref import ReferenceType, ref

import torch

COMPILED = "_compiled_call_impl"  # attribute that torch.nn.Module.compile() sets, and __call__ then calls
# Identity of a part of a module, or of a configuration -> the part while it lives, its place in the order in which locks are taken, and its lock.
_locks: dict[int, tuple[ReferenceType[Any], int, Any]] = {}
_numbers = count()
_registry = RLock()  # reentrant: an owner may be collected, and leave the table, at any time


@contextmanager
def exclusive(module: Any) -> Iterator[None]:
    """Hold the locks of all parts of the module and of their configurations.

    The locks belong to the parts, not to a wrapper: two modules that share a part or a configuration object exclude each other. They are reentrant,
    and always taken in the same order.
    """
    with ExitStack() as held:
        for lock in _locks_of([*module.modules(), *configurations(module)]):
            held.enter_context(lock)
        yield


def _locks_of(owners: list[Any]) -> list[Any]:
    """Return the lock of each owner, in the order in which all threads take them."""
    with _registry:
        known = sorted((_lock_of(owner) for owner in owners), key=itemgetter(1))
        return [lock for _, _, lock in known]


def _lock_of(owner: Any) -> tuple[ReferenceType[Any], int, Any]:
    name = id(owner)
    known = _locks.get(name)
    if known is None or known[0]() is not owner:
        known = _locks[name] = ref(owner, partial(_forget, name)), next(_numbers), RLock()
    return known


def _forget(name: int, gone: ReferenceType[Any]) -> None:
    """Remove an owner that no longer exists, unless a new one has taken its identity."""
    with _registry:
        if name in _locks and _locks[name][0] is gone:
            del _locks[name]


def configurations(module: Any) -> list[Any]:
    """Return every configuration object of the module's parts, nested ones included, each once."""
    found: dict[int, Any] = {}
    waiting = [vars(part).get("config") for part in module.modules()]
    while waiting:
        config = waiting.pop()
        if callable(getattr(type(config), "to_json_string", None)) and id(config) not in found:
            found[id(config)] = config
            waiting += vars(config).values()
    return list(found.values())


def adapters(module: Any) -> str:
    """Return which adapters of peft are active in which part, with their scale: it changes what a module computes and is no parameter. Empty without any."""
    state = [
        (name, str(part.active_adapters), part.disable_adapters, str(part.merged_adapters), str(part.scaling))
        for name, part in module.named_modules()
        if hasattr(part, "base_layer") and hasattr(part, "active_adapters")
    ]
    return str(state) if state else ""


@contextmanager
def configured(module: Any) -> Iterator[None]:
    """Restore every configuration attribute of the module on exit, such as the attention implementation of each sub-model."""
    before = [(vars(config), dict(vars(config))) for config in configurations(module)]
    try:
        yield
    finally:
        for now, kept in before:
            for name in now.keys() - kept.keys():
                del now[name]
            now.update(kept)


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Run the module in eval mode and uncompiled; the mode of every single part is restored on exit."""
    training = [part for part in module.modules() if part.training]
    compiled = [(vars(part), call) for part in module.modules() if (call := getattr(part, COMPILED, None)) is not None]
    try:
        if training:
            module.eval()
        for attributes, _ in compiled:
            attributes[COMPILED] = None
        yield
    finally:
        for part in training:
            part.training = True
        for attributes, call in compiled:
            attributes[COMPILED] = call


@contextmanager
def converted(module: Any, dtype: torch.dtype) -> Iterator[None]:
    """Compute in `dtype` within this context: parameters and buffers are replaced by converted copies, and the very same tensors are restored on exit.

    A narrower type leaves non-persistent buffers as they are, such as the frequencies of rotary embeddings: from_pretrained(dtype=...) does the same.
    """
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        for tensor in _convertible(module, dtype):
            kept.append((tensor, tensor.data))
            tensor.data = tensor.data.to(dtype)
        yield
    finally:
        for tensor, data in kept:
            tensor.data = data


def _convertible(module: Any, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return the parameters and buffers that are converted to `dtype`."""
    others = [
        tensor
        for tensor in (*module.parameters(), *module.buffers())
        if tensor.is_floating_point() and tensor.dtype != dtype
    ]
    wide = torch.finfo(dtype).bits
    if all(torch.finfo(tensor.dtype).bits <= wide for tensor in others):
        return others
    lasting = {id(tensor) for tensor in module.state_dict(keep_vars=True).values()}
    return [tensor for tensor in others if id(tensor) in lasting or torch.finfo(tensor.dtype).bits <= wide]
