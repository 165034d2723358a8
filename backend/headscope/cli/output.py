"""Output of several commands: tables, progress, and the option for JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
# Wider than any row, so that nothing is wrapped or cut.
WIDTH = 100_000


def print_table(rows: Iterable[Sequence[Any]], header: Sequence[str], numbers: Collection[int]) -> None:
    """Print one line per row, never wrapped, with the columns `numbers` aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(str, row))
    console = Console(width=WIDTH, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        click.echo(line.rstrip())  # trailing spaces of a long column would wrap in a terminal


def format_number(value: float | None) -> str:
    """Return three decimals, or a dash for None and NaN."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}"


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Callable[[float, str, str], None]]:
    """Yield a callback that shows fraction, stage, detail and time left on standard error, if that is a terminal and `quiet` is false."""
    columns = BarColumn(24), TextColumn("{task.description}", markup=False), TimeRemainingColumn()
    disabled = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=disabled) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, stage, detail: bar.update(
            task, completed=fraction, description=f"{stage} {detail}".rstrip()
        )
