"""Weights that a model uses while they are offloaded: torch then computes with memory that nothing was written to, and often says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..errors import HeadscopeError, Unsupported
from ..models.dispatch import is_offloaded
from ..models.parts import every_part

ABSENT = (
    "This model uses weights outside of the modules that hold them, where they are not in memory if it is offloaded, so its results would be wrong. "
    "Keep the part that does so in memory, such as its image tower, or load the whole model onto devices."
)


class _Watch(TorchFunctionMode):
    """Raises Unsupported where a tensor without memory meets one with memory."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if len({tensor.is_meta for tensor in _tensors((*args, *(kwargs or {}).values()))}) > 1:
            raise Unsupported(ABSENT)
        return function(*args, **(kwargs or {}))


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


@contextmanager
def _watched() -> Iterator[None]:
    try:
        with _Watch():
            yield
    except HeadscopeError:
        raise
    except Exception as error:
        if "meta" in str(error):  # torch does say something about some of them
            raise Unsupported(ABSENT) from error
        raise


def watched(module: Any) -> AbstractContextManager[None]:
    """Raise Unsupported within this context if the module uses an offloaded weight that is not in memory."""
    return _watched() if any(map(is_offloaded, every_part(module))) else nullcontext()
