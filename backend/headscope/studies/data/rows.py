"""Convert the records of a file to rows. Records that cannot be used are counted, with the reason."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from ...core.text import Span, check_text, find_words
from ...errors import InvalidDataset, InvalidText
from .dataset import BadRows, Dataset, Role, Row
from .table import DataTable, TableRecord

# The limits of AnalysisRequest.
TAG_CHARACTERS = 100
LABEL_CHARACTERS = 200
OUTPUT_CHARACTERS = 1_000
LARGEST_OUTPUT = 1_000_000
# Roles beside `text` whose columns hold a text in every row.
TEXTS: tuple[Role, ...] = ("text_pair", "against")
UNSPACED = re.compile(r"\S+")


class _UnusableRecord(ValueError):
    """The reason why a record cannot be used."""


class RowReader:
    """The rows of a table, read again on each iteration. Rejected records are added to the report of the data set.

    Iterating raises InvalidDataset if no row is usable, if the file cannot be read further, and, with bad_rows "fail", at the first bad row.
    """

    def __init__(self, dataset: Dataset, table: DataTable, bad_rows: BadRows, text_bytes: int | None) -> None:
        self._dataset, self._table, self._bad_rows, self._text_bytes = dataset, table, bad_rows, text_bytes

    def __iter__(self) -> Iterator[Row]:
        dataset = self._dataset
        dataset.bad, dataset.bad_count, dataset.total = [], 0, 0
        for record in self._table.records(set(dataset.chosen.values())):
            dataset.total += 1
            try:
                row = _row(record, dataset.chosen, self._text_bytes)
            except _UnusableRecord as error:
                self._reject(record.number, str(error))
            else:
                yield row
        if dataset.bad_count == dataset.total:
            raise _nothing_usable(dataset)

    def _reject(self, number: int, problem: str) -> None:
        if self._bad_rows == "fail":
            raise InvalidDataset(f"Row {number} cannot be used. {problem}", pointer="/dataset", actual=number)
        self._dataset.reject(number, problem)


def _nothing_usable(dataset: Dataset) -> InvalidDataset:
    """Return the error for a data set without usable rows."""
    if not dataset.total:
        return InvalidDataset("The file has no rows.", pointer="/dataset")
    first = dataset.bad[0]
    return InvalidDataset(
        f"None of the {dataset.total} rows can be used. Row {first.number}: {first.problem}", pointer="/dataset"
    )


def _row(record: TableRecord, chosen: Mapping[Role, str], text_bytes: int | None) -> Row:
    if record.problem is not None:
        raise _UnusableRecord(record.problem)
    values = {role: record.values.get(column) for role, column in chosen.items()}
    text, spans = _text(values, record.spans)
    for each in (text, *(values[role] for role in TEXTS if role in values)):
        _check(each, text_bytes)
    return Row(
        record.number,
        text,
        values.get("text_pair"),
        _tags(values.get("pos"), text, spans),
        _tags(values.get("labels"), text, spans),
        _label(values.get("label")),
        _output(values.get("target")),
        _output(values.get("minus")),
        values.get("against"),
    )


def _text(values: Mapping[Role, Any], spans: Sequence[Span] | None) -> tuple[Any, Sequence[Span] | None]:
    """Return the text, and the spans of the words that tags belong to; None if they are unknown."""
    if "text" in values:
        return values["text"], spans
    words = values["words"]
    if not isinstance(words, list) or not all(isinstance(word, str) and word.strip() for word in words):
        raise _UnusableRecord("The words are not a list of words.")
    ends = accumulate((len(word) + 1 for word in words), initial=0)
    return " ".join(words), [(start, end - 1) for start, end in pairwise(ends)]


def _check(text: Any, text_bytes: int | None) -> None:
    if text is None or text == "":
        raise _UnusableRecord("The text is missing.")
    if not isinstance(text, str):
        raise _UnusableRecord(f"The text column holds {_kind(text)}, not text.")
    if not text.strip():
        raise _UnusableRecord("The text is blank.")
    try:
        check_text(text, limit=text_bytes)
    except InvalidText as error:
        raise _UnusableRecord(error.detail) from None


def _kind(value: Any) -> str:
    kinds = ((bool, "true or false"), ((int, float), "a number"), (list, "a list"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "something else")


def _label(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, (str, int, float)):
        raise _UnusableRecord(f"The label is {_kind(value)}; it must be text, a number, true or false.")
    return _tag(value, LABEL_CHARACTERS)


def _output(value: Any) -> str | int | None:
    """Return a token or class; None if there is none."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise _UnusableRecord(f"The target is {_kind(value)}; it must be text, or the number of a token or class.")
    if isinstance(value, str) and len(value) > OUTPUT_CHARACTERS:
        raise _UnusableRecord(f"The target is longer than {OUTPUT_CHARACTERS} characters.")
    if isinstance(value, int) and not 0 <= value <= LARGEST_OUTPUT:
        raise _UnusableRecord(f"The target is {value}, which is no number of a token or class.")
    return value


def _tags(tags: Any, text: str, spans: Sequence[Span] | None) -> tuple[str, ...] | None:
    """Return one tag per word as Headscope splits words, given one tag per word of the data set."""
    if tags is None:
        return None
    if not isinstance(tags, list):
        raise _UnusableRecord(f"The tags are {_kind(tags)}, not a list with one tag per word.")
    words = find_words(text)
    tagged = (
        spans
        if spans is not None
        else words
        if len(words) == len(tags)
        else [word.span() for word in UNSPACED.finditer(text)]
    )
    if len(tagged) != len(tags):
        raise _UnusableRecord(f"There are {len(tags)} tags for {len(tagged)} words.")
    starts = [start for start, _ in tagged]
    texts = [_tag(tag, TAG_CHARACTERS) for tag in tags]
    # The last tagged word that begins at or before each word; empty words share the start of the next one and precede it.
    return tuple(texts[max(bisect_right(starts, start) - 1, 0)] for start, _ in words)


def _tag(value: Any, longest: int) -> str:
    if not isinstance(value, (str, int, float)):
        raise _UnusableRecord(f"A tag or label is {_kind(value)}; it must be text, a number, true or false.")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if len(text) > longest:
        raise _UnusableRecord(f"A tag or label is longer than {longest} characters.")
    return text
