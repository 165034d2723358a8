"""File formats of data sets. A new format is a module here and an entry in FORMATS."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from ....errors import InvalidDataset, Unknown
from .. import columns as roles
from ..dataset import BadRows, Dataset
from ..rows import RowReader
from ..table import SAMPLE_RECORDS, Format
from .conll import CONLL
from .conllu import CONLLU
from .detection import check_readable, detect_format, detect_tags
from .jsonl import JSONL
from .parquet import PARQUET
from .separated import CSV, TSV
from .text import TEXT

FORMATS: dict[str, Format] = {each.name: each for each in (JSONL, CSV, TSV, PARQUET, CONLL, CONLLU, TEXT)}


def read(
    path: Path,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - the usual name
    columns: Mapping[str, str] | None = None,
    bad_rows: BadRows = "skip",
    text_bytes: int | None = None,
) -> Dataset:
    """Open a file as a data set. Reads only its beginning; iterating over its rows reads the rest.

    `name` is the name of the file, whose suffix determines the format unless `format` is given. `columns` maps roles to columns, and `text_bytes` is the
    maximum length of a text in UTF-8 bytes. Raises InvalidDataset, InvalidRequest, or Unknown for an unknown format; see RowReader for errors in rows.
    """
    name = name or path.name
    kind = format_of(path, name, format)
    check_readable(path, kind.name)
    wanted = roles.check_roles(columns or {})
    table = kind.open(path, wanted)
    sample = list(islice(table.records(table.columns), SAMPLE_RECORDS))
    if not sample:
        raise InvalidDataset("The file has no rows.", pointer="/dataset")
    usable = [record.values for record in sample if record.problem is None]
    if not usable:
        raise InvalidDataset(
            f"None of the first rows can be used. Row {sample[0].number}: {sample[0].problem}", pointer="/dataset"
        )
    chosen, reasons, guessed = roles.choose(table.columns, usable, wanted, table.fixed)
    found = Dataset(name, kind.name, table.encoding, table.columns, chosen, (), reasons, guessed)
    found.rows = RowReader(found, table, bad_rows, text_bytes)
    return found


def format_of(path: Path, name: str, chosen: str | None = None) -> Format:
    """Return the chosen format, else the format of the name's suffix, else the format detected from the content. Raises Unknown or InvalidDataset.

    Plain text that consists of tagged words is read as CoNLL or CoNLL-U, unless the format is chosen.
    """
    if chosen is not None:
        if chosen not in FORMATS:
            raise Unknown("format", f"Unknown format. Available: {', '.join(FORMATS)}.", pointer="/format")
        return FORMATS[chosen]
    by_suffix = {suffix: format_ for format_ in FORMATS.values() for suffix in format_.suffixes}
    for suffix in reversed(Path(name.lower()).suffixes):
        # wikigold.conll.txt is CoNLL: a suffix before .txt is more specific.
        if suffix in by_suffix and (suffix != ".txt" or not set(Path(name.lower()).suffixes[:-1]) & set(by_suffix)):
            found = by_suffix[suffix]
            return FORMATS[(detect_tags(path) if found is TEXT else None) or found.name]
    return FORMATS[detect_format(path)]
