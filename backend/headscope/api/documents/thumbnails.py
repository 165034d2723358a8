"""Thumbnails of maps in which some keys do not count: special tokens, and sinks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from ...core.arrays import Array
from ...lenses import LENSES
from ...measures.received import received_and_given, sinks_of, widened, window_of
from ...store.export import Source
from ...store.map_file import MapPart
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
    if without != "sinks":
        left |= special
    if without != "special":
        for layer, chosen, sinks in _find_sinks(source, lens):
            left[layer, chosen] |= sinks
    for layer, chosen, cells in _pooled(source, lens, left, tile, signed):
        found = quantise(cells[None], signed)
        tiles[layer, chosen], scale[layer, chosen], offset[layer, chosen] = (
            found[name][0] for name in ("map", "scale", "offset")
        )
    absent = np.isnan(source.arrays[f"tile/{lens}/scale"])  # heads that a layer does not have
    scale[absent] = offset[absent] = np.nan
    return {"tiles": tiles, "scale": scale, "offset": offset, "without": left.astype(np.uint8)}


def _find_sinks(source: Source, lens: str) -> Iterator[tuple[int, slice, Array]]:
    """Yield the layer, some heads, and which keys are their sinks, [h, K] (bool)."""
    queries, keys = source.document["shapes"][lens][2:]
    received, given = np.zeros(0), list[Array]()
    for part in source.parts(lens):
        found, rows = received_and_given(part.values)
        received, given = (received + found, [*given, rows]) if part.row else (found, [rows])
        if part.row + part.values.shape[1] == queries:
            window = window_of(source.arrays["keys"][part.layer], keys)
            window = widened(window, queries) if LENSES[lens].of == "layer" else window
            yield part.layer, _heads(part), sinks_of(received, np.concatenate(given, -1), window)


def _pooled(source: Source, lens: str, left: Array, tile: int, signed: bool) -> Iterator[tuple[int, slice, Array]]:
    """Yield the layer, some heads, and their maps reduced to cells as the stored thumbnails are, [h, min(tile, Q), min(tile, K)], without the keys `left` [L, H, K].

    A cell is its entry of largest magnitude; where the cells do not divide the entries, neighbours overlap.
    """
    queries, keys = source.document["shapes"][lens][2:]
    bands, high, low = _bands(queries, tile), np.zeros(0), np.zeros(0)
    for part in source.parts(lens):
        heads = _heads(part)
        values = np.where(left[part.layer, heads][:, None, :], np.float32(0), np.nan_to_num(part.values))
        if part.row == 0:
            shape = (len(values), len(bands), keys)
            high, low = np.full(shape, -np.inf, np.float32), np.full(shape, np.inf, np.float32)
        last = part.row + values.shape[1]
        for cell, band in enumerate(bands):
            if band.start < last and part.row < band.stop:
                rows = values[:, max(0, band.start - part.row) : band.stop - part.row]
                np.maximum(high[:, cell], rows.max(1), out=high[:, cell])
                np.minimum(low[:, cell], rows.min(1), out=low[:, cell])
        if last == queries:
            high = np.stack([high[..., band].max(-1) for band in _bands(keys, tile)], -1)
            low = np.stack([low[..., band].min(-1) for band in _bands(keys, tile)], -1)
            yield part.layer, heads, np.where(high >= -low, high, low) if signed else high


def _heads(part: MapPart) -> slice:
    return slice(part.head, part.head + len(part.values))


def _are_special(document: dict[str, Any]) -> Array:
    """Return which tokens along the keys are special, [K]."""
    return np.array([token["kind"] == "special" for token in document["key_tokens"] or document["tokens"]])


def _bands(entries: int, tile: int) -> list[slice]:
    """Return the entries of each cell along an axis."""
    cells = min(tile, entries)
    width = -(-entries // cells)
    starts = [cell * (entries - width) // max(1, cells - 1) for cell in range(cells)]
    return [slice(start, start + width) for start in starts]
