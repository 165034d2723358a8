"""Several analyses as a static site: a list and one page each, for any web host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..analysis.reader import Progress
from ..api.documents.site_list import SiteEntry, default_title, describe_entry, draw_list, name_file
from ..api.documents.standalone import SitePlace, describe_source, most_bytes, stream_page
from ..core.streams import save
from ..errors import BudgetExceeded, InvalidRequest
from .analysis import Analysis
from .analysis import open as open_analysis
from .notebook import WITHOUT_MAPS

LIST = "index.html"
# Most bytes of a site: what hosts of static pages take.
MOST_BYTES = 1_000_000_000
# An analysis, or a file with one.
Shown = Analysis | str | Path


class AnalysisSite:
    """Several analyses as static pages. Files are read when they are needed, so that only one of them is in memory."""

    def __init__(self, analyses: Mapping[str, Shown] | Sequence[Shown], title: str = "Attention heads") -> None:
        """Check every analysis; nothing is written. Arguments and errors are those of export_site."""
        if isinstance(analyses, str) or not isinstance(analyses, Iterable):
            raise InvalidRequest(
                "Pass a list of analyses, or a mapping with their titles as keys.", pointer="/analyses"
            )
        titles = list(analyses) if isinstance(analyses, Mapping) else None
        self._shown = list(analyses.values()) if isinstance(analyses, Mapping) else list(analyses)
        if not self._shown:
            raise InvalidRequest("A site needs at least one analysis.", pointer="/analyses")
        self.title = title
        self.entries, self.sizes = list[SiteEntry](), list[int]()
        for place, shown in enumerate(self._shown):
            source = _read(shown).source
            if not source.document["kept"]:
                raise InvalidRequest(WITHOUT_MAPS, pointer="/analyses")
            named = titles[place] if titles else _title_of(shown) or default_title(source)
            taken = {LIST, *(entry.href for entry in self.entries)}
            self.entries.append(describe_entry(source, name_file(named, taken), named))
            self.sizes.append(most_bytes(source, describe_source("", source, [])))
        if self.most_bytes > MOST_BYTES:
            raise BudgetExceeded(
                f"This site could take {self.most_bytes / 1e6:,.0f} MB; the limit is {MOST_BYTES / 1e6:,.0f} MB. Leave out analyses.",
                limit=MOST_BYTES,
                actual=self.most_bytes,
            )

    @property
    def most_bytes(self) -> int:
        """The largest size that the site can have, in bytes. It is usually smaller, because maps are compressed."""
        return sum(self.sizes) + len(draw_list(self.title, self.entries))

    def write(
        self,
        folder: str | Path,
        *,
        replace: bool = False,
        progress: Progress = lambda fraction, stage, detail: None,
    ) -> int:
        """Write the pages and then the list. Return the number of bytes. Errors are those of export_site."""
        top = Path(folder)
        if not replace and any((top / name).exists() for name in (LIST, *(entry.href for entry in self.entries))):
            raise InvalidRequest("The folder has pages of the same names. Choose another one, or replace them.")
        top.mkdir(parents=True, exist_ok=True)
        for place, (shown, entry) in enumerate(zip(self._shown, self.entries, strict=True)):
            progress(place / len(self.entries), "writing", entry.href)
            a = _read(shown)
            save(stream_page(a.id, a.source, [], place=SitePlace(entry.title, self.title, LIST)), top / entry.href)
        (top / LIST).write_bytes(draw_list(self.title, self.entries))
        return sum((top / name).stat().st_size for name in (LIST, *(entry.href for entry in self.entries)))


def export_site(
    folder: str | Path,
    analyses: Mapping[str, Shown] | Sequence[Shown],
    *,
    title: str = "Attention heads",
    replace: bool = False,
) -> Path:
    """Write analyses as a static site: a list, and for each analysis the page that `show(a).save` writes. Return the path of the list.

    An analysis is the result of `analyze`, or the name of a file from Analysis.save or the server's export. A mapping has their titles as keys; otherwise the
    title is the name of the file, or the beginning of the text. `title` is that of the site. With `replace`, pages of the same names are replaced.

    Links are relative, and nothing is loaded from elsewhere: the folder works on any web host, below any path, and from disk. Pages are limited as in `show`,
    and a site has at most 1 GB; both are checked before anything is written.

    Raises BudgetExceeded, InvalidRequest for a file that is no analysis or if pages exist, and Unsupported if the page has not been built (make page).

    >>> import headscope, tempfile
    >>> a = headscope.analyze("minilm", "The cat sat.")
    >>> path = headscope.export_site(tempfile.mkdtemp(), {"A cat": a}, title="Examples")
    >>> sorted(file.name for file in path.parent.iterdir())
    ['a-cat.html', 'index.html']
    """
    AnalysisSite(analyses, title).write(folder, replace=replace)
    return Path(folder) / LIST


def _read(shown: Shown) -> Analysis:
    """Return an analysis, read if it is in a file. Raises InvalidRequest."""
    if not isinstance(shown, (Analysis, str, Path)):
        raise InvalidRequest("An analysis is the result of analyze, or the name of a file.", pointer="/analyses")
    return shown if isinstance(shown, Analysis) else open_analysis(shown)


def _title_of(shown: Shown) -> str:
    """Return the name of a file as a title; nothing for an analysis."""
    return "" if isinstance(shown, Analysis) else Path(shown).stem.replace("-", " ").replace("_", " ").strip()
