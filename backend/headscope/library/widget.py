"""An analysis as a widget of a notebook: the page's viewer, two-way, to which maps are sent when they are looked at. It needs anywidget."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ..api.documents.heads_picture import draw_heads
from ..api.documents.live_page import LivePage
from ..errors import InvalidRequest
from ..lenses import LENSES
from ..store.export import Source
from .notebook import NotebookView

VIEW = ("head", "lens", "pins", "range")
ABOUT = (
    "{heads} heads of {model}, {tokens:,} tokens, through the lens {lens}: a row per layer. The viewer needs a running kernel: run this cell. "
    "headscope.show(a, widget=False) shows one that needs none."
)
# The heads are enlarged, since a short text has few cells.
STILL = """<figure style="margin: 0">
<img src="{heads}" alt="Small maps of all heads: a row per layer" style="display: block; width: min(100%, 480px); max-height: 480px; object-fit: contain;
object-position: left top; image-rendering: pixelated">
<figcaption>{about}</figcaption>
</figure>"""
_HOST = Path(__file__).with_name("widget.js")


class Widget(anywidget.AnyWidget):  # type: ignore[misc] # anywidget has no types
    """The viewer of an analysis. `head`, `lens`, `pins` and `range` follow what is chosen in it, and choose it when they are set.

    `head` is one such as "4.5"; `pins` are the pinned tokens and `range` is what the strongest colour stands for, as in the page's address.
    """

    _esm = _HOST.read_text("utf-8")
    head = traitlets.Unicode().tag(sync=True)
    lens = traitlets.Unicode().tag(sync=True)
    pins = traitlets.Unicode().tag(sync=True)
    range = traitlets.Unicode("head").tag(sync=True)
    height = traitlets.Int(720).tag(sync=True)
    still = traitlets.Unicode().tag(sync=True)

    def __init__(self, id_: str, source: Source, heads: Sequence[str], head: str, height: int = 720) -> None:
        """`heads` are the names of those that the source has, and `head` is the first one that is open."""
        self._known = {"head": heads, "lens": source.document["lenses"]}
        self._frame = partial(NotebookView, id_, source)
        self._page = LivePage(id_, source)
        super().__init__(
            head=head,
            lens=source.document["lenses"][0],
            height=height,
            still=_draw_still(source, len(heads)),
        )
        self.on_msg(self._answer)

    def save(self, path: str | Path) -> None:
        """Save the viewer, as it is now, as an HTML file."""
        self._frame(self._view()).save(path)

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget, and a picture of all heads for places without a kernel, such as a notebook that is exported as HTML or shown on a website."""
        bundle, metadata = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/html": self.still}, metadata

    def _view(self) -> dict[str, str]:
        return {name: str(getattr(self, name)) for name in VIEW}

    @traitlets.validate("head", "lens")  # type: ignore[untyped-decorator]
    def _check(self, proposal: Mapping[str, Any]) -> str:
        name, value = proposal["trait"].name, str(proposal["value"])
        if value not in self._known[name]:
            raise InvalidRequest(f"{name} must be one that was analysed.", pointer=f"/{name}")
        return value

    def _answer(self, _widget: object, message: Mapping[str, Any], _buffers: object) -> None:
        """Send what the viewer asks for by its path; nothing if there is no such response."""
        path = str(message.get("path"))
        what, _, theme = path.partition("/page/")
        found = self._page.answer(path) if what else self._page.draw({**self._view(), "theme": theme})
        self.send({"to": message.get("from"), "id": message.get("id")}, [] if found is None else [found])


def _draw_still(source: Source, number: int) -> str:
    """Return all heads as a picture, with what it shows and how to get the viewer, as HTML."""
    document = source.document
    model, lens = document["request"]["model"], LENSES[document["kept"][0]].title
    about = ABOUT.format(heads=number, model=model, tokens=len(document["tokens"]), lens=lens)
    return STILL.format(heads=draw_heads(source, special=True), about=html.escape(about))
