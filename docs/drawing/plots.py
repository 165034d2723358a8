"""The figures of the gallery, drawn by its own code, with plotly in the Chromium of this machine."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import gallery
from PIL import Image

from headscope.figures.images import Renderer

# In px of 1/96 inch; a PNG has three pixels for each.
WIDTH, HEIGHT = 560, 300
# For those with a panel per layer or lens.
TALL = {"pattern-grid": 380, "token-similarity": 380}
# Enough colours for lines and their edges; the file is a quarter of the size.
COLOURS = 64


def take(target: Path) -> None:
    """Draw every figure, as figure-NAME.png or study-figure-NAME.png."""
    renderer, names = Renderer(), dict[str, Any]()
    for part in gallery.PARTS:
        exec(part.code, names)
        for name in part.figures:
            drawn = names[part.result].figure(name).to_plotly_json()
            painted = asyncio.run(renderer.render(drawn, "png", WIDTH, TALL.get(name, HEIGHT)))
            few = Image.open(io.BytesIO(painted)).convert("RGB").quantize(COLOURS)
            few.save(target / part.picture(name), optimize=True)
