"""Small uint8 pictures of maps, which the page draws first, whatever the number of tokens."""

from __future__ import annotations

from ..core.lazy import Tensor, torch


def pool(maps: Tensor, tile: int, signed: bool) -> Tensor:
    """Reduce maps to at most tile × tile cells, each the entry of largest magnitude. [H, Q, K] -> [H, min(tile, Q), min(tile, K)].

    All cells are ceil(n / t) entries long; where t does not divide n, neighbours overlap.
    """
    high, low = maps, maps
    for axis in (1, 2):
        high = _bands(high, axis, tile).amax(axis + 1)
        low = _bands(low, axis, tile).amin(axis + 1) if signed else high
    return high.where(high >= -low, low) if signed else high


def _bands(maps: Tensor, axis: int, tile: int) -> Tensor:
    """Split an axis of n entries in two: min(tile, n) cells of ceil(n / tile) entries."""
    n = maps.shape[axis]
    cells = min(tile, n)
    width = -(-n // cells)
    if n % cells:
        starts = torch.arange(cells, device=maps.device) * (n - width) // (cells - 1)
        maps = maps.index_select(axis, (starts[:, None] + torch.arange(width, device=maps.device)).flatten())
    return maps.view(*maps.shape[:axis], cells, width, *maps.shape[axis + 1 :])


def quantise(maps: Tensor, signed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise maps [H, ...] to uint8 of the same shape, scale [H] and offset [H]; value = offset + scale * byte, with an error of at most scale / 2.

    An unsigned map starts at 0; in a signed map byte 128 is exactly 0.
    """
    largest = maps.abs().flatten(1).amax(1).clamp_min(torch.finfo(torch.float32).tiny * 256)  # [H]
    scale = largest / (127 if signed else 255)
    middle = 128 if signed else 0
    steps = maps / scale.view(-1, *[1] * (maps.dim() - 1)) + middle
    return steps.round().clamp(0, 255).to(torch.uint8), scale, -middle * scale
