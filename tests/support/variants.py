"""Many variants of a test as one case."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from tests.support import extent

Test = Callable[..., None]
Ids = Iterable[Any] | Callable[[Any], Any] | None


def variants(
    names: str | Sequence[str],
    values: Iterable[Any],
    ids: Ids = None,
    *,
    short: int | None = None,
    crossed: bool = True,
) -> Callable[[Test], Test]:
    """Run a test for each of the values in one case; arguments are those of pytest.mark.parametrize.

    Each variant is a subtest: all of them run, and each failure is reported with the variant's name. For variants that differ in data only: they share one set
    of fixtures, whose setup would take longer than most of them do, and what one leaves there is there for the next. Several decorators give every combination.

    In `make test`, `short` of the values run, from all over them; and where the first decorator is not `crossed`, each value once, not every combination.
    """
    fields = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [(value,) if len(fields) == 1 and isinstance(names, str) else tuple(value) for value in values]
    if ids is None or callable(ids):
        named = ids or str
        labels = ["-".join(str(named(value)) for value in row) for row in rows]
    else:
        labels = [str(one) for one in ids]
    table = [(label, dict(zip(fields, row, strict=True))) for label, row in zip(labels, rows, strict=True)]
    if extent.shortened and short is not None:
        table = table[:: -(-len(table) // short)]

    def decorate(test: Test) -> Test:
        tables = [table, *getattr(test, "tables", [])]
        single: Test = getattr(test, "single", test)
        given = {name for rows in tables for name in rows[0][1]}
        fixtures = [one for one in inspect.signature(single).parameters.values() if one.name not in given]

        @functools.wraps(single)
        def run(subtests: pytest.Subtests, **shared: Any) -> None:
            for variant in itertools.product(*tables) if crossed or not extent.shortened else _each_once(tables):
                arguments = {name: value for _, row in variant for name, value in row.items()}
                with subtests.test(", ".join(label[:80] for label, _ in variant)):
                    single(**shared, **arguments)

        own = inspect.Parameter("subtests", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        vars(run).update(tables=tables, single=single, __signature__=inspect.Signature([own, *fixtures]))
        return run

    return decorate


def _each_once(tables: Sequence[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    """As few combinations as have every value."""
    return zip(*(itertools.islice(itertools.cycle(one), max(map(len, tables))) for one in tables), strict=True)
