"""Records of a file made rows to analyse; what can't be used is counted, with the reason."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ...errors import InvalidDataset, InvalidText
from ...models.tokens import check_text, find_words
from .dataset import BadRows, Dataset, Role, Row
from .table import DataTable, Span, TableRecord

# As those of an AnalysisRequest.
TAG_CHARACTERS = 100
LABEL_CHARACTERS = 200


class _Bad(ValueError):
    """Why a record makes no row."""


class Rows:
    """The rows of a table, made anew each time they are gone through; what is refused on the way stands in the data set's report.

    Raises InvalidDataset where the file ends without a row that can be used, at what can't be read further and, with bad_rows "fail", at the first
    bad row.
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
            except _Bad as bad:
                self._refuse(record.number, str(bad))
            else:
                yield row
        if dataset.bad_count == dataset.total:
            raise nothing_usable(dataset)

    def _refuse(self, number: int, problem: str) -> None:
        if self._bad_rows == "fail":
            raise InvalidDataset(f"Row {number} can't be used. {problem}", pointer="/dataset", actual=number)
        self._dataset.refuse(number, problem)


def nothing_usable(dataset: Dataset) -> InvalidDataset:
    """The error of a data set none of whose rows can be used."""
    if not dataset.total:
        return InvalidDataset("The file holds no rows.", pointer="/dataset")
    first = dataset.bad[0]
    return InvalidDataset(
        f"None of the {dataset.total} rows can be used. Row {first.number}: {first.problem}", pointer="/dataset"
    )


def _row(record: TableRecord, chosen: Mapping[Role, str], text_bytes: int | None) -> Row:
    if record.problem is not None:
        raise _Bad(record.problem)
    values = {role: record.values.get(column) for role, column in chosen.items()}
    text, spans = _text(values, record.spans)
    for one in (text, *([values["text_pair"]] if "text_pair" in values else [])):
        _check(one, text_bytes)
    return Row(
        record.number,
        text,
        values.get("text_pair"),
        _tags(values.get("pos"), text, spans),
        _tags(values.get("labels"), text, spans),
        _label(values.get("label")),
    )


def _text(values: Mapping[Role, Any], spans: Sequence[Span] | None) -> tuple[Any, Sequence[Span] | None]:
    """The text, and where the words stand in it to which its tags belong; None where that is not known."""
    if "text" in values:
        return values["text"], spans
    words = values["words"]
    if not isinstance(words, list) or not all(isinstance(word, str) and word.strip() for word in words):
        raise _Bad("The words are not a list of words.")
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word) + 1)
    return " ".join(words), [(start, end - 1) for start, end in pairwise(ends)]


def _check(text: Any, text_bytes: int | None) -> None:
    if text is None or text == "":
        raise _Bad("The text is missing.")
    if not isinstance(text, str):
        raise _Bad(f"The column of the text holds {_kind(text)}, not text.")
    if not text.strip():
        raise _Bad("The text is blank.")
    try:
        check_text(text, limit=text_bytes)
    except InvalidText as error:
        raise _Bad(error.detail) from None


def _kind(value: Any) -> str:
    kinds = ((bool, "true or false"), ((int, float), "a number"), (list, "a list"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "something else")


def _label(value: Any) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, (str, int, float)):
        raise _Bad(f"The label is {_kind(value)}, neither text nor a number.")
    return _tag(value, LABEL_CHARACTERS)


def _tags(tags: Any, text: str, spans: Sequence[Span] | None) -> tuple[str, ...] | None:
    """One tag per word as Headscope finds words, of those that came one per word of the data set."""
    if tags is None:
        return None
    if not isinstance(tags, list):
        raise _Bad(f"Tags are {_kind(tags)}, not a list with one for each word.")
    words = find_words(text)
    given = spans if spans is not None else words if len(words) == len(tags) else _between_spaces(text)
    if len(given) != len(tags):
        raise _Bad(f"There are {len(tags)} tags for {len(given)} words.")
    starts = [start for start, _ in given]
    texts = [_tag(tag, TAG_CHARACTERS) for tag in tags]
    return tuple(texts[_owner(starts, given, start)] for start, _ in words)


def _owner(starts: Sequence[int], given: Collection[Span], position: int) -> int:
    """The last word that begins at or before a position. Words of no length share the place of the next one, which comes after them."""
    return max(bisect_right(starts, position) - 1, 0)


def _between_spaces(text: str) -> list[Span]:
    spans, end = list[Span](), 0
    for word in text.split():
        start = text.index(word, end)
        end = start + len(word)
        spans.append((start, end))
    return spans


def _tag(value: Any, longest: int) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _Bad(f"A tag or label is {_kind(value)}, neither text nor a number.")
    text = str(value)
    if len(text) > longest:
        raise _Bad(f"A tag or label is longer than {longest} characters.")
    return text
