"""What these calls return: one viewer, or one per kind of attention, as HTML that a notebook displays."""

from __future__ import annotations

import html
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.lazy import ipython_display
from ..errors import InvalidRequest
from ..library.notebook import NotebookView

# Most entries of maps in the frame of a notebook: 16 heads at 2,048 tokens, 256 at 512. As base64 they stay below the limit of a notebook's page.
MOST_ENTRIES = 64 * 2**20
PAGE = '<!doctype html>\n<html lang="en">\n<meta charset="ascii">\n<title>Headscope</title>\n{body}\n</html>\n'


class AttentionView:
    """One viewer, or several below their titles, and notes about what they leave out. A notebook displays it as the last value of a cell."""

    def __init__(self, viewers: Mapping[str, NotebookView], notes: Sequence[str] = ()) -> None:
        self._viewers, self._notes = viewers, notes

    @property
    def data(self) -> str:
        """The HTML, to be displayed elsewhere or written to a file."""
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes)
        if len(self._viewers) == 1:
            return notes + "".join(viewer.to_html() for viewer in self._viewers.values())
        return notes + "".join(
            f"<details{'' if number else ' open'}><summary>{html.escape(title)}</summary>{viewer.to_html()}</details>"
            for number, (title, viewer) in enumerate(self._viewers.items())
        )

    def save(self, path: str | Path) -> None:
        """Save the HTML as a page that needs no network."""
        ascii_only = self.data.encode("ascii", "xmlcharrefreplace").decode("ascii")
        Path(path).write_text(PAGE.format(body=ascii_only), "ascii")

    def _repr_html_(self) -> str:
        return self.data

    __html__ = __str__ = _repr_html_


def deliver(view: AttentionView, html_action: str) -> AttentionView | None:
    """Display the view in a notebook and return None for "view"; return it for "return", and outside of notebooks."""
    check_choice(html_action, ("view", "return"), "html_action")
    if html_action == "return" or not _in_notebook():
        return view
    ipython_display.display(view)
    return None


def check_choice(value: object, known: tuple[str, str], name: str) -> None:
    """Raise InvalidRequest unless the argument `name` is one of two words."""
    if value not in known:
        raise InvalidRequest(f'{name} must be "{known[0]}" or "{known[1]}".')


def fit(heads: int, queries: int, keys: int) -> int:
    """Return how many of so many heads a view may keep; at least one."""
    return min(heads, max(1, MOST_ENTRIES // (queries * keys)))


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
