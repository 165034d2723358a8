"""How much of a long test runs: all of it in `make long`, and in the commands of long forms; less in `make test`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
# Set before tests are imported.
shortened = False


def extent(full: T, short: T) -> T:
    """Return a number of examples, or some cases: `short` in `make test`, else `full`."""
    return short if shortened else full


def mostly_long(values: Iterable[Any], *short: Any) -> list[Any]:
    """Return the values for pytest.mark.parametrize, tuples for several names; only those of `short` run in `make test`."""
    return [value if value in short else _long(value) for value in values]


def _long(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
