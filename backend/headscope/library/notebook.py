"""An analysis in a notebook: the page's viewer, without a server or network."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path

from ..api.documents.standalone import choose_precision, write_page
from ..errors import InvalidRequest
from .analysis import Analysis

MOST_HEIGHT = 4000
# Most bytes of a page inside a notebook: 144 heads at 512 tokens with two lenses are 80 MB at most, and take Chromium a few seconds.
MOST_BYTES = 100_000_000
TOO_LARGE = (
    "<p>These maps are too large for a notebook. Analyse fewer layers, heads or lenses "
    '(<code>headscope.analyze(..., layers=[4], lenses=("weights",))</code>), '
    'or write a page to open in a browser: <code>headscope.show(a).save("a.html")</code></p>'
)


class NotebookView:
    """The viewer of an analysis. A notebook displays it as the last value of a cell."""

    def __init__(self, a: Analysis, head: str = "", height: int = 720) -> None:
        self._a, self._head, self._height = a, head, height

    def save(self, path: str | Path) -> None:
        """Save the viewer as an HTML file."""
        write_page(self._a.id, self._a.source, Path(path), [], f"head={self._head}" if self._head else "")

    def _repr_html_(self) -> str:
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


def show(a: Analysis, head: tuple[int, int] | str | None = None, *, height: int = 720) -> NotebookView:
    """Show the analysis in a notebook, as the page draws it: a grid of all heads, and one head as a map and as a graph.

    `head` is the head to open first, (4, 5) or "4.5"; `height` is in px. Raises InvalidRequest for a head that was not analysed, and BudgetExceeded if the maps
    are too large for a page: analyse fewer layers, heads or lenses. The view raises Unsupported if the page has not been built (make page).

    >>> import headscope
    >>> a = headscope.analyze("minilm", "The cat sat.")
    >>> view = headscope.show(a, "4.5")
    """
    if not 1 <= height <= MOST_HEIGHT:
        raise InvalidRequest(f"height must be between 1 and {MOST_HEIGHT} px.", pointer="/height")
    choose_precision(a.source)
    if head is None:
        return NotebookView(a, height=height)
    known = {f"{layer}.{number}" for layer in a.layers for number in a.heads}
    named = head if isinstance(head, str) else ".".join(str(int(part)) for part in head)
    if named not in known:
        raise InvalidRequest('head must be one that was analysed, such as (4, 5) or "4.5".', pointer="/head")
    return NotebookView(a, named, height)
