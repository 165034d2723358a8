"""Exclusive, temporary use of torch modules: what can be analysed, locks, and settings that are always restored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from operator import itemgetter
from threading import RLock, local
from typing import Any
from weakref import ReferenceType, ref

from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from . import widening
from .dispatch import hooks_of, is_offloaded, persistent
from .parts import every_part, own_tensors
from .quantisation import in_own_type, is_plain, is_quantised, lacks_arithmetic

ELSEWHERE = (
    'Some of this model\'s weights were never loaded, or are offloaded such that they cannot be read one module at a time (device "meta"). '
    "Load it onto one device, or with device_map."
)
OFFLOADED = "Quantised layers of this model are offloaded, and cannot be read there. Load them onto a device."
SPREAD = "This model is spread over several devices without the hooks that move its hidden states. Load it with device_map, or onto one device."
COMPILED = "Parts of this model are compiled. Load it without torch.compile, or compile the whole model."
PROMPT = (
    "This adapter prepends learned vectors to the input, which Headscope does not support. Load the model without it."
)
INTEGERS = "Linear layers of this model have weights of a type that they cannot compute with. Load the model with the package that quantised it."

# Messages of torch on the CPU, the operating system, and CUDA's libraries.
NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "not enough memory", "ALLOC_FAILED")
COMPILED_CALL = "_compiled_call_impl"  # attribute that torch.nn.Module.compile() sets, and __call__ then calls
# Identity of a part of a module or of a configuration -> a reference to it, its place in the order of locking, and its lock.
_locks: dict[int, tuple[ReferenceType[Any], int, Any]] = {}
_numbers = count()
_held = local()  # `modules`: identities of the modules whose locks this thread holds
_registry = RLock()  # reentrant: an owner may be garbage-collected, and removed from the table, at any time


def unwrap(module: Any) -> Any:
    """Return the transformers model inside a compiled model or a PeftModel, or the module itself.

    Raises Unsupported for compiled parts, weights that no hook of accelerate brings into memory or to where they are needed, and integers as weights.
    """
    module = _inside(module)
    parts = every_part(module)
    if any(type(part).__name__ == "OptimizedModule" for part in parts):
        raise Unsupported(COMPILED)
    for part in parts:
        meta = any(tensor.is_meta for tensor in own_tensors(part))
        if meta and not is_offloaded(part):
            raise Unsupported(ELSEWHERE)
        if is_quantised(part) and (meta or lacks_arithmetic(part)):
            raise Unsupported(OFFLOADED if meta else INTEGERS)
    devices = {tensor.device for part in parts for tensor in own_tensors(part) if not tensor.is_meta}
    if len(devices) > 1 and not any(map(hooks_of, parts)):
        raise Unsupported(SPREAD)
    return module


def _inside(module: Any) -> Any:
    """Remove the wrappers of torch.compile and peft. A PeftModel's adapters are parts of the model inside."""
    module = getattr(module, "_orig_mod", module)
    if not hasattr(module, "get_base_model"):
        return module
    if getattr(module.active_peft_config, "is_prompt_learning", False):
        raise Unsupported(PROMPT)
    return module.get_base_model()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether the error means that memory ran out. Besides MemoryError and OutOfMemoryError, torch and CUDA's libraries raise plain RuntimeErrors."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error) for part in NO_MEMORY)


@contextmanager
def exclusive(module: Any) -> Iterator[None]:
    """Hold the locks of all parts of the module and of their configurations.

    Locks belong to the parts, so two modules that share a part or a configuration exclude each other. They are reentrant, and always taken in one order.
    An analysis asks for them six times; looking for the parts each time would take as long as a tenth of a short one.
    """
    mine: set[int] = _held.__dict__.setdefault("modules", set())
    if id(module) in mine:
        yield
        return
    with _registry:
        owners = [*every_part(module), *configurations(module)]
        known = sorted((_lock_of(owner) for owner in owners), key=itemgetter(1))
    held = []
    try:
        for _, _, lock in known:
            lock.acquire()
            held.append(lock)
        mine.add(id(module))
        yield
    finally:
        mine.discard(id(module))
        for lock in reversed(held):
            lock.release()


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
    # Most parts share one object.
    waiting = list(
        {id(one): one for part in every_part(module) if (one := vars(part).get("config")) is not None}.values()
    )
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
    """Run the module in eval mode and uncompiled; the mode of each part, and the way in which it attends, are restored on exit."""
    parts = every_part(module)
    training = [part for part in parts if part.training]
    compiled = [(vars(part), call) for part in parts if (call := getattr(part, COMPILED_CALL, None)) is not None]
    try:
        if training:
            module.eval()
        for attributes, _ in compiled:
            attributes[COMPILED_CALL] = None
        with _keeping_attention(parts):
            yield
    finally:
        for part in training:
            part.training = True
        for attributes, call in compiled:
            attributes[COMPILED_CALL] = call


@contextmanager
def _keeping_attention(parts: list[Any]) -> Iterator[None]:
    """Restore the parts that attend: BigBird replaces those of blocks by those of full attention at its first short text, and never goes back."""
    before = [
        (vars(part), part.attention_type, dict(part._modules))  # noqa: SLF001 - torch has no other way to replace one
        for part in parts
        if hasattr(part, "set_attention_type")
    ]
    try:
        yield
    finally:
        for attributes, kind, children in before:
            attributes["attention_type"] = kind
            attributes["_modules"].update(children)


def attends_in_blocks(module: Any) -> bool:
    """Return whether layers attend to some blocks of tokens only, as BigBird's do in a long text."""
    return any(getattr(part, "attention_type", None) == "block_sparse" for part in every_part(module))


@contextmanager
def converted(module: Any, dtype: torch.dtype) -> Iterator[None]:
    """Convert parameters and buffers to `dtype`; the original tensors are restored on exit. Large parts of a large model widen theirs only while they run.

    Like from_pretrained(dtype=...), a narrower type leaves non-persistent buffers unchanged, such as the frequencies of rotary embeddings. Quantised layers keep
    theirs, and compute in the type that the module was loaded in.
    """
    kept: list[tuple[Tensor, Tensor]] = []
    replaced: list[tuple[dict[str, Any], str, Tensor]] = []
    quantised, plain, offloaded = _sorted(module)
    large = widening.large_parts(module, plain, dtype)
    with in_own_type(module, quantised, dtype), widening.widened(large, dtype), _experts_for(module, dtype):
        try:
            for tensor in _convertible(plain, dtype):
                kept.append((tensor, tensor.data))
                tensor.data = tensor.data.to(dtype)
            for table, name, tensor in _stand_ins(offloaded, dtype):
                replaced.append((table, name, tensor))
                table[name] = torch.nn.Parameter(tensor.data.to(dtype), requires_grad=False)
            yield
        finally:
            for tensor, data in kept:
                tensor.data = data
            for table, name, tensor in replaced:
                table[name] = tensor


@contextmanager
def _experts_for(module: Any, dtype: torch.dtype) -> Iterator[None]:
    """Compute the experts of a mixture one by one in float64, which torch's grouped product does not take."""
    grouped = [one for one in configurations(module) if getattr(one, "_experts_implementation", None) == "grouped_mm"]
    chosen = grouped if dtype == torch.float64 else []
    try:
        for config in chosen:
            config._experts_implementation_internal = "eager"  # noqa: SLF001 - as set_experts_implementation does
        yield
    finally:
        for config in chosen:
            config._experts_implementation_internal = "grouped_mm"  # noqa: SLF001


def _sorted(module: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the parts that are quantised, the others, and those of all that are offloaded."""
    parts = every_part(module)
    quantised = [part for part in parts if is_quantised(part)]
    chosen = set(map(id, quantised))
    return quantised, [part for part in parts if id(part) not in chosen], [part for part in parts if is_offloaded(part)]


def _convertible(parts: list[Any], dtype: torch.dtype) -> list[Tensor]:
    """Return the parameters and buffers of the parts that are in memory and to be converted to `dtype`."""
    own = {id(one): one for part in parts for one in own_tensors(part)}
    others = [one for one in own.values() if one.dtype != dtype and is_plain(one) and not one.is_meta]
    wide = torch.finfo(dtype).bits
    if all(torch.finfo(tensor.dtype).bits <= wide for tensor in others):
        return others
    saved = {id(tensor) for part in parts for _, tensor in persistent(part)}
    return [tensor for tensor in others if id(tensor) in saved or torch.finfo(tensor.dtype).bits <= wide]


def _stand_ins(parts: list[Any], dtype: torch.dtype) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Return where the stand-ins of offloaded parameters are, whose type is that in which the weights come into memory."""
    tables = [part._parameters for part in parts]  # noqa: SLF001 - where accelerate replaces them
    entries = [(table, name, one) for table in tables for name, one in table.items() if one is not None]
    return [entry for entry in entries if entry[2].is_meta and entry[2].is_floating_point() and entry[2].dtype != dtype]
