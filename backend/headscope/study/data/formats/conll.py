"""CoNLL: a word per line with its tags in columns, a blank line after each sentence; as of 2003 (four columns, -DOCSTART-), or any other number."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path

from ..dataset import Role
from ..table import LOOKED_AT, Format, Record, Table, check_columns
from .lines import Line, encoding, lines

DOCUMENT = "-DOCSTART-"
LONGEST_SENTENCE = 10_000
# Entity labels, in whichever scheme: O, and letters before the kind of entity.
ENTITY = re.compile(r"O|[BILUESMW]-.+")


def sentences(path: Path) -> Iterator[list[Line]]:
    """The lines of each sentence. Of one that never ends, so many as to see that it is too long."""
    sentence: list[Line] = []
    for line in lines(path):
        if line.problem or line.text.strip():
            if len(sentence) <= LONGEST_SENTENCE:
                sentence.append(line)
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def problem_of(sentence: list[Line]) -> str | None:
    """Why a sentence can't be used, by what is wrong with its lines."""
    if len(sentence) > LONGEST_SENTENCE:
        return f"The sentence has more than {LONGEST_SENTENCE} words. Is a blank line missing?"
    return next((f"Line {line.number}: {line.problem}" for line in sentence if line.problem), None)


def _open(path: Path, wanted: Mapping[Role, str]) -> Table:
    widths = [len(_cells(line.text)) for sentence in islice(_texts(path), LOOKED_AT) for line in sentence[:1]]
    width = max(set(widths), key=widths.count, default=0)
    columns = check_columns([f"column {place}" for place in range(1, width + 1)])

    def records(_: Collection[str]) -> Iterator[Record]:
        for sentence in _texts(path):
            yield _record(sentence, columns)

    return Table(columns, records, encoding(path), _roles(columns, islice(records(()), LOOKED_AT)))


def _texts(path: Path) -> Iterator[list[Line]]:
    """Sentences without the lines that begin a document."""
    for sentence in sentences(path):
        kept = [line for line in sentence if not line.text.startswith(DOCUMENT)]
        if kept:
            yield kept


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def _record(sentence: list[Line], columns: tuple[str, ...]) -> Record:
    number, problem = sentence[0].number, problem_of(sentence)
    if problem:
        return Record(number, problem=problem)
    rows = [_cells(line.text) for line in sentence]
    for line, cells in zip(sentence, rows, strict=True):
        if len(cells) != len(columns) or not all(cells):
            filled = sum(map(bool, cells))
            return Record(number, problem=f"Line {line.number} has {filled} columns; others have {len(columns)}.")
    return Record(number, {name: [cells[place] for cells in rows] for place, name in enumerate(columns)})


def _roles(columns: tuple[str, ...], looked_at: Iterator[Record]) -> dict[Role, str]:
    """The word comes first, entity labels last, parts of speech second."""
    tags = [tag for record in looked_at for tag in record.values.get(columns[-1], ())] if columns else []
    entities = len(columns) > 1 and all(ENTITY.fullmatch(tag) for tag in tags)
    roles: dict[Role, str] = {"words": columns[0]} if columns else {}
    if entities:
        roles["labels"] = columns[-1]
    if len(columns) > (2 if entities else 1):
        roles["pos"] = columns[1]
    return roles


CONLL = Format("conll", "CoNLL", (".conll", ".bio", ".iob", ".iob2", ".annotated"), _open)
