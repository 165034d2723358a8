"""The lines of a text file, however long the file or one of its lines is: a line that can't be used is named, not guessed at."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....errors import InvalidDataset

# Longer lines are passed over without being kept in memory.
LINE_BYTES = 1024 * 1024
PIECE = 256 * 1024
# The longer marks first: that of UTF-32 begins like that of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8 with a byte order mark"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
TOO_LONG = f"The line is longer than {LINE_BYTES} bytes."
NUL = "The line holds a NUL character, so it is not plain text."
NOT_UTF8 = "The line is not UTF-8. Save the file as UTF-8."


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line without its end. `number` counts from 1; `problem` says why it can't be used, and `text` is empty then."""

    number: int
    text: str
    problem: str | None = None


def encoding(path: Path) -> str:
    """The encoding of a text file by its byte order mark, in words: UTF-8 without one."""
    return _mark(path)[2]


def lines(path: Path) -> Iterator[TextLine]:
    """The lines of a file in UTF-8, or whatever its byte order mark says. They end in LF, CR LF or, where a file has no LF, CR.

    Raises InvalidDataset where nothing after some line can be read.
    """
    end = _line_end(path)
    number, begun, long = 1, bytearray(), False
    for piece in _pieces(path):
        if long and end not in piece:
            continue
        *whole, rest = piece.split(end)
        for part in whole:
            yield _line(number, bytes(begun) + part, long=long)
            number, long = number + 1, False
            begun.clear()
        begun += rest
        if len(begun) > LINE_BYTES:
            long = True
            begun.clear()
    if begun or long:
        yield _line(number, bytes(begun), long=long)


def _mark(path: Path) -> tuple[bytes, str, str]:
    with path.open("rb") as file:
        start = file.read(4)
    return next((found for found in MARKS if start.startswith(found[0])), (b"", "utf-8", "UTF-8"))


def _line_end(path: Path) -> bytes:
    first = next(_pieces(path), b"")
    return b"\r" if b"\r" in first and b"\n" not in first else b"\n"


def _pieces(path: Path) -> Iterator[bytes]:
    """The file in UTF-8, without its mark."""
    mark, codec, name = _mark(path)
    with path.open("rb") as file:
        if codec == "utf-8":
            file.seek(len(mark))
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
                    f"The file begins as {name} but goes on as something else after line {read + 1}. Save it as UTF-8."
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
