"""Blocks of maps on their way to the sinks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import torch

from ..core.factors import Factors, undefined_map
from ..lenses import LENSES
from .memory import MemoryPlan


@dataclass(frozen=True, slots=True)
class MapBlocks:
    """What sinks get of a block of heads that starts at (layer, head) of the selection: lens -> maps [B, h, Q, K], and lens -> the h heads of each input."""

    layer: int
    head: int
    blocks: dict[str, torch.Tensor]
    factors: dict[str, list[list[Factors]]] = field(default_factory=dict)


def undefined_blocks(
    plan: MemoryPlan, kept: Iterable[str], factored: Collection[str], place: int, absent: int, inputs: int
) -> MapBlocks:
    """Return empty maps, of all kept lenses of heads, for the last `absent` of the selected heads, which the layer at `place` does not have."""
    sides, names = (plan.queries, plan.keys), [name for name in kept if LENSES[name].of == "heads"]
    empty = {name: torch.full((inputs, absent, *sides), torch.nan) for name in names if name not in factored}
    nothing = {name: [[undefined_map(*sides)] * absent] * inputs for name in names if name in factored}
    return MapBlocks(place, len(plan.heads) - absent, empty, nothing)
