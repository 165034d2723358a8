"""Detect the format of a file from its beginning."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from ....errors import InvalidDataset
from .conll import is_conll
from .lines import encoding, lines

HEADER_BYTES = 8192
# Signatures of files that are not data sets, what they are, and what to do.
MAGIC = (
    (b"\x1f\x8b", "compressed with gzip", "Unpack it first."),
    (b"PK\x03\x04", "a ZIP archive, or a document of an office program", "Unpack it, or save its table as CSV."),
    (b"\xfd7zXZ\x00", "compressed with xz", "Unpack it first."),
    (b"BZh", "compressed with bzip2", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "compressed with Zstandard", "Unpack it first."),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it first."),
    (b"%PDF", "a PDF document", "Save its text as plain text."),
    (b"\x89PNG", "an image", "Choose a file of texts."),
    (b"\xff\xd8\xff", "an image", "Choose a file of texts."),
    (b"SQLite format 3", "a SQLite database", "Save the table as CSV."),
    (b"\xd0\xcf\x11\xe0", "a document of an office program", "Save its table as CSV."),
    (b"ARROW1", "an Arrow file", "Save it as Parquet."),
    (b"Obj\x01", "an Avro file", "Save it as Parquet."),
    (b"\x80\x04\x95", "a pickle, which can run code", "Save it as JSON Lines or Parquet."),
    (b"<!DOCTYPE", "a web page", "Save the data itself."),
    (b"<html", "a web page", "Save the data itself."),
)
PARQUET = (b"PAR1", b"PARE")
# Maximum percentage of NUL bytes at the beginning of a text.
MAX_NUL_PERCENT = 20
# Lines searched for tags: the first sentences may have no entity.
TAG_LINES = 200


def check_readable(path: Path, format_: str) -> None:
    """Raise InvalidDataset for a file that is empty, or whose beginning contradicts the format."""
    start = _start(path)
    if not start:
        raise InvalidDataset("The file is empty.", pointer="/dataset")
    for magic, what, then in MAGIC:
        if start.startswith(magic):
            raise InvalidDataset(f"The file is {what}. {then}", pointer="/dataset")
    is_parquet = start.startswith(PARQUET)
    if is_parquet != (format_ == "parquet"):
        raise InvalidDataset(
            "The file is a Parquet file. Set the format to parquet."
            if is_parquet
            else "The file is not a Parquet file.",
            pointer="/dataset",
        )
    if not is_parquet and encoding(path) == "UTF-8" and start.count(0) * 100 > len(start) * MAX_NUL_PERCENT:
        raise InvalidDataset(
            "The file is binary, or UTF-16 without a byte order mark. Save it as text in UTF-8.", pointer="/dataset"
        )


def detect_format(path: Path) -> str:
    """Return the name of the format that the content indicates. Raises InvalidDataset if there is none."""
    if _start(path).startswith(PARQUET):
        return "parquet"
    check_readable(path, "text")
    first = [line.text for line in islice(lines(path), 20) if line.text.strip()]
    if first and all(text.lstrip().startswith("{") for text in first):
        return "jsonl"
    if (found := detect_tags(path)) is not None:
        return found
    raise InvalidDataset(
        "The format is not clear from the file's name. Set the format: jsonl, csv, tsv, parquet, conll, conllu or text.",
        pointer="/format",
    )


def detect_tags(path: Path) -> str | None:
    """Return conll or conllu for a file that begins with tagged words, one per line; else None."""
    first = [line.text for line in islice(lines(path), TAG_LINES) if line.text.strip()]
    rows = [text for text in first if not text.startswith("#")]
    if rows and all(text.count("\t") == 9 for text in rows):
        return "conllu"
    return "conll" if first and is_conll(first) else None


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)
