"""Small uint8 pictures of maps, which the page draws first, whatever the number of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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


# A cell along the queries, with the largest and the smallest entry of some rows there in each cell along the keys, [H, min(tile, K)].
_Extent = tuple[int, Tensor, Tensor | None]


class RowPool:
    """The same from maps that come some rows after others; keys that are not there are 0."""

    def __init__(self, heads: int, queries: int, keys: int, tile: int, signed: bool) -> None:
        cells = min(tile, queries)
        self._keys, self._tile, self._signed, self._width = keys, tile, signed, -(-queries // cells)
        self._starts = [cell * (queries - self._width) // max(1, cells - 1) for cell in range(cells)]
        self._high = torch.full((heads, cells, min(tile, keys)), -torch.inf)
        self._low = torch.full_like(self._high, torch.inf) if signed else self._high

    def part(self, first: int, pieces: Iterable[Tensor]) -> list[_Extent]:
        """Return the extents of some rows of the maps, from row `first` on, whose keys come in pieces [H, R, k]; the rest of each row is 0."""
        high, low = dict[int, list[Tensor]](), dict[int, list[Tensor]]()
        for piece in pieces:
            last = first + piece.shape[1]
            for cell, start in enumerate(self._starts):
                if start < last and first < start + self._width:
                    rows = piece[:, max(0, start - first) : start + self._width - first]
                    high.setdefault(cell, []).append(rows.amax(1))
                    if self._signed:
                        low.setdefault(cell, []).append(rows.amin(1))
        return [
            (cell, self._along_keys(found).amax(2), self._along_keys(low[cell]).amin(2) if self._signed else None)
            for cell, found in high.items()
        ]

    def _along_keys(self, pieces: Sequence[Tensor]) -> Tensor:
        """Join the extents of keys [H, k], add the zeros of those that are not there, and split them in cells: [H, min(tile, K), k']."""
        whole = torch.cat(list(pieces), 1)
        return _bands(torch.nn.functional.pad(whole, (0, self._keys - whole.shape[1])), 1, self._tile)

    def add(self, part: list[_Extent]) -> None:
        """Take in the extents of some rows."""
        for cell, high, low in part:
            self._high[:, cell] = torch.maximum(self._high[:, cell], high)
            if low is not None:
                self._low[:, cell] = torch.minimum(self._low[:, cell], low)

    def cells(self) -> Tensor:
        """Return the thumbnails, [H, min(tile, Q), min(tile, K)]."""
        return self._high.where(self._high >= -self._low, self._low) if self._signed else self._high


def quantise(maps: Tensor, signed: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise maps [H, ...] to uint8 of the same shape, scale [H] and offset [H]; value = offset + scale * byte, with an error of at most scale / 2.

    An unsigned map starts at 0; in a signed map byte 128 is exactly 0.
    """
    largest = maps.abs().flatten(1).amax(1).clamp_min(torch.finfo(torch.float32).tiny * 256)  # [H]
    scale = largest / (127 if signed else 255)
    middle = 128 if signed else 0
    steps = maps / scale.view(-1, *[1] * (maps.dim() - 1)) + middle
    return steps.round().clamp(0, 255).to(torch.uint8), scale, -middle * scale
