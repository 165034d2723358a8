"""Small uint8 pictures of maps: what the page paints first, whatever the number of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def pool(maps: Tensor, tile: int) -> Tensor:
    """Each cell of at most tile × tile takes the entry of largest magnitude. [H, Q, K] -> [H, min(tile, Q), min(tile, K)]."""
    import torch

    size = (min(tile, maps.shape[1]), min(tile, maps.shape[2]))
    if size == tuple(maps.shape[1:]):
        return maps
    high = torch.nn.functional.adaptive_max_pool2d(maps, size)
    if maps.amin() >= 0:
        return high
    low = -torch.nn.functional.adaptive_max_pool2d(-maps, size)
    return torch.where(high >= -low, high, low)


def quantise(maps: Tensor, signed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Maps [H, ...] -> bytes uint8 of the same shape, scale [H], offset [H]; value = offset + scale * byte, off by at most scale / 2.

    A map that is not signed starts at 0; in a signed one byte 128 is exactly 0.
    """
    import torch

    largest = maps.abs().flatten(1).amax(1).clamp_min(torch.finfo(torch.float32).tiny * 256)  # [H]
    scale = largest / (127 if signed else 255)
    middle = 128 if signed else 0
    steps = maps / scale.view(-1, *[1] * (maps.dim() - 1)) + middle
    return steps.round().clamp(0, 255).to(torch.uint8), scale, -middle * scale
