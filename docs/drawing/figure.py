"""Colours, and an SVG that is built element by element."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Point = tuple[float, float]

STYLES = Path(__file__).resolve().parents[2] / "frontend" / "src" / "app" / "styles.css"


def _colours() -> dict[str, str]:
    """Return the light colours of the page."""
    found = re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", STYLES.read_text("utf-8"))
    return dict(reversed(found))  # the first of each name: the light theme stands first


COLOURS = _colours()


def _rgb(name: str) -> Array:
    return np.array([int(COLOURS[name][i : i + 2], 16) for i in (1, 3, 5)], float)


def _ramp(shares: Array, *names: str) -> Array:
    """Shares 0..1 -> colours along evenly spaced stops."""
    stops = np.stack([_rgb(name) for name in names])
    places = np.linspace(0, 1, len(stops))
    return np.stack([np.interp(shares, places, stops[:, i]) for i in range(3)], -1)


def coloured(values: Array, largest: float) -> Array:
    """Square-root scale; paper at 0, blue above, orange below. [...] -> uint8 [..., 3]."""
    shares = np.sqrt(np.clip(np.abs(values) / largest, 0, 1))
    more, less = _ramp(shares, "paper", "more", "more-end"), _ramp(shares, "paper", "less", "less-end")
    return np.rint(np.where((values >= 0)[..., None], more, less)).astype(np.uint8)


def png(pixels: Array) -> bytes:
    """uint8 [rows, columns, 3] as a PNG file."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows, columns, _ = pixels.shape
    raw = b"".join(b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels))
    head = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


class Figure:
    """An SVG of fixed size that is built element by element."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.parts = [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
                f'font-family="system-ui, -apple-system, \'Segoe UI\', \'DejaVu Sans\', sans-serif" font-size="12" fill="{COLOURS["ink"]}">'
            ),
            f"<title>{escape(title)}</title>",
            f'<rect width="100%" height="100%" fill="{COLOURS["paper"]}"/>',
        ]

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 12,
        anchor: str = "start",
        colour: str = "ink",
        turn: float = 0,
        bold: bool = False,
    ) -> None:
        """Add text with its baseline at (x, y)."""
        turned = f' transform="rotate({turn:g} {x:g} {y:g})"' if turn else ""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{COLOURS[colour]}"{weight}{turned}>{escape(words)}</text>'
        )

    def line(
        self, points: Sequence[tuple[float, float]], *, colour: str = "muted", width: float = 1, dashed: bool = False
    ) -> None:
        """Add a line through points."""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<polyline points="{joined}" fill="none" stroke="{COLOURS[colour]}" stroke-width="{width:g}"{dash}/>'
        )

    def area(self, points: Sequence[tuple[float, float]], *, colour: str, opacity: float) -> None:
        """Add a filled shape."""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon points="{joined}" fill="{COLOURS[colour]}" fill-opacity="{opacity:g}"/>')

    def box(self, x: float, y: float, width: float, height: float, *, colour: str = "more") -> None:
        """Add a filled rectangle."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{COLOURS[colour]}"/>'
        )

    def dot(self, x: float, y: float, *, colour: str = "more", radius: float = 3.2) -> None:
        """Add a filled circle."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{COLOURS[colour]}"/>')

    def image(self, x: float, y: float, width: float, height: float, pixels: Array) -> None:
        """Add pixels with sharp edges, in a thin frame."""
        data = base64.b64encode(png(pixels)).decode()
        self.parts.append(
            f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" preserveAspectRatio="none" image-rendering="pixelated" '
            f'href="data:image/png;base64,{data}"/>'
            f'<rect x="{x - 0.5:g}" y="{y - 0.5:g}" width="{width + 1:g}" height="{height + 1:g}" fill="none" stroke="{COLOURS["line"]}"/>'
        )

    def legend(self, x: float, y: float, largest: float, *, signed: bool, width: float = 120) -> None:
        """Add the colour scale with its numbers."""
        low = -largest if signed else 0.0
        values = np.linspace(low, largest, 64)[None]
        self.image(x, y, width, 8, coloured(values, largest))
        for value in (low, 0.0, largest) if signed else (low, largest):
            place = x + width * (value - low) / (largest - low)
            self.text(place, y + 21, number(value), size=10, anchor="middle", colour="muted")
        self.text(x + width + 18, y + 8, "square-root scale", size=10, colour="muted")

    def svg(self) -> str:
        """Return the file's content."""
        return "\n".join([*self.parts, "</svg>", ""])


def number(value: float) -> str:
    """Format a number without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")
