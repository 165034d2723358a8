"""Pictures of the figures of a sentence by MiniLM, drawn by plotly in the Chromium of this machine."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from PIL import Image

import headscope
from headscope.figures.images import Renderer

from .samples import LABELS, MIDDLE, POS, TAGGED, analysed

# In px of 1/96 inch; a PNG has three pixels for each.
WIDTH, HEIGHT = 560, 300
# Enough colours for lines and their edges; the file is a quarter of the size.
COLOURS = 64


def take(target: Path) -> None:
    """Draw every figure as figure-NAME.png."""
    renderer = Renderer()
    for name, figure in headscope.FIGURES.items():
        tags = {"pos": POS.split(), "labels": LABELS.split()} if name == "token_types" else {}
        drawn = analysed(TAGGED if tags else MIDDLE, measures=figure.measures, **tags).figure(name)
        painted = asyncio.run(renderer.render(drawn.to_plotly_json(), "png", WIDTH, HEIGHT))
        few = Image.open(io.BytesIO(painted)).convert("RGB").quantize(COLOURS)
        few.save(target / f"figure-{name}.png", optimize=True)
