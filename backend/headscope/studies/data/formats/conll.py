"""CoNLL: one word per line with its tags in columns, and a blank line after each sentence; four columns and -DOCSTART- as in 2003, or any number of columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby, islice
from pathlib import Path

from ..dataset import Role
from ..table import SAMPLE_RECORDS, DataTable, Format, TableRecord, check_columns
from .lines import TextLine, encoding, lines

DOCUMENT = "-DOCSTART-"
MAX_WORDS = 10_000
# Entity labels in any scheme: O, or a letter before the type of entity.
ENTITY = re.compile(r"O|[BILUESMW]-.+")
# Types of phrases (CoNLL-2000), which are labelled like entities.
CHUNKS = frozenset(["ADJP", "ADVP", "CONJP", "INTJ", "LST", "NP", "PP", "PRT", "SBAR", "UCP", "VP", "NC", "PC", "VC"])
# Treebank tags: capitals (NNP, PRP$, -LRB-, PROPN), or punctuation marks.
PART_OF_SPEECH = re.compile(r"[A-Z]+[$A-Z0-9_|]*|-[A-Z]+-|\W+")


def sentences(path: Path) -> Iterator[list[TextLine]]:
    """Yield the lines of each sentence, up to one line beyond the limit."""
    for filled, sentence in groupby(lines(path), lambda line: bool(line.problem or line.text.strip())):
        if filled:
            yield list(islice(sentence, MAX_WORDS + 1))


def problem_of(sentence: list[TextLine]) -> str | None:
    """Return why a sentence cannot be used; None if it can."""
    if len(sentence) > MAX_WORDS:
        return f"The sentence has more than {MAX_WORDS} words. Is a blank line missing?"
    return next((f"Line {line.number}: {line.problem}" for line in sentence if line.problem), None)


def _open(path: Path, wanted: Mapping[Role, str]) -> DataTable:
    widths = [len(_cells(line.text)) for sentence in islice(_texts(path), SAMPLE_RECORDS) for line in sentence[:1]]
    width = max(set(widths), key=widths.count, default=0)
    columns = check_columns([f"column {place}" for place in range(1, width + 1)])

    def records(_: Collection[str]) -> Iterator[TableRecord]:
        return (_record(sentence, columns) for sentence in _texts(path))

    return DataTable(columns, records, encoding(path), _roles(columns, islice(records(()), SAMPLE_RECORDS)))


def _texts(path: Path) -> Iterator[list[TextLine]]:
    """Yield sentences without the lines that mark the beginning of a document."""
    kept = ([line for line in sentence if not line.text.startswith(DOCUMENT)] for sentence in sentences(path))
    return filter(None, kept)


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split()


def _record(sentence: list[TextLine], columns: tuple[str, ...]) -> TableRecord:
    number, problem = sentence[0].number, problem_of(sentence)
    if problem:
        return TableRecord(number, problem=problem)
    rows = [_cells(line.text) for line in sentence]
    for line, cells in zip(sentence, rows, strict=True):
        if len(cells) != len(columns) or not all(cells):
            filled = sum(map(bool, cells))
            return TableRecord(number, problem=f"Line {line.number} has {filled} columns; others have {len(columns)}.")
    return TableRecord(number, {name: [cells[place] for cells in rows] for place, name in enumerate(columns)})


def _roles(columns: tuple[str, ...], sample: Iterator[TableRecord]) -> dict[Role, str]:
    """Assign roles: words are in the first column, labels in the last column of entity labels, parts of speech in the first column that looks like them."""
    records = list(sample)
    tags = {name: [tag for record in records for tag in record.values.get(name, ())] for name in columns[1:]}
    spans = [name for name in tags if all(ENTITY.fullmatch(tag) for tag in tags[name])]
    entities = [name for name in spans if not _is_chunks(tags[name])]
    others = [name for name in tags if name not in spans]
    speech = [name for name in others if all(PART_OF_SPEECH.fullmatch(tag) for tag in tags[name])]
    roles: dict[Role, str] = {"words": columns[0]} if columns else {}
    if entities:
        roles["labels"] = entities[-1]
    if others:
        roles["pos"] = (speech or others)[0]
    return roles


def _is_chunks(tags: list[str]) -> bool:
    """Return whether tags are phrases, as in the third column of CoNLL-2003, and not entities."""
    kinds = {tag.partition("-")[2] for tag in tags if tag != "O"}
    return bool(kinds) and kinds <= CHUNKS


def is_conll(texts: list[str]) -> bool:
    """Return whether all lines have the same number of columns, more than one, and the last holds labels of entities or phrases."""
    rows = [_cells(text) for text in texts if not text.startswith(DOCUMENT)]
    tags = [row[-1] for row in rows]
    regular = len({len(row) for row in rows}) == 1 and len(rows[0]) > 1
    return regular and all(map(ENTITY.fullmatch, tags)) and set(tags) != {"O"}


CONLL = Format("conll", "CoNLL", (".conll", ".bio", ".iob", ".iob2", ".annotated"), _open)
