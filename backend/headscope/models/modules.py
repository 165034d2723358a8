"""torch modules that belong to somebody else: which can be used, exclusive access, and settings that are restored afterwards, also after an exception."""

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

from ..errors import Unsupported
from .facts import QUANTISED

ELSEWHERE = (
    'Some of this model\'s weights are not in memory: they are offloaded, or were never loaded (device "meta"). '
    "Load the whole model onto one device."
)
SPREAD = "This model is spread over several devices. Load the whole model onto one device."
COMPILED = "Parts of this model are compiled. Load it without torch.compile, or compile the whole model."
PROMPT = "This adapter puts learned vectors before the input, which can't be analysed. Load the model without it."
# Packages whose modules compute with quantised weights: torch's own, torchao, bitsandbytes, GPTQ and AWQ.
QUANTISING = ("torch.ao.nn.", "torch.nn.quantized", "torchao.", "bitsandbytes.", "auto_gptq.", "gptqmodel.", "awq.")

# On the CPU, of the system, and of CUDA's libraries on the card.
NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "not enough memory", "ALLOC_FAILED")
COMPILED_CALL = "_compiled_call_impl"  # attribute that torch.nn.Module.compile() sets, and __call__ then calls
# Identity of a part of a module, or of a configuration -> the part while it lives, its place in the order in which locks are taken, and its lock.
_locks: dict[int, tuple[ReferenceType[Any], int, Any]] = {}
_numbers = count()
_registry = RLock()  # reentrant: an owner may be collected, and leave the table, at any time


def unwrap(module: Any) -> Any:
    """Return the transformers model inside a compiled one or a PeftModel, or the module itself.

    Raises Unsupported for what cannot be computed with: quantised weights, weights that are not in memory or on several devices, compiled parts.
    """
    module = _inside(module)
    if any(type(part).__name__ == "OptimizedModule" for part in module.modules()):
        raise Unsupported(COMPILED)
    if getattr(module, "is_quantized", False) or any(
        type(part).__module__.startswith(QUANTISING) for part in module.modules()
    ):
        raise Unsupported(QUANTISED)
    tensors = [*module.parameters(), *module.buffers()]
    if any(tensor.is_meta for tensor in tensors):
        raise Unsupported(ELSEWHERE)
    if len({tensor.device for tensor in tensors}) > 1:
        raise Unsupported(SPREAD)
    if any(_is_quantised(parameter) for parameter in module.parameters()):
        raise Unsupported(QUANTISED)
    return module


def _inside(module: Any) -> Any:
    """Return what torch.compile and peft have wrapped. A PeftModel's adapters are parts of the model inside."""
    module = getattr(module, "_orig_mod", module)
    if not hasattr(module, "get_base_model"):
        return module
    if getattr(module.active_peft_config, "is_prompt_learning", False):
        raise Unsupported(PROMPT)
    return module.get_base_model()


def _is_quantised(parameter: torch.Tensor) -> bool:
    """Whether the numbers of a parameter are no plain floats of 16 bits or more."""
    return not parameter.is_floating_point() or torch.finfo(parameter.dtype).bits < 16


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's or the graphics card's; on the CPU torch raises a plain RuntimeError, as its libraries do on the card."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error) for part in NO_MEMORY)


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
    compiled = [
        (vars(part), call) for part in module.modules() if (call := getattr(part, COMPILED_CALL, None)) is not None
    ]
    try:
        if training:
            module.eval()
        for attributes, _ in compiled:
            attributes[COMPILED_CALL] = None
        yield
    finally:
        for part in training:
            part.training = True
        for attributes, call in compiled:
            attributes[COMPILED_CALL] = call


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
