"""All heads of an analysis as one small picture, for lists and for places where the viewer cannot run."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from ...core.lazy import Image
from ...lenses import LENSES
from ...store.export import Source
from .arrays import pool_tiles
from .standalone import LONGEST
from .thumbnails import draw_without

# Cells per side of a head in a picture, fewer where the whole picture would be wider or higher than MOST_SIDE px.
CELLS, MOST_SIDE = 16, 640
# Visible on light and on dark paper.
INK = (63, 116, 192)


def draw_heads(source: Source, *, special: bool = False) -> str:
    """Return the thumbnails of all heads in the first lens, a row per layer, as the data URL of a PNG whose opacity shows the weights.

    Without `special`, special tokens and sinks do not count, as the viewer first shows the heads; this reads the maps, up to 2,048 tokens.
    """
    lens = source.document["kept"][0]
    layers, heads, *sides = source.document["shapes"][lens]
    cells, signed = max(1, min(CELLS, MOST_SIDE // max(layers, heads))), LENSES[lens].signed
    tiles = (
        pool_tiles(source.arrays[f"tile/{lens}/tiles"], cells, signed)
        if special or max(sides) > LONGEST
        else draw_without(source, lens, "both", cells)["tiles"]
    )
    weights = np.abs(tiles / 255 if not signed else tiles / 127 - 128 / 127).clip(0, 1)  # [L, H, t, t']
    framed = np.pad(np.sqrt(weights), ((0, 0), (0, 0), (0, 1), (0, 1)))
    opacity = framed.transpose(0, 2, 1, 3).reshape(layers * framed.shape[2], heads * framed.shape[3])
    image = Image.fromarray(np.rint(opacity * 255).astype(np.uint8))  # as places in the palette
    image.putpalette(INK * 256)
    return to_data_url(image, transparency=bytes(range(256)))


def to_data_url(image: Any, **options: Any) -> str:
    """Return a picture as a PNG in a data URL; `options` are those of Pillow's PNG writer."""
    written = io.BytesIO()
    image.save(written, "PNG", optimize=True, **options)
    return f"data:image/png;base64,{base64.b64encode(written.getvalue()).decode('ascii')}"
