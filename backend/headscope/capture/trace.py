"""A trace of a forward pass: every call of a module, and of the attention function."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from ..core.attention import Kind
from ..models.quantisation import is_quantised
from . import affine
from .closeness import is_close
from .gates import Arguments
from .interface import AttentionCall

NOTHING: Arguments = ((), {})
# Largest difference between a quantised linear module and its matrix, relative to the largest number of its output: more is not linear in any useful sense.
LARGEST_ROUNDING = 0.05


@dataclass
class TraceEvent:
    """One call of a module: its name, input and output, as [tokens, features]."""

    name: str
    module: Any
    input: Tensor
    output: Tensor


@dataclass
class AttentionEvent:
    """One call of the attention function, after the first `place` events of the trace."""

    call: AttentionCall
    output: Tensor  # [Q, H D]
    place: int
    arguments: Arguments  # of the module that attends
    kind: Kind = "self"


@dataclass
class Trace:
    """All calls of a forward pass, in order."""

    events: list[TraceEvent] = field(default_factory=list)
    attention: list[AttentionEvent] = field(default_factory=list)
    entered: dict[str, list[tuple[int, Tensor]]] = field(default_factory=dict)  # module -> its inputs, and when
    modules: dict[str, Any] = field(default_factory=dict)
    arguments: dict[int, Arguments] = field(default_factory=dict)  # id of a module -> what it was called with last
    maps: tuple[Tensor, Tensor] | None = (
        None  # what the last layer with a position encoding made of projected queries and keys
    )

    def add(self, call: AttentionCall, output: Tensor) -> None:
        """Add a call of the attention function; output [H, Q, D]."""
        flat = output.transpose(0, 1).reshape(output.shape[1], -1)  # [H, Q, D] -> [Q, H D]
        self.attention.append(
            AttentionEvent(call, flat, len(self.events), self.arguments.get(id(call.module), NOTHING))
        )


@contextmanager
def trace_modules(module: Any, home: torch.device) -> Iterator[Trace]:
    """Trace every call of a part of the module, with all tensors on the device `home`."""
    trace, handles = Trace(), []

    def copied(values: tuple[Any, ...]) -> Tensor | None:
        found = first_tensor(values)
        return None if found is None else flat(found).clone().to(home)

    def enter(name: str, part: Any, args: Any, kwargs: Any) -> None:
        trace.arguments[id(part)] = args, kwargs
        entered = copied((*args, *kwargs.values()))
        if entered is not None:
            trace.entered.setdefault(name, []).append((len(trace.events), entered))

    def leave(name: str, part: Any, args: Any, kwargs: Any, output: Any) -> None:
        entered = copied((*args, *kwargs.values()))
        left = copied(output if isinstance(output, tuple) else (output,))
        if entered is not None and left is not None:
            trace.events.append(TraceEvent(name, part, entered, left))

    for name, part in module.named_modules():
        trace.modules[name] = part
        handles += [
            part.register_forward_pre_hook(partial(enter, name), with_kwargs=True),
            part.register_forward_hook(partial(leave, name), with_kwargs=True),
        ]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def block_of(name: str, lists: set[str]) -> str | None:
    """Return the layer that a module belongs to: the outermost element of a module list on its path."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        if ".".join(parts[:length]) in lists:
            return ".".join(parts[: length + 1])
    return None


def is_linear(event: TraceEvent) -> bool:
    """Return whether the module is a linear one that takes its input's features."""
    return affine.width(event.module) == event.input.shape[-1]


def is_affine(event: TraceEvent) -> bool:
    """Return whether the module's matrix and offset reproduce its output, up to the rounding of a quantised module."""
    return rounding(event) is not None


def rounding(event: TraceEvent) -> float | None:
    """Return by how much the output of a linear module differs from what its matrix and offset give, None if the module is not affine.

    0 if only by the rounding of the arithmetic. Quantised modules may round what they are given: their difference is relative to the largest number of the output.
    """
    if not is_linear(event):
        return None
    try:
        expected, shift = (
            event.input @ affine.matrix(event.module, event.input).mT,
            affine.offset(event.module, event.input),
        )
    except Exception:  # noqa: BLE001 - a module may raise anything about unit vectors
        return None
    expected = expected if shift is None else expected + shift
    if is_close(expected, event.output):
        return 0.0
    if not is_quantised(event.module) or expected.shape != event.output.shape:
        return None
    off = (expected - event.output).abs().max().item() / max(
        event.output.abs().max().item(), torch.finfo(event.output.dtype).tiny
    )
    return off if off <= LARGEST_ROUNDING else None


def equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are the same in every number."""
    return one.shape == other.shape and torch.equal(one, other)


def flat(tensor: Tensor) -> Tensor:
    """[1, n, d] or [n, d] -> [n, d]."""
    return tensor.reshape(-1, tensor.shape[-1])


def first_tensor(values: tuple[Any, ...]) -> Tensor | None:
    """Return the first floating-point tensor with two or three axes: the hidden states that a module is called with."""
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (2, 3):
            return value
    return None


def expanded(value: Any, size: int) -> Any:
    """Expand arguments to a batch: tensors [1, a, b, ...] -> [size, a, b, ...]. A cache, which already holds the keys of its tokens, is left out."""
    if isinstance(value, Cache):
        return None
    if isinstance(value, Tensor):
        return value.expand(size, *value.shape[1:]) if value.dim() >= 3 and value.shape[0] == 1 else value
    if isinstance(value, (tuple, list)):
        return type(value)(expanded(item, size) for item in value)
    if isinstance(value, dict):
        return {name: expanded(item, size) for name, item in value.items()}
    return value
