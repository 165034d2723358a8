"""The matrices of linear modules, from what they compute: an adapter such as LoRA changes the function but not `weight`, and quantised ones store no such thing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

from ..models import widening
from ..models.dispatch import execution_device, tensor_of
from ..models.quantisation import is_plain, is_quantised, stored_tensors

# Module that is neither plain nor quantised -> its output for a fixed vector, its matrix, and its offset.
_known: WeakKeyDictionary[Any, tuple[Tensor, Tensor, Tensor]] = WeakKeyDictionary()
# Unit vectors that a module is run on at once.
UNITS = 1024


def matrix(module: Any, like: Tensor) -> Tensor:
    """Return W [output, input] of a module that computes x Wᵀ + b in eval mode, on the device of `like`.

    That of a quantised module is what it makes of unit vectors, which it does not round.
    """
    if not _is_plain(module):
        return _computed(module)[0].to(like)
    weight: Tensor = tensor_of(module, "weight", like)
    return weight.mT if type(module) is Conv1D else weight


def offset(module: Any, like: Tensor) -> Tensor | None:
    """Return b [output] of a module that computes x Wᵀ + b, on the device of `like`; None if it has none."""
    if not _is_plain(module):
        return _offset(module).to(like)
    bias: Tensor | None = tensor_of(module, "bias", like)
    return bias


def fingerprint(module: Any) -> Tensor:
    """Return the module's output for a fixed vector. A matrix change that it does not show is smaller than rounding."""
    features = width(module)
    if features is None:
        raise ValueError("not a linear module")
    found: Tensor = module.forward(_fixed_vector(features, _zero(module))[None])[0]
    return found


def is_unchanged(known: Tensor, found: Tensor) -> bool:
    """Return whether a fingerprint is exactly the known one, in the same dtype on the same device."""
    return known.dtype == found.dtype and known.device == found.device and torch.equal(known, found)


def width(module: Any) -> int | None:
    """Return the number of input features of a linear module, None for other modules."""
    if is_quantised(module):
        return int(module.in_features)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or isinstance(module, torch.nn.Embedding):
        return None
    features = getattr(module, "in_features", None)
    return features if isinstance(features, int) else weight.shape[0 if type(module) is Conv1D else 1]


def _fixed_vector(features: int, like: Tensor) -> Tensor:
    """Return the same random numbers [features] at every call."""
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randn(features, generator=generator, device="cpu").to(like)


def _is_plain(module: Any) -> bool:
    """Return whether the module's function follows from its weight and bias, which is unknown for adapters, subclasses and replaced forward methods."""
    if type(module) not in (torch.nn.Linear, Conv1D) or not is_plain(module.weight):
        return False
    forward = vars(module).get("forward")
    # Both replace the method by one that brings weights into memory first.
    around = ("accelerate.hooks", widening.__name__)
    return forward is None or (isinstance(forward, partial) and forward.func.__module__ in around)


def _zero(module: Any) -> Tensor:
    """Return a zero of the type and on the device of the module's inputs."""
    tensors = [*module.parameters(), *module.buffers()]
    floats = (one.dtype for one in tensors if is_plain(one))
    devices = (one.device for one in stored_tensors(tensors) if not one.is_meta)
    device = next(devices, None) or execution_device(module)
    return torch.zeros((), dtype=next(floats, torch.float32), device=device)


def _offset(module: Any) -> Tensor:
    features = width(module)
    if features is None:
        raise ValueError("not a linear module")
    shift: Tensor = module.forward(_zero(module).new_zeros(1, features))[0]
    return shift


def _computed(module: Any) -> tuple[Tensor, Tensor]:
    """Return matrix and offset by running the module on zero and unit vectors; cached while the fingerprint stays the same, unless the module is quantised to be small."""
    if is_quantised(module):
        shift = _offset(module)
        return _matrix(module, shift), shift
    found, known = fingerprint(module), _known.get(module)
    if known is None or not is_unchanged(known[0], found):
        shift = _offset(module)
        known = _known[module] = found, _matrix(module, shift), shift
    return known[1:]


def _matrix(module: Any, shift: Tensor) -> Tensor:
    columns = [module.forward(units) - shift for units in _unit_vectors(int(width(module) or 0), _zero(module))]
    return torch.cat(columns).mT


def _unit_vectors(features: int, like: Tensor) -> Iterator[Tensor]:
    """Yield all unit vectors, some [n, features] at a time."""
    for low in range(0, features, UNITS):
        count = min(UNITS, features - low)
        units = like.new_zeros(count, features)
        units[torch.arange(count), low + torch.arange(count)] = 1
        yield units
