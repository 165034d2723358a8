"""The matrices of linear modules, from what they compute: an adapter such as LoRA changes the function but not `weight`."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

# Module that is not plain -> its output for a fixed vector, its matrix, and its offset.
_known: WeakKeyDictionary[Any, tuple[Tensor, Tensor, Tensor]] = WeakKeyDictionary()


def matrix(module: Any) -> Tensor:
    """Return W [output, input] of a module that computes x Wᵀ + b in eval mode."""
    if not _is_plain(module):
        return _computed(module)[1]
    weight: Tensor = module.weight
    return weight.mT if type(module) is Conv1D else weight


def offset(module: Any) -> Tensor | None:
    """Return b [output] of a module that computes x Wᵀ + b, None if it has none."""
    if not _is_plain(module):
        return _computed(module)[2]
    bias: Tensor | None = module.bias
    return bias


def width(module: Any) -> int | None:
    """Return the number of input features of a linear module, None for other modules."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or isinstance(module, torch.nn.Embedding):
        return None
    features = getattr(module, "in_features", None)
    return features if isinstance(features, int) else weight.shape[0 if type(module) is Conv1D else 1]


def is_unchanged(known: Tensor, fingerprint: Tensor) -> bool:
    """Return whether a fingerprint is exactly the known one, in the same dtype on the same device."""
    return known.dtype == fingerprint.dtype and known.device == fingerprint.device and torch.equal(known, fingerprint)


def fixed_vector(features: int, like: Tensor) -> Tensor:
    """Return the same random numbers [features] at every call. A matrix change that their product does not show is smaller than rounding."""
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randn(features, generator=generator, device="cpu").to(like)


def _is_plain(module: Any) -> bool:
    """Return whether the module's function follows from its weight and bias, which is unknown for adapters, subclasses and replaced forward methods."""
    return type(module) in (torch.nn.Linear, Conv1D) and "forward" not in vars(module)


def _computed(module: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return fingerprint, matrix and offset by running the module on zero and unit vectors; cached while the fingerprint stays the same."""
    like, features = next(module.parameters()), width(module)
    if features is None:
        raise ValueError("not a linear module")
    fingerprint, known = module.forward(fixed_vector(features, like)[None]), _known.get(module)
    if known is None or not is_unchanged(known[0], fingerprint):
        shift = module.forward(like.new_zeros(1, features))
        units = torch.eye(features, dtype=like.dtype, device=like.device)
        known = _known[module] = fingerprint, (module.forward(units) - shift).mT, shift[0]
    return known
