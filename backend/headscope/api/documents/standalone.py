"""An analysis as a self-contained HTML page: the viewer and the API responses that it reads. It opens from a file and has no network access.

Each response is stored in a script element of a non-script type, as gzip in base64, so that no character of a token can be parsed as HTML. The page's
content security policy allows only its own script and style, by their digests.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlencode

import numpy as np
from safetensors.numpy import save as to_safetensors

from ...core.arrays import Array
from ...core.streams import Chunks, save
from ...errors import BudgetExceeded, Unsupported
from ...lenses import LENSES
from ...measures import MEASURES
from ...mechanisms import MECHANISMS
from ...store.export import Source
from ..schemas.common import Page
from ..schemas.methods import DeclarationSchema, LensSchema, MeasureSchema, describe
from ..schemas.models import ModelCard
from .analyses import to_document
from .arrays import encode_image, quantise
from .page_factors import pack
from .selection import Selection
from .thumbnails import draw_without

_API = Path(__file__).resolve().parents[1]

Precision = Literal["float32", "float16", "uint8"]
MIB = 1024 * 1024
# Largest total size of the maps at each precision, in bytes before gzip and base64. Maps above the last limit are rejected.
MOST: dict[Precision, int] = {"float32": 16 * MIB, "float16": 32 * MIB, "uint8": 128 * MIB}
WIDTH: dict[Precision, int] = {"float32": 4, "float16": 2, "uint8": 1}
# Largest page with factors, in bytes.
MOST_BYTES = 50_000_000
# Longer maps have no thumbnails without special tokens and sinks, as the viewer reads them in parts.
LONGEST = 2048
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
{above}<div id="app" data-fragment="{fragment}"></div>
<noscript>This page draws attention maps in the browser and needs JavaScript; it needs no network.</noscript>
"""


# The line above the viewer that leads back to a site's list; the viewer leaves room for `--above`.
ABOVE = '<nav class="site"><a href="{href}">← {title}</a></nav>\n'
ABOVE_STYLE = ":root{--above:28px}nav.site{height:28px;padding:6px 16px 0;overflow:hidden;white-space:nowrap}nav.site a{color:var(--muted)}"


@dataclass(frozen=True)
class SitePlace:
    """The place of a page in a site of several: its own title, and the site's title and list, relative to the page."""

    title: str
    site: str
    list_href: str


def page_folder() -> Path:
    """Return the folder of the built page: inside an installed package, or frontend/dist of a checkout."""
    packaged = _API / "page"
    return packaged if packaged.is_dir() else _API.parents[2] / "frontend" / "dist"


def write_page(id_: str, source: Source, path: Path, models: list[ModelCard], fragment: str = "") -> None:
    """Write the page to a file. Arguments and errors are those of stream_page."""
    save(stream_page(id_, source, models, fragment), path)


def stream_page(
    id_: str, source: Source, models: list[ModelCard], fragment: str = "", place: SitePlace | None = None
) -> Chunks:
    """Stream the page of an analysis or of a selection of its heads.

    `models` describes its model, if known; `fragment` selects the initial view, such as head=4.5; `place` is for a page of a site. Raises what stream_html
    raises.
    """
    if isinstance(source, Selection):
        fragment = _open_one_of(source.names, fragment)
    return stream_html(source, page_folder() / "viewer", describe_source(id_, source, models), fragment, place)


def describe_source(id_: str, source: Source, models: list[ModelCard]) -> dict[str, bytes]:
    """Return the responses about the analysis and its methods, by path."""
    documents = {
        "/analysis": to_document(id_, None, source),
        "/models": Page(items=models),
        "/lenses": Page(items=describe(LENSES, LensSchema)),
        "/mechanisms": Page(items=describe(MECHANISMS, DeclarationSchema)),
        "/measures": Page(items=describe(MEASURES, MeasureSchema)),
    }
    answers = {path: document.model_dump_json(by_alias=True).encode() for path, document in documents.items()}
    if "picture" in source.arrays:
        answers["/image"] = encode_image(source)
    return answers


def _open_one_of(heads: list[str], fragment: str) -> str:
    """Return a view that opens one of the heads: its own, if it is one of them."""
    view = dict(parse_qsl(fragment))
    return fragment if view.get("head") in heads else urlencode({**view, "head": heads[0]})


def stream_html(
    stored: Source, viewer: Path, answers: dict[str, bytes], fragment: str = "", place: SitePlace | None = None
) -> Chunks:
    """Stream the viewer and an analysis, with one layer in memory at a time, or with the whole page if it has factors. `answers` are JSON responses by path.

    Raises BudgetExceeded if the maps are too large for a page, Unsupported if the viewer is not built, Corrupt if the result is damaged.
    """
    precision = choose_precision(stored)
    head, script = draw_frame(stored, viewer, fragment, place)
    embedded: Iterable[bytes] = (
        embed(path, answer)
        for path, answer in chain(
            answers.items(),
            ((path, make()) for path, make in array_responses(stored).items()),
            _maps(stored, precision),
        )
    )
    if factored := _factored(stored):
        embedded = _with_factors(stored, factored, embedded, MOST_BYTES - len(head) - len(script))
    yield head
    yield from embedded
    yield script


def draw_frame(stored: Source, viewer: Path, fragment: str, place: SitePlace | None = None) -> tuple[bytes, bytes]:
    """Return what comes before and after the responses. Raises Unsupported if the viewer is not built."""
    script, style = _read_viewer(viewer, "js"), _read_viewer(viewer, "css")
    title, above = f"Headscope: {stored.document['request']['model']}, {len(stored.document['tokens'])} tokens", ""
    if place:
        title, style = f"{place.title} · {place.site}", style + ABOVE_STYLE
        above = ABOVE.format(href=html.escape(place.list_href), title=html.escape(place.site))
    policy = POLICY.format(script=digest(script), style=digest(style))
    head = PAGE.format(
        policy=html.escape(policy), title=html.escape(title), style=style, above=above, fragment=html.escape(fragment)
    )
    return head.encode(), f'<script type="module">{script}</script>\n</body>\n</html>\n'.encode()


def most_bytes(stored: Source, answers: dict[str, bytes]) -> int:
    """Return the largest size that the page of a source can have, in bytes: nothing in it gets smaller by gzip. A page with factors is made to know its size.

    Raises BudgetExceeded and Unsupported as stream_html does.
    """
    viewer = page_folder() / "viewer"
    if _factored(stored):
        return sum(map(len, stream_html(stored, viewer, answers)))
    head, script = draw_frame(stored, viewer, "")
    maps = _entries(stored, stored.document["kept"]) * WIDTH[choose_precision(stored)]
    # Thumbnails are there twice, with and without special tokens.
    arrays = 2 * sum(values.nbytes for values in stored.arrays.values())
    return len(head) + len(script) + (maps + arrays + sum(map(len, answers.values()))) * 4 // 3


def choose_precision(stored: Source) -> Precision:
    """Return the highest precision at which the maps of a page fit into it. Raises BudgetExceeded if none does."""
    entries = _entries(stored, _mapped(stored))
    for precision, most in MOST.items():
        if entries * WIDTH[precision] <= most:
            return precision
    raise BudgetExceeded(
        "These maps are too large for a web page. Choose fewer heads, export them as safetensors, or analyse fewer layers, heads or lenses.",
        limit=MOST["uint8"],
        actual=entries,
    )


def _factored(stored: Source) -> list[str]:
    """Return the lenses of which a page has factors."""
    mapped = _mapped(stored)
    return [lens for lens in stored.document["kept"] if lens not in mapped]


def _mapped(stored: Source) -> list[str]:
    """Return the lenses of which a page has maps: all if they fit in float32, otherwise those of which no factors are kept."""
    kept: list[str] = stored.document["kept"]
    if _entries(stored, kept) * WIDTH["float32"] <= MOST["float32"]:
        return kept
    return [lens for lens in kept if not stored.is_factored(lens)]


def _entries(stored: Source, lenses: Iterable[str]) -> int:
    """Return the number of entries of the maps of some lenses."""
    return sum(int(_exist(stored, lens).sum()) * prod(_sides(stored, lens)) for lens in lenses)


def _exist(stored: Source, lens: str) -> Array:
    """Return which heads there are, [L, H] (bool)."""
    return ~np.isnan(stored.arrays[f"tile/{lens}/scale"])


def _sides(stored: Source, lens: str) -> list[int]:
    sides: list[int] = stored.document["shapes"][lens][2:]
    return sides


def _with_factors(stored: Source, lenses: list[str], embedded: Iterable[bytes], most: int) -> list[bytes]:
    """Return a response with the factors of every head, and the other embedded responses. Raises BudgetExceeded if they take more than `most` bytes.

    Factors come first: thumbnails take longer, and are not needed to know that the page is too large.
    """
    heads = np.argwhere(_exist(stored, lenses[0])).tolist()
    rest = sum(values.nbytes for values in stored.arrays.values()) * 4 // 3
    found, size = list[bytes](), 0
    for done, (layer, head) in enumerate(heads, 1):
        for lens in lenses:
            (one,) = stored.factors(lens, slice(layer, layer + 1), slice(head, head + 1))
            found.append(embed(f"/factors/{lens}/{layer}.{head}", pack(one)))
            size += len(found[-1])
        if size + rest > most:
            raise _too_large(len(heads), size // done, rest, most)
    found += embedded
    if (whole := sum(map(len, found))) > most:
        raise _too_large(len(heads), size // len(heads), whole - size, most)
    return found


def _too_large(heads: int, each: int, rest: int, most: int) -> BudgetExceeded:
    """Return the error for a page with so many heads of `each` bytes, and `rest` bytes beside them."""
    what = "1 head" if heads == 1 else f"{heads} heads"
    size, fit = each * heads + rest, max(0, (most - rest) // each)
    advice = (
        f"Choose fewer heads: {fit} fit"
        if 0 < fit < heads
        else "Analyse fewer lenses or tokens, or export the analysis as safetensors"
    )
    return BudgetExceeded(
        f"A web page with {what} of this text would take about {size / 1e6:,.1f} MB; the limit is {MOST_BYTES / 1e6:g} MB. {advice}.",
        limit=MOST_BYTES,
        actual=size,
    )


def array_responses(stored: Source) -> dict[str, Callable[[], bytes]]:
    """Return what makes the responses with thumbnails and measures, by path."""
    return {path: partial(_save_arrays, make) for path, make in chain(_thumbnails(stored), _measures(stored))}


def _thumbnails(stored: Source) -> Iterator[tuple[str, Callable[[], dict[str, Array]]]]:
    for lens in stored.document["lenses"]:
        parts = {part: stored.arrays[f"tile/{lens}/{part}"] for part in ("tiles", "scale", "offset")}
        yield f"/grid/{lens}", partial(dict, parts)
    for lens in stored.document["kept"]:
        if max(_sides(stored, lens)) <= LONGEST:
            yield f"/grid/{lens}/without", partial(draw_without, stored, lens, "both")


def _measures(stored: Source) -> Iterator[tuple[str, Callable[[], dict[str, Array]]]]:
    for measure, lenses in stored.document["measures"].items():
        for lens in lenses:
            values = stored.arrays[f"measure/{measure}/{lens}"]
            yield f"/measures/{measure}/{lens}", partial(_read_values, values)


def _read_values(values: Array) -> dict[str, Array]:
    return {"values": _to_float32(values)}


def _save_arrays(make: Callable[[], dict[str, Array]]) -> bytes:
    saved: bytes = to_safetensors(make())
    return saved


def _maps(stored: Source, precision: Precision) -> Iterator[tuple[str, bytes]]:
    """Yield one response per layer, so that the viewer decodes only what it shows."""
    for lens in _mapped(stored):
        for layer in range(stored.document["shapes"][lens][0]):
            values = stored.maps(lens, slice(layer, layer + 1), slice(None))
            yield f"/maps/{lens}/{layer}", to_safetensors(_encode(values, precision, LENSES[lens].signed))


def _encode(values: Array, precision: Precision, signed: bool) -> dict[str, Array]:
    if precision == "uint8":
        return quantise(values, signed)
    if precision == "float16" and np.nanmax(np.abs(values), initial=0) <= np.finfo(np.float16).max:
        return {"map": values.astype(np.float16)}
    return {"map": _to_float32(values)}


def _to_float32(values: Array) -> Array:
    return np.ascontiguousarray(values, dtype=np.float32)


def embed(name: str, answer: bytes) -> bytes:
    """Return the script element of a response."""
    packed = base64.b64encode(gzip.compress(answer, 6, mtime=0)).decode("ascii")
    return f'<script type="text/plain" data-answer="{html.escape(name)}">{packed}</script>\n'.encode()


def _read_viewer(folder: Path, kind: str) -> str:
    """Return a file of the built viewer, escaped so that it cannot close its element. Raises Unsupported if it is not built."""
    try:
        text = (folder / f"viewer.{kind}").read_text("utf-8")
    except OSError:
        raise Unsupported("The viewer is not built. Run make page, then export again.") from None
    # In the viewer these sequences only occur inside strings, where the backslash has no effect.
    return re.sub(r"</(?=script|style)", r"<\\/", text, flags=re.IGNORECASE)


def digest(text: str) -> str:
    """Return the SHA-256 of a script or style, as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
