"""Linear layers with quantised weights, recognised by what they store, whichever package made them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..core.lazy import Tensor, torch
from .parts import every_part


def is_plain(tensor: Any) -> bool:
    """Return whether a tensor is one of floats of 16 bits or more that are the weights themselves: not packed, and without scales."""
    if type(tensor) not in (torch.nn.Parameter, torch.Tensor):  # faster than what follows
        packed = isinstance(tensor, torch.nn.Parameter) or hasattr(tensor, "__tensor_flatten__")
        if packed or not isinstance(tensor, torch.Tensor):
            return False
    return bool(tensor.is_floating_point() and tensor.dtype.itemsize >= 2)


def is_quantised(part: Any) -> bool:
    """Return whether a part is a linear layer that computes its weight from something else: packed integers, fewer bits, scales."""
    if "in_features" not in vars(part) and not hasattr(type(part), "in_features"):  # faster than to ask the part
        return False
    sizes = (getattr(part, name, None) for name in ("in_features", "out_features"))
    return all(isinstance(size, int) for size in sizes) and not is_plain(getattr(part, "weight", None))


def quantised_parts(module: Any) -> list[Any]:
    """Return the quantised linear layers of a module."""
    return [part for part in every_part(module) if is_quantised(part)]


def packages(module: Any) -> str:
    """Return the packages that compute with the module's quantised weights, such as "bitsandbytes"; empty if there are none."""
    return " and ".join(sorted({_package(part) for part in quantised_parts(module)}))


def _package(part: Any) -> str:
    """Return the package of the layer's class, or of its weight's class if the layer is torch's own."""
    kind = type(part.weight) if type(part) is torch.nn.Linear else type(part)
    return kind.__module__.removeprefix("optimum.").partition(".")[0]


def lacks_arithmetic(part: Any) -> bool:
    """Return whether a quantised layer is torch's ordinary one, which cannot compute with an ordinary tensor of fewer bits."""
    return type(part) is torch.nn.Linear and type(part.weight) in (torch.Tensor, torch.nn.Parameter)


def own_type(module: Any) -> torch.dtype:
    """Return the type that a model was loaded in, in which its quantised layers compute."""
    return next((one.dtype for one in module.parameters() if is_plain(one)), torch.float32)


@contextmanager
def in_own_type(module: Any, parts: list[Any], dtype: torch.dtype) -> Iterator[None]:
    """Let the quantised parts compute in the type that the module was loaded in, while the rest of it computes in `dtype`."""
    own = own_type(module) if parts else dtype
    kept = [(vars(part), vars(part).get("forward")) for part in parts if own != dtype]
    try:
        for part in parts if kept else ():
            part.forward = partial(_compute, part.forward, own, dtype)
        yield
    finally:
        for attributes, forward in kept:
            attributes.pop("forward", None)
            if forward is not None:
                attributes["forward"] = forward


def _compute(forward: Any, own: torch.dtype, dtype: torch.dtype, vectors: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Return what a layer makes of vectors, both in `dtype`."""
    return forward(vectors.to(own), *args, **kwargs).to(dtype)


def stored_tensors(value: Any) -> Iterator[Tensor]:
    """Yield the ordinary tensors that a value consists of: a tensor itself, the parts of a quantised one, or those in a tuple."""
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from stored_tensors(one)
    elif isinstance(value, torch.Tensor) and value.is_quantized:
        yield value.int_repr()
    elif isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__"):
        for name in value.__tensor_flatten__()[0]:
            yield from stored_tensors(getattr(value, name))
    elif isinstance(value, torch.Tensor):
        yield value
