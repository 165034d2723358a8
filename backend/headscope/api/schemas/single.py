"""What the schemas of effects and of head scores have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from .analyses import Progress
from .common import ComputedBy, Problem, Status, Strict


class SingleDocument(Strict):
    """A job with one result, in any state."""

    id: str
    status: Status
    progress: Progress
    request: Annotated[dict[str, Any], Field(description="The request, with defaults filled in.")]
    error: Problem | None
    versions: ComputedBy
    links: dict[str, str]
