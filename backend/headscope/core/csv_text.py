"""Comma-separated values that no spreadsheet interprets as formulas."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

Cell = str | int | float | None

# Text that a spreadsheet would compute, and text that is just a number.
FORMULA = re.compile(r"[=+\-@\t\r\n]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# With this line end csv.writer quotes a single CR, which most readers take for the end of a line.
QUOTES_CR = "\r\n"


class _Lines(list[str]):
    """Lines that end in LF."""

    def write(self, line: str) -> None:
        """Append a line of csv.writer."""
        self.append(f"{line.removesuffix(QUOTES_CR)}\n")


def csv_text(rows: Iterable[Iterable[Cell]]) -> str:
    """Return rows as lines; None is an empty cell. Text that begins like a formula gets a leading apostrophe unless it is a number."""
    lines = _Lines()
    csv.writer(lines, lineterminator=QUOTES_CR).writerows([_escape(cell) for cell in row] for row in rows)
    return "".join(lines)


def _escape(cell: Cell) -> Cell:
    is_formula = isinstance(cell, str) and FORMULA.match(cell) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell
