"""An analysis in a notebook: the page's viewer, without a server or network."""

from __future__ import annotations

import html
import importlib.util
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from operator import index
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..api.documents.selection import select
from ..api.documents.standalone import choose_precision, write_page
from ..core.lazy import LazyModule
from ..errors import BudgetExceeded, InvalidRequest, Unsupported
from ..store.export import Source
from .analysis import Analysis
from .arguments import check_analysis

# It imports anywidget, which is optional.
headscope_widget = LazyModule("headscope.library.widget")
MOST_HEIGHT = 4000
WITHOUT_MAPS = "An analysis without maps cannot be shown. Analyse it with maps=True."
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
            try:
                self.save(path)
            except BudgetExceeded as error:
                return f"<p>{html.escape(error.detail)}</p>"
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
    widget: bool | None = None,
) -> Any:
    """Show the analysis in a notebook, as the page draws it: a grid of all heads, and one head as a map and as a graph.

    `head` is the head to open first, (4, 5) or "4.5"; `heads` are the heads to include, all by default; `height` is in px.

    In a notebook of Jupyter or marimo where anywidget is installed (`pip install "headscope[notebook]"`), the result is a widget: its traits `head`, `lens`,
    `pins` and `range` follow what is chosen in the viewer and can be set, and the kernel sends maps when they are looked at; without a kernel, as in an exported
    notebook, it is a picture of all heads. Otherwise, and with `widget=False`, it is a frame that needs no kernel, and it has `save(path)`.

    Raises InvalidRequest for a head that was not analysed and for an analysis without maps, Unsupported for `widget=True` without anywidget, and, for the frame,
    BudgetExceeded if the maps are too large for a page: choose fewer heads, or analyse fewer lenses. The frame raises Unsupported if the page has not been built
    (make page).

    >>> import headscope
    >>> a = headscope.analyze("minilm", "The cat sat.")
    >>> view = headscope.show(a, "4.5", heads=["4.5", "4.7"])
    """
    if not isinstance(height, Real) or not 1 <= height <= MOST_HEIGHT:
        raise InvalidRequest(f"height must be between 1 and {MOST_HEIGHT} px.", pointer="/height")
    check_analysis(a)
    if not a.maps:
        raise InvalidRequest(WITHOUT_MAPS)
    if isinstance(heads, str) or not isinstance(heads, Iterable | None):
        raise InvalidRequest('heads is a list of heads, such as ["4.5", "7.2"].', pointer="/heads")
    chosen, opened = [] if heads is None else [_name(one) for one in heads], None if head is None else _name(head)
    source, known = select(a.source, chosen), chosen or a.head_names
    if opened is not None and opened not in known:
        raise InvalidRequest('head must be one that was analysed, such as (4, 5) or "4.5".', pointer="/head")
    if widget and not _has_anywidget():
        raise Unsupported('The widget needs anywidget: pip install "headscope[notebook]".')
    if widget or (widget is None and _in_notebook() and _has_anywidget()):
        return headscope_widget.Widget(a.id, source, known, opened or known[0], height)
    choose_precision(source)
    return NotebookView(a.id, source, {} if opened is None else {"head": opened}, height)


def _has_anywidget() -> bool:
    return importlib.util.find_spec("anywidget") is not None


def _in_notebook() -> bool:
    """Return whether this is the kernel of a notebook of Jupyter, which a terminal with IPython is not, or of marimo."""
    ipython, marimo = sys.modules.get("IPython"), sys.modules.get("marimo")
    in_jupyter = ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None
    return in_jupyter or (marimo is not None and marimo.running_in_notebook())


def _name(head: tuple[int, int] | str) -> str:
    """Return the name of a head, such as 4.5. Raises InvalidRequest for anything but a name or a pair of integers."""
    if isinstance(head, str):
        return head
    try:
        layer, number = map(index, head)
    except (TypeError, ValueError):
        raise InvalidRequest('A head is given as (4, 5) or "4.5".') from None
    return f"{layer}.{number}"
