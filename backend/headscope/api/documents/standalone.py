"""A whole analysis as one HTML page: the viewer, and what it would have asked the server for. It opens from a file and can reach no network.

Each answer stands in a script element of a type that is no script, as gzip in base64: whatever a token holds, none of its characters is there to be read
as HTML. The policy of the page allows its own script and style by their digests and nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from ...core.streams import Chunks
from ...errors import BudgetExceeded, Unsupported
from ...lenses import LENSES
from ...store.export import Source
from ..routes.maps import quantise

Array = NDArray[Any]
Precision = Literal["float32", "float16", "uint8"]
MIB = 1024 * 1024
# Bytes of all maps of a page, before gzip and base64, up to which they have a precision. More than the last does not go into a page.
MOST: dict[Precision, int] = {"float32": 16 * MIB, "float16": 32 * MIB, "uint8": 128 * MIB}
WIDTH: dict[Precision, int] = {"float32": 4, "float16": 2, "uint8": 1}
POLICY = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="app" data-fragment="{fragment}"></div>
<noscript>This page draws attention maps in the browser and needs JavaScript; it needs no network.</noscript>
"""


def stream_html(stored: Source, viewer: Path, answers: dict[str, bytes], fragment: str = "") -> Chunks:
    """The analysis and the viewer, a layer in memory at a time. `answers` are those of the interface in JSON, by path; `fragment` is what to show first, such as head=4.5.

    Raises BudgetExceeded if the maps are too many for a page, Unsupported if the viewer is not built, Corrupt if the result is damaged.
    """
    precision = precision_of(stored)
    script, style = _viewer(viewer, "js"), _viewer(viewer, "css")
    policy = POLICY.format(script=_digest(script), style=_digest(style))
    title = html.escape(f"Headscope: {stored.document['request']['model']}, {len(stored.document['tokens'])} tokens")
    head = PAGE.format(policy=html.escape(policy), title=title, style=style, fragment=html.escape(fragment))
    yield head.encode()
    for name, answer in chain(answers.items(), _arrays(stored), _maps(stored, precision)):
        yield _part(name, answer).encode()
    yield f'<script type="module">{script}</script>\n</body>\n</html>\n'.encode()


def precision_of(stored: Source) -> Precision:
    """The best that keeps the page small. Raises BudgetExceeded if none does."""
    shapes = stored.document["shapes"]
    entries = sum(int(np.prod(shapes[lens])) for lens in stored.document["kept"])
    for precision, most in MOST.items():
        if entries * WIDTH[precision] <= most:
            return precision
    raise BudgetExceeded(
        "These maps are too many for a web page. Export them as safetensors, or analyse fewer layers, heads or lenses and export that.",
        limit=MOST["uint8"],
        actual=entries,
    )


def _arrays(stored: Source) -> Iterator[tuple[str, bytes]]:
    """Thumbnails and measures, as the interface answers them."""
    document, arrays = stored.document, stored.arrays
    for lens in document["lenses"]:
        yield f"/grid/{lens}", save({part: arrays[f"tile/{lens}/{part}"] for part in ("tiles", "scale", "offset")})
    for measure, lenses in document["measures"].items():
        for lens in lenses:
            yield f"/measures/{measure}/{lens}", save({"values": _floats(arrays[f"measure/{measure}/{lens}"])})


def _maps(stored: Source, precision: Precision) -> Iterator[tuple[str, bytes]]:
    """Layer by layer, so that a page reads only what is looked at."""
    for lens in stored.document["kept"]:
        for layer in range(stored.document["shapes"][lens][0]):
            values = stored.maps(lens, slice(layer, layer + 1), slice(None))
            yield f"/maps/{lens}/{layer}", save(_reduced(values, precision, LENSES[lens].signed))


def _reduced(values: Array, precision: Precision, signed: bool) -> dict[str, Array]:
    if precision == "uint8":
        return quantise(values, signed)
    if precision == "float16" and np.nanmax(np.abs(values), initial=0) <= np.finfo(np.float16).max:
        return {"map": values.astype(np.float16)}
    return {"map": np.ascontiguousarray(values, dtype=np.float32)}


def _floats(values: Array) -> Array:
    return np.ascontiguousarray(values, dtype=np.float32)


def _part(name: str, answer: bytes) -> str:
    """One answer; its name is of our own words, lenses and measures."""
    packed = base64.b64encode(gzip.compress(answer, 6, mtime=0)).decode("ascii")
    return f'<script type="text/plain" data-answer="{html.escape(name)}">{packed}</script>\n'


def _viewer(folder: Path, kind: str) -> str:
    """A file of the built viewer, which must not be able to end the element it stands in."""
    try:
        text = (folder / f"viewer.{kind}").read_text("utf-8")
    except OSError:
        raise Unsupported("The page is not built here, so there is no viewer to export. Run make page.") from None
    # In script and style these letters stand in strings only, where a backslash before the slash changes nothing.
    return re.sub(r"</(?=script|style)", r"<\\/", text, flags=re.IGNORECASE)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
