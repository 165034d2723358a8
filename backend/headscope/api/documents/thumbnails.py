"""Thumbnails of maps in which some keys do not count: special tokens, and sinks."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...core.arrays import Array
from ...lenses import LENSES
from ...measures.received import find_sinks, widened, window_of
from ...store.export import Source
from ...store.map_file import blocks
from .arrays import quantise

# Cells per side of the thumbnails that every analysis keeps.
TILE = 32
Without = Literal["special", "sinks", "both"]


def draw_without(source: Source, lens: str, without: Without, tile: int = TILE) -> dict[str, Array]:
    """Return `tiles` uint8 [L, H, t, t'], `scale` and `offset` [L, H], and `without` uint8 [L, H, K]: 1 for keys that do not count.

    Reads a few heads at a time.
    """
    document, signed = source.document, LENSES[lens].signed
    special, shape = _are_special(document), document["shapes"][lens]
    layers, heads, queries, keys = shape
    tiles = np.zeros((layers, heads, min(tile, queries), min(tile, keys)), np.uint8)
    scale, offset = (np.zeros((layers, heads), np.float32) for _ in range(2))
    left = np.zeros((layers, heads, keys), bool)
    for block in blocks(shape):
        values = source.maps(lens, *block)  # [l, h, Q, K]
        if without != "sinks":
            left[block] |= special
        if without != "special":
            window = window_of(source.arrays["keys"][block[0].start], keys)
            left[block] |= find_sinks(values, widened(window, queries) if LENSES[lens].of == "layer" else window)
        values = np.where(left[block][:, :, None, :], np.float32(0), np.nan_to_num(values))
        found = quantise(_pool(values, tile, signed), signed)
        tiles[block], scale[block], offset[block] = found["map"], found["scale"], found["offset"]
    absent = np.isnan(source.arrays[f"tile/{lens}/scale"])  # heads that a layer does not have
    scale[absent] = offset[absent] = np.nan
    return {"tiles": tiles, "scale": scale, "offset": offset, "without": left.astype(np.uint8)}


def _are_special(document: dict[str, Any]) -> Array:
    """Return which tokens along the keys are special, [K]."""
    return np.array([token["kind"] == "special" for token in document["key_tokens"] or document["tokens"]])


def _pool(maps: Array, tile: int, signed: bool) -> Array:
    """Reduce maps to at most tile × tile cells as the stored thumbnails do: [..., Q, K] -> [..., min(tile, Q), min(tile, K)].

    A cell is its entry of largest magnitude; where the cells do not divide the entries, neighbours overlap.
    """
    high, low = maps, maps
    for axis in (-2, -1):
        bands = _bands(maps.shape[axis], tile)
        high = np.stack([_cut(high, axis, band).max(axis) for band in bands], axis)
        low = np.stack([_cut(low, axis, band).min(axis) for band in bands], axis) if signed else high
    return np.where(high >= -low, high, low) if signed else high


def _cut(maps: Array, axis: int, band: slice) -> Array:
    return maps[..., band, :] if axis == -2 else maps[..., band]


def _bands(entries: int, tile: int) -> list[slice]:
    """Return the entries of each cell along an axis."""
    cells = min(tile, entries)
    width = -(-entries // cells)
    starts = [cell * (entries - width) // max(1, cells - 1) for cell in range(cells)]
    return [slice(start, start + width) for start in starts]
