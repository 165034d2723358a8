"""Schemas that several resources share: pages, problems, mechanisms."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ...analysis.request import Versions

T = TypeVar("T")
Status = Literal["queued", "running", "done", "failed", "cancelled"]


ComputedBy = Annotated[
    Versions | None,
    Field(
        description="Versions of Headscope, torch and transformers that computed the result; null until it is done, and in results of earlier versions."
    ),
]


class Strict(BaseModel):
    """A model that rejects undeclared fields."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Page(Strict, Generic[T]):
    """One page of a list. `next` is the cursor of the next page, null on the last one."""

    items: list[T]
    next: str | None = None


class MechanismSchema(BaseModel):
    """Name and parameters of a mechanism."""

    model_config = ConfigDict(extra="allow")

    name: str


class ErrorItem(Strict):
    """One invalid field. `pointer` is a JSON pointer into the request."""

    pointer: str
    message: str


class Problem(BaseModel):
    """An RFC 9457 problem document. `code` is stable; `detail` says what is wrong and what to do about it."""

    model_config = ConfigDict(extra="forbid")

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    errors: list[ErrorItem] = []
    limit: int | None = None
    actual: int | None = None
    position: Annotated[
        int | None, Field(description="Offset of the error in a query, in characters, counted from 0.")
    ] = None
