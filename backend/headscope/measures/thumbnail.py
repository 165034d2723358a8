"""Small uint8 pictures of maps, which the page draws first, whatever the number of tokens."""

from __future__ import annotations

from collections.abc import Callable

from ..core.lazy import Tensor, torch

# Cells per side of the thumbnails of an analysis.
TILE = 32


def pool(maps: Tensor, tile: int, signed: bool) -> Tensor:
    """Reduce maps to at most tile × tile cells, each the entry of largest magnitude. [H, Q, K] -> [H, min(tile, Q), min(tile, K)].

    All cells are ceil(n / t) entries long; where t does not divide n, neighbours overlap.
    """
    rows = _bands(maps, 1, tile)
    high = _bands(rows.amax(2), 2, tile).amax(3)
    if not signed:
        return high
    low = _bands(rows.amin(2), 2, tile).amin(3)
    return high.where(high >= -low, low)


def _bands(maps: Tensor, axis: int, tile: int) -> Tensor:
    """Split an axis of n entries in two: min(tile, n) cells of ceil(n / tile) entries."""
    n = maps.shape[axis]
    cells = min(tile, n)
    width = -(-n // cells)
    if n % cells:
        starts = torch.arange(cells, device=maps.device) * (n - width) // (cells - 1)
        maps = maps.index_select(axis, (starts[:, None] + torch.arange(width, device=maps.device)).flatten())
    return maps.view(*maps.shape[:axis], cells, width, *maps.shape[axis + 1 :])


# A cell along the queries, with the largest and the smallest entry of each key there, [H, K'].
_Extent = tuple[int, Tensor, Tensor | None]


class RowPool:
    """The same from maps that come some rows after others; keys that are not there are 0."""

    def __init__(self, heads: int, queries: int, keys: int, tile: int, signed: bool) -> None:
        cells = min(tile, queries)
        self._width, self._tile, self._signed = -(-queries // cells), tile, signed
        self._starts = [cell * (queries - self._width) // max(1, cells - 1) for cell in range(cells)]
        self._high = torch.full((heads, cells, keys), -torch.inf)
        self._low = torch.full((heads, cells, keys), torch.inf) if signed else self._high

    def part(self, first: int, rows: Tensor) -> list[_Extent]:
        """Return the extents of the cells of some rows [H, R, K'] of the maps, from row `first` on; the rest of each row is 0."""
        last, found = first + rows.shape[1], list[_Extent]()
        for cell, start in enumerate(self._starts):
            if start < last and first < start + self._width:
                part = rows[:, max(0, start - first) : start + self._width - first]
                found.append((cell, part.amax(1), part.amin(1) if self._signed else None))
        return found

    def add(self, part: list[_Extent]) -> None:
        """Take in the extents of some rows."""
        for cell, high, low in part:
            self._extend(self._high[:, cell], high, torch.maximum)
            if low is not None:
                self._extend(self._low[:, cell], low, torch.minimum)

    def _extend(self, bound: Tensor, found: Tensor, further: Callable[..., Tensor]) -> None:
        """Let a bound [H, K] take in what was found at the first keys, [H, K'], and the zeros at the others."""
        keys = found.shape[1]
        further(bound[:, :keys], found, out=bound[:, :keys])
        if keys < bound.shape[1]:
            further(bound[:, keys:], torch.zeros(()), out=bound[:, keys:])

    def cells(self) -> Tensor:
        """Return the thumbnails, [H, min(tile, Q), min(tile, K)]."""
        high = _bands(self._high, 2, self._tile).amax(3)
        low = _bands(self._low, 2, self._tile).amin(3) if self._signed else high
        return high.where(high >= -low, low) if self._signed else high


def quantise(maps: Tensor, signed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise maps [H, ...] to uint8 of the same shape, scale [H] and offset [H]; value = offset + scale * byte, with an error of at most scale / 2.

    An unsigned map starts at 0; in a signed map byte 128 is exactly 0.
    """
    largest = maps.abs().flatten(1).amax(1).clamp_min(torch.finfo(torch.float32).tiny * 256)  # [H]
    scale = largest / (127 if signed else 255)
    middle = 128 if signed else 0
    steps = maps / scale.view(-1, *[1] * (maps.dim() - 1)) + middle
    return steps.round().clamp(0, 255).to(torch.uint8), scale, -middle * scale
