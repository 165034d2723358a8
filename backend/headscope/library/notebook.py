"""An analysis in a notebook: the page's viewer, without a server or network."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlencode

from ..api.documents.selection import select
from ..api.documents.standalone import choose_precision, write_page
from ..errors import InvalidRequest
from ..store.export import Source
from .analysis import Analysis

MOST_HEIGHT = 4000
# Most bytes of a page inside a notebook: 144 heads at 512 tokens with two lenses are 80 MB at most, and take Chromium a few seconds.
MOST_BYTES = 100_000_000
TOO_LARGE = (
    "<p>These maps are too large for a notebook. Choose fewer heads "
    '(<code>headscope.show(a, heads=["4.5", "7.2"])</code>), '
    'or write a page to open in a browser: <code>headscope.show(a).save("a.html")</code></p>'
)


class NotebookView:
    """The viewer of an analysis. A notebook displays it as the last value of a cell."""

    def __init__(self, id_: str, source: Source, view: Mapping[str, str], height: int = 720) -> None:
        """`view` has fields of the page's address, and the `theme`, light or dark."""
        self._id, self._source, self._view, self._height = id_, source, view, height

    def save(self, path: str | Path) -> None:
        """Save the viewer as an HTML file."""
        write_page(self._id, self._source, Path(path), [], urlencode(self._view))

    def to_html(self) -> str:
        """Return a frame with its own origin, isolated from the notebook.

        The document is in `srcdoc`: browsers limit a `data:` URL to 2 MiB, and notebooks with a content security policy allow no `blob:` frame.
        It is ASCII, so that the policy's digest of the script holds in whatever encoding the notebook is saved.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            self.save(path)
            if path.stat().st_size > MOST_BYTES:
                return TOO_LARGE
            page = html.escape(path.read_text("utf-8")).encode("ascii", "xmlcharrefreplace").decode("ascii")
        return (
            f'<iframe title="Headscope" srcdoc="{page}" width="100%" height="{self._height}" style="border: 0" '
            'sandbox="allow-scripts allow-downloads"></iframe>'
        )

    _repr_html_ = to_html


def show(
    a: Analysis,
    head: tuple[int, int] | str | None = None,
    *,
    heads: Sequence[tuple[int, int] | str] | None = None,
    height: int = 720,
) -> NotebookView:
    """Show the analysis in a notebook, as the page draws it: a grid of all heads, and one head as a map and as a graph.

    `head` is the head to open first, (4, 5) or "4.5"; `heads` are the heads to include, all by default; `height` is in px. Raises InvalidRequest for a head that
    was not analysed, and BudgetExceeded if the maps are too large for a page: choose fewer heads, or analyse fewer lenses. The view raises Unsupported if the
    page has not been built (make page).

    >>> import headscope
    >>> a = headscope.analyze("minilm", "The cat sat.")
    >>> view = headscope.show(a, "4.5", heads=["4.5", "4.7"])
    """
    if not 1 <= height <= MOST_HEIGHT:
        raise InvalidRequest(f"height must be between 1 and {MOST_HEIGHT} px.", pointer="/height")
    chosen = [_name(one) for one in heads or ()]
    source = select(a.source, chosen)
    choose_precision(source)
    known = chosen or [f"{layer}.{number}" for layer in a.layers for number in a.heads]
    if head is not None and _name(head) not in known:
        raise InvalidRequest('head must be one that was analysed, such as (4, 5) or "4.5".', pointer="/head")
    return NotebookView(a.id, source, {} if head is None else {"head": _name(head)}, height)


def _name(head: tuple[int, int] | str) -> str:
    return head if isinstance(head, str) else ".".join(str(int(part)) for part in head)
