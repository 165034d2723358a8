"""A table as a file: JSON, CSV, Parquet, or LaTeX for the booktabs package."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...core.csv_text import Cell, csv_text

TableFormat = Literal["json", "csv", "parquet", "latex"]

# What LaTeX reads as a command, and how it is written instead.
_ESCAPED = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
}


@dataclass(frozen=True)
class ResultTable:
    """Rows under columns. A column holds text or numbers; None is what is not defined. `title` says what it is in one line."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def as_json(table: ResultTable) -> bytes:
    """{"name", "title", "columns", "rows"}; null is what is not defined."""
    rows = [[_finite(cell) for cell in row] for row in table.rows]
    document = {"name": table.name, "title": table.title, "columns": list(table.columns), "rows": rows}
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def as_csv(table: ResultTable) -> bytes:
    """UTF-8 with a header line; what is not defined is empty."""
    return csv_text([table.columns, *([_finite(cell) for cell in row] for row in table.rows)]).encode()


def as_parquet(table: ResultTable) -> bytes:
    """A file with one row group per table: text as strings, whole numbers as int64, others as float64; the title stands in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = [[_finite(row[place]) for row in table.rows] for place in range(len(table.columns))]
    fields = [pa.array(*_typed(pa, column)) for column in columns]
    made = pa.table(dict(zip(table.columns, fields, strict=True)))
    made = made.replace_schema_metadata({"headscope.table": table.name, "headscope.title": table.title})
    buffer = io.BytesIO()
    pq.write_table(made, buffer)
    return buffer.getvalue()


def as_latex(table: ResultTable) -> bytes:
    """A tabular with the rules of booktabs and a caption; numbers have four digits that count, and what is not defined is a dash."""
    numeric = [_numeric([row[place] for row in table.rows]) for place in range(len(table.columns))]
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numeric)}}}",
        r"\toprule",
        _line([escaped(name.replace("_", " ")) for name in table.columns]),
        r"\midrule",
        *(_line([_shown(cell) for cell in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines).encode()


def escaped(text: str) -> str:
    """Text that LaTeX shows as it is, on one line."""
    return "".join(_ESCAPED.get(letter, letter) for letter in " ".join(text.split()))


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _shown(cell: Cell) -> str:
    cell = _finite(cell)
    if cell is None:
        return "--"
    if isinstance(cell, float):
        digits, _, power = f"{cell:.4g}".partition("e")
        # A minus sign, not a hyphen.
        return f"${digits} \\times 10^{{{int(power)}}}$" if power else f"${digits}$"
    return escaped(str(cell)) if isinstance(cell, str) else f"${cell}$"


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _numeric(cells: Sequence[Cell]) -> bool:
    return not any(isinstance(cell, str) for cell in cells)


def _typed(pa: Any, cells: Sequence[Cell]) -> tuple[Sequence[Cell], Any]:
    """Cells and their type: text if any of them is, whole numbers if all are."""
    if not _numeric(cells):
        return [None if cell is None else str(cell) for cell in cells], pa.string()
    whole = any(cell is not None for cell in cells) and all(cell is None or isinstance(cell, int) for cell in cells)
    return (cells, pa.int64()) if whole else ([None if cell is None else float(cell) for cell in cells], pa.float64())


WRITERS: dict[TableFormat, Callable[[ResultTable], bytes]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
    "latex": as_latex,
}
MEDIA: dict[TableFormat, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "latex": "application/x-tex; charset=utf-8",
}
SUFFIXES: dict[TableFormat, str] = {"json": "json", "csv": "csv", "parquet": "parquet", "latex": "tex"}
