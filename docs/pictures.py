"""Makes the pictures of README and docs: python docs/pictures.py [page|explanation|measures|heads|layers]

The pictures of the page are taken from the real server by the Chromium of this machine. Those of the explanations are small SVGs drawn here from MiniLM.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "pictures"
STYLES = ROOT / "frontend" / "src" / "app" / "styles.css"

SHORT = "The trophy did not fit into the suitcase because it was too big."
MIDDLE = (
    "The old clock on the town hall stopped at noon, and nobody noticed at first: the baker opened his shop when the bread was done, "
    "and the children came to school when they were hungry for company."
)
LONG = (
    f"{MIDDLE} The mayor held his speeches whenever he saw a crowd, and the train left once everybody who wanted to leave had come. "
    "Only the clockmaker, who had wound the clock every morning for forty years, walked past it with a small smile and did not look up. "
    "When a stranger asked him for the time, he thought for a while, looked at the shadow of the tower, and said that it was early enough "
    "for another coffee, and late enough to go home. In the evening the bells rang all the same, because the sexton had never trusted clocks."
)
ALL = ("entropy", "null_share", "null_share_rows", "leverage")

# What the page shows in the README: text and choices, as they stand in its address.
SHOWN = {"text": MIDDLE, "head": "3.1", "compare": "side", "other": "effective"}
SIZE = {"width": 1440, "height": 900}


# The page


@contextmanager
def server() -> Iterator[str]:
    """The address of a real server with a home of its own."""
    with tempfile.TemporaryDirectory(prefix="headscope-pictures-") as home:
        environment = {**os.environ, "HEADSCOPE_HOME": home, "HEADSCOPE_HUB": "off"}
        command = [sys.executable, "-c", "from headscope.cli import main; main()", "serve", "--port", "0", "--no-open"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                found = re.search(r"http://[\d.:]+", process.stdout.readline())
                if found is None:
                    sys.exit("The server did not start.")
                yield found[0]
            finally:
                process.terminate()


def take_page() -> None:
    """The page in light and dark."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("There is no Chromium on this machine.")
    fragment = "&".join(f"{key}={quote(value)}" for key, value in SHOWN.items())
    with server() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
            page = context.new_page()
            page.goto(f"{address}/#{fragment}")
            _wait_for_marks(page, "grid", "head", "graph")
            page.wait_for_load_state("networkidle")
            page.wait_for_timeout(500)
            page.screenshot(path=TARGET / f"page-{scheme}.png")
            context.close()
        browser.close()


def _wait_for_marks(page: Any, *names: str, seconds: float = 120) -> None:
    """Until the page has painted these. The page's content security policy forbids waiting inside it."""
    until = time.monotonic() + seconds
    for name in names:
        while not page.evaluate(f"performance.getEntriesByName('headscope:{name}').length"):
            if time.monotonic() > until:
                sys.exit(f"The page did not paint its {name}.")
            page.wait_for_timeout(100)


# Drawing


def tokens_of_style() -> dict[str, str]:
    """The light colours of the page, so that pictures and page look alike."""
    found = re.findall(r"--([\w-]+):\s*(#[0-9a-f]{6})", STYLES.read_text("utf-8"))
    return dict(reversed(found))  # the first of each name: the light theme stands first


COLOURS = tokens_of_style()


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
    """An SVG of fixed size that is put together piece by piece."""

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
        """Words with their baseline at (x, y)."""
        turned = f' transform="rotate({turn:g} {x:g} {y:g})"' if turn else ""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}" fill="{COLOURS[colour]}"{weight}{turned}>{escape(words)}</text>'
        )

    def line(
        self, points: Sequence[tuple[float, float]], *, colour: str = "muted", width: float = 1, dashed: bool = False
    ) -> None:
        """A line through points."""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<polyline points="{joined}" fill="none" stroke="{COLOURS[colour]}" stroke-width="{width:g}"{dash}/>'
        )

    def area(self, points: Sequence[tuple[float, float]], *, colour: str, opacity: float) -> None:
        """A filled shape."""
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon points="{joined}" fill="{COLOURS[colour]}" fill-opacity="{opacity:g}"/>')

    def box(self, x: float, y: float, width: float, height: float, *, colour: str = "more") -> None:
        """A filled rectangle."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{COLOURS[colour]}"/>'
        )

    def dot(self, x: float, y: float, *, colour: str = "more", radius: float = 3.2) -> None:
        """A filled circle."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{COLOURS[colour]}"/>')

    def image(self, x: float, y: float, width: float, height: float, pixels: Array) -> None:
        """Pixels with sharp edges, in a thin frame."""
        data = base64.b64encode(png(pixels)).decode()
        self.parts.append(
            f'<image x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" preserveAspectRatio="none" image-rendering="pixelated" '
            f'href="data:image/png;base64,{data}"/>'
            f'<rect x="{x - 0.5:g}" y="{y - 0.5:g}" width="{width + 1:g}" height="{height + 1:g}" fill="none" stroke="{COLOURS["line"]}"/>'
        )

    def legend(self, x: float, y: float, largest: float, *, signed: bool, width: float = 120) -> None:
        """The colour scale with its numbers."""
        low = -largest if signed else 0.0
        values = np.linspace(low, largest, 64)[None]
        self.image(x, y, width, 8, coloured(values, largest))
        for value in (low, 0.0, largest) if signed else (low, largest):
            place = x + width * (value - low) / (largest - low)
            self.text(place, y + 21, _number(value), size=10, anchor="middle", colour="muted")
        self.text(x + width + 18, y + 8, "square-root scale", size=10, colour="muted")

    def write(self, name: str) -> None:
        """Save it."""
        (TARGET / f"{name}.svg").write_text("\n".join([*self.parts, "</svg>", ""]), "utf-8")


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", "−")


def _axes(
    figure: Figure,
    frame: tuple[float, float, float, float],
    ticks: Sequence[float],
    top: float,
    words: str,
    *,
    digits: int = 1,
) -> None:
    """Left axis of a chart in frame (x, y, width, height) with values 0..top, and its grid."""
    x, y, width, height = frame
    for tick in ticks:
        place = y + height * (1 - tick / top)
        figure.line([(x, place), (x + width, place)], colour="line")
        figure.text(x - 6, place + 4, f"{tick:.{digits}f}", size=10, anchor="end", colour="muted")
    figure.text(x - 34, y + height / 2, words, size=11, anchor="middle", turn=-90, colour="muted")


# The explanations

TICKS = ("[CLS]", "clock", "noon", "baker", "bread", "children", "[SEP]")


def _ticks(figure: Figure, tokens: Sequence[str], x: float, y: float, cell: float, *, left: bool) -> None:
    """Some tokens by name: as columns under a map at (x, y + n cells), and as rows to its left."""
    n = len(tokens)
    for place, token in enumerate(tokens):
        if token not in TICKS:
            continue
        centre = (place + 0.5) * cell
        figure.line([(x + centre, y + n * cell + 1), (x + centre, y + n * cell + 4)])
        figure.text(x + centre + 3.5, y + n * cell + 8, token, size=10, anchor="end", turn=-90, colour="muted")
        if left:
            figure.line([(x - 4, y + centre), (x - 1, y + centre)])
            figure.text(x - 7, y + centre + 3.5, token, size=10, anchor="end", colour="muted")


def draw_weights(model: Any) -> None:
    """Two heads of a short text, every token named."""
    import headscope

    a = headscope.analyze(model, SHORT, lenses=("weights",), measures=())
    tokens = [token.text for token in a.tokens]
    n, cell, y = len(tokens), 17, 44
    figure = Figure(760, y + n * cell + 118, "Weights of two heads of MiniLM for one sentence")
    for x, (layer, head), words in ((74, (4, 5), "rests on one token"), (460, (0, 2), "looks at the token before")):
        figure.text(x, 18, f"head {layer}.{head}", bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(a.maps["weights"][layer, head], 1.0))
        for place, token in enumerate(tokens):
            figure.text(x - 6, y + (place + 0.5) * cell + 4, token, size=11, anchor="end")
            figure.text(x + (place + 0.5) * cell + 4, y + n * cell + 6, token, size=11, anchor="end", turn=-90)
    figure.text(74, y + n * cell + 84, "rows are queries, columns are keys", size=11, colour="muted")
    figure.legend(460, y + n * cell + 76, 1.0, signed=False)
    figure.write("weights")


def draw_effective(a: Any) -> None:
    """One head: weights, effective attention, and the difference."""
    layer, head = 4, 5
    tokens = [token.text for token in a.tokens]
    weights, effective = a.maps["weights"][layer, head], a.maps["effective"][layer, head]
    share = a.measures["null_share"]["weights"][layer, head]
    n, cell, y, largest = len(tokens), 5, 44, float(weights.max())
    panels = (("weights", "what the model computed", weights), ("effective attention", "what reaches the output", effective),
              ("the difference", f"multiplies to nothing: null share {share:.2f}", weights - effective))  # fmt: skip
    figure = Figure(760, y + n * cell + 104, f"Head {layer}.{head} of MiniLM through two lenses")
    for place, (title, words, values) in enumerate(panels):
        x = 62 + place * (n * cell + 20)
        figure.text(x, 18, title, bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, largest))
        _ticks(figure, tokens, x, y, cell, left=place == 0)
    figure.text(62, y + n * cell + 82, f"head {layer}.{head}, {n} tokens, 32 dimensions", size=11, colour="muted")
    figure.legend(502, y + n * cell + 70, largest, signed=True)
    figure.write("effective")


def draw_simplex(a: Any) -> None:
    """Both versions of effective attention with the sums of their rows."""
    layer, head = 5, 4
    tokens = [token.text for token in a.tokens]
    n, cell, y, bar = len(tokens), 5.4, 44, 62
    maps = [a.maps[lens][layer, head] for lens in ("effective", "effective-simplex")]
    largest = float(max(np.abs(values).max() for values in maps))
    figure = Figure(
        760, y + n * cell + 104, f"Head {layer}.{head} of MiniLM with and without the condition on row sums"
    )
    for place, (title, values) in enumerate(zip(("effective attention", "rows sum to 1"), maps, strict=True)):
        x = 62 + place * (n * cell + bar + 50)
        figure.text(x, 18, title, bold=True)
        figure.text(x + n * cell + 12, 18, "row sums", size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, largest))
        _ticks(figure, tokens, x, y, cell, left=place == 0)
        left, scale = x + n * cell + 12, bar / 1.2
        for row, total in enumerate(values.sum(1)):
            figure.box(
                left + min(0, total * scale),
                y + row * cell + 0.7,
                abs(total) * scale,
                cell - 1.4,
                colour="more" if total >= 0 else "less",
            )
        for value in (0, 1):
            figure.line([(left + value * scale, y), (left + value * scale, y + n * cell)], dashed=value == 1)
            figure.text(left + value * scale, y + n * cell + 14, str(value), size=10, anchor="middle", colour="muted")
    figure.text(62, y + n * cell + 82, f"head {layer}.{head}, {n} tokens, 32 dimensions", size=11, colour="muted")
    figure.legend(460, y + n * cell + 70, largest, signed=True)
    figure.write("effective-simplex")


def draw_softmax(model: Any) -> None:
    """Scores and weights of one query."""
    import headscope

    layer, head, word = 5, 3, "suitcase"
    a = headscope.analyze(model, SHORT, lenses=("weights",), measures=())
    tokens = [token.text for token in a.tokens]
    row = a.maps["weights"][layer, head, tokens.index(word)].astype(float)
    scores = np.log(row / row.max())
    figure = Figure(760, 366, f"One query of head {layer}.{head} of MiniLM: scores and weights")
    left, step = 66, 676 / len(tokens)
    for y, height, values, top, title in (
        (40, 90, scores - scores.min(), float(-scores.min()), "scores, above the smallest"),
        (178, 90, row, float(row.max()), "weights"),
    ):
        figure.text(left, y - 10, title, bold=True)
        for value in (0, top):
            place = y + height * (1 - value / top)
            figure.line([(left, place), (left + 676, place)], colour="line")
            figure.text(left - 6, place + 4, _number(value), size=10, anchor="end", colour="muted")
        for key, value in enumerate(values):
            figure.box(left + key * step + 6, y + height * (1 - value / top), step - 12, height * value / top)
    for key, token in enumerate(tokens):
        figure.text(left + (key + 0.5) * step + 4, 276, token, size=11, anchor="end", turn=-90)
    figure.text(left, 350, f"query “{word}” of head {layer}.{head}", size=11, colour="muted")
    figure.write("softmax")


def draw_entropy(a: Any) -> None:
    """Every head's mean entropy, by layer."""
    means = a.measures["entropy"]["weights"].mean(-1)
    n = len(a.tokens)
    x, y, width, height, top = 66.0, 30.0, 620.0, 240.0, 4.0
    figure = Figure(760, 330, "Mean entropy of every head of MiniLM")
    _axes(figure, (x, y, width, height), (0, 1, 2, 3, 4), top, "mean entropy, nats", digits=0)
    for count in (1, 2, 5, 10, 20, n):
        figure.text(x + width + 8, y + height * (1 - np.log(count) / top) + 4, str(count), size=10, colour="muted")
    figure.text(
        x + width + 52, y + height / 2, "perplexity, tokens", size=11, anchor="middle", turn=-90, colour="muted"
    )
    most = y + height * (1 - np.log(n) / top)
    figure.line([(x, most), (x + width, most)], colour="ink", dashed=True)
    figure.text(x + width - 2, most + 13, f"the same weight on all {n} tokens", size=10, anchor="end", colour="muted")
    step = width / means.shape[0]
    for layer, row in enumerate(means):
        figure.text(x + (layer + 0.5) * step, y + height + 18, f"layer {layer}", size=11, anchor="middle")
        for head, value in enumerate(row):
            figure.dot(x + layer * step + step * (head + 1) / (len(row) + 1), y + height * (1 - value / top))
    figure.text(
        x, y + height + 42, "one dot per head, in order within its layer; mean over queries", size=11, colour="muted"
    )
    figure.write("entropy")


def draw_null_share(model: Any) -> None:
    """Null share of all heads for one text cut to more and more tokens."""
    import headscope

    counts = [8, 16, 24, 31, 32, 33, 34, 36, 40, 44, 48, 56, 64, 80, 96, 112, 128]
    shares = []
    for count in counts:
        a = headscope.analyze(model, LONG, lenses=(), measures=("null_share",), max_tokens=count, maps=False)
        if len(a.tokens) != count:
            sys.exit(f"The long text has only {len(a.tokens)} tokens.")
        shares.append(np.sort(a.measures["null_share"]["weights"].ravel()))
    values = np.stack(shares)
    x, y, width, height = 66.0, 26.0, 650.0, 250.0
    figure = Figure(760, 352, "Null share of all heads of MiniLM against the number of tokens")

    def at(count: float, share: float) -> tuple[float, float]:
        return x + width * count / 128, y + height * (1 - share)

    _axes(figure, (x, y, width, height), (0, 0.25, 0.5, 0.75, 1), 1.0, "null share", digits=2)
    for low, high, opacity in ((0, 71, 0.12), (18, 53, 0.25)):
        edge = [at(c, v) for c, v in zip(counts, values[:, high], strict=True)]
        figure.area(
            [*edge, *reversed([at(c, v) for c, v in zip(counts, values[:, low], strict=True)])],
            colour="more",
            opacity=opacity,
        )
    figure.line([at(c, v) for c, v in zip(counts, np.median(values, axis=1), strict=True)], colour="more-end", width=2)
    random = [(c, max(0.0, 1 - 32 / c)) for c in range(8, 129)]
    figure.line([at(*point) for point in random], colour="less", width=1.5, dashed=True)
    figure.line([at(32, 0), at(32, 1)], colour="ink")
    figure.text(at(32, 0)[0] - 6, y + 12, "32 tokens: head width", size=10, anchor="end", colour="muted")
    for count in (0, 32, 64, 96, 128):
        figure.text(at(count, 0)[0], y + height + 17, str(count), size=10, anchor="middle", colour="muted")
    figure.text(x + width / 2, y + height + 34, "tokens", size=11, anchor="middle", colour="muted")
    figure.line([(x, y + height + 54), (x + 22, y + height + 54)], colour="more-end", width=2)
    figure.text(
        x + 28, y + height + 58, "median of 72 heads; bands: half of them, all of them", size=11, colour="muted"
    )
    figure.line([(x + 360, y + height + 54), (x + 382, y + height + 54)], colour="less", width=1.5, dashed=True)
    figure.text(x + 388, y + height + 58, "a random row: 1 − 32 / tokens", size=11, colour="muted")
    figure.write("null_share")


def draw_null_share_rows(a: Any) -> None:
    """Null share of every query in the heads of one layer."""
    layer = 3
    values = a.measures["null_share_rows"]["weights"][layer]
    tokens = [token.text for token in a.tokens]
    heads, n = values.shape
    x, y, cell, row = 66, 40, 15.6, 17
    figure = Figure(760, y + heads * row + 124, f"Null share of every query in the heads of layer {layer} of MiniLM")
    figure.text(x, 22, f"null share of each query, heads of layer {layer}", bold=True)
    figure.image(x, y, n * cell, heads * row, coloured(values**2, 1.0))
    for head in range(heads):
        figure.text(x - 6, y + (head + 0.5) * row + 4, f"{layer}.{head}", size=11, anchor="end")
    for place, token in enumerate(tokens):
        figure.text(x + (place + 0.5) * cell + 4, y + heads * row + 6, token, size=11, anchor="end", turn=-90)
    foot = y + heads * row + 92
    figure.image(x, foot, 120, 8, coloured(np.linspace(0, 1, 64)[None] ** 2, 1.0))
    for value in (0.0, 1.0):
        figure.text(x + 120 * value, foot + 21, _number(value), size=10, anchor="middle", colour="muted")
    figure.text(x + 138, foot + 8, "linear scale", size=10, colour="muted")
    figure.write("null_share_rows")


def draw_leverage(a: Any) -> None:
    """Weight received and leverage of every token in one head."""
    layer, head = 4, 5
    tokens = [token.text for token in a.tokens]
    received = a.maps["weights"][layer, head].mean(0)
    leverage = a.measures["leverage"]["weights"][layer, head]
    n, x, step = len(tokens), 66, 15.6
    figure = Figure(760, 390, f"Weight received and leverage of every token in head {layer}.{head} of MiniLM")
    for y, height, values, title in ((40, 100, received, "mean weight received"), (180, 100, leverage, "leverage")):
        figure.text(x, y - 12, title, bold=True)
        for value in (0, 0.5, 1):
            place = y + height * (1 - value)
            figure.line([(x, place), (x + n * step, place)], colour="line")
            figure.text(x - 6, place + 4, _number(value), size=10, anchor="end", colour="muted")
        for key, value in enumerate(values):
            figure.box(
                x + key * step + 2,
                y + height * (1 - value),
                step - 4,
                max(height * float(value), 0.8),
                colour="accent" if key == received.argmax() else "more",
            )
    mean = 180 + 100 * (1 - 32 / n)
    figure.line([(x, mean), (x + n * step, mean)], colour="ink", dashed=True)
    figure.text(x + n * step, 170, f"dashed: mean, 32 / {n}", size=10, anchor="end", colour="muted")
    for place, token in enumerate(tokens):
        figure.text(x + (place + 0.5) * step + 4, 286, token, size=11, anchor="end", turn=-90)
    figure.text(x, 378, f"head {layer}.{head}; in red the token that receives most", size=11, colour="muted")
    figure.write("leverage")


def _panels(name: str, title: str, tokens: Sequence[str], maps: Sequence[tuple[str, str, Array]], foot: str) -> None:
    """Maps of one head side by side on one colour scale, each with its name and a few words."""
    n, count = len(tokens), len(maps)
    cell = (760 - 62 - 20 * count) / count / n
    y, largest = 44, float(max(np.abs(values).max() for _, _, values in maps))
    figure = Figure(760, y + n * cell + 104, title)
    for place, (heading, words, values) in enumerate(maps):
        x = 62 + place * (n * cell + 20)
        figure.text(x, 18, heading, bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, largest))
        _ticks(figure, tokens, x, y, cell, left=place == 0)
    figure.text(62, y + n * cell + 82, foot, size=11, colour="muted")
    figure.legend(502, y + n * cell + 70, largest, signed=any(values.min() < 0 for _, _, values in maps))
    figure.write(name)


def draw_null(a: Any) -> None:
    """One head split into what reaches the output and what does not."""
    layer, head = 3, 7
    weights, effective = a.maps["weights"][layer, head], a.maps["effective"][layer, head]
    maps = (("weights", "what the model computed", weights), ("effective attention", "what reaches the output", effective),
            ("null part", "what multiplies to nothing", weights - effective))  # fmt: skip
    tokens = [token.text for token in a.tokens]
    foot = f"head {layer}.{head}, {len(tokens)} tokens, 32 dimensions"
    _panels("null", f"Head {layer}.{head} of MiniLM and its null part", tokens, maps, foot)


def draw_published(model: Any) -> None:
    """A short sentence by the definition and as published."""
    import headscope

    layer, head, published = 0, 2, "effective-published"
    a = headscope.analyze(model, SHORT, lenses=("weights", "effective", published), measures=())
    maps = (("weights", "what the model computed", a.maps["weights"][layer, head]),
            ("effective attention", "as defined: the same", a.maps["effective"][layer, head]),
            ("as published", "padded to 128 tokens", a.maps[published][layer, head]))  # fmt: skip
    tokens = [token.text for token in a.tokens]
    foot = f"head {layer}.{head}, {len(tokens)} tokens, 32 dimensions"
    _panels(published, f"Head {layer}.{head} of MiniLM by the definition and as published", tokens, maps, foot)


def draw_max_entropy(model: Any) -> None:
    """One head of a longer text and the most even distributions with its outputs."""
    import headscope

    layer, head = 1, 5
    a = headscope.analyze(model, LONG, lenses=("weights", "max-entropy"), measures=("entropy",), max_tokens=96)
    nats = [a.measures["entropy"][lens][layer, head].mean() for lens in ("weights", "max-entropy")]
    maps = [
        (title, f"mean entropy {value:.2f} nats", a.maps[lens][layer, head])
        for title, lens, value in zip(("weights", "maximum entropy"), ("weights", "max-entropy"), nats, strict=True)
    ]
    tokens = [token.text for token in a.tokens]
    foot = f"head {layer}.{head}, {len(tokens)} tokens, 32 dimensions"
    _panels("max-entropy", f"Head {layer}.{head} of MiniLM and the most even map with its output", tokens, maps, foot)


def draw_norm(a: Any) -> None:
    """One head's weights beside the norms of its contributions, each on a scale of its own."""
    layer, head = 4, 5
    tokens = [token.text for token in a.tokens]
    n, cell, y = len(tokens), 7.2, 44
    figure = Figure(760, y + n * cell + 110, f"Head {layer}.{head} of MiniLM: weights and norms of contributions")
    for place, (lens, title, words) in enumerate(
        (
            ("weights", "weights", "how much of each token"),
            ("norm", "norm of contributions", "how long what it adds is"),
        )
    ):
        x, values = 62 + place * (n * cell + 40), a.maps[lens][layer, head]
        figure.text(x, 18, title, bold=True)
        figure.text(x, 34, words, size=11, colour="muted")
        figure.image(x, y, n * cell, n * cell, coloured(values, float(values.max())))
        _ticks(figure, tokens, x, y, cell, left=place == 0)
        figure.legend(x + 70, y + n * cell + 74, float(values.max()), signed=False)
    figure.write("norm")


def draw_special_broadcast(a: Any) -> None:
    """Every head's weight on special tokens against their share of what it puts out."""
    special = np.array([token.kind == "special" for token in a.tokens])
    weight = a.maps["weights"][:, :, ~special][..., special].sum(-1).mean(-1)
    share = a.measures["special_broadcast"]["weights"]
    x, y, width, height = 66.0, 26.0, 650.0, 220.0
    figure = Figure(760, 316, "Special tokens in the weights and in the output of every head of MiniLM")
    top = 0.25
    _axes(figure, (x, y, width, height), (0, 0.05, 0.1, 0.15, 0.2, 0.25), top, "broadcast by special tokens", digits=2)
    figure.line([(x, y + height), (x + width * top, y)], colour="ink", dashed=True)
    figure.text(x + width * top + 6, y + 8, "as much output as weight", size=10, colour="muted")
    for layer, row in enumerate(share):
        for head, value in enumerate(row):
            place = x + width * float(weight[layer, head]), y + height * (1 - float(value) / top)
            figure.dot(*place)
            if value > 0.14 or weight[layer, head] > 0.7:
                figure.text(place[0] + 6, place[1] + 4, f"{layer}.{head}", size=10, colour="muted")
    for value in (0, 0.25, 0.5, 0.75, 1):
        figure.text(x + width * value, y + height + 17, _number(value), size=10, anchor="middle", colour="muted")
    figure.text(x + width / 2, y + height + 36, "weight on special tokens", size=11, anchor="middle", colour="muted")
    foot = f"one dot per head; {len(a.tokens)} tokens, two of them special; queries that are words"
    figure.text(x, y + height + 58, foot, size=11, colour="muted")
    figure.write("special_broadcast")


def draw_explanations() -> None:
    """All pictures of the explanations."""
    import headscope

    model = headscope.load("minilm")
    a = headscope.analyze(model, MIDDLE, lenses=("weights", "effective", "effective-simplex"), measures=ALL)
    draw_weights(model)
    draw_effective(a)
    draw_simplex(a)
    draw_softmax(model)
    draw_entropy(a)
    draw_null_share(model)
    draw_null_share_rows(a)
    draw_leverage(a)
    b = headscope.analyze(model, MIDDLE, lenses=("weights", "effective", "norm"), measures=("special_broadcast",))
    draw_null(b)
    draw_norm(b)
    draw_special_broadcast(b)
    draw_published(model)
    draw_max_entropy(model)


def main(wanted: Sequence[str]) -> None:
    """Make the pictures that are wanted, or all."""
    TARGET.mkdir(exist_ok=True)
    if not wanted or "explanation" in wanted:
        draw_explanations()
    if not wanted or "measures" in wanted:
        from pictures_measures import draw

        draw()
    if not wanted or "heads" in wanted:
        from pictures_heads import draw as draw_heads

        draw_heads()
    if not wanted or "layers" in wanted:
        from pictures_layers import draw as draw_layers

        draw_layers()
    if not wanted or "page" in wanted:
        take_page()


if __name__ == "__main__":
    main(sys.argv[1:])
