"""Arrays as JSON values, uint8 maps, thumbnails and PNG images."""

from __future__ import annotations

import io
from collections.abc import Iterable

import numpy as np

from ...core.arrays import Array
from ...core.lazy import Image
from ...errors import NotReady
from ...store.export import Source


def quantise(values: Array, signed: bool) -> dict[str, Array]:
    """Quantise maps [L, H, Q, K] to `map` uint8 with `scale`, `offset`, `max_error` [L, H] and `undefined` [L, H, Q].

    Zero is exact: byte 128 of a signed map, byte 0 of any other.
    """
    undefined = np.asarray(np.isnan(values).any(axis=3))
    values = np.where(undefined[..., None], np.float32(0), values)
    largest = np.maximum(np.abs(values).max(axis=(2, 3)), np.finfo(np.float32).tiny * 256)  # [L, H]
    scale = (largest / (127 if signed else 255)).astype(np.float32)
    zero = 128 if signed else 0
    steps = np.rint(values / scale[:, :, None, None]) + zero
    return {
        "map": np.clip(steps, 0, 255).astype(np.uint8),
        "scale": scale,
        "offset": (-zero * scale).astype(np.float32),
        "max_error": (scale * np.float32(0.5001)).astype(np.float32),
        "undefined": undefined.astype(np.uint8),
    }


def pool_cells(maps: Array, rows: int, columns: int, signed: bool) -> Array:
    """Pool maps [..., Q, K] by cells of rows × columns entries, of which the last ones may be smaller: [..., ceil(Q / rows), ceil(K / columns)].

    A cell is its entry of largest magnitude, NaN if all of them are.
    """
    if rows == columns == 1:
        return maps
    high = low = maps
    for axis, size in ((-1, columns), (-2, rows)):  # the first one, along memory, is several times faster
        starts = np.arange(0, maps.shape[axis], size)
        high = np.fmax.reduceat(high, starts, axis)
        low = np.fmin.reduceat(low, starts, axis) if signed else high
    return np.where(high >= -low, high, low) if signed else high


def sum_rows(bands: Iterable[Array]) -> dict[str, Array]:
    """Sum the magnitudes of a map, given as bands of rows [Q', K]: over keys, `queries` [Q], and over queries, `keys` [K].

    A row with NaN has the sum NaN, and does not count for the keys.
    """
    given: list[Array] = []
    received: Array = np.zeros(())
    for band in bands:
        sums = np.abs(band).sum(1, dtype=np.float64)
        given.append(sums)
        received = received + np.abs(band[~np.isnan(sums)]).sum(0, dtype=np.float64)  # [K]
    return {"queries": np.concatenate(given).astype(np.float32), "keys": received.astype(np.float32)}


def pool_tiles(tiles: Array, size: int, signed: bool) -> Array:
    """Pool thumbnails [L, H, t, t'] down to at most `size` cells per axis. A cell is its entry of largest magnitude."""
    zero = 128 if signed else 0
    distance = tiles.astype(np.int16) - zero
    for axis in (2, 3):
        cells = tiles.shape[axis]
        if size >= cells:
            continue
        edges = [(i * cells // size, -(-(i + 1) * cells // size)) for i in range(size)]
        bands = [np.take(distance, range(low, high), axis=axis) for low, high in edges]
        distance = np.stack([np.where(b.max(axis) >= -b.min(axis), b.max(axis), b.min(axis)) for b in bands], axis=axis)
    return (distance + zero).astype(np.uint8)


def encode_image(stored: Source) -> bytes:
    """Return the analysed image as PNG. Raises NotReady if the analysis has none."""
    pixels = stored.arrays.get("picture")
    if pixels is None:
        raise NotReady(
            "This analysis has no image: its input is a text, or it was made by an earlier version. Send an image in a new request."
        )
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return written.getvalue()
