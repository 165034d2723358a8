"""Studies in the Python library: what `headscope.study` returns, and the data sets it takes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..core.lazy import go
from ..errors import InvalidRequest
from ..figures import Theme
from ..figures.studies import build_table, find_figure
from ..query import SearchResult
from ..store import export
from ..studies.data import formats, hub
from ..studies.data.dataset import BadRows, Dataset, Row
from ..studies.results import finding, tables
from ..studies.results.summary import StudySummary
from ..studies.results.table_files import ResultTable
from .arguments import check_theme, is_output, validating

# What a study can be made of: the name of a file, or the inputs themselves.
Data = str | Path | Iterable[Any]
GIVEN = "given"  # name and format of data sets that are passed as Python objects
NOT_A_TEXT = (
    "Input {} is not a text. Pass a text, a pair of texts, or a mapping with text and, optionally, text_pair, pos, labels, label, target, minus "
    "and against."
)


@dataclass(frozen=True, eq=False)
class Study(StudySummary):
    """Aggregates of many inputs through one model or two variants. Immutable; `id` identifies its content, and studies with the same id are equal.

    See StudySummary for the arrays.
    """

    id: str

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Study) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

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
        check_theme(theme)
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
        found = read_saved(path)
        if found.document.get("kind_of") != "study":
            raise InvalidRequest("This file is not a study. Open an analysis with headscope.open.")
        id_ = str(found.document.pop("id", ""))
        return cls(found.document, found.arrays, id_)


def read_saved(path: str | Path) -> export.Flat:
    """Read a file with an analysis or a study. Raises InvalidRequest if there is none, or another program wrote it."""
    if not isinstance(path, (str, PathLike)) or not os.path.isfile(path):  # noqa: PTH113 - a Path raises OSError for names that are too long
        raise InvalidRequest("There is no such file. Pass the name of one that save has written.")
    try:
        return export.read_safetensors(Path(path))
    except ValueError as error:
        raise InvalidRequest("This file was not written by Headscope.") from error


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
    if isinstance(data, Mapping) or hasattr(data, "columns"):  # iterating gives the names of columns, not rows
        raise InvalidRequest(
            'A table is passed row by row: as a list of mappings, such as table.to_dict("records") in pandas.',
            pointer="/dataset",
        )
    if not isinstance(data, Iterable):
        raise InvalidRequest("Pass the name of a file, or a list of texts.", pointer="/dataset")
    rows = [_row(number, item) for number, item in enumerate(data, start=1)]
    return Dataset(GIVEN, GIVEN, "utf-8", (), {}, rows, total=len(rows))


def _row(place: int, item: Any) -> Row:
    """Return an input as a row, as a file would have it; `place` counts inputs from 1. Raises InvalidRequest, with that number."""
    if isinstance(item, Row):
        return item
    fields = {"text": item} if isinstance(item, str) else item
    if isinstance(item, (tuple, list)) and len(item) == 2:
        fields = {"text": item[0], "text_pair": item[1]}
    try:
        row = Row.from_dict({"number": place, **{name: _plain(value) for name, value in fields.items()}})
    except (AttributeError, TypeError):  # neither a mapping, nor fields of a row
        raise InvalidRequest(NOT_A_TEXT.format(place), pointer="/dataset") from None
    if isinstance(row.label, (int, float)) and not isinstance(row.label, bool):
        row = replace(row, label=str(row.label))
    if problem := _problem(row):
        raise InvalidRequest(problem.format(place), pointer="/dataset")
    return row


def _plain(value: Any) -> Any:
    """Return a value, or the list of those of a tuple or array, with numpy's numbers and texts as Python's own."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def _problem(row: Row) -> str | None:
    """Return why a row cannot be used, as a sentence with a place for its number; None if it can."""
    if not isinstance(row.text, str) or not isinstance(row.text_pair, str | None):
        return NOT_A_TEXT
    if type(row.number) is not int or row.number < 1:
        return "The number of input {} is no whole number from 1."
    if not _are_tags(row.pos) or not _are_tags(row.labels):
        return "The tags of input {} (pos, labels) are not a list with one text per word."
    if not isinstance(row.label, str | None):
        return "The label of input {} is neither a text nor a number."
    if not all(one is None or is_output(one) for one in (row.target, row.minus)):
        return "The target of input {} is neither a text nor the number of a token or class."
    if not isinstance(row.against, str | None):
        return "What input {} is compared with (against) is not a text."
    try:
        json.dumps(row.as_dict(), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "A text of input {} contains half of a surrogate pair, which is not a character. Remove it."
    return None


def _are_tags(value: Any) -> bool:
    """Return whether tags are a text per word, or missing."""
    return value is None or (isinstance(value, tuple) and all(isinstance(one, str) for one in value))
