"""CoNLL-U: sentences of a treebank, their text put together again as it was written, with a part of speech for every word."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..dataset import Role
from ..table import DataTable, Format, Span, TableRecord
from .conll import problem_of, sentences
from .lines import TextLine, encoding

RANGE, EMPTY = re.compile(r"([1-9]\d{0,5})-([1-9]\d{0,5})"), re.compile(r"\d+\.[1-9]\d*")
# Columns of tags by their place in a line.
TAGS = {"upos": 3, "xpos": 4, "lemma": 2, "feats": 5, "deprel": 7}
FIELDS = 10


class _Wrong(ValueError):
    """What is wrong with a sentence."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of the text: what is written, the words that it is (one, or those of a contraction), and whether a space follows."""

    form: str
    words: tuple[list[str], ...]
    spaced: bool


def _open(path: Path, wanted: Mapping[Role, str]) -> DataTable:
    def records(_: Collection[str]) -> Iterator[TableRecord]:
        for sentence in sentences(path):
            if not all(line.text.startswith("#") for line in sentence):
                yield _record(sentence)

    return DataTable(("text", *TAGS), records, encoding(path), {"text": "text", "pos": "upos"})


def _record(sentence: list[TextLine]) -> TableRecord:
    number, problem = sentence[0].number, problem_of(sentence)
    if problem:
        return TableRecord(number, problem=problem)
    try:
        pieces = list(_pieces([line for line in sentence if not line.text.startswith("#")]))
    except _Wrong as wrong:
        return TableRecord(number, problem=str(wrong))
    words = [word for piece in pieces for word in piece.words]
    text, spans = _written(pieces)
    tags = {name: [word[place] for word in words] for name, place in TAGS.items()}
    return TableRecord(number, {"text": text, **tags}, spans=spans)


def _pieces(sentence: list[TextLine]) -> Iterator[_Piece]:
    """What is written, in order; empty nodes belong to the enhanced graph only. Raises _Wrong."""
    rows = [row for row in map(_cells, sentence) if not EMPTY.fullmatch(row[0])]
    place, wanted = 0, 1
    while place < len(rows):
        cells, found = rows[place], RANGE.fullmatch(rows[place][0])
        count = int(found[2]) - int(found[1]) + 1 if found and int(found[1]) == wanted else 1
        place += found is not None
        words = tuple(rows[place : place + count])
        numbers = [word[0] for word in words]
        if not 1 <= count <= len(rows) or numbers != [str(wanted + offset) for offset in range(count)]:
            raise _Wrong("The words of the sentence are not numbered 1, 2, 3, ...")
        if not cells[1].strip():
            raise _Wrong("A word of the sentence is empty.")
        place, wanted = place + count, wanted + count
        yield _Piece(cells[1].strip(), words, "SpaceAfter=No" not in cells[9].split("|"))


def _cells(line: TextLine) -> list[str]:
    cells = line.text.split("\t")
    if len(cells) != FIELDS:
        raise _Wrong(f"Line {line.number} has {len(cells)} columns; CoNLL-U has {FIELDS}, separated by tabs.")
    return cells


def _written(pieces: list[_Piece]) -> tuple[str, tuple[Span, ...]]:
    """The text, and where each word stands in it. A contraction is divided where its words are its parts; else its first word stands for all of it."""
    text, spans = "", list[Span]()
    for piece in pieces:
        start = len(text)
        text += piece.form + (" " if piece.spaced else "")
        forms = [word[1] for word in piece.words]
        if len(forms) == 1 or "".join(forms) != piece.form:
            end = start + len(piece.form)
            spans += [(start, end), *[(end, end)] * (len(forms) - 1)]
            continue
        for form in forms:
            spans.append((start, start + len(form)))
            start += len(form)
    return text.rstrip(), tuple(spans)


CONLLU = Format("conllu", "CoNLL-U", (".conllu",), _open)
