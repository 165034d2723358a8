"""CoNLL-U: sentences of a treebank, with their original text restored and a part of speech for every word."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....core.text import Span
from ..dataset import Role
from ..table import DataTable, Format, TableRecord
from .conll import problem_of, sentences
from .lines import TextLine, encoding

RANGE, EMPTY = re.compile(r"([1-9]\d{0,5})-([1-9]\d{0,5})"), re.compile(r"\d+\.[1-9]\d*")
# Columns of tags, by their index in a line.
TAGS = {"upos": 3, "xpos": 4, "lemma": 2, "feats": 5, "deprel": 7}
FIELDS = 10


class _InvalidSentence(ValueError):
    """The reason why a sentence cannot be used."""


@dataclass(frozen=True, slots=True)
class _SurfaceToken:
    """A stretch of the text: its form, its words (one, or those of a contraction), and whether a space follows."""

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
    except _InvalidSentence as error:
        return TableRecord(number, problem=str(error))
    words = [word for piece in pieces for word in piece.words]
    text, spans = _restore_text(pieces)
    tags = {name: [word[place] for word in words] for name, place in TAGS.items()}
    return TableRecord(number, {"text": text, **tags}, spans=spans)


def _pieces(sentence: list[TextLine]) -> Iterator[_SurfaceToken]:
    """Yield the surface tokens of a sentence; empty nodes belong to the enhanced graph only. Raises _InvalidSentence."""
    rows = [row for row in map(_cells, sentence) if not EMPTY.fullmatch(row[0])]
    place, wanted = 0, 1
    while place < len(rows):
        cells, found = rows[place], RANGE.fullmatch(rows[place][0])
        count = int(found[2]) - int(found[1]) + 1 if found and int(found[1]) == wanted else 1
        place += found is not None
        words = tuple(rows[place : place + count])
        numbers = [word[0] for word in words]
        if not 1 <= count <= len(rows) or numbers != [str(wanted + offset) for offset in range(count)]:
            raise _InvalidSentence("The words of the sentence are not numbered 1, 2, 3, ...")
        if not cells[1].strip():
            raise _InvalidSentence("A word of the sentence is empty.")
        place, wanted = place + count, wanted + count
        yield _SurfaceToken(cells[1].strip(), words, "SpaceAfter=No" not in cells[9].split("|"))


def _cells(line: TextLine) -> list[str]:
    cells = line.text.split("\t")
    if len(cells) != FIELDS:
        raise _InvalidSentence(f"Line {line.number} has {len(cells)} columns; CoNLL-U has {FIELDS}, separated by tabs.")
    return cells


def _restore_text(pieces: list[_SurfaceToken]) -> tuple[str, tuple[Span, ...]]:
    """Return the text and the span of each word. A contraction is split if its words spell it; otherwise its first word covers all of it."""
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
