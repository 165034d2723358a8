"""Linear modules as matrices, by what they compute: an adapter such as LoRA changes a module's function and leaves its `weight` as it is."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.pytorch_utils import Conv1D

# Module that is not plain -> what it gave for a fixed vector, and its matrix and offset then.
_known: WeakKeyDictionary[Any, tuple[Tensor, Tensor, Tensor]] = WeakKeyDictionary()


def matrix(module: Any) -> Tensor:
    """Return W [output, input] of a module that computes x Wᵀ + b in eval mode."""
    if not _is_plain(module):
        return _computed(module)[1]
    weight: Tensor = module.weight
    return weight.mT if type(module) is Conv1D else weight


def offset(module: Any) -> Tensor | None:
    """Return b [output] of a module that computes x Wᵀ + b; None for none."""
    if not _is_plain(module):
        return _computed(module)[2]
    bias: Tensor | None = module.bias
    return bias


def width(module: Any) -> int | None:
    """Return the number of features that a linear module takes, None for other modules."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 2 or isinstance(module, torch.nn.Embedding):
        return None
    taken = getattr(module, "in_features", None)
    return taken if isinstance(taken, int) else weight.shape[0 if type(module) is Conv1D else 1]


def unchanged(known: Tensor, mark: Tensor) -> bool:
    """Return whether a mark is the very same as before, in the same type on the same device."""
    return known.dtype == mark.dtype and known.device == mark.device and torch.equal(known, mark)


def fixed_vector(features: int, like: Tensor) -> Tensor:
    """Return the same random numbers [features] at every call: a change of a matrix that they do not show is less than rounding."""
    generator = torch.Generator("cpu").manual_seed(0)
    return torch.randn(features, generator=generator, device="cpu").to(like)


def _is_plain(module: Any) -> bool:
    """Return whether the module's function follows from its weight and bias: not of adapters, subclasses or replaced forward methods."""
    return type(module) in (torch.nn.Linear, Conv1D) and "forward" not in vars(module)


def _computed(module: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Run the module on zero and on unit vectors, unless it still gives the same for a fixed vector."""
    like, features = next(module.parameters()), width(module)
    if features is None:
        raise ValueError("not a linear module")
    mark, known = module.forward(fixed_vector(features, like)[None]), _known.get(module)
    if known is None or not unchanged(known[0], mark):
        shift = module.forward(like.new_zeros(1, features))
        units = torch.eye(features, dtype=like.dtype, device=like.device)
        known = _known[module] = mark, (module.forward(units) - shift).mT, shift[0]
    return known
