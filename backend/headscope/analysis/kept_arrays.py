"""The small arrays that a pass keeps of every layer: measures, notes of lenses, and thumbnails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..core.arrays import Array
from ..lenses import LENSES
from ..measures import MEASURES
from .memory import MemoryPlan

# An array that is kept: group (measure, note or tile), name, and lens or part.
Key = tuple[str, str, str]


class KeptArrays:
    """Arrays [B, L, ...] of `size` inputs, filled layer by layer; what a layer or head does not have is NaN, or 0 in whole numbers."""

    def __init__(self, plan: MemoryPlan, size: int) -> None:
        self._plan, self._size = plan, size
        self._arrays: dict[Key, Array] = {}

    def put(self, found: Sequence[tuple[Key, torch.Tensor]], numbers: Sequence[int], place: int, head: int) -> None:
        """Store values of the heads from `head` on [B h, ...], or of one input's layer (any shape), of the layer at index `place` of the selection."""
        for (key, _), block in zip(found, to_host([values for _, values in found]), strict=True):
            self._put(key, block, list(numbers), place, head)

    def _put(self, key: Key, block: Array, numbers: list[int], place: int, head: int) -> None:
        if block.dtype == np.float64:
            block = block.astype(np.float32)
        group, name, _ = key
        per_head = MEASURES[name].of == "heads" if group == "measure" else LENSES[name].of == "heads"
        block = block.reshape(len(numbers), -1, *block.shape[1:]) if per_head else block[None]  # [B, h, ...]
        if key not in self._arrays:
            axes = (len(self._plan.heads), *block.shape[2:]) if per_head else block.shape[1:]
            empty = np.nan if block.dtype.kind == "f" else 0
            self._arrays[key] = np.full((self._size, len(self._plan.layers), *axes), empty, block.dtype)
        heads = (slice(head, head + block.shape[1]),) if per_head else ()
        self._arrays[key][(numbers, place, *heads)] = block

    def of_input(self, number: int) -> dict[str, dict[str, dict[str, Array]]]:
        """Return the arrays [L, ...] of an input: group -> name -> lens or part -> array."""
        grouped: dict[str, dict[str, dict[str, Array]]] = {"tile": {}, "measure": {}, "note": {}}
        for (group, name, lens), values in self._arrays.items():
            grouped[group].setdefault(name, {})[lens] = values[number]
        return grouped


def to_host(tensors: Sequence[torch.Tensor]) -> list[Array]:
    """Return tensors as arrays, which share their memory on a processor.

    Those of a GPU are copied through memory that it writes to itself, which torch keeps for later copies, and waited for once.
    """
    found = [one.detach().to("cpu", non_blocking=one.is_cuda) for one in tensors]
    for device in {one.device for one, copy in zip(tensors, found, strict=True) if one.is_cuda and copy.is_pinned()}:
        torch.cuda.current_stream(device).synchronize()
    return [one.numpy() for one in found]
