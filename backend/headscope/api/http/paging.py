"""Lists in pages: those that are known as a whole by places in them, those of jobs by time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from ..schemas.analyses import Page

T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=1000, description="Most items of a page.")]
Cursor = Annotated[int, Query(ge=0, le=1_000_000, description="`next` of the page before.")]
# A time in s since 1970: no sign, exponent, infinity or NaN, which float() takes too and Redis does not.
TimeCursor = Annotated[
    str | None, Query(pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?$", description="`next` of the page before.")
]


def page(items: Sequence[T], limit: int, cursor: int) -> Page[T]:
    """The items from a place on."""
    after = cursor + limit
    return Page(items=list(items[cursor:after]), next=str(after) if after < len(items) else None)


def before(cursor: str | None) -> float:
    """Return the time (s since 1970) that a page of a list of jobs goes back from."""
    return float(cursor) if cursor else float("inf")
