"""The first page of a site of exported analyses: a list with links, which needs neither script nor network."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

from ...core.arrays import Array
from ...core.lazy import Image
from ...lenses import LENSES
from ...store.export import Source
from .heads_picture import draw_heads, to_data_url
from .standalone import digest

# Characters of a text on the list.
MOST_TEXT = 300
POLICY = "default-src 'none'; style-src 'sha256-{style}'; img-src data:; base-uri 'none'; form-action 'none'"
STYLE = """
:root {
  --paper: #fbfaf6; --ink: #1b1d21; --muted: #5d5f63; --line: #d9d6cc; --field: #ffffff; --accent: #b3183f;
  color-scheme: light dark;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #14161a; --ink: #e9e7e0; --muted: #a3a29b; --line: #34373d; --field: #1b1e23; --accent: #ff7a94; }
}
* { box-sizing: border-box; }
body {
  max-width: 1100px; margin: 0 auto; padding: 28px 16px 40px; background: var(--paper); color: var(--ink);
  font: 15px / 22px system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", Arial, sans-serif;
}
h1 { margin: 0 0 2px; font-size: 24px; line-height: 32px; font-weight: 600; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 17px; line-height: 24px; font-weight: 600; overflow-wrap: anywhere; }
p { margin: 0; }
.about, dl { color: var(--muted); }
ul { list-style: none; margin: 22px 0 0; padding: 0; }
li {
  display: flex; gap: 18px; position: relative; margin: 0 0 12px; padding: 14px; background: var(--field);
  border: 1px solid var(--line); border-radius: 3px;
}
li:hover { border-color: var(--muted); }
li > div { flex: 1; min-width: 0; }
.maps { align-self: start; width: 168px; max-height: 168px; object-fit: contain; object-position: left top; }
.input { display: block; max-width: 96px; max-height: 96px; margin: 6px 0; }
a { color: var(--accent); }
/* The whole entry is one target. */
h2 a::after { content: ""; position: absolute; inset: 0; }
a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.text { margin-top: 2px; overflow-wrap: anywhere; }
dl { display: flex; flex-wrap: wrap; gap: 0 18px; margin: 8px 0 0; font-size: 13px; line-height: 19px; }
dl div { display: flex; gap: 5px; }
dd { margin: 0; color: var(--ink); overflow-wrap: anywhere; }
@media (max-width: 560px) {
  li { flex-direction: column; gap: 10px; }
}
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="Headscope">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="about">{about}</p>
<ul>
{entries}</ul>
</main>
</body>
</html>
"""
ENTRY = """<li>
<img class="maps" src="{maps}" alt="Small maps of all heads: a row per layer">
<div>
<h2><a href="{href}">{title}</a></h2>
{texts}<dl>
{facts}</dl>
</div>
</li>
"""


@dataclass(frozen=True, kw_only=True)
class SiteEntry:
    """An analysis on the list: its file, relative to the list, its title, texts, facts by name, and pictures as data URLs."""

    href: str
    title: str
    texts: Sequence[str]
    facts: dict[str, str]
    maps: str
    image: str = ""


def describe_entry(source: Source, href: str, title: str) -> SiteEntry:
    """Return the entry of an analysis."""
    document = source.document
    request, (layers, heads, *_) = document["request"], document["shape"]
    texts = [text for text in _texts(document) if _shorten(text) != title]
    picture = source.arrays.get("picture")
    return SiteEntry(
        href=href,
        title=title,
        texts=texts,
        facts={
            "Model": request["model"],
            "Mechanism": request["mechanism"]["name"],
            "Lenses": ", ".join(LENSES[lens].title for lens in document["kept"]),
            "Tokens": f"{len(document['tokens']):,}",
            "Heads": f"{layers} layers × {heads}",
        },
        maps=draw_heads(source),
        image="" if picture is None else _draw_image(picture),
    )


def default_title(source: Source) -> str:
    """Return a title for an analysis that has none: the beginning of its text, or its model."""
    texts = _texts(source.document)
    return _shorten(texts[0], 80) if texts else str(source.document["request"]["model"])


def draw_list(title: str, entries: Sequence[SiteEntry]) -> bytes:
    """Return the list as a page."""
    number = "1 analysis" if len(entries) == 1 else f"{len(entries)} analyses"
    about = f"{number} of attention heads, made with Headscope. Open one to see its heads as maps and graphs."
    page = PAGE.format(
        policy=html.escape(POLICY.format(style=digest(STYLE))),
        title=html.escape(title),
        style=STYLE,
        about=about,
        entries="".join(map(_draw_entry, entries)),
    )
    return page.encode()


def _draw_entry(entry: SiteEntry) -> str:
    image = f'<img class="input" src="{entry.image}" alt="The analysed image">\n' if entry.image else ""
    return ENTRY.format(
        maps=entry.maps,
        href=html.escape(entry.href),
        title=html.escape(entry.title),
        texts=image + "".join(f'<p class="text">{html.escape(_shorten(text))}</p>\n' for text in entry.texts),
        facts="".join(_draw_fact(*fact) for fact in entry.facts.items()),
    )


def _draw_fact(name: str, value: str) -> str:
    return f"<div><dt>{name}</dt><dd>{html.escape(value)}</dd></div>\n"


def _texts(document: dict[str, Any]) -> list[str]:
    """Return the texts of an input, the second one last; without one those of its tokens. An image has none."""
    request = document["request"]
    texts = [document["full_text"] or request["text"], request["text_pair"] or document["target_text"]]
    given = [text for text in texts if text and text.strip()]
    if given or document["grid"]:
        return given
    return [" ".join(token["text"] for token in document["tokens"])]


def _shorten(text: str, most: int = MOST_TEXT) -> str:
    """Return a text in one line, with an ellipsis if it is longer than `most` characters."""
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def _draw_image(pixels: Array) -> str:
    image = Image.fromarray(pixels)
    image.thumbnail((192, 192))
    return to_data_url(image)


def name_file(title: str, taken: Collection[str]) -> str:
    """Return a file name for a title that is not taken: its letters a-z, without accents, and digits, joined by hyphens, with a number if needed."""
    plain = re.sub(r"[\u0300-\u036f]", "", unicodedata.normalize("NFKD", title.lower()))
    stem = re.sub(r"[^a-z0-9]+", "-", plain)[:60].strip("-") or "analysis"
    names = (f"{stem}{end}.html" for end in chain([""], (f"-{number}" for number in count(2))))
    return next(name for name in names if name not in taken)
