"""Files as data sets, one format per file. A new format is a file here and a line in FORMATS."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from ....errors import InvalidDataset, Unknown
from .. import columns as roles
from ..dataset import BadRows, Dataset
from ..rows import Rows
from ..table import LOOKED_AT, Format
from .conll import CONLL
from .conllu import CONLLU
from .jsonl import JSONL
from .parquet import PARQUET
from .separated import CSV, TSV
from .sniffing import check_readable, sniffed, tagged
from .text import TEXT

FORMATS: dict[str, Format] = {one.name: one for one in (JSONL, CSV, TSV, PARQUET, CONLL, CONLLU, TEXT)}


def read(
    path: Path,
    name: str | None = None,
    format: str | None = None,  # noqa: A002 - as it is called everywhere
    columns: Mapping[str, str] | None = None,
    bad_rows: BadRows = "skip",
    text_bytes: int | None = None,
) -> Dataset:
    """The data set in a file. Only its beginning is read now; its rows are read as they are gone through.

    `name` is what the file is called (its format is that of its suffix unless `format` says another), `columns` role -> column, `text_bytes` the longest
    text in UTF-8 bytes. Raises InvalidDataset, InvalidRequest, or Unknown for a format that there is not; see Rows for what its rows raise.
    """
    name = name or path.name
    kind = format_of(path, name, format)
    check_readable(path, kind.name)
    wanted = roles.check_roles(columns or {})
    table = kind.open(path, wanted)
    sample = list(islice(table.records(table.columns), LOOKED_AT))
    if not sample:
        raise InvalidDataset("The file holds no rows.", pointer="/dataset")
    usable = [record.values for record in sample if record.problem is None]
    if not usable:
        raise InvalidDataset(
            f"None of the first rows can be used. Row {sample[0].number}: {sample[0].problem}", pointer="/dataset"
        )
    choice = roles.choose(table.columns, usable, wanted, table.fixed)
    found = Dataset(name, kind.name, table.encoding, table.columns, choice.columns, (), choice.reasons, choice.guessed)
    found.rows = Rows(found, table, bad_rows, text_bytes)
    return found


def format_of(path: Path, name: str, given: str | None = None) -> Format:
    """The format that is given, else that of the name's suffix, else that of the content. Raises Unknown or InvalidDataset.

    Plain text that is words with their tags is read as those, unless the format is given.
    """
    if given is not None:
        if given not in FORMATS:
            raise Unknown("format", f"There is no such format. There are: {', '.join(FORMATS)}.", pointer="/format")
        return FORMATS[given]
    by_suffix = {suffix: one for one in FORMATS.values() for suffix in one.suffixes}
    for suffix in reversed(Path(name.lower()).suffixes):
        # wikigold.conll.txt is CoNLL: .txt says less than what stands before it.
        if suffix in by_suffix and (suffix != ".txt" or not set(Path(name.lower()).suffixes[:-1]) & set(by_suffix)):
            found = by_suffix[suffix]
            return FORMATS[(tagged(path) if found is TEXT else None) or found.name]
    return FORMATS[sniffed(path)]
