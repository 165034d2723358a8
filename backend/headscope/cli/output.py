"""What several commands share: options, methods with parameters, tables and progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..core.declarations import Declaration

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
MODEL = click.option(
    "-m", "--model", default="minilm", show_default=True, help="Catalogue name, local directory, or hub id."
)
KIND = click.option(
    "--kind",
    default="self",
    show_default=True,
    type=click.Choice(["self", "encoder", "decoder", "cross"]),
    help="Which attention of an encoder-decoder.",
)
# Wider than any row, so that nothing is wrapped or cut.
WIDTH = 100_000


class MethodType(click.ParamType[dict[str, Any]]):
    """A mechanism, lens or measure: NAME, NAME:PARAMETER=VALUE,PARAMETER=VALUE, or a JSON object with its name and parameters."""

    def __init__(self, kind: str, methods: Mapping[str, Declaration]) -> None:
        self.name, self._methods = kind, methods

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "NAME[:PARAMETER=VALUE,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Return the name and parameters as one mapping, or fail with a usage error."""
        if isinstance(value, dict):
            return value
        if value.lstrip().startswith("{"):
            try:
                method = json.loads(value)
            except ValueError:
                self.fail("That is not valid JSON.", param, ctx)
        else:
            name, _, parameters = value.partition(":")
            method = {"name": name, **dict(parse_parameter(part) for part in parameters.split(",") if part)}
        if method.get("name") not in self._methods:
            self.fail(f"There is no such {self.name}. Choose one of {', '.join(self._methods)}.", param, ctx)
        return dict(method)


def parse_parameter(text: str) -> tuple[str, Any]:
    """Parse PARAMETER=VALUE. The value is decoded as JSON if it is JSON, and is a string otherwise."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError("Parameters are given as PARAMETER=VALUE, for example alpha=0.5.")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


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
