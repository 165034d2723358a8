"""Paged lists: by offset if the whole list is known, by time for jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from ..schemas.common import Page

T = TypeVar("T")
CURSOR = "`next` of the previous page."
Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of items per page.")]
JobLimit = Annotated[int, Query(ge=1, le=200, description="Maximum number of items per page.")]
Cursor = Annotated[int, Query(ge=0, le=1_000_000, description=CURSOR)]
# Seconds since 1970, without the signs, exponents, infinities and NaN that float() accepts but Redis does not.
TimeCursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?$", description=CURSOR)]


def paginate(items: Sequence[T], limit: int, cursor: int) -> Page[T]:
    """Return the page that starts at offset `cursor`."""
    end = cursor + limit
    return Page(items=list(items[cursor:end]), next=str(end) if end < len(items) else None)
