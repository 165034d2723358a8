"""The lines of a text file of any size. Lines that cannot be decoded are reported, never guessed."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....errors import InvalidDataset

# Longer lines are skipped without being kept in memory.
LINE_BYTES = 1024 * 1024
PIECE = 256 * 1024
# UTF-32 comes first: its byte order mark begins like that of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
TOO_LONG = f"The line is longer than {LINE_BYTES} bytes."
NUL = "The line contains a NUL character, so it is not plain text."
NOT_UTF8 = "The line is not UTF-8. Save the file as UTF-8."


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line without its line ending. `number` counts from 1. `problem` is the reason why it cannot be used; `text` is then empty."""

    number: int
    text: str
    problem: str | None = None


def encoding(path: Path) -> str:
    """Return the name of a file's encoding by its byte order mark; UTF-8 without one."""
    return _byte_order_mark(path)[2]


def lines(path: Path) -> Iterator[TextLine]:
    """Yield the lines of a file in UTF-8 or the encoding of its byte order mark. They end in LF or CR LF, or in CR if the file has no LF.

    Raises InvalidDataset if the rest of the file cannot be decoded.
    """
    end = _line_end(path)
    number, partial, long = 1, bytearray(), False
    for piece in _pieces(path):
        if long and end not in piece:
            continue
        *whole, rest = piece.split(end)
        for part in whole:
            yield _line(number, bytes(partial) + part, long=long)
            number, long = number + 1, False
            partial.clear()
        partial += rest
        if len(partial) > LINE_BYTES:
            long = True
            partial.clear()
    if partial or long:
        yield _line(number, bytes(partial), long=long)


def filled_lines(path: Path) -> Iterator[TextLine]:
    """Yield the lines that are not blank, and those that cannot be used."""
    return (line for line in lines(path) if line.problem or line.text.strip())


def _byte_order_mark(path: Path) -> tuple[bytes, str, str]:
    with path.open("rb") as file:
        start = file.read(4)
    return next((mark for mark in MARKS if start.startswith(mark[0])), (b"", "utf-8", "UTF-8"))


def _line_end(path: Path) -> bytes:
    first = next(_pieces(path), b"")
    return b"\r" if b"\r" in first and b"\n" not in first else b"\n"


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the file in UTF-8 without its byte order mark, piece by piece."""
    bom, codec, name = _byte_order_mark(path)
    with path.open("rb") as file:
        if codec == "utf-8":
            file.seek(len(bom))
            while piece := file.read(PIECE):
                yield piece
            return
        decoder, read = codecs.getincrementaldecoder(codec)(), 0
        while True:
            piece = file.read(PIECE)
            try:
                text = decoder.decode(piece, final=not piece)
            except UnicodeDecodeError:
                raise InvalidDataset(
                    f"The file begins as {name}, but cannot be decoded after line {read + 1}. Save it as UTF-8."
                ) from None
            if not piece:
                return
            read += text.count("\n")
            yield text.encode()


def _line(number: int, data: bytes, *, long: bool) -> TextLine:
    if long or len(data) > LINE_BYTES:
        return TextLine(number, "", TOO_LONG)
    if b"\0" in data:
        return TextLine(number, "", NUL)
    try:
        return TextLine(number, data.removesuffix(b"\r").decode())
    except UnicodeDecodeError:
        return TextLine(number, "", NOT_UTF8)
