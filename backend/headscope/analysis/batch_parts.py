"""Readings of several inputs whose heads follow one another: those of some inputs, and values back in the order of all."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import torch

from ..capture import by_input, part
from ..core.attention import Reading

ROUNDING = 1e-5  # largest deviation of a row's sum from 1

Readings = dict[str, Reading]
# Inputs of a batch, by their index in it.
Places = tuple[int, ...]


def parts_of(readings: Readings, size: int, places: Places) -> Readings:
    """Select some of the `size` inputs of the readings."""
    if len(places) == size:
        return readings
    return {name: part_of(reading, size, places) for name, reading in readings.items()}


def same_as_weights(readings: Readings) -> dict[str, str]:
    """Return lens -> "weights" for lenses whose map is the weights themselves with rows that sum to 1: their measures are the same."""
    weights = readings.get("weights")
    equal = [name for name, reading in readings.items() if weights is not None and reading.map is weights.map]
    if weights is None or len(equal) < 2 or float((weights.row_sums() - 1).abs().max()) > ROUNDING:
        return {}
    return dict.fromkeys(equal, "weights")


def part_of(reading: Reading, size: int, places: Places) -> Reading:
    """Return the reading of some inputs; its span only of a single one."""
    if len(places) == size:
        return reading
    found = {one.name: getattr(reading, one.name) for one in fields(reading) if one.init}
    tensors = {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}
    parts: dict[str, Any] = {name: part(one, size, places) for name, one in tensors.items()}
    span = None if reading.span is None or len(places) > 1 else reading.span.part(size, places[0])
    return replace(reading, **parts, span=span)


def in_order(found: list[torch.Tensor], groups: list[Places]) -> torch.Tensor:
    """Put the values [b h, ...] of groups of b inputs into the order of the inputs, [B h, ...]."""
    if len(groups) == 1:
        return found[0]
    values = torch.cat([by_input(one, len(group)) for one, group in zip(found, groups, strict=True)])
    order = torch.tensor([place for group in groups for place in group], device=values.device)
    return values[order.argsort()].flatten(0, 1)  # [B, h, ...] -> [B h, ...]
