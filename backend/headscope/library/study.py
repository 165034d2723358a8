"""Studies in the Python library: what `headscope.study` returns, and the data sets it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.lazy import go
from ..errors import InvalidRequest
from ..figures import Theme
from ..figures.studies import build_table, find_figure
from ..query import SearchResult
from ..store import export
from ..studies.data import formats, hub
from ..studies.data.dataset import BadRows, Dataset, Row
from ..studies.data.rows import LARGEST_OUTPUT
from ..studies.results import finding, tables
from ..studies.results.summary import StudySummary
from ..studies.results.table_files import ResultTable
from .arguments import validating

# What a study can be made of: the name of a file, or the inputs themselves.
Data = str | Path | Iterable[Any]
GIVEN = "given"  # name and format of data sets that are passed as Python objects


@dataclass(frozen=True)
class Study(StudySummary):
    """Aggregates of many inputs through one model or two variants. Immutable; `id` identifies its content. See StudySummary for the arrays."""

    id: str

    @property
    def request(self) -> dict[str, Any]:
        """The request of the study."""
        return dict(self.document["request"])

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The first inputs that could not be analysed: row, code and detail; `document["failed_count"]` counts all."""
        return list(self.document["failed"])

    def find(self, where: str = "", lens: str = "weights", variant: int = 0) -> SearchResult:
        """Return the heads that satisfy a query about their means over inputs, ranked. The class of a head is the one of most inputs.

        Raises InvalidQuery, or Unknown for a measure that was not computed.
        """
        return finding.find(self, where, lens, variant)

    def head(self, layer: int, head: int, lens: str = "weights", variant: int = 0) -> dict[str, Any]:
        """Return everything about one head: numbers with intervals, distributions and top inputs, classes, and similar heads. Raises Unknown."""
        return finding.head(self, layer, head, lens, variant)

    def figure(self, name: str, *, theme: Theme = "light", **params: Any) -> Any:
        """Return a plotly figure of this study. headscope.STUDY_FIGURES lists the figures, their parameters and requirements.

        Raises Unknown, InvalidRequest, NotReady for what the study lacks, or Unsupported.
        """
        figure = find_figure(name)
        with validating():
            checked = figure.params.model_validate(params)
        return go.Figure(figure.build(self, checked, theme).figure())

    @property
    def tables(self) -> list[str]:
        """The tables that can be made of this study."""
        return tables.table_names(self.document)

    def table(self, name: str, **params: Any) -> ResultTable:
        """Return a table of this study, with `columns` and `rows`; `table_files.WRITERS` turn it into JSON, CSV, Parquet or LaTeX. Raises Unknown, and what figures raise."""
        return build_table(self, name, params)

    def save(self, path: str | Path) -> None:
        """Write the study as one safetensors file with the document in its metadata; Study.open reads it."""
        export.write_safetensors(export.Flat({**self.document, "id": self.id}, self.arrays), Path(path))

    @classmethod
    def open(cls, path: str | Path) -> Study:
        """Read a file written by `save` or by the server's export. Raises InvalidRequest for any other file."""
        try:
            found = export.read_safetensors(Path(path))
        except ValueError as error:
            raise InvalidRequest("This file is not a study that Headscope wrote.") from error
        if found.document.get("kind_of") != "study":
            raise InvalidRequest("This file is not a study. Open an analysis with headscope.open.")
        return cls(found.document, found.arrays, str(found.document.get("id", "")))


def read_dataset(data: Data, columns: Mapping[str, str] | None, bad_rows: BadRows) -> Dataset:
    """Read a file, a file of the hub (`hub:org/name/path`), or Python objects: texts, pairs of texts, mappings with the fields of Row, or Rows.

    Raises InvalidDataset, Unknown, DatasetUnavailable, or InvalidRequest for anything else.
    """
    if isinstance(data, (str, Path)):
        path = hub.fetch(data) if isinstance(data, str) and data.startswith(hub.PREFIX) else Path(data).expanduser()
        if not path.is_file():
            raise InvalidRequest(
                "This file does not exist. Pass the name of a file, or a list of texts.", pointer="/dataset"
            )
        return formats.read(path, columns=columns, bad_rows=bad_rows)
    if not isinstance(data, Iterable):
        raise InvalidRequest("Pass the name of a file, or a list of texts.", pointer="/dataset")
    rows = [_row(number, item) for number, item in enumerate(data, start=1)]
    return Dataset(GIVEN, GIVEN, "utf-8", (), {}, rows, total=len(rows))


def _row(number: int, item: Any) -> Row:
    if isinstance(item, Row):
        return item
    fields = {"text": item} if isinstance(item, str) else item
    if isinstance(item, (tuple, list)) and len(item) == 2:
        fields = {"text": item[0], "text_pair": item[1]}
    try:
        row = Row.from_dict({"number": number, **fields})
    except TypeError:
        row = Row(number, "")
    if not isinstance(row.text, str) or not isinstance(row.text_pair, str | None) or not row.text:
        raise InvalidRequest(
            f"Input {number} is not a text. Pass a text, a pair of texts, or a mapping with text and, optionally, text_pair, pos, labels, label, target, minus "
            "and against.",
            pointer="/dataset",
        )
    outputs = [one for one in (row.target, row.minus) if one is not None]
    if not all(isinstance(one, str) or (isinstance(one, int) and 0 <= one <= LARGEST_OUTPUT) for one in outputs):
        raise InvalidRequest(
            f"The target of input {number} is neither a text nor the number of a token or class.", pointer="/dataset"
        )
    if not isinstance(row.against, str | None):
        raise InvalidRequest(f"What input {number} is compared with (against) is not a text.", pointer="/dataset")
    return row
