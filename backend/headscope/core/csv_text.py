"""Comma-separated values that no spreadsheet takes for a formula."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

Cell = str | int | float | None

# How text begins that a spreadsheet computes, and text that is just a number.
FORMULA = re.compile(r"[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# With this end csv.writer quotes a lone CR, which most readers take for the end of a line.
QUOTES_CR = "\r\n"


class _Lines(list[str]):
    """Lines that end in LF."""

    def write(self, line: str) -> None:
        """Append a line of csv.writer."""
        self.append(f"{line.removesuffix(QUOTES_CR)}\n")


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Return rows as lines; None is empty. Text that begins like a formula gets an apostrophe in front, unless it is a number."""
    lines = _Lines()
    csv.writer(lines, lineterminator=QUOTES_CR).writerows([_plain(cell) for cell in row] for row in rows)
    return "".join(lines)


def _plain(cell: Cell) -> Cell:
    is_formula = isinstance(cell, str) and FORMULA.match(cell) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell
