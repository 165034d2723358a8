"""Exclusive, temporary use of torch modules: what can be analysed, locks, and settings that are always restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from operator import itemgetter
from threading import RLock
from typing import Any
from weakref import ReferenceType, ref

from ..core.lazy import torch
from ..errors import Unsupported
from .facts import QUANTISED

ELSEWHERE = (
    'Some of this model\'s weights are not in memory: they are offloaded or were never loaded (device "meta"). '
    "Load the whole model onto one device."
)
SPREAD = "This model is spread over several devices. Load the whole model onto one device."
COMPILED = "Parts of this model are compiled. Load it without torch.compile, or compile the whole model."
PROMPT = (
    "This adapter prepends learned vectors to the input, which Headscope does not support. Load the model without it."
)
# Packages whose modules compute with quantised weights: torch's own, torchao, bitsandbytes, GPTQ and AWQ.
QUANTISING = ("torch.ao.nn.", "torch.nn.quantized", "torchao.", "bitsandbytes.", "auto_gptq.", "gptqmodel.", "awq.")

# Messages of torch on the CPU, the operating system, and CUDA's libraries.
NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "not enough memory", "ALLOC_FAILED")
COMPILED_CALL = "_compiled_call_impl"  # attribute that torch.nn.Module.compile() sets, and __call__ then calls
# Identity of a part of a module or of a configuration -> a reference to it, its place in the order of locking, and its lock.
_locks: dict[int, tuple[ReferenceType[Any], int, Any]] = {}
_numbers = count()
_registry = RLock()  # reentrant: an owner may be garbage-collected, and removed from the table, at any time


def unwrap(module: Any) -> Any:
    """Return the transformers model inside a compiled model or a PeftModel, or the module itself.

    Raises Unsupported for quantised weights, weights that are not in memory or on several devices, and compiled parts.
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
    """Remove the wrappers of torch.compile and peft. A PeftModel's adapters are parts of the model inside."""
    module = getattr(module, "_orig_mod", module)
    if not hasattr(module, "get_base_model"):
        return module
    if getattr(module.active_peft_config, "is_prompt_learning", False):
        raise Unsupported(PROMPT)
    return module.get_base_model()


def _is_quantised(parameter: torch.Tensor) -> bool:
    """Return whether a parameter holds anything but floats of 16 bits or more."""
    return not parameter.is_floating_point() or torch.finfo(parameter.dtype).bits < 16


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error means that memory ran out. Besides MemoryError and OutOfMemoryError, torch and CUDA's libraries raise plain RuntimeErrors."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error) for part in NO_MEMORY)


@contextmanager
def exclusive(module: Any) -> Iterator[None]:
    """Hold the locks of all parts of the module and of their configurations.

    Locks belong to the parts, so two modules that share a part or a configuration exclude each other. They are reentrant, and always taken in one order.
    """
    with ExitStack() as held:
        with _registry:
            owners = [*module.modules(), *configurations(module)]
            known = sorted((_lock_of(owner) for owner in owners), key=itemgetter(1))
        for _, _, lock in known:
            held.enter_context(lock)
        yield


def _lock_of(owner: Any) -> tuple[ReferenceType[Any], int, Any]:
    name = id(owner)
    known = _locks.get(name)
    if known is None or known[0]() is not owner:
        known = _locks[name] = ref(owner, partial(_forget, name)), next(_numbers), RLock()
    return known


def _forget(name: int, gone: ReferenceType[Any]) -> None:
    """Remove an owner that no longer exists, unless a new one has its identity."""
    with _registry:
        if name in _locks and _locks[name][0] is gone:
            del _locks[name]


def configurations(module: Any) -> list[Any]:
    """Return every configuration object of the module's parts once, including nested ones."""
    found: dict[int, Any] = {}
    waiting = [vars(part).get("config") for part in module.modules()]
    while waiting:
        config = waiting.pop()
        if callable(getattr(type(config), "to_json_string", None)) and id(config) not in found:
            found[id(config)] = config
            waiting += vars(config).values()
    return list(found.values())


def adapters(module: Any) -> str:
    """Return the active peft adapters of each part with their scale, which are not parameters but change the results; empty if there are none."""
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
    """Run the module in eval mode and uncompiled; the mode of each part is restored on exit."""
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
    """Convert parameters and buffers to `dtype`; the original tensors are restored on exit.

    Like from_pretrained(dtype=...), a narrower type leaves non-persistent buffers unchanged, such as the frequencies of rotary embeddings.
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
    persistent = {id(tensor) for tensor in module.state_dict(keep_vars=True).values()}
    return [tensor for tensor in others if id(tensor) in persistent or torch.finfo(tensor.dtype).bits <= wide]
