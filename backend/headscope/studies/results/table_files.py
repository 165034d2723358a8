"""Result tables and their file formats: JSON, CSV, Parquet, Arrow, and LaTeX for the booktabs package."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...core import arrow
from ...core.csv_text import Cell, csv_text
from ...core.lazy import pa, pq

TableFormat = Literal["json", "csv", "parquet", "arrow", "latex"]

# Characters that are special in LaTeX, and their escapes.
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
    """A table: rows of text or numbers under columns. Undefined cells are None. `title` is one line."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def as_json(table: ResultTable) -> bytes:
    """Return {"name", "title", "columns", "rows"}; undefined cells are null."""
    rows = [[_finite(cell) for cell in row] for row in table.rows]
    document = {"name": table.name, "title": table.title, "columns": list(table.columns), "rows": rows}
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()


def as_csv(table: ResultTable) -> bytes:
    """Return CSV in UTF-8 with a header; undefined cells are empty."""
    return csv_text([table.columns, *([_finite(cell) for cell in row] for row in table.rows)]).encode()


def as_parquet(table: ResultTable) -> bytes:
    """Return a Parquet file: text as strings, whole numbers as int64, other numbers as float64. Name and title are in its metadata."""
    made = pa.table(_arrays(table))
    made = made.replace_schema_metadata({"headscope.table": table.name, "headscope.title": table.title})
    buffer = io.BytesIO()
    pq.write_table(made, buffer)
    return buffer.getvalue()


def as_arrow(table: ResultTable) -> bytes:
    """Return an Arrow stream, with the types and metadata of the Parquet file."""
    return arrow.to_stream(_arrays(table), {"table": table.name, "title": table.title})


def _arrays(table: ResultTable) -> dict[str, Any]:
    columns = [[_finite(row[place]) for row in table.rows] for place in range(len(table.columns))]
    return {name: pa.array(*_typed(column)) for name, column in zip(table.columns, columns, strict=True)}


def as_latex(table: ResultTable) -> bytes:
    """Return a booktabs tabular with a caption. Numbers have four significant digits; undefined cells are dashes."""
    numeric = [_numeric([row[place] for row in table.rows]) for place in range(len(table.columns))]
    lines = [
        r"% \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{''.join('r' if number else 'l' for number in numeric)}}}",
        r"\toprule",
        _row([_escape(name.replace("_", " ")) for name in table.columns]),
        r"\midrule",
        *(_row([_cell(cell) for cell in row]) for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines).encode()


def _escape(text: str) -> str:
    """Escape text for LaTeX, on one line."""
    return "".join(_ESCAPED.get(letter, letter) for letter in " ".join(text.split()))


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell) -> str:
    cell = _finite(cell)
    if cell is None:
        return "--"
    if isinstance(cell, float):
        digits, _, power = f"{cell:.4g}".partition("e")
        # A minus sign, not a hyphen.
        return f"${digits} \\times 10^{{{int(power)}}}$" if power else f"${digits}$"
    return _escape(str(cell)) if isinstance(cell, str) else f"${cell}$"


def _finite(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def _numeric(cells: Sequence[Cell]) -> bool:
    return not any(isinstance(cell, str) for cell in cells)


def _typed(cells: Sequence[Cell]) -> tuple[Sequence[Cell], Any]:
    """Return cells and their Arrow type: text if any cell is, whole numbers if all are."""
    if not _numeric(cells):
        return [None if cell is None else str(cell) for cell in cells], pa.string()
    whole = any(cell is not None for cell in cells) and all(cell is None or isinstance(cell, int) for cell in cells)
    return (cells, pa.int64()) if whole else ([None if cell is None else float(cell) for cell in cells], pa.float64())


WRITERS: dict[TableFormat, Callable[[ResultTable], bytes]] = {
    "json": as_json,
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
    "latex": as_latex,
}
MEDIA: dict[TableFormat, str] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "arrow": arrow.MEDIA,
    "latex": "application/x-tex; charset=utf-8",
}
SUFFIXES: dict[TableFormat, str] = {
    "json": "json",
    "csv": "csv",
    "parquet": "parquet",
    "arrow": "arrows",
    "latex": "tex",
}
